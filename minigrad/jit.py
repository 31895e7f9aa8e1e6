"""`compile` and `script`, which make a model faster in torch: here its kernels are compiled anyway.

Both return the model itself, whose results are the same by definition.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minigrad._names import namespace


def compile(
    model: Callable | None = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: Any = "inductor",
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    disable: bool = False,
) -> Callable:
    """The model, or a decorator that returns it. minigrad compiles kernels, and no graphs."""
    if model is None:
        return lambda function: function
    if not callable(model):
        raise TypeError(f"compile: expected a module or a function, got {type(model).__name__}")
    return model


def script(obj: Any, **_: Any) -> Any:
    """The module, function or class itself."""
    return obj


ignore = unused = export = script


__getattr__, __dir__ = namespace(__name__)
