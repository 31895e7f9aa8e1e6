"""Max and average pooling over windows of the planes of x (N, C, H, W), with gradients.

N C OH OW KH KW comparisons or additions; at least x read and y written once, and the indices of the
maxima (int64) for the max. One version per direction, because all of the work is memory traffic:

    window    one thread per result: neighbours along a row of the output
    padded    the same for a copy of x with a border, which no window leaves: what a CPU does
    gather    gradients: one thread per element of dx visits every window that contains it and sums
              its shares, so nothing is written twice and the order of the sum is fixed
    owner     the gradient of a max: one thread writes a step of the stride, and reads each window
              that reaches into it once
    scatter   the gradient of a max whose windows are not known: one block per plane, which adds
              each g at its index
    plane     the same by one thread per plane, in order and without atomics: what a CPU does

Kernel size, stride and dilation are constants of a kernel: the loops over a window unroll.
"""

from __future__ import annotations

import functools

import numpy as np
from numpy import int64

from kernels.launchers.pool import SCATTER_BLOCK, Window
from kernels.simt import cuda


@functools.cache
def max_forward(acc_t, window: Window, inside_always: bool):
    """Grid (planes, row tiles, column tiles); x (planes, H, W), y and index (planes, OH, OW)."""
    (kh, kw), (sh, sw), (dh, dw) = window

    @cuda.jit
    def max_pool2d_window(x, y, index, pad_h, pad_w):
        p = cuda.blockIdx.x
        oh = cuda.blockIdx.y * cuda.blockDim.y + cuda.threadIdx.y
        ow = cuda.blockIdx.z * cuda.blockDim.x + cuda.threadIdx.x
        if oh < y.shape[1] and ow < y.shape[2]:
            top = oh * sh - (0 if inside_always else pad_h)
            left = ow * sw - (0 if inside_always else pad_w)
            best, at, found = acc_t(0), -1, False  # `at`: from the window's first element
            for i in range(kh):
                h = top + i * dh
                for j in range(kw):
                    v = left + j * dw
                    if inside_always or (0 <= h < x.shape[1] and 0 <= v < x.shape[2]):
                        value = acc_t(x[p, h, v])
                        # no branch, so that a CPU runs neighbours together; the first NaN stays
                        better = (not found) | ((not (value <= best)) & (best == best))
                        found = True
                        best = value if better else best
                        at = i * dh * x.shape[2] + j * dw if better else at
            y[p, oh, ow] = best
            index[p, oh, ow] = top * x.shape[2] + left + at

    return max_pool2d_window


@functools.cache
def max_padded(acc_t, window: Window):
    """As max_forward, for planes of (height, width) in a border of the lowest number."""
    (kh, kw), (sh, sw), (dh, dw) = window

    @cuda.jit
    def max_pool2d_padded(x, y, index, height, width, pad_h, pad_w):
        p = cuda.blockIdx.x
        oh = cuda.blockIdx.y * cuda.blockDim.y + cuda.threadIdx.y
        ow = cuda.blockIdx.z * cuda.blockDim.x + cuda.threadIdx.x
        if oh < y.shape[1] and ow < y.shape[2]:
            top, left = oh * sh, ow * sw
            best = acc_t(x[p, top, left])
            # the window's first element, or the first that is not of the border
            row = top - pad_h if top >= pad_h else (top - pad_h) % dh
            column = left - pad_w if left >= pad_w else (left - pad_w) % dw
            at = np.int32(row * width + column)
            for i in range(kh):
                h = top - pad_h + i * dh
                for j in range(kw):
                    value = acc_t(x[p, top + i * dh, left + j * dw])
                    better = (not (value <= best)) & (best == best)
                    best = value if better else best
                    at = np.int32(h * width + left - pad_w + j * dw) if better else at
            y[p, oh, ow] = best
            index[p, oh, ow] = at

    return max_pool2d_padded


