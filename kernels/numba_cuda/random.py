"""Random numbers by Philox4x32-10, and dropout.

Philox is a counter-based generator: ten rounds of two 32x32-bit multiplications turn a 128-bit
counter and a 64-bit key into four random words (Salmon, Moraes, Dror, Shaw: "Parallel random
numbers: as easy as 1, 2, 3", 2011). Threads keep no state, so element i is the same number on
every device and for every grid: counter (i // 4, offset), key `seed`, word i % 4.

Four words cost about 90 integer operations, and are 16 bytes of float32 output.

One version each: a thread computes one counter and writes the elements of its four words
(4 float32, 2 float64, 2 pairs of normals). Dropout keeps no mask: the gradient draws the same
numbers again.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np
from numpy import float32, float64, uint32, uint64

from kernels.numba_cuda.common import array, number, scalar_type, signature
from kernels.simt import cuda


@cuda.jit(device=True)
def philox(block, seed, offset):
    """The four words of one counter."""
    c0, c1 = uint32(block), uint32(block >> uint64(32))
    c2, c3 = uint32(offset), uint32(offset >> uint64(32))
    k0, k1 = uint32(seed), uint32(seed >> uint64(32))
    for _ in range(10):
        p0 = uint64(c0) * uint64(0xD2511F53)
        p1 = uint64(c2) * uint64(0xCD9E8D57)
        c0 = uint32(uint32(p1 >> uint64(32)) ^ c1 ^ k0)
        c1 = uint32(p1)
        c2 = uint32(uint32(p0 >> uint64(32)) ^ c3 ^ k1)
        c3 = uint32(p0)
        k0 = uint32(k0 + uint32(0x9E3779B9))
        k1 = uint32(k1 + uint32(0xBB67AE85))
    return c0, c1, c2, c3


@cuda.jit(device=True)
def unit32(word):
    """24 bits of a word as a float32 in [0, 1)."""
    return float32(word >> uint32(8)) * float32(2.0**-24)


@cuda.jit(device=True)
def unit64(high, low):
    """53 bits of two words as a float64 in [0, 1)."""
    bits = uint64(high >> uint32(5)) * uint64(2**26) + uint64(low >> uint32(6))
    return float64(bits) * float64(2.0**-53)


def _jit(dtype: np.dtype, kernel: Callable) -> Callable:
    """kernel(out, seed, offset)."""
    return cuda.jit(signature(array(dtype), "uint64", "uint64"))(kernel)


@functools.cache
def philox_kernel() -> Callable:
    def philox_words(out, seed, offset):
        block = cuda.grid(1)
        if 4 * block < out.size:
            a, b, c, d = philox(uint64(block), seed, offset)
            i = 4 * block
            out[i] = a
            if i + 1 < out.size:
                out[i + 1] = b
            if i + 2 < out.size:
                out[i + 2] = c
            if i + 3 < out.size:
                out[i + 3] = d

    return _jit(np.dtype(np.uint32), philox_words)


@functools.cache
def uniform_kernel(dtype: np.dtype) -> Callable:
    def uniform32(out, seed, offset):
        block = cuda.grid(1)
        if 4 * block < out.size:
            a, b, c, d = philox(uint64(block), seed, offset)
            i = 4 * block
            out[i] = unit32(a)
            if i + 1 < out.size:
                out[i + 1] = unit32(b)
            if i + 2 < out.size:
                out[i + 2] = unit32(c)
            if i + 3 < out.size:
                out[i + 3] = unit32(d)

    def uniform64(out, seed, offset):
        block = cuda.grid(1)
        if 2 * block < out.size:
            a, b, c, d = philox(uint64(block), seed, offset)
            i = 2 * block
            out[i] = unit64(a, b)
            if i + 1 < out.size:
                out[i + 1] = unit64(c, d)

    return _jit(dtype, uniform64 if dtype == np.float64 else uniform32)


@functools.cache
def normal_kernel(dtype: np.dtype) -> Callable:
    """Pairs (r cos a, r sin a) of r = sqrt(-2 log(1 - u)), a = 2 pi v; cospi(2 v) needs no
    reduction of its argument, and so no double in a float32 kernel."""
    cospi, sinpi = cuda.libdevice.cospif, cuda.libdevice.sinpif
    cospi64, sinpi64 = cuda.libdevice.cospi, cuda.libdevice.sinpi

    def normal32(out, seed, offset):
        block = cuda.grid(1)
        if 4 * block < out.size:
            a, b, c, d = philox(uint64(block), seed, offset)
            i = 4 * block
            radius = math.sqrt(float32(-2) * math.log(float32(1) - unit32(a)))
            angle = float32(2) * unit32(b)
            out[i] = radius * cospi(angle)
            if i + 1 < out.size:
                out[i + 1] = radius * sinpi(angle)
            if i + 2 < out.size:
                radius = math.sqrt(float32(-2) * math.log(float32(1) - unit32(c)))
                angle = float32(2) * unit32(d)
                out[i + 2] = radius * cospi(angle)
                if i + 3 < out.size:
                    out[i + 3] = radius * sinpi(angle)

    def normal64(out, seed, offset):
        block = cuda.grid(1)
        if 2 * block < out.size:
            a, b, c, d = philox(uint64(block), seed, offset)
            i = 2 * block
            radius = math.sqrt(-2.0 * math.log(1.0 - unit64(a, b)))
            angle = 2.0 * unit64(c, d)
            out[i] = radius * cospi64(angle)
            if i + 1 < out.size:
                out[i + 1] = radius * sinpi64(angle)

    return _jit(dtype, normal64 if dtype == np.float64 else normal32)


@functools.cache
def dropout_kernel(dtype: np.dtype) -> Callable:
    """kernel(x, out, p, scale, seed, offset)."""
    T = scalar_type(dtype)

    def dropout_counter(x, out, p, scale, seed, offset):
        block = cuda.grid(1)
        if 4 * block < out.size:
            a, b, c, d = philox(uint64(block), seed, offset)
            i = 4 * block
            # loads and products for all, so that a CPU runs neighbours together
            value = T(x[i]) * scale
            out[i] = value if unit32(a) >= p else T(0)
            if i + 1 < out.size:
                value = T(x[i + 1]) * scale
                out[i + 1] = value if unit32(b) >= p else T(0)
            if i + 2 < out.size:
                value = T(x[i + 2]) * scale
                out[i + 2] = value if unit32(c) >= p else T(0)
            if i + 3 < out.size:
                value = T(x[i + 3]) * scale
                out[i + 3] = value if unit32(d) >= p else T(0)

    flat = array(dtype)
    kinds = flat, flat, "float32", number(dtype), "uint64", "uint64"
    return cuda.jit(signature(*kinds))(dropout_counter)
