"""Copies: contiguous, cast, transposed, concatenated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

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


_NAMES: Any = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}


@traced
def pad(
    x: np.ndarray, pads: Sequence[tuple[int, int]], mode: str = "constant", value: float = 0.0
) -> np.ndarray:
    """x with (before, after) more elements per dimension: of the value, of "reflect" (about the
    first and the last element), "replicate" (those) or "circular". With "constant" negative ones
    crop."""
    if not x.ndim:
        return x.copy()
    cut = tuple(slice(max(-a, 0), n - max(-b, 0)) for n, (a, b) in zip(x.shape, pads))
    grown = [(max(a, 0), max(b, 0)) for a, b in pads]
    if mode == "constant":
        return np.pad(x[cut], grown, constant_values=np.asarray(value).astype(x.dtype))
    return np.pad(x[cut], grown, _NAMES[mode])


@traced
def triangle(x: np.ndarray, diagonal: int, lower: bool) -> np.ndarray:
    """The lower (j - i <= diagonal) or upper triangle of the last two dimensions, else zeros."""
    return np.tril(x, diagonal) if lower else np.triu(x, diagonal)
