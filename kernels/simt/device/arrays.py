"""Device arrays where the device is this machine's CPU, with numba.cuda's names and rules.

Device arrays are memory that only kernels and explicit copies reach, as on a GPU: `to_device`
copies, and a host array changes only through `copy_to_host`.
"""

from __future__ import annotations

import ctypes
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

    @property
    def __host_memory__(self) -> np.ndarray:
        """The NumPy array that kernels on the CPU work on."""
        return self.memory

    @property
    def __cuda_array_interface__(self) -> HostInterface:
        return HostInterface.of(self.memory, self.stream)

    @property
    def device_ctypes_pointer(self) -> ctypes.c_void_p:
        return ctypes.c_void_p(self.memory.ctypes.data)

    def get_ipc_handle(self) -> Any:
        raise CudaAPIError(
            "get_ipc_handle: there is no GPU memory to share between processes; put the array into"
            " multiprocessing.shared_memory"
        )

    def copy_to_host(self, ary: np.ndarray | None = None, stream: Any = 0) -> np.ndarray:
        """The contents as a new NumPy array, or written into `ary` (same shape and dtype).

        Raises NotImplementedError for negative strides, as one transfer from a GPU would.
        """
        if any(step < 0 for step in self.strides):
            raise NotImplementedError(
                f"D->H copy not implemented for negative strides: {self.strides}"
            )
        if ary is None:
            return self.memory.copy(order="K")
        _check_alike("copy_to_host", self.memory, ary)
        np.copyto(ary, self.memory)
        return ary

    def copy_to_device(self, ary: Any, stream: Any = 0) -> None:
        """Overwrite with `ary`, a host or device array of the same shape and dtype.

        Raises ValueError where one transfer cannot do it: this array, or a device array that is
        copied, has gaps, or the orders of their axes differ.
        """
        on_device = is_cuda_array(ary)
        source = as_cuda_array(ary).memory if on_device else np.asarray(ary)
        if source.size == 0:
            return
        _check_contiguous("copy_to_device", self.memory)
        _check_alike("copy_to_device", self.memory, source)
        if on_device:
            _check_contiguous("copy_to_device", source)
            if self.ndim > 1 and source.strides != self.strides:
                raise ValueError(f"incompatible strides: {self.strides} vs. {source.strides}")
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
        if isinstance(found, np.ndarray):
            return self._view(found)
        return DeviceRecord(found, self.stream) if self.dtype.names else found.copy()

    getitem = __getitem__

    def __setitem__(self, item: Any, value: Any) -> None:
        value = _memory_of(value)
        target = self.memory[_basic_index(item)]
        if np.ndim(value) > np.ndim(target):
            raise ValueError(
                f"Can't assign {np.ndim(value)}-D array to {np.ndim(target)}-D self: the index"
                f" {item!r} selects {np.shape(target)}"
            )
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
        """The transpose of a matrix, which numba-cuda makes by a kernel: a copy, not a view."""
        if axes is not None and tuple(axes) == tuple(range(self.ndim)):
            return self
        if self.ndim != 2:
            raise NotImplementedError("transposing a non-2D DeviceNDArray isn't supported")
        if axes is not None and set(axes) != {0, 1}:
            raise ValueError(f"invalid axes list {axes!r}")
        copy = _allocate(self.shape[::-1], self.dtype, None, "C")
        copy[...] = self.memory.T
        return self._view(copy)

    def split(self, section: int, stream: Any = 0) -> Iterator[DeviceNDArray]:
        """Consecutive parts of `section` elements; the last one may be shorter."""
        if self.ndim != 1:
            raise ValueError(f"split: expected one dimension, got {self.ndim}")
        for begin in range(0, self.size, section):
            yield self._view(self.memory[begin : begin + section])

    def __repr__(self) -> str:
        return f"<DeviceNDArray shape={self.shape} dtype={self.dtype} on the CPU>"


