"""Cross products."""

from __future__ import annotations

import numpy as np

from kernels.reference.common import compute_dtype, traced


@traced
def cross(a: np.ndarray, b: np.ndarray, axis: int = -1) -> np.ndarray:
    """The cross products of the vectors of a and b along `axis`, for arrays of one shape and dtype;
    16-bit floats are multiplied in float32."""
    compute = compute_dtype(a.dtype)
    with np.errstate(all="ignore"):
        return np.cross(a.astype(compute), b.astype(compute), axis=axis).astype(a.dtype, copy=False)
