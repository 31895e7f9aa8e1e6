"""The half-Cauchy distribution."""

from __future__ import annotations

import math

import minigrad
from minigrad._names import namespace
from minigrad.distributions.cauchy import Cauchy
from minigrad.distributions.half_normal import Half
from minigrad.tensor import Tensor

__all__ = ["HalfCauchy"]


class HalfCauchy(Half):
    """The absolute value of a Cauchy number around 0."""

    _whole = Cauchy

    @property
    def mean(self) -> Tensor:
        return minigrad.full_like(self.scale, math.inf)

    @property
    def variance(self) -> Tensor:
        return self.base_dist.variance


__getattr__, __dir__ = namespace(__name__)
