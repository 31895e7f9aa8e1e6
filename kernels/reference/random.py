"""Random numbers by Philox4x32-10, and dropout."""

from __future__ import annotations

import math

import numpy as np

from kernels.reference.common import compute_dtype, traced
from kernels.support import philox


@traced
def philox_uint32(n: int, seed: int, offset: int) -> np.ndarray:
    """n random words by Philox4x32-10: see `philox.words`."""
    return philox.words(n, seed, offset)


@traced
def uniform(
    shape: tuple[int, ...],
    seed: int,
    offset: int,
    dtype: np.dtype = np.float32,
    out: np.ndarray | None = None,
) -> np.ndarray:
    """Uniform numbers in [0, 1): 24 random bits for float32, 53 for float64."""
    dtype = np.dtype(dtype)
    numbers = philox.uniform(math.prod(shape), seed, offset, dtype)
    return _shaped(numbers.astype(dtype), shape, out)


def _shaped(numbers: np.ndarray, shape: tuple[int, ...], out: np.ndarray | None) -> np.ndarray:
    """Numbers in a shape, in `out` where that is given."""
    if out is None:
        return numbers.reshape(shape)
    out[...] = numbers.reshape(shape)
    return out


@traced
def normal(
    shape: tuple[int, ...],
    seed: int,
    offset: int,
    dtype: np.dtype = np.float32,
    out: np.ndarray | None = None,
) -> np.ndarray:
    """Standard normal numbers: Box and Muller's transform of pairs of `uniform` numbers."""
    dtype, n = np.dtype(dtype), math.prod(shape)
    u = philox.uniform(n + n % 2, seed, offset, dtype).astype(np.float64)
    radius = np.sqrt(-2 * np.log(1 - u[0::2]))
    angle = 2 * np.pi * u[1::2]
    z = np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1).ravel()[:n]
    return _shaped(z.astype(dtype), shape, out)


@traced
def dropout(x: np.ndarray, p: float, seed: int, offset: int) -> np.ndarray:
    """Zero each element with probability p and scale the others by 1 / (1 - p).

    An element is kept where `uniform(x.shape, seed, offset, float32)` is at least p, so the
    gradient is the same call on the incoming gradient and no mask is stored.
    """
    if p >= 1:
        return np.zeros(x.shape, x.dtype)
    keep = philox.uniform(x.size, seed, offset, np.dtype(np.float32)).reshape(x.shape)
    compute = compute_dtype(x.dtype)
    scaled = x.astype(compute, copy=False) * compute.type(1 / (1 - p))
    return np.where(keep >= np.float32(p), scaled, compute.type(0)).astype(x.dtype, copy=False)
