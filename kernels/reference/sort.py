"""Sorting rows, and places in sorted ones."""

from __future__ import annotations

import numpy as np

from kernels.reference.common import compute_dtype, traced


@traced
def sort(
    x: np.ndarray, descending: bool = False, start: int = 0, stop: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Each row of x (rows, n) in order, from place `start` to `stop`, and the positions of these
    elements. Equal elements keep their order, NaN counts as the largest."""
    wide = x.astype(compute_dtype(x.dtype))
    if descending:  # from behind, where of equal elements the last one is the first
        positions = x.shape[1] - 1 - np.argsort(wide[:, ::-1], axis=1, kind="stable")[:, ::-1]
    else:
        positions = np.argsort(wide, axis=1, kind="stable")
    positions = np.ascontiguousarray(positions[:, start:stop])
    return np.take_along_axis(x, positions, 1), positions


@traced
def searchsorted(sequence: np.ndarray, values: np.ndarray, right: bool = False) -> np.ndarray:
    """Before how many elements of its row of `sequence` (rows, n) each of `values` (rows, m) is to
    be inserted, with `right` behind equal ones."""
    compute = compute_dtype(values.dtype)
    out = np.zeros(values.shape, np.int64)
    for row, own, found in zip(sequence, values, out):
        row, own = row.astype(compute), own.astype(compute)
        found[:] = np.searchsorted(row, own, "right" if right else "left")
    return out
