"""Batch normalisation with its gradient, and the gradient of group norm."""

from __future__ import annotations

import numpy as np

from kernels.reference.common import compute_dtype, traced


def _per_channel(v: np.ndarray | None, ndim: int, default: float, dtype: np.dtype) -> np.ndarray:
    """v (C,) shaped to broadcast over (N, C, ...)."""
    if v is None:
        return dtype.type(default)
    return v.astype(dtype, copy=False).reshape((-1,) + (1,) * (ndim - 2))


@traced
def batch_norm(
    x: np.ndarray, weight: np.ndarray | None, bias: np.ndarray | None, eps: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Normalise x (N, C, ...) by the statistics of the batch.

    Returns y, the mean (C,) and 1 / sqrt(biased variance + eps) (C,).
    """
    dtype = compute_dtype(x.dtype)
    z = x.astype(dtype, copy=False)
    axes = (0, *range(2, x.ndim))
    mean = z.mean(axes)
    invstd = (1 / np.sqrt(z.var(axes) + dtype.type(eps))).astype(dtype)
    return batch_norm_apply.__wrapped__(x, mean, invstd, weight, bias), mean, invstd


@traced
def batch_norm_apply(
    x: np.ndarray,
    mean: np.ndarray,
    invstd: np.ndarray,
    weight: np.ndarray | None,
    bias: np.ndarray | None,
) -> np.ndarray:
    """(x - mean) * invstd * weight + bias, per channel of x (N, C, ...)."""
    dtype = compute_dtype(x.dtype)
    m = _per_channel(mean, x.ndim, 0, dtype)
    scale = _per_channel(invstd, x.ndim, 1, dtype) * _per_channel(weight, x.ndim, 1, dtype)
    y = (x.astype(dtype, copy=False) - m) * scale + _per_channel(bias, x.ndim, 0, dtype)
    return y.astype(x.dtype, copy=False)


@traced
def batch_norm_backward(
    g: np.ndarray,
    x: np.ndarray,
    mean: np.ndarray,
    invstd: np.ndarray,
    weight: np.ndarray | None,
    fixed: bool = False,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Gradients of batch_norm with respect to x, weight (C,) and bias (C,); `fixed`: those of
    batch_norm_apply, whose statistics do not depend on x."""
    dtype = compute_dtype(x.dtype)
    axes = (0, *range(2, x.ndim))
    g_ = g.astype(dtype, copy=False)
    inv = _per_channel(invstd, x.ndim, 1, dtype)
    xhat = (x.astype(dtype, copy=False) - _per_channel(mean, x.ndim, 0, dtype)) * inv
    dbias, dweight = g_.sum(axes), (g_ * xhat).sum(axes)
    n = dtype.type(max(x.size // max(x.shape[1], 1), 1))
    centred = (
        g_ - _per_channel(dbias, x.ndim, 0, dtype) / n
        - xhat * _per_channel(dweight, x.ndim, 0, dtype) / n
    )  # fmt: skip
    dx = inv * _per_channel(weight, x.ndim, 1, dtype) * (g_ if fixed else centred)
    return dx.astype(x.dtype, copy=False), dweight, dbias


@traced
def group_norm_backward(
    g: np.ndarray,
    x: np.ndarray,
    mean: np.ndarray,
    invstd: np.ndarray,
    weight: np.ndarray | None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Gradients of group norm with respect to x (N, C, ...), weight (C,) and bias (C,); mean and
    invstd (N, G)."""
    dtype, (n, groups) = compute_dtype(x.dtype), mean.shape
    grouped = (n, groups, x.shape[1] // groups, -1) if x.size else (n, groups, 0, 0)
    g_, z = (a.astype(dtype, copy=False).reshape(grouped) for a in (g, x))
    xhat = (z - mean[..., None, None]) * invstd[..., None, None]
    dbias, dweight = (a.sum((0, 3)).reshape(-1) for a in (g_, g_ * xhat))
    scaled = g_ if weight is None else g_ * weight.astype(dtype).reshape(groups, -1, 1)
    means = [a.mean((2, 3), keepdims=True) for a in (scaled, scaled * xhat)]
    dx = invstd[..., None, None] * (scaled - means[0] - xhat * means[1])
    return dx.reshape(x.shape).astype(x.dtype, copy=False), dweight, dbias
