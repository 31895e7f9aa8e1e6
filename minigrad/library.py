"""Functions of a program as operations: torch.library's `custom_op`, with gradients.

Example::

    @custom_op("mylib::sine", mutates_args=())
    def sine(x: Tensor) -> Tensor:
        return minigrad.from_numpy(np.sin(x.numpy()))

    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    def backward(ctx, grad):
        return grad * ctx.saved_tensors[0].cos()

    sine.register_autograd(backward, setup_context=setup_context)
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import minigrad
from minigrad._names import namespace
from minigrad.autograd.function import Function
from minigrad.autograd.mode import mode, no_grad
from minigrad.tensor import Tensor
from minigrad.utils._pytree import tree_leaves

__all__ = ["CustomOpDef", "custom_op", "register_autograd", "register_fake", "register_kernel"]

__getattr__, __dir__ = namespace(__name__)

_DEFINED: dict[str, CustomOpDef] = {}


def _tensors(values: Any) -> list[Tensor]:
    return [v for v in tree_leaves(values) if isinstance(v, Tensor)]


class CustomOpDef:
    """A function as an operation; `custom_op` makes it. A call runs the implementation for the
    device of the first tensor, without recording, and records one node."""

    def __init__(self, name: str, function: Callable, mutates: Iterable[str] | str) -> None:
        self._qualname, self._function = name, function
        self._signature = inspect.signature(function)
        self._mutates = [mutates] if isinstance(mutates, str) else list(mutates)
        unknown = set(self._mutates) - {"unknown", *self._signature.parameters}
        if unknown:
            raise ValueError(
                f"{name}: mutates_args names {sorted(unknown)}, which are no arguments"
            )
        self._kernels: dict[str, Callable] = {}
        self._backward: Callable | None = None
        self._setup: Callable | None = None
        self._recorded = self._as_function()
        self.__doc__, self.__name__ = function.__doc__, function.__name__

    @property
    def default(self) -> CustomOpDef:
        """Itself: an operation of a program has one signature."""
        return self

    def register_kernel(self, device_types: Any, func: Callable | None = None, /) -> Callable:
        """Decorator: the implementation for "cpu", "cuda" or a list of them (None: for all)."""
        kinds = [device_types] if isinstance(device_types, str) else device_types

        def register(function: Callable) -> Callable:
            if kinds is None:
                self._function = function
            self._kernels |= dict.fromkeys(kinds or (), function)
            return function

        return register if func is None else register(func)

    def register_fake(self, func: Callable, /) -> Callable:
        """Decorator: the shapes of the results without their elements, for torch's compiler; it is
        not called here."""
        return func

    def register_autograd(
        self, backward: Callable, /, *, setup_context: Callable | None = None
    ) -> None:
        """The gradients: backward(ctx, *grads) gives one for each argument (None: has none).
        setup_context(ctx, inputs, output) saves what it needs; where there are keyword-only
        arguments, setup_context(ctx, inputs, keyword_only_inputs, output)."""
        if self._mutates:
            raise RuntimeError(
                f"Cannot register autograd formula for non-functional operator {self._qualname}: "
                f"it changes {self._mutates} in place. Use an operation that returns a new tensor"
            )
        self._backward, self._setup = backward, setup_context

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        inputs, options = bound.args, bound.kwargs
        nested = [v for v in inputs if not isinstance(v, Tensor) and _tensors(v)]
        if mode.enabled and any(t.requires_grad for t in _tensors(nested)):
            raise NotImplementedError(
                f"{self._qualname}: gradients of tensors in lists are not recorded; pass each "
                "tensor as an argument, or detach them"
            )
        if mode.enabled and any(t.requires_grad for t in _tensors(inputs)):
            result = self._recorded.apply(*inputs, **options)
        else:
            with no_grad():
                result = self._run(inputs, options)
        for name in self._mutates:
            for tensor in _tensors(list(bound.arguments.values())
                                   if name == "unknown" else bound.arguments[name]):  # fmt: skip
                tensor._counter[0] += 1
        return result

    def _run(self, inputs: tuple, options: dict[str, Any]) -> Any:
        given = _tensors((inputs, options))
        kind = given[0].device.type if given else "cpu"
        result = self._kernels.get(kind, self._function)(*inputs, **options)
        if any(out is t for out in _tensors(result) for t in given):
            raise RuntimeError(
                f"{self._qualname}: The output of this custom operator must not also be an input "
                "to it and may not share its memory; return a copy (x.clone())"
            )
        return result

    def _as_function(self) -> type[Function]:
        """The Function that records a call."""
        op, title = self, self._qualname.replace("::", ".")

        def forward(ctx: Any, *inputs: Any, **options: Any) -> Any:
            output = op._run(inputs, options)
            if op._setup is not None:
                op._setup(ctx, inputs, *([options] if options else []), output)
            return output

        def backward(ctx: Any, *grads: Any) -> Any:
            if op._backward is None:
                raise RuntimeError(
                    f"Trying to backward through {title}.default but no autograd formula was "
                    "registered. Please use register_autograd to add one."
                )
            return op._backward(ctx, *grads)

        members = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
        name = f"GeneratedBackwardFor_{title.replace('.', '_')}_default"
        return type(name, (Function,), members)

    def __repr__(self) -> str:
        return f"<CustomOpDef({self._qualname})>"


def custom_op(
    name: str,
    fn: Callable | None = None,
    /,
    *,
    mutates_args: Iterable[str] | str,
    device_types: Any = None,
    schema: str | None = None,
    tags: Any = None,
) -> Any:
    """Decorator that makes a function an operation "namespace::name", which is also
    `torch.ops.namespace.name`.

    mutates_args: the names of the arguments that it changes in place, or "unknown". device_types:
    where the function runs (default: everywhere). schema and tags have no effect.
    """
    space, colons, short = name.partition("::")
    if not colons or not space.isidentifier() or not short.isidentifier():
        raise ValueError(f"custom_op: expected a name such as 'mylib::sine', got {name!r}")

    def define(function: Callable) -> CustomOpDef:
        op = CustomOpDef(name, function, mutates_args)
        if device_types is not None:
            op._function = _nowhere(name)
            op.register_kernel(device_types, function)
        _expose(space, short, op)
        _DEFINED[name] = op
        return op

    return define if fn is None else define(fn)


def _nowhere(name: str) -> Callable:
    def missing(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(
            f"{name}: there is no implementation for the device of these tensors; register_kernel "
            "adds one"
        )

    return missing


def _expose(space: str, name: str, op: CustomOpDef) -> None:
    """`torch.ops.space.name`, unless the package of operations has a module of that name."""
    members = vars(minigrad.ops).setdefault(space, SimpleNamespace())
    if not isinstance(members, SimpleNamespace):
        raise ValueError(
            f"custom_op: the namespace {space!r} is taken by minigrad.ops.{space}; use another one"
        )
    setattr(members, name, op)


def _found(op: str | CustomOpDef) -> CustomOpDef:
    found = _DEFINED.get(op) if isinstance(op, str) else op
    if not isinstance(found, CustomOpDef):
        raise RuntimeError(
            f"there is no operation {op!r} of this program; define it by custom_op first (those of "
            "libraries of C++ are not known here)"
        )
    return found


def register_fake(
    op: str | CustomOpDef, func: Callable | None = None, /, *, lib: Any = None
) -> Any:
    """`CustomOpDef.register_fake` of an operation by its name; without func a decorator."""
    register = _found(op).register_fake
    return register if func is None else register(func)


def register_autograd(
    op: str | CustomOpDef,
    backward: Callable,
    /,
    *,
    setup_context: Callable | None = None,
    lib: Any = None,
) -> None:
    """`CustomOpDef.register_autograd` of an operation by its name."""
    _found(op).register_autograd(backward, setup_context=setup_context)


def register_kernel(
    op: str | CustomOpDef, device_types: Any, func: Callable | None = None, /, *, lib: Any = None
) -> Any:
    """`CustomOpDef.register_kernel` of an operation by its name; without func a decorator."""
    return _found(op).register_kernel(device_types, func)
