"""The categorical distribution."""

from __future__ import annotations

from typing import Any

import minigrad
from minigrad._names import missing_attribute
from minigrad.distributions._probabilities import clamped, one_of
from minigrad.distributions.distribution import REAL_VECTOR, SIMPLEX, Constraint, Distribution
from minigrad.ops.pointwise import broadcast_shape
from minigrad.tensor import Size, Tensor


class Categorical(Distribution):
    """One of 0 .. K-1, with probabilities `probs` (..., K), which are normalised, or the logarithms
    `logits` of such, up to a constant. One of both is given."""

    arg_constraints = {"probs": SIMPLEX, "logits": REAL_VECTOR}  # noqa: RUF012

    def __init__(
        self,
        probs: Tensor | None = None,
        logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        one_of(probs, logits)
        given = logits if probs is None else probs
        if given.dim() < 1:
            name = "logits" if probs is None else "probs"
            raise ValueError(f"`{name}` parameter must be at least one-dimensional.")
        if probs is not None:
            self.probs = probs / probs.sum(-1, keepdim=True)
        else:
            self.logits = logits - logits.logsumexp(-1, keepdim=True)
        self._events = given.shape[-1]
        super().__init__(given.shape[:-1], validate_args=validate_args)

    def __getattr__(self, name: str) -> Tensor:
        """Reached for the one of probs and logits that was not given."""
        if name == "probs" and "logits" in self.__dict__:
            self.probs = self.logits.softmax(-1)
        elif name == "logits" and "probs" in self.__dict__:
            self.logits = clamped(self.probs).log()
        else:
            raise missing_attribute(self, name)
        return self.__dict__[name]

    @property
    def support(self) -> Constraint:
        top = self._events - 1
        name = f"IntegerInterval(lower_bound=0, upper_bound={top})"
        return Constraint(name, lambda v: (v % 1 == 0) & (v >= 0) & (v <= top))

    @property
    def mean(self) -> Tensor:
        return minigrad.full(self._batch_shape, float("nan"), dtype=self.probs.dtype)

    @property
    def mode(self) -> Tensor:
        return self.probs.argmax(-1)

    variance = mean

    def sample(self, sample_shape: Any = ()) -> Tensor:
        shape = Size(sample_shape)
        rows = self.probs.detach().reshape(-1, self._events)
        drawn = minigrad.multinomial(rows, shape.numel(), True)
        return drawn.T.reshape(self._extended_shape(shape))

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        value = value.long().unsqueeze(-1)
        shape = broadcast_shape(value.shape[:-1], self.logits.shape[:-1])
        logits = self.logits.expand(*shape, self._events)
        return logits.gather(-1, value.expand(*shape, 1)).squeeze(-1)

    def entropy(self) -> Tensor:
        low = minigrad.finfo(self.logits.dtype).min
        return -(self.logits.clamp(min=low) * self.probs).sum(-1)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All values, along a new first dimension."""
        values = minigrad.arange(self._events, device=self.probs.device)
        values = values.reshape(-1, *(1,) * len(self._batch_shape))
        return values.expand(-1, *self._batch_shape) if expand else values
