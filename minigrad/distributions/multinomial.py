"""The multinomial distribution."""

from __future__ import annotations

import math
from typing import Any

import minigrad
from minigrad._names import namespace
from minigrad.distributions import constraints
from minigrad.distributions.binomial import Binomial
from minigrad.distributions.categorical import Categorical
from minigrad.distributions.one_hot_categorical import OfCategorical
from minigrad.distributions.utils import broadcast_all
from minigrad.tensor import Size, Tensor

__all__ = ["Multinomial"]


class Multinomial(OfCategorical):
    """How often each of K values occurs in `total_count` samples of `Categorical`."""

    def __init__(
        self,
        total_count: int = 1,
        probs: Tensor | None = None,
        logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        if not isinstance(total_count, int):
            raise NotImplementedError("inhomogeneous total_count is not supported")
        self.total_count = total_count
        self._categorical = Categorical(probs, logits)
        super().__init__(self._categorical.batch_shape, self.param_shape[-1:], validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self) -> constraints.Constraint:
        return constraints.multinomial(self.total_count)

    @property
    def mean(self) -> Tensor:
        return self.probs * self.total_count

    @property
    def variance(self) -> Tensor:
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        shape = Size(sample_shape)
        drawn = self._categorical.sample((self.total_count, *shape)).movedim(0, -1)
        counts = minigrad.zeros(self._extended_shape(shape), dtype=minigrad.int64)
        counts = counts.to(drawn.device).scatter_add(-1, drawn, minigrad.ones_like(drawn))
        return counts.to(self.probs.dtype)

    def entropy(self) -> Tensor:
        n = self.total_count
        same_order = n * self._categorical.entropy() - math.lgamma(n + 1)
        one = Binomial(n, self.probs)
        counts = one.enumerate_support(expand=False)[1:]
        return same_order + (one.log_prob(counts).exp() * (counts + 1).lgamma()).sum([0, -1])

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        logits, value = broadcast_all(self.logits, value)
        logits = logits.masked_fill((value == 0) & (logits == -math.inf), 0.0)
        ways = (value.sum(-1) + 1).lgamma() - (value + 1).lgamma().sum(-1)
        return ways + (logits * value).sum(-1)


__getattr__, __dir__ = namespace(__name__)
