"""Values that are no tensors of minigrad, and errors that say what they are."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

from minigrad._names import in_torchs_words, kind
from minigrad._out import into, with_dtype
from minigrad.backends.current import Found, on_their_gpu
from minigrad.layouts import SPARSE_FORMS, NoDenseArray
from minigrad.overrides import among, before, handle_torch_function, subclasses
from minigrad.tensor import Tensor

F = TypeVar("F", bound=Callable)


def conversion(value: Any) -> str:
    """How a tensor of minigrad is made of a value."""
    if _is_foreign(value):
        return "minigrad.from_dlpack(x.detach()) converts it"
    return "minigrad.tensor() and minigrad.from_numpy() make one"


def _is_foreign(value: Any) -> bool:
    """Whether a value is a tensor of another framework, such as torch's."""
    package = type(value).__module__.split(".")[0]
    return hasattr(value, "__dlpack__") and package not in ("minigrad", "numpy", "cupy")


def reject_foreign(name: str, value: Any) -> None:
    """TypeError for a tensor of another framework, which says whose it is and how to convert it."""
    if _is_foreign(value):
        raise TypeError(
            f"{name}: expected a minigrad.Tensor, got {kind(value)}; {conversion(value)}"
        )


def no_tensor(name: str, argument: str, value: Any) -> TypeError:
    """The error for a list or a number where a function takes a tensor."""
    return TypeError(
        f"{name}(): argument '{argument}' must be Tensor, not {kind(value)}; {conversion(value)}"
    )


def check_tensors(name: str, **given: Any) -> None:
    """TypeError for what is no tensor among these arguments."""
    for argument, value in given.items():
        if not isinstance(value, Tensor):
            raise no_tensor(name, argument, value)


def _own_method(cls: type, name: str) -> Callable | None:
    """The method that a class of sparse tensors has in place of Tensor's."""
    found = getattr(cls, name, None)
    return None if found is getattr(Tensor, name, None) else found


def tensors_only(fn: F, out: bool = False, place: str = "") -> F:
    """fn, but an argument that isn't a tensor raises a TypeError instead of an AttributeError.

    Where fn needs a dense array of a sparse tensor, its form for those is called instead. Where it
    failed, and the class of an argument defines `__torch_function__`, that gives the result.
    fn runs on the GPU of its tensors. out: it takes torch's `out=` too. place: its public name
    ("minigrad.tanh"), by which a pickle finds it.
    """

    there = on_their_gpu(fn)

    @functools.wraps(fn)
    def checked(*args: Any, **kwargs: Any) -> Any:
        call = fn if Found.cupy is None else there
        if subclasses and (others := before(args, kwargs)):
            return handle_torch_function(checked, others, *args, **kwargs)
        try:
            if not kwargs:
                return call(*args)
            own_words = in_torchs_words(fn, kwargs)
            if not (out and "out" in own_words):
                return call(*args, **own_words)
            target = own_words["out"]
            own_words = {name: value for name, value in own_words.items() if name != "out"}
            if target is None:
                return call(*args, **own_words)
            result = call(*args, **with_dtype(fn.__name__, target, own_words))
            return into(fn.__name__, target, result, (*args, *own_words.values()))
        except NoDenseArray:
            first = args[0] if args else None
            own = SPARSE_FORMS.get(fn.__name__)
            if own is None and isinstance(first, Tensor):
                own = _own_method(type(first), fn.__name__)
            if own is None:
                raise
            return own(*args, **kwargs)
        except Exception as error:
            others = among(args, kwargs)
            if not others:
                given = [*args, *kwargs.values()]
                given += [x for a in given if isinstance(a, list | tuple) for x in a]
                owner = error.obj if isinstance(error, AttributeError) else error
                if isinstance(owner, Tensor) or not any(owner is a for a in given):
                    raise
                raise TypeError(
                    f"{fn.__name__}(): expected a minigrad.Tensor, got {kind(owner)}; "
                    f"{conversion(owner)}"
                ) from None
        return handle_torch_function(checked, others, *args, **kwargs)

    if place:
        checked.__module__, _, checked.__qualname__ = place.rpartition(".")
    return cast(F, checked)
