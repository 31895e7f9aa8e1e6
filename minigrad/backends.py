"""Which kernels run, and where arrays live.

`set("numba" | "numpy" | "cupy")` selects the dialect of the kernels for the whole process,
`use(...)` for a `with` block; the environment variable `MINIGRAD_BACKEND` selects the initial one.
Kernels run where the arrays live: NumPy arrays on the CPU, CuPy arrays on a GPU. Moving is always
explicit (`tensor.to(device)`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import numpy as np

from kernels import dispatch


def set(name: str) -> None:
    """Run all later operations with this dialect; ValueError if it is not installed."""
    dispatch.set_backend(name)


def get() -> str:
    """The name of the dialect in use."""
    return dispatch.backend()


def available() -> list[str]:
    """The dialects of this installation."""
    return [name for name in dispatch.DIALECTS if dispatch.installed(name)]


@contextmanager
def use(name: str) -> Iterator[None]:
    """`with backends.use("numpy"): ...` runs the block with another dialect."""
    previous = get()
    set(name)
    try:
        yield
    finally:
        set(previous)


def array_module(array: Any) -> ModuleType:
    """NumPy for a NumPy array, CuPy for a CuPy array."""
    if isinstance(array, np.ndarray):
        return np
    return _cupy()


def device_module(device_type: str) -> ModuleType:
    """The module that makes arrays on a device: NumPy for "cpu", CuPy for "cuda"."""
    return np if device_type == "cpu" else _cupy()


def _cupy() -> ModuleType:
    try:
        import cupy
    except ImportError as error:
        raise RuntimeError(
            'device "cuda": expected CuPy, which holds arrays on the GPU, and it is not installed; '
            "fix: pip install 'minigrad[cuda13]', or stay on device \"cpu\""
        ) from error
    except OSError as error:  # CuPy makes its cache folder when it is imported
        raise RuntimeError(
            f'device "cuda": CuPy cannot be used: {error}; fix: set CUPY_CACHE_DIR to a folder of '
            'your own, or stay on device "cpu"'
        ) from error
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise RuntimeError(f'device "cuda": no usable NVIDIA GPU or driver ({error})') from error
    if count == 0:
        raise RuntimeError('device "cuda": no NVIDIA GPU found; use device "cpu"')
    return cupy


class _Flags:
    """`backends.cudnn`, `backends.mps`: libraries that minigrad does not use.

    Programs set flags on them (`benchmark`, `deterministic`, `enabled`). The flags are stored and
    have no effect: every kernel is minigrad's own and deterministic by construction.
    """

    def __init__(self, **flags: bool) -> None:
        self.__dict__.update(flags)

    def is_available(self) -> bool:
        return False

    is_built = is_available


cudnn = _Flags(benchmark=False, deterministic=True, enabled=False, allow_tf32=False)
mps = _Flags()
