"""Running sums: rows by segments, other axes by columns."""

from __future__ import annotations

import math

import numpy as np

from kernels.families import Family, Operation, floats, like_first, normal, ones
from kernels.launchers.common import (
    Dialect,
    ceil_div,
    check_version,
    compute_dtype,
    contiguous,
    empty,
    on_gpu,
    splits,
)
from kernels.launchers.plans import Plans
from kernels.launchers.relaunch import remembered
from kernels.launchers.transpose import cast, copy

VERSIONS = {
    "hillis_steele": "every element adds the one `stride` before it, stride doubling",
    "blelloch": "sums up a tree and back down: work of order n",
    "shuffle": "warps scan in registers, one warp scans the warps' sums",
}
THREADS = 256
CPU_ROWS = 4  # that a block on a CPU takes, a thread each
SEGMENT, LEAST_SEGMENT = 16384, 1024  # of a row, for a block; the latter for more blocks on a GPU
LONG_COLUMN = 256  # elements of columns that are copied to rows where a GPU has few of them


def accumulator(dtype: np.dtype) -> np.dtype:
    """What elements of the dtype are added in."""
    return dtype if dtype.kind == "f" else np.dtype(np.int64)


_plans = Plans()


@remembered(1)
def cumsum(
    dialect: Dialect, x: np.ndarray, axis: int = -1, version: str | None = None
) -> np.ndarray:
    """Inclusive running sum along `axis`, in x's dtype; 16-bit floats are added in float32.

    version: a version of the ladder for the last axis (default "shuffle"; on a CPU, where threads
    of a block take turns anyway, a thread per row). Raises IndexError for an axis that is not
    there, ValueError for a version that does not fit.
    """
    check_version("cumsum", version, VERSIONS)
    if not -max(x.ndim, 1) <= axis < max(x.ndim, 1):
        raise IndexError(f"cumsum: axis {axis} is out of range for {x.ndim} dimensions")
    compute = compute_dtype(x.dtype)
    if compute != x.dtype:
        return cast(dialect, cumsum(dialect, cast(dialect, x, compute), axis, version), x.dtype)
    axis %= max(x.ndim, 1)
    length = x.shape[axis] if x.ndim else 1
    inner = math.prod(x.shape[axis + 1 :])
    out = empty(x.shape, x.dtype, x)
    if x.size == 0:
        return out
    flat = contiguous(x).ravel()
    if inner == 1 and (version is not None or on_gpu(x)):
        _scan_rows(dialect, flat, out.ravel(), length, version or "shuffle")
    elif version is not None:
        raise ValueError(f"cumsum: version {version!r} scans along the last axis, not {axis}")
    else:
        threads = CPU_ROWS if inner == 1 else THREADS
        grid = ceil_div(x.size // length, threads)
        if on_gpu(x) and length >= LONG_COLUMN and splits(grid, length, LONG_COLUMN // 2) > 1:
            rows = cumsum(dialect, copy(dialect, x.swapaxes(axis, -1)))
            return copy(dialect, rows.swapaxes(axis, -1))
        dtypes = x.dtype, _total(x)
        kernel = dialect.scan.columns_kernel
        launch = _plans.launch("cumsum", "columns", kernel, dtypes, grid, threads, x)
        launch(flat, out.ravel(), length, inner)
    return out


def _total(x) -> np.dtype:
    """What a thread adds all of a column in: float64 where that costs nothing."""
    return np.dtype(np.float64) if x.dtype == np.float32 and not on_gpu(x) else accumulator(x.dtype)


def _scan_rows(dialect: Dialect, x, out, length: int, version: str) -> None:
    """Scan each row of flat x (rows, length) into out."""
    rows, segment = x.size // length, SEGMENT
    if on_gpu(x):
        wanted = max(splits(rows, length, LEAST_SEGMENT), ceil_div(length, SEGMENT))
        segment = ceil_div(ceil_div(length, wanted), THREADS) * THREADS
    segments = ceil_div(length, segment)
    blocks = rows * segments
    totals = empty((blocks,), accumulator(x.dtype), x)
    kernel = dialect.scan.rows_kernel
    scan = _plans.launch("cumsum", version, kernel, (version, x.dtype), blocks, THREADS, x)
    scan(x, out, totals, length, segment, segments)
    if segments > 1:
        sums = empty((blocks,), totals.dtype, x)
        _scan_rows(dialect, totals, sums, segments, version)
        kernel = dialect.scan.offsets_kernel
        add = _plans.launch("cumsum", version, kernel, (x.dtype,), blocks, THREADS, x)
        add(out, sums, length, segment, segments)


def _problem(version: str):
    return (floats(60, 50), 0) if version == "columns" else (floats(3, 700), 1), {}


def _cases(rng, versions):
    for version in VERSIONS:
        yield "cumsum", (normal(rng, (2, 17_001)),), {"version": version}, 1000
    yield "cumsum", (normal(rng, (5, 33, 2)), 1), {}, 33
    yield "cumsum", (normal(rng, (7, 1025)),), {}, 1000


def _compiled(versions):
    for version in versions("cumsum"):
        yield "cumsum", (ones(2, 33_001),), {"version": version}
    yield "cumsum", (ones(3, 29, 43), 1), {}


FAMILY = Family(
    "scan",
    (
        Operation(
            cumsum,
            like_first(1),
            _problem,
            VERSIONS,
            by_shape={
                "columns": "a thread per column, for an axis that is not the last; on a CPU also"
                " a thread per row"
            },
        ),
    ),
    _cases,
    _compiled,
)
