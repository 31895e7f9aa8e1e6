"""Embedding, gather, scatter and take: copies by index, and their gradients, additions by index.

n elements by index move at least 2 n elements and the index; a gradient adds one read of what it
adds to. There is no arithmetic to speak of: what counts is that neighbouring threads read and
write neighbours, which an index into rows allows and an index into elements does not.

Additions by index collide where indices repeat. Versions:
1. atomic: a thread per element, collisions settled by atomic additions; the order of equal indices,
   and so the last bit of a float, depends on timing
2. lines: a thread per line along the indexed axis (for an embedding, per column), which adds in
   order: no two threads meet, and results repeat bit by bit. Slow on a GPU where lines are few.

The launcher takes `lines` on the CPU, where it costs nothing, and `atomic` on a GPU.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np
from numba import types

from kernels.numba_cuda.common import (
    ceil_div,
    check_version,
    compute_dtype,
    contiguous,
    launcher,
    namespace,
    on_gpu,
    scalar_type,
    storage_type,
)
from kernels.numba_cuda.pointwise import pointwise
from kernels.numba_cuda.transpose import cast, copy
from kernels.pointwise import TABLE
from kernels.simt import cuda

VERSIONS = ("atomic", "lines")
CATALOG = [
    ("embedding", "rows", "a row of threads copies a row of the table"),
    ("gather", "elements", "a thread per element of the result"),
    ("embedding_backward", "atomic", "a thread per element, atomic additions"),
    ("embedding_backward", "lines", "a thread per column adds in order: repeatable"),
    ("scatter_add", "atomic", "a thread per element, atomic additions"),
    ("scatter_add", "lines", "a thread per line along the axis adds in order: repeatable"),
]

THREADS = 256
ROW_BLOCK = (64, 4)


def _flat(dtype: np.dtype) -> types.Array:
    return types.Array(storage_type(dtype), 1, "C")


@functools.cache
def _embedding_kernel(dtype: np.dtype, index: np.dtype) -> Callable:
    """kernel(weight, index, out, width, tiles): a block per tile of rows and columns."""

    def embedding_rows(weight, index, out, width, tiles):
        tile = cuda.blockIdx.x // tiles
        row = tile * cuda.blockDim.y + cuda.threadIdx.y
        j = (cuda.blockIdx.x % tiles) * cuda.blockDim.x + cuda.threadIdx.x
        if row < index.size and j < width:
            start = max(index[row], 0) * width  # checked before: max only tells the compiler
            out[row * width + j] = weight[start + j]

    flat = _flat(dtype)
    return cuda.jit(types.void(flat, _flat(index), flat, types.int64, types.int64))(embedding_rows)


@functools.cache
def _embedding_backward_kernel(version: str, dtype: np.dtype, index: np.dtype) -> Callable:
    """kernel(g, index, dw, width, tiles); dw starts as zeros of the compute dtype."""
    T = scalar_type(dtype)

    def embedding_backward_atomic(g, index, dw, width, tiles):
        tile = cuda.blockIdx.x // tiles
        row = tile * cuda.blockDim.y + cuda.threadIdx.y
        j = (cuda.blockIdx.x % tiles) * cuda.blockDim.x + cuda.threadIdx.x
        if row < index.size and j < width:
            cuda.atomic.add(dw, index[row] * width + j, T(g[row * width + j]))

    def embedding_backward_lines(g, index, dw, width, tiles):
        column = cuda.grid(1)
        for row in range(index.size):
            if column < width:
                dw[index[row] * width + column] += T(g[row * width + column])

    kernel = embedding_backward_atomic if version == "atomic" else embedding_backward_lines
    target = _flat(compute_dtype(dtype))
    numbers = [types.int64] * 2
    return cuda.jit(types.void(_flat(dtype), _flat(index), target, *numbers))(kernel)


@functools.cache
def _gather_kernel(dtype: np.dtype, index: np.dtype) -> Callable:
    """kernel(x, index, out, size, length, inner): x (outer, size, inner), the others
    (outer, length, inner)."""

    def gather_elements(x, index, out, size, length, inner):
        i = cuda.grid(1)
        if i < index.size:
            outer = i // (length * inner)
            out[i] = x[(outer * size + index[i]) * inner + i % inner]

    flat = _flat(dtype)
    numbers = [types.int64] * 3
    return cuda.jit(types.void(flat, _flat(index), flat, *numbers))(gather_elements)


@functools.cache
def _scatter_kernel(version: str, dtype: np.dtype, index: np.dtype) -> Callable:
    """kernel(src, index, out, size, length, inner): out (outer, size, inner) of the compute
    dtype, the others (outer, length, inner)."""
    T = scalar_type(dtype)

    def scatter_add_atomic(src, index, out, size, length, inner):
        i = cuda.grid(1)
        if i < index.size:
            outer = i // (length * inner)
            cuda.atomic.add(out, (outer * size + index[i]) * inner + i % inner, T(src[i]))

    def scatter_add_lines(src, index, out, size, length, inner):
        line = cuda.grid(1)
        if line < index.size // length:
            outer = line // inner
            column = line % inner
            first = outer * length * inner + column
            for k in range(length):
                i = first + k * inner
                out[(outer * size + index[i]) * inner + column] += T(src[i])

    kernel = scatter_add_atomic if version == "atomic" else scatter_add_lines
    target, numbers = _flat(compute_dtype(dtype)), [types.int64] * 3
    return cuda.jit(types.void(_flat(dtype), _flat(index), target, *numbers))(kernel)


def _check_index(name: str, index, size: int) -> None:
    """Raise TypeError unless the index is of integers, IndexError unless all are in 0..size-1."""
    if index.dtype.kind not in "iu":
        raise TypeError(f"{name}: expected integer indices, got {index.dtype}")
    if index.size and (index.min() < 0 or index.max() >= size):
        bad = index[(index < 0) | (index >= size)].ravel()[0]
        raise IndexError(f"{name}: index {bad} is out of bounds for size {size}")


def _tiles(rows: int, width: int) -> tuple[int, int]:
    """Tiles per row of tiles, and in all."""
    tiles = ceil_div(width, ROW_BLOCK[0])
    return tiles, tiles * ceil_div(rows, ROW_BLOCK[1])


@functools.lru_cache(maxsize=4096)
def _launch(name: str, version: str, factory: Callable, key: tuple, grid, block) -> Callable:
    return launcher(name, version, factory(*key), grid, block)


def _chosen(name: str, version: str | None, like) -> str:
    check_version(name, version, VERSIONS)
    return version or ("atomic" if on_gpu(like) else "lines")


def embedding(weight: np.ndarray, index: np.ndarray) -> np.ndarray:
    """Rows of weight (V, D) at integer `index` of any shape: (*index.shape, D)."""
    _check_index("embedding", index, weight.shape[0])
    rows, width = index.size, weight.shape[1]
    out = namespace(weight).empty((*index.shape, width), weight.dtype)
    if out.size:
        key, (tiles, grid) = (weight.dtype, index.dtype), _tiles(rows, width)
        launch = _launch("embedding", "rows", _embedding_kernel, key, grid, ROW_BLOCK)
        launch(contiguous(weight).ravel(), contiguous(index).ravel(), out.ravel(), width, tiles)
    return out


def embedding_backward(
    g: np.ndarray, index: np.ndarray, num_rows: int, version: str | None = None
) -> np.ndarray:
    """Gradient (num_rows, D) of embedding: rows of g (*index.shape, D) added where they came from.

    version: "atomic" or "lines" (default: by device, see the file's header).
    """
    version = _chosen("embedding_backward", version, g)
    _check_index("embedding_backward", index, num_rows)
    rows, width = index.size, g.shape[-1]
    dw = namespace(g).zeros((num_rows, width), compute_dtype(g.dtype))
    if g.size:
        (tiles, grid), block = _tiles(rows, width), ROW_BLOCK
        if version == "lines":
            grid, block = tiles, ROW_BLOCK[0]
        key = (version, g.dtype, index.dtype)
        factory = _embedding_backward_kernel
        launch = _launch("embedding_backward", version, factory, key, grid, block)
        launch(contiguous(g).ravel(), contiguous(index).ravel(), dw.ravel(), width, tiles)
    return dw if dw.dtype == g.dtype else cast(dw, g.dtype)


def _axis(name: str, x, axis: int, index) -> int:
    if index.ndim != x.ndim:
        raise ValueError(f"{name}: index has {index.ndim} dimensions, expected {x.ndim}")
    if not -x.ndim <= axis < x.ndim:
        raise IndexError(f"{name}: axis {axis} is out of range for {x.ndim} dimensions")
    axis %= x.ndim
    for d, (n, size) in enumerate(zip(index.shape, x.shape)):
        if d != axis and n > size:
            raise ValueError(f"{name}: index {index.shape} exceeds {x.shape} in dimension {d}")
    return axis


def _part(x, shape, axis: int):
    """The corner of x that an index of `shape` reaches, whole along `axis`."""
    return x[tuple(slice(None) if d == axis else slice(n) for d, n in enumerate(shape))]


def gather(x: np.ndarray, axis: int, index: np.ndarray) -> np.ndarray:
    """out[i, j, k] = x[index[i, j, k], j, k] for axis 0, and so on; of index's shape.

    Raises ValueError for an index that is larger than x off the axis, IndexError out of bounds.
    """
    axis = _axis("gather", x, axis, index)
    _check_index("gather", index, x.shape[axis])
    x = contiguous(_part(x, index.shape, axis))
    return _gather(x, index, x.shape[axis], index.shape[axis], math.prod(index.shape[axis + 1 :]))


def _gather(x, index, size: int, length: int, inner: int):
    out = namespace(x).empty(index.shape, x.dtype)
    if out.size:
        key, grid = (x.dtype, index.dtype), ceil_div(index.size, THREADS)
        launch = _launch("gather", "elements", _gather_kernel, key, grid, THREADS)
        launch(x.ravel(), contiguous(index).ravel(), out.ravel(), size, length, inner)
    return out


def scatter_add(
    x: np.ndarray, axis: int, index: np.ndarray, src: np.ndarray, version: str | None = None
) -> np.ndarray:
    """A copy of x with src added at index along `axis`; equal indices accumulate.

    version: "atomic" or "lines" (default: by device, see the file's header). Raises ValueError
    for shapes that do not fit, TypeError for dtypes that differ, IndexError out of bounds.
    """
    axis, version = _axis("scatter_add", x, axis, index), _chosen("scatter_add", version, x)
    _check_index("scatter_add", index, x.shape[axis])
    if src.dtype != x.dtype:
        raise TypeError(f"scatter_add: src is {src.dtype}, expected {x.dtype} as x")
    if any(n > m for n, m in zip(index.shape, src.shape)):
        raise ValueError(f"scatter_add: index {index.shape} exceeds src {src.shape}")
    compute = compute_dtype(x.dtype)
    out = copy(x) if compute == x.dtype else cast(x, compute)
    if index.size:
        part = _part(out, index.shape, axis)
        target = contiguous(part)
        src = contiguous(src[tuple(slice(n) for n in index.shape)])
        inner = math.prod(index.shape[axis + 1 :])
        _scatter(target, index, src, x.shape[axis], index.shape[axis], inner, version)
        if not part.flags.c_contiguous:
            pointwise(TABLE["copy"], target, dtype=compute, out=part)
    return out if compute == x.dtype else cast(out, x.dtype)


def _scatter(out, index, src, size: int, length: int, inner: int, version: str) -> None:
    key = (version, src.dtype, index.dtype)
    count = index.size if version == "atomic" else index.size // length
    grid = ceil_div(count, THREADS)
    launch = _launch("scatter_add", version, _scatter_kernel, key, grid, THREADS)
    launch(src.ravel(), contiguous(index).ravel(), out.ravel(), size, length, inner)


def take(x: np.ndarray, index: np.ndarray) -> np.ndarray:
    """Elements of the flattened x at flat positions `index`, of index's shape."""
    _check_index("take", index, x.size)
    return _gather(contiguous(x), index, x.size, index.size, 1)


def take_backward(
    g: np.ndarray, index: np.ndarray, size: int, version: str | None = None
) -> np.ndarray:
    """Gradient (size,) of take: g added where it came from; equal indices accumulate.

    version: "atomic" or "lines" (default: by device, see the file's header).
    """
    version = _chosen("take_backward", version, g)
    _check_index("take_backward", index, size)
    dx = namespace(g).zeros(size, compute_dtype(g.dtype))
    if g.size:
        _scatter(dx, index, contiguous(g), size, index.size, 1, version)
    return dx if dx.dtype == g.dtype else cast(dx, g.dtype)
