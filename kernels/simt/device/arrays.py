"""Device arrays where the device is this machine's CPU, with numba.cuda's names and rules.

Device arrays are memory that only kernels and explicit copies reach, as on a GPU: `to_device`
copies, and a host array changes only through `copy_to_host`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

_LINE = 64  # bytes


class CudaAPIError(RuntimeError):
    """A host function was called in a way that the CUDA driver would refuse."""


class DeviceNDArray:
    """An array in device memory; see `to_device` and `device_array`.

    `memory` is the NumPy array that kernels work on. Slices, `reshape`, `ravel`, `view`, `T`,
    `squeeze` and `split` share it; indexing one element copies that element to the host.
    """

    __cuda_memory__ = True
    __cuda_ndarray__ = True
    __slots__ = ("__weakref__", "memory", "stream")
    __hash__ = object.__hash__

    def __init__(self, memory: np.ndarray, stream: Any = 0) -> None:
        self.memory = memory
        self.stream = stream

    shape = property(lambda self: self.memory.shape)
    strides = property(lambda self: self.memory.strides)
    dtype = property(lambda self: self.memory.dtype)
    size = property(lambda self: self.memory.size)
    ndim = property(lambda self: self.memory.ndim)
    nbytes = property(lambda self: self.memory.nbytes)
    itemsize = property(lambda self: self.memory.itemsize)

    @property
    def alloc_size(self) -> int:
        return self.memory.nbytes

    @property
    def flags(self) -> dict[str, bool]:
        flags = self.memory.flags
        return {"C_CONTIGUOUS": flags.c_contiguous, "F_CONTIGUOUS": flags.f_contiguous}

    def is_c_contiguous(self) -> bool:
        return self.memory.flags.c_contiguous

    def is_f_contiguous(self) -> bool:
        return self.memory.flags.f_contiguous

    def _view(self, memory: np.ndarray) -> DeviceNDArray:
        return DeviceNDArray(memory, self.stream)

    def bind(self, stream: Any = 0) -> DeviceNDArray:
        """The same memory with another default stream."""
        return DeviceNDArray(self.memory, stream)

    def copy_to_host(self, ary: np.ndarray | None = None, stream: Any = 0) -> np.ndarray:
        """The contents as a new NumPy array, or written into `ary` (same shape and dtype)."""
        if ary is None:
            return self.memory.copy(order="K")
        _check_alike("copy_to_host", self.memory, ary)
        np.copyto(ary, self.memory)
        return ary

    def copy_to_device(self, ary: Any, stream: Any = 0) -> None:
        """Overwrite with `ary`, a host or device array of the same shape and dtype."""
        source = ary.memory if isinstance(ary, DeviceNDArray) else np.asarray(ary)
        if source.size == 0:
            return
        _check_alike("copy_to_device", self.memory, source)
        np.copyto(self.memory, source.reshape(self.shape))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("a device array is always copied to the host; copy=False cannot be")
        host = self.copy_to_host()
        return host if dtype is None else host.astype(dtype)

    def __len__(self) -> int:
        return len(self.memory)

    def __getitem__(self, item: Any) -> Any:
        if self.dtype.names is not None and isinstance(item, str):
            return self._view(self.memory[item])
        found = self.memory[_basic_index(item)]
        return self._view(found) if isinstance(found, np.ndarray) else found.copy()

    getitem = __getitem__

    def __setitem__(self, item: Any, value: Any) -> None:
        value = value.memory if isinstance(value, DeviceNDArray) else value
        self.memory[_basic_index(item)] = value

    def setitem(self, item: Any, value: Any, stream: Any = 0) -> None:
        self[item] = value

    def reshape(self, *newshape: Any, order: str = "C") -> DeviceNDArray:
        """The same memory in another shape; NotImplementedError where that needs a copy."""
        shape = newshape[0] if len(newshape) == 1 else newshape
        return self._shared(self.memory.reshape(shape, order=order), "reshape")

    def ravel(self, order: str = "C", stream: Any = 0) -> DeviceNDArray:
        return self._shared(self.memory.ravel(order=order), "ravel")

    def _shared(self, result: np.ndarray, name: str) -> DeviceNDArray:
        if self.size and not np.may_share_memory(result, self.memory):
            raise NotImplementedError(f"{name}: this device array's layout would need a copy")
        return self._view(result)

    def view(self, dtype: Any) -> DeviceNDArray:
        return self._view(self.memory.view(dtype))

    def squeeze(self, axis: Any = None, stream: Any = 0) -> DeviceNDArray:
        return self._view(self.memory.squeeze(axis))

    @property
    def T(self) -> DeviceNDArray:
        return self.transpose()

    def transpose(self, axes: Any = None) -> DeviceNDArray:
        return self._view(self.memory.transpose(axes))

    def split(self, section: int, stream: Any = 0) -> Iterator[DeviceNDArray]:
        """Consecutive parts of `section` elements; the last one may be shorter."""
        if self.ndim != 1:
            raise ValueError(f"split: expected one dimension, got {self.ndim}")
        for begin in range(0, self.size, section):
            yield self._view(self.memory[begin : begin + section])

    def __repr__(self) -> str:
        return f"<DeviceNDArray shape={self.shape} dtype={self.dtype} on the CPU>"


def _basic_index(item: Any) -> Any:
    for part in item if isinstance(item, tuple) else (item,):
        if not isinstance(part, int | np.integer | slice | type(Ellipsis)):
            raise NotImplementedError(
                f"device arrays are indexed by integers and slices, not {type(part).__name__};"
                " copy to the host first"
            )
    return item


def _check_alike(name: str, target: np.ndarray, source: np.ndarray) -> None:
    if target.dtype != source.dtype:
        raise TypeError(f"{name}: incompatible dtype: {target.dtype} vs. {source.dtype}")
    if target.squeeze().shape != source.squeeze().shape:
        raise ValueError(f"{name}: incompatible shape: {target.shape} vs. {source.shape}")


# --- making arrays


def to_device(
    obj: Any, stream: Any = 0, copy: bool = True, to: DeviceNDArray | None = None
) -> DeviceNDArray:
    """A device copy of a host array (anything NumPy understands), or into `to`.

    `copy=False` only allocates. Raises ValueError for an array that is neither C- nor
    F-contiguous, as a GPU's single memory transfer would.
    """
    if to is not None:
        to.copy_to_device(obj, stream=stream)
        return to
    if isinstance(obj, DeviceNDArray):
        return obj
    host = np.asarray(obj)
    core = host[tuple(slice(1) if s == 0 else slice(None) for s in host.strides)]
    if not (core.flags.c_contiguous or core.flags.f_contiguous):
        raise ValueError(
            "to_device: the array is not contiguous and cannot be moved in one transfer;"
            " pass numpy.ascontiguousarray(array)"
        )
    memory = _allocate_like(host)
    if copy:
        memory[...] = host
    return DeviceNDArray(memory, stream)


def _allocate(shape: Any, dtype: Any, strides: Any, order: str) -> np.ndarray:
    """An uninitialised array that begins on a cache line, as all memory of a GPU does.

    NumPy's begin anywhere a multiple of 16 bytes, where wide vectors lie across two lines.
    """
    if isinstance(strides, int):
        strides = (strides,)
    unplaced = np.ndarray(shape, dtype, strides=strides, order=order)
    buffer = np.empty(unplaced.nbytes + _LINE, np.uint8)
    return np.ndarray(shape, dtype, buffer, -buffer.ctypes.data % _LINE, unplaced.strides)


def _allocate_like(array: np.ndarray) -> np.ndarray:
    return _allocate(array.shape, array.dtype, np.empty_like(array).strides, "C")


def device_array(
    shape: Any, dtype: Any = np.float64, strides: Any = None, order: str = "C", stream: Any = 0
) -> DeviceNDArray:
    """An uninitialised device array."""
    return DeviceNDArray(_allocate(shape, dtype, strides, order), stream)


def device_array_like(ary: Any, stream: Any = 0) -> DeviceNDArray:
    """An uninitialised device array of the same shape, dtype and axis order."""
    memory = ary.memory if isinstance(ary, DeviceNDArray) else np.asarray(ary)
    return DeviceNDArray(_allocate_like(memory), stream)


def pinned_array(
    shape: Any, dtype: Any = np.float64, strides: Any = None, order: str = "C"
) -> np.ndarray:
    """A host array. (On a GPU its pages are locked for faster transfers.)"""
    return _allocate(shape, dtype, strides, order)


def pinned_array_like(ary: Any) -> np.ndarray:
    return _allocate_like(np.asarray(ary))


def mapped_array(
    shape: Any,
    dtype: Any = np.float64,
    strides: Any = None,
    order: str = "C",
    stream: Any = 0,
    portable: bool = False,
    wc: bool = False,
) -> np.ndarray:
    """A host array that kernels work on in place; so is any NumPy array here."""
    return _allocate(shape, dtype, strides, order)


def mapped_array_like(
    ary: Any, stream: Any = 0, portable: bool = False, wc: bool = False
) -> np.ndarray:
    return _allocate_like(np.asarray(ary))


def managed_array(
    shape: Any,
    dtype: Any = np.float64,
    strides: Any = None,
    order: str = "C",
    stream: Any = 0,
    attach_global: bool = True,
) -> np.ndarray:
    """A host array that kernels work on in place."""
    return _allocate(shape, dtype, strides, order)


@contextmanager
def pinned(*arylist: np.ndarray) -> Iterator[None]:
    """Pages are not locked here: there is no transfer to speed up."""
    yield


@contextmanager
def mapped(*arylist: np.ndarray, stream: Any = 0) -> Iterator[Any]:
    """Device arrays over the host arrays' own memory."""
    views = [DeviceNDArray(ary, stream) for ary in arylist]
    yield views[0] if len(views) == 1 else views


