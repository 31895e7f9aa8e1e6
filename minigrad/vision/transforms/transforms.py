"""The classes of transforms: each is made with its arguments and called with an image."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import minigrad
from minigrad import nn
from minigrad.dtypes import dtype as Dtype
from minigrad.dtypes import float32
from minigrad.tensor import Tensor
from minigrad.vision.transforms import functional as F
from minigrad.vision.transforms._random import below, chance, draw, uniform
from minigrad.vision.transforms.functional import InterpolationMode

_NEAREST, _BILINEAR = InterpolationMode.NEAREST, InterpolationMode.BILINEAR


class Compose:
    """Transforms one after the other."""

    def __init__(self, transforms: Sequence[Callable]) -> None:
        self.transforms = transforms

    def __call__(self, img: Any) -> Any:
        for transform in self.transforms:
            img = transform(img)
        return img

    def __repr__(self) -> str:
        inner = "".join(f"\n    {transform}" for transform in self.transforms)
        return f"{type(self).__name__}({inner}\n)"


class Transform(nn.Module):
    """A transform whose arguments, by name, are its attributes and its text."""

    _shown: tuple[str, ...] = ()

    def __repr__(self) -> str:
        parts = []
        for name in self._shown:
            value = getattr(self, name)
            value = value.value if isinstance(value, InterpolationMode) else value
            parts.append(f"{name}={value}")
        return f"{type(self).__name__}({', '.join(parts)})"


# ------------------------------------------------------------------------ conversions


class ToTensor(Transform):
    """An image of Pillow or an array (H, W, C) as a tensor (C, H, W); bytes become 0 to 1."""

    def forward(self, pic: Any) -> Tensor:
        """See `functional.to_tensor`."""
        return F.to_tensor(pic)


class PILToTensor(Transform):
    """An image of Pillow as a tensor (C, H, W) of the same values."""

    def forward(self, pic: Any) -> Tensor:
        """See `functional.pil_to_tensor`."""
        return F.pil_to_tensor(pic)


class ConvertImageDtype(Transform):
    """A tensor in another dtype, scaled."""

    def __init__(self, dtype: Dtype = float32) -> None:
        super().__init__()
        self.dtype = dtype

    def forward(self, image: Tensor) -> Tensor:
        """See `functional.convert_image_dtype`."""
        return F.convert_image_dtype(image, self.dtype)


class ToPILImage(Transform):
    """A tensor (C, H, W) or an array (H, W, C) as an image of Pillow."""

    _shown = ("mode",)

    def __init__(self, mode: str | None = None) -> None:
        super().__init__()
        self.mode = mode

    def forward(self, pic: Any) -> Any:
        """See `functional.to_pil_image`."""
        return F.to_pil_image(pic, self.mode)


class Normalize(Transform):
    """(tensor - mean) / std by channel."""

    _shown = ("mean", "std")

    def __init__(self, mean: Any, std: Any, inplace: bool = False) -> None:
        super().__init__()
        self.mean, self.std, self.inplace = mean, std, inplace

    def forward(self, tensor: Tensor) -> Tensor:
        """See `functional.normalize`."""
        return F.normalize(tensor, self.mean, self.std, self.inplace)


class Lambda(Transform):
    """A function as a transform. A lambda cannot be sent to worker processes that are spawned."""

    def __init__(self, lambd: Callable) -> None:
        super().__init__()
        if not callable(lambd):
            raise TypeError(f"Argument lambd should be callable, got {type(lambd).__name__!r}")
        self.lambd = lambd

    def forward(self, img: Any) -> Any:
        """lambd(img)"""
        return self.lambd(img)


# ------------------------------------------------------------------------ places of pixels


class Resize(Transform):
    """An image of size (height, width), or whose smaller side has the length `size`."""

    _shown = ("size", "interpolation", "max_size", "antialias")

    def __init__(
        self,
        size: Any,
        interpolation: Any = _BILINEAR,
        max_size: int | None = None,
        antialias: bool | None = True,
    ) -> None:
        super().__init__()
        if not isinstance(size, int | Sequence) or isinstance(size, str):
            raise TypeError(f"Size should be int or sequence. Got {type(size)}")
        if isinstance(size, Sequence) and len(size) not in (1, 2):
            raise ValueError("If size is a sequence, it should have 1 or 2 values")
        self.size, self.max_size, self.antialias = size, max_size, antialias
        self.interpolation = F.mode_of(interpolation)

    def forward(self, img: Any) -> Any:
        """See `functional.resize`."""
        return F.resize(img, self.size, self.interpolation, self.max_size, self.antialias)


class CenterCrop(Transform):
    """The centre of an image."""

    _shown = ("size",)

    def __init__(self, size: Any) -> None:
        super().__init__()
        self.size = F.pair(size)

    def forward(self, img: Any) -> Any:
        """See `functional.center_crop`."""
        return F.center_crop(img, self.size)


class Pad(Transform):
    """An image with a border."""

    _shown = ("padding", "fill", "padding_mode")

    def __init__(self, padding: Any, fill: Any = 0, padding_mode: str = "constant") -> None:
        super().__init__()
        self.padding, self.fill, self.padding_mode = padding, fill, padding_mode

    def forward(self, img: Any) -> Any:
        """See `functional.pad`."""
        return F.pad(img, self.padding, self.fill, self.padding_mode)


class RandomCrop(Transform):
    """A rectangle of an image, with a border of `padding` before, and of what is lacking with
    `pad_if_needed`."""

    _shown = ("size", "padding")

    def __init__(
        self,
        size: Any,
        padding: Any = None,
        pad_if_needed: bool = False,
        fill: Any = 0,
        padding_mode: str = "constant",
    ) -> None:
        super().__init__()
        self.size, self.padding, self.pad_if_needed = F.pair(size), padding, pad_if_needed
        self.fill, self.padding_mode = fill, padding_mode

    @staticmethod
    def get_params(img: Any, output_size: tuple[int, int]) -> tuple[int, int, int, int]:
        """top, left, height, width of the rectangle."""
        (_, height, width), (h, w) = F.get_dimensions(img), output_size
        if height < h or width < w:
            raise ValueError(
                f"Required crop size {(h, w)} is larger than input image size {(height, width)}"
            )
        return below(height - h + 1), below(width - w + 1), h, w

    def forward(self, img: Any) -> Any:
        """A rectangle of img."""
        if self.padding is not None:
            img = F.pad(img, self.padding, self.fill, self.padding_mode)
        if self.pad_if_needed:
            _, height, width = F.get_dimensions(img)
            lacking = [max(self.size[1] - width, 0), max(self.size[0] - height, 0)]
            if any(lacking):
                img = F.pad(img, lacking, self.fill, self.padding_mode)
        return F.crop(img, *self.get_params(img, self.size))


def _area(
    height: int, width: int, scale: Sequence[float], ratio: Sequence[float]
) -> tuple[int, int]:
    """(height, width) of a rectangle with a random share of the area and ratio of sides."""
    area = height * width * uniform(*scale)
    sides = math.exp(uniform(math.log(ratio[0]), math.log(ratio[1])))
    return round(math.sqrt(area / sides)), round(math.sqrt(area * sides))


class RandomResizedCrop(Transform):
    """A rectangle with a random share of the area and a random ratio of sides, resized."""

    _shown = ("size", "scale", "ratio", "interpolation", "antialias")

    def __init__(
        self,
        size: Any,
        scale: Sequence[float] = (0.08, 1.0),
        ratio: Sequence[float] = (3 / 4, 4 / 3),
        interpolation: Any = _BILINEAR,
        antialias: bool | None = True,
    ) -> None:
        super().__init__()
        self.size, self.scale, self.ratio = F.pair(size), scale, ratio
        self.interpolation, self.antialias = F.mode_of(interpolation), antialias

    @staticmethod
    def get_params(
        img: Any, scale: Sequence[float], ratio: Sequence[float]
    ) -> tuple[int, int, int, int]:
        """top, left, height, width of the rectangle; a central one where ten tries do not fit."""
        _, height, width = F.get_dimensions(img)
        for _ in range(10):
            h, w = _area(height, width, scale, ratio)
            if 0 < w <= width and 0 < h <= height:
                return below(height - h + 1), below(width - w + 1), h, w
        h = min(height, round(width / min(ratio)))
        w = min(width, round(height * max(ratio)))
        return (height - h) // 2, (width - w) // 2, h, w

    def forward(self, img: Any) -> Any:
        """A rectangle of img, resized."""
        place = self.get_params(img, self.scale, self.ratio)
        return F.resized_crop(img, *place, self.size, self.interpolation, self.antialias)


class FiveCrop(Transform):
    """The four corners and the centre of an image."""

    _shown = ("size",)

    def __init__(self, size: Any) -> None:
        super().__init__()
        self.size = F.pair(size)

    def forward(self, img: Any) -> tuple:
        """See `functional.five_crop`."""
        return F.five_crop(img, self.size)


class TenCrop(Transform):
    """`FiveCrop` of an image and of its mirror image."""

    _shown = ("size", "vertical_flip")

    def __init__(self, size: Any, vertical_flip: bool = False) -> None:
        super().__init__()
        self.size, self.vertical_flip = F.pair(size), vertical_flip

    def forward(self, img: Any) -> tuple:
        """See `functional.ten_crop`."""
        return F.ten_crop(img, self.size, self.vertical_flip)


class _WithChance(Transform):
    """A function that is called with probability p."""

    _shown = ("p",)
    _function = ""  # the name of one of `functional`

    def __init__(self, p: float = 0.5) -> None:
        super().__init__()
        self.p = p

    def forward(self, img: Any) -> Any:
        """The result, or img."""
        return getattr(F, self._function)(img) if chance(self.p) else img


class RandomHorizontalFlip(_WithChance):
    """An image with left and right exchanged, with probability p."""

    _function = "hflip"


class RandomVerticalFlip(_WithChance):
    """An image upside down, with probability p."""

    _function = "vflip"


class RandomInvert(_WithChance):
    """The negative of an image, with probability p."""

    _function = "invert"


def _range(name: str, value: Any) -> tuple[float, float]:
    """-value to value for a number, or the two that are given."""
    if isinstance(value, int | float):
        if value < 0:
            raise ValueError(f"If {name} is a single number, it must be positive.")
        return -value, value
    if len(value) != 2:
        raise ValueError(f"{name} should be a sequence of length 2.")
    return tuple(value)


class RandomRotation(Transform):
    """An image turned by up to `degrees`, or by an angle between two."""

    _shown = ("degrees", "interpolation", "expand", "fill")

    def __init__(
        self,
        degrees: Any,
        interpolation: Any = _NEAREST,
        expand: bool = False,
        center: Sequence[float] | None = None,
        fill: Any = 0,
    ) -> None:
        super().__init__()
        self.degrees, self.interpolation = _range("degrees", degrees), F.mode_of(interpolation)
        self.expand, self.center, self.fill = expand, center, fill

    def forward(self, img: Any) -> Any:
        """See `functional.rotate`."""
        angle = uniform(*self.degrees)
        return F.rotate(img, angle, self.interpolation, self.expand, self.center, self.fill)


class RandomAffine(Transform):
    """An image turned, moved (by shares of its size), scaled and sheared (degrees) at random."""

    _shown = ("degrees", "translate", "scale", "shear", "interpolation", "fill")

    def __init__(
        self,
        degrees: Any,
        translate: Sequence[float] | None = None,
        scale: Sequence[float] | None = None,
        shear: Any = None,
        interpolation: Any = _NEAREST,
        fill: Any = 0,
        center: Sequence[float] | None = None,
    ) -> None:
        super().__init__()
        if translate is not None and not all(0 <= share <= 1 for share in translate):
            raise ValueError("translation values should be between 0 and 1")
        if scale is not None and min(scale) <= 0:
            raise ValueError("scale values should be positive")
        self.degrees, self.translate, self.scale = _range("degrees", degrees), translate, scale
        four = isinstance(shear, Sequence) and len(shear) == 4
        self.shear = shear if shear is None or four else _range("shear", shear)
        self.interpolation, self.fill, self.center = F.mode_of(interpolation), fill, center

    def forward(self, img: Any) -> Any:
        """See `functional.affine`."""
        _, height, width = F.get_dimensions(img)
        angle, moved, sheared = uniform(*self.degrees), [0, 0], [0.0, 0.0]
        if self.translate is not None:
            reach = self.translate[0] * width, self.translate[1] * height
            moved = [round(uniform(-r, r)) for r in reach]
        scale = 1.0 if self.scale is None else uniform(*self.scale)
        if self.shear is not None:
            sheared = [uniform(*self.shear[i : i + 2]) for i in range(0, len(self.shear), 2)]
        shears = (*sheared, 0.0)[:2]
        return F.affine(
            img, angle, moved, scale, shears, self.interpolation, self.fill, self.center
        )


# ------------------------------------------------------------------------ values of pixels


class Grayscale(Transform):
    """The luma of an image, in 1 channel or 3."""

    _shown = ("num_output_channels",)

    def __init__(self, num_output_channels: int = 1) -> None:
        super().__init__()
        self.num_output_channels = num_output_channels

    def forward(self, img: Any) -> Any:
        """See `functional.rgb_to_grayscale`."""
        return F.rgb_to_grayscale(img, self.num_output_channels)


class RandomGrayscale(Transform):
    """The luma of an image, in as many channels as it has, with probability p."""

    _shown = ("p",)

    def __init__(self, p: float = 0.1) -> None:
        super().__init__()
        self.p = p

    def forward(self, img: Any) -> Any:
        """The luma, or img."""
        return F.rgb_to_grayscale(img, F.get_dimensions(img)[0]) if chance(self.p) else img


class ColorJitter(Transform):
    """Brightness, contrast, saturation and hue changed at random, in a random order.

    Each: a number for factors 1 - value to 1 + value (hue: shifts -value to value), or two ends.
    """

    _shown = ("brightness", "contrast", "saturation", "hue")

    def __init__(
        self, brightness: Any = 0, contrast: Any = 0, saturation: Any = 0, hue: Any = 0
    ) -> None:
        super().__init__()
        self.brightness = _factors("brightness", brightness, 1, (0, math.inf))
        self.contrast = _factors("contrast", contrast, 1, (0, math.inf))
        self.saturation = _factors("saturation", saturation, 1, (0, math.inf))
        self.hue = _factors("hue", hue, 0, (-0.5, 0.5))

    def forward(self, img: Any) -> Any:
        """img with other colours."""
        for number in draw().permutation(4):
            name = self._shown[number]
            limits = getattr(self, name)
            if limits is not None:
                img = getattr(F, f"adjust_{name}")(img, uniform(*limits))
        return img


def _factors(
    name: str, value: Any, centre: float, bound: tuple[float, float]
) -> tuple[float, float] | None:
    """The ends of the range of a factor; None where it changes nothing."""
    if isinstance(value, int | float):
        if value < 0:
            raise ValueError(f"If {name} is a single number, it must be non negative.")
        limits = (centre - value, centre + value)
        limits = limits if centre == 0 else (max(limits[0], 0.0), limits[1])
    elif isinstance(value, tuple | list) and len(value) == 2:
        limits = float(value[0]), float(value[1])
    else:
        raise TypeError(f"{name} should be a single number or a list/tuple with length 2.")
    if not bound[0] <= limits[0] <= limits[1] <= bound[1]:
        raise ValueError(f"{name} values should be between {bound}, but got {list(limits)}.")
    return None if limits[0] == limits[1] == centre else limits


class GaussianBlur(Transform):
    """An image smoothed by a Gaussian whose deviation is random between two."""

    _shown = ("kernel_size", "sigma")

    def __init__(self, kernel_size: Any, sigma: Any = (0.1, 2.0)) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.sigma = (sigma, sigma) if isinstance(sigma, int | float) else tuple(sigma)
        if not 0 < self.sigma[0] <= self.sigma[1]:
            raise ValueError(f"sigma values should be positive and of the form (min, max): {sigma}")

    def forward(self, img: Any) -> Any:
        """See `functional.gaussian_blur`."""
        return F.gaussian_blur(img, self.kernel_size, uniform(*self.sigma))


class RandomErasing(Transform):
    """A tensor of which a rectangle is overwritten, with probability p.

    value: a number, one per channel, or "random" for noise.
    """

    _shown = ("p", "scale", "ratio", "value", "inplace")

    def __init__(
        self,
        p: float = 0.5,
        scale: Sequence[float] = (0.02, 0.33),
        ratio: Sequence[float] = (0.3, 3.3),
        value: Any = 0,
        inplace: bool = False,
    ) -> None:
        super().__init__()
        if isinstance(value, str) and value != "random":
            raise ValueError("If value is str, it should be 'random'")
        if not 0 <= scale[0] or not scale[1] <= 1:
            raise ValueError("Scale should be between 0 and 1")
        if not 0 <= p <= 1:
            raise ValueError("Random erasing probability should be between 0 and 1")
        self.p, self.scale, self.ratio = p, scale, ratio
        self.value, self.inplace = value, inplace

    def forward(self, img: Tensor) -> Tensor:
        """img, or a copy with a rectangle overwritten."""
        if not chance(self.p):
            return img
        count, height, width = F.get_dimensions(img)
        for _ in range(10):
            w, h = _area(height, width, self.scale, self.ratio)
            if h < height and w < width:
                top, left = below(height - h + 1), below(width - w + 1)
                return F.erase(img, top, left, h, w, self._fill(img, count, h, w), self.inplace)
        return img

    def _fill(self, img: Tensor, count: int, h: int, w: int) -> Any:
        if self.value == "random":
            return minigrad.randn(count, h, w, device=img.device)
        values = [self.value] if isinstance(self.value, int | float) else list(self.value)
        if len(values) not in (1, count):
            raise ValueError(
                "If value is a sequence, it should have either a single value or "
                f"{count} (number of input channels)"
            )
        return img.new_tensor(values)[:, None, None]


# ------------------------------------------------------------------------ combinations


class RandomApply(Transform):
    """Transforms one after the other, with probability p."""

    _shown = ("p", "transforms")

    def __init__(self, transforms: Sequence[Callable], p: float = 0.5) -> None:
        super().__init__()
        self.transforms, self.p = transforms, p

    def forward(self, img: Any) -> Any:
        """All of the transforms of img, or img."""
        return Compose(self.transforms)(img) if chance(self.p) else img


class RandomChoice(Transform):
    """One of several transforms; p: how likely each is, relative to the others."""

    _shown = ("transforms", "p")

    def __init__(self, transforms: Sequence[Callable], p: Sequence[float] | None = None) -> None:
        super().__init__()
        self.transforms, self.p = transforms, p

    def forward(self, img: Any) -> Any:
        """One of the transforms of img."""
        shares = None if self.p is None else [value / sum(self.p) for value in self.p]
        return self.transforms[int(draw().choice(len(self.transforms), p=shares))](img)


class RandomOrder(Transform):
    """Transforms in a random order."""

    _shown = ("transforms",)

    def __init__(self, transforms: Sequence[Callable]) -> None:
        super().__init__()
        self.transforms = transforms

    def forward(self, img: Any) -> Any:
        """All of the transforms of img."""
        for number in draw().permutation(len(self.transforms)):
            img = self.transforms[number](img)
        return img


class ImageClassification(Transform):
    """What networks that were trained on ImageNet take: resized, the centre, floats, normalised."""

    _shown = ("crop_size", "resize_size", "mean", "std")

    def __init__(
        self,
        *,
        crop_size: int,
        resize_size: int = 256,
        mean: Sequence[float] = (0.485, 0.456, 0.406),
        std: Sequence[float] = (0.229, 0.224, 0.225),
    ) -> None:
        super().__init__()
        self.crop_size, self.resize_size, self.mean, self.std = crop_size, resize_size, mean, std

    def forward(self, img: Any) -> Tensor:
        """An image of Pillow or a tensor (..., 3, H, W) as (..., 3, crop_size, crop_size)."""
        img = F.center_crop(F.resize(img, self.resize_size), self.crop_size)
        tensor = img if isinstance(img, Tensor) else F.pil_to_tensor(img)
        return F.normalize(F.convert_image_dtype(tensor), self.mean, self.std)