@functools.cache
def max_adaptive(acc_t):
    """Grid (planes, row tiles, column tiles); x (planes, H, W), y and index (planes, OH, OW), whose
    windows divide the plane."""

    @cuda.jit
    def adaptive_max_pool2d_window(x, y, index):
        p = cuda.blockIdx.x
        oh = cuda.blockIdx.y * cuda.blockDim.y + cuda.threadIdx.y
        ow = cuda.blockIdx.z * cuda.blockDim.x + cuda.threadIdx.x
        rows, columns = y.shape[1], y.shape[2]
        if oh < rows and ow < columns:
            top, bottom = oh * x.shape[1] // rows, ((oh + 1) * x.shape[1] + rows - 1) // rows
            left = ow * x.shape[2] // columns
            right = ((ow + 1) * x.shape[2] + columns - 1) // columns
            best, at = acc_t(0), -1
            for h in range(top, bottom):
                for v in range(left, right):
                    value = acc_t(x[p, h, v])
                    if at < 0 or ((not (value <= best)) and best == best):
                        best, at = value, h * x.shape[2] + v
            y[p, oh, ow] = best
            index[p, oh, ow] = at

    return adaptive_max_pool2d_window


@functools.cache
def max_gather(acc_t, window: Window):
    """Grid (planes, row tiles, column tiles) of dx (planes, H, W); g, index (planes, OH, OW)."""
    (kh, kw), (sh, sw), (dh, dw) = window
    reach_h, reach_w = (kh - 1) * dh, (kw - 1) * dw
    rows_of, columns_of = reach_h // sh + 1, reach_w // sw + 1  # windows that can hold an element

    @cuda.jit
    def max_pool2d_gather(g, index, dx, pad_h, pad_w):
        p = cuda.blockIdx.x
        h = cuda.blockIdx.y * cuda.blockDim.y + cuda.threadIdx.y
        v = cuda.blockIdx.z * cuda.blockDim.x + cuda.threadIdx.x
        if h < dx.shape[1] and v < dx.shape[2]:
            here = h * dx.shape[2] + v
            acc = acc_t(0)
            last_h, last_w = (h + pad_h) // sh, (v + pad_w) // sw
            for i in range(rows_of):
                oh = last_h - i
                if 0 <= oh < g.shape[1]:
                    for j in range(columns_of):
                        ow = last_w - j
                        if 0 <= ow < g.shape[2]:  # noqa: SIM102
                            if index[p, oh, ow] == here:
                                acc += acc_t(g[p, oh, ow])
            dx[p, h, v] = acc

    return max_pool2d_gather


