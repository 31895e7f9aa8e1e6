"""What a mask chooses."""

from __future__ import annotations

import numpy as np

from kernels.reference.common import traced

_PART = 4096


@traced
def mask_ends(mask: np.ndarray) -> np.ndarray:
    """How many elements are True up to the end of each part of 4096, in order."""
    return np.add.reduceat(mask.ravel(), range(0, mask.size, _PART), dtype=np.int64).cumsum()


@traced
def masked_select(x: np.ndarray, mask: np.ndarray, ends: np.ndarray, found: int) -> np.ndarray:
    """The elements of x where a mask of its shape is True, in order, as one dimension."""
    return x[mask]


@traced
def mask_places(mask: np.ndarray, ends: np.ndarray, found: int) -> np.ndarray:
    """The places (found, ndim) where a mask is True, in order."""
    return np.argwhere(mask)
