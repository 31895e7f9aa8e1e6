"""Running sums, products and extrema: rows by segments, other axes by columns."""

from __future__ import annotations

import math

import numpy as np

from kernels.families import Family, Operation, Versions, floats, like_first, normal, ones
from kernels.launchers.common import (
    Dialect,
    ceil_div,
    check_floating,
    check_version,
    compute_dtype,
    contiguous,
    empty,
    on_gpu,
    splits,
)
from kernels.launchers.plans import Plans
from kernels.launchers.reduction import accumulator_dtype, pass_key
from kernels.launchers.relaunch import remembered
from kernels.launchers.transpose import cast, copy

VERSIONS = {
    "hillis_steele": "every element adds the one `stride` before it, stride doubling",
    "blelloch": "sums up a tree and back down: work of order n",
    "shuffle": "warps scan in registers, one warp scans the warps' sums",
}
EXTREMA = {
    "shuffle": "warps exchange values and places in registers, then all take the winner so far"
}
THREADS = 256
CPU_ROWS = 4  # that a block on a CPU takes, a thread each: one after the other is fastest
SEGMENT, LEAST_SEGMENT = 16384, 1024  # of a row, for a block; the latter for more blocks on a GPU
SHORT_ROW, MANY_ROWS = 8, 64  # elements, and rows, that a CPU takes side by side
LEAST_TILE = 32  # columns of which a CPU takes tiles
LONG_COLUMN = 256  # elements of columns that are copied to rows where a GPU has few of them


LINES = {
    "cumsum": "sum",
    "cumprod": "prod",
    "logcumsumexp": "logsumexp",
    "cummax": "argmax",
    "cummin": "argmin",
}

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
    return _combined(dialect, "cumsum", x, axis, version)


@remembered(1)
def cumprod(
    dialect: Dialect, x: np.ndarray, axis: int = -1, version: str | None = None
) -> np.ndarray:
    """Inclusive running product along `axis`, as `cumsum` is the sum."""
    return _combined(dialect, "cumprod", x, axis, version)


@remembered(1)
def logcumsumexp(
    dialect: Dialect, x: np.ndarray, axis: int = -1, version: str | None = None
) -> np.ndarray:
    """log(cumsum(exp(x))) along `axis` without overflow, as `cumsum` is the sum; x of floats."""
    check_floating("logcumsumexp", x)
    return _combined(dialect, "logcumsumexp", x, axis, version)


