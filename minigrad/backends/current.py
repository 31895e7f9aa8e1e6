"""The GPU that is the current one while an operation runs: that of its tensors, as in torch.

CuPy allocates and launches on the current GPU. So functions of tensors run `on_their_gpu`, an
operation, a node of the graph or an optimiser inside of `of(its arrays)`, and what makes a tensor
on a device inside of `at(device)`. No memory on a GPU is torch's error there.

A program on the CPU pays for none of this: methods of tensors are wrapped when CuPy is found.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from types import FunctionType, ModuleType
from typing import Any, TypeVar, cast

from kernels import dispatch

F = TypeVar("F", bound=Callable)


class OutOfMemoryError(RuntimeError):
    """A GPU has no more memory."""

    __module__ = "minigrad"


CLASSES: list[type] = []  # of tensors


class Found:
    """cupy: once it has found a GPU; until then no array lies on one. several: there are more."""

    cupy: ModuleType | None = None
    several = False


def cupy() -> Any:
    """CuPy; RuntimeError where it is not installed or finds no GPU."""
    if Found.cupy is not None and sys.modules.get("cupy") is Found.cupy:
        return Found.cupy
    try:
        import cupy as found
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
        count = found.cuda.runtime.getDeviceCount()
    except found.cuda.runtime.CUDARuntimeError as error:
        raise RuntimeError(f'device "cuda": no usable NVIDIA GPU or driver ({error})') from error
    if count == 0 or hasattr(found.ndarray, "__host_memory__"):  # kernels.install() was called
        raise RuntimeError('device "cuda": no NVIDIA GPU found; use device "cpu"')
    if Found.cupy is None:
        Found.cupy, Found.several = found, count > 1
        dispatch.gpu_found()
        _wrap_methods()
    return found


def _wrap_methods() -> None:
    """Let the methods of tensors run on the GPU of their tensors."""
    for cls in CLASSES:
        for name, method in list(vars(cls).items()):
            if isinstance(method, FunctionType) and name not in _AS_THEY_ARE:
                setattr(cls, name, on_their_gpu(method))


# They touch no arrays, or ask for the current GPU: the one of their caller
_AS_THEY_ARE = frozenset(("__init__", "__getattr__", "__setattr__", "__hash__", "cuda", "to"))


class _Gpu:
    """A block in which a GPU is the current one; None: there is only one."""

    __slots__ = ("_device",)

    def __init__(self, device: Any) -> None:
        self._device = device

    def __enter__(self) -> None:
        if self._device is not None:
            self._device.__enter__()

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if self._device is not None:
            self._device.__exit__(kind, error, trace)
        if error is not None:
            _check_memory(error)


def _check_memory(error: BaseException) -> None:
    """torch's error in the place of CuPy's for no memory."""
    if isinstance(error, cupy().cuda.memory.OutOfMemoryError):
        raise OutOfMemoryError(f"CUDA out of memory. {error}") from error


_NOTHING: AbstractContextManager = nullcontext()
_THE_ONE = _Gpu(None)


def of(arrays: Iterable[Any]) -> AbstractContextManager:
    """The GPU on which some arrays lie: that of the first that lies on one."""
    if Found.cupy is not None:
        if not Found.several:
            return _THE_ONE
        for array in arrays:  # CuPy's, or recorded ones
            device = getattr(array, "device", "cpu")
            if hasattr(device, "id"):
                is_current = device.id == Found.cupy.cuda.runtime.getDevice()
                return _THE_ONE if is_current else _Gpu(device)
    return _NOTHING


def numbered(number: int | None) -> AbstractContextManager:
    """The GPU of a number; None: no GPU."""
    return _NOTHING if number is None else _Gpu(cupy().cuda.Device(number))


def unknown_device(device_type: str) -> RuntimeError:
    """The error for a device of torch that can be named, and that no tensor is on."""
    return RuntimeError(
        f"minigrad has no tensors on {device_type} devices; fix: use cpu, cuda or meta"
    )


def at(device: Any) -> AbstractContextManager:
    """The GPU that a device names. RuntimeError for a number that no GPU has, and for a device that
    no tensor is on."""
    if device.type != "cuda":
        if device.type not in ("cpu", "meta"):
            raise unknown_device(device.type)
        return _NOTHING
    cuda = cupy().cuda
    if not (Found.several or device.index):
        return _THE_ONE
    count = cuda.runtime.getDeviceCount()
    if device.index is not None and device.index >= count:
        raise RuntimeError(f"CUDA error: invalid device ordinal: {device}, where {count} are found")
    return _Gpu(cuda.Device(device.index))


def on_their_gpu(function: F) -> F:
    """A function with the GPU of its arguments, tensors or lists of them, as the current one; with
    `device=` it is left to the function."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if Found.cupy is None or (kwargs and kwargs.get("device") is not None):
            return function(*args, **kwargs)
        if Found.several:
            with of(_arrays((*args, *kwargs.values()))):
                return function(*args, **kwargs)
        try:  # which costs nothing
            return function(*args, **kwargs)
        except Exception as error:
            _check_memory(error)
            raise

    return cast(F, call)


def _arrays(values: Iterable[Any]) -> Iterator[Any]:
    """The arrays of tensors and of lists of them."""
    for value in values:
        if isinstance(value, list | tuple):
            yield from _arrays(value)
        else:
            own = _attributes(value)
            if "_elements" in own:  # of a sparse tensor
                own = _attributes(own["_elements"])
            yield own.get("_array")


def _attributes(value: Any) -> dict[str, Any]:
    """All that a tensor has, a `Parameter` too (`minigrad.tensor.every_attribute`)."""
    tensor = CLASSES[0]
    return vars(tensor)["__dict__"].__get__(value) if isinstance(value, tensor) else {}
