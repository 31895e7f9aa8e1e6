"""Random numbers by rejection and inversion: gamma, Dirichlet, Poisson, binomial.

All are made of the uniform and normal numbers of `minigrad.random`, in float64, with operations on
whole arrays: numbers that were rejected are drawn again until none is left. So the same seed gives
the same numbers on every backend and device.

Gamma and Dirichlet samples have gradients by implicit reparameterisation (Figurnov, Mohamed and
Mnih: Implicit reparameterization gradients, 2018): where F(z; a) is the distribution function and
p(z) its density, dz/da = -(dF/da) / p(z). dF/da is an integral of (log t - mean of log t) p(t),
which is computed by the tanh-sinh rule (Takahasi and Mori: Double exponential formulas for
numerical integration, 1974), to nine digits and more for parameters from 0.01 to 2000.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from minigrad import dtypes
from minigrad._foreign import tensors_only
from minigrad._names import namespace
from minigrad.autograd.node import Op
from minigrad.backends import array_module
from minigrad.ops.pointwise import check_floating
from minigrad.random import Generator, _draw
from minigrad.tensor import Tensor, wrap

__all__ = ["binomial", "poisson"]

_DOUBLE = np.dtype(np.float64)


def _lgamma(x: Any) -> Any:
    return wrap(x).lgamma()._array


def _digamma(x: Any) -> Any:
    return wrap(x).digamma()._array


class _Source:
    """Uniform and normal float64 numbers on a device."""

    def __init__(self, generator: Generator | None, where: Any) -> None:
        self._generator, self._where = generator, where

    def uniform(self, count: int) -> Any:
        """In (0, 1]: their logarithms are finite."""
        return 1 - _draw("uniform", (count,), _DOUBLE, self._generator, self._where)

    def normal(self, count: int) -> Any:
        return _draw("normal", (count,), _DOUBLE, self._generator, self._where)


def _until_accepted(out: Any, pending: Any, attempt: Callable[[Any], tuple[Any, Any]]) -> Any:
    """Fill `out` at the positions `pending`: `attempt(positions)` is (values, accepted)."""
    while pending.size:
        values, accepted = attempt(pending)
        out[pending[accepted]] = values[accepted]
        pending = pending[~accepted]
    return out


# --- gamma and Dirichlet ---


def _log_gamma(a: Any, source: _Source) -> Any:
    """Logarithms of gamma variates for shapes `a` (n,), NaN for shapes that are not positive.

    Marsaglia and Tsang: A simple method for generating gamma variables, 2000. A shape below 1 is
    raised by 1, and the result multiplied by u ** (1 / a); its logarithm does not underflow.
    """
    xp = array_module(a)
    d = xp.where(a < 1, a + 1, a) - 1 / 3
    c = 1 / xp.sqrt(9 * abs(d))

    def attempt(i: Any) -> tuple[Any, Any]:
        x, u = source.normal(i.size), source.uniform(i.size)
        log_v = 3 * xp.log1p(xp.maximum(c[i] * x, -1))  # -inf where the cube is not positive
        accepted = xp.log(u) < 0.5 * x * x + d[i] * (1 - xp.exp(log_v) + log_v)
        return xp.log(d[i]) + log_v, accepted

    out = xp.where(a == 0, -np.inf, xp.where(a == np.inf, np.inf, xp.nan))
    with np.errstate(divide="ignore", invalid="ignore"):
        out = _until_accepted(out, xp.flatnonzero((a > 0) & xp.isfinite(a)), attempt)
        return out + xp.where(a < 1, xp.log(source.uniform(a.size)) / xp.where(a > 0, a, 1), 0)


@functools.cache
def _tanh_sinh(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights of the tanh-sinh rule on (0, 1)."""
    step = 6.4 / count
    t = (np.arange(count) - (count - 1) / 2) * step
    inner = np.pi / 2 * np.sinh(t)
    return 1 / (1 + np.exp(-2 * inner)), step * np.pi / 4 * np.cosh(t) / np.cosh(inner) ** 2


_CUT = 40.0  # what exp(-40) leaves out is below the precision of float64


def _reach(slope: Any, rate: Any) -> Any:
    """s with slope * s + (rate - slope) * s**2 / (2 + s) = 40: beyond it, exp of minus that
    is 0."""
    b = 2 * slope - _CUT
    return (np.sqrt(b * b + 8 * rate * _CUT) - b) / (2 * rate)


