"""Names in errors: of types, and of what is closest to a name that does not exist."""

from __future__ import annotations

import difflib
import functools
import importlib
import inspect
import sys
from collections import namedtuple
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import Any, TypeVar, cast

# Where a name that is missing in one namespace may be: `minigrad.Adam` is `minigrad.optim.Adam`.
_ELSEWHERE = (
    "minigrad",
    "minigrad.nn",
    "minigrad.nn.functional",
    "minigrad.nn.init",
    "minigrad.nn.utils",
    "minigrad.optim",
    "minigrad.optim.lr_scheduler",
    "minigrad.utils.data",
    "minigrad.autograd",
    "minigrad.cuda",
)
_ABSENT = "either torch has no such name, or it is a part of torch that minigrad doesn't have"


def kind(value: Any) -> str:
    """The type of a value, with its package where that is not Python itself: `torch.Tensor`."""
    cls = type(value)
    package = cls.__module__.split(".")[0]
    return cls.__name__ if package == "builtins" else f"{package}.{cls.__name__}"


@functools.cache
def return_type(name: str, *fields: str) -> type:
    """The named tuple that the operation `name` returns; it prints as torch's do."""
    cls = cast(Any, namedtuple)(name, fields)  # a type checker would have literal names

    def text(self: Any) -> str:
        parts = (f"{field}={value!r}" for field, value in zip(fields, self, strict=True))
        return f"minigrad.return_types.{name}(\n" + ",\n".join(parts) + ")"

    cls.__repr__ = text
    cls.__reduce__ = lambda self: (_returned, (name, fields, tuple(self)))
    return cls


def _returned(name: str, fields: tuple[str, ...], values: tuple) -> Any:
    return return_type(name, *fields)(*values)


# The names of NumPy that torch takes for the keywords of any function.
_NUMPYS = {"axis": "dim", "axis0": "dim0", "axis1": "dim1", "keepdims": "keepdim"}
_NUMPYS |= {"x": "input", "x1": "input", "x2": "other"}
_NUMPYS |= {"A": "input", "input": "A"}  # a matrix has the one or the other name
_RENAMED = _NUMPYS.keys()
F = TypeVar("F", bound=Callable)


def in_torchs_words(function: Callable, given: dict[str, Any]) -> dict[str, Any]:
    """Keyword arguments with NumPy's names replaced where the function only has torch's."""
    if _RENAMED.isdisjoint(given):
        return given
    own = _parameters(function)
    free = [n for n in _RENAMED if n not in own and _NUMPYS[n] in own and _NUMPYS[n] not in given]
    return {_NUMPYS[n] if n in free else n: value for n, value in given.items()}


def numpys_words(method: F) -> F:
    """A method that takes `axis=` and `keepdims=` for its `dim=` and `keepdim=`."""
    own = _parameters(method)
    if not ("dim" in own and "axis" not in own) and not (
        "keepdim" in own and "keepdims" not in own
    ):
        return method

    @functools.wraps(method)
    def _renaming(*args: Any, **kwargs: Any) -> Any:  # private: errors don't name it
        return method(*args, **in_torchs_words(method, kwargs)) if kwargs else method(*args)

    return cast(F, _renaming)


def _parameters(function: Callable) -> tuple[str, ...]:
    """The names of a function's parameters."""
    code = inspect.unwrap(function).__code__
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


def suggestion(name: str, names: Iterable[str]) -> str | None:
    """The name that `name` may be a misspelling of."""
    public = sorted((n for n in names if not n.startswith("_")), reverse=True)
    by_lower = {n.lower(): n for n in public}  # DataLoader rather than the module dataloader
    found = difflib.get_close_matches(name.lower(), by_lower, 1, 0.75)
    if not found:  # letters in another order: SDG
        found = [n for n in by_lower if sorted(n) == sorted(name.lower())]
    return by_lower[found[0]] if found else None


def _elsewhere(name: str, module: str) -> str | None:
    """The full name of what another namespace has under this name."""
    for other in _ELSEWHERE:
        if other != module and name in vars(sys.modules.get(other, object)):
            return f"{other}.{name}"
    return None


class _Missing(AttributeError):
    """An AttributeError that looks for the closest name when it is shown: `hasattr` is fast."""

    def __init__(self, message: str, hint: Callable[[], str]) -> None:
        super().__init__(message)  # without its `name`: a traceback would add a hint of its own
        self._hint = hint

    def __str__(self) -> str:
        return super().__str__() + self._hint()

    def __reduce__(self) -> tuple:
        return AttributeError, (str(self),)


_Missing.__name__ = _Missing.__qualname__ = "AttributeError"  # in tracebacks
_Missing.__module__ = "builtins"


def missing_attribute(owner: Any, name: str) -> AttributeError:
    """The error for an object's `__getattr__`; a traceback adds the closest name."""
    message = f"{type(owner).__name__!r} object has no attribute {name!r}"
    return AttributeError(message, name=name, obj=owner)


def _public(module: str) -> list[str]:
    """`__all__` of a module, else what it defines under names without an underscore."""
    owner = sys.modules[module]
    if hasattr(owner, "__all__"):
        return list(owner.__all__)
    return [
        name
        for name, value in vars(owner).items()
        if not name.startswith("_")
        and name != "annotations"
        and not isinstance(value, ModuleType)
        and getattr(value, "__module__", None) in (None, module)
    ]


def namespace(
    module: str, lazy: Mapping[str, str] | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a public module.

    A name it doesn't have raises AttributeError with the closest one; `dir` lists what is public.
    lazy: names of modules that are imported at their first use, or of members ("package.module").
    """
    places = lazy or {}

    def __getattr__(name: str) -> Any:
        owner = sys.modules[module]
        if name in places:
            found = importlib.import_module(places[name])
            return found if places[name].endswith(f".{name}") else getattr(found, name)
        message = f"module {module!r} has no attribute {name!r}"
        if name.startswith("_"):
            raise AttributeError(message, name=name, obj=owner)

        def hint() -> str:
            close = suggestion(name, dir(owner))
            if close is None or close.lower() != name.lower():
                close = _elsewhere(name, module) or close
            return ": " + (_ABSENT if close is None else f"did you mean {close!r}?")

        raise _Missing(message, hint)

    def __dir__() -> list[str]:
        return sorted({*_public(module), *(name for name in places if not name.startswith("_"))})

    return __getattr__, __dir__


def refuse(module: str) -> Callable[[str], Any]:
    """`namespace` for a module that has a `__dir__` of its own, or needs none."""
    return namespace(module)[0]
