"""Distances of rows."""

from __future__ import annotations

import numpy as np

from kernels.reference.common import compute_dtype, traced

_NORMS = {
    "norm1": lambda x: np.abs(x).sum(-1),
    "norm2": lambda x: np.sqrt((x * x).sum(-1)),
    "norm_inf": lambda x: np.abs(x).max(-1, initial=0),
}


def _distances(a: np.ndarray, b: np.ndarray, line: str) -> np.ndarray:
    compute = compute_dtype(a.dtype)
    with np.errstate(all="ignore"):
        return _NORMS[line](a.astype(compute) - b.astype(compute)).astype(a.dtype, copy=False)


@traced
def distances(a: np.ndarray, b: np.ndarray, line: str = "norm2") -> np.ndarray:
    """The norms of the differences of all rows of a (batch, m, k) and b (batch, n, k)."""
    return _distances(a[:, :, None], b[:, None], line)


@traced
def pair_distances(a: np.ndarray, line: str = "norm2") -> np.ndarray:
    """The norms of the differences of each row of a (n, k) and all rows after it."""
    first, second = np.triu_indices(len(a), 1)
    return _distances(a[first], a[second], line)
