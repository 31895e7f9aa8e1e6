"""Learning-rate schedules: each writes ``group["lr"]`` of its optimiser when stepped.

Most are written as torch writes them, as the step from the current rate to the next: schedules
then chain, and a rate that the user changed in between is respected.
"""

from minigrad.optim.lr_scheduler.base import LRScheduler
from minigrad.optim.lr_scheduler.composed import ChainedScheduler, SequentialLR
from minigrad.optim.lr_scheduler.cycles import CosineAnnealingWarmRestarts, OneCycleLR
from minigrad.optim.lr_scheduler.decay import (
    ConstantLR,
    CosineAnnealingLR,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    MultiplicativeLR,
    MultiStepLR,
    PolynomialLR,
    StepLR,
)
from minigrad.optim.lr_scheduler.plateau import ReduceLROnPlateau

_LRScheduler = LRScheduler  # the name before torch 2.0, still subclassed by programs

__all__ = [
    "ChainedScheduler",
    "ConstantLR",
    "CosineAnnealingLR",
    "CosineAnnealingWarmRestarts",
    "ExponentialLR",
    "LRScheduler",
    "LambdaLR",
    "LinearLR",
    "MultiStepLR",
    "MultiplicativeLR",
    "OneCycleLR",
    "PolynomialLR",
    "ReduceLROnPlateau",
    "SequentialLR",
    "StepLR",
]
