"""Student's t-distribution."""

from __future__ import annotations

import math
from typing import Any

import minigrad
from minigrad._names import namespace
from minigrad.distributions import constraints
from minigrad.distributions.chi2 import Chi2
from minigrad.distributions.distribution import Distribution
from minigrad.distributions.utils import _standard_normal, broadcast_all
from minigrad.tensor import Tensor

__all__ = ["StudentT"]


class StudentT(Distribution):
    """A normal number over the root of a chi-squared one per degree of freedom, times `scale`,
    plus `loc`."""

    has_rsample = True
    arg_constraints = {
        "df": constraints.positive,
        "loc": constraints.real,
        "scale": constraints.positive,
    }
    support = constraints.real

    def __init__(
        self, df: Any, loc: Any = 0.0, scale: Any = 1.0, validate_args: bool | None = None
    ) -> None:
        self.df, self.loc, self.scale = broadcast_all(df, loc, scale)
        self._chi2 = Chi2(self.df)
        super().__init__(self.df.shape, validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = super().expand(batch_shape, _instance)
        new._chi2 = self._chi2.expand(batch_shape)
        return new

    @property
    def mean(self) -> Tensor:
        return self.loc.masked_fill(self.df <= 1, math.nan)

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        variance = self.scale**2 * self.df / (self.df - 2)
        infinite = variance.masked_fill(self.df <= 2, math.inf)
        return infinite.masked_fill(self.df <= 1, math.nan)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        noise = _standard_normal(shape, self.df.dtype, self.df.device)
        ratio = noise * (self._chi2.rsample(sample_shape) / self.df).rsqrt()
        return self.loc + self.scale * ratio

    def _log_normalization(self) -> Tensor:
        root = self.scale.log() + 0.5 * self.df.log() + 0.5 * math.log(math.pi)
        return root + (0.5 * self.df).lgamma() - (0.5 * (self.df + 1)).lgamma()

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        distance = (value - self.loc) / self.scale
        power = -0.5 * (self.df + 1) * minigrad.log1p(distance**2 / self.df)
        return power - self._log_normalization()

    def entropy(self) -> Tensor:
        half, more = 0.5 * self.df, 0.5 * (self.df + 1)
        return more * (more.digamma() - half.digamma()) + self._log_normalization()


__getattr__, __dir__ = namespace(__name__)
