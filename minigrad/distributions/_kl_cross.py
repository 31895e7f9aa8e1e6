"""Divergences between distributions of different classes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import minigrad
from minigrad.distributions.bernoulli import Bernoulli
from minigrad.distributions.beta import Beta
from minigrad.distributions.binomial import Binomial
from minigrad.distributions.continuous_bernoulli import ContinuousBernoulli
from minigrad.distributions.distribution import Distribution
from minigrad.distributions.exponential import Exponential
from minigrad.distributions.gamma import Gamma
from minigrad.distributions.gumbel import Gumbel
from minigrad.distributions.kl import register_kl
from minigrad.distributions.laplace import Laplace
from minigrad.distributions.normal import Normal
from minigrad.distributions.pareto import Pareto
from minigrad.distributions.poisson import Poisson
from minigrad.distributions.uniform import Uniform
from minigrad.distributions.utils import euler_constant
from minigrad.tensor import Tensor

# KL(p || q) is -entropy(p) minus the mean under p of log q, and the log q of these classes is
# linear in a few statistics of x, whose means under p follow. Where q is 0 on a part of p's
# support, it is infinite.


def _log_integral(x: Tensor) -> Tensor:
    """The integral of log from 0 to x."""
    return minigrad.xlogy(x, x) - x


def _uniform_mean_log(p: Uniform) -> Tensor:
    return (_log_integral(p.high) - _log_integral(p.low)) / (p.high - p.low)


_MEAN_LOG: dict[type, Callable[[Any], Tensor]] = {
    Beta: lambda p: p.concentration1.digamma() - (p.concentration1 + p.concentration0).digamma(),
    Exponential: lambda p: -euler_constant - p.rate.log(),
    Gamma: lambda p: p.concentration.digamma() - p.rate.log(),
    Pareto: lambda p: p.scale.log() + 1 / p.alpha,
    Uniform: _uniform_mean_log,
}
"""The mean of log(x)."""

_MEAN_EXP: dict[type, Callable[[Any, Tensor], Tensor]] = {
    Exponential: lambda p, s: p.rate / (p.rate + 1 / s),
    Gamma: lambda p, s: (1 + 1 / (p.rate * s)) ** -p.concentration,
    Normal: lambda p, s: (-p.loc / s + 0.5 * (p.scale / s) ** 2).exp(),
    Uniform: lambda p, s: s * ((-p.low / s).exp() - (-p.high / s).exp()) / (p.high - p.low),
}
"""The mean of exp(-x / s)."""


def _mean(table: dict[type, Callable], p: Distribution, *args: Tensor) -> Tensor:
    """The entry of a table for the class of p or the first of its bases."""
    return next(table[kind] for kind in type(p).__mro__ if kind in table)(p, *args)


def _mean_distance(p: Normal, loc: Tensor) -> Tensor:
    """The mean of |x - loc|."""
    z = (p.loc - loc) / p.scale
    density = math.sqrt(2 / math.pi) * (-0.5 * z**2).exp()
    return p.scale * (density + z * (z / math.sqrt(2)).erf())


def _of_normal(p: Any, q: Normal) -> Tensor:
    square = p.variance + (p.mean - q.loc) ** 2
    return -q.scale.log() - 0.5 * math.log(2 * math.pi) - square / (2 * q.scale**2)


def _of_gamma(p: Any, q: Gamma) -> Tensor:
    a = q.concentration
    logs = (a - 1) * _mean(_MEAN_LOG, p)
    return a * q.rate.log() - a.lgamma() + logs - q.rate * p.mean


def _of_beta(p: Any, q: Beta) -> Tensor:
    a, b = q.concentration1, q.concentration0
    from_end = _uniform_mean_log(Uniform(1 - p.high, 1 - p.low, validate_args=False))
    logs = (a - 1) * _uniform_mean_log(p) + (b - 1) * from_end
    return logs - (a.lgamma() + b.lgamma() - (a + b).lgamma())


def _of_gumbel(p: Any, q: Gumbel) -> Tensor:
    grown = (q.loc / q.scale).exp() * _mean(_MEAN_EXP, p, q.scale)
    return (q.loc - p.mean) / q.scale - grown - q.scale.log()


def _of_pareto(p: Any, q: Pareto) -> Tensor:
    return q.alpha.log() + q.alpha * q.scale.log() - (q.alpha + 1) * _mean(_MEAN_LOG, p)


_MEAN_LOG_PROB: dict[type, Callable[[Any, Any], Tensor]] = {
    Beta: _of_beta,
    ContinuousBernoulli: lambda p, q: (
        p.mean * q.logits + (-q.probs).log1p() + q._cont_bern_log_norm()
    ),
    Exponential: lambda p, q: q.rate.log() - q.rate * p.mean,
    Gamma: _of_gamma,
    Gumbel: _of_gumbel,
    Laplace: lambda p, q: -(2 * q.scale).log() - _mean_distance(p, q.loc) / q.scale,
    Normal: _of_normal,
    Pareto: _of_pareto,
    Poisson: lambda p, q: p.mean * q.rate.log() - q.rate,  # of 0 and 1
    Uniform: lambda p, q: -(q.high - q.low).log(),
}
"""The mean under p of log q, by the class of q."""


def _ends(distribution: Distribution) -> tuple[Any, Any]:
    support = distribution.support
    low, high = (getattr(support, f"{end}_bound", None) for end in ("lower", "upper"))
    return -math.inf if low is None else low, math.inf if high is None else high


def _cross(p: Distribution, q: Distribution, kind: type) -> Tensor:
    shape = minigrad.broadcast_shapes(p.batch_shape, q.batch_shape)
    (p_low, p_high), (q_low, q_high) = _ends(p), _ends(q)
    like = p.mean
    outside = minigrad.as_tensor(p_low < q_low) | minigrad.as_tensor(p_high > q_high)
    outside = outside.to(like.device).expand(shape)
    if bool(outside.all()):
        return like.new_full(shape, math.inf)
    result = -p.entropy() - _MEAN_LOG_PROB[kind](p, q)
    return result.masked_fill(outside, math.inf)


_PAIRS = {
    Beta: (ContinuousBernoulli, Pareto, Exponential, Gamma, Normal, Uniform),
    ContinuousBernoulli: (Pareto, Exponential, Normal, Uniform),
    Exponential: (Beta, ContinuousBernoulli, Pareto, Uniform, Gamma, Gumbel, Normal),
    Gamma: (Beta, ContinuousBernoulli, Pareto, Uniform, Exponential, Gumbel, Normal),
    Gumbel: (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform, Normal),
    Laplace: (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform, Normal),
    Normal: (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform, Gumbel, Laplace),
    Pareto: (Beta, ContinuousBernoulli, Uniform, Exponential, Gamma, Normal),
    Uniform: (Beta, ContinuousBernoulli, Exponential, Gamma, Gumbel, Normal, Pareto),
}


def _register(first: type, second: type) -> None:
    register_kl(first, second)(lambda p, q: _cross(p, q, second))


for _first, _seconds in _PAIRS.items():
    for _second in _seconds:
        _register(_first, _second)


@register_kl(Bernoulli, Poisson)
def _bernoulli_poisson(p: Bernoulli, q: Poisson) -> Tensor:
    return -p.entropy() - _MEAN_LOG_PROB[Poisson](p, q)


@register_kl(Poisson, Bernoulli)
@register_kl(Poisson, Binomial)
def _poisson_infinity(p: Poisson, q: Distribution) -> Tensor:
    return minigrad.full_like(p.rate, math.inf)
