"""Products with sparse matrices, with the gradients of both operands, and the constructors.

A sparse tensor holds its elements in a dense vector, which is an ordinary part of the graph
(`minigrad.ops.sparse_tensor`); the operations here take that vector and the pattern of the matrix.
"""

from __future__ import annotations

import functools
from typing import Any

from kernels import dispatch
from minigrad import dtypes
from minigrad.autograd.node import Op
from minigrad.backends import array_module
from minigrad.tensor import Tensor, wrap


class Pattern:
    """Which elements a matrix of `shape` has, in compressed rows: `crow` (rows + 1,) and `col`
    (nnz,), arrays of integers."""

    def __init__(self, crow: Any, col: Any, shape: tuple[int, int]) -> None:
        self.crow, self.col, self.shape = crow, col, shape

    @functools.cached_property
    def row(self) -> Any:
        """The row of each element (nnz,)."""
        xp = array_module(self.crow)
        counts = self.crow[1:] - self.crow[:-1]
        if xp.__name__ == "numpy":
            return xp.repeat(xp.arange(self.shape[0], dtype=self.crow.dtype), counts)
        places = xp.arange(self.col.size, dtype=self.crow.dtype)
        return (xp.searchsorted(self.crow, places, side="right") - 1).astype(self.crow.dtype)

    @functools.cached_property
    def transposed(self) -> tuple[Pattern, Any]:
        """The pattern of the transpose, and the order in which it has the elements of this one."""
        xp = array_module(self.crow)
        order = xp.argsort(self.col, kind="stable")
        crow = ends(self.col, self.shape[1]).astype(self.crow.dtype)
        return Pattern(crow, self.row[order], self.shape[::-1]), order


def ends(row: Any, rows: int) -> Any:
    """crow (rows + 1,) from the row of each element."""
    xp = array_module(row)
    crow = xp.zeros(rows + 1, xp.int64)
    crow[1:] = xp.cumsum(xp.bincount(row, minlength=rows))
    return crow


class SparseMM(Op):
    """The matrix with `values` (nnz,) at the places of a pattern, times dense (columns, n)."""

    bilinear = True
    name = "SparseMm"
    grad_name = "SparseAddmmBackward0"

    @staticmethod
    def rule(values: Tensor, dense: Tensor, pattern: Pattern) -> None:
        if not values.is_floating_point():
            raise dtypes.refused("addmm_sparse_dense", values._array.dtype)
        if values._array.dtype != dense._array.dtype:
            raise RuntimeError(
                f"sparse.mm: expected matrices of one dtype, got {values.dtype} and {dense.dtype}"
            )
        if dense._array.ndim != 2 or dense._array.shape[0] != pattern.shape[1]:
            raise RuntimeError(
                "mat1 and mat2 shapes cannot be multiplied "
                f"({'x'.join(map(str, pattern.shape))} and {'x'.join(map(str, dense.shape))})"
            )

    @staticmethod
    def forward(values: Any, dense: Any, pattern: Pattern) -> Any:
        return dispatch.active.spmm(pattern.crow, pattern.col, values, dense)

    @staticmethod
    def vjp(ctx: Any, g: Tensor, pattern: Pattern) -> tuple:
        values, dense = ctx.tensors()
        return (
            SampledMM.apply(g, dense, pattern=pattern) if ctx.needs[0] else None,
            transposed_mm(values, g, pattern) if ctx.needs[1] else None,
        )


def transposed_mm(values: Tensor, dense: Tensor, pattern: Pattern) -> Tensor:
    """The transpose of the sparse matrix, times dense."""
    other, order = pattern.transposed
    return SparseMM.apply(values.index_select(0, wrap(order)), dense, pattern=other)


class SampledMM(Op):
    """a (m, n) times the transpose of b (k, n), at the places of a pattern alone: (nnz,)."""

    bilinear = True
    name = "SampledMm"

    @staticmethod
    def forward(a: Any, b: Any, pattern: Pattern) -> Any:
        return dispatch.active.sddmm(pattern.row, pattern.col, a, b)

    @staticmethod
    def vjp(ctx: Any, h: Tensor, pattern: Pattern) -> tuple:
        a, b = ctx.tensors()
        return (
            SparseMM.apply(h, b, pattern=pattern) if ctx.needs[0] else None,
            transposed_mm(h, a, pattern) if ctx.needs[1] else None,
        )
