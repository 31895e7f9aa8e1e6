"""Special functions with torch.special's names: kernels, or SciPy's functions with gradients."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import minigrad
from minigrad._foreign import tensors_only
from minigrad._names import namespace
from minigrad.dtypes import from_numpy_dtype
from minigrad.ops.pointwise import POINTWISE
from minigrad.ops.special import call, pair, polygamma, xlog1py
from minigrad.tensor import Tensor

__all__ = [
    "airy_ai", "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "chebyshev_polynomial_t",
    "chebyshev_polynomial_u", "chebyshev_polynomial_v", "chebyshev_polynomial_w", "digamma",
    "entr", "erf", "erfc", "erfcx", "erfinv", "exp2", "expit", "expm1", "gammainc", "gammaincc",
    "gammaln", "hermite_polynomial_h", "hermite_polynomial_he", "i0", "i0e", "i1", "i1e",
    "laguerre_polynomial_l", "legendre_polynomial_p", "log1p", "log_ndtr", "log_softmax", "logit",
    "logsumexp", "modified_bessel_i0", "modified_bessel_i1", "modified_bessel_k0",
    "modified_bessel_k1", "multigammaln", "ndtr", "ndtri", "polygamma", "psi", "round",
    "scaled_modified_bessel_k0", "scaled_modified_bessel_k1", "shifted_chebyshev_polynomial_t",
    "shifted_chebyshev_polynomial_u", "shifted_chebyshev_polynomial_v",
    "shifted_chebyshev_polynomial_w", "sinc", "softmax", "spherical_bessel_j0", "xlog1py", "xlogy",
    "zeta",
]  # fmt: skip

digamma = psi = minigrad.digamma
erf, erfc, erfinv = minigrad.erf, minigrad.erfc, minigrad.erfinv
exp2, expm1 = minigrad.exp2, minigrad.expm1
expit, gammaln, log1p, logit = minigrad.sigmoid, minigrad.lgamma, minigrad.log1p, minigrad.logit
logsumexp, round, sinc, xlogy = minigrad.logsumexp, minigrad.round, minigrad.sinc, minigrad.xlogy
softmax, log_softmax = minigrad.softmax, minigrad.log_softmax
gammainc, gammaincc, multigammaln = minigrad.igamma, minigrad.igammac, minigrad.mvlgamma


def _define(name: str, which: str, text: str) -> Callable:
    def function(input: Tensor, *, out: Any = None) -> Tensor:
        result = call(which, input)
        return result if out is None else out.copy_(result)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = text
    return function


bessel_j0 = _define("bessel_j0", "j0", "The Bessel function of the first kind, of order 0.")
bessel_j1 = _define("bessel_j1", "j1", "The Bessel function of the first kind, of order 1.")
bessel_y0 = _define("bessel_y0", "y0", "The Bessel function of the second kind, of order 0.")
bessel_y1 = _define("bessel_y1", "y1", "The Bessel function of the second kind, of order 1.")
modified_bessel_i0 = _define("modified_bessel_i0", "i0", "`i0` under another name.")
modified_bessel_i1 = _define("modified_bessel_i1", "i1", "`i1` under another name.")
modified_bessel_k0 = _define(
    "modified_bessel_k0", "k0", "The modified Bessel function of the second kind, of order 0."
)
modified_bessel_k1 = _define(
    "modified_bessel_k1", "k1", "The modified Bessel function of the second kind, of order 1."
)
scaled_modified_bessel_k0 = _define(
    "scaled_modified_bessel_k0", "k0e", "exp(input) * modified_bessel_k0(input)."
)
scaled_modified_bessel_k1 = _define(
    "scaled_modified_bessel_k1", "k1e", "exp(input) * modified_bessel_k1(input)."
)
airy_ai = _define("airy_ai", "airy", "The Airy function Ai.")
entr = _define("entr", "entr", "-input * log(input), 0 at 0 and -inf below.")
erfcx = _define("erfcx", "erfcx", "exp(input**2) * erfc(input).")
i0 = _define("i0", "i0", "The modified Bessel function of the first kind, of order 0.")
i0e = _define("i0e", "i0e", "exp(-|input|) * i0(input).")
i1 = _define("i1", "i1", "The modified Bessel function of the first kind, of order 1.")
i1e = _define("i1e", "i1e", "exp(-|input|) * i1(input).")
log_ndtr = _define("log_ndtr", "log_ndtr", "The logarithm of `ndtr`.")
ndtr = _define("ndtr", "ndtr", "The area under the standard normal density up to input.")
ndtri = _define("ndtri", "ndtri", "The inverse of `ndtr`.")


def zeta(input: Any, other: Any) -> Tensor:
    """Hurwitz' zeta function: the sum over k of (k + other) ** -input; a gradient of `other`."""
    return pair("zeta", input, other)


