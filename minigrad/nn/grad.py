"""Gradients of convolutions as functions: `conv2d_input`, `conv2d_weight` and those of 1 and 3
dimensions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import minigrad
from minigrad._names import namespace
from minigrad.nn import functional as F
from minigrad.tensor import Tensor

__all__ = [f"conv{d}d_{of}" for d in (1, 2, 3) for of in ("input", "weight")]


def _of_input(name: str, convolution: Callable) -> Callable:
    def gradient(
        input_size: Sequence[int],
        weight: Tensor,
        grad_output: Tensor,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Tensor:
        how = stride, padding, dilation, groups
        zeros = weight.new_zeros(tuple(input_size))
        return _gradient(zeros, grad_output, lambda x: convolution(x, weight, None, *how))

    gradient.__name__ = gradient.__qualname__ = f"{name}_input"
    gradient.__doc__ = f"The gradient of the input of `{name}`, of shape `input_size`."
    return gradient


def _of_weight(name: str, convolution: Callable) -> Callable:
    def gradient(
        input: Tensor,
        weight_size: Sequence[int],
        grad_output: Tensor,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Tensor:
        how = stride, padding, dilation, groups
        zeros = input.new_zeros(tuple(weight_size))
        return _gradient(zeros, grad_output, lambda w: convolution(input, w, None, *how))

    gradient.__name__ = gradient.__qualname__ = f"{name}_weight"
    gradient.__doc__ = f"The gradient of the weight of `{name}`, of shape `weight_size`."
    return gradient


def _gradient(of: Tensor, grad_output: Tensor, compute: Callable) -> Any:
    """The gradient of `of`, recorded where the other operands require one."""
    recorded = minigrad.is_grad_enabled()
    with minigrad.enable_grad():
        result = compute(of.requires_grad_())
        (found,) = minigrad.autograd.grad(result, of, grad_output, create_graph=recorded)
    return found


for _d in (1, 2, 3):
    _convolution = getattr(F, f"conv{_d}d")
    globals()[f"conv{_d}d_input"] = _of_input(f"conv{_d}d", _convolution)
    globals()[f"conv{_d}d_weight"] = _of_weight(f"conv{_d}d", _convolution)

__getattr__, __dir__ = namespace(__name__)
