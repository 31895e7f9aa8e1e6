"""Kullback-Leibler divergences, by the classes of both distributions."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import minigrad
from minigrad._names import namespace
from minigrad.distributions.bernoulli import Bernoulli
from minigrad.distributions.beta import Beta
from minigrad.distributions.binomial import Binomial
from minigrad.distributions.categorical import Categorical
from minigrad.distributions.cauchy import Cauchy
from minigrad.distributions.continuous_bernoulli import ContinuousBernoulli
from minigrad.distributions.dirichlet import Dirichlet
from minigrad.distributions.distribution import Distribution
from minigrad.distributions.exp_family import ExponentialFamily
from minigrad.distributions.exponential import Exponential
from minigrad.distributions.gamma import Gamma
from minigrad.distributions.geometric import Geometric
from minigrad.distributions.gumbel import Gumbel
from minigrad.distributions.half_normal import HalfNormal
from minigrad.distributions.independent import Independent
from minigrad.distributions.laplace import Laplace
from minigrad.distributions.multivariate_normal import Gaussian
from minigrad.distributions.normal import Normal
from minigrad.distributions.one_hot_categorical import OneHotCategorical
from minigrad.distributions.pareto import Pareto
from minigrad.distributions.poisson import Poisson
from minigrad.distributions.transformed_distribution import TransformedDistribution
from minigrad.distributions.uniform import Uniform
from minigrad.distributions.utils import _sum_rightmost, euler_constant
from minigrad.nn import functional as F
from minigrad.tensor import Tensor

__all__ = ["kl_divergence", "register_kl"]


_REGISTRY: dict[tuple[type, type], Callable] = {}


def register_kl(type_p: Any, type_q: Any) -> Callable:
    """Decorator: a function of (p, q) for two classes and their subclasses."""
    for name, kind in (("type_p", type_p), ("type_q", type_q)):
        if not isinstance(kind, type):
            raise TypeError(f"Expected {name} to be a Distribution subclass but got {kind}")

    def register(function: Callable) -> Callable:
        _REGISTRY[type_p, type_q] = function
        return function

    return register


def _function(type_p: type, type_q: type) -> Callable | None:
    """The function for the most specific classes; of p first, if that differs from q first."""
    firsts, seconds = type_p.__mro__, type_q.__mro__
    by_p = [(p, q) for p in firsts for q in seconds if (p, q) in _REGISTRY]
    by_q = [(p, q) for q in seconds for p in firsts if (p, q) in _REGISTRY]
    if not by_p:
        return None
    found, other = _REGISTRY[by_p[0]], _REGISTRY[by_q[0]]
    if found is not other:
        warnings.warn(
            f"Ambiguous kl_divergence({type_p.__name__}, {type_q.__name__}). Please "
            f"register_kl({by_p[0][0].__name__}, {by_q[0][1].__name__})",
            RuntimeWarning,
            stacklevel=3,
        )
    return found


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """The mean under p of log p - log q, in nats, of shape `batch_shape`. NotImplementedError where
    no formula is registered."""
    function = _function(type(p), type(q))
    if function is None:
        raise NotImplementedError(
            f"No KL(p || q) is implemented for p type {type(p).__name__} and q type "
            f"{type(q).__name__}"
        )
    return function(p, q)


@register_kl(Normal, Normal)
def _normal(p: Normal, q: Normal) -> Tensor:
    ratio = (p.scale / q.scale) ** 2
    return 0.5 * (ratio + ((p.loc - q.loc) / q.scale) ** 2 - 1 - ratio.log())


@register_kl(HalfNormal, HalfNormal)
def _half_normal(p: HalfNormal, q: HalfNormal) -> Tensor:
    return _normal(p.base_dist, q.base_dist)


@register_kl(Laplace, Laplace)
def _laplace(p: Laplace, q: Laplace) -> Tensor:
    ratio, distance = p.scale / q.scale, (p.loc - q.loc).abs()
    return -ratio.log() + distance / q.scale + ratio * (-distance / p.scale).exp() - 1


@register_kl(Cauchy, Cauchy)
def _cauchy(p: Cauchy, q: Cauchy) -> Tensor:
    # Chyzak and Nielsen: A closed-form formula for the Kullback-Leibler divergence between Cauchy
    # distributions, 2019
    total = (p.scale + q.scale) ** 2 + (p.loc - q.loc) ** 2
    return total.log() - (4 * p.scale * q.scale).log()


@register_kl(Gumbel, Gumbel)
def _gumbel(p: Gumbel, q: Gumbel) -> Tensor:
    ratio, shift = p.scale / q.scale, (p.loc - q.loc) / q.scale
    grown = ((1 + ratio).lgamma() - shift).exp()
    return -ratio.log() + shift + ratio * euler_constant + grown - (1 + euler_constant)


@register_kl(Uniform, Uniform)
def _uniform(p: Uniform, q: Uniform) -> Tensor:
    result = ((q.high - q.low) / (p.high - p.low)).log()
    return result.masked_fill((q.low > p.low) | (q.high < p.high), math.inf)


@register_kl(Exponential, Exponential)
def _exponential(p: Exponential, q: Exponential) -> Tensor:
    ratio = q.rate / p.rate
    return ratio - 1 - ratio.log()


@register_kl(Gamma, Gamma)
def _gamma(p: Gamma, q: Gamma) -> Tensor:
    a, b = p.concentration, q.concentration
    shapes = b.lgamma() - a.lgamma() + (a - b) * a.digamma()
    return b * (p.rate / q.rate).log() + shapes + (q.rate - p.rate) * (a / p.rate)


@register_kl(Pareto, Pareto)
def _pareto(p: Pareto, q: Pareto) -> Tensor:
    ratio = q.alpha / p.alpha
    result = q.alpha * (p.scale / q.scale).log() - ratio.log() + ratio - 1
    return result.masked_fill(p.scale < q.scale, math.inf)


@register_kl(Dirichlet, Dirichlet)
def _dirichlet(p: Dirichlet, q: Dirichlet) -> Tensor:
    a, b = p.concentration, q.concentration
    totals = a.sum(-1).lgamma() - b.sum(-1).lgamma()
    logs = a.digamma() - a.sum(-1, keepdim=True).digamma()
    return totals + (b.lgamma() - a.lgamma()).sum(-1) + ((a - b) * logs).sum(-1)


@register_kl(Beta, Beta)
def _beta(p: Beta, q: Beta) -> Tensor:
    return _dirichlet(p._dirichlet, q._dirichlet)


@register_kl(ContinuousBernoulli, ContinuousBernoulli)
def _continuous_bernoulli(p: ContinuousBernoulli, q: ContinuousBernoulli) -> Tensor:
    logs = (-p.probs).log1p() - (-q.probs).log1p()
    constants = p._cont_bern_log_norm() - q._cont_bern_log_norm()
    return p.mean * (p.logits - q.logits) + logs + constants


@register_kl(Gaussian, Gaussian)
def _gaussian(p: Gaussian, q: Gaussian) -> Tensor:
    if p.event_shape != q.event_shape:
        raise ValueError(
            "KL-divergence between two Multivariate Normals with different event shapes cannot be "
            "computed"
        )
    total = q._log_det() - p._log_det() - p.event_shape[0]
    for root in (*p._roots(), (q.loc - p.loc).unsqueeze(-1)):
        total = total + q._squared_norm(root)
    return 0.5 * total


# --- discrete ---


@register_kl(Bernoulli, Bernoulli)
def _bernoulli(p: Bernoulli, q: Bernoulli) -> Tensor:
    one = F.softplus(-q.logits) - F.softplus(-p.logits)
    zero = F.softplus(q.logits) - F.softplus(p.logits)
    return _part(p.probs, q.probs, one) + _part(1 - p.probs, 1 - q.probs, zero)


def _part(mine: Tensor, theirs: Tensor, value: Tensor) -> Tensor:
    """mine * value: infinite where only the other probability is 0, else 0 where mine is 0."""
    part = (mine * value).masked_fill((theirs == 0).expand(value.shape), math.inf)
    return part.masked_fill((mine == 0).expand(value.shape), 0.0)


@register_kl(Binomial, Binomial)
def _binomial(p: Binomial, q: Binomial) -> Tensor:
    if bool((p.total_count < q.total_count).any()):
        raise NotImplementedError(
            "KL between Binomials where q.total_count > p.total_count is not implemented"
        )
    logs = p.probs * (p.logits - q.logits) + (-p.probs).log1p() - (-q.probs).log1p()
    return (p.total_count * logs).masked_fill(p.total_count > q.total_count, math.inf)


@register_kl(Geometric, Geometric)
def _geometric(p: Geometric, q: Geometric) -> Tensor:
    return -p.entropy() - (-q.probs).log1p() / p.probs - q.logits


@register_kl(Poisson, Poisson)
def _poisson(p: Poisson, q: Poisson) -> Tensor:
    return p.rate * (p.rate.log() - q.rate.log()) - (p.rate - q.rate)


@register_kl(Categorical, Categorical)
def _categorical(p: Categorical, q: Categorical) -> Tensor:
    parts = p.probs * (p.logits - q.logits)
    parts = parts.masked_fill((q.probs == 0).expand_as(parts), math.inf)
    return parts.masked_fill((p.probs == 0).expand_as(parts), 0.0).sum(-1)


@register_kl(OneHotCategorical, OneHotCategorical)
def _one_hot_categorical(p: OneHotCategorical, q: OneHotCategorical) -> Tensor:
    return _categorical(p._categorical, q._categorical)


# --- any distributions of a form ---


@register_kl(ExponentialFamily, ExponentialFamily)
def _exponential_family(p: ExponentialFamily, q: ExponentialFamily) -> Tensor:
    """The Bregman divergence of the log-normaliser."""
    if type(p) is not type(q):
        raise NotImplementedError(
            "The cross KL-divergence between different exponential families cannot be computed "
            "using Bregman divergences"
        )
    params = [v.detach().requires_grad_() for v in p._natural_params]
    log_normalizer = p._log_normalizer(*params)
    grads = minigrad.autograd.grad(log_normalizer.sum(), params, create_graph=True)
    result = q._log_normalizer(*q._natural_params) - log_normalizer
    for mine, theirs, grad in zip(params, q._natural_params, grads):
        event_dim = mine.dim() - len(p.batch_shape)
        result = result - _sum_rightmost((theirs - mine) * grad, event_dim)
    return result


@register_kl(Independent, Independent)
def _independent(p: Independent, q: Independent) -> Tensor:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotImplementedError("kl_divergence: different reinterpreted_batch_ndims")
    return p._added(kl_divergence(p.base_dist, q.base_dist))


@register_kl(TransformedDistribution, TransformedDistribution)
def _transformed(p: TransformedDistribution, q: TransformedDistribution) -> Tensor:
    if p.transforms != q.transforms or p.event_shape != q.event_shape:
        raise NotImplementedError("kl_divergence: different transforms or event shapes")
    return kl_divergence(p.base_dist, q.base_dist)


__getattr__, __dir__ = namespace(__name__)
