"""Optimisers and learning-rate schedules, with torch.optim's names and arguments."""

from __future__ import annotations

from minigrad._names import refuse
from minigrad.optim import lr_scheduler
from minigrad.optim.adam import Adam, AdamW
from minigrad.optim.adaptive import Adadelta, Adagrad, Adamax, RMSprop
from minigrad.optim.lbfgs import LBFGS
from minigrad.optim.optimizer import Optimizer
from minigrad.optim.per_parameter import ASGD, NAdam, RAdam, Rprop
from minigrad.optim.sgd import SGD

__all__ = [
    "ASGD",
    "LBFGS",
    "SGD",
    "Adadelta",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "NAdam",
    "Optimizer",
    "RAdam",
    "RMSprop",
    "Rprop",
    "lr_scheduler",
]

__getattr__ = refuse(__name__)
