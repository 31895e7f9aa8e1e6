"""Functions on images: on those of Pillow, and on tensors (..., channels, height, width).

Their names, arguments and results are those of `torchvision.transforms.functional`.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

import numpy as np

import minigrad
from minigrad._names import kind, namespace
from minigrad.backends import array_module
from minigrad.tensor import Tensor, wrap
from minigrad.vision._pillow import channels, is_image, pillow
from minigrad.vision.transforms import _colours as colours
from minigrad.vision.transforms import _geometry as geometry


class InterpolationMode(enum.Enum):
    """How values between pixels are found. An integer is Pillow's constant."""

    NEAREST = "nearest"
    NEAREST_EXACT = "nearest-exact"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    HAMMING = "hamming"
    LANCZOS = "lanczos"


_PILLOW_NUMBERS = {
    0: InterpolationMode.NEAREST, 1: InterpolationMode.LANCZOS, 2: InterpolationMode.BILINEAR,
    3: InterpolationMode.BICUBIC, 4: InterpolationMode.BOX, 5: InterpolationMode.HAMMING,
}  # fmt: skip


def mode_of(interpolation: Any) -> InterpolationMode:
    """The mode that is meant."""
    if isinstance(interpolation, int):
        interpolation = _PILLOW_NUMBERS.get(interpolation, interpolation)
    if not isinstance(interpolation, InterpolationMode):
        raise TypeError(
            "Argument interpolation should be a InterpolationMode or a corresponding Pillow "
            f"integer constant, got {interpolation!r}"
        )
    return interpolation


def _number(interpolation: InterpolationMode) -> int:
    """Pillow's constant."""
    exact = InterpolationMode.NEAREST_EXACT
    wanted = InterpolationMode.NEAREST if interpolation is exact else interpolation
    return next(number for number, mode in _PILLOW_NUMBERS.items() if mode is wanted)


def check_image(owner: str, value: Any) -> None:
    """TypeError for what is neither an image of Pillow nor a tensor of at least 2 dimensions."""
    if is_image(value):
        return
    if not isinstance(value, Tensor):
        raise TypeError(
            f"{owner}: expected an image of Pillow or a tensor, got {kind(value)}; ToTensor() "
            "makes tensors of arrays"
        )
    if value.ndim < 2:
        raise TypeError(f"{owner}: expected a tensor (..., H, W), got {list(value.shape)}")


def get_dimensions(img: Any) -> list[int]:
    """[channels, height, width] of an image."""
    check_image("get_dimensions", img)
    if is_image(img):
        return [channels(img), img.height, img.width]
    return [1 if img.ndim == 2 else img.shape[-3], *img.shape[-2:]]


def get_image_size(img: Any) -> list[int]:
    """[width, height] of an image."""
    return get_dimensions(img)[:0:-1]


def get_image_num_channels(img: Any) -> int:
    """How many channels an image has."""
    return get_dimensions(img)[0]


# ------------------------------------------------------------------------ conversions

_ARRAYS = {"I": np.int32, "I;16": np.int16, "F": np.float32}


def _planes(pic: Any) -> np.ndarray:
    """An image of Pillow as an array (C, H, W) of its own."""
    array = np.array(pic, _ARRAYS.get(pic.mode, np.uint8))
    if pic.mode == "1":
        array *= 255
    return np.ascontiguousarray(array.reshape(pic.height, pic.width, -1).transpose(2, 0, 1))


def to_tensor(pic: Any) -> Tensor:
    """An image of Pillow or an array (H, W) or (H, W, C) as a tensor (C, H, W).

    Bytes become floats in [0, 1]; other values stay as they are.
    """
    if isinstance(pic, np.ndarray):
        if pic.ndim not in (2, 3):
            raise ValueError(f"pic should be 2/3 dimensional. Got {pic.ndim} dimensions.")
        planes = pic[None] if pic.ndim == 2 else np.ascontiguousarray(pic.transpose(2, 0, 1))
    elif is_image(pic):
        planes = _planes(pic)
    else:
        raise TypeError(f"to_tensor: pic should be PIL Image or ndarray. Got {kind(pic)}")
    if planes.dtype == np.uint8:
        floats = minigrad.dtypes.default_numpy()
        planes = np.divide(planes, 255, dtype=floats)
    return minigrad.from_numpy(planes)


