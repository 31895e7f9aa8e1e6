"""Random operations that have a gradient: dropout."""

from __future__ import annotations

from typing import Any

from kernels import dispatch
from minigrad.autograd.node import Op
from minigrad.random import current_generator
from minigrad.tensor import Tensor, export


class Dropout(Op):
    """Zero with probability p, scale the rest by 1 / (1 - p); the mask is never stored.

    The gradient is the same call on g: the same seed and offset give the same mask.
    """

    saves = ()

    @staticmethod
    def forward(x: Any, p: float, seed: int, offset: int) -> Any:
        return dispatch.active.dropout(x, p, seed, offset)

    @staticmethod
    def vjp(ctx: Any, g: Tensor, **attrs: Any) -> tuple:
        return (Dropout.apply(g, **attrs),)


@export(method=False)
def dropout(input: Tensor, p: float = 0.5, train: bool = True) -> Tensor:
    """Zero elements with probability p and scale the others by 1 / (1 - p) while training."""
    if not 0 <= p <= 1:
        raise RuntimeError(f"dropout probability has to be between 0 and 1, but got {p}")
    if not train or p == 0:
        return input
    if not input.is_floating_point():
        raise RuntimeError(f"dropout: expected a floating input, got {input.dtype}")
    if p == 1:
        return input * 0
    seed, offset = current_generator().next_call()
    return Dropout.apply(input, p=float(p), seed=seed, offset=offset)
