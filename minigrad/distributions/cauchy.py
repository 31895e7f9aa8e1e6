"""The Cauchy distribution."""

from __future__ import annotations

import math
from typing import Any

import minigrad
from minigrad._names import namespace
from minigrad.distributions.distribution import LocationScale
from minigrad.distributions.utils import open_uniform
from minigrad.tensor import Tensor

__all__ = ["Cauchy"]


class Cauchy(LocationScale):
    """The ratio of two normal numbers, times `scale`, plus `loc`: it has no mean."""

    @property
    def mean(self) -> Tensor:
        return minigrad.full_like(self.loc, math.nan)

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return minigrad.full_like(self.loc, math.inf)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self.icdf(open_uniform(self._extended_shape(sample_shape), self.loc))

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        distance = (value - self.loc) / self.scale
        return -math.log(math.pi) - self.scale.log() - (distance**2).log1p()

    def cdf(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return ((value - self.loc) / self.scale).atan() / math.pi + 0.5

    def icdf(self, value: Tensor) -> Tensor:
        return (math.pi * (value - 0.5)).tan() * self.scale + self.loc

    def entropy(self) -> Tensor:
        return math.log(4 * math.pi) + self.scale.log()


__getattr__, __dir__ = namespace(__name__)
