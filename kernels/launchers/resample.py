"""Weighted sums of neighbours along a dimension: interpolation, averages, and their gradients.

rows  a thread per column of a row: those beside each other read elements beside each other
last  along the last axis: a thread per result, which gathers its neighbours
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np

from kernels.families import Family, Operation, floats, normal
from kernels.launchers.common import (
    Dialect,
    ceil_div,
    check_floating,
    compute_dtype,
    contiguous,
    empty,
    even_block,
    namespace,
    on_gpu,
)
from kernels.launchers.plans import Plans, place
from kernels.launchers.relaunch import remembered

BLOCK, CPU_BLOCK = (32, 8), (128, 8)  # a CPU loops along x: longer loops cost less each
VERSIONS = {
    "rows": "a thread per column of a row of results",
    "last": "along the last axis, a thread per result",
}

_plans = Plans()


class Taps:
    """Which neighbours, of `size` elements along a dimension, each result adds up.

    rows, columns, shares: the weight `shares[i]` of element `columns[i]` in the result `rows[i]`;
    what occurs several times adds up. A result reads every element from its first to its last.
    Raises ValueError for an element or a result that is not there.
    """

    def __init__(
        self,
        results: int,
        size: int,
        rows: Sequence[int] | np.ndarray,
        columns: Sequence[int] | np.ndarray,
        shares: Sequence[float] | np.ndarray,
    ) -> None:
        self.results, self.size = results, size
        row, column = np.asarray(rows, np.int64), np.asarray(columns, np.int64)
        inside = (row >= 0) & (row < results) & (column >= 0) & (column < size)
        if not inside.all():
            raise ValueError(f"resample: expected elements of {size} and results of {results}")
        first, last = np.full(results, size), np.full(results, -1)
        np.minimum.at(first, row, column)
        np.maximum.at(last, row, column)
        self.count = np.maximum(last - first + 1, 0).astype(np.int32)
        self.first = np.where(self.count > 0, first, 0).astype(np.int32)
        self.weights = np.zeros((int(self.count.max(initial=0)), results))
        np.add.at(self.weights, (column - self.first[row], row), np.asarray(shares, float))
        self._arrays: dict[tuple, tuple] = {}

    @functools.cached_property
    def keeps(self) -> bool:
        """Whether the results are the elements themselves."""
        each = np.arange(self.size)
        same = self.results == self.size and np.array_equal(self.first, each)
        return same and bool((self.count == 1).all() and (self.weights == 1).all())

    @functools.cached_property
    def transposed(self) -> Taps:
        """The taps of the gradient: what each element adds to the results."""
        taps, rows = np.nonzero(np.arange(len(self.weights))[:, None] < self.count)
        columns = self.first[rows] + taps
        found = Taps(self.size, self.results, columns, rows, self.weights[taps, rows])
        found.__dict__["transposed"] = self
        return found

    def arrays(self, like) -> tuple:
        """first, count, and the weights (width, results) in what sums of like's dtype are computed
        in, where `like` lies."""
        dtype = compute_dtype(like.dtype)
        key = dtype, type(like) is np.ndarray or place(like)
        found = self._arrays.get(key)
        if found is None:
            there = namespace(like).asarray
            weights = self.weights.astype(dtype).ravel()
            found = self._arrays[key] = there(self.first), there(self.count), there(weights)
        return found


@remembered(1)
def resample(
    dialect: Dialect, x: np.ndarray, axis: int, taps: Taps, version: str | None = None
) -> np.ndarray:
    """x with `taps.size` elements along `axis` replaced by `taps.results` weighted sums of them.

    16-bit floats are added in float32. version: default by axis, see the file's header. Raises
    ValueError for another length, IndexError for an axis that is not there.
    """
    check_floating("resample", x)
    if not -x.ndim <= axis < x.ndim:
        raise IndexError(f"resample: no axis {axis} in an array of {x.ndim} dimensions")
    axis %= x.ndim
    if x.shape[axis] != taps.size:
        raise ValueError(f"resample: expected {taps.size} elements along {axis}, got {x.shape}")
    out = empty((*x.shape[:axis], taps.results, *x.shape[axis + 1 :]), x.dtype, x)
    outer, inner = math.prod(x.shape[:axis]), math.prod(x.shape[axis + 1 :])
    version = version or ("last" if inner == 1 else "rows")
    if version not in VERSIONS or (version == "last" and inner != 1):
        raise ValueError(f"resample: {version!r} does not fit; versions: {[*VERSIONS]}")
    if not out.size:
        return out
    arrays = (contiguous(x).ravel(), *taps.arrays(x), out.ravel())
    across, along = (taps.results, outer) if version == "last" else (inner, taps.results)
    if on_gpu(x):
        block = BLOCK
    else:  # a loop over few results has a constant length
        block = even_block(along, across) if across <= 32 else CPU_BLOCK
    if version == "last":
        strips = ceil_div(taps.results, block[0])
        grid, numbers = ceil_div(outer, block[1]) * strips, (outer, strips, len(taps.weights))
    else:
        tiles, strips = ceil_div(taps.results, block[1]), ceil_div(inner, block[0])
        grid, numbers = outer * tiles * strips, (inner, tiles, strips)
    factory = getattr(dialect.resample, f"{version}_kernel")
    launch = _plans.launch("resample", version, factory, (x.dtype,), (grid,), block, x)
    launch(*arrays, taps.results, taps.size, *numbers)
    return out


def halves(size: int) -> Taps:
    """Averages of neighbours."""
    rows = np.arange(size - 1)
    both = np.concatenate([rows, rows])
    return Taps(size - 1, size, both, np.concatenate([rows, rows + 1]), np.full(2 * size - 2, 0.5))


def _cost(x, axis, taps, *_):
    shape = [taps.results if d == axis % x.ndim else n for d, n in enumerate(x.shape)]
    return [(tuple(shape), x.dtype)], 2 * len(taps.weights) * math.prod(shape)


def _cases(rng, versions):
    for version in versions("resample"):
        shape = (3, 70) if version == "last" else (3, 70, 33)
        yield "resample", (normal(rng, shape), 1, halves(70)), {"version": version}, 2


def _compiled(versions):
    for version in versions("resample"):
        x = floats(3, 9) if version == "last" else floats(3, 9, 5)
        yield "resample", (x, 1, halves(9)), {"version": version}


FAMILY = Family(
    "resample",
    (
        Operation(
            resample,
            _cost,
            lambda version: (
                (floats(40, 64) if version == "last" else floats(2, 64, 40), 1, halves(64)),
                {},
            ),
            versions=VERSIONS,
        ),
    ),
    _cases,
    _compiled,
)