@remembered(1)
def cummax(
    dialect: Dialect, x: np.ndarray, axis: int = -1, version: str | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Running maximum along `axis` and its places there (int64): of equal elements the last one. A
    NaN is larger than all numbers. `version` and errors are those of `cumsum`."""
    return _extrema(dialect, "cummax", x, axis, version)


@remembered(1)
def cummin(
    dialect: Dialect, x: np.ndarray, axis: int = -1, version: str | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Running minimum along `axis` and its places there, as `cummax`; a NaN is the smallest."""
    return _extrema(dialect, "cummin", x, axis, version)


def _checked(name: str, x, axis: int, version: str | None, versions: Versions) -> int:
    """The axis, not negative."""
    check_version(name, version, versions)
    if not -max(x.ndim, 1) <= axis < max(x.ndim, 1):
        raise IndexError(f"{name}: axis {axis} is out of range for {x.ndim} dimensions")
    axis %= max(x.ndim, 1)
    if version is not None and x.size and math.prod(x.shape[axis + 1 :]) > 1:
        raise ValueError(f"{name}: version {version!r} scans along the last axis, not {axis}")
    return axis


def _combined(dialect: Dialect, name: str, x, axis: int, version: str | None):
    """Running sums or products, with a version for rows or by columns."""
    axis = _checked(name, x, axis, version, VERSIONS)
    compute = compute_dtype(x.dtype)
    if compute != x.dtype:
        wide = _combined(dialect, name, cast(dialect, x, compute), axis, version)
        return cast(dialect, wide, x.dtype)
    out = empty(x.shape, x.dtype, x)
    if x.size == 0:
        return out
    length, inner = _sizes(x, axis)
    flat = contiguous(x).ravel()
    if inner == 1 and (version is not None or on_gpu(x)):
        _scan_rows(dialect, name, flat, out.ravel(), length, version or "shuffle")
        return out
    if _columns_are_better(x, length, inner):
        columns = copy(dialect, flat.reshape(-1, length).T)
        return copy(dialect, _combined(dialect, name, columns, 0, None).T).reshape(x.shape)
    grid, threads = _columns(x, length, inner)
    if _rows_are_better(x, length, grid):
        rows = _combined(dialect, name, copy(dialect, x.swapaxes(axis, -1)), -1, None)
        return copy(dialect, rows.swapaxes(axis, -1))
    outer, tiles = x.size // (length * inner), ceil_div(inner, THREADS)
    tiled = not on_gpu(x) and (inner >= LEAST_TILE or outer == 1 < inner)
    grid = outer * tiles if tiled else grid
    constants = LINES[name], x.dtype, _total(x), tiled
    kernel = dialect.scan.columns_kernel
    launch = _plans.launch(name, "columns", kernel, constants, grid, threads, x)
    launch(flat, out.ravel(), length, inner, tiles)
    return out


def _sizes(x, axis: int) -> tuple[int, int]:
    """The length of the scans, and how many are side by side in memory."""
    return x.shape[axis] if x.ndim else 1, math.prod(x.shape[axis + 1 :])


def _columns(x, length: int, inner: int) -> tuple[int, int]:
    """Blocks and their threads, one per column."""
    threads = CPU_ROWS if inner == 1 else THREADS
    return ceil_div(x.size // length, threads), threads


def _rows_are_better(x, length: int, blocks: int) -> bool:
    """Whether a GPU has so few columns that they are copied to rows."""
    return on_gpu(x) and length >= LONG_COLUMN and splits(blocks, length, LONG_COLUMN // 2) > 1


def _columns_are_better(x, length: int, inner: int) -> bool:
    """Whether a CPU has so many short rows that they are copied to columns, which go together."""
    return inner == 1 < length <= SHORT_ROW and not on_gpu(x) and x.size >= MANY_ROWS * length


def _total(x) -> np.dtype:
    """What a thread combines all of a column in: float64 where that costs nothing."""
    double = x.dtype == np.float32 and not on_gpu(x)
    return np.dtype(np.float64) if double else accumulator_dtype("sum", x.dtype)


def _segments(x, length: int) -> tuple[int, int, int]:
    """For flat x (rows, length): the length of a segment, segments per row, blocks in all."""
    rows, segment = x.size // length, SEGMENT
    if on_gpu(x):
        wanted = max(splits(rows, length, LEAST_SEGMENT), ceil_div(length, SEGMENT))
        segment = ceil_div(ceil_div(length, wanted), THREADS) * THREADS
    segments = ceil_div(length, segment)
    return segment, segments, rows * segments


def _scan_rows(dialect: Dialect, name: str, x, out, length: int, version: str) -> None:
    """Scan each row of flat x (rows, length) into out: the totals of segments, then these."""
    segment, segments, blocks = _segments(x, length)
    line = LINES[name]
    before = empty((blocks,), accumulator_dtype(line, x.dtype), x)
    if segments > 1:
        totals = empty((blocks,), before.dtype, x)
        key = THREADS, *pass_key(line, x.dtype, x.dtype, True, False)
        factory = dialect.reduction.rows_by_block
        total = _plans.launch(name, "totals", factory, key, blocks, THREADS, x)
        total(x, totals, length, segment, segments, length)
        _scan_rows(dialect, name, totals, before, segments, version)
    factory, constants = dialect.scan.rows_kernel, (line, version, x.dtype)
    scan = _plans.launch(name, version, factory, constants, blocks, THREADS, x)
    scan(x, out, before, length, segment, segments)


def _extrema(dialect: Dialect, name: str, x, axis: int, version: str | None):
    """Running extrema and their places, with a version for rows or by columns."""
    axis = _checked(name, x, axis, version, EXTREMA)
    if x.dtype.kind == "b":
        values, places = _extrema(dialect, name, x.view(np.uint8), axis, version)
        return values.view(x.dtype), places
    if x.dtype == np.uint64:
        raise TypeError(f"{name}: uint64 is not ordered by this kernel; cast to int64 first")
    values, places = empty(x.shape, x.dtype, x), empty(x.shape, np.dtype(np.int64), x)
    if x.size == 0:
        return values, places
    length, inner = _sizes(x, axis)
    flat, results = contiguous(x).ravel(), (values.ravel(), places.ravel())
    if inner == 1 and (version is not None or on_gpu(x)):
        _scan_extrema(dialect, name, flat, None, *results, length)
        return values, places
    grid, threads = _columns(x, length, inner)
    if _rows_are_better(x, length, grid):
        found = _extrema(dialect, name, copy(dialect, x.swapaxes(axis, -1)), -1, None)
        values, places = (copy(dialect, rows.swapaxes(axis, -1)) for rows in found)
        return values, places
    constants = LINES[name], x.dtype
    kernel = dialect.scan.extrema_columns_kernel
    launch = _plans.launch(name, "columns", kernel, constants, grid, threads, x)
    launch(flat, *results, length, inner)
    return values, places


def _scan_extrema(dialect: Dialect, name: str, x, positions, values, places, length: int) -> None:
    """Scan each row of flat x (rows, length); positions: of x's elements, None for their own."""
    segment, segments, blocks = _segments(x, length)
    line, kernels, version = LINES[name], dialect.scan, "shuffle"
    best = empty((blocks,), accumulator_dtype(line, x.dtype), x)
    found = empty((blocks,), places.dtype, x)
    constants = line, x.dtype, positions is None
    kernel = kernels.extrema_rows_kernel
    scan = _plans.launch(name, version, kernel, constants, blocks, THREADS, x)
    positions = places if positions is None else positions  # which are then not read
    scan(x, positions, values, places, best, found, length, segment, segments)
    if segments > 1:
        running = empty((blocks,), best.dtype, x), empty((blocks,), found.dtype, x)
        _scan_extrema(dialect, name, best, found, *running, segments)
        kernel = kernels.extrema_offsets_kernel
        spread = _plans.launch(name, version, kernel, (line, x.dtype), blocks, THREADS, x)
        spread(values, places, *running, length, segment, segments)


def _with_places(x, *_, **__):
    """The cost of running extrema."""
    return [(x.shape, x.dtype), (x.shape, np.dtype(np.int64))], x.size


def _problem(version: str):
    shape = {"columns": (60, 50), "totals": (1, 20_000)}.get(version, (3, 700))
    keywords = {"version": "shuffle"} if version == "totals" else {}
    return (floats(*shape), 0 if version == "columns" else 1), keywords


def _cases(rng, versions):
    for version in VERSIONS:
        yield "cumsum", (normal(rng, (2, 17_001)),), {"version": version}, 1000
        yield "cumprod", (_near_one(rng, 2, 17_001),), {"version": version}, 1000
        yield "logcumsumexp", (normal(rng, (2, 17_001)),), {"version": version}, 1000
    yield "logcumsumexp", (normal(rng, (5, 33, 2)), 1), {}, 33
    for name, x in (("cumsum", normal(rng, (5, 33, 2))), ("cumprod", _near_one(rng, 5, 33, 2))):
        yield name, (x, 1), {}, 33
    yield "cumsum", (normal(rng, (7, 1025)),), {}, 1000
    for name in ("cummax", "cummin"):
        tied = np.round(normal(rng, (2, 17_001)) * 4)  # of equal elements the last one
        tied[1, 9_000] = np.nan
        yield name, (tied,), {"version": "shuffle"}, 1
        yield name, (tied[:, :990].reshape(5, 33, 12), 1), {}, 1
        yield name, (tied[:, :1025],), {}, 1


def _near_one(rng, *shape: int) -> np.ndarray:
    """Elements whose products neither vanish nor overflow."""
    return np.exp(normal(rng, shape) / 256)


def _compiled(versions):
    for name in LINES:
        for version in versions(name):
            yield name, (ones(2, 33_001),), {"version": version}
        yield name, (ones(3, 29, 43), 1), {}


BY_SHAPE = {
    "columns": "a thread per column, for an axis that is not the last; on a CPU also a thread per"
    " row"
}
SUMMED = BY_SHAPE | {"totals": "of long rows: what each segment combines to"}
FAMILY = Family(
    "scan",
    (
        *(Operation(f, like_first(1), _problem, VERSIONS, SUMMED) for f in (cumsum, cumprod)),
        Operation(logcumsumexp, like_first(8), _problem, VERSIONS, SUMMED),
        *(Operation(f, _with_places, _problem, EXTREMA, BY_SHAPE) for f in (cummax, cummin)),
    ),
    _cases,
    _compiled,
)
