"""NVIDIA's compilers on this machine, as far as compiled code depends on them."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np

from kernels.support import interrupts


@functools.cache
def libraries(*names: str) -> tuple[tuple[str, int, int], ...]:
    """Path, size and time of libraries such as "nvrtc": another compiler writes other code."""
    from cuda.pathfinder import load_nvidia_dynamic_lib

    files = [Path(load_nvidia_dynamic_lib(name).abs_path or "").resolve() for name in names]
    return tuple((str(f), f.stat().st_size, f.stat().st_mtime_ns) for f in files)


def numba_cuda() -> ModuleType:
    """`numba.cuda`, able to compile with NumPy 2.5 too. Raises ImportError where it is missing."""
    from numba import cuda

    if cuda not in _complete and "numba_cuda" in (cuda.__file__ or ""):  # not another
        with _named_row_stack(), interrupts.python_s_print():
            cuda.descriptor.cuda_target.typing_context.refresh()  # imports what it registers
            cuda.descriptor.cuda_target.target_context.refresh()
    _complete.add(cuda)
    return cuda


_complete: set[ModuleType] = set()


@contextlib.contextmanager
def _named_row_stack() -> Iterator[None]:
    """numba-cuda 0.30 registers `np.row_stack`, which NumPy 2.5 removed."""
    if hasattr(np, "row_stack"):
        yield
        return
    np.row_stack = np.vstack  # noqa: NPY201
    try:
        yield
    finally:
        del np.row_stack  # noqa: NPY201
