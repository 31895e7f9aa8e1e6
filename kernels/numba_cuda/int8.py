"""Products of 8-bit integers with scales per row and column, and rounding of rows to 8 bits.

m n k multiplications of bytes, added up in 32 bits; four bytes are loaded as one word, a quarter of
the memory traffic of float32. Versions of int8_matmul:

1. bytes: a thread per result, which loads byte by byte
2. dp4a: a thread per result, four bytes at a time. GPUs have one instruction for their product,
   dp4a. numba-cuda has no name for it; NVIDIA's compiler finds it in the four products below
3. tiled: the words of a tile in shared memory, read by 16 threads each

The sums are exact: k may be up to 2**31 / 127**2, more than 130 000.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
from numpy import float32, int8, int32

from kernels.launchers.int8 import TILE
from kernels.numba_cuda.common import array, signature
from kernels.simt import cuda
from kernels.simt.cuda import libdevice

FULL = 0xFFFFFFFF
PADDED = (TILE, TILE + 1)  # rows one word longer: their columns lie in different banks


@cuda.jit(device=True)
def dp4a(a, b, c):
    """c + the scalar product of the four signed bytes of a and of b."""
    low = int32(int8(a)) * int32(int8(b)) + int32(int8(a >> 8)) * int32(int8(b >> 8))
    high = int32(int8(a >> 16)) * int32(int8(b >> 16)) + int32(int8(a >> 24)) * int32(int8(b >> 24))
    return int32(c + low + high)


@functools.cache
def matmul_kernel(version: str, has_bias: bool) -> Callable:
    """kernel(a, b, scale_a, scale_b, bias, out, m, n, k): a and b of bytes, k of them in a row, for
    "bytes"; else of int32, k words. Block (TILE, TILE) over (n, m)."""

    def matmul_bytes(a, b, scale_a, scale_b, bias, out, m, n, k):
        col, row = cuda.grid(2)
        if row < m and col < n:
            total = int32(0)
            for i in range(k):
                total += int32(a[row * k + i]) * int32(b[col * k + i])
            value = float32(total) * scale_a[row] * scale_b[col]
            out[row * n + col] = value + bias[col] if has_bias else value

    def matmul_dp4a(a, b, scale_a, scale_b, bias, out, m, n, k):
        col, row = cuda.grid(2)
        if row < m and col < n:
            total = int32(0)
            for i in range(k):
                total = dp4a(a[row * k + i], b[col * k + i], total)
            value = float32(total) * scale_a[row] * scale_b[col]
            out[row * n + col] = value + bias[col] if has_bias else value

    def matmul_tiled(a, b, scale_a, scale_b, bias, out, m, n, k):
        a_tile = cuda.shared.array((TILE, TILE), int32)
        b_tile = cuda.shared.array(PADDED, int32)
        tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
        row = cuda.blockIdx.y * TILE + ty
        col = cuda.blockIdx.x * TILE + tx
        other = cuda.blockIdx.x * TILE + ty  # the row of b that this thread loads
        total = int32(0)
        for k0 in range(0, k, TILE):
            a_tile[ty, tx] = 0
            b_tile[ty, tx] = 0
            if k0 + tx < k:
                if row < m:
                    a_tile[ty, tx] = a[row * k + k0 + tx]
                if other < n:
                    b_tile[ty, tx] = b[other * k + k0 + tx]
            cuda.syncthreads()
            for i in range(TILE):
                total = dp4a(a_tile[ty, i], b_tile[tx, i], total)
            cuda.syncthreads()
        if row < m and col < n:
            value = float32(total) * scale_a[row] * scale_b[col]
            out[row * n + col] = value + bias[col] if has_bias else value

    kernels = {"bytes": matmul_bytes, "dp4a": matmul_dp4a, "tiled": matmul_tiled}
    element = int8 if version == "bytes" else int32
    kinds = [array(element)] * 2 + [array(float32)] * 4 + ["int64"] * 3
    return cuda.jit(signature(*kinds))(kernels[version])


@functools.cache
def quantize_kernel(dtype: np.dtype) -> Callable:
    """kernel(x, q, scale, m, k): a warp per row, block (32, rows)."""

    def quantize_warp(x, q, scale, m, k):
        row = cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y
        lane = cuda.threadIdx.x
        top = float32(0)
        if row < m:
            for i in range(lane, k, 32):
                top = max(top, abs(float32(x[row * k + i])))
        for step in (16, 8, 4, 2, 1):
            top = max(top, cuda.shfl_xor_sync(FULL, top, step))
        size = (top if top > float32(0) else float32(1)) / float32(127)
        if row < m:
            if lane == 0:
                scale[row] = size
            for i in range(lane, k, 32):
                value = libdevice.rintf(float32(x[row * k + i]) / size)
                q[row * k + i] = int8(int32(min(max(value, float32(-127)), float32(127))))

    kinds = array(dtype), array(int8), array(float32), "int64", "int64"
    return cuda.jit(signature(*kinds))(quantize_warp)
