"""The Bernoulli distribution."""

from __future__ import annotations

from typing import Any

import minigrad
from minigrad._names import missing_attribute
from minigrad.distributions._probabilities import clamped, one_of
from minigrad.distributions.distribution import (
    BOOLEAN,
    REAL,
    UNIT_INTERVAL,
    Distribution,
    broadcast_all,
)
from minigrad.nn import functional as F
from minigrad.tensor import Tensor


class Bernoulli(Distribution):
    """1 with probability `probs` = sigmoid(`logits`), else 0. One of both is given."""

    arg_constraints = {"probs": UNIT_INTERVAL, "logits": REAL}  # noqa: RUF012
    support = BOOLEAN

    def __init__(
        self, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        one_of(probs, logits)
        if probs is not None:
            (self.probs,) = broadcast_all(probs)
        else:
            (self.logits,) = broadcast_all(logits)
        given = self.__dict__.get("probs", self.__dict__.get("logits"))
        super().__init__(given.shape, validate_args=validate_args)

    def __getattr__(self, name: str) -> Tensor:
        """Reached for the one of probs and logits that was not given."""
        if name == "probs" and "logits" in self.__dict__:
            self.probs = self.logits.sigmoid()
        elif name == "logits" and "probs" in self.__dict__:
            probs = clamped(self.probs)
            self.logits = probs.log() - (-probs).log1p()
        else:
            raise missing_attribute(self, name)
        return self.__dict__[name]

    @property
    def mean(self) -> Tensor:
        return self.probs

    @property
    def mode(self) -> Tensor:
        mode = (self.probs >= 0.5).to(self.probs.dtype)
        return mode.masked_fill(self.probs == 0.5, float("nan"))

    @property
    def variance(self) -> Tensor:
        return self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with minigrad.no_grad():
            return minigrad.bernoulli(self.probs.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        logits, value = minigrad.broadcast_tensors(self.logits, value)
        return -F.binary_cross_entropy_with_logits(logits, value, reduction="none")

    def entropy(self) -> Tensor:
        return F.binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none")
