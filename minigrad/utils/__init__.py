"""Helpers for training outside the engine: `minigrad.utils.data`, checkpoints, hook handles."""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from minigrad._names import namespace
from minigrad.utils import hooks

if _TYPE_CHECKING:
    from minigrad.utils import benchmark as benchmark
    from minigrad.utils import checkpoint as checkpoint
    from minigrad.utils import data as data
    from minigrad.utils import dlpack as dlpack
    from minigrad.utils import model_zoo as model_zoo
    from minigrad.utils import tensorboard as tensorboard

_LAZY = (
    "benchmark",
    "checkpoint",
    "data",
    "dlpack",
    "model_zoo",
    "tensorboard",
)  # at their first use: made of tensors, with hooks
__all__ = [*_LAZY, "hooks"]

__getattr__, __dir__ = namespace(__name__, {name: f"minigrad.utils.{name}" for name in _LAZY})
