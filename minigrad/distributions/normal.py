"""The normal distribution."""

from __future__ import annotations

import math
from typing import Any

from minigrad._names import namespace
from minigrad.distributions.distribution import LocationScale
from minigrad.distributions.exp_family import ExponentialFamily
from minigrad.distributions.utils import _standard_normal
from minigrad.tensor import Tensor

__all__ = ["Normal"]


class Normal(LocationScale, ExponentialFamily):
    """Mean `loc`, standard deviation `scale`."""

    _mean_carrier_measure = 0

    @property
    def mean(self) -> Tensor:
        return self.loc

    mode = mean

    @property
    def stddev(self) -> Tensor:
        return self.scale

    @property
    def variance(self) -> Tensor:
        return self.scale**2

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        return self.loc + _standard_normal(shape, self.loc.dtype, self.loc.device) * self.scale

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        distance = (value - self.loc) / self.scale
        return -0.5 * distance**2 - self.scale.log() - 0.5 * math.log(2 * math.pi)

    def cdf(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return 0.5 * (1 + ((value - self.loc) / (self.scale * math.sqrt(2))).erf())

    def icdf(self, value: Tensor) -> Tensor:
        return self.loc + self.scale * (2 * value - 1).erfinv() * math.sqrt(2)

    def entropy(self) -> Tensor:
        return 0.5 + 0.5 * math.log(2 * math.pi) + self.scale.log()

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        variance = self.variance
        return self.loc / variance, -0.5 / variance

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        x, y = natural_params
        return -0.25 * x**2 / y + 0.5 * (-math.pi / y).log()


__getattr__, __dir__ = namespace(__name__)
