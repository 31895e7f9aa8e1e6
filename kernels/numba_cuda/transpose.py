"""Copies: contiguous, cast, transposed, concatenated.

A copy of n elements does no arithmetic and moves at least 2 n elements. What matters is that both
sides of it touch neighbouring addresses at a time.

Versions of the 2-D transpose, out[j, i] = x[i, j]:
1. naive: reads rows and writes columns; every write is a memory transaction of its own
2. tile: a tile passes through shared memory, so that reads and writes both run along rows; but the
   32 threads that read a column of the tile all hit one bank
3. padded: one more column in the tile puts a column's elements into 32 different banks

Copies, casts and other orders of axes are the pointwise line `copy`, contiguous or strided; an
order of axes that merges to (batch, columns, rows) is a batch of 2-D transposes.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

import numpy as np
from numba import types

from kernels.numba_cuda.common import ceil_div, check_version, empty, launcher, storage_type
from kernels.numba_cuda.layout import contiguous_strides, is_dense, merge
from kernels.numba_cuda.pointwise import pointwise
from kernels.pointwise import TABLE
from kernels.simt import cuda

VERSIONS = ("naive", "tile", "padded")
CATALOG = [
    ("transpose", "naive", "reads rows, writes columns: uncoalesced"),
    ("transpose", "tile", "through a tile of shared memory: both sides coalesced"),
    ("transpose", "padded", "one more column in the tile: no bank conflicts"),
    ("concat", "rows", "each part as columns of the result, a block per tile"),
]

TILE = 32
ROWS = 8  # a block is TILE x ROWS threads: each moves TILE / ROWS elements
PADDED = TILE + 1
PART = (128, 2)  # the block that copies a part of a concatenation
MAX_PLANS = 4096
_COPY = TABLE["copy"]
_plans: dict[tuple, Callable] = {}


def _jit(element: types.Type, kernel: Callable) -> Callable:
    """kernel(x, out, rows, columns) for x (batch, rows, columns), the batch along z."""
    flat, size = types.Array(element, 1, "C"), types.int64
    return cuda.jit(types.void(flat, flat, size, size))(kernel)


@functools.cache
def _kernel(version: str, element: types.Type) -> Callable:
    E = element

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
    return _jit(element, versions[version])


def copy(x: np.ndarray) -> np.ndarray:
    """A C-contiguous copy."""
    if not x.flags.c_contiguous and is_dense(x):
        order = sorted(range(x.ndim), key=lambda i: (-x.strides[i], i))
        return transpose(x.transpose(order), [order.index(i) for i in range(x.ndim)])
    return pointwise(_COPY, x, dtype=x.dtype)


def cast(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """A C-contiguous copy of another dtype, with C's conversions."""
    return pointwise(_COPY, x, dtype=x.dtype, out_dtype=dtype)


def transpose(x: np.ndarray, axes: Sequence[int], version: str | None = None) -> np.ndarray:
    """A C-contiguous copy with the axes in the order given.

    version: a rung of the ladder (default: the padded tile). Raises ValueError for axes that are
    no permutation of x's, and for a version where the last axis does not move.
    """
    key = (type(x), x.dtype, x.shape, x.strides, tuple(axes), version)
    plan = _plans.get(key)
    if plan is None:
        if len(_plans) >= MAX_PLANS:
            _plans.clear()
        plan = _plans[key] = _plan(x, tuple(axes), version)
    return plan(x)


