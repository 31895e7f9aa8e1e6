"""Kullback-Leibler divergences, by the classes of both distributions."""

from __future__ import annotations

import math
from collections.abc import Callable

from minigrad.distributions.bernoulli import Bernoulli
from minigrad.distributions.categorical import Categorical
from minigrad.distributions.distribution import Distribution
from minigrad.distributions.independent import Independent
from minigrad.distributions.multivariate_normal import MultivariateNormal, inverse_lower
from minigrad.distributions.normal import Normal
from minigrad.distributions.uniform import Uniform
from minigrad.nn import functional as F
from minigrad.tensor import Tensor

_REGISTRY: dict[tuple[type, type], Callable] = {}


def register_kl(type_p: type, type_q: type) -> Callable:
    """Decorator: a function of (p, q) for two classes."""

    def register(function: Callable) -> Callable:
        _REGISTRY[type_p, type_q] = function
        return function

    return register


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """The mean under p of log p - log q, in nats, of shape `batch_shape`. NotImplementedError where
    no formula is registered."""
    for first in type(p).__mro__:
        for second in type(q).__mro__:
            if (first, second) in _REGISTRY:
                return _REGISTRY[first, second](p, q)
    raise NotImplementedError(
        f"No KL(p || q) is implemented for p type {type(p).__name__} and q type {type(q).__name__}"
    )


@register_kl(Normal, Normal)
def _normal(p: Normal, q: Normal) -> Tensor:
    ratio = (p.scale / q.scale) ** 2
    return 0.5 * (ratio + ((p.loc - q.loc) / q.scale) ** 2 - 1 - ratio.log())


@register_kl(Bernoulli, Bernoulli)
def _bernoulli(p: Bernoulli, q: Bernoulli) -> Tensor:
    one, zero = F.softplus(-q.logits) - F.softplus(-p.logits), F.softplus(q.logits)
    return p.probs * one + (1 - p.probs) * (zero - F.softplus(p.logits))


@register_kl(Categorical, Categorical)
def _categorical(p: Categorical, q: Categorical) -> Tensor:
    parts = p.probs * (p.logits - q.logits)
    parts = parts.masked_fill((q.probs == 0).expand_as(parts), math.inf)
    return parts.masked_fill((p.probs == 0).expand_as(parts), 0.0).sum(-1)


@register_kl(Uniform, Uniform)
def _uniform(p: Uniform, q: Uniform) -> Tensor:
    result = ((q.high - q.low) / (p.high - p.low)).log()
    return result.masked_fill((q.low > p.low) | (q.high < p.high), math.inf)


@register_kl(MultivariateNormal, MultivariateNormal)
def _multivariate_normal(p: MultivariateNormal, q: MultivariateNormal) -> Tensor:
    inverse = inverse_lower(q._lower)
    trace = ((inverse @ p._lower) ** 2).flatten(-2).sum(-1)
    distance = ((inverse @ (q.loc - p.loc).unsqueeze(-1)) ** 2).flatten(-2).sum(-1)
    logs = q._half_log_det() - p._half_log_det()
    return logs + 0.5 * (trace + distance - p.event_shape[0])


@register_kl(Independent, Independent)
def _independent(p: Independent, q: Independent) -> Tensor:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotImplementedError("kl_divergence: different reinterpreted_batch_ndims")
    return p._added(kl_divergence(p.base_dist, q.base_dist))
