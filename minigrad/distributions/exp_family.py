"""The exponential family."""

from __future__ import annotations

from typing import Any

import minigrad
from minigrad._names import namespace
from minigrad.distributions.distribution import Distribution
from minigrad.tensor import Tensor

__all__ = ["ExponentialFamily"]


class ExponentialFamily(Distribution):
    """Distributions with the density exp(<t(x), theta> - F(theta) + k(x)): `_natural_params` are
    theta, `_log_normalizer` is F, and `_mean_carrier_measure` the mean of k."""

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        raise NotImplementedError

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        raise NotImplementedError

    @property
    def _mean_carrier_measure(self) -> Any:
        raise NotImplementedError

    def entropy(self) -> Tensor:
        """F - <theta, grad F> - the mean of k (Nielsen and Nock: Entropies and cross-entropies of
        exponential families, 2010)."""
        params = [p.detach().requires_grad_() for p in self._natural_params]
        log_normalizer = self._log_normalizer(*params)
        grads = minigrad.autograd.grad(log_normalizer.sum(), params, create_graph=True)
        result = log_normalizer - self._mean_carrier_measure
        for param, grad in zip(params, grads):
            result = result - (param * grad).reshape(*self._batch_shape, -1).sum(-1)
        return result


__getattr__, __dir__ = namespace(__name__)
