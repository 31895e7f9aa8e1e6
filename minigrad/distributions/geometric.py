"""The geometric distribution."""

from __future__ import annotations

from typing import Any

import minigrad
from minigrad._names import namespace
from minigrad.distributions import constraints
from minigrad.distributions.distribution import Distribution
from minigrad.distributions.utils import Binary, broadcast_all, open_uniform
from minigrad.nn import functional as F
from minigrad.tensor import Tensor

__all__ = ["Geometric"]


class Geometric(Binary, Distribution):
    """The number of failures before the first success of probability `probs` =
    sigmoid(`logits`)."""

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.nonnegative_integer

    def __init__(
        self, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        self._set(probs, logits)
        super().__init__(self.param_shape, validate_args=validate_args)
        if self._validate_args and probs is not None and not bool((self.probs > 0).all()):
            value = self.probs
            raise ValueError(
                f"Expected parameter probs ({type(value).__name__} of shape "
                f"{tuple(value.shape)}) of distribution {self!r} to be positive but found invalid "
                f"values:\n{value.detach()[value <= 0]}"
            )

    @property
    def mean(self) -> Tensor:
        return 1 / self.probs - 1

    @property
    def mode(self) -> Tensor:
        return minigrad.zeros_like(self.probs)

    @property
    def variance(self) -> Tensor:
        return (1 / self.probs - 1) / self.probs

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with minigrad.no_grad():
            u = open_uniform(self._extended_shape(sample_shape), self.probs)
            return (u.log() / (-self.probs).log1p()).floor()

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        value, probs = broadcast_all(value, self.probs)
        # 0 * log(0) is 0
        failures = probs.masked_fill((probs == 1) & (value == 0), 0.0)
        return value * (-failures).log1p() + self.probs.log()

    def entropy(self) -> Tensor:
        one = F.binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none")
        return one / self.probs


__getattr__, __dir__ = namespace(__name__)