def pil_to_tensor(pic: Any) -> Tensor:
    """An image of Pillow as a tensor (C, H, W) of its values, bytes for most modes."""
    if not is_image(pic):
        raise TypeError(f"pil_to_tensor: pic should be PIL Image. Got {kind(pic)}")
    array = np.array(pic).reshape(pic.height, pic.width, -1)
    return minigrad.from_numpy(np.ascontiguousarray(array.transpose(2, 0, 1)))


_MODES = {1: ("L",), 2: ("LA",), 3: ("RGB", "YCbCr", "HSV"), 4: ("RGBA", "CMYK", "RGBX")}
_ONE_CHANNEL = {"uint8": "L", "int16": "I;16", "int32": "I", "float32": "F"}


def to_pil_image(pic: Any, mode: str | None = None) -> Any:
    """A tensor (C, H, W) or (H, W), or an array (H, W, C) or (H, W), as an image of Pillow.

    Floats are taken to be in [0, 1], unless `mode` is "F".
    """
    image = pillow("to_pil_image")
    if isinstance(pic, Tensor):
        array = pic.detach().cpu().numpy()
        array = array.transpose(1, 2, 0) if array.ndim == 3 else array
    elif isinstance(pic, np.ndarray):
        array = pic
    else:
        raise TypeError(f"pic should be Tensor or ndarray. Got {kind(pic)}.")
    array = array[:, :, None] if array.ndim == 2 else array
    if array.ndim != 3:
        raise ValueError(f"pic should be 2/3 dimensional. Got {array.ndim} dimensions.")
    count = array.shape[2]
    if count not in _MODES:
        raise ValueError(f"pic should not have > 4 channels. Got {count} channels.")
    if array.dtype.kind == "f" and mode != "F":
        array = (array * 255).astype(np.uint8)
    if count == 1:
        expected = _ONE_CHANNEL.get(array.dtype.name)
        known: tuple[str | None, ...] = (expected,)
        array = array[:, :, 0]
    else:
        known = _MODES[count]
        expected = known[0] if array.dtype == np.uint8 else None
    if mode is not None and mode not in known:
        raise ValueError(
            f"to_pil_image: {count} channels of {array.dtype} can have mode {known}, not {mode!r}"
        )
    if expected is None:
        raise TypeError(f"Input type {array.dtype} is not supported")
    array = np.ascontiguousarray(array)
    return image.frombytes(mode or expected, array.shape[1::-1], array.tobytes())


def convert_image_dtype(image: Tensor, dtype: Any = minigrad.float32) -> Tensor:
    """A tensor in another dtype, scaled: bytes 0 to 255 are floats 0 to 1."""
    if not isinstance(image, Tensor):
        raise TypeError("Input img should be Tensor Image")
    return colours.convert(image, dtype)


