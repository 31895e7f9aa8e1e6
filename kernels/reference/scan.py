"""Running sums."""

from __future__ import annotations

import numpy as np

from kernels.reference.common import compute_dtype, traced


@traced
def cumsum(x: np.ndarray, axis: int = -1) -> np.ndarray:
    """Inclusive running sum along `axis`, in x's dtype."""
    compute = compute_dtype(x.dtype)
    return np.cumsum(x, axis=axis, dtype=compute).astype(x.dtype, copy=False)
