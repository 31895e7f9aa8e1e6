"""Mixtures of distributions of one kind."""

from __future__ import annotations

from typing import Any

import minigrad
from minigrad._names import namespace
from minigrad.distributions import constraints
from minigrad.distributions.categorical import Categorical
from minigrad.distributions.distribution import Distribution
from minigrad.tensor import Tensor

__all__ = ["MixtureSameFamily"]


class MixtureSameFamily(Distribution):
    """`mixture_distribution` picks one along the last batch dimension of
    `component_distribution`."""

    arg_constraints: Any = {}

    def __init__(
        self,
        mixture_distribution: Categorical,
        component_distribution: Distribution,
        validate_args: bool | None = None,
    ) -> None:
        mixture, component = mixture_distribution, component_distribution
        if not isinstance(mixture, Categorical):
            raise ValueError(
                " The Mixture distribution needs to be an  instance of "
                "minigrad.distributions.Categorical"
            )
        if not isinstance(component, Distribution):
            raise ValueError(
                "The Component distribution needs to be an instance of "
                "minigrad.distributions.Distribution"
            )
        of_mixture, batch = mixture.batch_shape, component.batch_shape[:-1]
        for i, j in zip(reversed(tuple(of_mixture)), reversed(tuple(batch))):
            if i != 1 and j != 1 and i != j:
                raise ValueError(
                    f"`mixture_distribution.batch_shape` ({of_mixture}) is not compatible with "
                    f"`component_distribution.batch_shape`({batch})"
                )
        count, components = mixture.param_shape[-1], component.batch_shape[-1]
        if count != components:
            raise ValueError(
                f"`mixture_distribution component` ({count}) does not equal "
                f"`component_distribution.batch_shape[-1]` ({components})"
            )
        self._mixture_distribution, self._component_distribution = mixture, component
        self._num_component, self._event_ndims = count, len(component.event_shape)
        super().__init__(batch, component.event_shape, validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = super().expand(batch_shape, _instance)
        shape = new._batch_shape
        new._component_distribution = self.component_distribution.expand(
            (*shape, self._num_component)
        )
        new._mixture_distribution = self.mixture_distribution.expand(shape)
        return new

    @constraints.dependent_property
    def support(self) -> constraints.Constraint:
        return constraints.MixtureSameFamilyConstraint(self.component_distribution.support)

    @property
    def mixture_distribution(self) -> Categorical:
        return self._mixture_distribution

    @property
    def component_distribution(self) -> Distribution:
        return self._component_distribution

    def _weights(self) -> Tensor:
        """The probabilities of the components, with dimensions of size 1 for the event."""
        probs = self.mixture_distribution.probs
        return probs.reshape(*probs.shape, *(1,) * self._event_ndims)

    def _pad(self, value: Tensor) -> Tensor:
        return value.unsqueeze(-1 - self._event_ndims)

    @property
    def mean(self) -> Tensor:
        dim = -1 - self._event_ndims
        return (self._weights() * self.component_distribution.mean).sum(dim)

    @property
    def variance(self) -> Tensor:
        component, weights, dim = (
            self.component_distribution,
            self._weights(),
            -1 - self._event_ndims,
        )
        within = (weights * component.variance).sum(dim)
        return within + (weights * (component.mean - self._pad(self.mean)) ** 2).sum(dim)

    def cdf(self, value: Tensor) -> Tensor:
        below = self.component_distribution.cdf(self._pad(value))
        return (below * self.mixture_distribution.probs).sum(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        logs = self.component_distribution.log_prob(self._pad(value))
        return (logs + self.mixture_distribution.logits.log_softmax(-1)).logsumexp(-1)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with minigrad.no_grad():
            values = self.component_distribution.sample(sample_shape)
            picked = self.mixture_distribution.sample(sample_shape)
            dim = len(sample_shape) + len(self._batch_shape)
            index = picked.reshape(*picked.shape, *(1,) * (values.dim() - picked.dim()))
            index = index.expand(*values.shape[:dim], 1, *self._event_shape)
            return values.gather(dim, index).squeeze(dim)

    def __repr__(self) -> str:
        parts = f"\n  {self.mixture_distribution},\n  {self.component_distribution}"
        return f"MixtureSameFamily({parts})"


__getattr__, __dir__ = namespace(__name__)
