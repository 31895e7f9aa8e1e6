"""The generalized Pareto distribution."""

from __future__ import annotations

import math
from typing import Any

import minigrad
from minigrad._names import namespace
from minigrad.distributions import constraints
from minigrad.distributions.distribution import Distribution
from minigrad.distributions.utils import broadcast_all
from minigrad.tensor import Tensor

__all__ = ["GeneralizedPareto"]


class GeneralizedPareto(Distribution):
    """Above `loc`, with the probability (1 + concentration * z) ** (-1 / concentration) of more
    than z = (x - loc) / scale; exp(-z) where concentration is 0."""

    has_rsample = True
    arg_constraints = {
        "loc": constraints.real,
        "scale": constraints.positive,
        "concentration": constraints.real,
    }

    def __init__(
        self, loc: Any, scale: Any, concentration: Any, validate_args: bool | None = None
    ) -> None:
        self.loc, self.scale, self.concentration = broadcast_all(loc, scale, concentration)
        super().__init__(self.loc.shape, validate_args=validate_args)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> constraints.Constraint:
        ends = self.loc - self.scale / self.concentration
        return constraints.interval(
            self.loc, minigrad.where(self.concentration < 0, ends, math.inf)
        )

    def _cases(self) -> tuple[Tensor, Tensor]:
        """Where concentration is 0, and it with 1 in these places."""
        zero = self.concentration.abs() <= 1e-8
        return zero, self.concentration.masked_fill(zero, 1.0)

    @property
    def mean(self) -> Tensor:
        valid = self.concentration < 1
        mean = self.loc + self.scale / (1 - self.concentration.masked_fill(~valid, 0.5))
        return mean.masked_fill(~valid, math.nan)

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        valid = self.concentration < 0.5
        c = self.concentration.masked_fill(~valid, 0.25)
        variance = self.scale**2 / ((1 - c) ** 2 * (1 - 2 * c))
        return variance.masked_fill(~valid, math.nan)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        return self.icdf(minigrad.rand(shape, dtype=self.loc.dtype, device=self.loc.device))

    def log_survival_function(self, value: Tensor) -> Tensor:
        """The logarithm of the probability of more than `value`."""
        self._validate_sample(value)
        z = (value - self.loc) / self.scale
        zero, c = self._cases()
        return minigrad.where(zero, -z, -(c * z).log1p() / c)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        z = (value - self.loc) / self.scale
        zero, c = self._cases()
        power = 1 / c + 1
        logs = minigrad.where(power == 0, 0.0, power * (c * z).log1p())
        return -self.scale.log() - minigrad.where(zero, z, logs)

    def log_cdf(self, value: Tensor) -> Tensor:
        """The logarithm of `cdf`."""
        return (-self.log_survival_function(value).exp()).log1p()

    def cdf(self, value: Tensor) -> Tensor:
        return self.log_cdf(value).exp()

    def icdf(self, value: Tensor) -> Tensor:
        zero, c = self._cases()
        log = (-value).log1p()
        z = minigrad.where(zero, -log, (-c * log).expm1() / c)
        return self.loc + self.scale * z

    def entropy(self) -> Tensor:
        return self.scale.log() + self.concentration + 1


__getattr__, __dir__ = namespace(__name__)
