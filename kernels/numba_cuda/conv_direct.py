"""Convolution from its definition: the first versions of the ladder, and depthwise kernels.

    direct_forward   one thread per result, neighbours along a row of the output
    tiled_forward    a block loads its tile of x, with the halo, into shared memory once, and each
                     thread keeps the results of several output channels, or of several rows
    few_channels     a block keeps the halo of all input channels and multiplies it, as the right
                     matrix of a product, by the weights of CHANNELS output channels after another
    plane_forward    a block has a padded plane in shared memory and walks along it, over the ends
                     of rows; one input channel a group; backward-data too, with a result of
                     each position for each phase of the stride
    plane_weight     a warp walks along planes of x and g together, with a sum for each tap
    direct_data      one thread per element of dx, which sums over every output that read it
    unfold, fold     windows as columns, one side of a product; an element of dx as the sum over the
                     windows that have it, whose gradients are a product
    direct_weight    one warp per element of dw: lanes along the output, summed by shuffles

Kernel size, stride and dilation are constants of a kernel: their loops unroll.
"""

from __future__ import annotations

import functools

from numpy import uint32

from kernels.launchers.common import Pair
from kernels.launchers.conv_few import CHANNELS
from kernels.simt import cuda

FULL_WARP = 0xFFFFFFFF


@functools.cache
def direct_forward(acc_t, kernel: Pair, stride: Pair, dilation: Pair, has_bias: bool):
    """Grid (images * channels, row tiles, column tiles)."""
    (kh, kw), (sh, sw), (dh, dw) = kernel, stride, dilation

    @cuda.jit
    def conv2d_direct(x, w, bias, y, groups, pad_h, pad_w):
        n = cuda.blockIdx.x // w.shape[0]
        oc = cuda.blockIdx.x % w.shape[0]
        oh = cuda.blockIdx.y * cuda.blockDim.y + cuda.threadIdx.y
        ow = cuda.blockIdx.z * cuda.blockDim.x + cuda.threadIdx.x
        if oh < y.shape[2] and ow < y.shape[3]:
            c0 = oc // (w.shape[0] // groups) * w.shape[1]
            acc = acc_t(bias[oc]) if has_bias else acc_t(0)
            for c in range(w.shape[1]):
                for i in range(kh):
                    h = oh * sh + i * dh - pad_h
                    for j in range(kw):
                        v = ow * sw + j * dw - pad_w
                        if 0 <= h < x.shape[2] and 0 <= v < x.shape[3]:
                            acc += acc_t(w[oc, c, i, j]) * acc_t(x[n, c0 + c, h, v])
            y[n, oc, oh, ow] = acc

    return conv2d_direct


