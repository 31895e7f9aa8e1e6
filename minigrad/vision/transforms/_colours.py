"""What becomes of the values of pixels: dtypes, brightness, hues, blur."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import minigrad
from minigrad import dtypes
from minigrad.nn import functional as F
from minigrad.tensor import Tensor
from minigrad.vision._pillow import pillow

_LUMA = (0.2989, 0.587, 0.114)  # of red, green and blue, as torchvision rounds them


def _largest(dtype: Any) -> int:
    """The value of white."""
    return 1 if dtype.is_floating_point or dtype is dtypes.bool_ else minigrad.iinfo(dtype).max


def convert(image: Tensor, dtype: Any) -> Tensor:
    """In another dtype, scaled by the values of white."""
    if image.dtype is dtype:
        return image
    before, after = _largest(image.dtype), _largest(dtype)
    if dtype.is_floating_point:
        result = image.to(dtype)
        return result if image.is_floating_point() else result / before
    if image.is_floating_point():
        precise = image.dtype in (minigrad.float64,)
        if dtype.itemsize > 4 or (dtype.itemsize == 4 and not precise):
            raise RuntimeError(
                f"The cast from {image.dtype} to {dtype} cannot be performed safely."
            )
        return (image * (after + 1 - 1e-3)).to(dtype)
    if before > after:
        return (image // ((before + 1) // (after + 1))).to(dtype)
    return image.to(dtype) * ((after + 1) // (before + 1))


def _check_channels(img: Tensor) -> int:
    count = img.shape[-3] if img.ndim >= 3 else 1
    if count not in (1, 3):
        raise TypeError(
            f"Input image tensor permitted channel values are [1, 3], but found {count}"
        )
    return count


def grayscale(img: Tensor, count: int) -> Tensor:
    """The luma, in `count` equal channels."""
    if _check_channels(img) == 3:
        red, green, blue = (part * weight for part, weight in zip(img.unbind(-3), _LUMA))
        img = (red + green + blue).to(img.dtype).unsqueeze(-3)
    return img.expand(*img.shape[:-3], count, *img.shape[-2:]) if count > 1 else img


def _blend(img: Tensor, other: Any, factor: float) -> Tensor:
    """factor parts of an image and the rest of another, within the limits of the dtype."""
    mixed = factor * img + (1.0 - factor) * other
    return mixed.clamp(0, _largest(img.dtype)).to(img.dtype)


def brightness(img: Tensor, factor: float) -> Tensor:
    """All values times the factor."""
    _check_channels(img)
    return _blend(img, 0, factor)


def contrast(img: Tensor, factor: float) -> Tensor:
    """Differences from the mean luma times the factor."""
    grey = grayscale(img, 1)
    floating = grey if grey.is_floating_point() else grey.float()
    return _blend(img, floating.mean((-3, -2, -1), keepdim=True), factor)


def saturation(img: Tensor, factor: float) -> Tensor:
    """Differences from the luma of each pixel times the factor."""
    return img if _check_channels(img) == 1 else _blend(img, grayscale(img, 1), factor)


def hue(img: Tensor, factor: float) -> Tensor:
    """Hues moved by a share of their circle."""
    if _check_channels(img) == 1:
        return img
    values = convert(img, img.dtype if img.is_floating_point() else minigrad.float32)
    high, low = values.amax(-3, keepdim=True), values.amin(-3, keepdim=True)
    red, green, blue = values.unbind(-3)
    spread = (high - low).squeeze(-3)
    apart = minigrad.where(spread > 0, spread, 1.0)
    top = high.squeeze(-3)
    place = minigrad.where(
        top == red,
        (green - blue) / apart,
        minigrad.where(top == green, 2 + (blue - red) / apart, 4 + (red - green) / apart),
    )  # in sixths of the circle
    place = (place / 6 + factor) % 1.0 * 6
    # Each channel is a trapezium over the circle, shifted by a third.
    moved = []
    for shift in (5, 3, 1):
        at = (place + shift) % 6
        moved.append(top - spread * minigrad.minimum(at, 4 - at).clamp(0, 1))
    return convert(minigrad.stack(moved, -3), img.dtype)


def gamma(img: Tensor, power: float, gain: float) -> Tensor:
    """gain * value ** power."""
    _check_channels(img)
    values = img if img.is_floating_point() else convert(img, minigrad.float32)
    return convert((gain * values**power).clamp(0, 1), img.dtype)


def negative(img: Tensor) -> Tensor:
    """White minus the value."""
    _check_channels(img)
    return _largest(img.dtype) - img


def blur(img: Tensor, sizes: Sequence[int], sigmas: Sequence[float]) -> Tensor:
    """Smoothed by a Gaussian, sizes and deviations (x, y); edges are reflected."""
    values = (img if img.is_floating_point() else img.float()).reshape(-1, 1, *img.shape[-2:])
    for dim, size, sigma in ((3, sizes[0], sigmas[0]), (2, sizes[1], sigmas[1])):
        weights = np.exp(-0.5 * ((np.arange(size) - size // 2) / sigma) ** 2)
        weights = minigrad.tensor((weights / weights.sum()).tolist(), dtype=values.dtype)
        half = size // 2
        border, shape = ([half, half, 0, 0], (1, 1, 1, -1))
        if dim == 2:
            border, shape = [0, 0, half, half], (1, 1, -1, 1)
        padded = F.pad(values, border, mode="reflect")
        values = F.conv2d(padded, weights.view(shape).to(values.device))
    values = values.reshape(img.shape)
    return values if img.is_floating_point() else values.round().to(img.dtype)


# ------------------------------------------------------------------------ images of Pillow


def enhanced(img: Any, what: str, factor: float) -> Any:
    """By Pillow's `ImageEnhance`."""
    pillow(f"adjust_{what.lower()}")
    from PIL import ImageEnhance

    return getattr(ImageEnhance, what)(img).enhance(factor)


def hue_of_image(img: Any, factor: float) -> Any:
    """Hues of an image of Pillow, which has 256 of them."""
    if img.mode in ("L", "1", "I", "F"):
        return img
    hues, saturations, values = img.convert("HSV").split()
    moved = (np.array(hues, np.int32) + int(factor * 255)) % 256
    image = pillow("adjust_hue")
    bands = (image.fromarray(moved.astype(np.uint8)), saturations, values)
    return image.merge("HSV", bands).convert(img.mode)


def gamma_of_image(img: Any, power: float, gain: float) -> Any:
    """By a table of the 256 values."""
    values = [int((255 + 1 - 1e-3) * gain * (value / 255) ** power) for value in range(256)]
    count = 1 if img.mode == "L" else 3
    return img.convert("L" if count == 1 else "RGB").point(values * count).convert(img.mode)


def negative_image(img: Any) -> Any:
    """By Pillow's `ImageOps`."""
    pillow("invert")
    from PIL import ImageOps

    return ImageOps.invert(img)