def spherical_bessel_j0(input: Tensor, *, out: Any = None) -> Tensor:
    """The spherical Bessel function of the first kind, of order 0: sin(input) / input."""
    result = POINTWISE["where"](input.isinf(), 0.0, sinc(input / math.pi))
    return result if out is None else out.copy_(result)


# Polynomials by their recurrences: P_1(x), and P_{k+1}(x) from k, x, P_k and P_{k-1}.
def _chebyshev(k: int, x: Tensor, p: Tensor, before: Tensor) -> Tensor:
    return 2 * x * p - before


_RECURRENCES: dict[str, tuple[Callable, Callable, str]] = {
    "chebyshev_polynomial_t": (lambda x: x, _chebyshev, "Chebyshev polynomials of the first kind"),
    "chebyshev_polynomial_u": (
        lambda x: 2 * x,
        _chebyshev,
        "Chebyshev polynomials of the second kind",
    ),
    "chebyshev_polynomial_v": (
        lambda x: 2 * x - 1,
        _chebyshev,
        "Chebyshev polynomials of the third kind",
    ),
    "chebyshev_polynomial_w": (
        lambda x: 2 * x + 1,
        _chebyshev,
        "Chebyshev polynomials of the fourth kind",
    ),
    "hermite_polynomial_h": (
        lambda x: 2 * x,
        lambda k, x, p, before: 2 * (x * p - k * before),
        "Hermite polynomials of physics",
    ),
    "hermite_polynomial_he": (
        lambda x: x,
        lambda k, x, p, before: x * p - k * before,
        "Hermite polynomials of probability",
    ),
    "laguerre_polynomial_l": (
        lambda x: 1 - x,
        lambda k, x, p, before: ((2 * k + 1 - x) * p - k * before) / (k + 1),
        "Laguerre polynomials",
    ),
    "legendre_polynomial_p": (
        lambda x: x,
        lambda k, x, p, before: ((2 * k + 1) * x * p - k * before) / (k + 1),
        "Legendre polynomials",
    ),
}


def _define_polynomial(name: str) -> Callable:
    first, step, text = _RECURRENCES[name.removeprefix("shifted_")]
    shifted = name.startswith("shifted_")

    def function(input: Any, n: Any, *, out: Any = None) -> Tensor:
        like = input if isinstance(input, Tensor) else n
        if not isinstance(like, Tensor):
            raise TypeError(f"{name}(): expected a tensor for input or n, got two numbers")
        dtype = from_numpy_dtype(POINTWISE["div"].compute_dtype((input, n)))
        x, degree = (
            v.to(dtype) if isinstance(v, Tensor) else like.new_tensor(v, dtype=dtype)
            for v in (input, n)
        )
        x, degree = minigrad.broadcast_tensors(x, degree.detach().trunc())
        x = 2 * x - 1 if shifted else x
        before, p = minigrad.ones_like(x), first(x)
        result = minigrad.where(degree == 0, before, minigrad.where(degree == 1, p, 0.0))
        for k in range(1, int(degree.max()) if degree.numel() else 0):
            before, p = p, step(k, x, p, before)
            result = minigrad.where(degree == k + 1, p, result)
        return result if out is None else out.copy_(result)

    function.__name__ = function.__qualname__ = name
    of = "2 * input - 1" if shifted else "input"
    function.__doc__ = f"{text}, of degree n at {of}; 0 for a negative n. n broadcasts with input."
    return function


chebyshev_polynomial_t = _define_polynomial("chebyshev_polynomial_t")
chebyshev_polynomial_u = _define_polynomial("chebyshev_polynomial_u")
chebyshev_polynomial_v = _define_polynomial("chebyshev_polynomial_v")
chebyshev_polynomial_w = _define_polynomial("chebyshev_polynomial_w")
hermite_polynomial_h = _define_polynomial("hermite_polynomial_h")
hermite_polynomial_he = _define_polynomial("hermite_polynomial_he")
laguerre_polynomial_l = _define_polynomial("laguerre_polynomial_l")
legendre_polynomial_p = _define_polynomial("legendre_polynomial_p")
shifted_chebyshev_polynomial_t = _define_polynomial("shifted_chebyshev_polynomial_t")
shifted_chebyshev_polynomial_u = _define_polynomial("shifted_chebyshev_polynomial_u")
shifted_chebyshev_polynomial_v = _define_polynomial("shifted_chebyshev_polynomial_v")
shifted_chebyshev_polynomial_w = _define_polynomial("shifted_chebyshev_polynomial_w")
for _name in filter(str.islower, __all__):
    globals()[_name] = tensors_only(globals()[_name], True, f"{__name__}.{_name}")

__getattr__, __dir__ = namespace(__name__)
