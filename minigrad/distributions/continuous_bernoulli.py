"""The continuous Bernoulli distribution."""

from __future__ import annotations

import math
from typing import Any

import minigrad
from minigrad._names import namespace
from minigrad.distributions import constraints
from minigrad.distributions.exp_family import ExponentialFamily
from minigrad.distributions.utils import (
    Binary,
    broadcast_all,
    clamp_probs,
    lazy_property,
    logits_to_probs,
)
from minigrad.nn import functional as F
from minigrad.tensor import Tensor

__all__ = ["ContinuousBernoulli"]


class ContinuousBernoulli(Binary, ExponentialFamily):
    """On [0, 1], with the density of x proportional to probs ** x * (1 - probs) ** (1 - x)
    (Loaiza-Ganem and Cunningham: The continuous Bernoulli, 2019).

    Its formulas are 0 / 0 at probs = 1/2: between `lims` their Taylor series are used.
    """

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.unit_interval
    has_rsample = True
    _mean_carrier_measure = 0

    def __init__(
        self,
        probs: Any = None,
        logits: Any = None,
        lims: tuple[float, float] = (0.499, 0.501),
        validate_args: bool | None = None,
    ) -> None:
        self._set(probs, logits)
        if probs is not None:
            valid = self.arg_constraints["probs"].check(self.probs)
            if validate_args is not None and not bool(valid.all()):
                raise ValueError("The parameter probs has invalid values")
            self.probs = clamp_probs(self.probs)
        self._lims = lims
        super().__init__(self.param_shape, validate_args=validate_args)

    @lazy_property
    def probs(self) -> Tensor:
        return clamp_probs(logits_to_probs(self.logits, is_binary=True))

    def _far(self) -> Tensor:
        """Where probs is not near 1/2."""
        return (self.probs <= self._lims[0]) | (self.probs > self._lims[1])

    def _safe(self) -> Tensor:
        """probs, with another value near 1/2, so that no formula divides by 0."""
        return minigrad.where(self._far(), self.probs, self._lims[0])

    def _cont_bern_log_norm(self) -> Tensor:
        p = self._safe()
        exact = _log_odds(p).abs().log() - (1 - 2 * p).abs().log()
        x = (self.probs - 0.5) ** 2
        taylor = math.log(2) + (4 / 3 + 104 / 45 * x) * x
        return minigrad.where(self._far(), exact, taylor)

    @property
    def mean(self) -> Tensor:
        p = self._safe()
        x = self.probs - 0.5
        taylor = 0.5 + (1 / 3 + 16 / 45 * x**2) * x
        return minigrad.where(self._far(), p / (2 * p - 1) - 1 / _log_odds(p), taylor)

    @property
    def variance(self) -> Tensor:
        p = self._safe()
        exact = p * (p - 1) / (1 - 2 * p) ** 2 + 1 / _log_odds(p) ** 2
        x = (self.probs - 0.5) ** 2
        taylor = 1 / 12 - (1 / 15 - 128 / 945 * x) * x
        return minigrad.where(self._far(), exact, taylor)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        return self.icdf(minigrad.rand(shape, dtype=self.probs.dtype, device=self.probs.device))

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        logits, value = broadcast_all(self.logits, value)
        powers = -F.binary_cross_entropy_with_logits(logits, value, reduction="none")
        return powers + self._cont_bern_log_norm()

    def cdf(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        p = self._safe()
        exact = (p**value * (1 - p) ** (1 - value) + p - 1) / (2 * p - 1)
        inside = minigrad.where(self._far(), exact, value)
        return inside.masked_fill(value <= 0, 0.0).masked_fill(value >= 1, 1.0)

    def icdf(self, value: Tensor) -> Tensor:
        p = self._safe()
        grown = (-p + value * (2 * p - 1)).log1p() - (-p).log1p()
        return minigrad.where(self._far(), grown / _log_odds(p), value)

    def entropy(self) -> Tensor:
        none, all_ = (-self.probs).log1p(), self.probs.log()
        return self.mean * (none - all_) - self._cont_bern_log_norm() - none

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return (self.probs.logit(),)

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        (x,) = natural_params
        near = (x > self._lims[0] - 0.5) & (x <= self._lims[1] - 0.5)
        safe = minigrad.where(near, (self._lims[0] - 0.5) * minigrad.ones_like(x), x)
        exact = (safe.exp() - 1).abs().log() - safe.abs().log()
        return minigrad.where(near, 0.5 * x + x**2 / 24 - x**4 / 2880, exact)


def _log_odds(p: Tensor) -> Tensor:
    return p.log() - (-p).log1p()


__getattr__, __dir__ = namespace(__name__)
