"""`from kernels import cuda`: `numba.cuda` itself where there is a GPU, else our compiler.

Source written for `numba.cuda` runs unchanged either way. Which of the two it is was decided when
this module was first imported: `cuda.__name__` tells.
"""

from __future__ import annotations

import ctypes
import importlib
import sys
from types import ModuleType
from typing import Any


def _driver_is_installed() -> bool:
    """Whether NVIDIA's driver library loads: a question of microseconds, where asking Numba
    takes half a second."""
    try:
        ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return False
    return True


def _choose() -> ModuleType:
    if _driver_is_installed():
        try:
            from numba import cuda
        except ImportError:  # a Numba without its CUDA target
            pass
        else:
            if cuda.is_available():
                return cuda
    from kernels.simt import cuda as compiled

    return compiled


class _Part(ModuleType):
    """A module of the chosen package, imported when a name of it is asked for."""

    def __init__(self, package: ModuleType, name: str) -> None:
        super().__init__(f"{__name__}.{name}")
        self._package, self._name = package, name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        part = getattr(self._package, self._name, None)
        if part is None:
            part = importlib.import_module(f"{self._package.__name__}.{self._name}")
        return getattr(part, name)


_chosen = _choose()
for _name in ("libdevice", "random"):  # so that `from kernels.cuda.random import ...` works
    sys.modules[f"{__name__}.{_name}"] = _Part(_chosen, _name)
sys.modules[__name__] = _chosen
