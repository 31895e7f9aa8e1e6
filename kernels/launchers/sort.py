"""Sorting rows: whole rows in a block, longer ones by a launch per step. Places in sorted rows."""

from __future__ import annotations

import numpy as np

from kernels.families import Family, Operation, floats, normal, ones
from kernels.launchers.common import (
    Dialect,
    ceil_div,
    check_version,
    compute_dtype,
    contiguous,
    empty,
    zeros,
)
from kernels.launchers.plans import Plans, check_places
from kernels.launchers.relaunch import remembered

VERSIONS = {
    "bitonic": "a launch per step of a bitonic network on pairs in global memory",
    "shared": "a block sorts a row: all steps in shared memory, with a barrier after each",
    "merge": "threads sort 8 elements in registers, then find by a search what they merge",
}
SEARCHES = {
    "binary": "each thread halves a row in global memory until the place of its value is left",
    "shared": "the block copies the row to shared memory first",
}
THREADS = 256
ITEMS = 8  # elements of a thread
LEAST_TILE = 1024  # elements of a block that sorts several short rows
SPAN = 16 * THREADS  # values that a block searches for

_plans = Plans()


def read_as(dtype: np.dtype) -> np.dtype:
    """The type with 32 or 64 bits in which elements of a dtype are compared."""
    found = compute_dtype(dtype)
    kind = "u" if found.kind == "b" else found.kind
    return np.dtype(f"{kind}{max(found.itemsize, 4)}")


def longest(dtype: np.dtype) -> int:
    """How long a row may be that a block sorts in 48 KB of shared memory: per element a key and a
    position of 16 bits."""
    return 4096 if read_as(dtype).itemsize == 8 else 8192


