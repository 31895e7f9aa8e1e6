"""Values of images x (N, C, H, W) at points grid (N, points, 2): out (N, C, points).

A thread has a point, whose place and shares it works out once, and CHANNELS channels, whose
elements it gathers: neighbours of the grid lie beside each other in the result.

Gradients: that of the grid again has a thread per point, which adds up all channels. That of the
images adds to elements that points share: `atomic` by a thread per point and CHANNELS channels, in
any order, or `ordered` by a thread per CHANNELS channels, which takes one point after the other.
"""

from __future__ import annotations

import functools
import math

import numpy as np
from numpy import int32

from kernels.launchers.common import compute_dtype
from kernels.launchers.grid_sample import CHANNELS, REFLECTION, ZEROS
from kernels.numba_cuda.common import array, scalar_type, signature
from kernels.simt import cuda


@functools.cache
def _functions(dtype: np.dtype, padding: int, aligned: bool):
    """Device functions: the place of a number in [-1, 1] and how it changes with that number, the
    nearest element, and where one lies in its plane."""
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
        if padding != ZEROS:  # no number is the first place
            x = (x if x < A(n - 1) else A(n - 1)) if x > zero else zero
        return x

    @cuda.jit(device=True)
    def nearest_to(x):
        below = A(math.floor(x))
        odd = below != two * A(math.floor(below * half))
        return below + one if x - below > half or (x - below == half and odd) else below

    @cuda.jit(device=True)
    def corner(h, w, height, width):
        """Where an element lies in its plane, or -1."""
        at = int32(-1)
        if h >= zero and h <= A(height - 1) and w >= zero and w <= A(width - 1):
            at = int32(h) * int32(width) + int32(w)
        return at

    @cuda.jit(device=True)
    def slope_of(x, n):
        slope = A(n - 1) / two if aligned else A(n) * half
        place = (x + one) * slope if aligned else ((x + one) * A(n) - one) * half
        if padding == REFLECTION:
            span = A(n - 1) if aligned else A(n)
            if span == zero:
                slope = zero
            else:
                away = abs(place - low)
                turns = math.floor(away / span)
                even = turns - two * math.floor(turns / two) == zero
                slope = slope if even == (place >= low) else -slope
                rest = away - turns * span
                place = rest + low if even else span - rest + low
        if padding != ZEROS:
            slope = slope if place > zero and place < A(n - 1) else zero
        return slope

    return place_of, slope_of, nearest_to, corner


@functools.cache
def kernel(dtype: np.dtype, linear: bool, padding: int, aligned: bool):
    """kernel(x, grid, out, blocks, points, channels, height, width), all arrays flat."""
    A = scalar_type(dtype)
    zero, one = A(0), A(1)
    place_of, _, nearest_to, corner = _functions(dtype, padding, aligned)

    @cuda.jit(device=True)
    def kept(share, at):
        if at < 0:
            share *= zero  # of no number, no number
        return share

    @cuda.jit(device=True)
    def value_at(x, start, at):
        value = A(x[start + max(at, int32(0))])  # read in any case, so that a CPU takes vectors
        return value if at >= 0 else zero

    def grid_sample(x, grid, out, blocks, points, channels, height, width):
        image = cuda.blockIdx.x // blocks
        i = cuda.blockIdx.x % blocks * cuda.blockDim.x + cuda.threadIdx.x
        if i < points:
            place = 2 * (image * points + i)
            across = place_of(A(grid[place]), width)
            down = place_of(A(grid[place + 1]), height)
            first = cuda.blockIdx.y * CHANNELS
            if linear:
                h0, w0 = A(math.floor(down)), A(math.floor(across))
                h1, w1 = h0 + one, w0 + one
                at00, at01 = corner(h0, w0, height, width), corner(h0, w1, height, width)
                at10, at11 = corner(h1, w0, height, width), corner(h1, w1, height, width)
                share00 = kept((h1 - down) * (w1 - across), at00)
                share01 = kept((h1 - down) * (across - w0), at01)
                share10 = kept((down - h0) * (w1 - across), at10)
                share11 = kept((down - h0) * (across - w0), at11)
                for c in range(first, min(first + CHANNELS, channels)):
                    start = (image * channels + c) * height * width
                    total = value_at(x, start, at00) * share00
                    total += value_at(x, start, at01) * share01
                    total += value_at(x, start, at10) * share10
                    total += value_at(x, start, at11) * share11
                    out[(image * channels + c) * points + i] = total
            else:
                at = corner(nearest_to(down), nearest_to(across), height, width)
                share = kept(one, at)
                for c in range(first, min(first + CHANNELS, channels)):
                    start = (image * channels + c) * height * width
                    out[(image * channels + c) * points + i] = value_at(x, start, at) * share

    flat = array(dtype)
    return cuda.jit(signature(flat, flat, flat, *["int64"] * 5))(grid_sample)