class DeviceRecord:
    """One record of a structured device array, which shares its memory: fields by name.

    Reading a field copies it to the host; a field that is an array, or a record, is a view.
    """

    __cuda_memory__ = True
    __cuda_ndarray__ = True
    __slots__ = ("__weakref__", "memory", "stream")
    shape = strides = ()
    ndim, size = 0, 1

    def __init__(self, record: np.void, stream: Any = 0) -> None:
        self.memory, self.stream = record, stream

    dtype = property(lambda self: self.memory.dtype)
    nbytes = alloc_size = property(lambda self: self.memory.nbytes)

    def copy_to_host(self, ary: np.ndarray | None = None, stream: Any = 0) -> np.ndarray:
        """The record as a new array of no dimensions, or written into `ary`."""
        host = np.array(self.memory)
        if ary is None:
            return host
        _check_alike("copy_to_host", host, ary)
        ary[...] = host
        return ary

    def copy_to_device(self, ary: Any, stream: Any = 0) -> None:
        """Overwrite with `ary`, a record of the same dtype."""
        source = np.asarray(_memory_of(ary))
        _check_alike("copy_to_device", np.array(self.memory), source)
        for name in self.dtype.names:
            self.memory[name] = source[name]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return DeviceNDArray(np.array(self.memory)).__array__(dtype, copy)

    def __getitem__(self, name: str) -> Any:
        found = self.memory[name]
        if isinstance(found, np.void):
            return DeviceRecord(found, self.stream)
        return DeviceNDArray(found, self.stream) if isinstance(found, np.ndarray) else found

    def getitem(self, item: str, stream: Any = 0) -> Any:
        return self[item]

    def __setitem__(self, name: str, value: Any) -> None:
        self.memory[name] = _memory_of(value)

    def setitem(self, key: str, value: Any, stream: Any = 0) -> None:
        self[key] = value

    def __repr__(self) -> str:
        return f"<DeviceRecord dtype={self.dtype} on the CPU>"


class HostInterface(dict):
    """What `__cuda_array_interface__` of an array here is: its address is of the host's memory."""

    @classmethod
    def of(cls, memory: np.ndarray, stream: Any = 0) -> HostInterface:
        number = getattr(stream, "handle", stream)
        return cls(
            shape=memory.shape,
            strides=None if memory.flags.c_contiguous else memory.strides,
            data=(memory.ctypes.data if memory.size else 0, False),
            typestr=memory.dtype.str,
            stream=int(number) or None,
            version=3,
        )


class _Described:
    """Memory of another object, described by an interface, for NumPy to view."""

    def __init__(self, interface: dict, owner: Any) -> None:
        fields = ("shape", "strides", "typestr", "data", "version")
        self.__array_interface__ = {name: interface.get(name) for name in fields}
        self.owner = owner


def _memory_of(value: Any) -> Any:
    return value.memory if isinstance(value, DeviceNDArray | DeviceRecord) else value


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


def _check_contiguous(name: str, array: np.ndarray) -> None:
    core = array[tuple(slice(1) if s == 0 else slice(None) for s in array.strides)]
    if not (core.flags.c_contiguous or core.flags.f_contiguous):
        raise ValueError(
            f"{name}: Array contains non-contiguous buffer and cannot be transferred as a single"
            " memory region. Please ensure contiguous buffer with numpy .ascontiguousarray()"
        )


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
    if isinstance(obj, DeviceRecord):
        return obj
    if isinstance(obj, np.void) and obj.dtype.names:
        return DeviceRecord(obj.copy() if copy else np.empty_like(obj)[()], stream)
    host = np.asarray(obj)
    _check_contiguous("to_device", host)
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
    """An uninitialised array with the shape, dtype and axis order of `array`, and no gaps."""
    flags = array.flags
    if flags.c_contiguous or flags.f_contiguous or array.ndim < 2:
        order = "F" if flags.f_contiguous and not flags.c_contiguous else "C"
        return _allocate(array.shape, array.dtype, None, order)
    strides, step = [0] * array.ndim, array.itemsize
    for axis in sorted(range(array.ndim), key=array.strides.__getitem__):
        strides[axis] = step
        step *= array.shape[axis]
    return _allocate(array.shape, array.dtype, tuple(strides), "C")


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
    return _allocate_like(np.asarray(_memory_of(ary)))


