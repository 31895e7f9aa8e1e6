"""Values of images at arbitrary points, between their elements."""

from __future__ import annotations

import itertools

import numpy as np

from kernels.reference.common import traced


@traced
def grid_sample(
    x: np.ndarray,
    grid: np.ndarray,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool = False,
) -> np.ndarray:
    """Values of x (N, C, H, W) at the points grid (N, OH, OW, 2), x before y, in [-1, 1]:
    (N, C, OH, OW)."""
    wide = np.float64 if x.dtype == np.float64 else np.float32
    across, down = (
        _place(grid[..., d].astype(wide), n, padding_mode, align_corners)
        for d, n in enumerate(x.shape[:1:-1])
    )
    images = np.arange(len(x)).reshape(-1, 1, 1)
    total = np.zeros((*grid.shape[:3], x.shape[1]), wide)
    for i, j in itertools.product(range(2), repeat=2) if mode == "bilinear" else ((0, 0),):
        if mode == "bilinear":
            h, w = np.floor(down) + i, np.floor(across) + j
            share = (1 - np.abs(down - h)) * (1 - np.abs(across - w))
        else:
            h, w, share = np.round(down), np.round(across), np.ones_like(down)
        fits = (h >= 0) & (h < x.shape[2]) & (w >= 0) & (w < x.shape[3])
        rows, columns = (np.where(fits, p, 0).astype(np.int64) for p in (h, w))
        values = np.where(fits[..., None], x[images, :, rows, columns].astype(wide), 0)
        total += values * (share * fits)[..., None]
    return np.ascontiguousarray(total.transpose(0, 3, 1, 2)).astype(x.dtype)


@traced
def grid_sample_backward(
    g: np.ndarray,
    x: np.ndarray,
    grid: np.ndarray,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """Gradients of `grid_sample` with respect to x and grid, for g (N, C, OH, OW)."""
    wide = np.float64 if x.dtype == np.float64 else np.float32
    points = grid.astype(wide)
    (across, slope_x), (down, slope_y) = (
        (
            _place(points[..., d], n, padding_mode, align_corners),
            _slope(points[..., d], n, padding_mode, align_corners),
        )
        for d, n in enumerate(x.shape[:1:-1])
    )
    images = np.arange(len(x)).reshape(-1, 1, 1)
    g = g.astype(wide).transpose(0, 2, 3, 1)
    dx, dgrid = np.zeros((len(x), *x.shape[2:], x.shape[1]), wide), np.zeros(grid.shape, wide)
    for i, j in itertools.product(range(2), repeat=2) if mode == "bilinear" else ((0, 0),):
        if mode == "bilinear":
            h, w = np.floor(down) + i, np.floor(across) + j
            shares = 1 - np.abs(down - h), 1 - np.abs(across - w)
        else:
            h, w, shares = np.round(down), np.round(across), (np.ones_like(down),) * 2
        fits = (h >= 0) & (h < x.shape[2]) & (w >= 0) & (w < x.shape[3])
        rows, columns = (np.where(fits, p, 0).astype(np.int64) for p in (h, w))
        np.add.at(dx, (images, rows, columns), g * (shares[0] * shares[1] * fits)[..., None])
        if mode == "bilinear":
            values = np.where(fits[..., None], x[images, :, rows, columns].astype(wide), 0)
            products = (g * values).sum(-1)
            dgrid[..., 0] += products * shares[0] * (2 * j - 1) * slope_x
            dgrid[..., 1] += products * shares[1] * (2 * i - 1) * slope_y
    return np.ascontiguousarray(dx.transpose(0, 3, 1, 2)).astype(x.dtype), dgrid.astype(grid.dtype)


def _slope(p: np.ndarray, n: int, padding_mode: str, aligned: bool) -> np.ndarray:
    """How the places change with the numbers: the difference over a step that crosses no edge."""
    slope = np.full_like(p, (n - 1) / 2 if aligned else n / 2)
    place = (p + 1) * ((n - 1) / 2) if aligned else ((p + 1) * n - 1) * 0.5
    if padding_mode == "reflection":
        low, span = (0, n - 1) if aligned else (-0.5, n)
        turns = np.floor(np.abs(place - low) / span) if span else place * 0
        slope = np.where((turns % 2 == 0) == (place >= low), slope, -slope) * bool(span)
        place = _place(p, n, padding_mode, aligned)
    return slope if padding_mode == "zeros" else slope * ((place > 0) & (place < n - 1))


def _place(p: np.ndarray, n: int, padding_mode: str, aligned: bool) -> np.ndarray:
    """The places along n elements of numbers in [-1, 1]."""
    p = (p + 1) * ((n - 1) / 2) if aligned else ((p + 1) * n - 1) * 0.5
    if padding_mode == "reflection":
        low, span = (0, n - 1) if aligned else (-0.5, n)
        away = np.abs(p - low) % (2 * span) if span else p * 0
        p = np.where(away > span, 2 * span - away, away) + low
    return p if padding_mode == "zeros" else np.where(p > 0, np.minimum(p, n - 1), 0)
