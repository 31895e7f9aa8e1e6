"""The categorical distribution."""

from __future__ import annotations

import math
from typing import Any

import minigrad
from minigrad._names import namespace
from minigrad.distributions import constraints
from minigrad.distributions.distribution import Distribution
from minigrad.distributions.utils import (
    lazy_property,
    logits_to_probs,
    one_of,
    probs_to_logits,
)
from minigrad.ops.pointwise import broadcast_shape
from minigrad.tensor import Size, Tensor

__all__ = ["Categorical"]


class Categorical(Distribution):
    """One of 0 .. K-1, with probabilities `probs` (..., K), which are normalised, or the logarithms
    `logits` of such, up to a constant. One of both is given."""

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    has_enumerate_support = True

    def __init__(
        self,
        probs: Tensor | None = None,
        logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        one_of(probs, logits)
        name, given = ("logits", logits) if probs is None else ("probs", probs)
        assert given is not None
        if given.dim() < 1:
            raise ValueError(f"`{name}` parameter must be at least one-dimensional.")
        if probs is not None:
            self.probs = given / given.sum(-1, keepdim=True)
        else:
            self.logits = given - given.logsumexp(-1, keepdim=True)
        self._num_events = given.shape[-1]
        super().__init__(given.shape[:-1], validate_args=validate_args)

    @lazy_property
    def logits(self) -> Tensor:
        return probs_to_logits(self.probs)

    @lazy_property
    def probs(self) -> Tensor:
        return logits_to_probs(self.logits)

    @property
    def _param(self) -> Tensor:
        return vars(self).get("probs", vars(self).get("logits"))  # type: ignore[return-value]

    @property
    def param_shape(self) -> Size:
        """The shape of the parameter that was given."""
        return self._param.shape

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> constraints.Constraint:
        return constraints.integer_interval(0, self._num_events - 1)

    @property
    def mean(self) -> Tensor:
        return self._param.new_full(self._batch_shape, math.nan)

    variance = mean

    @property
    def mode(self) -> Tensor:
        return self.probs.argmax(-1)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        shape = Size(sample_shape)
        rows = self.probs.detach().reshape(-1, self._num_events)
        drawn = minigrad.multinomial(rows, shape.numel(), True)
        return drawn.T.reshape(self._extended_shape(shape))

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        value = value.long().unsqueeze(-1)
        shape = broadcast_shape(value.shape[:-1], self.logits.shape[:-1])
        logits = self.logits.expand(*shape, self._num_events)
        return logits.gather(-1, value.expand(*shape, 1)).squeeze(-1)

    def entropy(self) -> Tensor:
        low = minigrad.finfo(self.logits.dtype).min
        return -(self.logits.clamp(min=low) * self.probs).sum(-1)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        values = minigrad.arange(self._num_events, device=self._param.device)
        return self._along_batch(values, expand)


__getattr__, __dir__ = namespace(__name__)
