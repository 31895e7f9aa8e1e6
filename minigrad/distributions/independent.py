"""Batch dimensions as dimensions of the event."""

from __future__ import annotations

from typing import Any

from minigrad.distributions.distribution import Distribution
from minigrad.tensor import Tensor


class Independent(Distribution):
    """`base_distribution` whose last `reinterpreted_batch_ndims` batch dimensions are part of the
    event: their log-probabilities are added."""

    def __init__(
        self,
        base_distribution: Distribution,
        reinterpreted_batch_ndims: int,
        validate_args: bool | None = None,
    ) -> None:
        count, shape = reinterpreted_batch_ndims, base_distribution.batch_shape
        if count > len(shape):
            raise ValueError(
                "Expected reinterpreted_batch_ndims <= len(base_distribution.batch_shape), actual "
                f"{count} vs {len(shape)}"
            )
        self.base_dist, self.reinterpreted_batch_ndims = base_distribution, count
        kept = len(shape) - count
        event = (*shape[kept:], *base_distribution.event_shape)
        super().__init__(shape[:kept], event, validate_args)

    @property
    def has_rsample(self) -> bool:
        return self.base_dist.has_rsample

    @property
    def mean(self) -> Tensor:
        return self.base_dist.mean

    @property
    def mode(self) -> Tensor:
        return self.base_dist.mode

    @property
    def variance(self) -> Tensor:
        return self.base_dist.variance

    def sample(self, sample_shape: Any = ()) -> Tensor:
        return self.base_dist.sample(sample_shape)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self.base_dist.rsample(sample_shape)

    def log_prob(self, value: Tensor) -> Tensor:
        return self._added(self.base_dist.log_prob(value))

    def entropy(self) -> Tensor:
        return self._added(self.base_dist.entropy())

    def _added(self, value: Tensor) -> Tensor:
        count = self.reinterpreted_batch_ndims
        return value.sum(list(range(-count, 0))) if count else value

    def __repr__(self) -> str:
        return f"Independent({self.base_dist!r}, {self.reinterpreted_batch_ndims})"
