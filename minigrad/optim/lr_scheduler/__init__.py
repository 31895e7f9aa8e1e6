"""Learning-rate schedules: each `step` sets ``group["lr"]`` of the optimiser.

As in torch, most compute the next rate from the current one, so schedules can be chained and a rate
that the user changed is respected.
"""

from minigrad._names import namespace
from minigrad.optim.lr_scheduler.base import LRScheduler
from minigrad.optim.lr_scheduler.composed import ChainedScheduler, SequentialLR
from minigrad.optim.lr_scheduler.cycles import CosineAnnealingWarmRestarts, CyclicLR, OneCycleLR
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


class _LRScheduler(LRScheduler):
    """The name before torch 2.0, which programs still subclass."""


__all__ = [
    "ChainedScheduler",
    "ConstantLR",
    "CosineAnnealingLR",
    "CosineAnnealingWarmRestarts",
    "CyclicLR",
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

__getattr__, __dir__ = namespace(__name__)
