"""Activation recomputation (Chen et al. 2016): memory for time."""

from __future__ import annotations

import contextlib
import itertools
import warnings
from collections.abc import Callable
from typing import Any

import minigrad
from minigrad._names import namespace
from minigrad.autograd import Function
from minigrad.autograd.graph import saved_tensors_hooks
from minigrad.autograd.mode import mode
from minigrad.tensor import Tensor

__all__ = [
    "CheckpointError",
    "checkpoint",
    "checkpoint_sequential",
    "get_device_states",
    "noop_context_fn",
    "set_device_states",
]


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


def detach_variable(inputs: tuple) -> tuple:
    """The inputs, whose tensors are leaves that require a gradient where they did."""
    if not isinstance(inputs, tuple):
        raise RuntimeError(
            f"detach_variable: expected a tuple of tensors, got {type(inputs).__name__}"
        )
    return tuple(map(_detached, inputs))


def check_backward_validity(inputs: Any) -> None:
    """A warning if no tensor among the inputs requires a gradient."""
    if not any(isinstance(x, Tensor) and x.requires_grad for x in inputs):
        warnings.warn(
            "None of the inputs have requires_grad=True. Gradients will be None", stacklevel=3
        )


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


class CheckpointError(RuntimeError):
    """The second run of a checkpointed function did not save what the first one did."""


def noop_context_fn() -> tuple[Any, Any]:
    """Two contexts that do nothing: of the first run and of the second."""
    return contextlib.nullcontext(), contextlib.nullcontext()


class _Complete(BaseException):
    """The second run has saved all that the first one did: the rest of it is not needed."""


class _Recomputed:
    """What a call saves for backward, as numbers: the first one that is asked for runs it again."""

    def __init__(self, run: Callable, context: Any, state: Any, checked: bool) -> None:
        self.run, self.context, self.state, self.checked = run, context, state, checked
        self.stop = True  # where the first run has got to, for a backward pass inside of it
        self.casts = mode.autocast
        self.first: list[tuple] = []  # of each tensor: shape, dtype and device
        self.again: dict[int, Tensor] = {}

    def pack(self, tensor: Tensor) -> int:
        self.first.append((tensor.shape, tensor.dtype, tensor.device))
        return len(self.first) - 1

    def unpack(self, number: int) -> Tensor:
        if number not in self.again:
            self._run_again()
        return self.again.pop(number)

    def _run_again(self) -> None:
        found: list[Tensor] = []

        def keep(tensor: Tensor) -> Tensor:
            found.append(tensor.detach())
            if self.stop and len(found) == len(self.first):
                raise _Complete
            return found[-1]  # for a backward pass inside of the function

        now, casts = minigrad.get_rng_state(), mode.autocast
        if self.state is not None:
            minigrad.set_rng_state(self.state)
        mode.autocast = self.casts
        try:
            with (
                contextlib.suppress(_Complete),
                saved_tensors_hooks(keep, lambda kept: kept),
                self.context,
                minigrad.enable_grad(),
            ):
                self.run()
        finally:
            mode.autocast = casts
            if self.state is not None:
                minigrad.set_rng_state(now)
        if self.checked:
            self._check([(t.shape, t.dtype, t.device) for t in found])
        self.again = dict(enumerate(found))

    def _check(self, again: list[tuple]) -> None:
        if len(again) != len(self.first):
            raise CheckpointError(
                "torch.utils.checkpoint: A different number of tensors was saved during the "
                f"original forward and recomputation: {len(self.first)} and {len(again)}"
            )
        for i, pair in enumerate(zip(self.first, again, strict=True)):
            if pair[0] != pair[1]:
                raise CheckpointError(
                    "torch.utils.checkpoint: Recomputed values for the following tensors have "
                    f"different metadata than during the forward pass: tensor {i} was {pair[0]} "
                    f"and is {pair[1]}"
                )


def checkpoint(
    function: Callable,
    *args: Any,
    use_reentrant: bool | None = None,
    context_fn: Callable = noop_context_fn,
    determinism_check: str = "default",
    debug: bool = False,
    early_stop: bool = True,
    preserve_rng_state: bool = True,
    **kwargs: Any,
) -> Any:
    """`function(*args, **kwargs)`, whose intermediate results are not kept, but computed again in
    the backward pass.

    preserve_rng_state: random numbers (dropout) are the same the second time. context_fn: makes a
    context for the first run and one for the second. determinism_check: "default" compares shapes,
    dtypes and devices of both, and raises CheckpointError; "none" does not. use_reentrant: there
    are gradients only where one of the positional arguments requires one, of the first order, and
    ValueError for keyword arguments.

    early_stop: the second run ends where it has saved as many tensors as the first one. `debug` is
    torch's, and changes nothing here.
    """
    if determinism_check not in ("default", "none"):
        raise ValueError(
            f"determinism_check should be one of ['default', 'none'], but got {determinism_check}"
        )
    if use_reentrant:
        if kwargs:
            raise ValueError(f"Unexpected keyword arguments: {','.join(kwargs)}")
        if context_fn is not noop_context_fn or debug:
            raise ValueError(
                "Passing `context_fn` or `debug` is only supported when use_reentrant=False."
            )
    state = minigrad.get_rng_state() if preserve_rng_state else None
    if use_reentrant:
        check_backward_validity(args)
        return _Checkpoint.apply(function, state, *args)
    first, second = context_fn()
    if not minigrad.is_grad_enabled():
        with first:
            return function(*args, **kwargs)
    checked = determinism_check == "default"
    frame = _Recomputed(lambda: function(*args, **kwargs), second, state, checked)
    with saved_tensors_hooks(frame.pack, frame.unpack), first:
        result = function(*args, **kwargs)
    frame.stop = early_stop
    return result


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
