"""Full backward hooks of a module.

A module is not a single node of the graph; `forward` creates any number of nodes.  Two identity
functions mark its boundary, one on its inputs and one on its outputs.  The hooks run in their
backward.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from minigrad.autograd import Function
from minigrad.nn.modules import _global_hooks
from minigrad.tensor import Tensor

_NO_INPUTS = (
    "Full backward hook is firing when gradients are computed with respect to module outputs since "
    "no inputs require gradients. The gradients of the inputs are None."
)


class BackwardHookFunction(Function):
    """Identity whose backward calls ``callback(grads) -> grads``."""

    @staticmethod
    def forward(ctx: Any, callback: Callable[[tuple], tuple], *tensors: Tensor) -> tuple:
        ctx.callback = callback
        return tuple(tensor.view_as(tensor) for tensor in tensors)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple:
        return (None, *ctx.callback(grads))


def _cross(callback: Callable[[tuple], tuple], values: tuple) -> tuple[tuple, bool]:
    """Pass the tensors in `values` through a boundary; also whether any requires a gradient."""
    where = [i for i, value in enumerate(values) if isinstance(value, Tensor)]
    tracked = any(values[i].requires_grad for i in where)
    if not tracked:
        return values, False

    def on_tensors(grads: tuple) -> tuple:
        full: list[Any] = [None] * len(values)
        for i, grad in zip(where, grads, strict=True):
            full[i] = grad
        new = callback(tuple(full))
        return tuple(new[i] for i in where)

    crossed = BackwardHookFunction.apply(on_tensors, *(values[i] for i in where))
    out = list(values)
    for i, tensor in zip(where, crossed, strict=True):
        out[i] = tensor
    return tuple(out), True


def _replaced(new: Any, old: tuple, what: str) -> tuple:
    """The value that a hook returned to replace `old`, checked."""
    if new is None:
        return old
    new = new if isinstance(new, tuple) else (new,)
    if len(new) != len(old):
        raise RuntimeError(
            f"Backward hook returned an invalid number of {what}, got {len(new)}, "
            f"but expected {len(old)}"
        )
    return new


def call_with_backward_hooks(
    module: Any, call: Callable[[tuple, dict], Any], args: tuple, kwargs: dict
) -> Any:
    """Run ``call(args, kwargs)`` with the module's full backward (pre-)hooks attached."""
    every = _global_hooks
    pre_hooks = [*every.backward_pre_hooks.values(), *module._backward_pre_hooks.values()]
    hooks = [*every.backward_hooks.values(), *module._backward_hooks.values()]
    seen: dict[str, tuple] = {}

    def run_hooks(grad_input: tuple) -> tuple:
        if "grad_output" not in seen:
            return grad_input  # of an output in a dict or list, whose gradient torch does not see
        for hook in hooks:
            new = hook(module, grad_input, seen["grad_output"])
            grad_input = _replaced(new, grad_input, "grad_input")
        return grad_input

    def at_output(grad_output: tuple) -> tuple:
        for hook in pre_hooks:
            grad_output = _replaced(hook(module, grad_output), grad_output, "grad_output")
        seen["grad_output"] = grad_output
        if not inputs_tracked:
            # No gradient reaches the inputs, so the hooks run here, as in torch.
            if hooks:
                warnings.warn(_NO_INPUTS, stacklevel=2)
            run_hooks((None,) * len(args))
        return grad_output

    args, inputs_tracked = _cross(run_hooks, args)
    result = call(args, kwargs)
    if isinstance(result, tuple):
        return _cross(at_output, result)[0]
    return _cross(at_output, (result,))[0][0]
