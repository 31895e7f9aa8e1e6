"""Pillow, which is optional."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from PIL.Image import Image


def pillow(what: str) -> Any:
    """The module PIL.Image, for `what`; ImportError where it is missing."""
    try:
        from PIL import Image
    except ImportError:
        raise ImportError(f"{what} needs Pillow: pip install 'minigrad[vision]'") from None
    return Image


def is_image(value: Any) -> bool:
    """Whether a value is an image of Pillow, which need not be installed."""
    module = sys.modules.get("PIL.Image")
    return module is not None and isinstance(value, module.Image)


def channels(image: Image) -> int:
    """How many bands an image has."""
    return len(image.getbands())
