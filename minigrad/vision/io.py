"""Images in files as tensors of bytes (C, H, W), through Pillow (extra `vision`)."""

from __future__ import annotations

import enum
import io
import os
from typing import Any

from minigrad._names import namespace
from minigrad.tensor import Tensor
from minigrad.vision._pillow import pillow
from minigrad.vision.transforms.functional import pil_to_tensor, to_pil_image


class ImageReadMode(enum.Enum):
    """The channels of the result; UNCHANGED: those of the file."""

    UNCHANGED = None
    GRAY = "L"
    GRAY_ALPHA = "LA"
    RGB = "RGB"
    RGB_ALPHA = "RGBA"


def _mode(mode: Any) -> str | None:
    if isinstance(mode, str):
        if mode.upper() not in ImageReadMode.__members__:
            raise ValueError(f"mode: expected one of {[*ImageReadMode.__members__]}, got {mode!r}")
        mode = ImageReadMode[mode.upper()]
    return mode.value


def decode_image(input: Tensor | str | os.PathLike, mode: Any = ImageReadMode.UNCHANGED) -> Tensor:
    """The image in a file, or in a vector of the bytes of a file, as bytes (C, H, W)."""
    source = io.BytesIO(input.cpu().numpy().tobytes()) if isinstance(input, Tensor) else input
    wanted = _mode(mode)
    with pillow("decode_image").open(source) as image:
        if image.mode in ("P", "1", "CMYK", "YCbCr"):
            image = image.convert("RGBA" if "transparency" in image.info else "RGB")
        return pil_to_tensor(image if wanted in (None, image.mode) else image.convert(wanted))


def read_image(path: str | os.PathLike, mode: Any = ImageReadMode.UNCHANGED) -> Tensor:
    """The image in a file as bytes (C, H, W)."""
    return decode_image(os.fspath(path), mode)


def write_png(input: Tensor, filename: str | os.PathLike, compression_level: int = 6) -> None:
    """Write bytes (C, H, W) to a PNG file."""
    to_pil_image(input).save(filename, "PNG", compress_level=compression_level)


def write_jpeg(input: Tensor, filename: str | os.PathLike, quality: int = 75) -> None:
    """Write bytes (C, H, W) to a JPEG file."""
    to_pil_image(input).save(filename, "JPEG", quality=quality)


__getattr__, __dir__ = namespace(__name__)
