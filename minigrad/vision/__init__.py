"""Images: `transforms`, `datasets`, `io`, `utils` and `models`, with torchvision's names.

`minigrad run` and `as_torch()` give this package for `torchvision`. Pillow (extra `vision`) is
needed for images of files; arrays and tensors do without.
"""

from __future__ import annotations

from minigrad._names import namespace

__all__ = ["datasets", "io", "models", "transforms", "utils"]
__version__ = "0.0+minigrad"

__getattr__, __dir__ = namespace(
    __name__, {name: f"minigrad.vision.{name}" for name in __all__} | {"models": "minigrad.models"}
)
