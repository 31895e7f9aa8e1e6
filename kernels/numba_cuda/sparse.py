"""Products with a sparse matrix in compressed rows (CSR), and the gradient of its elements.

A matrix with nnz elements times a dense one of n columns takes 2 nnz n operations. Each element
brings its column index and a row of the dense matrix, from a place that only the index tells: what
matters is that neighbouring threads read neighbours, and that rows of very different lengths leave
no thread idle. Versions of spmm:

1. thread: a thread per row of the result; neighbours read far from each other, and a warp takes as
   long as its longest row
2. warp: a warp per row. Its lanes take neighbouring columns of the dense matrix; where that has
   less than 32, groups of lanes share the elements of the row and add up by shuffles (Bell and
   Garland, 2009)
3. merge: rows and elements as one path that is cut into parts of equal length (Merrill and Garland,
   2016), so that row lengths do not matter. A part writes the rows that end in it; of the row that
   goes on it leaves a carry, which a second kernel adds.

sddmm computes a[row[e]] . b[col[e]] for each element e: a thread, or a warp per element.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from kernels.numba_cuda.common import array, scalar_type, signature
from kernels.simt import cuda

FULL = 0xFFFFFFFF


@functools.cache
def thread_kernel(dtype: np.dtype, sums: np.dtype, index: np.dtype) -> Callable:
    """kernel(crow, col, values, dense, out, rows, width): block (threads,)."""
    A = scalar_type(dtype)

    def spmm_thread(crow, col, values, dense, out, rows, width):
        row = cuda.grid(1)
        if row < rows:
            for j in range(width):
                total = A(0)
                for k in range(crow[row], crow[row + 1]):
                    total += A(values[k]) * A(dense[col[k] * width + j])
                out[row * width + j] = total

    flat, indices, numbers = array(dtype), array(index), ["int64"] * 2
    return cuda.jit(signature(indices, indices, flat, flat, array(sums), *numbers))(spmm_thread)


@functools.cache
def warp_kernel(dtype: np.dtype, sums: np.dtype, index: np.dtype, columns: int) -> Callable:
    """kernel(crow, col, values, dense, out, rows, width): block (32, rows).

    columns: how many of the dense matrix a warp takes at a time, a power of two up to 32.
    """
    A, GROUPS = scalar_type(dtype), 32 // columns

    def spmm_warp(crow, col, values, dense, out, rows, width):
        row = cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y
        group = 0 if columns == 32 else cuda.threadIdx.x // columns
        for base in range(0, width, columns):
            j = base + (cuda.threadIdx.x if columns == 32 else cuda.threadIdx.x % columns)
            total = A(0)
            if row < rows and j < width:
                for k in range(crow[row] + group, crow[row + 1], GROUPS):
                    scale, first = A(values[k]), np.uint64(col[k] * width)
                    total += scale * A(dense[first + np.uint64(j)])
            if columns < 32:
                step = 16
                while step >= columns:
                    total += cuda.shfl_xor_sync(FULL, total, step)
                    step //= 2
            if row < rows and j < width and group == 0:
                out[row * width + j] = total

    flat, indices, numbers = array(dtype), array(index), ["int64"] * 2
    return cuda.jit(signature(indices, indices, flat, flat, array(sums), *numbers))(spmm_warp)


@cuda.jit(device=True)
def path(crow, rows, count, diagonal):
    """How many rows have ended where the merge path of row ends and elements crosses a diagonal."""
    low, high = max(diagonal - count, 0), min(diagonal, rows)
    while low < high:
        middle = (low + high) // 2
        if crow[middle + 1] <= diagonal - 1 - middle:
            low = middle + 1
        else:
            high = middle
    return low


@functools.cache
def merge_kernel(dtype: np.dtype, sums: np.dtype, index: np.dtype, items: int) -> Callable:
    """kernel(crow, col, values, dense, out, carry_row, carry, width, parts, tiles).

    Block (columns, parts of it), `tiles` blocks side by side cover the columns. carry_row (parts,)
    and carry (parts, width) get the row that goes on after each part, and its sum so far.
    """
    A = scalar_type(dtype)

    def spmm_merge(crow, col, values, dense, out, carry_row, carry, width, parts, tiles):
        part = (cuda.blockIdx.x // tiles) * cuda.blockDim.y + cuda.threadIdx.y
        j = (cuda.blockIdx.x % tiles) * cuda.blockDim.x + cuda.threadIdx.x
        rows, count = crow.size - 1, values.size
        if part < parts and j < width:
            start = part * items
            stop = min(start + items, rows + count)
            row, last = path(crow, rows, count, start), path(crow, rows, count, stop)
            k = start - row
            total = A(0)
            while row < last:
                while k < crow[row + 1]:
                    total += A(values[k]) * A(dense[col[k] * width + j])
                    k += 1
                out[row * width + j] = total
                total = A(0)
                row += 1
            while k < stop - last:
                total += A(values[k]) * A(dense[col[k] * width + j])
                k += 1
            carry[part * width + j] = total
            if j == 0:
                carry_row[part] = last

    flat, indices, numbers = array(dtype), array(index), ["int64"] * 3
    target = array(sums)
    kinds = indices, indices, flat, flat, target, indices, target, *numbers
    return cuda.jit(signature(*kinds))(spmm_merge)


@functools.cache
def carry_kernel(sums: np.dtype, index: np.dtype) -> Callable:
    """kernel(carry_row, carry, out, width, parts, rows): a thread per carry, block (threads,).

    The first part of several that carry into one row adds all of them.
    """
    A = scalar_type(sums)

    def spmm_carry(carry_row, carry, out, width, parts, rows):
        i = cuda.grid(1)
        part, j = i // width, i % width
        if part < parts:
            row = carry_row[part]
            if row < rows and (part == 0 or carry_row[part - 1] != row):
                total = A(0)
                while part < parts and carry_row[part] == row:
                    total += carry[part * width + j]
                    part += 1
                out[row * width + j] += total

    target, numbers = array(sums), ["int64"] * 3
    return cuda.jit(signature(array(index), target, target, *numbers))(spmm_carry)


@functools.cache
def sddmm_kernel(version: str, dtype: np.dtype, index: np.dtype) -> Callable:
    """kernel(row, col, a, b, out, width): block (threads,), or (32, elements) for "warp"."""
    A = scalar_type(dtype)

    def sddmm_thread(row, col, a, b, out, width):
        e = cuda.grid(1)
        if e < row.size:
            total = A(0)
            for j in range(width):
                total += A(a[row[e] * width + j]) * A(b[col[e] * width + j])
            out[e] = total

    def sddmm_warp(row, col, a, b, out, width):
        e = cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y
        total = A(0)
        if e < row.size:
            for j in range(cuda.threadIdx.x, width, 32):
                total += A(a[row[e] * width + j]) * A(b[col[e] * width + j])
        for step in (16, 8, 4, 2, 1):
            total += cuda.shfl_xor_sync(FULL, total, step)
        if e < row.size and cuda.threadIdx.x == 0:
            out[e] = total

    flat, indices = array(dtype), array(index)
    kernel = sddmm_thread if version == "thread" else sddmm_warp
    return cuda.jit(signature(indices, indices, flat, flat, flat, "int64"))(kernel)