@functools.cache
def tiled_forward(
    acc_t, kernel: Pair, stride: Pair, dilation: Pair, has_bias: bool, channels: int, rows: int,
    size: Pair,
):  # fmt: skip
    """Block (width, height // rows): a tile of `size` outputs for `channels` output channels of one
    group. A thread computes `rows` of each, below one another, which share what they read.

    Grid images * groups * channel tiles * tiles: those of a plane after one another. With a stride
    the columns of the halo are brought together by its phases, so that neighbours read neighbours.
    """
    (kh, kw), (sh, sw), (dh, dw), (height, tile_w) = kernel, stride, dilation, size
    halo_h = (height - 1) * sh + (kh - 1) * dh + 1
    phase_w = tile_w + (kw - 1) * dw // sw
    halo_w = sw * phase_w

    @cuda.jit
    def conv2d_tiled(x, w, bias, y, groups, pad_h, pad_w):
        halo = cuda.shared.array((halo_h, halo_w), acc_t)
        loaded = cuda.shared.array((halo_h, halo_w), acc_t)
        acc = cuda.local.array((channels, rows), acc_t)
        tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
        per_group = w.shape[0] // groups
        across = (y.shape[3] + (tile_w - 1)) // tile_w
        tiles = (y.shape[2] + (height - 1)) // height * across
        parts = (per_group + (channels - 1)) // channels
        tile, part = cuda.blockIdx.x % tiles, cuda.blockIdx.x // tiles
        oh0, ow0 = tile // across * height, tile % across * tile_w
        image_group, first = part // parts, part % parts * channels
        n, group = image_group // groups, image_group % groups
        for o in range(channels):
            for r in range(rows):
                acc[o, r] = acc_t(0)
        for c in range(w.shape[1]):
            for i in range(ty, halo_h, height // rows):
                h = oh0 * sh + i - pad_h
                for j in range(tx, halo_w, tile_w):
                    v = ow0 * sw + j - pad_w
                    inside = 0 <= h < x.shape[2] and 0 <= v < x.shape[3]
                    value = acc_t(x[n, group * w.shape[1] + c, h, v]) if inside else acc_t(0)
                    if sw > 1:
                        loaded[i, j] = value
                    else:
                        halo[i, j] = value
            cuda.syncthreads()
            if sw > 1:
                for i in range(ty, halo_h, height // rows):
                    for u in range(tx, phase_w, tile_w):
                        for p in range(sw):
                            halo[i, p * phase_w + u] = loaded[i, u * sw + p]
                cuda.syncthreads()
            for j in range(kw):
                v = j * dw % sw * phase_w + tx + j * dw // sw
                for i in range(kh):
                    for o in range(channels):
                        oc = group * per_group + min(first + o, per_group - 1)
                        for r in range(rows):
                            xv = halo[(ty * rows + r) * sh + i * dh, v]
                            acc[o, r] += acc_t(w[oc, c, i, j]) * xv
            cuda.syncthreads()
        for o in range(channels):
            if first + o < per_group:
                oc = group * per_group + first + o
                for r in range(rows):
                    oh = oh0 + ty * rows + r
                    if oh < y.shape[2] and ow0 + tx < y.shape[3]:
                        v = acc[o, r] + acc_t(bias[oc]) if has_bias else acc[o, r]
                        y[n, oc, oh, ow0 + tx] = v

    return conv2d_tiled


@functools.cache
def few_channels(
    acc_t, kernel: Pair, stride: Pair, dilation: Pair, has_bias: bool, read: int, height: int,
    tile_w: int,
):  # fmt: skip
    """Block (tile_w, CHANNELS): height x tile_w outputs of all channels of one group.

    Grid images * groups * tiles. w (O, read * KH * KW). In the halo a column lies behind those of
    the same phase of the stride, so that neighbours read neighbours, and a table has the place of
    each term. Each row of the tile is a product on its own, between two barriers.
    """
    (kh, kw), (sh, sw), (dh, dw) = kernel, stride, dilation
    terms = read * kh * kw
    halo_h = (height - 1) * sh + (kh - 1) * dh + 1
    phase_w = tile_w + (kw - 1) * dw // sw
    halo_w = sw * phase_w
    size = read * halo_h * halo_w

    @cuda.jit
    def conv2d_few_channels(x, w, bias, y, groups, pad_h, pad_w):
        halo = cuda.shared.array(size, acc_t)
        factors = cuda.shared.array((CHANNELS, terms), acc_t)
        places = cuda.shared.array(terms, uint32)
        tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
        written = w.shape[0] // groups
        across = (y.shape[3] + (tile_w - 1)) // tile_w
        tiles = (y.shape[2] + (height - 1)) // height * across
        tile, image_group = cuda.blockIdx.x % tiles, cuda.blockIdx.x // tiles
        n, group = image_group // groups, image_group % groups
        oh0, ow0 = tile // across * height, tile % across * tile_w
        for t in range(ty * tile_w + tx, terms, tile_w * CHANNELS):
            row, j = t // (kh * kw) * halo_h + t // kw % kh * dh, t % kw * dw
            places[t] = row * halo_w + j % sw * phase_w + j // sw
        for line in range(ty, read * halo_h, CHANNELS):
            h = oh0 * sh + line % halo_h - pad_h
            for phase in range(sw):
                start, lead = line * halo_w + phase * phase_w, ow0 * sw + phase - pad_w
                low = max(0, (sw - 1 - lead) // sw)  # where x begins, and where it ends
                high = min(phase_w, (x.shape[3] - lead + (sw - 1)) // sw)
                if h < 0 or h >= x.shape[2] or low > high:
                    low = high = phase_w
                h0, w0 = max(0, h), max(0, lead + low * sw)
                for u in range(tx, low, tile_w):
                    halo[start + u] = acc_t(0)
                for u in range(tx, high - low, tile_w):
                    value = x[n, group * read + line // halo_h, h0, w0 + u * sw]
                    halo[start + low + u] = acc_t(value)
                for u in range(tx, phase_w - high, tile_w):
                    halo[start + high + u] = acc_t(0)
        for first in range(0, written, CHANNELS):
            oc, has_own = group * written + first + ty, first + ty < written
            for t in range(tx, terms, tile_w):
                factors[ty, t] = acc_t(w[oc, t]) if has_own else acc_t(0)
            for r in range(height):
                acc = acc_t(0)
                cuda.syncthreads()
                for t in range(terms):
                    acc += factors[ty, t] * halo[places[t] + r * (sh * halo_w) + tx]
                cuda.syncthreads()
                if has_own and oh0 + r < y.shape[2] and ow0 + tx < y.shape[3]:
                    v = acc + acc_t(bias[oc]) if has_bias else acc
                    y[n, oc, oh0 + r, ow0 + tx] = v

    return conv2d_few_channels


@functools.cache
def plane_forward(
    acc_t, kernel: Pair, phases: Pair, stride: Pair, dilation: Pair, has_bias: bool, size: int
):
    """One block: y[z] (OH, OW) from the plane x[z // channels written * read].

    The plane has rows of `width` elements, at most `size` in all; x lies in it from `lead` on. A
    position has a result for each of the phases, which lie side by side in y: w (O * phases, taps).
    """
    (kh, kw), (ph, pw), (sh, sw), (dh, dw) = kernel, phases, stride, dilation
    sums_w = pw * size

    @cuda.jit
    def conv2d_plane(x, w, bias, y, written, count, width, lead_h, lead_w):
        plane = cuda.shared.array(size, acc_t)
        sums = cuda.shared.array((ph, sums_w), acc_t)
        tx, ty, z = cuda.threadIdx.x, cuda.threadIdx.y, cuda.blockIdx.x
        step, first = cuda.blockDim.x * cuda.blockDim.y, ty * cuda.blockDim.x + tx
        channel, down = z % (w.shape[0] // (ph * pw)), dh * width
        for q in range(first, count, step):
            plane[q] = acc_t(0)
        cuda.syncthreads()
        for h in range(ty, x.shape[1], cuda.blockDim.y):
            row = (lead_h + h) * width + lead_w
            for u in range(tx, x.shape[2], cuda.blockDim.x):
                plane[row + u] = acc_t(x[z // written, h, u])
        cuda.syncthreads()
        for q in range(first, count - (kh - 1) * down - (kw - 1) * dw, step):
            for a in range(ph):
                own = (channel * ph + a) * pw
                for b in range(pw):
                    total = acc_t(bias[channel]) if has_bias else acc_t(0)
                    for i in range(kh):
                        for j in range(kw):
                            total += acc_t(w[own + b, i * kw + j]) * plane[q + i * down + j * dw]
                    sums[a, q * pw + b] = total
        cuda.syncthreads()
        for h in range(ty, y.shape[1], cuda.blockDim.y):
            for u in range(tx, y.shape[2], cuda.blockDim.x):
                y[z, h, u] = sums[h % ph, h // ph * (sh * pw) * width + u * sw]

    return conv2d_plane


@functools.cache
def plane_weight(acc_t, kernel: Pair, stride: Pair, dilation: Pair, size: int):
    """One block of 32: dw[channel] (taps) of x (images * channels, H, W) and g (the same, OH, OW).

    The planes as in `plane_forward`, with the elements of g a stride apart: lanes walk along them,
    shuffles add up.
    """
    (kh, kw), (sh, sw), (dh, dw_), taps = kernel, stride, dilation, kernel[0] * kernel[1]

    @cuda.jit
    def conv2d_plane_weight(x, g, dw, count, width, lead_h, lead_w):
        plane = cuda.shared.array(size, acc_t)
        slopes = cuda.shared.array(size, acc_t)
        acc = cuda.local.array(taps, acc_t)
        lane, channel = cuda.threadIdx.x, cuda.blockIdx.x
        for q in range(lane, count, 32):
            plane[q] = acc_t(0)
            slopes[q] = acc_t(0)
        for t in range(taps):
            acc[t] = acc_t(0)
        for z in range(channel, x.shape[0], dw.shape[0]):
            cuda.syncthreads()
            for h in range(x.shape[1]):
                for u in range(lane, x.shape[2], 32):
                    plane[(lead_h + h) * width + lead_w + u] = acc_t(x[z, h, u])
            for h in range(g.shape[1]):
                for u in range(lane, g.shape[2], 32):
                    slopes[h * sh * width + u * sw] = acc_t(g[z, h, u])
            cuda.syncthreads()
            for q in range(lane, count - (kh - 1) * dh * width - (kw - 1) * dw_, 32):
                for i in range(kh):
                    for j in range(kw):
                        acc[i * kw + j] += slopes[q] * plane[q + i * dh * width + j * dw_]
        for t in range(taps):
            total = acc[t]
            for step in (16, 8, 4, 2, 1):
                total += cuda.shfl_down_sync(FULL_WARP, total, step)
            if lane == 0:
                dw[channel, t] = total

    return conv2d_plane_weight


@functools.cache
def direct_data(acc_t, kernel: Pair, stride: Pair, dilation: Pair):
    """Grid (images * channels, row tiles, column tiles) of dx."""
    (kh, kw), (sh, sw), (dh, dw) = kernel, stride, dilation

    @cuda.jit
    def conv2d_direct_data(g, w, dx, groups, pad_h, pad_w):
        n = cuda.blockIdx.x // dx.shape[1]
        c = cuda.blockIdx.x % dx.shape[1]
        h = cuda.blockIdx.y * cuda.blockDim.y + cuda.threadIdx.y
        v = cuda.blockIdx.z * cuda.blockDim.x + cuda.threadIdx.x
        if h < dx.shape[2] and v < dx.shape[3]:
            per_out = w.shape[0] // groups
            o0, ic = c // w.shape[1] * per_out, c % w.shape[1]
            acc = acc_t(0)
            for o in range(per_out):
                for i in range(kh):
                    top = h + pad_h - i * dh
                    oh = top // sh
                    if top >= 0 and oh * sh == top and oh < g.shape[2]:
                        for j in range(kw):
                            left = v + pad_w - j * dw
                            ow = left // sw
                            if left >= 0 and ow * sw == left and ow < g.shape[3]:
                                wv = acc_t(w[o0 + o, ic, i, j])
                                acc += wv * acc_t(g[n, o0 + o, oh, ow])
            dx[n, c, h, v] = acc

    return conv2d_direct_data


@functools.cache
def unfold():
    """columns (K, positions) from planes, flat, where places are those of positions in them, and
    terms how far from there. Grid (row tiles, column tiles)."""

    @cuda.jit
    def conv2d_unfold(planes, terms, places, columns):
        q = cuda.blockIdx.y * cuda.blockDim.x + cuda.threadIdx.x
        k = cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y
        if k < columns.shape[0] and q < columns.shape[1]:
            columns[k, q] = planes[terms[k] + places[q]]

    return conv2d_unfold


@functools.cache
def fold(acc_t, kernel: Pair, stride: Pair, dilation: Pair):
    """Neighbours are channels. Grid (images * pixels of dx, channel tiles); windows (N, OH, OW, C,
    KH, KW)."""
    (kh, kw), (sh, sw), (dh, dw) = kernel, stride, dilation

    @cuda.jit
    def conv2d_fold(windows, dx, pad_h, pad_w):
        c = cuda.blockIdx.y * cuda.blockDim.x + cuda.threadIdx.x
        v = cuda.blockIdx.x % dx.shape[3]
        h = cuda.blockIdx.x // dx.shape[3] % dx.shape[2]
        n = cuda.blockIdx.x // (dx.shape[2] * dx.shape[3])
        if c < dx.shape[1]:
            acc = acc_t(0)
            for i in range(kh):
                top = h + pad_h - i * dh
                oh = top // sh
                if top >= 0 and oh * sh == top and oh < windows.shape[1]:
                    for j in range(kw):
                        left = v + pad_w - j * dw
                        ow = left // sw
                        if left >= 0 and ow * sw == left and ow < windows.shape[2]:
                            acc += windows[n, oh, ow, c, i, j]
            dx[n, c, h, v] = acc

    return conv2d_fold


@functools.cache
def direct_weight(acc_t, stride: Pair, dilation: Pair):
    """Block 32, grid (output channels, input channels of a group, kernel elements) of dw."""
    (sh, sw), (dh, dw_) = stride, dilation

    @cuda.jit
    def conv2d_direct_weight(g, x, dw, groups, pad_h, pad_w):
        oc, ic = cuda.blockIdx.x, cuda.blockIdx.y
        i = cuda.blockIdx.z // dw.shape[3]
        j = cuda.blockIdx.z % dw.shape[3]
        lane = cuda.threadIdx.x
        c = oc // (dw.shape[0] // groups) * dw.shape[1] + ic
        acc = acc_t(0)
        for n in range(g.shape[0]):
            for oh in range(g.shape[2]):
                h = oh * sh + i * dh - pad_h
                if 0 <= h < x.shape[2]:
                    for ow in range(lane, g.shape[3], 32):
                        v = ow * sw + j * dw_ - pad_w
                        if 0 <= v < x.shape[3]:
                            acc += acc_t(g[n, oc, oh, ow]) * acc_t(x[n, c, h, v])
        for step in (16, 8, 4, 2, 1):
            acc += cuda.shfl_down_sync(FULL_WARP, acc, step)
        if lane == 0:
            dw[oc, ic, i, j] = acc

    return conv2d_direct_weight
