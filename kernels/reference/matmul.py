"""Matrix multiplication."""

from __future__ import annotations

import numpy as np

from kernels.reference.common import compute_dtype, traced


@traced
def matmul(a: np.ndarray, b: np.ndarray, bias: np.ndarray | None = None) -> np.ndarray:
    """(..., m, k) @ (..., k, n) + bias (n,); batch dimensions broadcast."""
    compute = compute_dtype(a.dtype)
    y = np.matmul(a.astype(compute, copy=False), b.astype(compute, copy=False))
    if bias is not None:
        y = y + bias.astype(compute, copy=False)
    return y.astype(a.dtype, copy=False)
