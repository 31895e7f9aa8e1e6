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
    check_version,
    compute_dtype,
    contiguous,
    empty,
    on_gpu,
    zeros,
)
from kernels.launchers.determinism import are_deterministic_algorithms_enabled
from kernels.launchers.plans import Plans
from kernels.launchers.relaunch import remembered
from kernels.launchers.transpose import cast

MODES = ("nearest", "bilinear")
PADDING = ("zeros", "border", "reflection")
ZEROS, BORDER, REFLECTION = range(3)
CHANNELS = 8  # of a thread
THREADS = 256
ORDERED_THREADS = 32  # of a block whose threads have all points of some channels
VERSIONS = {"points": "a thread per point and eight channels: its shares are worked out once"}
BACKWARD = {
    "atomic": "of the images: a thread per point and eight channels, additions in any order",
    "ordered": "of the images: a thread per eight channels, one point after the other",
}

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
    points, groups = _check("grid_sample", x, grid, mode, padding_mode)
    channels, height, width = x.shape[1:]
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


def _check(name: str, x, grid, mode: str, padding_mode: str) -> tuple[int, int]:
    """The points of an image and the groups of its channels; raises for what does not fit."""
    check_floating(name, x, grid)
    if mode not in MODES or padding_mode not in PADDING:
        raise ValueError(
            f"{name}: expected a mode among {MODES} and a padding mode among {PADDING}, got"
            f" {mode!r} and {padding_mode!r}"
        )
    if x.ndim != 4 or grid.ndim != 4 or grid.shape[3] != 2 or len(x) != len(grid):
        raise ValueError(
            f"{name}: expected x (N, C, H, W) and grid (N, OH, OW, 2), got {x.shape} and"
            f" {grid.shape}"
        )
    groups = ceil_div(x.shape[1], CHANNELS)
    if groups > MAX_GRID_YZ or x.shape[2] * x.shape[3] >= 2**31:
        raise ValueError(f"{name}: expected fewer channels or smaller images, got {x.shape}")
    return math.prod(grid.shape[1:3]), groups


def grid_sample_backward(
    dialect: Dialect,
    g: np.ndarray,
    x: np.ndarray,
    grid: np.ndarray,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool = False,
    version: str | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Gradients of `grid_sample` with respect to x and grid, for g like its result.

    version: "atomic" or "ordered" (default: by device). The gradient of the grid is zero in the
    mode "nearest". Raises ValueError for shapes and modes that do not fit.
    """
    name = "grid_sample_backward"
    check_version(name, version, BACKWARD)
    _check(name, x, grid, mode, padding_mode)
    if g.shape != (*x.shape[:2], *grid.shape[1:3]) or g.dtype != x.dtype:
        raise ValueError(
            f"{name}: expected g of shape {(*x.shape[:2], *grid.shape[1:3])} and {x.dtype}, got"
            f" {g.shape} and {g.dtype}"
        )
    if version is None:
        any_order = on_gpu(x) and not are_deterministic_algorithms_enabled()
        version = "atomic" if any_order else "ordered"
    return _backward(dialect, g, x, grid, mode, padding_mode, bool(align_corners), version)


@remembered(3)
def _backward(
    dialect: Dialect, g, x, grid, mode: str, padding_mode: str, aligned: bool, version: str
):
    name, dtype, padding = "grid_sample_backward", x.dtype, PADDING.index(padding_mode)
    channels, height, width = x.shape[1:]
    points, linear = math.prod(grid.shape[1:3]), mode == "bilinear"
    sums = zeros(x.shape, compute_dtype(dtype), x)
    dgrid = empty(grid.shape, dtype, x) if linear else zeros(grid.shape, dtype, x)
    if g.size:
        g, x, grid = (contiguous(a).ravel() for a in (g, x, grid))
        ordered, kernels, n = version == "ordered", dialect.grid_sample, len(sums)
        groups, threads = ceil_div(channels, CHANNELS), ORDERED_THREADS if ordered else THREADS
        blocks = ceil_div(groups if ordered else points, threads)  # of an image
        launch = _plans.launch(
            name,
            version,
            kernels.image_gradient,
            (dtype, linear, padding, aligned, version),
            (n * blocks, 1 if ordered else groups),
            threads,
            x,
        )
        launch(g, grid, sums.ravel(), blocks, points, channels, height, width)
        if linear:
            of_points, constants = kernels.points_gradient, (dtype, padding, aligned)
            blocks = ceil_div(points, THREADS)
            launch = _plans.launch(name, "points", of_points, constants, n * blocks, THREADS, x)
            launch(g, x, grid, dgrid.ravel(), blocks, points, channels, height, width)
    return cast(dialect, sums, dtype), dgrid


def _cost(x, grid, *_, **__):
    shape = (*x.shape[:2], *grid.shape[1:3])
    return [(shape, x.dtype)], 8 * math.prod(shape)


def _cost_backward(g, x, grid, *_, **__):
    return [(x.shape, x.dtype), (grid.shape, grid.dtype)], 20 * g.size


def _points(rng, *shape: int) -> np.ndarray:
    """Some of them outside."""
    return (rng.random((*shape, 2)) * 3 - 1.5).astype(np.float32)


def _cases(rng, versions):
    for mode in MODES:
        for number, padding in enumerate(PADDING):
            x, grid = normal(rng, (2, 11, 5, 7)), _points(rng, 2, 3, 33)
            yield "grid_sample", (x, grid, mode, padding, number == 1), {}, 4
            given = normal(rng, (2, 11, 3, 33)), x, grid, mode, padding, number == 1
            for version in versions("grid_sample_backward"):
                yield "grid_sample_backward", given, {"version": version}, 400


def _compiled(versions):
    grid = np.zeros((2, 3, 33, 2), np.float32)
    for mode in MODES:
        for number, padding in enumerate(PADDING):
            given = grid, mode, padding, number == 1
            yield "grid_sample", (floats(2, 11, 5, 7), *given), {}
            for version in versions("grid_sample_backward"):
                both = floats(2, 11, 3, 33), floats(2, 11, 5, 7)
                yield "grid_sample_backward", (*both, *given), {"version": version}


FAMILY = Family(
    "grid_sample",
    (
        Operation(
            grid_sample,
            _cost,
            lambda version: ((floats(2, 3, 8, 8), floats(2, 5, 7, 2)), {}),
            by_shape=VERSIONS,
        ),
        Operation(
            grid_sample_backward,
            _cost_backward,
            lambda version: ((*floats(2, 2, 3, 8, 8), floats(2, 8, 8, 2)), {}),
            BACKWARD,
            {"points": "of the grid: a thread per point, for all channels"},
        ),
    ),
    _cases,
    _compiled,
)
