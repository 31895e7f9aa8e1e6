"""Operations made of others on small arrays, whose launches are remembered together."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from kernels import dispatch
from minigrad.autograd.engine import grad
from minigrad.autograd.mode import enable_grad, mode, no_grad, unusual
from minigrad.autograd.node import Op
from minigrad.ops.combine import of_its_own
from minigrad.tensor import Tensor, wrap

FEW = 1 << 16  # elements; of more, Python's share of the time is small


def composed(function: Callable[..., Tensor], *inputs: Tensor | None, **attrs: Any) -> Tensor:
    """function(*inputs, **attrs), as one operation where the tensors are small and on the CPU.

    What it does must depend on nothing but shapes, dtypes and attributes: it may check no numbers
    of the tensors, and compute on no arrays but by operations on tensors.
    """
    size = 0
    for t in inputs:
        if t is not None:
            if type(t._array) is not np.ndarray:
                return function(*inputs, **attrs)
            size += t._array.size
    if unusual or mode.recorder is not None or not 0 < size <= FEW:
        return function(*inputs, **attrs)
    return Composed.apply(*inputs, function=function, **attrs)


class Composed(Op):
    """A function of tensors. Its gradient computes the function again."""

    repeats = True

    @staticmethod
    def forward(*arrays: Any, function: Callable, **attrs: Any) -> Any:
        with no_grad():
            found = function(*[None if a is None else wrap(a) for a in arrays], **attrs)._array
        if any(a is not None and np.may_share_memory(found, a) for a in arrays):
            return dispatch.active.copy(found)  # of a view of an input
        return found

    @staticmethod
    def vjp(ctx: Any, g: Tensor, function: Callable, **attrs: Any) -> tuple:
        tensors, needs = ctx.tensors(), ctx.needs
        if mode.enabled:
            y = function(*tensors, **attrs)
            wanted = [t for t, need in zip(tensors, needs, strict=True) if need]
            found = iter(grad(y, wanted, g, create_graph=True))
        else:
            arrays = [None if t is None else t._array for t in tensors]
            slopes = _slopes(function, needs, **attrs)
            found = map(wrap, dispatch.together(slopes, g._array, *arrays))
        return tuple([next(found) if need else None for need in needs])


@lru_cache(4096)
def _slopes(function: Callable, needs: tuple, **attrs: Any) -> Callable:
    """The gradients of the inputs that need one, as remembered launches know them."""

    def slopes(g: Any, *arrays: Any) -> tuple:
        tensors: list[Any] = [None if a is None else wrap(a) for a in arrays]
        wanted = [t for t, need in zip(tensors, needs, strict=True) if need]
        with enable_grad():
            for t in wanted:
                t.requires_grad_()
            y = function(*tensors, **attrs)
        found: Any = grad(y, wanted, wrap(g))
        return tuple([t._array for t in found])

    return slopes


def permuted(x: Tensor, split: tuple, order: tuple, shape: tuple) -> Tensor:
    """A copy of x, of the shape `split`, with its dimensions in another order, as `shape`."""
    return of_its_own(x.reshape(split).permute(*order).reshape(shape), x)