@functools.cache
def max_owner(acc_t, window: Window, pad_h: int, pad_w: int):
    """Grid (planes, row tiles, column tiles) of steps of the stride; arrays as in max_gather.

    A thread reads the windows that reach into its step, once, and writes all elements of the step.
    """
    (kh, kw), (sh, sw), _ = window
    rows_of, columns_of = -(-kh // sh), -(-kw // sw)
    count = rows_of * columns_of

    @cuda.jit
    def max_pool2d_owner(g, index, dx):
        p = cuda.blockIdx.x
        a = cuda.blockIdx.y * cuda.blockDim.y + cuda.threadIdx.y
        b = cuda.blockIdx.z * cuda.blockDim.x + cuda.threadIdx.x
        at = cuda.local.array(count, int64)
        value = cuda.local.array(count, acc_t)
        for i in range(rows_of):
            oh = a - i
            for j in range(columns_of):
                ow = b - j
                inside = oh >= 0 and oh < g.shape[1] and ow >= 0 and ow < g.shape[2]
                at[i * columns_of + j] = index[p, oh, ow] if inside else -1
                value[i * columns_of + j] = acc_t(g[p, oh, ow]) if inside else acc_t(0)
        for r in range(sh):
            h = a * sh + r - pad_h
            for c in range(sw):
                v = b * sw + c - pad_w
                if 0 <= h < dx.shape[1] and 0 <= v < dx.shape[2]:
                    here = h * dx.shape[2] + v
                    acc = acc_t(0)
                    for i in range(rows_of):
                        for j in range(columns_of):
                            if r + i * sh < kh and c + j * sw < kw:
                                k = i * columns_of + j
                                acc += value[k] if at[k] == here else acc_t(0)
                    dx[p, h, v] = acc

    return max_pool2d_owner


@functools.cache
def max_scatter(acc_t):
    """Grid (planes,); g and index (planes, OH * OW), dx (planes, H * W)."""

    @cuda.jit
    def max_pool2d_scatter(g, index, dx):
        p, t = cuda.blockIdx.x, cuda.threadIdx.x
        for i in range(t, dx.shape[1], SCATTER_BLOCK):
            dx[p, i] = acc_t(0)
        cuda.syncthreads()
        for i in range(t, g.shape[1], SCATTER_BLOCK):
            if index[p, i] >= 0:
                cuda.atomic.add(dx, (p, index[p, i]), acc_t(g[p, i]))

    return max_pool2d_scatter


@functools.cache
def max_plane(acc_t):
    """Grid (planes,) of one thread each; arrays as in max_scatter."""

    @cuda.jit
    def max_pool2d_plane(g, index, dx):
        p = cuda.blockIdx.x
        for i in range(dx.shape[1]):
            dx[p, i] = acc_t(0)
        for i in range(g.shape[1]):
            if index[p, i] >= 0:
                dx[p, index[p, i]] += acc_t(g[p, i])

    return max_pool2d_plane


@cuda.jit(device=True)
def _covered(out, stride, kernel, pad, size, include_pad):
    """Along one axis, how many elements the window of output `out` counts."""
    start = out * stride - pad
    end = min(start + kernel, size + pad)
    if not include_pad:
        start = max(start, 0)
        end = min(end, size)
    return end - start


@functools.cache
def avg_forward(acc_t, window: Window, include_pad: bool, divisor: int | None):
    """Grid (planes, row tiles, column tiles); x (planes, H, W), y (planes, OH, OW)."""
    (kh, kw), (sh, sw), _ = window

    @cuda.jit
    def avg_pool2d_window(x, y, pad_h, pad_w):
        p = cuda.blockIdx.x
        oh = cuda.blockIdx.y * cuda.blockDim.y + cuda.threadIdx.y
        ow = cuda.blockIdx.z * cuda.blockDim.x + cuda.threadIdx.x
        if oh < y.shape[1] and ow < y.shape[2]:
            acc = acc_t(0)
            for i in range(kh):
                h = oh * sh + i - pad_h
                for j in range(kw):
                    v = ow * sw + j - pad_w
                    if 0 <= h < x.shape[1] and 0 <= v < x.shape[2]:
                        acc += acc_t(x[p, h, v])
            if divisor is None:
                rows = _covered(oh, sh, kh, pad_h, x.shape[1], include_pad)
                columns = _covered(ow, sw, kw, pad_w, x.shape[2], include_pad)
                y[p, oh, ow] = acc / acc_t(rows * columns)
            else:
                y[p, oh, ow] = acc / acc_t(divisor)

    return avg_pool2d_window


@functools.cache
def avg_gather(acc_t, window: Window, include_pad: bool, divisor: int | None):
    """Grid (planes, row tiles, column tiles) of dx (planes, H, W); g (planes, OH, OW)."""
    (kh, kw), (sh, sw), _ = window
    rows_of, columns_of = -(-kh // sh), -(-kw // sw)  # windows that can hold an element

    @cuda.jit
    def avg_pool2d_gather(g, dx, pad_h, pad_w):
        p = cuda.blockIdx.x
        h = cuda.blockIdx.y * cuda.blockDim.y + cuda.threadIdx.y
        v = cuda.blockIdx.z * cuda.blockDim.x + cuda.threadIdx.x
        if h < dx.shape[1] and v < dx.shape[2]:
            acc = acc_t(0)
            last_h, last_w = (h + pad_h) // sh, (v + pad_w) // sw
            for i in range(rows_of):  # from the last window that can hold the element back
                oh = last_h - i
                if 0 <= oh < g.shape[1] and oh * sh + kh > h + pad_h:
                    for j in range(columns_of):
                        ow = last_w - j
                        if 0 <= ow < g.shape[2] and ow * sw + kw > v + pad_w:
                            if divisor is None:
                                rows = _covered(oh, sh, kh, pad_h, dx.shape[1], include_pad)
                                columns = _covered(ow, sw, kw, pad_w, dx.shape[2], include_pad)
                                acc += acc_t(g[p, oh, ow]) / acc_t(rows * columns)
                            else:
                                acc += acc_t(g[p, oh, ow]) / acc_t(divisor)
            dx[p, h, v] = acc

    return avg_pool2d_gather