@functools.cache
def image_gradient(dtype: np.dtype, linear: bool, padding: int, aligned: bool, version: str):
    """kernel(g, grid, dx, blocks, points, channels, height, width), all arrays flat; dx zeros of
    the dtype that is computed in. blocks: of an image."""
    A = scalar_type(dtype)
    one = A(1)
    place_of, _, nearest_to, corner = _functions(dtype, padding, aligned)
    ordered = version == "ordered"  # then a thread has all points, else one

    @cuda.jit(device=True)
    def add(dx, start, at, value):
        if at >= 0:
            if ordered:
                dx[start + at] += value
            else:
                cuda.atomic.add(dx, start + at, value)

    def grid_sample_image(g, grid, dx, blocks, points, channels, height, width):
        image = cuda.blockIdx.x // blocks
        t = cuda.blockIdx.x % blocks * cuda.blockDim.x + cuda.threadIdx.x
        if t >= ((channels + CHANNELS - 1) // CHANNELS if ordered else points):
            return
        first = CHANNELS * (t if ordered else cuda.blockIdx.y)
        last = min(first + CHANNELS, channels)
        for i in range(0 if ordered else t, points if ordered else t + 1):
            place = 2 * (image * points + i)
            across = place_of(A(grid[place]), width)
            down = place_of(A(grid[place + 1]), height)
            if linear:
                h0, w0 = A(math.floor(down)), A(math.floor(across))
                h1, w1 = h0 + one, w0 + one
                at00, at01 = corner(h0, w0, height, width), corner(h0, w1, height, width)
                at10, at11 = corner(h1, w0, height, width), corner(h1, w1, height, width)
                for c in range(first, last):
                    start = (image * channels + c) * height * width
                    value = A(g[(image * channels + c) * points + i])
                    add(dx, start, at00, value * ((h1 - down) * (w1 - across)))
                    add(dx, start, at01, value * ((h1 - down) * (across - w0)))
                    add(dx, start, at10, value * ((down - h0) * (w1 - across)))
                    add(dx, start, at11, value * ((down - h0) * (across - w0)))
            else:
                at = corner(nearest_to(down), nearest_to(across), height, width)
                for c in range(first, last):
                    start = (image * channels + c) * height * width
                    add(dx, start, at, A(g[(image * channels + c) * points + i]))

    flat, sums = array(dtype), array(compute_dtype(dtype))
    return cuda.jit(signature(flat, flat, sums, *["int64"] * 5))(grid_sample_image)


@functools.cache
def points_gradient(dtype: np.dtype, padding: int, aligned: bool):
    """kernel(g, x, grid, dgrid, blocks, points, channels, height, width), all arrays flat, of
    bilinear values."""
    A = scalar_type(dtype)
    zero, one = A(0), A(1)
    place_of, slope_of, _, corner = _functions(dtype, padding, aligned)

    @cuda.jit(device=True)
    def value_at(x, start, at):
        value = A(x[start + max(at, int32(0))])
        return value if at >= 0 else zero

    def grid_sample_points(g, x, grid, dgrid, blocks, points, channels, height, width):
        image = cuda.blockIdx.x // blocks
        i = cuda.blockIdx.x % blocks * cuda.blockDim.x + cuda.threadIdx.x
        if i < points:
            place = 2 * (image * points + i)
            across = place_of(A(grid[place]), width)
            down = place_of(A(grid[place + 1]), height)
            h0, w0 = A(math.floor(down)), A(math.floor(across))
            h1, w1 = h0 + one, w0 + one
            at00, at01 = corner(h0, w0, height, width), corner(h0, w1, height, width)
            at10, at11 = corner(h1, w0, height, width), corner(h1, w1, height, width)
            along_x, along_y = zero, zero
            for c in range(channels):
                start = (image * channels + c) * height * width
                value = A(g[(image * channels + c) * points + i])
                x00, x01 = value_at(x, start, at00), value_at(x, start, at01)
                x10, x11 = value_at(x, start, at10), value_at(x, start, at11)
                along_x += value * ((x01 - x00) * (h1 - down) + (x11 - x10) * (down - h0))
                along_y += value * ((x10 - x00) * (w1 - across) + (x11 - x01) * (across - w0))
            dgrid[place] = along_x * slope_of(A(grid[place]), width)
            dgrid[place + 1] = along_y * slope_of(A(grid[place + 1]), height)

    flat = array(dtype)
    return cuda.jit(signature(flat, flat, flat, flat, *["int64"] * 5))(grid_sample_points)
