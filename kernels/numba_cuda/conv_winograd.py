"""Convolution with kernels of 3 x 3 by fewer multiplications: Winograd's minimal filtering.

Two results y that are next to each other share two of their three elements d, so that with three
taps g they take four multiplications, not six (S. Winograd, "Arithmetic complexity of
computations", 1980; F(2, 3)):

    m0 = (d0 - d2) g0                      y0 = m0 + m1 + m2
    m1 = (d1 + d2) (g0 + g1 + g2) / 2      y1 = m1 - m2 - m3
    m2 = (d2 - d1) (g0 - g1 + g2) / 2
    m3 = (d1 - d3) g2

Along both axes, a tile of 2 x 2 results takes 16, not 36. What is made of d serves all filters,
what is made of g all tiles, and the sums over channels come before y: a convolution is 16 matrix
products, one for each pair of an m down and an m across (A. Lavin and S. Gray, "Fast algorithms for
convolutional neural networks", 2016).

    weights    w (O, C, 3, 3) -> u (16, O, C)
    inputs     planes -> v (16, C, tiles), of windows of 4 x 4, two apart
    outputs    m = u @ v (16, O, tiles) -> y

Images may be in groups, each with factors of its own behind those of the one before: then who makes
the tiles of a group can multiply them too, and needs nothing that others have in their caches.

For backward-data the gradient is convolved with the filters turned. For backward-weight each step
is taken back, the last one first:

    gradients  planes of g -> d (16, O, tiles)
    filters    d @ v.T (16, O, C) -> dw

Rounding errors are those of direct sums, but relative to the largest elements of a tile, not of a
window; an infinite element makes all results of its tiles NaN.

Planes are split by even and odd rows and columns (`conv_gemm.pad`), so that neighbouring tiles read
neighbouring elements, over the ends of rows: the last tile of a row has no results.
"""

from __future__ import annotations

import functools

from kernels.simt import cuda

BLOCK = 64


@functools.cache
def _of_taps(acc_t):
    @cuda.jit(device=True)
    def of_taps(g0, g1, g2):
        ends, middle = acc_t(0.5) * (g0 + g2), acc_t(0.5) * g1
        return g0, ends + middle, ends - middle, g2

    return of_taps


@cuda.jit(device=True)
def _of_window(d0, d1, d2, d3):
    return d0 - d2, d1 + d2, d2 - d1, d1 - d3


@cuda.jit(device=True)
def _results(m0, m1, m2, m3):
    return m0 + m1 + m2, m1 - m2 - m3


@cuda.jit(device=True)
def _of_gradients(g0, g1):
    return g0, g0 + g1, g0 - g1, -g1


@functools.cache
def _taps(acc_t):
    @cuda.jit(device=True)
    def taps(m0, m1, m2, m3):
        ends = acc_t(0.5) * (m1 + m2)
        return m0 + ends, acc_t(0.5) * (m1 - m2), ends + m3

    return taps


@cuda.jit(device=True)
def _place(image, count, factors, columns):
    """The factor from which on an image's tiles are, and the column of the first one; of `factors`,
    each with `columns` tiles, 16 belong to a group of images."""
    if factors == 16:
        return 0, image * count
    images = columns // count
    return image // images * 16, image % images * count


@functools.cache
def weights(acc_t, turned: bool):
    """Block BLOCK, grid (columns, rows, groups): a thread makes u[:, row, column] of a filter of w
    (O, C, 9), which is `turned` by 180 degrees for backward-data; row and column are O and C, then
    C and O."""
    of_taps, (first, step) = _of_taps(acc_t), (8, -1) if turned else (0, 1)

    @cuda.jit
    def conv2d_winograd_weights(w, u):
        down = cuda.shared.array((4, 3, BLOCK), acc_t)
        tx, row, factor = cuda.threadIdx.x, cuda.blockIdx.y, 16 * cuda.blockIdx.z
        column = cuda.blockIdx.x * BLOCK + tx
        if column < u.shape[2]:
            o, c = (column, row) if turned else (row, column)
            for j in range(3):
                k = first + j * step
                m = of_taps(w[o, c, k], w[o, c, k + 3 * step], w[o, c, k + 6 * step])
                for i in range(4):
                    down[i, j, tx] = m[i]
        cuda.syncthreads()
        if column < u.shape[2]:
            for i in range(4):
                m = of_taps(down[i, 0, tx], down[i, 1, tx], down[i, 2, tx])
                for j in range(4):
                    u[factor + 4 * i + j, row, column] = m[j]

    return conv2d_winograd_weights


