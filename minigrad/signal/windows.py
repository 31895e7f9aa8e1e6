"""Windows for spectra, with torch's names: `windows.hann(M, sym=False)`.

All take `sym` (symmetric; False: periodic, that is one element longer without the last), `dtype`
(float32 or float64), `device` and `requires_grad`, and return M values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

import minigrad
from minigrad._names import namespace
from minigrad.ops.spectral import bessel, cosines, triangle
from minigrad.tensor import Tensor

__all__ = [
    "bartlett",
    "blackman",
    "cosine",
    "exponential",
    "gaussian",
    "general_cosine",
    "general_hamming",
    "hamming",
    "hann",
    "kaiser",
    "nuttall",
]


def _window(
    name: str,
    formula: Callable[[np.ndarray, float], Any],
    M: int,
    sym: bool = True,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """M values of formula(k, last), where `last` is the place of the last of a symmetric window."""
    if M < 0:
        raise ValueError(f"{name} requires non-negative window length, got M={M}")
    dtype = minigrad.get_default_dtype() if dtype is None else dtype
    if dtype not in (minigrad.float32, minigrad.float64):
        raise ValueError(f"{name} expects float32 or float64 dtypes, got: {dtype}")
    if layout not in (None, minigrad.strided):
        raise ValueError(f"{name} is implemented for strided tensors only, got: {layout}")
    last = M - 1 if sym else M
    values = formula(np.arange(M), last) if M > 1 else np.ones(M)
    return minigrad.tensor(values, dtype=dtype, device=device, requires_grad=requires_grad)


def _relative(formula: Callable[[np.ndarray], Any]) -> Callable[[np.ndarray, float], Any]:
    """A formula of places from 0 to 1 as one of numbers of elements."""
    return lambda k, last: formula(k / last)


def exponential(
    M: int, *, center: float | None = None, tau: float = 1.0, sym: bool = True, **options: Any
) -> Tensor:
    """exp(-|k - center| / tau); center: the middle, or with sym=False any place."""
    if tau <= 0:
        raise ValueError(f"Tau must be positive, got: {tau} instead.")
    if sym and center is not None:
        raise ValueError("Center must be None for symmetric windows")

    def formula(k: np.ndarray, last: float) -> Any:
        return np.exp(-np.abs(k - (last / 2 if center is None else center)) / tau)

    return _window("exponential", formula, M, sym, **options)


def cosine(M: int, *, sym: bool = True, **options: Any) -> Tensor:
    """Half a period of a sine."""
    return _window("cosine", lambda k, last: np.sin(np.pi * (k + 0.5) / (last + 1)), M, sym,
                   **options)  # fmt: skip


def gaussian(M: int, *, std: float = 1.0, sym: bool = True, **options: Any) -> Tensor:
    """A bell of the standard deviation `std`, in elements."""
    if std <= 0:
        raise ValueError(f"Standard deviation must be positive, got: {std} instead.")
    return _window(
        "gaussian", lambda k, last: np.exp(-(((k - last / 2) / std) ** 2) / 2), M, sym, **options
    )


def kaiser(M: int, *, beta: float = 12.0, sym: bool = True, **options: Any) -> Tensor:
    """Kaiser's window, of the Bessel function of order 0: a larger `beta` makes it narrower."""
    if beta < 0:
        raise ValueError(f"beta must be non-negative, got: {beta} instead.")
    return _window("kaiser", _relative(bessel(beta)), M, sym, **options)


def general_cosine(M: int, *, a: Iterable[float], sym: bool = True, **options: Any) -> Tensor:
    """A sum of cosines with the weights `a`, of alternating sign."""
    if not isinstance(a, Iterable):
        raise TypeError("Coefficients must be a list/tuple")
    terms = list(a)
    if not terms:
        raise ValueError("Coefficients cannot be empty")
    return _window("general_cosine", _relative(cosines(*terms)), M, sym, **options)


def general_hamming(M: int, *, alpha: float = 0.54, sym: bool = True, **options: Any) -> Tensor:
    """alpha - (1 - alpha) times a cosine."""
    return general_cosine(M, a=[alpha, 1.0 - alpha], sym=sym, **options)


def hamming(M: int, *, sym: bool = True, **options: Any) -> Tensor:
    """Hamming's window: 0.54 - 0.46 times a cosine."""
    return _window("hamming", _relative(cosines(0.54, 0.46)), M, sym, **options)


def hann(M: int, *, sym: bool = True, **options: Any) -> Tensor:
    """Hann's window: a half, less half a cosine."""
    return _window("hann", _relative(cosines(0.5, 0.5)), M, sym, **options)


def blackman(M: int, *, sym: bool = True, **options: Any) -> Tensor:
    """Blackman's window, of three cosines."""
    return _window("blackman", _relative(cosines(0.42, 0.5, 0.08)), M, sym, **options)


def nuttall(M: int, *, sym: bool = True, **options: Any) -> Tensor:
    """Nuttall's window, of four cosines."""
    terms = 0.3635819, 0.4891775, 0.1365995, 0.0106411
    return _window("nuttall", _relative(cosines(*terms)), M, sym, **options)


def bartlett(M: int, *, sym: bool = True, **options: Any) -> Tensor:
    """Bartlett's window: a triangle from 0 to 0."""
    return _window("bartlett", _relative(triangle), M, sym, **options)


__getattr__, __dir__ = namespace(__name__)
