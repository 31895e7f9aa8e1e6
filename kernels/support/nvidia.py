"""NVIDIA's compilers on this machine, as far as compiled code depends on them."""

from __future__ import annotations

import functools
import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np


@functools.cache
def libraries(*names: str) -> tuple[tuple[str, int, int], ...]:
    """Path, size and time of libraries such as "nvrtc": another compiler writes other code."""
    from cuda.pathfinder import load_nvidia_dynamic_lib

    files = [Path(load_nvidia_dynamic_lib(name).abs_path or "").resolve() for name in names]
    return tuple((str(f), f.stat().st_size, f.stat().st_mtime_ns) for f in files)


def numba_cuda() -> ModuleType:
    """`numba.cuda`, able to compile with NumPy 2.5 too. Raises ImportError where it is missing.

    numba-cuda 0.30 names `np.row_stack`, which NumPy 2.5 removed, in a module that it imports when
    it first compiles.
    """
    from numba import cuda

    if hasattr(np, "row_stack") or importlib.util.find_spec("numba_cuda") is None:
        return cuda
    np.row_stack = np.vstack  # noqa: NPY201
    try:
        importlib.import_module("numba.cuda.np.arrayobj")
    except ImportError:  # of another numba-cuda
        pass
    finally:
        del np.row_stack  # noqa: NPY201
    return cuda
