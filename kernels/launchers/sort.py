"""Sorting rows: whole rows in a block, longer ones by a launch per step."""

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
)
from kernels.launchers.plans import Plans
from kernels.launchers.relaunch import remembered

VERSIONS = {
    "bitonic": "a launch per step of a bitonic network on pairs in global memory",
    "shared": "a block sorts a row: all steps in shared memory, with a barrier after each",
    "merge": "threads sort 8 elements in registers, then find by a search what they merge",
}
THREADS = 256
ITEMS = 8  # elements of a thread
LEAST_TILE = 1024  # elements of a block that sorts several short rows

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


def _cost(x, descending=False, start=0, stop=None, **_):
    shape = (len(x), (x.shape[1] if stop is None else stop) - start)
    return [(shape, x.dtype), (shape, np.dtype(np.int64))], 0


def _problem(version: str):
    return (floats(5, 100),), {}


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


def _compiled(versions):
    for version in versions("sort"):
        yield "sort", (ones(3, 1025),), {"version": version}


FAMILY = Family("sort", (Operation(sort, _cost, _problem, VERSIONS),), _cases, _compiled)
