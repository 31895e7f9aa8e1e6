"""What the hardware refuses to launch, the same for kernels of both dialects."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.support.errors import LaunchError

Dimensions = tuple[int, int, int]

_BLOCK: Dimensions = (1024, 1024, 64)
_THREADS = 1024
_GRID: Dimensions = (2**31 - 1, 65535, 65535)


def launch_dimensions(name: str, grid: Any, block: Any) -> tuple[Dimensions, Dimensions]:
    """Grid and block of kernel `name` as three numbers each. Raises LaunchError."""
    block = _dimensions(block, "block", _BLOCK, name)
    threads = block[0] * block[1] * block[2]
    if threads > _THREADS:
        raise LaunchError(f"{name}: {threads} threads per block; the limit is {_THREADS}")
    return _dimensions(grid, "grid", _GRID, name), block


def _dimensions(value: Any, what: str, limits: Dimensions, name: str) -> Dimensions:
    given = tuple(value) if isinstance(value, tuple | list | np.ndarray) else (value,)
    if not 1 <= len(given) <= 3:
        raise LaunchError(f"{name}: {what} has 1 to 3 dimensions, not {len(given)}: {value!r}")
    dims = []
    for number in given:
        if not isinstance(number, int | np.integer) or isinstance(number, bool):
            raise LaunchError(f"{name}: {what} must be integers, not {value!r}")
        dims.append(int(number))
    dims += [1] * (3 - len(dims))
    for axis, size, limit in zip("xyz", dims, limits):
        if not 1 <= size <= limit:
            raise LaunchError(f"{name}: {what}.{axis} is {size}; it must be from 1 to {limit}")
    x, y, z = dims
    return x, y, z


def block_of(name: str, at: Any, grid: Dimensions) -> Dimensions:
    """The block `at` (a number, or up to three) of a grid. Raises ValueError for no such block."""
    given = tuple(at) if isinstance(at, tuple | list | np.ndarray) else (at,)
    index = (*given, 0, 0)[: max(3, len(given))]
    whole = all(isinstance(i, int | np.integer) for i in index)
    if len(index) > 3 or not whole or not all(0 <= i < n for i, n in zip(index, grid)):
        raise ValueError(f"{name}: block {index if whole else at!r} is not in the grid {grid}")
    x, y, z = map(int, index)
    return x, y, z


# The words that a checked kernel records of a violation: kind, site, block, thread, number of axes,
# then per axis the index and the length. NumPy's arrays have 64 axes at most.
REPORT = 5 + 2 * 64
# Behind it: whether the launch must stop, the address of `look`, Python's main thread
STOP, LOOK, MAIN = range(REPORT, REPORT + 3)
REPORT_WORDS = REPORT + 3