class MappedNDArray(np.ndarray):
    """A NumPy array that counts as a device array as well: kernels work on it in place."""

    __cuda_memory__ = True
    __cuda_ndarray__ = True

    @property
    def __cuda_array_interface__(self) -> HostInterface:
        return HostInterface.of(np.asarray(self))

    def copy_to_host(self, ary: np.ndarray | None = None, stream: Any = 0) -> np.ndarray:
        return DeviceNDArray(np.asarray(self)).copy_to_host(ary, stream)

    def copy_to_device(self, ary: Any, stream: Any = 0) -> None:
        DeviceNDArray(np.asarray(self)).copy_to_device(ary, stream)


class ManagedNDArray(MappedNDArray):
    """As `MappedNDArray`: memory that host and device share."""


def mapped_array(
    shape: Any,
    dtype: Any = np.float64,
    strides: Any = None,
    order: str = "C",
    stream: Any = 0,
    portable: bool = False,
    wc: bool = False,
) -> np.ndarray:
    """A host array that is device memory, too."""
    return _allocate(shape, dtype, strides, order).view(MappedNDArray)


def mapped_array_like(
    ary: Any, stream: Any = 0, portable: bool = False, wc: bool = False
) -> np.ndarray:
    return _allocate_like(_memory_of(ary)).view(MappedNDArray)


def managed_array(
    shape: Any,
    dtype: Any = np.float64,
    strides: Any = None,
    order: str = "C",
    stream: Any = 0,
    attach_global: bool = True,
) -> np.ndarray:
    """A host array that is device memory, too."""
    return _allocate(shape, dtype, strides, order).view(ManagedNDArray)


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
    """A device array over the memory of an array of the CPU that says it is one of a device."""
    if isinstance(obj, DeviceNDArray):
        return obj
    if isinstance(obj, MappedNDArray):
        return DeviceNDArray(np.asarray(obj))
    if hasattr(obj, "__host_memory__"):
        return DeviceNDArray(obj.__host_memory__)
    interface = getattr(obj, "__cuda_array_interface__", None)
    if isinstance(interface, HostInterface) or (interface and interface.get("mask") is not None):
        return from_cuda_array_interface(interface, obj)
    if hasattr(obj, "__cuda_array_interface__"):
        raise CudaAPIError(
            f"as_cuda_array: {type(obj).__name__} lives on a GPU, and kernels here run on the CPU"
        )
    raise TypeError(f"as_cuda_array: {type(obj).__name__} is no device array; use to_device")


def memory_of(arg: Any) -> np.ndarray:
    """The memory of a device array; what else there is as an array."""
    return as_cuda_array(arg).memory if is_cuda_array(arg) else np.asarray(arg)


def from_cuda_array_interface(desc: Any, owner: Any = None, sync: bool = True) -> DeviceNDArray:
    """A device array over the memory that an interface describes; `owner` keeps it alive.

    The address is of this machine's memory, as that of `cuda.to_device(...)` is here.
    """
    if desc.get("mask") is not None:
        raise NotImplementedError("Masked arrays are not supported")
    return DeviceNDArray(np.asarray(_Described(desc, owner)), desc.get("stream") or 0)


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
    if isinstance(arg, DeviceNDArray | DeviceRecord):
        return arg.memory
    if isinstance(arg, _ArgumentHint):
        memory = kernel_argument(arg.value)
        return memory.copy(order="K") if isinstance(arg, In) else memory
    return getattr(arg, "__host_memory__", arg)  # kernels.cupy's arrays
