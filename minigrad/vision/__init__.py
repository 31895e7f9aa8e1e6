"""Images: `transforms`, `datasets`, `io`, `ops`, `utils` and `models`, with torchvision's names.

`minigrad run` and `as_torch()` give this package for `torchvision`. Pillow (extra `vision`) is
needed for images of files; arrays and tensors do without.
"""

from __future__ import annotations

from typing import TYPE_CHECKING as _TYPE_CHECKING

from minigrad._names import namespace

if _TYPE_CHECKING:
    from minigrad import models as models
    from minigrad.vision import datasets as datasets
    from minigrad.vision import io as io
    from minigrad.vision import ops as ops
    from minigrad.vision import transforms as transforms
    from minigrad.vision import utils as utils

__all__ = ["datasets", "io", "models", "ops", "transforms", "utils"]
__version__ = "0.0+minigrad"

__getattr__, __dir__ = namespace(
    __name__, {name: f"minigrad.vision.{name}" for name in __all__} | {"models": "minigrad.models"}
)
