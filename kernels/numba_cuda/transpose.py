"""Copies: contiguous, cast, transposed, concatenated.

A copy of n elements does no arithmetic and moves at least 2 n elements. What matters is that the
threads of a warp both load and store neighbouring addresses.

Versions of the 2-D transpose, out[j, i] = x[i, j]:
1. naive: reads rows and writes columns; every write is a sector of its own
2. tile: a tile goes through shared memory, so that reads and writes both run along rows; but the
   32 threads that read a column of the tile access one bank
3. padded: one more column in the tile puts a column's elements into 32 different banks

Where rows or columns are few, a thread moves one element of each (`few_rows`, `few_columns`).

Copies, casts and other orders of axes are the pointwise line `copy`, contiguous or strided; an
order of axes that merges to (batch, columns, rows) is a batch of 2-D transposes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from kernels.launchers.transpose import ROWS, TILE
from kernels.numba_cuda.common import array, signature, storage_type
from kernels.simt import cuda

PADDED = TILE + 1


def _jit(dtype: np.dtype, kernel: Callable) -> Callable:
    """kernel(x, out, rows, columns) for x (batch, rows, columns), the batch along z."""
    flat = array(dtype)
    return cuda.jit(signature(flat, flat, "int64", "int64"))(kernel)


@functools.cache
def kernel(version: str, dtype: np.dtype) -> Callable:
    E = storage_type(dtype)

    def transpose_naive(x, out, rows, columns):
        column = cuda.blockIdx.x * TILE + cuda.threadIdx.x
        first = cuda.blockIdx.y * TILE + cuda.threadIdx.y
        start = cuda.blockIdx.z * rows * columns
        for row in range(first, min(first + TILE, rows), ROWS):
            if column < columns:
                out[start + column * rows + row] = x[start + row * columns + column]

    def transpose_tile(x, out, rows, columns):
        tile = cuda.shared.array((TILE, TILE), E)
        tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
        row0, column0 = cuda.blockIdx.y * TILE, cuda.blockIdx.x * TILE
        start = cuda.blockIdx.z * rows * columns
        for k in range(ty, TILE, ROWS):
            if row0 + k < rows and column0 + tx < columns:
                tile[k, tx] = x[start + (row0 + k) * columns + column0 + tx]
        cuda.syncthreads()
        for k in range(ty, TILE, ROWS):
            if column0 + k < columns and row0 + tx < rows:
                out[start + (column0 + k) * rows + row0 + tx] = tile[tx, k]

    def transpose_padded(x, out, rows, columns):
        tile = cuda.shared.array((TILE, PADDED), E)
        tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
        row0, column0 = cuda.blockIdx.y * TILE, cuda.blockIdx.x * TILE
        start = cuda.blockIdx.z * rows * columns
        for k in range(ty, TILE, ROWS):
            if row0 + k < rows and column0 + tx < columns:
                tile[k, tx] = x[start + (row0 + k) * columns + column0 + tx]
        cuda.syncthreads()
        for k in range(ty, TILE, ROWS):
            if column0 + k < columns and row0 + tx < rows:
                out[start + (column0 + k) * rows + row0 + tx] = tile[tx, k]

    versions = dict(naive=transpose_naive, tile=transpose_tile, padded=transpose_padded)
    return _jit(dtype, versions[version])


@functools.cache
def few_rows_kernel(dtype: np.dtype, count: int) -> Callable:
    """kernel(x, out, lines, length, times, phases): x (batch, phases, count, times, length) to out
    (batch, times, phases, length, count), where `lines` is batch * times * phases.

    `count` is a constant, so that a compiler makes packs of the results of neighbouring threads.
    """

    def transpose_few_rows(x, out, lines, length, times, phases):
        line = cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y
        if line >= lines:
            return
        phase, time = line % phases, line // phases % times
        first = ((line // (phases * times) * phases + phase) * count * times + time) * length
        for i in range(cuda.threadIdx.x, length, cuda.blockDim.x):
            for row in range(count):
                out[(line * length + i) * count + row] = x[first + row * times * length + i]

    return cuda.jit(signature(array(dtype), array(dtype), *["int64"] * 4))(transpose_few_rows)


@functools.cache
def few_columns_kernel(dtype: np.dtype, count: int) -> Callable:
    """kernel(x, out, lines, length): x (lines, length, count) to out (lines, count, length)."""

    def transpose_few_columns(x, out, lines, length):
        line = cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y
        if line >= lines:
            return
        for i in range(cuda.threadIdx.x, length, cuda.blockDim.x):
            for column in range(count):
                out[(line * count + column) * length + i] = x[(line * length + i) * count + column]

    return cuda.jit(signature(array(dtype), array(dtype), "int64", "int64"))(transpose_few_columns)


@functools.cache
def concat_kernel(dtype: np.dtype) -> Callable:
    """kernel(x, out, rows, width, total, start): x (rows, width) into columns of out (rows, total).

    A block takes a tile of rows and columns.
    """

    def concat_rows(x, out, rows, width, total, start):
        tiles = (width + cuda.blockDim.x - 1) // cuda.blockDim.x
        row = cuda.blockIdx.x // tiles * cuda.blockDim.y + cuda.threadIdx.y
        j = cuda.blockIdx.x % tiles * cuda.blockDim.x + cuda.threadIdx.x
        if row < rows and j < width:
            out[row * total + start + j] = x[row * width + j]

    return cuda.jit(signature(array(dtype), array(dtype), *["int64"] * 4))(concat_rows)


@functools.cache
def four_kernel(dtype: np.dtype) -> Callable:
    """kernel(a, b, c, d, out, rows, width, total, start): as `concat_kernel`, for four parts."""

    def concat_four(a, b, c, d, out, rows, width, total, start):
        tiles = (width + cuda.blockDim.x - 1) // cuda.blockDim.x
        row = cuda.blockIdx.x // tiles * cuda.blockDim.y + cuda.threadIdx.y
        j = cuda.blockIdx.x % tiles * cuda.blockDim.x + cuda.threadIdx.x
        if row < rows and j < width:
            at, i = row * total + start + j, row * width + j
            out[at] = a[i]
            out[at + width] = b[i]
            out[at + 2 * width] = c[i]
            out[at + 3 * width] = d[i]

    return cuda.jit(signature(*[array(dtype)] * 5, *["int64"] * 4))(concat_four)


@functools.cache
def sides_kernel(dtype: np.dtype) -> Callable:
    """kernel(out, rows, width, before, after, step, left, right): the first and the last elements
    of each row from others of it: `left` or `right`, and so on by `step`."""

    def pad_sides(out, rows, width, before, after, step, left, right):
        row = cuda.grid(1)
        if row < rows:
            first = row * width
            last = first + width - after
            for j in range(before):
                out[first + j] = out[first + left + step * j]
            for j in range(after):
                out[last + j] = out[first + right + step * j]

    return cuda.jit(signature(array(dtype), *["int64"] * 7))(pad_sides)