def is_cuda_array(obj: Any) -> bool:
    """Whether `as_cuda_array` accepts it."""
    return isinstance(obj, DeviceNDArray) or hasattr(obj, "__cuda_array_interface__")


def as_cuda_array(obj: Any, sync: bool = True) -> DeviceNDArray:
    """A device array over another library's device memory: only our own, since this is a CPU."""
    if isinstance(obj, DeviceNDArray):
        return obj
    if hasattr(obj, "__cuda_array_interface__"):
        raise CudaAPIError(
            f"as_cuda_array: {type(obj).__name__} lives on a GPU, and kernels here run on the CPU"
        )
    raise TypeError(f"as_cuda_array: {type(obj).__name__} is no device array; use to_device")


class _ArgumentHint:
    """Wraps a kernel argument with the direction in which it would be copied."""

    def __init__(self, value: Any) -> None:
        self.value = value


class In(_ArgumentHint):
    """The kernel reads the array; what it writes there is lost."""


class Out(_ArgumentHint):
    """The kernel writes the array."""


class InOut(_ArgumentHint):
    """The kernel reads and writes the array: also what a bare host array means."""


def kernel_argument(arg: Any) -> Any:
    """What a kernel on the CPU works on: the memory of device arrays and of hinted ones."""
    if isinstance(arg, DeviceNDArray):
        return arg.memory
    if isinstance(arg, _ArgumentHint):
        memory = kernel_argument(arg.value)
        return memory.copy(order="K") if isinstance(arg, In) else memory
    return arg