def _chunks(function: Callable, *arrays: Any) -> Any:
    """A function of rows (n, 1), by parts that stay in a cache, on arrays of one shape."""
    xp, shape = array_module(arrays[0]), arrays[0].shape
    flat = [array.astype(np.float64).reshape(-1, 1) for array in arrays]
    out, size = xp.empty(flat[0].shape[0], np.float64), 1 << 12
    nodes, weights = (xp.asarray(v) for v in _tanh_sinh(80))
    with np.errstate(all="ignore"):
        for first in range(0, out.size, size):
            part = slice(first, first + size)
            out[part] = function(*(v[part] for v in flat), nodes, weights)
    return out.reshape(shape)


def _gamma_slope(a: Any, z: Any, nodes: Any, weights: Any) -> Any:
    """dz/da for a gamma variate z of shape a, both (n, 1).

    dF/da is the integral of (log t - digamma(a)) p(t) up to z, or minus that from z on. With
    t = z exp(-s), or z exp(s), p(t) / p(z) falls from 1 on the side where z is not beyond the mode.
    """
    xp = array_module(a)
    below = z < xp.maximum(a, 1)
    sign = xp.where(below, -1.0, 1.0)
    distance = z - a
    above_reach = (xp.sqrt(distance**2 + 2 * z * _CUT) - distance) / z
    above_reach = xp.minimum(above_reach, xp.maximum(1, xp.log(4 * _CUT / z)))
    reach = xp.where(below, _reach(a - z, a), above_reach)
    s = sign * reach * nodes
    ratio = xp.exp((a - z) * s - z * (xp.expm1(s) - s))
    integral = (xp.log(z) + s - _digamma(a)) * ratio
    return (sign * z * reach)[:, 0] * (integral * weights).sum(1)


def _dirichlet_slope(a: Any, rest: Any, x: Any, nodes: Any, weights: Any) -> Any:
    """dx/da / (1 - x) for the component x of a Dirichlet variate, with the concentration a and
    the sum `rest` of the other ones: x is a beta variate. As `_gamma_slope`, all (n, 1)."""
    xp = array_module(a)
    below = x < a / (a + rest)
    rate, other = xp.where(below, a, rest), xp.where(below, rest, a)
    near, far = xp.where(below, x, 1 - x), xp.where(below, 1 - x, x)
    reach = _reach(rate - xp.maximum((other - 1) * near / far, 0), rate)
    s = reach * nodes
    grown = xp.log1p(near / far * -xp.expm1(-s))  # log of the far side over what it is at x
    ratio = xp.exp(-rate * s + (other - 1) * grown)
    log_t = xp.log(x) + xp.where(below, -s, grown)
    integral = (log_t - _digamma(a) + _digamma(a + rest)) * ratio
    sign = xp.where(below, -1.0, 1.0)
    return (sign * reach * near / (1 - x))[:, 0] * (integral * weights).sum(1)


class _ImplicitSlope(Op):
    """dz/da of samples; `which` is one of the two formulas."""

    @staticmethod
    def forward(*arrays: Any, which: Callable) -> Any:
        return _chunks(which, *arrays).astype(arrays[0].dtype)

    @staticmethod
    def vjp(ctx: Any, g: Tensor, which: Callable) -> tuple:
        raise NotImplementedError(
            "the second derivative of a gamma or Dirichlet sample is not implemented"
        )


class StandardGamma(Op):
    """Gamma variates with rate 1, at least the smallest normal number."""

    saves_outputs = (0,)

    @staticmethod
    def forward(a: Any, generator: Generator | None, where: Any) -> Any:
        xp = array_module(a)
        logs = _log_gamma(a.astype(np.float64).ravel(), _Source(generator, where))
        with np.errstate(under="ignore"):
            values = xp.exp(logs).astype(a.dtype)
        tiny = dtypes.finfo(dtypes.from_numpy_dtype(a.dtype)).tiny
        return xp.maximum(values, tiny).astype(a.dtype, copy=False).reshape(a.shape)

    @staticmethod
    def vjp(ctx: Any, g: Tensor, generator: Any, where: Any) -> tuple:
        a, z = ctx.tensors()
        return (g * _ImplicitSlope.apply(a, z, which=_gamma_slope),)


