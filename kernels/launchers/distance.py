"""Distances of rows: of all rows of two matrices, and of the pairs of one."""

from __future__ import annotations

import numpy as np

from kernels.families import Family, Operation, floats, normal, ones
from kernels.launchers.common import (
    MAX_GRID_YZ,
    Dialect,
    ceil_div,
    check_floating,
    contiguous,
    empty,
)
from kernels.launchers.plans import Plans
from kernels.launchers.relaunch import remembered

TILE = 32
LINES = ("norm1", "norm2", "norm_inf")
VERSIONS = {"tiled": "shared tiles: each element is loaded TILE times less"}

_plans = Plans()


@remembered(2)
def distances(dialect: Dialect, a: np.ndarray, b: np.ndarray, line: str = "norm2") -> np.ndarray:
    """The norms of the differences of all rows of a (batch, m, k) and b (batch, n, k):
    (batch, m, n). line: "norm1", "norm2" or "norm_inf" of `kernels.reduction`.

    16-bit floats are subtracted and added in float32. Raises ValueError for other shapes, and for
    more rows than a grid has.
    """
    _check("distances", line, a, b)
    if a.ndim != 3 or b.ndim != 3 or a.shape[::2] != b.shape[::2]:
        raise ValueError(
            f"distances: expected (batch, m, k) and (batch, n, k), got {a.shape} and {b.shape}"
        )
    out = empty((*a.shape[:2], b.shape[1]), a.dtype, a)
    grid = ceil_div(b.shape[1], TILE), ceil_div(a.shape[1], TILE), a.shape[0]
    _launch(dialect, "distances", line, a, b, out, grid)
    return out


@remembered(1)
def pair_distances(dialect: Dialect, a: np.ndarray, line: str = "norm2") -> np.ndarray:
    """The norms of the differences of each row of a (n, k) and all rows after it:
    (n (n - 1) / 2,). The rest as in `distances`."""
    _check("pair_distances", line, a)
    if a.ndim != 2:
        raise ValueError(f"pair_distances: expected (n, k), got {a.shape}")
    n = a.shape[0]
    out = empty((n * (n - 1) // 2,), a.dtype, a)
    tiles = ceil_div(n, TILE)
    rows = a.reshape(1, *a.shape)
    _launch(dialect, "pair_distances", line, rows, rows, out, (tiles, tiles, 1))
    return out


def _check(name: str, line: str, *arrays) -> None:
    if line not in LINES:
        raise ValueError(f"{name}: expected a line among {LINES}, got {line!r}")
    check_floating(name, *arrays)


def _launch(dialect: Dialect, name: str, line: str, a, b, out, grid: tuple) -> None:
    if max(grid[1:]) > MAX_GRID_YZ:
        raise ValueError(
            f"{name}: expected at most {MAX_GRID_YZ * TILE} rows and {MAX_GRID_YZ} batches, got"
            f" {a.shape}; take parts of them"
        )
    if out.size:
        constants = line, a.dtype, name == "pair_distances"
        kernel = dialect.distance.tiled
        launch = _plans.launch(name, "tiled", kernel, constants, grid, (TILE, TILE), a)
        launch(contiguous(a), contiguous(b), out.ravel())


def _cost(a, b, *_, **__):
    return [((*a.shape[:2], b.shape[1]), a.dtype)], 3 * a.size * b.shape[1]


def _pair_cost(a, *_, **__):
    pairs = len(a) * (len(a) - 1) // 2
    return [((pairs,), a.dtype)], 3 * pairs * a.shape[1]


def _cases(rng, versions):
    for line in LINES:
        yield "distances", (normal(rng, (2, 33, 40)), normal(rng, (2, 5, 40)), line), {}, 40
        yield "pair_distances", (normal(rng, (70, 33)), line), {}, 33
    yield "distances", (normal(rng, (1, 64, 32)), normal(rng, (1, 32, 32))), {}, 32


def _compiled(versions):
    for line in LINES:
        yield "distances", (ones(2, 33, 40), ones(2, 5, 40), line), {}
        yield "pair_distances", (ones(70, 33), line), {}


FAMILY = Family(
    "distance",
    (
        Operation(
            distances,
            _cost,
            lambda version: ((floats(1, 40, 33), floats(1, 35, 33)), {}),
            by_shape=VERSIONS,
        ),
        Operation(
            pair_distances, _pair_cost, lambda version: ((floats(40, 33),), {}), by_shape=VERSIONS
        ),
    ),
    _cases,
    _compiled,
)