def normalize(
    tensor: Tensor, mean: Sequence[float], std: Sequence[float], inplace: bool = False
) -> Tensor:
    """(tensor - mean) / std by channel, for a floating tensor (..., C, H, W)."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"img should be Tensor Image. Got {kind(tensor)}")
    if not tensor.is_floating_point():
        raise TypeError(f"Input tensor should be a float tensor. Got {tensor.dtype}.")
    if tensor.ndim < 3:
        raise ValueError(
            "Expected tensor to be a tensor image of size (..., C, H, W). Got tensor.size() = "
            f"{tensor.size()}"
        )
    xp, dtype = array_module(tensor._array), tensor._array.dtype
    means, stds = (xp.asarray(np.asarray(v, dtype).reshape(-1, 1, 1)) for v in (mean, std))
    if (stds == 0).any():
        raise ValueError(
            f"std evaluated to zero after conversion to {tensor.dtype}, leading to division by "
            "zero."
        )
    if inplace:
        return tensor.sub_(wrap(means)).div_(wrap(stds))
    if tensor.requires_grad:
        return (tensor - wrap(means)) / wrap(stds)
    return wrap((tensor._array - means) / stds)  # no kernels: a worker process need not load them


# ------------------------------------------------------------------------ places of pixels


def _resized(height: int, width: int, size: Any, max_size: int | None) -> tuple[int, int]:
    """(height, width) of the result of `resize`."""
    sizes = [size] if isinstance(size, int) else list(size)
    if len(sizes) not in (1, 2):
        raise ValueError(
            "Size must be an int or a 1 or 2 element tuple/list, not a "
            f"{len(sizes)} element tuple/list"
        )
    if len(sizes) == 2:
        if max_size is not None:
            raise ValueError(
                "max_size should only be passed if size specifies the length of the smaller edge"
            )
        return sizes[0], sizes[1]
    short, long = sorted((height, width))
    new_short, new_long = sizes[0], int(sizes[0] * long / short)
    if max_size is not None:
        if max_size <= sizes[0]:
            raise ValueError(
                f"max_size = {max_size} must be strictly greater than the requested size for the "
                f"smaller edge size = {size}"
            )
        if new_long > max_size:
            new_short, new_long = int(max_size * new_short / new_long), max_size
    return (new_long, new_short) if width <= height else (new_short, new_long)


def resize(
    img: Any,
    size: Any,
    interpolation: Any = InterpolationMode.BILINEAR,
    max_size: int | None = None,
    antialias: bool | None = True,
) -> Any:
    """An image of another size: (height, width), or the length of the smaller side.

    max_size: the most that the larger side may be. antialias: of tensors; images of Pillow always.
    """
    mode = mode_of(interpolation)
    _, height, width = get_dimensions(img)
    target = _resized(height, width, size, max_size)
    if target == (height, width):
        return img
    if is_image(img):
        return img.resize(target[::-1], _number(mode))
    smooth = mode in (InterpolationMode.BILINEAR, InterpolationMode.BICUBIC)
    if not smooth and not mode.value.startswith("nearest"):
        raise ValueError(f"resize: of tensors by {mode.value} is not available; use a Pillow image")
    return geometry.resize(img, target, mode.value, bool(antialias) and smooth)


def crop(img: Any, top: int, left: int, height: int, width: int) -> Any:
    """A rectangle of an image; what lies outside of it is 0."""
    check_image("crop", img)
    if is_image(img):
        return img.crop((left, top, left + width, top + height))
    h, w = img.shape[-2:]
    part = img[..., max(top, 0) : max(top + height, 0), max(left, 0) : max(left + width, 0)]
    outside = [max(-left, 0), max(left + width - w, 0), max(-top, 0), max(top + height - h, 0)]
    return minigrad.nn.functional.pad(part, outside) if any(outside) else part


def center_crop(img: Any, output_size: Any) -> Any:
    """The centre of an image, (height, width); a smaller image is padded with 0."""
    target = pair(output_size)
    _, height, width = get_dimensions(img)
    if target[0] > height or target[1] > width:
        lacking = [max(target[1] - width, 0), max(target[0] - height, 0)]
        img = pad(img, [n // 2 for n in lacking] + [(n + 1) // 2 for n in lacking])
        _, height, width = get_dimensions(img)
    top, left = round((height - target[0]) / 2), round((width - target[1]) / 2)
    return crop(img, top, left, *target)


def resized_crop(
    img: Any,
    top: int,
    left: int,
    height: int,
    width: int,
    size: Any,
    interpolation: Any = InterpolationMode.BILINEAR,
    antialias: bool | None = True,
) -> Any:
    """A rectangle of an image, resized."""
    part = crop(img, top, left, height, width)
    return resize(part, size, interpolation, antialias=antialias)


def pair(size: Any) -> tuple[int, int]:
    """(height, width) of one number for both, or of two."""
    sizes = [size] if isinstance(size, int) else list(size)
    if len(sizes) not in (1, 2):
        raise ValueError(f"Please provide only two dimensions (h, w) for size, got {size}")
    return sizes[0], sizes[-1]


def pad(img: Any, padding: Any, fill: Any = 0, padding_mode: str = "constant") -> Any:
    """An image with a border: one width, (horizontal, vertical) or (left, top, right, bottom).

    padding_mode: "constant" (of the value `fill`), "edge", "reflect" or "symmetric".
    """
    check_image("pad", img)
    widths = [padding] if isinstance(padding, int) else list(padding)
    if len(widths) not in (1, 2, 4):
        raise ValueError(
            f"Padding must be an int or a 1, 2, or 4 element tuple, not a {len(widths)} element "
            "tuple"
        )
    if padding_mode not in ("constant", "edge", "reflect", "symmetric"):
        raise ValueError("Padding mode should be either constant, edge, reflect or symmetric")
    left, top, right, bottom = (widths * 4)[:4]
    if is_image(img):
        return geometry.pad_image(img, (left, top, right, bottom), fill, padding_mode)
    return geometry.pad_tensor(img, (left, top, right, bottom), fill, padding_mode)


def hflip(img: Any) -> Any:
    """An image with left and right exchanged."""
    check_image("hflip", img)
    return img.transpose(0) if is_image(img) else img.flip(-1)  # 0: FLIP_LEFT_RIGHT


def vflip(img: Any) -> Any:
    """An image upside down."""
    check_image("vflip", img)
    return img.transpose(1) if is_image(img) else img.flip(-2)  # 1: FLIP_TOP_BOTTOM


def five_crop(img: Any, size: Any) -> tuple:
    """The four corners (left to right, from the top) and the centre, each of `size`."""
    h, w = pair(size)
    _, height, width = get_dimensions(img)
    if w > width or h > height:
        raise ValueError(
            f"Requested crop size {(h, w)} is bigger than input size {(height, width)}"
        )
    corners = ((top, left) for top in (0, height - h) for left in (0, width - w))
    return (*(crop(img, top, left, h, w) for top, left in corners), center_crop(img, (h, w)))


def ten_crop(img: Any, size: Any, vertical_flip: bool = False) -> tuple:
    """`five_crop` of the image and of its mirror image."""
    return five_crop(img, size) + five_crop((vflip if vertical_flip else hflip)(img), size)


def rotate(
    img: Any,
    angle: float,
    interpolation: Any = InterpolationMode.NEAREST,
    expand: bool = False,
    center: Sequence[float] | None = None,
    fill: Any = None,
) -> Any:
    """An image turned by `angle` degrees counter-clockwise, around `center` (x, y).

    expand: the result holds the whole image (of Pillow's images only). fill: of what was outside.
    """
    mode = mode_of(interpolation)
    check_image("rotate", img)
    if is_image(img):
        options = {} if fill is None else {"fillcolor": geometry.fill_of(img, fill)}
        return img.rotate(angle, _number(mode), expand, center, **options)
    if expand:
        raise NotImplementedError("rotate: expand=True is for images of Pillow; rotate before")
    middle = geometry.from_centre(img, center)
    matrix = geometry.inverse_affine(middle, -angle, (0, 0), 1.0, (0, 0))
    return geometry.sample(img, matrix, mode.value, fill)


def affine(
    img: Any,
    angle: float,
    translate: Sequence[float],
    scale: float,
    shear: Any,
    interpolation: Any = InterpolationMode.NEAREST,
    fill: Any = None,
    center: Sequence[float] | None = None,
) -> Any:
    """An image turned by `angle` degrees clockwise, scaled, sheared by angles (x, y) in degrees,
    and moved by `translate` (x, y) pixels."""
    mode = mode_of(interpolation)
    check_image("affine", img)
    if scale <= 0:
        raise ValueError("Argument scale should be positive")
    if len(translate) != 2:
        raise ValueError("Argument translate should be a sequence of length 2")
    shears = (shear, 0.0) if isinstance(shear, int | float) else (*shear, *shear)[:2]
    if is_image(img):
        middle = center or (img.width / 2, img.height / 2)
        matrix = geometry.inverse_affine(middle, angle, translate, scale, shears)
        options = {} if fill is None else {"fillcolor": geometry.fill_of(img, fill)}
        image = pillow("affine")
        return img.transform(img.size, image.Transform.AFFINE, matrix, _number(mode), **options)
    middle = geometry.from_centre(img, center)
    matrix = geometry.inverse_affine(middle, angle, translate, scale, shears)
    return geometry.sample(img, matrix, mode.value, fill)


# ------------------------------------------------------------------------ values of pixels


def rgb_to_grayscale(img: Any, num_output_channels: int = 1) -> Any:
    """The luma of an image, in 1 channel or 3 equal ones."""
    check_image("rgb_to_grayscale", img)
    if num_output_channels not in (1, 3):
        raise ValueError("num_output_channels should be either 1 or 3")
    if not is_image(img):
        return colours.grayscale(img, num_output_channels)
    grey = img.convert("L")
    return grey if num_output_channels == 1 else pillow("Grayscale").merge("RGB", [grey] * 3)


to_grayscale = rgb_to_grayscale


def _not_negative(name: str, value: float) -> None:
    if value < 0:
        raise ValueError(f"{name} ({value}) is not non-negative.")


def adjust_brightness(img: Any, brightness_factor: float) -> Any:
    """All values times a factor."""
    check_image("adjust_brightness", img)
    _not_negative("brightness_factor", brightness_factor)
    if is_image(img):
        return colours.enhanced(img, "Brightness", brightness_factor)
    return colours.brightness(img, brightness_factor)


def adjust_contrast(img: Any, contrast_factor: float) -> Any:
    """Differences from the mean luma times a factor."""
    check_image("adjust_contrast", img)
    _not_negative("contrast_factor", contrast_factor)
    if is_image(img):
        return colours.enhanced(img, "Contrast", contrast_factor)
    return colours.contrast(img, contrast_factor)


def adjust_saturation(img: Any, saturation_factor: float) -> Any:
    """Differences from the luma of each pixel times a factor."""
    check_image("adjust_saturation", img)
    _not_negative("saturation_factor", saturation_factor)
    if is_image(img):
        return colours.enhanced(img, "Color", saturation_factor)
    return colours.saturation(img, saturation_factor)


def adjust_hue(img: Any, hue_factor: float) -> Any:
    """Hues moved around their circle, by -0.5 to 0.5 of it."""
    check_image("adjust_hue", img)
    if not -0.5 <= hue_factor <= 0.5:
        raise ValueError(f"hue_factor ({hue_factor}) is not in [-0.5, 0.5].")
    return (colours.hue_of_image if is_image(img) else colours.hue)(img, hue_factor)


def adjust_gamma(img: Any, gamma: float, gain: float = 1) -> Any:
    """gain * value ** gamma, for values in [0, 1]."""
    check_image("adjust_gamma", img)
    _not_negative("Gamma", gamma)
    return (colours.gamma_of_image if is_image(img) else colours.gamma)(img, gamma, gain)


def invert(img: Any) -> Any:
    """The negative of an image."""
    check_image("invert", img)
    return (colours.negative_image if is_image(img) else colours.negative)(img)


def gaussian_blur(img: Any, kernel_size: Any, sigma: Any = None) -> Any:
    """An image smoothed by a Gaussian. kernel_size: odd, one number or (x, y); sigma: likewise."""
    check_image("gaussian_blur", img)
    sizes = [kernel_size] * 2 if isinstance(kernel_size, int) else list(kernel_size)
    if len(sizes) != 2 or any(n % 2 == 0 or n < 0 for n in sizes):
        raise ValueError(f"kernel_size should have odd and positive integers. Got {kernel_size}")
    if sigma is None:
        sigma = [0.15 * n + 0.35 for n in sizes]
    sigmas = [sigma] * 2 if isinstance(sigma, int | float) else (list(sigma) * 2)[:2]
    if min(sigmas) <= 0:
        raise ValueError(f"sigma should have positive values. Got {sigma}")
    if is_image(img):
        return to_pil_image(colours.blur(pil_to_tensor(img), sizes, sigmas), img.mode)
    return colours.blur(img, sizes, sigmas)


def erase(img: Tensor, i: int, j: int, h: int, w: int, v: Any, inplace: bool = False) -> Tensor:
    """A tensor whose rectangle at row i and column j, h by w, has the value v."""
    if not isinstance(img, Tensor):
        raise TypeError(f"img should be Tensor. Got {kind(img)}; erase after ToTensor()")
    result = img if inplace else img.clone()
    result[..., i : i + h, j : j + w] = v
    return result


__getattr__, __dir__ = namespace(__name__)