@functools.cache
def inputs(acc_t):
    """Grid (tiles, channels, images): a thread makes v[:, channel, column + tile] of the `count`
    tiles of an image from the tile `first` on, over the ends of rows. planes flat: for each image
    and channel four phases of `plane` elements, in rows of `width`."""

    @cuda.jit
    def conv2d_winograd_inputs(planes, v, plane, width, first, count):
        tile = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
        channel, image = cuda.blockIdx.y, cuda.blockIdx.z
        factor, column = _place(image, count, v.shape[0], v.shape[2])
        if tile < count:
            base = (image * cuda.gridDim.y + channel) * 4 * plane + first + tile
            down = cuda.local.array((4, 4), acc_t)
            for j in range(4):
                even = base + j % 2 * plane + j // 2
                odd = even + 2 * plane
                m = _of_window(planes[even], planes[odd], planes[even + width], planes[odd + width])
                for i in range(4):
                    down[i, j] = m[i]
            for i in range(4):
                m = _of_window(down[i, 0], down[i, 1], down[i, 2], down[i, 3])
                for j in range(4):
                    v[factor + 4 * i + j, channel, column + tile] = m[j]

    return conv2d_winograd_inputs


@functools.cache
def outputs(acc_t, has_bias: bool):
    """Block BLOCK, grid (tiles, channels, images): y[image, channel] of `count` tiles from the tile
    `first` on. Results lie in shared memory first, where neighbours have tables of their own, so
    that a warp writes neighbours."""

    @cuda.jit
    def conv2d_winograd_outputs(m, bias, y, width, first, count):
        results = cuda.shared.array((2, 2, BLOCK), acc_t)
        tx, channel, image = cuda.threadIdx.x, cuda.blockIdx.y, cuda.blockIdx.z
        factor, column = _place(image, count, m.shape[0], m.shape[2])
        own = cuda.blockIdx.x * BLOCK
        more = acc_t(bias[channel]) if has_bias else acc_t(0)
        if own + tx < count:
            at = column + own + tx
            down = cuda.local.array((2, 4), acc_t)
            for j in range(4):
                pair = _results(
                    m[factor + j, channel, at],
                    m[factor + 4 + j, channel, at],
                    m[factor + 8 + j, channel, at],
                    m[factor + 12 + j, channel, at],
                )
                down[0, j] = pair[0]
                down[1, j] = pair[1]
            for i in range(2):
                pair = _results(down[i, 0], down[i, 1], down[i, 2], down[i, 3])
                results[i, 0, tx] = pair[0] + more
                results[i, 1, tx] = pair[1] + more
        cuda.syncthreads()
        start, end = first + own, first + min(own + BLOCK, count)
        for row in range(start // width, (end - 1) // width + 1):
            left = max(start - row * width, 0)
            length = min(2 * min(end - row * width, width - 1), y.shape[3]) - 2 * left
            at = row * width + left - start
            for i in range(min(2, y.shape[2] - 2 * row)):
                for j in range(tx, length, BLOCK):
                    y[image, channel, 2 * row + i, 2 * left + j] = results[i, j % 2, at + j // 2]

    return conv2d_winograd_outputs


@functools.cache
def gradients(acc_t):
    """Grid (tiles, channels, images): as `inputs`, of planes of g with zeros where there is no
    result, to d."""

    @cuda.jit
    def conv2d_winograd_gradients(planes, d, plane, first, count):
        tile = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
        channel, image = cuda.blockIdx.y, cuda.blockIdx.z
        factor, column = _place(image, count, d.shape[0], d.shape[2])
        if tile < count:
            base = (image * cuda.gridDim.y + channel) * 4 * plane + first + tile
            down = cuda.local.array((4, 2), acc_t)
            for j in range(2):
                m = _of_gradients(planes[base + j * plane], planes[base + (j + 2) * plane])
                for i in range(4):
                    down[i, j] = m[i]
            for i in range(4):
                m = _of_gradients(down[i, 0], down[i, 1])
                for j in range(4):
                    d[factor + 4 * i + j, channel, column + tile] = m[j]

    return conv2d_winograd_gradients


@functools.cache
def filters(acc_t):
    """Block BLOCK, grid (C tiles, O): dw (O, C, 9) from m (16, O, C), by way of shared memory, so
    that a warp writes neighbours."""
    taps_of = _taps(acc_t)

    @cuda.jit
    def conv2d_winograd_filters(m, dw):
        taps = cuda.shared.array((9, BLOCK), acc_t)
        tx, o, c0 = cuda.threadIdx.x, cuda.blockIdx.y, cuda.blockIdx.x * BLOCK
        channels = m.shape[2]
        c = c0 + tx
        if c < channels:
            down = cuda.local.array((3, 4), acc_t)
            for j in range(4):
                g = taps_of(m[j, o, c], m[4 + j, o, c], m[8 + j, o, c], m[12 + j, o, c])
                for i in range(3):
                    down[i, j] = g[i]
            for i in range(3):
                g = taps_of(down[i, 0], down[i, 1], down[i, 2], down[i, 3])
                for j in range(3):
                    taps[3 * i + j, tx] = g[j]
        cuda.syncthreads()
        for k in range(tx, 9 * min(BLOCK, channels - c0), BLOCK):
            dw[o, c0 + k // 9, k % 9] = taps[k % 9, k // 9]

    return conv2d_winograd_filters
