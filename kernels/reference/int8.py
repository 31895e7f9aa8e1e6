"""Products of 8-bit integers, and the rounding of rows to them, in NumPy."""

from __future__ import annotations

import numpy as np

from kernels.reference.common import traced


@traced
def quantize_rows(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(int8 q (m, k), scale (m,)) with x about q * scale, the largest of a row at 127."""
    top = np.abs(x).max(1, initial=0)
    scale = (np.where(top > 0, top, 1) / 127).astype(np.float32)
    return np.rint(x / scale[:, None].astype(x.dtype)).clip(-127, 127).astype(np.int8), scale


@traced
def int8_matmul(
    a: np.ndarray,
    b: np.ndarray,
    scale_a: np.ndarray,
    scale_b: np.ndarray,
    bias: np.ndarray | None = None,
) -> np.ndarray:
    """(a (m, k) @ b (n, k).T) * scale_a (m, 1) * scale_b (n,) + bias (n,)."""
    exact = a.astype(np.int64) @ b.T.astype(np.int64)
    out = exact * scale_a[:, None] * scale_b
    return (out if bias is None else out + bias).astype(scale_a.dtype)
