"""The uniform distribution."""

from __future__ import annotations

from typing import Any

import minigrad
from minigrad.distributions.distribution import Constraint, Distribution, broadcast_all
from minigrad.tensor import Tensor


class Uniform(Distribution):
    """From `low` to `high`, which is excluded."""

    has_rsample = True

    def __init__(self, low: Any, high: Any, validate_args: bool | None = None) -> None:
        self.low, self.high = broadcast_all(low, high)
        super().__init__(self.low.shape, validate_args=validate_args)
        if self._validate_args and not bool((self.low < self.high).all()):
            raise ValueError(f"Uniform: expected low < high, got {self.low} and {self.high}")

    @property
    def support(self) -> Constraint:
        name = f"Interval(lower_bound={self.low}, upper_bound={self.high})"
        return Constraint(name, lambda v: (v >= self.low) & (v <= self.high))

    @property
    def mean(self) -> Tensor:
        return (self.high + self.low) / 2

    @property
    def mode(self) -> Tensor:
        return float("nan") * self.high

    @property
    def variance(self) -> Tensor:
        return (self.high - self.low) ** 2 / 12

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        noise = minigrad.rand(shape, dtype=self.low.dtype, device=self.low.device)
        return self.low + noise * (self.high - self.low)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        inside = (value >= self.low) & (value < self.high)
        return inside.to(self.low.dtype).log() - (self.high - self.low).log()

    def cdf(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return ((value - self.low) / (self.high - self.low)).clamp(0, 1)

    def icdf(self, value: Tensor) -> Tensor:
        return self.low + value * (self.high - self.low)

    def entropy(self) -> Tensor:
        return (self.high - self.low).log()

    def __repr__(self) -> str:
        low, high = (v if v.numel() == 1 else v.size() for v in (self.low, self.high))
        return f"Uniform(low: {low}, high: {high})"
