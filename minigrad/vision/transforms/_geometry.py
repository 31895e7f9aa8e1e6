"""Where the pixels of an image go: sizes, borders, affine maps."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import minigrad
from minigrad.nn import functional as F
from minigrad.tensor import Tensor
from minigrad.vision._pillow import channels, pillow


def _as_batch(img: Tensor, run: Callable[[Tensor], Tensor]) -> Tensor:
    """run, which takes a floating tensor (N, C, H, W), of one of other dimensions and dtype."""
    batch = img.reshape(-1, *img.shape[-3:]) if img.ndim >= 3 else img[None, None]
    floating = batch if batch.is_floating_point() else batch.float()
    result = run(floating)
    if not img.is_floating_point():
        limits = minigrad.iinfo(img.dtype)
        result = result.round().clamp(limits.min, limits.max).to(img.dtype)
    return result.reshape(*img.shape[:-2], *result.shape[-2:])


def resize(img: Tensor, size: tuple[int, int], mode: str, antialias: bool) -> Tensor:
    """A tensor resampled to (height, width)."""
    return _as_batch(img, lambda x: F.interpolate(x, size, mode=mode, antialias=antialias))


def fill_of(img: Any, fill: Any) -> Any:
    """A value for all bands of an image, in the form that Pillow takes."""
    count = channels(img)
    if isinstance(fill, int | float):
        values = [fill] * count
    else:
        values = list(fill) * (count if len(fill) == 1 else 1)
    if len(values) != count:
        raise ValueError(
            f"The number of elements in 'fill' does not match the number of channels of the image "
            f"({len(values)} != {count})"
        )
    if img.mode != "F":
        values = [int(value) for value in values]
    return tuple(values) if count > 1 else values[0]


def pad_image(img: Any, padding: tuple[int, ...], fill: Any, mode: str) -> Any:
    """An image of Pillow with a border (left, top, right, bottom)."""
    image = pillow("pad")
    left, top, right, bottom = padding
    if mode == "constant":
        size = img.width + left + right, img.height + top + bottom
        result = image.new(img.mode, size, fill_of(img, fill))
        if img.mode == "P":
            result.putpalette(img.getpalette())
        result.paste(img, (left, top))
        return result
    if min(padding) < 0:
        box = -min(left, 0), -min(top, 0), img.width + min(right, 0), img.height + min(bottom, 0)
        img, padding = img.crop(box), tuple(max(width, 0) for width in padding)
        left, top, right, bottom = padding
    array = np.asarray(img)
    widths = [(top, bottom), (left, right), (0, 0)][: array.ndim]
    result = image.fromarray(np.pad(array, widths, mode))  # type: ignore[call-overload]
    if img.mode == "P":
        result.putpalette(img.getpalette())
    return result


def pad_tensor(img: Tensor, padding: tuple[int, ...], fill: Any, mode: str) -> Tensor:
    """A tensor with a border (left, top, right, bottom)."""
    left, top, right, bottom = padding
    widths = [left, right, top, bottom]
    if mode == "constant":
        if isinstance(fill, int | float) or fill is None:
            return F.pad(img, widths, value=fill or 0)
        values = minigrad.tensor(list(fill), dtype=img.dtype, device=img.device)
        inside = F.pad(minigrad.ones(img.shape[-2:], device=img.device), widths).bool()
        return minigrad.where(inside, F.pad(img, widths), values.view(-1, 1, 1))
    if mode == "symmetric":
        for dim, before, after in ((-1, left, right), (-2, top, bottom)):
            inner = np.arange(img.shape[dim])[max(-before, 0) : img.shape[dim] - max(-after, 0)]
            places = np.pad(inner, (max(before, 0), max(after, 0)), "symmetric")
            img = img.index_select(dim, minigrad.from_numpy(places).to(img.device))
        return img
    return F.pad(img, widths, mode="replicate" if mode == "edge" else mode)


def inverse_affine(
    center: Sequence[float],
    angle: float,
    translate: Sequence[float],
    scale: float,
    shear: Sequence[float],
) -> list[float]:
    """The 6 numbers of the map from places of the result to those of the image: the inverse of
    shearing, scaling and turning (degrees, clockwise) around `center`, and then moving."""
    turn, shear_x, shear_y = map(math.radians, (angle, *shear))
    forward = _turned_shear(turn, shear_y) @ np.array([[1, -math.tan(shear_x)], [0, 1]]) * scale
    inverse = np.linalg.inv(forward)
    moved = np.array(center) + np.array(translate)
    offset = np.array(center) - inverse @ moved
    return [*inverse[0], offset[0], *inverse[1], offset[1]]


def _turned_shear(turn: float, shear: float) -> np.ndarray:
    """A turn of the first axis by `turn - shear`, of the second by `turn`."""
    return np.array(
        [
            [math.cos(turn - shear) / math.cos(shear), -math.sin(turn)],
            [math.sin(turn - shear) / math.cos(shear), math.cos(turn)],
        ]
    )


def from_centre(img: Tensor, center: Sequence[float] | None) -> tuple[float, float]:
    """A point (x, y) in pixels, relative to the centre of the image."""
    if center is None:
        return 0.0, 0.0
    return center[0] - img.shape[-1] / 2, center[1] - img.shape[-2] / 2


def sample(img: Tensor, matrix: Sequence[float], mode: str, fill: Any) -> Tensor:
    """A tensor whose pixel (x, y), relative to the centre, is that at matrix @ (x, y, 1)."""
    if mode not in ("nearest", "bilinear"):
        raise ValueError(f"of tensors by {mode} is not available; use nearest or bilinear")
    h, w = img.shape[-2:]
    a, b, c, d, e, f = matrix
    theta = minigrad.tensor(
        [[[a, b * h / w, 2 * c / w], [d * w / h, e, 2 * f / h]]], device=img.device
    )

    def run(x: Tensor) -> Tensor:
        grid = F.affine_grid(theta, [1, 1, h, w], align_corners=False).to(x.dtype)
        grid = grid.expand(x.shape[0], h, w, 2)
        found = F.grid_sample(x, grid, mode, "zeros", align_corners=False)
        if fill is None:
            return found
        values = [float(fill)] if isinstance(fill, int | float) else list(map(float, fill))
        filled = minigrad.tensor(values, dtype=x.dtype, device=x.device).view(-1, 1, 1)
        whole = minigrad.ones(x.shape[0], 1, h, w, dtype=x.dtype, device=x.device)
        inside = F.grid_sample(whole, grid, mode, "zeros", align_corners=False)
        if mode == "nearest":
            return minigrad.where(inside < 0.5, filled, found)
        return found * inside + (1 - inside) * filled

    return _as_batch(img, run)
