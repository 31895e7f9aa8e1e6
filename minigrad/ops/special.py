"""Special functions by SciPy, or CuPy's form of it on a GPU, with gradients.

Those that networks use often (erf, erfinv, lgamma, digamma, ...) are kernels, lines of the table of
`kernels.pointwise`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from kernels import dispatch
from kernels.pointwise import TRIGAMMA
from minigrad import dtypes
from minigrad.autograd.node import Op, refuse_complex
from minigrad.backends import array_module, scipy_module
from minigrad.ops.pointwise import POINTWISE, check_broadcast, check_floating
from minigrad.tensor import Tensor, export, functions

_ROOT = math.sqrt(2 * math.pi)


def routines(array: Any) -> Any:
    """SciPy's special functions for NumPy's arrays, CuPy's for its own."""
    return scipy_module(array, "special")


class Special(Op):
    """A function of one argument: `which` is SciPy's name."""

    saves_outputs = (0,)

    @staticmethod
    def forward(x: Any, which: str) -> Any:
        with np.errstate(all="ignore"):
            found = getattr(routines(x), which)(x)
        if which == "airy":  # Ai, its derivative, Bi and its derivative
            found = found[0]
        return array_module(x).asarray(found).astype(x.dtype, copy=False)

    @staticmethod
    def vjp(ctx: Any, g: Tensor, which: str) -> tuple:
        x, y = ctx.tensors()
        slope = _SLOPES.get(which)
        if slope is None:
            raise NotImplementedError(f"the derivative of special.{which} is not implemented")
        return (g * slope(x, y),)


def _of_i1(x: Tensor, y: Tensor) -> Tensor:
    small = _is_small(x)
    return functions.where(small, 0.5, call("i0", x) - y / functions.where(small, 1.0, x))


def _of_i1e(x: Tensor, y: Tensor) -> Tensor:
    small = _is_small(x)
    safe = functions.where(small, 1.0, x)
    return functions.where(small, 0.5, call("i0e", x) - y * (x.sign() + 1 / safe))


def _is_small(x: Tensor) -> Tensor:
    """Where y / x would round to the quotient of two numbers near zero."""
    return functions.abs(x) <= np.finfo(x._array.dtype).eps


_SLOPES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "erfcx": lambda x, y: 2 * x * y - 2 / math.sqrt(math.pi),
    "i0": lambda x, y: call("i1", x),
    "i0e": lambda x, y: call("i1e", x) - x.sign() * y,
    "i1": _of_i1,
    "i1e": _of_i1e,
    "ndtr": lambda x, y: (-x * x / 2).exp() / _ROOT,
    "log_ndtr": lambda x, y: (-x * x / 2 - y).exp() / _ROOT,
    "ndtri": lambda x, y: (y * y / 2).exp() * _ROOT,
    "entr": lambda x, y: -x.log() - 1,
}


def call(which: str, x: Tensor) -> Tensor:
    """A function of `Special`; integers become the default dtype."""
    if x._array.dtype.kind in "biu":
        x = x.to(dtypes.get_default_dtype())
    elif x._array.dtype.kind == "c":
        raise dtypes.refused(which, x._array.dtype)
    return Special.apply(x, which=which)


class Polygamma(Op):
    """The n-th derivative of digamma."""

    @staticmethod
    def forward(x: Any, n: int) -> Any:
        if n == 1:
            return dispatch.active.pointwise(TRIGAMMA, x)
        with np.errstate(all="ignore"):
            factor = (-1) ** (n + 1) * float(routines(x).gamma(n + 1.0))
            found = factor * routines(x).zeta(n + 1, x)
        return array_module(x).asarray(found).astype(x.dtype, copy=False)

    @staticmethod
    def vjp(ctx: Any, g: Tensor, n: int) -> tuple:
        (x,) = ctx.tensors()
        return (g * Polygamma.apply(x, n=n + 1),)


