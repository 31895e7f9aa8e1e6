"""Special functions with torch.special's names: kernels, or SciPy's functions with gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import minigrad
from minigrad._foreign import tensors_only
from minigrad._names import namespace
from minigrad.ops.special import call, erfinv, pair, polygamma, xlog1py
from minigrad.tensor import Tensor

__all__ = [
    "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "digamma", "entr", "erf", "erfc",
    "erfcx", "erfinv", "exp2", "expit", "expm1", "gammainc", "gammaincc", "gammaln", "i0",
    "i0e", "i1", "i1e", "log1p", "log_ndtr", "log_softmax", "logit", "logsumexp",
    "multigammaln", "ndtr", "ndtri", "polygamma", "psi", "round", "sinc", "softmax", "xlog1py",
    "xlogy", "zeta",
]  # fmt: skip

digamma = psi = minigrad.digamma
erf, erfc, exp2, expm1 = minigrad.erf, minigrad.erfc, minigrad.exp2, minigrad.expm1
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


globals().update({name: tensors_only(globals()[name], True) for name in __all__ if name.islower()})

__getattr__, __dir__ = namespace(__name__)
