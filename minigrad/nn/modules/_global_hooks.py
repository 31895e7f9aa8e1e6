"""Hooks of all modules, and of what becomes part of a module: `register_module_..._hook`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from minigrad.tensor import Tensor
from minigrad.utils.hooks import Hooks, RemovableHandle, add_hook, every_call

forward_pre_hooks, forward_hooks = Hooks(), Hooks()
forward_hooks_with_kwargs, forward_hooks_always_called = Hooks(), Hooks()
backward_pre_hooks, backward_hooks = Hooks(), Hooks()
old_backward_hooks = Hooks()
buffers, modules, parameters = Hooks(), Hooks(), Hooks()


def _of_calls(table: Hooks, hook: Any, *extra: Hooks, marks: Sequence[Any] = ()) -> RemovableHandle:
    handle = add_hook(table, hook, every_call, *extra, marks=marks)
    for other in (every_call, *extra):
        other[handle.id] = hook
    return handle


def register_module_forward_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """``hook(module, args)`` before each module's `forward`, and before the module's own hooks."""
    return _of_calls(forward_pre_hooks, hook)


def register_module_forward_hook(
    hook: Callable[..., Any], *, with_kwargs: bool = False, always_call: bool = False
) -> RemovableHandle:
    """``hook(module, args, output)`` after each module's `forward`, before the module's own
    hooks; see `Module.register_forward_hook`."""
    marks = [forward_hooks_with_kwargs] if with_kwargs else []
    marks += [forward_hooks_always_called] if always_call else []
    return _of_calls(forward_hooks, hook, marks=marks)


def register_module_full_backward_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """``hook(module, grad_output)`` before each module's backward."""
    return _of_calls(backward_pre_hooks, hook)


_ONE_KIND = (
    "Cannot use both regular backward hooks and full backward hooks as a global Module hook. "
    "Please use only one of them."
)


def register_module_full_backward_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """``hook(module, grad_input, grad_output)`` after each module's backward."""
    if old_backward_hooks:
        raise RuntimeError(_ONE_KIND)
    return _of_calls(backward_hooks, hook)


def register_module_backward_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Deprecated in torch: `Module.register_backward_hook` of each module."""
    if backward_hooks:
        raise RuntimeError(_ONE_KIND)
    return _of_calls(forward_hooks, last_operation(hook), old_backward_hooks)


def last_operation(hook: Callable[..., Any]) -> Callable[..., None]:
    """A forward hook that makes `hook(module, grad_input, grad_output)` one of the operation that
    has computed the (first) output."""

    def watch(module: Any, args: tuple, output: Any) -> None:
        tensor = output
        while isinstance(tensor, (tuple, list, dict)) and tensor:
            tensor = next(iter(tensor.values() if isinstance(tensor, dict) else tensor))
        node = tensor.grad_fn if isinstance(tensor, Tensor) else None
        if node is not None:
            node.register_hook(lambda inputs, outputs: hook(module, inputs, outputs))

    return watch


def register_module_buffer_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """``hook(module, name, buffer)`` for each new buffer; a returned value takes its place."""
    return add_hook(buffers, hook)


def register_module_module_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """``hook(module, name, submodule)`` for each new submodule; a returned value takes its
    place."""
    return add_hook(modules, hook)


def register_module_parameter_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """``hook(module, name, parameter)`` for each new parameter; a returned value takes its
    place."""
    return add_hook(parameters, hook)


def registered(table: Hooks, module: Any, name: str, value: Any) -> Any:
    """What the hooks make of a new part of a module."""
    for hook in list(table.values()):
        new = hook(module, name, value)
        value = value if new is None else new
    return value
