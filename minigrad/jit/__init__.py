"""`jit.script` and its relatives: the function or module itself, whose kernels are compiled anyway.

`minigrad.compile` records whole steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar
from typing import Final as Final

from minigrad._names import namespace
from minigrad.nn import Module

__all__ = [
    "ScriptModule", "annotate", "export", "fork", "ignore", "is_scripting", "is_tracing",
    "script", "script_if_tracing", "script_method", "trace", "unused", "wait",
]  # fmt: skip

T = TypeVar("T")


class ScriptModule(Module):
    """A class to derive from; other modules are no instances of it, also those that `script` and
    `trace` have returned."""


def script(obj: Any, **_: Any) -> Any:
    """The module, function or class itself."""
    return obj


unused = export = script_method = script_if_tracing = script


def ignore(drop: Any = False, **_: Any) -> Any:
    """The function itself; also as `@ignore()` and `@ignore(drop=True)`. RuntimeError for a drop
    that is neither a function nor a bool."""
    if callable(drop):
        return drop
    if not isinstance(drop, bool):
        raise RuntimeError(f"jit.ignore: expected a function or a bool, got {drop!r}")
    return script


def trace(func: Callable, example_inputs: Any = None, **_: Any) -> Any:
    """The module or function itself, which decides anew at every call; the examples are not
    used."""
    return func


def is_scripting() -> bool:
    """False: modules are always run by Python."""
    return False


is_tracing = is_scripting


def annotate(the_type: Any, the_value: T) -> T:
    """The value; the type is for readers."""
    return the_value


def fork(func: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """The result of the call, which runs at once."""
    return func(*args, **kwargs)


def wait(future: T) -> T:
    """What `fork` has returned."""
    return future


__getattr__, __dir__ = namespace(__name__)
