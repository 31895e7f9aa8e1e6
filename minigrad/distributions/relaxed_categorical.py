"""The relaxed categorical distribution."""

from __future__ import annotations

import math
from typing import Any

from minigrad._names import namespace
from minigrad.distributions import constraints
from minigrad.distributions.categorical import Categorical
from minigrad.distributions.one_hot_categorical import OfCategorical
from minigrad.distributions.transformed_distribution import TransformedDistribution
from minigrad.distributions.transforms import ExpTransform
from minigrad.distributions.utils import broadcast_all, open_uniform
from minigrad.tensor import Tensor

__all__ = ["ExpRelaxedCategorical", "RelaxedOneHotCategorical"]


class ExpRelaxedCategorical(OfCategorical):
    """The logarithms of `RelaxedOneHotCategorical`: log_softmax of the logits plus Gumbel noise,
    over `temperature`."""

    has_rsample = True
    support = constraints.real_vector  # rather the part of it where exp has the sum 1

    def __init__(
        self,
        temperature: Any,
        probs: Tensor | None = None,
        logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        self._categorical = Categorical(probs, logits)
        self.temperature = temperature
        super().__init__(self._categorical.batch_shape, self.param_shape[-1:], validate_args)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        u = open_uniform(self._extended_shape(sample_shape), self.logits)
        scores = (self.logits - (-u.log()).log()) / self.temperature
        return scores.log_softmax(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        k = self._categorical._num_events
        logits, value = broadcast_all(self.logits, value)
        score = (logits - value * self.temperature).log_softmax(-1).sum(-1)
        return score + math.lgamma(k) + (k - 1) * self.temperature.log()


class RelaxedOneHotCategorical(TransformedDistribution):
    """Probabilities that approach the vectors of `OneHotCategorical` for small temperatures
    (Maddison, Mnih and Teh: The concrete distribution, 2017)."""

    has_rsample = True
    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    support = constraints.simplex

    def __init__(
        self,
        temperature: Any,
        probs: Tensor | None = None,
        logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        base = ExpRelaxedCategorical(temperature, probs, logits, validate_args=validate_args)
        super().__init__(base, ExpTransform(), validate_args=validate_args)

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