class Pair(Op):
    """A function of two arguments of one dtype: `which` is SciPy's name."""

    @staticmethod
    def forward(a: Any, x: Any, which: str) -> Any:
        with np.errstate(all="ignore"):
            found = getattr(routines(x), which)(a, x)
        return array_module(x).asarray(found).astype(x.dtype, copy=False)

    @staticmethod
    def vjp(ctx: Any, g: Tensor, which: str) -> tuple:
        a, x = ctx.tensors()
        if ctx.needs[0]:
            raise NotImplementedError(
                f"the derivative of special.{which} in its first argument is not implemented"
            )
        if which == "zeta":
            return None, g * (-a) * Pair.apply(a + 1, x, which="zeta")
        sign = 1 if which == "gammainc" else -1
        return None, g * sign * (-x + (a - 1) * x.log() - a.lgamma()).exp()


def pair(which: str, a: Any, x: Any) -> Tensor:
    """A function of `Pair`, of tensors or numbers, in their common floating dtype."""
    _some_tensor(which, a, x)
    target = dtypes.from_numpy_dtype(POINTWISE["div"].compute_dtype((a, x)))
    like = a if isinstance(a, Tensor) else x
    a, x = (
        v.to(target) if isinstance(v, Tensor) else like.new_tensor(v, dtype=target) for v in (a, x)
    )
    check_broadcast([a._array, x._array])
    return Pair.apply(a, x, which=which)


def _some_tensor(name: str, *values: Any) -> None:
    if not any(isinstance(v, Tensor) for v in values):
        raise TypeError(f"{name}(): expected a tensor among the arguments, got {values}")


def _floating_tensors(name: str, *values: Any) -> None:
    for value in values:
        if not isinstance(value, Tensor):
            raise TypeError(f"{name}(): argument must be Tensor, not {type(value).__name__}")
    if not any(value.is_floating_point() for value in values):
        check_floating(name, *values)


@export()
def i0(input: Tensor) -> Tensor:
    """The modified Bessel function of the first kind, of order 0."""
    return call("i0", input)


@export(method=False)
def polygamma(n: int, input: Tensor) -> Tensor:
    """The n-th derivative of digamma."""
    if n < 0:
        raise RuntimeError("polygamma(n, x) does not support negative n.")
    if input._array.dtype.kind in "biu":
        input = input.to(dtypes.get_default_dtype())
    check_floating("polygamma", input)
    return input.digamma() if n == 0 else Polygamma.apply(input, n=n)


@export("polygamma", function=False)
def _polygamma(self: Tensor, n: int) -> Tensor:
    """The n-th derivative of digamma."""
    return polygamma(n, self)


@export()
def igamma(input: Tensor, other: Tensor) -> Tensor:
    """The regularised lower incomplete gamma function; a gradient of `other` only."""
    _floating_tensors("igamma_cpu", input, other)
    return pair("gammainc", input, other)


@export()
def igammac(input: Tensor, other: Tensor) -> Tensor:
    """The regularised upper incomplete gamma function; a gradient of `other` only."""
    _floating_tensors("igammac_cpu", input, other)
    return pair("gammaincc", input, other)


@export()
def mvlgamma(input: Tensor, p: int) -> Tensor:
    """The logarithm of the multivariate gamma function of dimension p."""
    if p < 1:
        raise RuntimeError("p has to be greater than or equal to 1")
    if input._array.dtype.kind == "b":
        raise RuntimeError("The input tensor may not be a boolean tensor.")
    if input._array.dtype.kind in "biu":
        input = input.to(dtypes.get_default_dtype())
    steps = functions.arange(p, dtype=input.dtype, device=input.device) * 0.5
    total = (input.unsqueeze(-1) - steps).lgamma().sum(-1)
    return total + p * (p - 1) * math.log(math.pi) / 4


def xlog1py(input: Any, other: Any) -> Tensor:
    """input * log1p(other), zero where input is."""
    _some_tensor("xlog1py", input, other)
    refuse_complex("xlog1py", (input, other))
    like = input if isinstance(input, Tensor) else other
    other = other if isinstance(other, Tensor) else like.new_tensor(other, dtype=like.dtype)
    # zero times the logarithm of 0, of a negative number or of infinity is 0, by definition
    undefined = (other <= -1) | other.isinf()
    zero = (input * functions.ones_like(other) == 0) & undefined
    return input * functions.where(zero, 0.0, other).log1p()
