"""Running results along a dimension: sums, products, extrema, and the logarithm of sums."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels import dispatch
from kernels.launchers.common import on_gpu
from minigrad import dtypes
from minigrad.autograd.mode import mode, no_grad
from minigrad.autograd.node import Op
from minigrad.backends import array_module, every_element
from minigrad.ops.pointwise import POINTWISE, check_floating
from minigrad.ops.reduce import one_dim, prod, sum_dtype, values_and_indices
from minigrad.tensor import Tensor, export, functions, normalize_dim, wrap

_MaxPair, _MinPair = map(values_and_indices, ("cummax", "cummin"))


class CumSum(Op):
    """Running sum along a dimension."""

    grad_name = "CumsumBackward0"
    saves = ()

    @staticmethod
    def forward(x: Any, dim: int) -> Any:
        return dispatch.active.cumsum(x, dim)

    @staticmethod
    def vjp(ctx: Any, g: Tensor, dim: int) -> tuple:
        return (CumSum.apply(g.flip(dim), dim=dim).flip(dim),)


class CumProd(Op):
    """Running product along a dimension."""

    saves = (0,)
    saves_outputs = (0,)
    grad_name = "CumprodBackward0"

    @staticmethod
    def forward(x: Any, dim: int) -> Any:
        if x.dtype.kind != "c":
            return dispatch.active.cumprod(x, dim)
        with np.errstate(all="ignore"):
            return array_module(x).cumprod(x, dim)

    @staticmethod
    def vjp(ctx: Any, g: Tensor, dim: int) -> tuple:
        """The sum of g * y from here on, over x. At the first zero of a line, that of the products
        without it; behind it, nothing."""
        x, y = ctx.tensors()
        zero = x.detach() == 0
        if not every_element(zero._array).any():
            return (_sum_from_here(g * y.conj(), dim) / x.conj(),)
        if mode.enabled:  # the gradient will be differentiated, by what is behind a zero too
            return (_without_each(x, g, dim),)
        count = zero.to(dtypes.int64).cumsum(dim)
        filled = x.masked_fill(zero & (count == 1), 1)
        before = _sum_from_here(g * y.conj(), dim) / filled.conj()
        others = CumProd.apply(filled, dim=dim).masked_fill(count == 0, 0)
        at = _sum_from_here(g * others.conj(), dim).masked_fill(~(zero & (count == 1)), 0)
        return (before.masked_fill(count > 0, 0) + at,)


def _sum_from_here(x: Tensor, dim: int) -> Tensor:
    return cumsum(x.flip(dim), dim).flip(dim)


def _without_each(x: Tensor, g: Tensor, dim: int) -> Tensor:
    """The gradient of the running products, by one of them per element, which leaves it out."""
    n, parts = x._array.shape[dim], []
    for k in range(n):
        first = prod(x.narrow(dim, 0, k), dim, True)
        rest = functions.cat([first, x.narrow(dim, k + 1, n - k - 1)], dim)
        products = CumProd.apply(rest, dim=dim)
        parts.append((g.narrow(dim, k, n - k) * products.conj()).sum(dim, True))
    return functions.cat(parts, dim)


class _CumExtremum(Op):
    """Running extremum along a dimension, and its places."""

    saves = ()
    saves_outputs = (1,)

    @staticmethod
    def vjp(ctx: Any, g: Tensor, dim: int) -> tuple:
        (places,) = ctx.tensors()
        return (functions.zeros_like(g).scatter_add(dim, places, g),)


class CumMax(_CumExtremum):
    grad_name = "CummaxBackward0"

    @staticmethod
    def forward(x: Any, dim: int) -> Any:
        return dispatch.active.cummax(x, dim)


class CumMin(_CumExtremum):
    grad_name = "CumminBackward0"

    @staticmethod
    def forward(x: Any, dim: int) -> Any:
        return dispatch.active.cummin(x, dim)


class LogCumSumExp(Op):
    """log(running sum of exp(x)) along a dimension."""

    saves = (0,)
    saves_outputs = (0,)
    grad_name = "LogcumsumexpBackward0"

    @staticmethod
    def forward(x: Any, dim: int) -> Any:
        if on_gpu(x):
            return dispatch.active.logcumsumexp(x, dim)
        with np.errstate(all="ignore"):
            return np.logaddexp.accumulate(x, dim)

    @staticmethod
    def vjp(ctx: Any, g: Tensor, dim: int) -> tuple:
        return (_WeightedFromHere.apply(g, *ctx.tensors(), dim=dim),)


class _WeightedFromHere(Op):
    """exp(x) times the sum of g * exp(-y) from here on, along a dimension: by logarithms, which do
    not overflow, the positive elements of g less the negative ones. An operation of its own, since
    that is linear in g, but the derivative of the logarithm of a 0 is not there."""

    saves = (0, 1, 2)
    saves_outputs = (0,)

    @staticmethod
    def forward(g: Any, x: Any, y: Any, dim: int) -> Any:
        with no_grad():
            grad, logs = wrap(g), wrap(y)
            lowest = dtypes.finfo(logs.dtype).min / 4

            def part(grad: Tensor) -> Tensor:
                absent = grad <= 0
                here = (POINTWISE["log"](grad.masked_fill(absent, 1)) - logs).flip(dim)
                sums = LogCumSumExp.apply(here.masked_fill(absent.flip(dim), lowest), dim=dim)
                return POINTWISE["exp"](sums.flip(dim) + wrap(x))

            return (part(grad) - part(-grad))._array

    @staticmethod
    def vjp(ctx: Any, v: Tensor, dim: int) -> tuple:
        """Of g the same sum up to here: along the flipped dimension with -y and -x for x and y."""
        g, x, y, out = ctx.tensors()
        turned = [t.flip(dim) for t in (v, -y, -x)]
        up_to_here = _WeightedFromHere.apply(*turned, dim=dim).flip(dim)
        return up_to_here, v * out, -g * up_to_here


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
    return CumProd.apply(x, dim=place) if x._array.ndim else x.clone()


def _complex_logcumsumexp(x: Tensor, dim: int) -> Tensor:
    """Each element with all before it, in rounds, which double how many those are."""
    n, reach = x._array.shape[dim], 1
    while reach < n:
        earlier, later = x.narrow(dim, 0, n - reach), x.narrow(dim, reach, n - reach)
        added = POINTWISE["logaddexp"](later, earlier)
        x = functions.cat([x.narrow(dim, 0, reach), added], dim)
        reach *= 2
    return x


@export()
def logcumsumexp(input: Tensor, dim: int) -> Tensor:
    """log(cumsum(exp(input))) along `dim`, computed without overflow."""
    x = input
    place = normalize_dim(dim, x._array.ndim)
    if not x.is_complex():
        check_floating("logcumsumexp_out_cpu", x)
    if not x._array.ndim:
        return x.clone()
    return (_complex_logcumsumexp if x.is_complex() else LogCumSumExp.apply)(x, dim=place)


def _running_extremum(op: type[_CumExtremum], pair: type, x: Tensor, dim: int) -> Any:
    """(values, positions) of the largest (or smallest) element so far; of equal ones the last. NaN
    counts as both."""
    place = normalize_dim(dim, x._array.ndim)
    dtype = x._array.dtype
    if dtype.kind == "c" or dtype.name in ("uint16", "uint32", "uint64"):
        raise dtypes.refused(f"{op.name.lower()}_cpu", dtype)
    if not x._array.ndim:
        return pair(x.clone(), wrap(array_module(x._array).zeros((), np.int64)))
    return pair(*op.apply(x, dim=place))


@export()
def cummax(input: Tensor, dim: int) -> Any:
    """(values, indices) of the running maximum along `dim`."""
    return _running_extremum(CumMax, _MaxPair, input, dim)


@export()
def cummin(input: Tensor, dim: int) -> Any:
    """(values, indices) of the running minimum along `dim`."""
    return _running_extremum(CumMin, _MinPair, input, dim)
