"""Helpers for training outside the engine: `minigrad.utils.data`, checkpoints, hook handles."""

import importlib
from typing import Any

from minigrad._names import refuse
from minigrad.utils import hooks

_LAZY = ("checkpoint", "data", "tensorboard")  # at their first use: made of tensors, with hooks
__all__ = [*_LAZY, "hooks"]

_refuse = refuse(__name__)


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return importlib.import_module(f"minigrad.utils.{name}")
    return _refuse(name)


def __dir__() -> list[str]:
    return __all__
