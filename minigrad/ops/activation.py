"""Activation functions with the names and defaults of `torch.nn.functional`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from minigrad import dtypes
from minigrad.autograd.mode import autocasts, no_grad
from minigrad.autograd.node import titled
from minigrad.ops.combine import broadcast_tensors
from minigrad.ops.composed import composed
from minigrad.ops.elementwise import clamp
from minigrad.ops.pointwise import POINTWISE, check_floating, is_narrow, rounded_once
from minigrad.tensor import Tensor, export, functions


def _plain(name: str, doc: str) -> Callable[[Tensor], Tensor]:
    op = POINTWISE[name]

    def function(input: Tensor) -> Tensor:
        return op(input)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


relu = _plain("relu", "x where positive, else 0.")
sigmoid = _plain("sigmoid", "1 / (1 + exp(-x)).")
tanh = _plain("tanh", "Hyperbolic tangent.")
logsigmoid = _plain("logsigmoid", "log(sigmoid(x)), computed without overflow.")
softsign = _plain("softsign", "x / (1 + |x|).")


def leaky_relu(input: Tensor, negative_slope: float = 0.01) -> Tensor:
    """x where positive, else negative_slope * x."""
    return POINTWISE["leaky_relu"](input, params=(negative_slope,))


def elu(input: Tensor, alpha: float = 1.0) -> Tensor:
    """x where positive, else alpha * (exp(x) - 1)."""
    return POINTWISE["elu"](input, params=(alpha, 1.0))


@export(method=False)
def selu(input: Tensor) -> Tensor:
    """Self-normalising elu (Klambauer et al., 2017)."""
    alpha, scale = 1.6732632423543772, 1.0507009873554805
    return POINTWISE["elu"](input, params=(alpha * scale, scale))


@export(method=False)
def celu(input: Tensor, alpha: float = 1.0) -> Tensor:
    """x where positive, else alpha * (exp(x / alpha) - 1)."""
    if alpha == 0:
        raise RuntimeError("ZeroDivisionError: alpha cannot be 0 for CELU")
    return POINTWISE["celu"](input, params=(alpha,))


def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    """x * Phi(x) (Hendrycks and Gimpel, 2016); approximate="tanh" for their approximation."""
    if approximate not in ("none", "tanh"):
        raise RuntimeError("approximate argument must be either none or tanh.")
    return POINTWISE["gelu" if approximate == "none" else "gelu_tanh"](input)


def mish(input: Tensor) -> Tensor:
    """x * tanh(softplus(x))."""
    check_floating("mish_cpu", input)
    if is_narrow(input._array):
        return rounded_once(mish, input)
    return titled(input * tanh(softplus(input)), "Mish")


def softplus(input: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """log(1 + exp(beta * x)) / beta; x itself where beta * x > threshold."""
    return POINTWISE["softplus"](input, params=(beta, threshold))


def hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """x limited to [min_val, max_val]."""
    if input._array.dtype.kind == "b":
        raise RuntimeError("Bool inputs not supported for hardtanh")
    if input._array.dtype.kind == "u" and int(min_val) < 0:
        raise RuntimeError("cannot do hardtanh on an unsigned type with negative limits")
    limits = tuple([dtypes.fitting(limit, input._array.dtype) for limit in (min_val, max_val)])
    return POINTWISE["hardtanh"](input, params=limits)


def relu6(input: Tensor) -> Tensor:
    """x limited to [0, 6]."""
    return hardtanh(input, 0.0, 6.0)


@export(method=False)
def threshold(input: Tensor, threshold: float, value: float) -> Tensor:
    """x where above the threshold, else value."""
    limits = tuple([dtypes.fitting(limit, input._array.dtype) for limit in (threshold, value)])
    return POINTWISE["threshold"](input, params=limits)


def tanhshrink(input: Tensor) -> Tensor:
    """x - tanh(x)."""
    return input - tanh(input)


def softshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """x - lambd for x > lambd, x + lambd for x < -lambd, else 0."""
    if lambd < 0:
        raise RuntimeError(f"lambda must be greater or equal to 0, but found to be {lambd}.")
    check_floating("softshrink_cpu", input)
    return POINTWISE["softshrink"](input, params=(_bound(input, lambd),))


@export()
def hardshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """x, or zero where |x| <= lambd."""
    check_floating("hardshrink_cpu", input)
    return POINTWISE["hardshrink"](input, params=(_bound(input, lambd),))


def _bound(x: Tensor, number: float) -> float:
    """A number as x's dtype has it: elements that were made from it are at that bound."""
    return float(np.asarray(number, x._array.dtype)) if is_narrow(x._array) else number


@export()
@autocasts
def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """x where positive, else weight * x; weight has one element or one per channel."""
    count = weight._array.size
    if weight._array.dtype != input._array.dtype:
        own, other = (x.dtype.legacy_name.removesuffix("Tensor") for x in (input, weight))
        raise RuntimeError(f"prelu: Type promoting not supported. Got {own} and {other}")
    if weight._array.ndim > 1:
        raise RuntimeError(
            "prelu: Expected `weight` to be a scalar or 1D tensor, but got: ndim = "
            f"{weight._array.ndim}"
        )
    if count == 1:
        weight = weight.reshape(())
    else:
        channels = input._array.shape[1] if input._array.ndim > 1 else 1
        if count != channels:
            raise RuntimeError(
                f"Mismatch of parameter numbers and input channel size. Found parameter numbers = "
                f"{count} and channel size = {channels}."
            )
        weight = weight.reshape((1, -1) + (1,) * (input._array.ndim - 2))
    return POINTWISE["prelu"](input, weight)


def glu(input: Tensor, dim: int = -1) -> Tensor:
    """First half * sigmoid(second half) along `dim`."""
    if not input._array.ndim:
        raise RuntimeError("glu does not support 0-dimensional tensors")
    check_floating("glu_cpu", input)
    if input.size(dim) % 2:
        raise RuntimeError(f"glu: expected an even size in dimension {dim}, got {input.size(dim)}")
    return POINTWISE["glu"](*input.chunk(2, dim))


def normalize(input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Tensor:
    """x / max(norm(x), eps) along `dim`."""
    return input / clamp(input.norm(p, dim, keepdim=True), eps)


@export(method=False)
def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """The cosine of the angle between vectors along `dim`."""
    a, b = x1._array, x2._array
    if a.dtype != b.dtype:
        dtype = functions.result_type(x1, x2)
        x1, x2 = x1.to(dtype), x2.to(dtype)
    if not x1.is_floating_point():
        kind = x1.dtype.legacy_name.removesuffix("Tensor")
        raise RuntimeError(
            f"expected common dtype to be floating point, yet common dtype is {kind}"
        )
    if a.ndim != b.ndim or not -a.ndim <= dim < a.ndim or a.shape[dim] != b.shape[dim]:
        x1, x2 = broadcast_tensors(x1, x2)
    return titled(composed(_cosines, x1, x2, dim=dim, eps=eps), "SumBackward1")


def _cosines(x1: Tensor, x2: Tensor, dim: int, eps: float) -> Tensor:
    return (_unit(x1, dim, eps) * _unit(x2, dim, eps)).sum(dim)


def _unit(x: Tensor, dim: int, eps: float) -> Tensor:
    """x / max(norm(x), eps), with the gradient of x / norm(x) as in torch."""
    norm = x.norm(2, dim, keepdim=True).clone()
    with no_grad():
        norm.clamp_(min=eps)
    return x / norm
