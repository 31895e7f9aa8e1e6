"""Layer norm and RMS norm with their gradients: each row by its own statistics."""

from __future__ import annotations

import numpy as np

from kernels.reference.common import compute_dtype, traced


def _rows(x: np.ndarray, dims: int) -> np.ndarray:
    """x (..., the last `dims` dimensions) as rows, in the dtype that is computed in."""
    n = int(np.prod(x.shape[x.ndim - dims :]))
    rows = int(np.prod(x.shape[: x.ndim - dims]))
    return x.reshape(rows, n).astype(compute_dtype(x.dtype), copy=False)


def _flat(v: np.ndarray | None, default: float, dtype: np.dtype) -> np.ndarray:
    return dtype.type(default) if v is None else v.astype(dtype, copy=False).reshape(1, -1)


def _invstd(squares: np.ndarray, n: int, eps: float) -> np.ndarray:
    dtype = squares.dtype
    with np.errstate(all="ignore"):
        return 1 / np.sqrt(squares / dtype.type(n) + dtype.type(eps))


@traced
def layer_norm(
    x: np.ndarray, weight: np.ndarray | None, bias: np.ndarray | None, eps: float, dims: int = 1
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Normalise x over its last `dims` dimensions, whose shape weight and bias have (or None).

    Returns y, and per row the mean and 1 / sqrt(biased variance + eps), of the shape of the other
    dimensions.
    """
    z = _rows(x, dims)
    n, lead = z.shape[1], x.shape[: x.ndim - dims]
    mean = z.sum(1) / z.dtype.type(max(n, 1))
    centred = z - mean[:, None]
    with np.errstate(over="ignore"):
        invstd = _invstd((centred * centred).sum(1), n, eps)
    invstd = np.where(invstd == 0, np.nan, invstd).astype(z.dtype)  # the squares overflow
    y = centred * invstd[:, None] * _flat(weight, 1, z.dtype) + _flat(bias, 0, z.dtype)
    y = y.astype(x.dtype, copy=False).reshape(x.shape)
    return y, mean.reshape(lead), invstd.reshape(lead)


@traced
def rms_norm(
    x: np.ndarray, weight: np.ndarray | None, eps: float, dims: int = 1
) -> tuple[np.ndarray, np.ndarray]:
    """x * weight / sqrt(mean(x * x) + eps) over the last `dims` dimensions.

    Returns y, and per row 1 / sqrt(mean(x * x) + eps).
    """
    z = _rows(x, dims)
    invrms = _invstd((z * z).sum(1), z.shape[1], eps)
    y = (z * invrms[:, None] * _flat(weight, 1, z.dtype)).astype(x.dtype, copy=False)
    return y.reshape(x.shape), invrms.reshape(x.shape[: x.ndim - dims])


def _gradients(g, x, mean, invstd, weight, dims, affine):
    """(dx, dweight, dbias); mean None for RMS norm."""
    z, g_ = _rows(x, dims), _rows(g, dims)
    inv = invstd.reshape(-1, 1).astype(z.dtype, copy=False)
    xhat = (z if mean is None else z - mean.reshape(-1, 1).astype(z.dtype, copy=False)) * inv
    scaled = g_ * _flat(weight, 1, z.dtype)
    n = z.dtype.type(max(z.shape[1], 1))
    inner = scaled - xhat * ((scaled * xhat).sum(1, keepdims=True) / n)
    if mean is not None:
        inner = inner - scaled.sum(1, keepdims=True) / n
    dx = (inv * inner).astype(x.dtype, copy=False).reshape(x.shape)
    if not affine:
        return dx, None, None
    shape = x.shape[x.ndim - dims :]
    return dx, (g_ * xhat).sum(0).reshape(shape), g_.sum(0).reshape(shape)


@traced
def layer_norm_backward(
    g: np.ndarray,
    x: np.ndarray,
    mean: np.ndarray,
    invstd: np.ndarray,
    weight: np.ndarray | None,
    dims: int = 1,
    affine: bool = True,
) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None]:
    """Gradients of layer_norm by x, weight and bias; the last two None if not `affine`."""
    return _gradients(g, x, mean, invstd, weight, dims, affine)


@traced
def rms_norm_backward(
    g: np.ndarray,
    x: np.ndarray,
    invrms: np.ndarray,
    weight: np.ndarray | None,
    dims: int = 1,
    affine: bool = True,
) -> tuple[np.ndarray, np.ndarray | None]:
    """Gradients of rms_norm by x and weight; the second None if not `affine`."""
    return _gradients(g, x, None, invrms, weight, dims, affine)[:2]
