"""functorch's names: those of `minigrad.func`, and modules as functions of their parameters.

Programs from before torch.func import them from a package of their own.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import minigrad
from minigrad._names import namespace
from minigrad.func import (
    functional_call,
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    linearize,
    stack_module_state,
    vjp,
    vmap,
)

__all__ = [
    "combine_state_for_ensemble",
    "functional_call",
    "grad",
    "grad_and_value",
    "hessian",
    "jacfwd",
    "jacrev",
    "jvp",
    "linearize",
    "make_functional",
    "make_functional_with_buffers",
    "stack_module_state",
    "vjp",
    "vmap",
]

__getattr__, __dir__ = namespace(__name__)


def make_functional_with_buffers(
    model: Any, disable_autograd_tracking: bool = False
) -> tuple[Callable, tuple, tuple]:
    """(f, parameters, buffers) of a copy of a module: f(parameters, buffers, *args, **kwargs) calls
    it with tensors in their place. disable_autograd_tracking: the copies require no gradient."""
    own = copy.deepcopy(model)
    parameters, buffers = dict(own.named_parameters()), dict(own.named_buffers())
    if disable_autograd_tracking:
        own.requires_grad_(False)

    def call(params: Sequence, state: Sequence, *args: Any, **kwargs: Any) -> Any:
        given = dict(zip(parameters, params, strict=True)), dict(zip(buffers, state, strict=True))
        return functional_call(own, given, args, kwargs)

    return call, tuple(parameters.values()), tuple(buffers.values())


def make_functional(model: Any, disable_autograd_tracking: bool = False) -> tuple[Callable, tuple]:
    """`make_functional_with_buffers` for a module without buffers: (f, parameters), and
    f(parameters, *args, **kwargs). RuntimeError for others."""
    call, parameters, buffers = make_functional_with_buffers(model, disable_autograd_tracking)
    if buffers:
        raise RuntimeError(
            "make_functional(model): `model` has buffers. Please use "
            "make_functional_with_buffers(model) instead."
        )
    return lambda params, *args, **kwargs: call(params, (), *args, **kwargs), parameters


def combine_state_for_ensemble(models: Sequence[Any]) -> tuple[Callable, tuple, tuple]:
    """(f, parameters, buffers) of modules of one architecture for `vmap`: the tensors of all are
    stacked along a new first dimension, without their graph."""
    if not models:
        raise RuntimeError("combine_state_for_ensemble: Expected at least one model, got 0.")
    if any(m.training for m in models) != all(m.training for m in models):
        raise RuntimeError(
            "combine_state_for_ensemble: Expected all models to have the same training/eval mode."
        )
    if len({type(m) for m in models}) > 1:
        raise RuntimeError(
            "combine_state_for_ensemble: Expected all models to be of the same class."
        )
    calls, parameters, buffers = zip(*map(make_functional_with_buffers, models), strict=True)

    def stacked(kind: tuple) -> tuple:
        return tuple(minigrad.stack(column).detach() for column in zip(*kind, strict=True))

    return calls[0], stacked(parameters), stacked(buffers)
