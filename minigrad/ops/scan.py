"""Running results along a dimension: sums, products, extrema, and the logarithm of sums."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kernels import dispatch
from minigrad import dtypes
from minigrad.autograd.node import Op
from minigrad.backends import array_module
from minigrad.ops.pointwise import POINTWISE, check_floating
from minigrad.ops.reduce import one_dim, prod, sum_dtype, values_and_indices
from minigrad.tensor import Tensor, export, functions, normalize_dim, wrap

_CumMax, _CumMin = map(values_and_indices, ("cummax", "cummin"))


class CumSum(Op):
    """Running sum along a dimension."""

    saves = ()

    @staticmethod
    def forward(x: Any, dim: int) -> Any:
        return dispatch.active.cumsum(x, dim)

    @staticmethod
    def vjp(ctx: Any, g: Tensor, dim: int) -> tuple:
        return (CumSum.apply(g.flip(dim), dim=dim).flip(dim),)


class LogCumSumExp(Op):
    """log(running sum of exp(x)) along a dimension."""

    saves = (0,)
    saves_outputs = (0,)
    grad_name = "LogcumsumexpBackward0"

    @staticmethod
    def forward(x: Any, dim: int) -> Any:
        return _running(x, dim, array_module(x).logaddexp)

    @staticmethod
    def vjp(ctx: Any, g: Tensor, dim: int) -> tuple:
        """exp(x) times the sum of g * exp(-y) from here on, by logarithms, which do not overflow:
        the positive elements of g less the negative ones."""
        x, y = ctx.tensors()
        lowest = dtypes.finfo(x.dtype).min / 4

        def part(g: Tensor) -> Tensor:
            absent = g <= 0
            logs = POINTWISE["log"](g.masked_fill(absent, 1)) - y
            sums = LogCumSumExp.apply(logs.masked_fill(absent, lowest).flip(dim), dim=dim)
            return POINTWISE["exp"](sums.flip(dim) + x)

        return (part(g) - part(-g),)


def _running(x: Any, dim: int, combine: Callable) -> Any:
    """x with every element combined with all before it: `stride` doubles (Hillis & Steele 1986)."""
    out, stride = x.copy(), 1
    moved = array_module(x).moveaxis(out, dim, 0)
    with np.errstate(all="ignore"):
        while stride < len(moved):
            moved[stride:] = combine(moved[stride:], moved[:-stride])
            stride *= 2
    return out


def _summand(name: str, x: Tensor, dtype: Any) -> Tensor:
    """x in the dtype of its running sums or products."""
    target = sum_dtype(x, dtype)
    if target.kind == "b":
        raise dtypes.refused(name, target)
    return x if target is x._array.dtype else x.to(dtypes.from_numpy_dtype(target))


@export()
def cumsum(input: Tensor, dim: int | None = None, *, dtype: Any = None, axis: Any = None) -> Tensor:
    """Running sum along `dim`; integers give int64."""
    place = normalize_dim(one_dim(dim, axis), input._array.ndim)
    x = _summand("cumsum_out_cpu", input, dtype)
    if x.is_complex() and x._array.ndim:
        return functions.view_as_complex(cumsum(functions.view_as_real(x), place))
    return CumSum.apply(x, dim=place) if x._array.ndim else x.clone()


@export()
def cumprod(input: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """Running product along `dim`; integers give int64."""
    x = _summand("cumprod_out_cpu", input, dtype)
    place = normalize_dim(dim, x._array.ndim)
    if not x._array.ndim:
        return x.clone()
    n = x._array.shape[place]
    last = x.movedim(place, -1)
    lower = wrap(array_module(x._array).tri(n, dtype=bool))
    rows = last.unsqueeze(-2).expand(*last._array.shape[:-1], n, n)
    return prod(rows.masked_fill(~lower, 1), -1, dtype=x.dtype).movedim(-1, place)


@export()
def logcumsumexp(input: Tensor, dim: int) -> Tensor:
    """log(cumsum(exp(input))) along `dim`, computed without overflow."""
    x = input
    check_floating("logcumsumexp_out_cpu", x)
    place = normalize_dim(dim, x._array.ndim)
    return LogCumSumExp.apply(x, dim=place) if x._array.ndim else x.clone()


def _running_extremum(name: str, pair: type, x: Tensor, dim: int) -> Any:
    """(values, positions) of the largest (or smallest) element so far; of equal ones the last. NaN
    counts as both."""
    place = normalize_dim(dim, x._array.ndim)
    if not x._array.ndim:
        return pair(x.clone(), wrap(array_module(x._array).zeros((), np.int64)))
    xp, array = array_module(x._array), x._array
    best = _running(array, place, getattr(xp, f"{name}imum"))
    reached = (array == best) | (array != array)
    shape = [-1 if d == place else 1 for d in range(array.ndim)]
    places = xp.where(reached, xp.arange(array.shape[place]).reshape(shape), 0)
    indices = wrap(_running(places.astype(np.int64), place, xp.maximum))
    return pair(x.gather(place, indices), indices)


@export()
def cummax(input: Tensor, dim: int) -> Any:
    """(values, indices) of the running maximum along `dim`."""
    return _running_extremum("max", _CumMax, input, dim)


@export()
def cummin(input: Tensor, dim: int) -> Any:
    """(values, indices) of the running minimum along `dim`."""
    return _running_extremum("min", _CumMin, input, dim)