class SampleDirichlet(Op):
    """Dirichlet variates for concentrations (..., k): normalised gamma variates."""

    saves_outputs = (0,)

    @staticmethod
    def forward(a: Any, generator: Generator | None, where: Any) -> Any:
        xp = array_module(a)
        logs = _log_gamma(a.astype(np.float64).ravel(), _Source(generator, where))
        logs = logs.reshape(a.shape)
        with np.errstate(under="ignore"):
            parts = xp.exp(logs - logs.max(-1, keepdims=True))
            values = (parts / parts.sum(-1, keepdims=True)).astype(a.dtype)
        found = dtypes.finfo(dtypes.from_numpy_dtype(a.dtype))
        return values.clip(found.tiny, 1 - found.eps / 2).astype(a.dtype, copy=False)

    @staticmethod
    def vjp(ctx: Any, g: Tensor, generator: Any, where: Any) -> tuple:
        a, x = ctx.tensors()
        rest = a.sum(-1, keepdim=True) - a
        slope = _ImplicitSlope.apply(a, rest, x, which=_dirichlet_slope)
        # the other components keep their proportions: each falls by x_j / (1 - x_i) dx_i
        return (slope * (g - (x * g).sum(-1, keepdim=True)),)


def _standard_gamma(input: Tensor, generator: Generator | None = None) -> Tensor:
    """Gamma variates with rate 1 for shapes `input`, with gradients."""
    check_floating("gamma_cpu", input)
    return StandardGamma.apply(input, generator=generator, where=input.device)


def _sample_dirichlet(input: Tensor, generator: Generator | None = None) -> Tensor:
    """Dirichlet variates for concentrations `input` (..., k), with gradients."""
    check_floating("dirichlet", input)
    return SampleDirichlet.apply(input, generator=generator, where=input.device)


# --- Poisson and binomial ---

_SMALL = 10.0  # means below it: by inversion
_LARGE = 1e10  # above it, counts are normal numbers but for what float64 loses in log_p


def _by_inversion(u: Any, first: Any, ratio: Callable[[int], Any]) -> Any:
    """Counts with P(0) = `first` and P(k) / P(k - 1) = ratio(k), for uniform u, by adding up
    probabilities. For means below 10, counts of 100 and more never occur."""
    xp = array_module(u)
    count, p, total = xp.zeros_like(u), first.copy(), first.copy()
    for k in range(1, 100):
        more = u > total
        if not more.any():
            break
        count += more
        p = p * ratio(k)
        total = total + p
    return count


def _by_transformed_rejection(
    source: _Source, center: Any, b: Any, a: Any, log_height: Any, log_p: Callable
) -> Any:
    """Counts for means of 10 and more: a transformed uniform number proposes, and is accepted by
    the probability `log_p(k, positions)` (-inf for impossible counts).

    Hörmann: The transformed rejection method for generating Poisson random variables, 1993, and The
    generation of binomial random variates, 1993; without their shortcuts past the logarithms.
    """
    xp = array_module(center)

    def attempt(i: Any) -> tuple[Any, Any]:
        u, v = source.uniform(i.size) - 0.5, source.uniform(i.size)
        side = 0.5 - abs(u)
        k = xp.floor((2 * a[i] / side + b[i]) * u + center[i])
        bound = xp.log(v) + log_height[i] - xp.log(a[i] / side**2 + b[i])
        return k, bound <= log_p(k, i)

    with np.errstate(divide="ignore", invalid="ignore"):
        return _until_accepted(xp.empty_like(center), xp.arange(center.size), attempt)


def _rounded_normal(mean: Any, variance: Any, source: _Source) -> Any:
    """Counts of large means."""
    xp = array_module(mean)
    return xp.floor(mean + xp.sqrt(variance) * source.normal(mean.size) + 0.5)


def _poisson(rate: Any, source: _Source) -> Any:
    """Poisson variates for rates (n,)."""
    xp = array_module(rate)
    small, large = rate < _SMALL, (rate > _LARGE) & xp.isfinite(rate)
    middle = (rate >= _SMALL) & (rate <= _LARGE)
    low, high = rate[small], rate[middle]
    out = rate.copy()  # infinite ones stay
    out[large] = _rounded_normal(rate[large], rate[large], source)
    out[small] = _by_inversion(source.uniform(low.size), xp.exp(-low), lambda k: low / k)

    def log_p(k: Any, i: Any) -> Any:
        log = k * xp.log(high[i]) - high[i] - _lgamma(k + 1)
        return xp.where(k < 0, -np.inf, log)

    b = 0.931 + 2.53 * xp.sqrt(high)
    a = -0.059 + 0.02483 * b
    height = xp.log(1.1239 + 1.1328 / (b - 3.4))
    out[middle] = _by_transformed_rejection(source, high + 0.43, b, a, height, log_p)
    return out


