"""Weighted sums of neighbours along a dimension."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.reference.common import compute_dtype, traced


@traced
def resample(x: np.ndarray, axis: int, taps: Any) -> np.ndarray:
    """x with the elements along `axis` replaced by the sums of `taps`."""
    wide = np.moveaxis(x, axis, -1).astype(compute_dtype(x.dtype))
    total = np.zeros((*wide.shape[:-1], taps.results), wide.dtype)
    for k, weights in enumerate(taps.weights.astype(wide.dtype)):
        adds = k < taps.count
        total[..., adds] += weights[adds] * wide[..., taps.first[adds] + k]
    return np.ascontiguousarray(np.moveaxis(total, -1, axis)).astype(x.dtype)