@remembered(1)
def sort(
    dialect: Dialect,
    x: np.ndarray,
    descending: bool = False,
    start: int = 0,
    stop: int | None = None,
    version: str | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Each row of x (rows, n) in order, from place `start` to `stop` (default: the end), and the
    positions of these elements in their rows (int64). Equal elements keep their order, NaN counts
    as the largest.

    version: a version of the ladder (default: "merge", for rows that are too long "bitonic").
    Raises ValueError for another shape or version, for places that are not in a row, and for rows
    that are too long for the version (`longest`), TypeError for complex elements.
    """
    check_version("sort", version, VERSIONS)
    if x.ndim != 2:
        raise ValueError(f"sort: expected rows (rows, n), got {x.shape}")
    if x.dtype.kind == "c":
        raise TypeError("sort: complex numbers have no order; sort their absolute values")
    rows, n = x.shape
    stop = n if stop is None else stop
    if not 0 <= start <= stop <= n:
        raise ValueError(f"sort: expected 0 <= start <= stop <= {n}, got {start} and {stop}")
    version = version or ("merge" if n <= longest(x.dtype) else "bitonic")
    if version != "bitonic" and n > longest(x.dtype):
        raise ValueError(
            f"sort: version {version!r} takes rows of up to {longest(x.dtype)}, got {n}"
        )
    if version == "bitonic":
        found = _by_steps(dialect, contiguous(x), descending)
        values, positions = (contiguous(part[:, start:stop]) for part in found)
        return values, positions
    values = empty((rows, stop - start), x.dtype, x)
    positions = empty(values.shape, np.dtype(np.int64), x)
    if values.size:
        run = _merge if version == "merge" else _shared
        arrays = contiguous(x).ravel(), values.ravel(), positions.ravel()
        run(dialect, arrays, rows, n, descending, start, stop)
    return values, positions


def _by_steps(dialect: Dialect, x, descending: bool) -> tuple:
    """All steps of the network, a launch each."""
    values, positions = empty(x.shape, x.dtype, x), empty(x.shape, np.dtype(np.int64), x)
    if not x.size:
        return values, positions
    n, grid = x.shape[1], ceil_div(x.size, THREADS)
    kernel, constants = dialect.sort.bitonic, (x.dtype, descending)
    launch = _plans.launch("sort", "bitonic", kernel, constants, grid, THREADS, x)
    for step, mask in enumerate(_masks(n)):
        first = int(step == 0)
        launch(x.ravel(), values.ravel(), positions.ravel(), x.size, n, mask, first)
    return values, positions


def _masks(n: int) -> list[int]:
    """By which bits the two positions of a pair differ, step by step. Runs of `size` elements are
    made of two: a pair mirrors the middle of the run, then lies size / 4, size / 8 ... apart."""
    found, size = [1], 4
    while size < 2 * n:
        found.append(size - 1)
        half = size // 4
        while half:
            found.append(half)
            half //= 2
        size *= 2
    return found


def _shared(dialect: Dialect, arrays: tuple, rows: int, n: int, descending, start, stop) -> None:
    width = _power(n, 2)
    constants = arrays[0].dtype, descending, longest(arrays[0].dtype)
    threads = max(32, min(width // 2, THREADS))
    kernel = dialect.sort.shared
    launch = _plans.launch("sort", "shared", kernel, constants, rows, threads, arrays[0])
    launch(*arrays, n, width, start, stop)


def _merge(dialect: Dialect, arrays: tuple, rows: int, n: int, descending, start, stop) -> None:
    width = _power(n, ITEMS)
    tile = max(width, LEAST_TILE)
    constants = arrays[0].dtype, descending, tile
    kernel, grid, threads = dialect.sort.merge, ceil_div(rows * width, tile), tile // ITEMS
    launch = _plans.launch("sort", "merge", kernel, constants, grid, threads, arrays[0])
    launch(*arrays, rows, n, width.bit_length() - 1, start, stop)


def _power(n: int, least: int) -> int:
    """The power of 2 that is n or next above it, and not below `least`."""
    return max(1 << (n - 1).bit_length(), least)


@remembered(2)
def searchsorted(
    dialect: Dialect,
    sequence: np.ndarray,
    values: np.ndarray,
    right: bool = False,
    version: str | None = None,
) -> np.ndarray:
    """Before how many elements of its row of `sequence` (rows, n), which is sorted, each of
    `values` (rows, m) is to be inserted (int64), with `right` behind equal ones.

    version: a version of the ladder (default: "shared" for many values in rows that fit). Raises
    ValueError for other shapes and for rows that are too long for the version, TypeError for two
    dtypes and for complex elements.
    """
    check_version("searchsorted", version, SEARCHES)
    if sequence.ndim != 2 or values.ndim != 2 or len(sequence) != len(values):
        raise ValueError(
            f"searchsorted: expected (rows, n) and (rows, m), got {sequence.shape} and"
            f" {values.shape}"
        )
    if sequence.dtype != values.dtype or values.dtype.kind == "c":
        raise TypeError(
            "searchsorted: expected one dtype that has an order, got"
            f" {sequence.dtype} and {values.dtype}; cast them first"
        )
    check_places("searchsorted", sequence, values)
    n, m = sequence.shape[1], values.shape[1]
    if version is None:
        fits = n <= min(m, longest(values.dtype))
        version = "shared" if fits and m >= THREADS else "binary"
    if version == "shared" and n > longest(values.dtype):
        raise ValueError(
            f"searchsorted: version 'shared' takes rows of up to {longest(values.dtype)}, got {n}"
        )
    if not sequence.size:
        return zeros(values.shape, np.dtype(np.int64), values)
    out = empty(values.shape, np.dtype(np.int64), values)
    if out.size:
        tile = max(_power(n, 1), LEAST_TILE) if version == "shared" else 0
        rows, constants = len(values), (values.dtype, right, tile)
        grid = rows * ceil_div(m, SPAN) if tile else ceil_div(rows * m, SPAN)
        kernel = dialect.sort.search
        launch = _plans.launch("searchsorted", version, kernel, constants, grid, THREADS, values)
        flat = contiguous(sequence).ravel(), contiguous(values).ravel(), out.ravel()
        launch(*flat, rows, n, m, SPAN)
    return out


def _cost(x, descending=False, start=0, stop=None, **_):
    shape = (len(x), (x.shape[1] if stop is None else stop) - start)
    return [(shape, x.dtype), (shape, np.dtype(np.int64))], 0


def _search_cost(sequence, values, *_, **__):
    return [(values.shape, np.dtype(np.int64))], 0


def _problem(version: str):
    return (floats(5, 100),), {}


def _search_problem(version: str):
    return (np.sort(floats(3, 100)), floats(3, 70)), {}


def _cases(rng, versions):
    for version in VERSIONS:
        for shape in ((3, 33), (2, 1025), (5, 1), (70, 5)):
            x = np.round(normal(rng, shape) * 9)  # of equal elements the first one
            x[:, :1] = np.nan
            yield "sort", (x,), {"version": version}, 1
            yield "sort", (x, True), {"version": version}, 1
        integers = normal(rng, (3, 40), np.int64)
        yield "sort", (integers, True, 2, 21), {"version": version}, 1
    yield "sort", (normal(rng, (1, 9_001)),), {}, 1
    rows = np.sort(np.round(normal(rng, (2, 300)) * 9))
    for version in SEARCHES:
        for right in (False, True):
            values = np.round(normal(rng, (2, 5_000)) * 9)
            yield "searchsorted", (rows, values, right), {"version": version}, 1


def _compiled(versions):
    for version in versions("sort"):
        yield "sort", (ones(3, 1025),), {"version": version}
    for version in versions("searchsorted"):
        yield "searchsorted", (ones(3, 1025), ones(3, 70)), {"version": version}


FAMILY = Family(
    "sort",
    (
        Operation(sort, _cost, _problem, VERSIONS),
        Operation(searchsorted, _search_cost, _search_problem, SEARCHES),
    ),
    _cases,
    _compiled,
)
