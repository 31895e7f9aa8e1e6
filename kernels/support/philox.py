"""Philox4x32-10 and uniform numbers in NumPy: those of the kernels, to the last bit."""

from __future__ import annotations

import numpy as np


def words(n: int, seed: int, offset: int) -> np.ndarray:
    """n random words (Salmon, Moraes, Dror, Shaw: Parallel random numbers, 2011).

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


def uniform(n: int, seed: int, offset: int, dtype: np.dtype) -> np.ndarray:
    """n numbers in [0, 1): float64 with 53 random bits, or float32 with 24 for any other dtype."""
    if dtype == np.float64:  # 53 bits out of two words
        pairs = words(2 * n, seed, offset).astype(np.uint64)
        high, low = pairs[0::2] >> np.uint64(5), pairs[1::2] >> np.uint64(6)
        return (high * np.uint64(2**26) + low) * 2.0**-53
    return (words(n, seed, offset) >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24)
