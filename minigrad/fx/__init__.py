"""What programs ask of `torch.fx` where they trace nothing. minigrad has no tracer of this kind, so
that there are no objects of these classes; `minigrad.compile` records the operations of a call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from minigrad._names import namespace
from minigrad.nn import Module

__all__ = ["GraphModule", "Proxy", "wrap"]

F = TypeVar("F", bound=Callable | str)


def _refuse(name: str) -> NoReturn:
    raise NotImplementedError(
        f"fx.{name}: minigrad has no symbolic tracer; fix: minigrad.compile records a function"
    )


class Proxy:
    """The class of values in a trace, which no value has."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _refuse("Proxy")


class GraphModule(Module):
    """The class of traced modules, which no module has."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _refuse("GraphModule")


def wrap(fn_or_name: F) -> F:
    """The function itself, which no tracer enters."""
    return fn_or_name


__getattr__, __dir__ = namespace(__name__)
