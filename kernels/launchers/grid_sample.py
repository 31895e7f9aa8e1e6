"""Values of images at arbitrary points, between their elements."""

from __future__ import annotations

import math

import numpy as np

from kernels.families import Family, Operation, floats, normal
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

MODES = ("nearest", "bilinear")
PADDING = ("zeros", "border", "reflection")
ZEROS, BORDER, REFLECTION = range(3)
CHANNELS = 8  # of a thread
THREADS = 256
VERSIONS = {"points": "a thread per point and eight channels: its shares are worked out once"}

_plans = Plans()


@remembered(2)
def grid_sample(
    dialect: Dialect,
    x: np.ndarray,
    grid: np.ndarray,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool = False,
) -> np.ndarray:
    """Values of x (N, C, H, W) at the points grid (N, OH, OW, 2), x before y, in [-1, 1]:
    (N, C, OH, OW); the options are those of torch's grid_sample.

    16-bit floats are computed in float32. Raises ValueError for other shapes and modes.
    """
    check_floating("grid_sample", x, grid)
    if mode not in MODES or padding_mode not in PADDING:
        raise ValueError(
            f"grid_sample: expected a mode among {MODES} and a padding mode among {PADDING}, got"
            f" {mode!r} and {padding_mode!r}"
        )
    if x.ndim != 4 or grid.ndim != 4 or grid.shape[3] != 2 or len(x) != len(grid):
        raise ValueError(
            f"grid_sample: expected x (N, C, H, W) and grid (N, OH, OW, 2), got {x.shape} and"
            f" {grid.shape}"
        )
    channels, height, width = x.shape[1:]
    points = math.prod(grid.shape[1:3])
    groups = ceil_div(channels, CHANNELS)
    if groups > MAX_GRID_YZ or height * width >= 2**31:
        raise ValueError(f"grid_sample: expected fewer channels or smaller images, got {x.shape}")
    out = empty((*x.shape[:2], *grid.shape[1:3]), x.dtype, x)
    if out.size:
        constants = (x.dtype, mode == "bilinear", PADDING.index(padding_mode), bool(align_corners))
        blocks = ceil_div(points, THREADS)  # of an image
        launch = _plans.launch(
            "grid_sample",
            "points",
            dialect.grid_sample.kernel,
            constants,
            (len(x) * blocks, groups),
            THREADS,
            x,
        )
        arrays = (contiguous(x).ravel(), contiguous(grid).ravel(), out.ravel())
        launch(*arrays, blocks, points, channels, height, width)
    return out


def _cost(x, grid, *_, **__):
    shape = (*x.shape[:2], *grid.shape[1:3])
    return [(shape, x.dtype)], 8 * math.prod(shape)


def _points(rng, *shape: int) -> np.ndarray:
    """Some of them outside."""
    return (rng.random((*shape, 2)) * 3 - 1.5).astype(np.float32)


def _cases(rng, versions):
    for mode in MODES:
        for number, padding in enumerate(PADDING):
            x, grid = normal(rng, (2, 11, 5, 7)), _points(rng, 2, 3, 33)
            yield "grid_sample", (x, grid, mode, padding, number == 1), {}, 4


def _compiled(versions):
    grid = np.zeros((2, 3, 33, 2), np.float32)
    for mode in MODES:
        for number, padding in enumerate(PADDING):
            yield "grid_sample", (floats(2, 11, 5, 7), grid, mode, padding, number == 1), {}


FAMILY = Family(
    "grid_sample",
    (
        Operation(
            grid_sample,
            _cost,
            lambda version: ((floats(2, 3, 8, 8), floats(2, 5, 7, 2)), {}),
            by_shape=VERSIONS,
        ),
    ),
    _cases,
    _compiled,
)
