"""`from kernels import cuda`: `numba.cuda` itself where there is a GPU, else our compiler.

Source written for `numba.cuda` runs unchanged either way. Which of the two it is was decided when
this module was first imported: `cuda.__name__` tells.
"""

from __future__ import annotations

import ctypes
import sys
from types import ModuleType


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


sys.modules[__name__] = _choose()
