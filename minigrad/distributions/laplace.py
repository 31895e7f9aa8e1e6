"""The Laplace distribution."""

from __future__ import annotations

import math
from typing import Any

import minigrad
from minigrad._names import namespace
from minigrad.distributions.distribution import LocationScale
from minigrad.distributions.utils import open_uniform
from minigrad.tensor import Tensor

__all__ = ["Laplace"]


class Laplace(LocationScale):
    """The density exp(-|x - loc| / scale) / (2 scale)."""

    @property
    def mean(self) -> Tensor:
        return self.loc

    mode = mean

    @property
    def stddev(self) -> Tensor:
        return math.sqrt(2) * self.scale

    @property
    def variance(self) -> Tensor:
        return 2 * self.scale**2

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self.icdf(open_uniform(self._extended_shape(sample_shape), self.loc))

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return -(2 * self.scale).log() - (value - self.loc).abs() / self.scale

    def cdf(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        distance = value - self.loc
        return 0.5 - 0.5 * distance.sign() * minigrad.expm1(-distance.abs() / self.scale)

    def icdf(self, value: Tensor) -> Tensor:
        side = value - 0.5
        return self.loc - self.scale * side.sign() * minigrad.log1p(-2 * side.abs())

    def entropy(self) -> Tensor:
        return 1 + (2 * self.scale).log()


__getattr__, __dir__ = namespace(__name__)