def _log_orders(n: Any, k: Any) -> Any:
    """log(n! / (n - k)!), by Stirling's formula where a difference would lose all digits."""
    by_series = k * np.log(n) - (n - k + 0.5) * np.log1p(-k / n) - k
    return array_module(n).where(n > _LARGE, by_series, _lgamma(n + 1) - _lgamma(n - k + 1))


def _binomial(count: Any, prob: Any, source: _Source) -> Any:
    """Binomial variates for counts and probabilities (n,)."""
    xp = array_module(count)
    endless, mirrored = xp.isinf(count), prob > 0.5
    count = xp.where(endless, 0, count)
    p = xp.where(mirrored, 1 - prob, prob)
    small, large = count * p < _SMALL, count * p > _LARGE
    middle = ~(small | large)
    n, odds = count[small], (p / (1 - p))[small]
    out = xp.empty_like(p)
    none = xp.exp(n * xp.log1p(-p[small]))
    u = source.uniform(n.size)
    out[small] = _by_inversion(u, none, lambda k: xp.maximum(n - k + 1, 0) / k * odds)

    n, q = count[large], p[large]
    out[large] = xp.minimum(_rounded_normal(n * q, n * q * (1 - q), source), n)

    n, p = count[middle], p[middle]
    log_odds = xp.log(p) - xp.log1p(-p)

    def log_p(k: Any, i: Any) -> Any:
        log = _log_orders(n[i], k) - _lgamma(k + 1) + k * log_odds[i] + n[i] * xp.log1p(-p[i])
        return xp.where((k < 0) | (k > n[i]), -np.inf, log)

    spread = xp.sqrt(n * p * (1 - p))
    b = 1.15 + 2.53 * spread
    a = -0.0873 + 0.0248 * b + 0.01 * p
    mode = xp.floor((n + 1) * p)
    height = xp.log((2.83 + 5.1 / b) * spread) + log_p(mode, xp.arange(n.size))
    out[middle] = _by_transformed_rejection(source, n * p + 0.5, b, a, height, log_p)
    return xp.where(endless & (prob > 0), np.inf, xp.where(mirrored, count - out, out))


def poisson(input: Tensor, generator: Generator | None = None) -> Tensor:
    """Poisson variates for rates `input`, of its shape and dtype; no gradients. RuntimeError for
    negative rates."""
    check_floating("poisson_cpu", input)
    rate = input._array.astype(np.float64).ravel()
    if not bool((rate >= 0).all()):
        raise RuntimeError("invalid Poisson rate, expected rate to be non-negative")
    values = _poisson(rate, _Source(generator, input.device))
    return wrap(values.astype(input._array.dtype).reshape(input._array.shape))


def binomial(count: Tensor, prob: Tensor, generator: Generator | None = None) -> Tensor:
    """Binomial variates for numbers of trials `count` and probabilities `prob`, which have one
    dtype and broadcast; no gradients. RuntimeError for counts below 0 and probabilities that are
    not in [0, 1]."""
    check_floating("binomial", count, prob)
    if count.dtype != prob.dtype:
        found, wanted = (v.dtype.legacy_name.removesuffix("Tensor") for v in (prob, count))
        raise RuntimeError(f"Found dtype {found} but expected {wanted}")
    xp = array_module(count._array)
    n, p = xp.broadcast_arrays(count._array, prob._array)
    shape, target = n.shape, n.dtype
    n, p = (v.astype(np.float64).ravel() for v in (n, p))
    if not bool(((n >= 0) & (p >= 0) & (p <= 1)).all()):
        raise RuntimeError("binomial expects count >= 0 and prob in [0, 1]")
    values = _binomial(xp.floor(n), p, _Source(generator, count.device))
    return wrap(values.astype(target).reshape(shape))


poisson = tensors_only(poisson, place=f"{__name__}.poisson")
binomial = tensors_only(binomial, place=f"{__name__}.binomial")

__getattr__, __dir__ = namespace(__name__)
