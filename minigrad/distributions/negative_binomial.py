"""The negative binomial distribution."""

from __future__ import annotations

from typing import Any

import minigrad
from minigrad._names import namespace
from minigrad.distributions import constraints
from minigrad.distributions.distribution import Distribution
from minigrad.distributions.gamma import Gamma
from minigrad.distributions.utils import Binary
from minigrad.nn import functional as F
from minigrad.tensor import Tensor

__all__ = ["NegativeBinomial"]


class NegativeBinomial(Binary, Distribution):
    """The number of successes of probability `probs` = sigmoid(`logits`) before `total_count`
    failures; `total_count` may be any nonnegative number."""

    arg_constraints = {
        "total_count": constraints.greater_than_eq(0),
        "probs": constraints.half_open_interval(0.0, 1.0),
        "logits": constraints.real,
    }
    support = constraints.nonnegative_integer

    def __init__(
        self,
        total_count: Any,
        probs: Any = None,
        logits: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        (count,) = self._set(probs, logits, total_count)
        self.total_count = count.type_as(self._param)
        super().__init__(self.param_shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.total_count * self.logits.exp()

    @property
    def mode(self) -> Tensor:
        return ((self.total_count - 1) * self.logits.exp()).floor().clamp(min=0)

    @property
    def variance(self) -> Tensor:
        return self.mean / (-self.logits).sigmoid()

    def sample(self, sample_shape: Any = ()) -> Tensor:
        # not validated, since total_count may be 0
        rates = Gamma(self.total_count, (-self.logits).exp(), validate_args=False)
        with minigrad.no_grad():
            return minigrad.poisson(rates.sample(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        n = self.total_count
        powers = n * F.logsigmoid(-self.logits) + value * F.logsigmoid(self.logits)
        ways = (n + value).lgamma() - (1 + value).lgamma() - n.lgamma()
        return powers + ways.masked_fill(n + value == 0, 0.0)


__getattr__, __dir__ = namespace(__name__)
