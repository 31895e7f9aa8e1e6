"""Activation recomputation (Chen et al. 2016): memory for time."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import minigrad
from minigrad._names import namespace
from minigrad.autograd import Function
from minigrad.tensor import Tensor

__all__ = ["checkpoint", "checkpoint_sequential", "get_device_states", "set_device_states"]


def get_device_states(*args: Any) -> tuple[list[int], list[Tensor]]:
    """The GPUs on which the arguments are, and the states of their random generators: none, because
    minigrad has one generator for all devices: `get_rng_state`."""
    return [], []


def set_device_states(devices: Any, states: Any, *, device_type: str | None = None) -> None:
    """Restores what `get_device_states` gave."""


def _detached(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().requires_grad_(value.requires_grad)
    return value


class _Checkpoint(Function):
    """Runs a function without recording it, and again, recorded, in the backward pass."""

    @staticmethod
    def forward(ctx: Any, function: Callable, state: Any, *args: Any) -> Any:
        ctx.function, ctx.state = function, state
        ctx.places = [i for i, x in enumerate(args) if isinstance(x, Tensor)]
        ctx.others = [None if isinstance(x, Tensor) else x for x in args]
        ctx.save_for_backward(*[args[i] for i in ctx.places])
        with minigrad.no_grad():
            return function(*args)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        args = list(ctx.others)
        for i, tensor in zip(ctx.places, ctx.saved_tensors):
            args[i] = _detached(tensor)
        now = minigrad.get_rng_state()
        if ctx.state is not None:
            minigrad.set_rng_state(ctx.state)
        try:
            with minigrad.enable_grad():
                outputs = ctx.function(*args)
        finally:
            minigrad.set_rng_state(now)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        pairs = [
            (o, g)
            for o, g in zip(outputs, grads)
            if isinstance(o, Tensor) and o.requires_grad and g is not None
        ]
        if not pairs:
            raise RuntimeError(
                "none of output has requires_grad=True, this checkpoint() is not necessary"
            )
        minigrad.autograd.backward([o for o, _ in pairs], [g for _, g in pairs])
        own = [x.grad if isinstance(x, Tensor) else None for x in args]
        return None, None, *own


def checkpoint(
    function: Callable,
    *args: Any,
    use_reentrant: bool | None = None,
    preserve_rng_state: bool = True,
    **kwargs: Any,
) -> Any:
    """`function(*args, **kwargs)`, whose intermediate results are not kept, but computed again in
    the backward pass.

    preserve_rng_state: random numbers (dropout) are the same the second time. use_reentrant: as in
    torch, there are gradients only where one of the arguments requires one. The gradients cannot be
    differentiated again.
    """
    if kwargs:
        inner = function

        def function(*args: Any) -> Any:
            return inner(*args, **kwargs)

    state = minigrad.get_rng_state() if preserve_rng_state else None
    # A tensor that requires a gradient makes the call part of the graph where only parameters do.
    anchor = minigrad.empty(0).requires_grad_()
    if use_reentrant or not minigrad.is_grad_enabled():
        return _Checkpoint.apply(function, state, *args)
    return _Checkpoint.apply(lambda _, *rest: function(*rest), state, anchor, *args)


def checkpoint_sequential(
    functions: Any, segments: int, input: Any, use_reentrant: bool | None = None, **kwargs: Any
) -> Any:
    """A `Sequential` (or list of modules) in `segments` parts; only their inputs are kept."""
    layers = list(functions.children() if hasattr(functions, "children") else functions)
    size = max(len(layers) // segments, 1)
    starts = [i * size for i in range(min(segments, len(layers)))]

    def part(first: int, last: int) -> Callable:
        def run(x: Any) -> Any:
            for layer in layers[first:last]:
                x = layer(x)
            return x

        return run

    for first, last in itertools.pairwise(starts):
        input = checkpoint(part(first, last), input, use_reentrant=use_reentrant, **kwargs)
    return part(starts[-1], len(layers))(input)


__getattr__, __dir__ = namespace(__name__)
