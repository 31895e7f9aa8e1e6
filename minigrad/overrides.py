"""`__torch_function__`: classes that decide what functions and methods of tensors give for them.

A class that is no tensor, such as one of matrices that are kept as factors, is asked for the result
where a function, or a method of `METHODS`, got one of its objects: after it has failed. A program's
subclass of Tensor is asked before (`minigrad._inherit`); that costs nothing until there is one. A
mode that would see all calls is refused.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from minigrad._names import namespace
from minigrad.autograd.mode import mode
from minigrad.tensor import Tensor

__all__ = [
    "TorchFunctionMode",
    "handle_torch_function",
    "has_torch_function",
    "has_torch_function_unary",
    "has_torch_function_variadic",
    "is_tensor_like",
]

# Methods with a second tensor: the first argument of `x.matmul(y)` is a tensor already.
METHODS = (
    "add addmm bmm cross div divide dot expand_as lerp matmul maximum minimum mm mul multiply mv"
    " outer reshape_as sub subtract true_divide type_as view_as"
).split()  # fmt: skip
# The methods that operators stand for: a class is asked for `add`, however it is written.
OPERATORS = {
    "__add__": "add", "__sub__": "sub", "__mul__": "mul", "__matmul__": "matmul",
    "__truediv__": "div", "__mod__": "remainder", "__pow__": "pow", "__ne__": "ne",
    "__eq__": "__eq__", "__lt__": "lt", "__le__": "le", "__gt__": "gt", "__ge__": "ge",
    "__neg__": "neg", "__abs__": "abs", "__iadd__": "add_", "__isub__": "sub_", "__imul__": "mul_",
    "__itruediv__": "div_", "__radd__": "add", "__rmul__": "mul",
}  # fmt: skip
subclasses: list[type] = []  # of Tensor, in programs, that are asked


def refuse_torchs(func: Callable) -> None:
    """TypeError for a function of torch itself, which asks again where it is called with tensors of
    minigrad."""
    if mode.plain:
        name = getattr(func, "__name__", func)
        raise TypeError(
            f"torch's {name}(): expected torch.Tensor, got minigrad.Tensor; "
            "minigrad.from_dlpack(x.detach()) converts a torch.Tensor x, "
            "torch.from_dlpack(x.detach()) a minigrad.Tensor x"
        )


def disabled(func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
    """A `__torch_function__` for subclasses of Tensor that are to be taken as tensors."""
    refuse_torchs(func)
    with DisableTorchFunctionSubclass():
        return func(*args, **(kwargs or {}))


def _overrides(value: Any) -> bool:
    kind = type(value)
    if isinstance(value, Tensor):
        return bool(subclasses) and any(base in subclasses for base in kind.__mro__)
    return getattr(kind, "__torch_function__", disabled) is not disabled


def is_tensor_like(inp: Any) -> bool:
    """Whether this is a tensor, or an object whose class defines `__torch_function__`."""
    return isinstance(inp, Tensor) or hasattr(type(inp), "__torch_function__")


def has_torch_function(relevant_args: Iterable[Any]) -> bool:
    """Whether the class of one of these is asked: one with a `__torch_function__`, or a program's
    subclass of Tensor."""
    return any(_overrides(value) for value in relevant_args)


def has_torch_function_unary(obj: Any) -> bool:
    """`has_torch_function` of one."""
    return _overrides(obj)


def has_torch_function_variadic(*args: Any) -> bool:
    """`has_torch_function` of the arguments."""
    return has_torch_function(args)


def _in_order(values: Iterable[Any]) -> list[Any]:
    """One object of each class that overrides: from left to right, a subclass before its bases."""
    found: list[Any] = []
    for value in values:
        if not _overrides(value) or any(type(value) is type(other) for other in found):
            continue
        bases = (i for i, other in enumerate(found) if issubclass(type(value), type(other)))
        found.insert(next(bases, len(found)), value)
    return found


def handle_torch_function(
    public_api: Callable, relevant_args: Iterable[Any], *args: Any, **kwargs: Any
) -> Any:
    """The result of `public_api(*args, **kwargs)` that the classes of `relevant_args` give.

    Each `__torch_function__` gets the function, the classes that override, and the arguments. One
    that returns NotImplemented leaves it to the next; TypeError if all do.
    """
    found = _in_order(relevant_args)
    types = tuple(type(value) for value in found)
    for value in found:
        result = value.__torch_function__(public_api, types, args, kwargs)
        if result is not NotImplemented:
            return result
    name = f"{public_api.__module__}.{public_api.__name__}"
    raise TypeError(
        f"no implementation found for '{name}' on types that implement __torch_function__: "
        f"{[*types]}"
    )


def among(args: tuple, kwargs: dict[str, Any]) -> list[Any]:
    """The arguments, and the elements of lists among them, whose classes are asked; no tensors of
    other frameworks."""
    given = [*args, *kwargs.values()]
    given += [x for a in given if isinstance(a, list | tuple) for x in a]
    found = filter(_overrides, given)
    return [x for x in found if isinstance(x, Tensor) or not hasattr(x, "__dlpack__")]


def operator_of_other(name: str, tensor: Tensor, other: Any) -> Any:
    """The result of an operator of a tensor and an object that is none, if its class says what."""
    if not among((other,), {}):
        return NotImplemented
    return handle_torch_function(
        getattr(Tensor, OPERATORS.get(name, name)), (other,), tensor, other
    )


_unasked: set[type] = {Tensor}  # and other types of arguments that were looked at


def before(args: tuple, kwargs: dict[str, Any]) -> list[Any]:
    """What is asked before a function runs: all of `among` if there is a subclass of Tensor."""
    if mode.plain:
        return []
    for x in (*args, *kwargs.values()) if kwargs else args:
        if type(x) not in _unasked:
            break
    else:
        return []
    found = among(args, kwargs)
    given = [x for x in (*args, *kwargs.values()) if not isinstance(x, list | tuple)]
    _unasked.update({type(x) for x in given} - {type(x) for x in found})
    return found if any(isinstance(x, Tensor) for x in found) else []


def asking(method: Callable) -> Callable:
    """A method that asks its arguments' classes after it has failed, and subclasses before."""

    @functools.wraps(method)
    def asked(*args: Any, **kwargs: Any) -> Any:
        if subclasses and (others := before(args, kwargs)):
            return handle_torch_function(asked, others, *args, **kwargs)
        try:
            return method(*args, **kwargs)
        except (AttributeError, TypeError):
            others = among(args, kwargs)
            if not others:
                raise
        return handle_torch_function(asked, others, *args, **kwargs)

    return asked


class DisableTorchFunctionSubclass:
    """The block in which objects of subclasses of Tensor are taken as tensors."""

    def __enter__(self) -> None:
        self._outside, mode.plain = mode.plain, True

    def __exit__(self, *error: object) -> None:
        mode.plain = self._outside


class TorchFunctionMode:
    """A block that sees the calls of functions: NotImplementedError where one begins."""

    def __torch_function__(
        self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        raise NotImplementedError

    def __enter__(self) -> NoReturn:
        raise NotImplementedError(
            f"{type(self).__name__}: minigrad has no modes that see all calls; fix: define "
            "__torch_function__ in the class of the arguments"
        )

    def __exit__(self, *error: object) -> None:
        pass


__getattr__, __dir__ = namespace(__name__)
