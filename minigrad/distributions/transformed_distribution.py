"""Distributions of transformed numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import minigrad
from minigrad._names import namespace
from minigrad.distributions import constraints
from minigrad.distributions._transform import ComposeTransform, Transform
from minigrad.distributions.distribution import Distribution
from minigrad.distributions.independent import Independent
from minigrad.distributions.utils import _sum_rightmost
from minigrad.tensor import Size, Tensor

__all__ = ["TransformedDistribution"]


class TransformedDistribution(Distribution):
    """What becomes of the samples of `base_distribution` by `transforms`, the first one first.

    A density is that of the base, divided by the absolute determinants of the Jacobians.
    """

    arg_constraints: Any = {}
    base_dist: Any

    def __init__(
        self,
        base_distribution: Distribution,
        transforms: Transform | Sequence[Transform],
        validate_args: bool | None = None,
    ) -> None:
        if isinstance(transforms, Transform):
            self.transforms = [transforms]
        elif isinstance(transforms, list):
            if not all(isinstance(t, Transform) for t in transforms):
                raise ValueError("transforms must be a Transform or a list of Transforms")
            self.transforms = transforms
        else:
            raise ValueError(f"transforms must be a Transform or list, but was {transforms}")
        whole = ComposeTransform(self.transforms)
        domain, codomain = whole.domain.event_dim, whole.codomain.event_dim
        base_dim = len(base_distribution.event_shape)
        base_shape = Size((*base_distribution.batch_shape, *base_distribution.event_shape))
        if len(base_shape) < domain:
            raise ValueError(
                f"base_distribution needs to have shape with size at least {domain}, but got "
                f"{base_shape}."
            )
        shape = whole.forward_shape(base_shape)
        needed = whole.inverse_shape(shape)
        if tuple(base_shape) != tuple(needed):  # parameters of transforms broadcast it
            base_distribution = base_distribution.expand(needed[: len(needed) - base_dim])
        if domain > base_dim:
            base_distribution = Independent(base_distribution, domain - base_dim)
        self.base_dist = base_distribution
        cut = len(shape) - max(codomain, base_dim + codomain - domain)
        super().__init__(shape[:cut], shape[cut:], validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = super().expand(batch_shape, _instance)
        shape = Size((*new._batch_shape, *self.event_shape))
        for transform in reversed(self.transforms):
            shape = transform.inverse_shape(shape)
        cut = len(shape) - len(self.base_dist.event_shape)
        new.base_dist = self.base_dist.expand(shape[:cut])
        return new

    @constraints.dependent_property(is_discrete=False)
    def support(self) -> constraints.Constraint:
        if not self.transforms:
            return self.base_dist.support
        support = self.transforms[-1].codomain
        more = len(self.event_shape) - support.event_dim
        return constraints.independent(support, more) if more > 0 else support

    @property
    def has_rsample(self) -> bool:  # type: ignore[override]
        return self.base_dist.has_rsample

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with minigrad.no_grad():
            return self._transformed(self.base_dist.sample(sample_shape))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self._transformed(self.base_dist.rsample(sample_shape))

    def _transformed(self, value: Tensor) -> Tensor:
        for transform in self.transforms:
            value = transform(value)
        return value

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        event_dim, logs = len(self.event_shape), []
        for transform in reversed(self.transforms):
            before = transform.inv(value)
            domain = transform.domain.event_dim
            event_dim += domain - transform.codomain.event_dim
            log = transform.log_abs_det_jacobian(before, value)
            logs.append(_sum_rightmost(log, event_dim - domain))
            value = before
        result = _sum_rightmost(
            self.base_dist.log_prob(value), event_dim - len(self.base_dist.event_shape)
        )
        for log in logs:
            result = result - log
        return result

    def _monotonize_cdf(self, value: Tensor) -> Tensor:
        """1 - value where the transforms are decreasing."""
        sign: Any = 1
        for transform in self.transforms:
            sign = sign * transform.sign
        if isinstance(sign, int) and sign == 1:
            return value
        return sign * (value - 0.5) + 0.5

    def cdf(self, value: Tensor) -> Tensor:
        for transform in reversed(self.transforms):
            value = transform.inv(value)
        self.base_dist._validate_sample(value)
        return self._monotonize_cdf(self.base_dist.cdf(value))

    def icdf(self, value: Tensor) -> Tensor:
        return self._transformed(self.base_dist.icdf(self._monotonize_cdf(value)))


__getattr__, __dir__ = namespace(__name__)
