"""The relaxed Bernoulli distribution."""

from __future__ import annotations

from typing import Any

import minigrad
from minigrad._names import namespace
from minigrad.distributions import constraints
from minigrad.distributions.distribution import Distribution
from minigrad.distributions.transformed_distribution import TransformedDistribution
from minigrad.distributions.transforms import SigmoidTransform
from minigrad.distributions.utils import Binary, broadcast_all, probs_to_logits
from minigrad.nn import functional as F
from minigrad.tensor import Tensor

__all__ = ["LogitRelaxedBernoulli", "RelaxedBernoulli"]


class LogitRelaxedBernoulli(Binary, Distribution):
    """The logits of `RelaxedBernoulli`: those of `probs` plus logistic noise, over
    `temperature`."""

    has_rsample = True
    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.real

    def __init__(
        self,
        temperature: Any,
        probs: Any = None,
        logits: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        self.temperature = temperature
        self._set(probs, logits)
        super().__init__(self.param_shape, validate_args=validate_args)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        u = minigrad.rand(shape, dtype=self._param.dtype, device=self._param.device)
        logits = probs_to_logits(self.probs, is_binary=True)
        return (probs_to_logits(u, is_binary=True) + logits) / self.temperature

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        logits, value = broadcast_all(self.logits, value)
        difference = logits - value * self.temperature
        return self.temperature.log() + difference - 2 * F.softplus(difference)


class RelaxedBernoulli(TransformedDistribution):
    """Numbers in (0, 1) that approach those of `Bernoulli` for small temperatures (Maddison, Mnih
    and Teh: The concrete distribution, 2017)."""

    has_rsample = True
    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.unit_interval

    def __init__(
        self,
        temperature: Any,
        probs: Any = None,
        logits: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        base = LogitRelaxedBernoulli(temperature, probs, logits)
        super().__init__(base, SigmoidTransform(), validate_args=validate_args)

    @property
    def temperature(self) -> Tensor:
        return self.base_dist.temperature

    @property
    def logits(self) -> Tensor:
        return self.base_dist.logits

    @property
    def probs(self) -> Tensor:
        return self.base_dist.probs


__getattr__, __dir__ = namespace(__name__)
