"""Helpers for training outside the engine: `minigrad.utils.data`, checkpoints, hook handles."""

from minigrad._names import namespace
from minigrad.utils import hooks

_LAZY = (
    "checkpoint",
    "data",
    "model_zoo",
    "tensorboard",
)  # at their first use: made of tensors, with hooks
__all__ = [*_LAZY, "hooks"]

__getattr__, __dir__ = namespace(__name__, {name: f"minigrad.utils.{name}" for name in _LAZY})
