"""Layers, losses and the base class `Module`, with torch.nn's names and arguments."""

from __future__ import annotations

from minigrad._names import namespace
from minigrad.nn import functional, init, modules, parallel, parameter, utils
from minigrad.nn.modules import *  # noqa: F403 - the classes that `modules.__all__` names
from minigrad.nn.parallel import DataParallel
from minigrad.nn.parameter import (
    Buffer,
    Parameter,
    UninitializedBuffer,
    UninitializedParameter,
)

__all__ = [
    "Buffer",
    "DataParallel",
    "Parameter",
    "UninitializedBuffer",
    "UninitializedParameter",
    "functional",
    "init",
    "modules",
    "parallel",
    "parameter",
    "utils",
]
__all__ += modules.__all__

__getattr__, __dir__ = namespace(
    __name__, {name: f"minigrad.nn.{name}" for name in ("attention", "grad")}
)
