"""Subclasses of Tensor in programs: their methods, operators and properties ask the class.

    class Logged(minigrad.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            print(func.__name__)
            return super().__torch_function__(func, types, args, kwargs or {})

Tensor's own `__torch_function__` computes with the tensors and gives the result the subclass. A
class with `__torch_function__ = minigrad._C._disabled_torch_function_impl` is not asked, as
Parameter is not.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import FunctionType
from typing import Any

from minigrad.autograd.mode import mode
from minigrad.overrides import (
    OPERATORS,
    DisableTorchFunctionSubclass,
    among,
    disabled,
    handle_torch_function,
    refuse_torchs,
    subclasses,
)
from minigrad.tensor import Tensor

# Python asks the operator of a subclass first, with its operands exchanged.
_REFLECTED = {
    f"__r{name}__": f"__{name}__"
    for name in "add sub mul matmul truediv floordiv mod pow and or xor lshift rshift".split()
}
# What makes objects, or is about the object and not about the tensor.
_NOT_ASKED = frozenset(
    """
    __init__ __new__ __init_subclass__ __torch_function__ __class_getitem__ __hash__ __copy__
    __deepcopy__ __getstate__ __setstate__ __reduce__ __reduce_ex__ __array_wrap__ __dlpack__
    __dlpack_device__ __cuda_array_interface__ as_subclass
    """.split()
)
_UNCHANGED = (vars(Tensor)["grad"].__get__, vars(Tensor)["retains_grad"].__get__)


def _public(name: str) -> Any:
    """The method of Tensor that a class is asked for in place of an operator."""
    return getattr(Tensor, OPERATORS.get(name, name), None)


def _asking(method: Callable, name: str) -> Callable:
    """The method of a subclass, which asks its class for the result."""
    public, operator = _public(name), name in OPERATORS or name in _REFLECTED
    exchanged: Any = _public(_REFLECTED[name]) if name in _REFLECTED else None

    @functools.wraps(method)
    def asked(self: Any, *args: Any, **kwargs: Any) -> Any:
        if mode.plain:
            return method(self, *args, **kwargs)
        tensors = args and isinstance(args[0], Tensor)
        func, given = public, (self, *args)
        if exchanged is not None and tensors:
            func, given = exchanged, (args[0], self)
        try:
            return handle_torch_function(func, among(given, kwargs), *given, **kwargs)
        except TypeError:
            if operator and args and not tensors:
                return method(self, *args)  # whose NotImplemented asks the other operand
            raise

    return asked


def _no_operator(self: Any, left: Any) -> Any:
    """`left @ self`, which no number or list has."""
    return NotImplemented


def _property(own: property) -> property:
    plain: Any = own.fget
    read = own.__get__  # `Tensor.shape.__get__`, by which programs know it

    def asked(self: Any) -> Any:
        return plain(self) if mode.plain else handle_torch_function(read, (self,), self)

    return property(asked, own.fset, own.fdel, own.__doc__)


def _inherited(cls: type) -> None:
    """Called for each subclass of Tensor: one that is not of this package gets methods that ask."""
    super(Tensor, cls).__init_subclass__()  # type: ignore[misc]
    if cls.__module__.partition(".")[0] == "minigrad":
        return
    found = getattr(cls, "__torch_function__", None)
    if getattr(found, "__func__", found) is disabled:
        return
    subclasses.append(cls)
    if Tensor in cls.__bases__:
        cls.__bases__ = tuple([_asking_class() if b is Tensor else b for b in cls.__bases__])
    elif _asking_class() not in cls.__mro__:  # a subclass of Parameter
        _make_ask(cls)


@functools.cache
def _asking_class() -> type:
    """A class between Tensor and the subclasses of programs, so that their `super()` asks, too."""
    made = type("Tensor", (Tensor,), {"__module__": Tensor.__module__})
    _make_ask(made)
    return made


def _make_ask(cls: type) -> None:
    """Give a class methods and properties that ask, in place of Tensor's."""
    for name, own in (vars(Tensor) | {"__rmatmul__": _no_operator}).items():
        private = name.startswith("_") and not name.startswith("__")
        if (
            private
            or name in _NOT_ASKED
            or getattr(cls, name, None) is not getattr(Tensor, name, None)
        ):
            continue
        if isinstance(own, FunctionType):
            if name.startswith("__") and own.__name__ not in vars(Tensor):
                own.__name__ = name  # programs ask a function for its name
            setattr(cls, name, _asking(own, name))
        elif isinstance(own, property):
            setattr(cls, name, _property(own))


def _default(
    cls: type, func: Callable, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None
) -> Any:
    """The result of `func` for tensors, as an object of this class; NotImplemented if `types` has
    one that is no base of it. TypeError for a function of torch itself."""
    refuse_torchs(func)
    if not all(issubclass(cls, kind) for kind in types):
        return NotImplemented
    with DisableTorchFunctionSubclass():
        result = func(*args, **(kwargs or {}))
        return result if func in _UNCHANGED else _of_class(result, cls, args)


def _of_class(result: Any, cls: type, args: tuple) -> Any:
    """The tensors of a result as objects of a class; an argument that was returned stays."""
    if isinstance(result, Tensor):
        if isinstance(result, cls):
            return result
        if type(result) is not Tensor or any(result is a for a in args):
            return result.as_subclass(cls)
        result.__class__ = cls  # it was made just now
        return result
    if isinstance(result, tuple | list):
        parts = [_of_class(part, cls, args) for part in result]
        return type(result)(*parts) if hasattr(result, "_fields") else type(result)(parts)
    return result


Tensor.__torch_function__ = classmethod(_default)  # type: ignore[attr-defined]
Tensor.__init_subclass__ = classmethod(_inherited)  # type: ignore[assignment, method-assign]
