"""Running sums, products and extrema."""

from __future__ import annotations

import numpy as np

from kernels.reference.common import compute_dtype, traced


@traced
def cumsum(x: np.ndarray, axis: int = -1) -> np.ndarray:
    """Inclusive running sum along `axis`, in x's dtype."""
    compute = compute_dtype(x.dtype)
    return np.cumsum(x, axis=axis, dtype=compute).astype(x.dtype, copy=False)


@traced
def cumprod(x: np.ndarray, axis: int = -1) -> np.ndarray:
    """Inclusive running product along `axis`, in x's dtype."""
    compute = {"float32": np.dtype(np.float64)}.get(x.dtype.name, compute_dtype(x.dtype))
    with np.errstate(all="ignore"):
        return np.cumprod(x, axis=axis, dtype=compute).astype(x.dtype, copy=False)


@traced
def logcumsumexp(x: np.ndarray, axis: int = -1) -> np.ndarray:
    """log(cumsum(exp(x))) along `axis`, of floats, in x's dtype, without overflow."""
    with np.errstate(all="ignore"):
        wide = x.astype(compute_dtype(x.dtype), copy=False)
        return np.logaddexp.accumulate(wide, axis).astype(x.dtype, copy=False)


@traced
def cummax(x: np.ndarray, axis: int = -1) -> tuple[np.ndarray, np.ndarray]:
    """Running maximum along `axis` and its places there: of equal elements the last, of NaN too."""
    return _extrema(np.maximum, x, axis)


@traced
def cummin(x: np.ndarray, axis: int = -1) -> tuple[np.ndarray, np.ndarray]:
    """Running minimum along `axis` and its places there: of equal elements the last, of NaN too."""
    return _extrema(np.minimum, x, axis)


def _extrema(function: np.ufunc, x: np.ndarray, axis: int) -> tuple[np.ndarray, np.ndarray]:
    if not x.ndim:
        return x.copy(), np.zeros((), np.int64)
    with np.errstate(invalid="ignore"):  # NaN in bfloat16
        best = function.accumulate(x, axis)
    place = np.arange(x.shape[axis]).reshape(
        [-1 if d == axis % x.ndim else 1 for d in range(x.ndim)]
    )
    reached = np.where((x == best) | (x != x), place, 0)
    return best, np.maximum.accumulate(reached, axis)
