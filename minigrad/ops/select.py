"""Slices at an index along a dimension."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from kernels import dispatch
from kernels.support.bounds import all_below
from minigrad._foreign import no_tensor
from minigrad.autograd.mode import mode
from minigrad.autograd.node import Op
from minigrad.backends import array_module, on_gpu
from minigrad.ops.getitem import getitem
from minigrad.ops.index import (
    AddRows,
    Embedding,
    Gather,
    Pick,
    ScatterAdd,
    as_vectors,
    check_index_dtype,
    check_positions,
    zeros,
)
from minigrad.ops.views import expand_array
from minigrad.tensor import Tensor, export, normalize_dim, wrap

_LONG = 32  # elements of a slice that are copied as a whole
_MANY = 4096  # from here on each position is not read for each element


@functools.cache
def _slices_along(dim: int) -> Callable:
    """The slices at positions along a dimension, as remembered launches know them."""

    def slices(x: Any, positions: Any) -> Any:
        rows = _as_rows(x.shape, dim)
        if rows is None:
            return dispatch.active.gather(x, dim, _for_each(x.shape, positions, dim))
        found = dispatch.active.embedding(x.reshape(rows), positions)
        return found.reshape(*x.shape[:dim], positions.size, *x.shape[dim + 1 :])

    return slices


def _as_rows(shape: tuple, dim: int) -> tuple | None:
    """The shape as a matrix whose rows are the slices along `dim`; None where they are none."""
    inner = math.prod(shape[dim + 1 :])
    return (shape[dim], inner) if inner > 1 and math.prod(shape[:dim]) == 1 else None


def _for_each(shape: tuple, positions: Any, dim: int) -> Any:
    """The positions of slices along a dimension, as an index of `gather`."""
    column = positions.reshape([-1, *[1] * (len(shape) - dim - 1)])
    return expand_array(column, (*shape[:dim], positions.size, *shape[dim + 1 :]))


class SelectSlices(Op):
    """x.index_select(dim, index) at an index that has been checked, on the CPU."""

    saves = (1,)
    grad_name = "IndexSelectBackward0"

    @staticmethod
    def again(x: Any, index: Any, dim: int) -> Any:
        return dispatch.relaunch(dispatch.tracer, dispatch.active, _slices_along(dim), x, index)

    @staticmethod
    def forward(x: Any, index: Any, dim: int) -> Any:
        return dispatch.together(_slices_along(dim), x, index)

    @staticmethod
    def vjp(ctx: Any, g: Tensor, dim: int) -> tuple:
        (index,), shape = ctx.tensors(), ctx.shapes[0]
        rows = _as_rows(shape, dim)
        if rows is not None:
            g = g.reshape(-1, rows[1])
            return (AddRows.apply(g, index, rows=rows[0]).reshape(shape), None)
        each = wrap(_for_each(shape, index._array, dim))
        return (ScatterAdd.apply(wrap(zeros(shape, g._array)), each, g, dim=dim), None)


@export()
def index_select(input: Tensor, dim: int, index: Tensor) -> Tensor:
    """The slices of `input` at `index` (one-dimensional) along `dim`."""
    if not isinstance(index, Tensor):
        raise no_tensor("index_select", "index", index)
    if index._array.ndim > 1:
        raise IndexError("index_select(): Index is supposed to be a vector")
    check_index_dtype("index_select", index)
    if not input._array.ndim:
        if index._array.size != 1:
            raise RuntimeError(
                "index_select(): Index to scalar can have only 1 value, got "
                f"{index._array.size} value(s)"
            )
        return index_select(input.reshape(1), dim, index).reshape(())
    place, shape = normalize_dim(dim, input._array.ndim), input._array.shape
    (index,), n = as_vectors(index), shape[place]
    if _is_plain(input, index) and all_below(index._array, n):
        size = input._array.size // n * index._array.size
        if place == len(shape) - 1 or size < _MANY or _as_rows(shape, place):
            return SelectSlices.apply(input, index, dim=place)
    if input._array.dtype.kind == "c":
        check_positions("index_select", index, n)
        return getitem(input, (slice(None),) * place + (index,))
    if not on_gpu(index._array):  # there the launcher checks
        check_positions("index_select", index, n)
    if n and not input._array.size:
        return input.narrow(place, 0, 1).expand(
            *shape[:place], index._array.size, *shape[place + 1 :]
        )
    found = _selected(input, place, index)
    found = _shaped(found, (*shape[:place], index._array.size, *shape[place + 1 :]))
    found._view = None  # of a copy that nothing else knows
    return found


def _is_plain(x: Tensor, index: Tensor) -> bool:
    """Whether a selection is one launch on the CPU, of which nothing is told to anybody."""
    a = x._array
    if mode.recorder is not None or mode.observer is not None or a.dtype.kind == "c":
        return False
    return type(a) is type(index._array) is np.ndarray and a.size > 0 and a.flags.c_contiguous


def _selected(x: Tensor, dim: int, index: Tensor) -> Tensor:
    """The slices at an index along `dim`, in some shape: as rows where they are long, else the same
    elements of each row."""
    shape, positions = x._array.shape, index._array
    outer, n, inner = math.prod(shape[:dim]), shape[dim], math.prod(shape[dim + 1 :])
    xp, there = array_module(positions), on_gpu(positions)
    if outer > 1 < inner and outer * positions.size * inner < _MANY and not there:
        return Pick.apply(x, _alike(index, _for_each(shape, positions, dim)), dim=dim)
    gather = Gather if there else Pick  # there the launcher checks
    if inner == outer == 1 and not there:
        return gather.apply(_shaped(x, (n,)), index, dim=0)
    if inner < _LONG and outer > 1:
        if inner > 1:
            positions = positions[:, None] * inner + xp.arange(inner)
        columns = expand_array(positions.reshape(1, -1), (outer, positions.size))
        columns = _alike(index, columns) if inner == 1 else wrap(columns)
        return gather.apply(_shaped(x, (outer, n * inner)), columns, dim=1)
    if outer > 1:
        index = wrap(xp.arange(outer)[:, None] * n + positions)
    return Embedding.apply(_shaped(x, (outer * n, inner)), index, padding_idx=None)


def _alike(index: Tensor, array: Any) -> Tensor:
    """An array in the memory of the program's own index, which may be changed in place."""
    found = wrap(array)
    found._counter = index._counter
    return found


def _shaped(x: Tensor, shape: tuple) -> Tensor:
    return x if x._array.shape == shape else x.reshape(shape)
