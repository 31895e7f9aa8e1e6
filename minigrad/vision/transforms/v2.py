"""The transforms with the names of `torchvision.transforms.v2`, of one image at a time.

`v2.Compose([v2.ToImage(), v2.ToDtype(minigrad.float32, scale=True)])` is what `ToTensor()` does.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import minigrad
from minigrad._names import kind, namespace
from minigrad.dtypes import dtype as Dtype
from minigrad.tensor import Tensor
from minigrad.vision import transforms as _v1
from minigrad.vision._pillow import is_image
from minigrad.vision.transforms import functional as functional
from minigrad.vision.transforms.transforms import Transform

__all__ = ["Identity", "ToDtype", "ToImage", "ToPureTensor", *_v1.__all__]
globals().update({name: getattr(_v1, name) for name in _v1.__all__})


class ToImage(Transform):
    """An image of Pillow or an array (H, W, C) as a tensor (C, H, W) of the same values."""

    def forward(self, pic: Any) -> Tensor:
        """The tensor; itself if it is one."""
        if isinstance(pic, Tensor):
            return pic
        if isinstance(pic, np.ndarray):
            planes = pic[None] if pic.ndim == 2 else pic.transpose(2, 0, 1)
            return minigrad.from_numpy(np.ascontiguousarray(planes))
        if not is_image(pic):
            raise TypeError(
                f"ToImage: expected an image of Pillow, an array or a tensor, got {kind(pic)}"
            )
        return functional.pil_to_tensor(pic)


class ToDtype(Transform):
    """A tensor in another dtype; scale: bytes 0 to 255 are floats 0 to 1."""

    _shown = ("dtype", "scale")

    def __init__(self, dtype: Dtype, scale: bool = False) -> None:
        super().__init__()
        self.dtype, self.scale = dtype, scale

    def forward(self, image: Any) -> Any:
        """The tensor in that dtype."""
        if not isinstance(image, Tensor):
            return image
        if not self.scale:
            return image.to(self.dtype)
        return functional.convert_image_dtype(image, self.dtype)


class Identity(Transform):
    """Its input."""

    def forward(self, image: Any) -> Any:
        """image"""
        return image


ToPureTensor = Identity  # tensors have no subclasses for images here
__getattr__, __dir__ = namespace(__name__)
