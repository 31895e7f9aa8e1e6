"""Embedding, gather, scatter and take with their gradients."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kernels.reference.common import check_index, compute_dtype, traced


@traced
def checked_index(
    index: np.ndarray, low: int, high: int, ignore: int, number: int, record: np.ndarray
) -> np.ndarray:
    """A copy with `low` in place of numbers outside of low .. high - 1 other than `ignore`, where
    negative ones count from the end, high; if there was one outside, and record[0] is 0, record
    becomes (number, the wrong number)."""
    outside = (index < low) | (index >= high)
    wrong = outside & (index != ignore)
    out = index.copy()
    out[wrong] = low
    out[(out < 0) & ~(outside & ~wrong)] += high
    if bool(wrong.any()) and record[0] == 0:
        record[0], record[1] = number, index[wrong][0]
    return out


@traced
def embedding(
    weight: np.ndarray,
    index: np.ndarray,
    negative: bool = False,
    error: Callable[[int], Exception] | None = None,
) -> np.ndarray:
    """Rows of weight (V, D) at integer `index` of any shape: (*index.shape, D).

    negative: numbers from -V to -1 count from the end. error: what is raised for a wrong one.
    """
    check_index("embedding", index, weight.shape[0], negative, error)
    return weight[index]


@traced
def embedding_backward(
    g: np.ndarray,
    index: np.ndarray,
    num_rows: int,
    negative: bool = False,
    onto: np.ndarray | None = None,
) -> np.ndarray:
    """Gradient (num_rows, D) of embedding: rows of g added where they came from, to a copy of
    `onto` or to zeros."""
    check_index("embedding_backward", index, num_rows, negative)
    dw = np.zeros((num_rows, g.shape[-1]), compute_dtype(g.dtype))
    dw += 0 if onto is None else onto
    np.add.at(dw, index.ravel(), g.reshape(index.size, g.shape[-1]).astype(dw.dtype, copy=False))
    return dw.astype(g.dtype, copy=False)


@traced
def gather(x: np.ndarray, axis: int, index: np.ndarray) -> np.ndarray:
    """out[i, j, k] = x[index[i, j, k], j, k] for axis 0, and so on; of index's shape."""
    check_index("gather", index, x.shape[axis])
    grid = list(np.ogrid[tuple(slice(n) for n in index.shape)])
    grid[axis] = index
    return x[tuple(grid)]


@traced
def scatter_add(
    x: np.ndarray,
    axis: int,
    index: np.ndarray,
    src: np.ndarray,
    out: np.ndarray | None = None,
    error: Callable[[int], Exception] | None = None,
) -> np.ndarray:
    """A copy of x with src added at index along `axis`, or x itself where it is given as `out`;
    equal indices accumulate. error: what is raised for a wrong number."""
    check_index("scatter_add", index, x.shape[axis], error=error)
    sums = x.astype(compute_dtype(x.dtype))
    grid = list(np.ogrid[tuple(slice(n) for n in index.shape)])
    grid[axis] = index
    part = src[tuple(slice(n) for n in index.shape)]
    np.add.at(sums, tuple(grid), part.astype(sums.dtype, copy=False))
    if out is None:
        return sums.astype(x.dtype, copy=False)
    out[...] = sums
    return out


@traced
def scatter(
    x: np.ndarray,
    axis: int,
    index: np.ndarray,
    src: np.ndarray,
    out: np.ndarray | None = None,
    error: Callable[[int], Exception] | None = None,
) -> np.ndarray:
    """A copy of x with src written at index along `axis`, or x itself where it is given as `out`;
    of equal indices the last counts. error: what is raised for a wrong number."""
    check_index("scatter", index, x.shape[axis], error=error)
    out = x.copy() if out is None else out
    grid = list(np.ogrid[tuple(slice(n) for n in index.shape)])
    grid[axis] = index
    out[tuple(grid)] = src[tuple(slice(n) for n in index.shape)]
    return out


@traced
def take(
    x: np.ndarray,
    index: np.ndarray,
    negative: bool = False,
    error: Callable[[int], Exception] | None = None,
) -> np.ndarray:
    """Elements of the flattened x at flat positions `index`, of index's shape.

    negative: numbers from -size to -1 count from the end. error: what is raised for a wrong one.
    """
    check_index("take", index, x.size, negative, error)
    return np.asarray(x.reshape(-1)[index])


@traced
def take_backward(
    g: np.ndarray, index: np.ndarray, size: int, negative: bool = False
) -> np.ndarray:
    """Gradient (size,) of take: g added where it came from; equal indices accumulate."""
    check_index("take_backward", index, size, negative)
    dx = np.zeros(size, compute_dtype(g.dtype))
    np.add.at(dx, index.ravel(), g.ravel().astype(dx.dtype, copy=False))
    return dx.astype(g.dtype, copy=False)
