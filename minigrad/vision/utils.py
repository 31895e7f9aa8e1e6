"""Pictures of several images: `make_grid`, `save_image`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import minigrad
from minigrad._names import kind, namespace
from minigrad.tensor import Tensor
from minigrad.vision.transforms.functional import to_pil_image


@minigrad.no_grad()
def make_grid(
    tensor: Tensor | Sequence[Tensor],
    nrow: int = 8,
    padding: int = 2,
    normalize: bool = False,
    value_range: tuple[float, float] | None = None,
    scale_each: bool = False,
    pad_value: float = 0.0,
) -> Tensor:
    """Images (N, C, H, W), or a list of them, side by side in one (C, height, width).

    Args:
        nrow: images in a row.
        padding: pixels between images, of the value `pad_value`.
        normalize: bring values to [0, 1], from `value_range` or the least and the largest; of each
            image with `scale_each`.
    """
    if isinstance(tensor, list | tuple) and all(isinstance(t, Tensor) for t in tensor):
        tensor = minigrad.stack(list(tensor))
    if not isinstance(tensor, Tensor):
        raise TypeError(f"tensor or list of tensors expected, got {kind(tensor)}")
    images = tensor.reshape(-1, *tensor.shape[-3:]) if tensor.ndim > 2 else tensor[None, None]
    if images.shape[1] == 1:
        images = images.expand(-1, 3, -1, -1)
    if normalize:
        parts = images.unbind(0) if scale_each else [images]
        parts = [_normalised(part, value_range) for part in parts]
        images = minigrad.stack(parts) if scale_each else parts[0]
    if len(images) == 1:
        return images[0].clone()
    columns = min(nrow, len(images))
    rows = -(-len(images) // columns)
    height, width = images.shape[2] + padding, images.shape[3] + padding
    shape = (images.shape[1], height * rows + padding, width * columns + padding)
    grid = images.new_full(shape, pad_value)
    for number, image in enumerate(images):
        top, left = number // columns * height + padding, number % columns * width + padding
        grid[:, top : top + image.shape[1], left : left + image.shape[2]] = image
    return grid


def _normalised(images: Tensor, limits: tuple[float, float] | None) -> Tensor:
    low, high = limits or (images.min().item(), images.max().item())
    return (images.clamp(low, high) - low) / max(high - low, 1e-5)


def save_image(
    tensor: Tensor | Sequence[Tensor], fp: Any, format: str | None = None, **options: Any
) -> None:
    """Write images in [0, 1], as `make_grid` arranges them, to a file of the format that its name
    says. Needs Pillow."""
    grid = make_grid(tensor, **options)
    bytes_ = (grid * 255 + 0.5).clamp(0, 255).to(minigrad.uint8)
    to_pil_image(bytes_).save(fp, format=format)


__getattr__, __dir__ = namespace(__name__)
