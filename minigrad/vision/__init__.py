"""Images: `transforms`, `datasets`, `utils` and `models`, with torchvision's names.

`minigrad run` and `as_torch()` give this package for `torchvision`. Pillow (extra `vision`) is
needed for images of files; arrays and tensors do without.
"""

from __future__ import annotations

import importlib
from typing import Any

from minigrad._names import refuse

__all__ = ["datasets", "models", "transforms", "utils"]
__version__ = "0.0+minigrad"

_refuse = refuse(__name__)


def __getattr__(name: str) -> Any:
    if name == "models":
        return importlib.import_module("minigrad.models")
    if name in __all__:
        return importlib.import_module(f"minigrad.vision.{name}")
    return _refuse(name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
