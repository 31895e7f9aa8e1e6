"""Softmax and log-softmax with their gradients."""

from __future__ import annotations

import numpy as np

from kernels.reference.common import compute_dtype, traced


@traced
def softmax(x: np.ndarray, axis: int = -1) -> np.ndarray:
    """exp(x) / sum(exp(x)) along `axis`, shifted by the maximum."""
    z = x.astype(compute_dtype(x.dtype), copy=False)
    with np.errstate(all="ignore"):
        e = np.exp(z - z.max(axis=axis, keepdims=True, initial=-np.inf))
        return (e / e.sum(axis=axis, keepdims=True)).astype(x.dtype, copy=False)


def log_softmax_and_sum(z: np.ndarray, axis: int) -> tuple[np.ndarray, np.ndarray]:
    """Log-softmax and the log-sum-exp along `axis` (kept)."""
    with np.errstate(all="ignore"):
        top = z.max(axis=axis, keepdims=True, initial=-np.inf)
        lse = top + np.log(np.exp(z - top).sum(axis=axis, keepdims=True))
        return z - lse, lse


@traced
def log_softmax(x: np.ndarray, axis: int = -1) -> np.ndarray:
    """x - logsumexp(x) along `axis`."""
    z = x.astype(compute_dtype(x.dtype), copy=False)
    return log_softmax_and_sum(z, axis)[0].astype(x.dtype, copy=False)


@traced
def softmax_backward(g: np.ndarray, y: np.ndarray, axis: int = -1) -> np.ndarray:
    """Gradient of softmax, given its result y: y * (g - sum(g * y))."""
    dtype = compute_dtype(g.dtype)
    g_, y_ = g.astype(dtype, copy=False), y.astype(dtype, copy=False)
    return (y_ * (g_ - (g_ * y_).sum(axis=axis, keepdims=True))).astype(g.dtype, copy=False)


@traced
def log_softmax_backward(g: np.ndarray, y: np.ndarray, axis: int = -1) -> np.ndarray:
    """Gradient of log_softmax, given its result y: g - exp(y) * sum(g)."""
    dtype = compute_dtype(g.dtype)
    g_, y_ = g.astype(dtype, copy=False), y.astype(dtype, copy=False)
    return (g_ - np.exp(y_) * g_.sum(axis=axis, keepdims=True)).astype(g.dtype, copy=False)
