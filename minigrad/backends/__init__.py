"""Which kernels run, and where arrays live.

Kernels run where the arrays live: NumPy arrays on the CPU, CuPy arrays on a GPU. Moving is always
explicit (`tensor.to(device)`). By default ("auto") they run in Numba's dialect ("numba") on the CPU
and in CUDA C ("cupy") on a GPU. `set("numba" | "numpy" | "cupy")` selects one dialect for the whole
process, `use(...)` for a `with` block; the environment variable `MINIGRAD_BACKEND` selects the
initial one.

`backends.cudnn`, `backends.cuda` and `backends.mps` hold the flags that programs set for torch.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import numpy as np

from kernels import dispatch
from kernels.launchers.common import on_gpu as on_gpu
from minigrad import _meta
from minigrad._names import namespace
from minigrad.backends import current


def set(name: str) -> None:
    """Run all later operations with this dialect, or as is best where their arrays live ("auto").

    ValueError for one that is not installed.
    """
    dispatch.set_backend(name)


def get() -> str:
    """The name of the dialect in use; "auto": the one that is best where the arrays live."""
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
    """NumPy for a NumPy array, CuPy for a CuPy array; a recorded array brings its own."""
    if type(array) is np.ndarray:
        return np
    if isinstance(array, np.ndarray):
        return getattr(array, "module", np)
    if isinstance(array, _meta.MetaArray):
        return _meta
    return getattr(array, "module", None) or current.cupy()


def is_batched(array: Any) -> bool:
    """Whether an array has one element for each call of `vmap` (`minigrad.batching`)."""
    return hasattr(type(array), "whole")


def every_element(array: Any) -> Any:
    """The array in memory that has the elements of all calls of `vmap`; for checks of values."""
    while is_batched(array):
        array = array.whole
    return array


def scipy_module(array: Any, name: str) -> ModuleType:
    """SciPy's module of a name for NumPy's arrays, CuPy's form of it for its own."""
    if isinstance(array, _meta.MetaArray):
        raise _meta.NoData(name)
    on_cpu = array_module(array).__name__ == "numpy" or is_batched(array)
    module = importlib.import_module(f"{'scipy' if on_cpu else 'cupyx.scipy'}.{name}")
    return array.recorded(module) if hasattr(type(array), "recorded") else module


def device_module(device_type: str) -> ModuleType:
    """The module that makes arrays on a device: NumPy for "cpu", CuPy for "cuda"."""
    if device_type == "meta":
        return _meta
    if device_type not in ("cpu", "cuda"):
        raise current.unknown_device(device_type)
    return np if device_type == "cpu" else current.cupy()


_FLAGS = (
    "cuda",
    "cudnn",
    "mkl",
    "mkldnn",
    "mps",
    "openmp",
)  # modules of flags, imported at their first use


__getattr__, __dir__ = namespace(__name__, {name: f"{__name__}.{name}" for name in _FLAGS})