def _plan(x, given: tuple[int, ...], version: str | None) -> Callable:
    """Check the arguments and prepare a function of x."""
    check_version("transpose", version, VERSIONS)
    axes = [int(a) + x.ndim * (a < 0) for a in given]
    if sorted(axes) != list(range(x.ndim)):
        raise ValueError(f"transpose: axes {given} are no permutation of {x.ndim} dimensions")
    view = x.transpose(axes)
    shape, dtype, matrix = view.shape, x.dtype, _matrix(view, x)
    if matrix is None:
        if version is not None:
            raise ValueError(
                f"transpose: version {version!r} swaps the two last axes of (batch, rows, columns);"
                f" shape {x.shape} with axes {given} is not of that form"
            )
        return lambda x: pointwise(_COPY, x.transpose(axes), dtype=dtype)
    batch, rows, columns = matrix
    grid = (ceil_div(columns, TILE), ceil_div(rows, TILE), batch)
    version = version or "padded"
    kernel = _kernel(version, storage_type(dtype))
    call = launcher("transpose", version, kernel, grid, (TILE, ROWS))

    def run(x):
        out = empty(shape, dtype, x)
        call(x.ravel(), out.ravel(), rows, columns)
        return out

    return run


def _matrix(view, x) -> tuple[int, int, int] | None:
    """(batch, rows, columns) of contiguous x where `view` swaps the last two, else None."""
    if not x.flags.c_contiguous or x.size == 0:
        return None
    strides = [s // x.itemsize for s in view.strides]
    sizes, (source, _) = merge(view.shape, [strides, contiguous_strides(view.shape)])
    if len(sizes) == 2:
        sizes, source = [1, *sizes], [x.size, *source]
    batch, columns, rows = sizes if len(sizes) == 3 else (0, 0, 0)
    fits = source == [rows * columns, 1, columns] and 0 < batch < 65536
    return (batch, rows, columns) if fits and ceil_div(rows, TILE) < 65536 else None


def concat(arrays: Sequence[np.ndarray], axis: int = 0) -> np.ndarray:
    """The arrays, of one dtype, one after the other along `axis`.

    Raises ValueError for no arrays and for shapes that differ elsewhere, TypeError for dtypes that
    differ, IndexError for an axis that is not there.
    """
    if not arrays:
        raise ValueError("concat: expected at least one array, got none")
    first = arrays[0]
    if not -first.ndim <= axis < first.ndim:
        raise IndexError(f"concat: axis {axis} is out of range for {first.ndim} dimensions")
    axis %= first.ndim
    rest = [*first.shape[:axis], *first.shape[axis + 1 :]]
    for a in arrays:
        if [*a.shape[:axis], *a.shape[axis + 1 :]] != rest or a.ndim != first.ndim:
            raise ValueError(f"concat: shapes {first.shape} and {a.shape} differ off axis {axis}")
        if a.dtype != first.dtype:
            raise TypeError(f"concat: dtypes {first.dtype} and {a.dtype} differ; cast one of them")
    shape = list(first.shape)
    shape[axis] = sum(a.shape[axis] for a in arrays)
    out = empty(tuple(shape), first.dtype, first)
    rows, inner = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
    flat, total, start = out.ravel(), shape[axis] * inner, 0
    for a in arrays:
        width = a.shape[axis] * inner
        if rows and width:
            x = a if a.flags.c_contiguous else copy(a)
            _launch_concat(x.dtype, rows, width)(x.ravel(), flat, rows, width, total, start)
        start += width
    return out


@functools.cache
def _concat_kernel(element: types.Type) -> Callable:
    """kernel(x, out, rows, width, total, start): x (rows, width) into columns of out (rows, total).

    A block takes a tile of rows and columns.
    """

    def concat_rows(x, out, rows, width, total, start):
        tiles = (width + PART[0] - 1) // PART[0]
        row = cuda.blockIdx.x // tiles * PART[1] + cuda.threadIdx.y
        j = cuda.blockIdx.x % tiles * PART[0] + cuda.threadIdx.x
        if row < rows and j < width:
            out[row * total + start + j] = x[row * width + j]

    flat = types.Array(element, 1, "C")
    return cuda.jit(types.void(flat, flat, *[types.int64] * 4))(concat_rows)


@functools.lru_cache(maxsize=4096)
def _launch_concat(dtype: np.dtype, rows: int, width: int) -> Callable:
    grid = ceil_div(width, PART[0]) * ceil_div(rows, PART[1])
    return launcher("concat", "rows", _concat_kernel(storage_type(dtype)), grid, PART)
