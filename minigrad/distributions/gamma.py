"""The gamma distribution."""

from __future__ import annotations

from typing import Any

import minigrad
from minigrad._names import namespace
from minigrad.distributions import constraints
from minigrad.distributions.exp_family import ExponentialFamily
from minigrad.distributions.utils import broadcast_all
from minigrad.tensor import Tensor

__all__ = ["Gamma"]


class Gamma(ExponentialFamily):
    """The density of x proportional to x ** (concentration - 1) * exp(-rate * x)."""

    has_rsample = True
    arg_constraints = {"concentration": constraints.positive, "rate": constraints.positive}
    support = constraints.nonnegative
    _mean_carrier_measure = 0

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None) -> None:
        self.concentration, self.rate = broadcast_all(concentration, rate)
        super().__init__(self.concentration.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.concentration / self.rate

    @property
    def mode(self) -> Tensor:
        return ((self.concentration - 1) / self.rate).clamp(min=0)

    @property
    def variance(self) -> Tensor:
        return self.concentration / self.rate**2

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        value = minigrad._standard_gamma(self.concentration.expand(shape)) / self.rate.expand(shape)
        value.detach().clamp_(min=minigrad.finfo(value.dtype).tiny)  # 0 is not in the support
        return value

    def log_prob(self, value: Tensor) -> Tensor:
        value = minigrad.as_tensor(value, dtype=self.rate.dtype, device=self.rate.device)
        self._validate_sample(value)
        a = self.concentration
        return (
            minigrad.xlogy(a, self.rate)
            + minigrad.xlogy(a - 1, value)
            - (self.rate * value + a.lgamma())
        )

    def cdf(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return minigrad.special.gammainc(*broadcast_all(self.concentration, self.rate * value))

    def entropy(self) -> Tensor:
        a = self.concentration
        return a - self.rate.log() + a.lgamma() + (1 - a) * a.digamma()

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return self.concentration - 1, -self.rate

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        x, y = natural_params
        return (x + 1).lgamma() + (x + 1) * (-1 / y).log()


__getattr__, __dir__ = namespace(__name__)
