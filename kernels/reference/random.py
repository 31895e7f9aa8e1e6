"""Random numbers by Philox4x32-10, and dropout."""

from __future__ import annotations

import math

import numpy as np

from kernels.reference.common import compute_dtype, traced


@traced
def philox_uint32(n: int, seed: int, offset: int) -> np.ndarray:
    """n random words by Philox4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel random numbers, 2011).

    Word i is word i % 4 of the block with counter (i // 4, offset), each 64 bits, and key `seed`.
    """
    blocks = np.arange((n + 3) // 4, dtype=np.uint64)
    low, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
    c = [blocks & low, blocks >> shift]
    c += [
        np.full_like(blocks, offset & 0xFFFFFFFF),
        np.full_like(blocks, (offset >> 32) & 2**32 - 1),
    ]
    k0, k1 = seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF
    for _ in range(10):
        p0, p1 = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [
            (p1 >> shift) ^ c[1] ^ np.uint64(k0),
            p1 & low,
            (p0 >> shift) ^ c[3] ^ np.uint64(k1),
            p0 & low,
        ]
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return np.stack(c, 1).astype(np.uint32).ravel()[:n]


def _uniform_flat(n: int, seed: int, offset: int, dtype: np.dtype) -> np.ndarray:
    if dtype == np.float64:  # 53 bits out of two words
        words = philox_uint32.__wrapped__(2 * n, seed, offset).astype(np.uint64)
        high, low = words[0::2] >> np.uint64(5), words[1::2] >> np.uint64(6)
        return (high * np.uint64(2**26) + low) * 2.0**-53
    words = philox_uint32.__wrapped__(n, seed, offset)
    return (words >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24)


@traced
def uniform(
    shape: tuple[int, ...], seed: int, offset: int, dtype: np.dtype = np.float32
) -> np.ndarray:
    """Uniform numbers in [0, 1): 24 random bits for float32, 53 for float64."""
    dtype = np.dtype(dtype)
    return _uniform_flat(math.prod(shape), seed, offset, dtype).astype(dtype).reshape(shape)


@traced
def normal(
    shape: tuple[int, ...], seed: int, offset: int, dtype: np.dtype = np.float32
) -> np.ndarray:
    """Standard normal numbers: Box and Muller's transform of pairs of `uniform` numbers."""
    dtype, n = np.dtype(dtype), math.prod(shape)
    u = _uniform_flat(n + n % 2, seed, offset, dtype).astype(np.float64)
    radius = np.sqrt(-2 * np.log(1 - u[0::2]))
    angle = 2 * np.pi * u[1::2]
    z = np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1).ravel()[:n]
    return z.astype(dtype).reshape(shape)


@traced
def dropout(x: np.ndarray, p: float, seed: int, offset: int) -> np.ndarray:
    """Zero each element with probability p and scale the others by 1 / (1 - p).

    An element is kept where `uniform(x.shape, seed, offset, float32)` is at least p, so the
    gradient is the same call on the incoming gradient and no mask is stored.
    """
    if p >= 1:
        return np.zeros(x.shape, x.dtype)
    keep = _uniform_flat(x.size, seed, offset, np.dtype(np.float32)).reshape(x.shape)
    compute = compute_dtype(x.dtype)
    scaled = x.astype(compute, copy=False) * compute.type(1 / (1 - p))
    return np.where(keep >= np.float32(p), scaled, compute.type(0)).astype(x.dtype, copy=False)
