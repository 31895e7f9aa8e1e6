"""Layers, losses and the base class `Module`, with torch.nn's names and arguments."""

from __future__ import annotations

from typing import Any

from minigrad.nn import functional, init, modules, parameter, utils
from minigrad.nn.modules import *  # noqa: F403 - the classes that `modules.__all__` names
from minigrad.nn.parameter import Buffer, Parameter

__all__ = [
    "Buffer",
    "Parameter",
    "functional",
    "init",
    "modules",
    "parameter",
    "utils",
]
__all__ += modules.__all__


def __getattr__(name: str) -> Any:
    raise AttributeError(
        f"minigrad.nn has no {name!r} in this version; it has: "
        + ", ".join(sorted(n for n in __all__ if n[0].isupper()))
    )
