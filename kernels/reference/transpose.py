"""Copies: contiguous, cast, transposed, concatenated."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kernels.reference.common import traced


@traced
def copy(x: np.ndarray) -> np.ndarray:
    """A C-contiguous copy."""
    return np.array(x, order="C", copy=True)


@traced
def cast(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """A C-contiguous copy of another dtype, with C's conversions."""
    with np.errstate(all="ignore"):
        return x.astype(dtype, order="C")


@traced
def transpose(x: np.ndarray, axes: Sequence[int]) -> np.ndarray:
    """A C-contiguous copy with the axes in the order given."""
    return np.array(x.transpose(axes), order="C", copy=True)


@traced
def concat(arrays: Sequence[np.ndarray], axis: int = 0) -> np.ndarray:
    """The arrays, of one dtype, one after the other along `axis`."""
    return np.concatenate(arrays, axis=axis)
