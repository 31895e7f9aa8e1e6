"""Values of images x (N, C, H, W) at points grid (N, points, 2): out (N, C, points).

A thread has a point, whose place and shares it works out once, and CHANNELS channels, whose
elements it gathers: neighbours of the grid lie beside each other in the result.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from kernels.launchers.grid_sample import CHANNELS, REFLECTION, ZEROS
from kernels.numba_cuda.common import array, scalar_type, signature
from kernels.simt import cuda


@functools.cache
def kernel(dtype: np.dtype, linear: bool, padding: int, aligned: bool):
    """kernel(x, grid, out, count, points, channels, height, width), all arrays flat."""
    A = scalar_type(dtype)
    half, zero, one, two = A(0.5), A(0), A(1), A(2)
    low = A(0.0 if aligned else -0.5)

    @cuda.jit(device=True)
    def place_of(x, n):
        x = (x + one) * (A(n - 1) / two) if aligned else ((x + one) * A(n) - one) * half
        if padding == REFLECTION:
            span = A(n - 1) if aligned else A(n)
            if span == zero:
                x = x * zero
            else:
                x = abs(x - low)
                turns = math.floor(x / span)
                rest = x - turns * span
                even = turns - two * math.floor(turns / two) == zero
                x = rest + low if even else span - rest + low
        if padding != ZEROS:
            x = zero if x < zero else (A(n - 1) if x > A(n - 1) else x)
        return x

    @cuda.jit(device=True)
    def nearest_to(x):
        below = A(math.floor(x))
        odd = below != two * A(math.floor(below * half))
        return below + one if x - below > half or (x - below == half and odd) else below

    @cuda.jit(device=True)
    def value_at(x, start, h, w, height, width):
        fits = h >= zero and h <= A(height - 1) and w >= zero and w <= A(width - 1)
        return A(x[start + int(h) * width + int(w)]) if fits else zero

    @cuda.jit(device=True)
    def kept(share, h, w, height, width):
        fits = h >= zero and h <= A(height - 1) and w >= zero and w <= A(width - 1)
        return share if fits else share * zero  # of no number, no number

    def grid_sample(x, grid, out, count, points, channels, height, width):
        i = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
        if i < count:
            image = i // points
            first = cuda.blockIdx.y * CHANNELS
            across = place_of(A(grid[2 * i]), width)
            down = place_of(A(grid[2 * i + 1]), height)
            if linear:
                h0, w0 = A(math.floor(down)), A(math.floor(across))
                h1, w1 = h0 + one, w0 + one
                s00 = kept((h1 - down) * (w1 - across), h0, w0, height, width)
                s01 = kept((h1 - down) * (across - w0), h0, w1, height, width)
                s10 = kept((down - h0) * (w1 - across), h1, w0, height, width)
                s11 = kept((down - h0) * (across - w0), h1, w1, height, width)
                for c in range(first, min(first + CHANNELS, channels)):
                    start = (image * channels + c) * height * width
                    total = value_at(x, start, h0, w0, height, width) * s00
                    total += value_at(x, start, h0, w1, height, width) * s01
                    total += value_at(x, start, h1, w0, height, width) * s10
                    total += value_at(x, start, h1, w1, height, width) * s11
                    out[(image * channels + c) * points + i - image * points] = total
            else:
                h, w = nearest_to(down), nearest_to(across)
                share = kept(one, h, w, height, width)
                for c in range(first, min(first + CHANNELS, channels)):
                    start = (image * channels + c) * height * width
                    total = value_at(x, start, h, w, height, width) * share
                    out[(image * channels + c) * points + i - image * points] = total

    flat = array(dtype)
    return cuda.jit(signature(flat, flat, flat, *["int64"] * 5))(grid_sample)
