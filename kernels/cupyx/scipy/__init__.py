"""`cupyx.scipy`: SciPy's functions on device arrays. They need SciPy (`pip install scipy`)."""

from __future__ import annotations

import importlib
from typing import Any

from kernels.cupy._functions import get_array_module as _of_arrays

_SUBMODULES = "fft fftpack interpolate linalg ndimage signal sparse spatial special stats".split()


def get_array_module(*args: Any) -> Any:
    """cupyx.scipy if an argument is on the device, else scipy."""
    if _of_arrays(*args).__name__ == "numpy":
        return importlib.import_module("scipy")
    return importlib.import_module(__name__)


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module 'cupyx.scipy' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_SUBMODULES})
