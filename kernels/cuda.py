"""`from kernels import cuda`: `numba.cuda` itself where there is a GPU, else our compiler.

Source written for `numba.cuda` runs unchanged either way. The choice is made when this module is
first imported; `cuda.__name__` says which it was.

The kernels of this project import `kernels.simt.cuda` instead: its kernels run where their arrays
are, so that NumPy arrays stay on the CPU on a machine with a GPU too. A dispatcher of numba.cuda
would copy them to the GPU and back.
"""

from __future__ import annotations

import ctypes
import importlib
import sys
from types import ModuleType
from typing import Any

from kernels.support import nvidia


def _driver_is_installed() -> bool:
    """Whether NVIDIA's driver library loads. This takes microseconds; asking Numba takes half a
    second."""
    try:
        ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return False
    return True


def _choose() -> ModuleType:
    if _driver_is_installed():
        try:
            cuda = nvidia.numba_cuda()
        except ImportError:  # a Numba without its CUDA target
            pass
        else:
            if cuda.is_available():
                return cuda
    from kernels.simt import cuda as compiled

    return compiled


class _Part(ModuleType):
    """A module of the chosen package, imported at the first use of one of its names."""

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
for _name in (
    "bf16",
    "extending",
    "libdevice",
    "random",
    "vectorizers",
):  # so that `from kernels.cuda.random import ...` works
    sys.modules[f"{__name__}.{_name}"] = _Part(_chosen, _name)
sys.modules[__name__] = _chosen
