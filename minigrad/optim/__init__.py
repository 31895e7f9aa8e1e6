"""Optimisers and learning-rate schedules, with torch.optim's names and arguments."""

from __future__ import annotations

from minigrad._names import namespace
from minigrad.optim import lr_scheduler, swa_utils
from minigrad.optim.adam import Adam, AdamW
from minigrad.optim.adaptive import Adadelta, Adagrad, Adamax, RMSprop
from minigrad.optim.lbfgs import LBFGS
from minigrad.optim.matrix import Adafactor, Muon
from minigrad.optim.optimizer import Optimizer
from minigrad.optim.per_parameter import ASGD, NAdam, RAdam, Rprop
from minigrad.optim.sgd import SGD
from minigrad.optim.sparse_adam import SparseAdam

__all__ = [
    "ASGD",
    "LBFGS",
    "SGD",
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "Muon",
    "NAdam",
    "Optimizer",
    "RAdam",
    "RMSprop",
    "Rprop",
    "SparseAdam",
    "lr_scheduler",
    "swa_utils",
]

__getattr__, __dir__ = namespace(__name__)
