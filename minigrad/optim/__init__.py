"""Optimisers and learning-rate schedules, with torch.optim's names and arguments."""

from __future__ import annotations

from typing import Any

from minigrad.optim import lr_scheduler
from minigrad.optim.adam import Adam, AdamW
from minigrad.optim.adaptive import Adadelta, Adagrad, Adamax, RMSprop
from minigrad.optim.optimizer import Optimizer
from minigrad.optim.sgd import SGD

__all__ = [
    "SGD",
    "Adadelta",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "Optimizer",
    "RMSprop",
    "lr_scheduler",
]


def __getattr__(name: str) -> Any:
    raise AttributeError(
        f"minigrad.optim has no {name!r} in this version; it has: "
        + ", ".join(n for n in __all__ if n[0].isupper())
    )
