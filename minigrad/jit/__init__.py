"""`jit.script` and its relatives: the function or module itself, whose kernels are compiled anyway.

`minigrad.compile` records whole steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar
from typing import Final as Final

import minigrad
from minigrad._names import namespace
from minigrad.nn import Module

__all__ = [
    "ScriptModule", "TracerWarning", "annotate", "export", "fork", "freeze", "ignore",
    "is_scripting", "is_tracing", "load", "optimize_for_inference", "save", "script",
    "script_if_tracing", "script_method", "trace", "trace_module", "unused", "wait",
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


class TracerWarning(Warning):
    """A kind of warning that programs silence; `trace` has nothing to warn of here."""

    @staticmethod
    def ignore_lib_warnings() -> None:
        """Nothing."""


def trace_module(mod: Module, inputs: Any, **_: Any) -> Module:
    """The module itself; `inputs`, examples by the name of a method, are not used."""
    return mod


def save(m: Module, f: Any, _extra_files: Any = None) -> None:
    """`minigrad.save` of the whole module."""
    minigrad.save(m, f)


def load(f: Any, map_location: Any = None, _extra_files: Any = None) -> Any:
    """The module that `save` has written, as `minigrad.load` reads it: its classes are layers, or
    declared safe. The programs in torch's own files of this kind are not read."""
    return minigrad.load(f, map_location=map_location)


def freeze(mod: Module, preserved_attrs: Any = None, **_: Any) -> Module:
    """The module itself; RuntimeError for one that is training, as torch's."""
    if mod.training:
        raise RuntimeError(
            "Freezing is currently only implemented for modules in eval mode. Please call .eval() "
            "on your module before freezing."
        )
    return mod


def optimize_for_inference(mod: Module, other_methods: Any = None) -> Module:
    """The module itself."""
    return mod


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
