"""Distances of rows: a reduction (`kernels.reduction`) over the difference of two rows.

m x n pairs of rows of k elements take 3 m n k floating-point operations for a distance of order 2,
on 2 elements each: as a matrix product, they are worth tiles in shared memory.

tiled: block (TILE, TILE), one result per thread, the tiles of `matmul`'s version of that name
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from kernels.launchers.distance import TILE
from kernels.numba_cuda.reduction import functions
from kernels.simt import cuda


@functools.cache
def tiled(line: str, dtype: np.dtype, pairs: bool) -> Callable:
    """kernel(a, b, out): a (batch, m, k), b (batch, n, k), out (batch * m * n,).

    pairs: a and b are the same, and only rows before others are wanted: out (m (m - 1) / 2,).
    """
    f = functions(line, dtype, dtype, True, True)
    load, combine, finish, A, START = f.load, f.combine, f.finish, f.accumulator, f.start
    PAIRS = pairs

    @cuda.jit
    def distances_tiled(a, b, out):
        a_tile = cuda.shared.array((TILE, TILE), A)
        b_tile = cuda.shared.array((TILE, TILE), A)
        tx, ty, z = cuda.threadIdx.x, cuda.threadIdx.y, cuda.blockIdx.z
        row0 = cuda.blockIdx.y * TILE
        row, col = row0 + ty, cuda.blockIdx.x * TILE + tx
        m, n = a.shape[1], b.shape[1]
        k = a.shape[2]
        if PAIRS:
            k = k if cuda.blockIdx.x >= cuda.blockIdx.y else 0
        acc = A(START)
        for k0 in range(0, k, TILE):
            a_tile[ty, tx] = A(0)
            b_tile[ty, tx] = A(0)
            if row < m and k0 + tx < k:
                a_tile[ty, tx] = A(a[z, row, k0 + tx])
            if k0 + ty < k and col < n:
                b_tile[ty, tx] = A(b[z, col, k0 + ty])
            cuda.syncthreads()
            for kk in range(TILE):  # both are 0 behind the end of the rows
                av = a_tile[ty, kk]
                acc = combine(acc, load(av - b_tile[kk, tx]))
            cuda.syncthreads()
        if PAIRS:
            if row < col and col < n:
                out[row * (2 * n - row - 1) // 2 + col - row - 1] = finish(acc, k)
        elif row < m and col < n:
            out[(z * m + row) * n + col] = finish(acc, k)

    return distances_tiled
