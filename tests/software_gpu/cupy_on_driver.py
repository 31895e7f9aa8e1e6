"""`import cupy` finds kernels.cupy, with its memory, streams and kernels on the driver library.

kernels.cupy computes with NumPy on memory that the host can see. Here that memory is the driver's,
so that kernels reach it and nothing else; before CuPy touches an array, the work of the current
stream is done, as CuPy's own kernels would come after it. Work of other streams is not: a program
that forgot to wait for them sees the memory without it.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import numpy as np

from kernels import cupy
from kernels.cupy import _array, _creation, _memory, _raw
from kernels.cupy._runtime_error import CUDARuntimeError
from kernels.cupy.cuda import device as cuda_device
from kernels.cupy.cuda import driver as cuda_driver
from kernels.cupy.cuda import runtime, stream
from kernels.host import gpu_module, nvrtc

from .runner import Runner

_driver: ctypes.CDLL
_runner: Runner
_lock = threading.RLock()
_MOST_SHARED = 48 * 1024  # bytes of dynamic shared memory; more must be asked for
_ATTRIBUTE_SHARED, _ATTRIBUTE_ORDINAL = 8, 9


def install(library: ctypes.CDLL, runner: Runner) -> None:
    """Make `import cupy` find it."""
    global _driver, _runner
    _driver, _runner = library, runner
    library.cuInit(0)
    cupy.__name__ = "cupy"
    cupy.lib = SimpleNamespace(stride_tricks=SimpleNamespace(as_strided=_as_strided))
    for name, module in list(sys.modules.items()):
        if name == "kernels.cupy" or name.startswith("kernels.cupy."):
            sys.modules[name.replace("kernels.cupy", "cupy", 1)] = module
    _memory.set_place(_placed)
    _memory.check_device = lambda device_id: None  # not the only one
    _array.ndarray.__module__ = "cupy"
    del _array.ndarray.__host_memory__  # the CPU's compilers must not take these arrays
    _hold_back(_array.ndarray)
    _creation.from_dlpack = cupy.from_dlpack = _from_dlpack
    for name in ("empty", "empty_like"):
        setattr(_creation, name, _poisoned(getattr(_creation, name)))
        setattr(cupy, name, getattr(_creation, name))
    _raw.compile_module, _raw.load_module = _SourceModule, _Module
    target = gpu_module._target
    gpu_module._target = lambda *asked: target(*asked).replace("sm_", "compute_")
    for module in (cupy.cuda, stream, runtime, cuda_device):
        _replace(module)
    stream.Stream.null = Stream(null=True)
    cupy.cuda.alloc_pinned_memory = _PinnedMemory
    cupy.cuda.MemoryHook = MemoryHook
    _memory.MemoryPool.take = _told(_memory.MemoryPool.take)
    _memory.MemoryPointer.copy_from_host_async = _copy_from_host_async


def call(name: str, *args: Any) -> None:
    """A function of the driver, in the context of the current device."""
    if not _current.ready:
        _use(0)
    status = getattr(_driver, name)(*args)
    _raise_interrupt()
    if status:
        text = ctypes.c_char_p()
        _driver.cuGetErrorName(status, ctypes.byref(text))
        raise cuda_driver.CUDADriverError(f"{name}: {(text.value or b'?').decode()}")


def _raise_interrupt() -> None:
    """Ctrl-C that a kernel was ended by; what it had begun is forgotten."""
    if _runner.interrupted:
        _runner.interrupted = False
        for device in range(getDeviceCount()):
            _driver.software_gpu_forget_fault(device)
        raise KeyboardInterrupt


def handle(name: str, *args: Any) -> int:
    """What a function of the driver writes through its first argument."""
    made = ctypes.c_void_p()
    call(name, ctypes.byref(made), *args)
    return made.value or 0


# ---- devices


class _Current(threading.local):
    ready = False  # whether the thread has a context
    device = 0


_current = _Current()


def _use(number: int) -> None:
    """Make a device the current one of this thread."""
    _current.ready = True
    if not 0 <= number < getDeviceCount():
        raise CUDARuntimeError(101, f"device {number} does not exist")
    call("cuCtxSetCurrent", handle("cuDevicePrimaryCtxRetain", number))
    _current.device = number


def getDeviceCount() -> int:
    count = ctypes.c_int()
    _driver.cuDeviceGetCount(ctypes.byref(count))
    return count.value


def getDevice() -> int:
    return _current.device


def setDevice(device: int) -> None:
    _use(device)


def get_device_id() -> int:
    return _current.device


def memGetInfo() -> tuple[int, int]:
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    call("cuMemGetInfo", ctypes.byref(free), ctypes.byref(total))
    return free.value, total.value


def deviceSynchronize() -> None:
    call("cuCtxSynchronize")


class Device(cuda_device.Device):
    """A device by its number: the current one unless given."""

    def __init__(self, device: Any = None) -> None:
        self.id = _current.device if device is None else int(device)
        self._before: list[int] = []

    def __enter__(self) -> Device:
        self._before.append(_current.device)
        _use(self.id)
        return self

    def __exit__(self, *error: object) -> None:
        _use(self._before.pop())

    def use(self) -> Device:
        _use(self.id)
        return self

    def synchronize(self) -> None:
        with self:
            deviceSynchronize()

    @property
    def compute_capability(self) -> str:
        major, minor = ctypes.c_int(), ctypes.c_int()
        _driver.cuDeviceComputeCapability(ctypes.byref(major), ctypes.byref(minor), self.id)
        return f"{major.value}{minor.value}"


# ---- memory


def _placed(array: np.ndarray) -> np.ndarray:
    """A fresh array, moved into memory of the current device; one of nothing has a place there."""
    size = max(array.nbytes, 1)
    try:
        at = handle("cuMemAlloc", size)
    except cuda_driver.CUDADriverError:
        used = _memory.pool.used_bytes() if _memory.pool else 0
        raise _memory.OutOfMemoryError(array.nbytes, used) from None
    memory = (ctypes.c_ubyte * size).from_address(at)
    weakref.finalize(memory, _freed, at, _current.device).atexit = False
    order = "F" if array.flags.f_contiguous and not array.flags.c_contiguous else "C"
    there = np.ndarray(array.shape, array.dtype, memory, order=order)
    there[...] = array
    return there


class MemoryHook:
    """Told of each allocation while it is entered."""

    entered: ClassVar[list[MemoryHook]] = []

    def __enter__(self) -> MemoryHook:
        self.entered.append(self)
        return self

    def __exit__(self, *error: object) -> None:
        self.entered.remove(self)

    def malloc_postprocess(self, **allocation: int) -> None:
        """After an allocation of `size` bytes on the GPU `device_id`."""


def _told(take: Callable) -> Callable:
    """`take` of a pool, of which hooks are told."""

    def taken(self: Any, size: int) -> None:
        take(self, size)
        for hook in MemoryHook.entered:
            hook.malloc_postprocess(device_id=_current.device, size=size, mem_size=size)

    return taken


def _from_dlpack(array: Any, device: Any = None, copy: bool | None = None) -> _array.ndarray:
    """As `kernels.cupy.from_dlpack`, for memory of the driver."""
    kind, _ = array.__dlpack_device__()
    if kind not in (2, 13):  # kDLCUDA, kDLCUDAManaged
        raise BufferError(f"from_dlpack: the array lies on a device of type {kind}, not on a GPU")
    return plain_from_dlpack(_creation._Peer(array.__dlpack__()), device, copy)


plain_from_dlpack = _creation.from_dlpack


def _poisoned(make: Callable) -> Callable:
    """`make`, but its arrays hold NaN, or -1: what nothing has written is never 0 by chance."""

    def made(*args: Any, **options: Any) -> Any:
        array = make(*args, **options)
        ctypes.memset(array.data.ptr, 0xFF, array.nbytes)
        return array

    return made


def _freed(at: int, device: int) -> None:
    """Give memory back when the work so far of the current stream is done."""
    current = get_current_stream()
    with _lock, Device(device):
        _driver.cuMemFreeAsync(at, None if current.is_capturing() else current.ptr)


def _hold_back(ndarray: type) -> None:
    """Reading `_array` does the work of the current stream first. What only describes an array does
    not, nor does its address, which launches ask for. CuPy computes on the current device only."""
    slot = ndarray._array

    def finished(self: Any) -> np.ndarray:
        if (there := self.data.device_id) != _current.device:
            raise ValueError(
                "Array device must be same as the current device: array device ="
                f" {there} while current = {_current.device}."
            )
        current = get_current_stream()
        if current.is_capturing():  # CuPy would launch a kernel of its own, which is captured
            raise CUDARuntimeError(801, "the software GPU captures no kernels of CuPy")
        _driver.software_gpu_finish_stream(current.ptr)
        _raise_interrupt()
        return slot.__get__(self)

    ndarray._array = property(finished, slot.__set__)
    for name in ("ndim", "size", "itemsize", "nbytes", "strides", "dtype"):
        setattr(ndarray, name, property(lambda self, name=name: getattr(slot.__get__(self), name)))

    def argument(name: str, index: int, value: Any) -> Any:
        """A launch comes after the work that waits: it needs the address only."""
        if not isinstance(value, ndarray):
            return plain_argument(name, index, value)
        array = slot.__get__(value)
        return array.reshape(-1) if array.flags.c_contiguous else _raw._span(array)

    plain_argument, _raw.argument = _raw.argument, argument
    ndarray.__len__ = lambda self: len(slot.__get__(self))
    shape = property(lambda self: slot.__get__(self).shape, ndarray.shape.fset)
    ndarray.shape = shape
    ndarray.__dlpack_device__ = lambda self: (2, self.data.device_id)

    def data(self: Any) -> Any:
        owner = slot.__get__(self if self.base is None else self.base)
        begin = owner.__array_interface__["data"][0]
        memory = _memory.UnownedMemory(begin, owner.nbytes, self)
        memory.device_id = _device_of(begin)
        at = slot.__get__(self).__array_interface__["data"][0]
        return _memory.MemoryPointer(memory, at - begin)

    def interface(self: Any) -> dict[str, Any]:
        array = slot.__get__(self)
        described = {**array.__array_interface__, "version": 3, "stream": 1}
        described["data"] = described["data"][0], False
        described["strides"] = None if array.flags.c_contiguous else array.strides
        return described

    def flags(self: Any) -> Any:
        found = slot.__get__(self).flags
        return _array.Flags(found.c_contiguous, found.f_contiguous, self.base is None)

    def delete(self: Any) -> None:
        pool = getattr(self, "_pool", None)
        if pool is not None:
            pool.give((slot.__get__(self).nbytes + 511) & -512)  # no names: the interpreter may end

    def waiting(method: Callable) -> Callable:
        def call_waiting(self: Any, *args: Any, **options: Any) -> Any:
            with self.device:
                call("cuStreamSynchronize", get_current_stream().ptr)
                return method(self, *args, **options)

        return call_waiting

    def in_place(method: Callable) -> Callable:
        def call_there(self: Any, *args: Any, **options: Any) -> Any:
            with self.device:
                return method(self, *args, **options)

        return call_there

    for name in "transpose swapaxes squeeze diagonal".split():  # views, on any device
        setattr(ndarray, name, in_place(getattr(ndarray, name)))
    ndarray.T = property(lambda self: self.transpose())
    for name in "get item tolist __bool__ __int__ __float__ __index__".split():
        if hasattr(ndarray, name):  # what copies to the host: the driver counts these waits
            setattr(ndarray, name, waiting(getattr(ndarray, name)))

    def copy(self: Any, order: str = "C") -> Any:
        if self.data.device_id == _current.device:
            return plain_copy(self, order)
        with self.device:
            call("cuStreamSynchronize", get_current_stream().ptr)
            array = slot.__get__(self).copy(order)
        return _creation.array(array)

    plain_copy, ndarray.copy = ndarray.copy, copy
    ndarray.__del__ = delete
    ndarray.data, ndarray.flags = property(data), property(flags)
    ndarray.__cuda_array_interface__ = property(interface)
    ndarray.device = property(lambda self: Device(self.data.device_id))


def _as_strided(x: Any, shape: tuple | None = None, strides: tuple | None = None) -> Any:
    """A view of the memory from the first element of x on."""
    shape, strides = shape or x.shape, strides or x.strides
    return _array.view(x, np.lib.stride_tricks.as_strided(x._array, shape, strides))


def _device_of(at: int) -> int:
    if at in _PinnedMemory.devices:
        return _PinnedMemory.devices[at]
    number = ctypes.c_int()
    _driver.cuPointerGetAttribute(ctypes.byref(number), _ATTRIBUTE_ORDINAL, at)
    return number.value


class _PinnedMemory:
    """Memory of the host that the driver knows. Freed memory is the next one's of its size, at
    once, as CuPy's pool gives it: a copy that still reads it reads something else."""

    _free: ClassVar[dict[int, list[int]]] = {}
    devices: ClassVar[dict[int, int]] = {}  # of each address: the current one when it was asked for

    def __init__(self, size: int) -> None:
        self.size, kept = size, self._free.setdefault(size, [])
        self.ptr = kept.pop() if kept else handle("cuMemHostAlloc", size, 0)
        self.devices[self.ptr] = _current.device
        self.mem = self

    def __del__(self) -> None:
        self._free[self.size].append(self.ptr)


def _copy_from_host_async(self: Any, mem: int, size: int, stream: Any = None) -> None:
    queue = (stream or get_current_stream()).ptr
    call("cuMemcpyHtoDAsync", *map(ctypes.c_void_p, (self.ptr, mem, size, queue)))


# ---- streams and events


class Event:
    """A point in a stream's work."""

    def __init__(
        self, block: bool = False, disable_timing: bool = False, interprocess: bool = False
    ) -> None:
        self.ptr = handle("cuEventCreate", 2 * disable_timing)

    @property
    def done(self) -> bool:
        return _driver.cuEventQuery(self.ptr) == 0

    def record(self, stream: Any = None) -> None:
        call("cuEventRecord", self.ptr, (stream or get_current_stream()).ptr)

    def synchronize(self) -> None:
        call("cuEventSynchronize", self.ptr)


def get_elapsed_time(start_event: Event, end_event: Event) -> float:
    """Milliseconds between two recorded events."""
    found = ctypes.c_float()
    call("cuEventElapsedTime", ctypes.byref(found), start_event.ptr, end_event.ptr)
    return found.value


class Stream(stream.Stream):
    """A queue of work of the driver."""

    def __init__(
        self, null: bool = False, non_blocking: bool = False, ptds: bool = False,
        priority: int | None = None,
    ) -> None:  # fmt: skip
        super().__init__(null, non_blocking, ptds, priority)
        self.device_id = _current.device
        if not null:
            self.ptr = handle("cuStreamCreate", int(non_blocking))

    @property
    def done(self) -> bool:
        return _driver.cuStreamQuery(self.ptr) == 0

    def is_capturing(self) -> bool:
        state = ctypes.c_int()
        _driver.cuStreamIsCapturing(self.ptr, ctypes.byref(state))
        return state.value != 0

    def synchronize(self) -> None:
        call("cuStreamSynchronize", self.ptr)

    def record(self, event: Event | None = None) -> Event:
        event = event or Event()
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        call("cuStreamWaitEvent", self.ptr, event.ptr, 0)


def get_current_stream(device_id: int | None = None) -> Any:
    """Each device has a current stream of its own: the null stream where none was entered."""
    found = plain_current_stream()
    return found if found.null or found.device_id == _current.device else stream.Stream.null


plain_current_stream = stream.get_current_stream


def _replace(module: ModuleType) -> None:
    """This file's classes and functions in the place of those of kernels.cupy."""
    for mine in (Device, Event, Stream, getDeviceCount, getDevice, setDevice, get_device_id,
                 deviceSynchronize, get_current_stream, get_elapsed_time, memGetInfo):  # fmt: skip
        if hasattr(module, mine.__name__):
            setattr(module, mine.__name__, mine)


# ---- CUDA C


class _Module:
    """Kernels and variables of a file of PTX, on each device."""

    def __init__(self, path: str, cooperative: bool) -> None:
        self.path, self.cooperative = path, cooperative
        self._loaded: dict[int, tuple[int, dict[str, str]]] = {}

    def loaded(self) -> tuple[int, dict[str, str]]:
        """The current device's module, and the kernels' names in it."""
        device = _current.device
        if device not in self._loaded:
            ptx, names = self._ptx()
            self._loaded[device] = handle("cuModuleLoadData", ptx), names
        return self._loaded[device]

    def _ptx(self) -> tuple[bytes, dict[str, str]]:
        return Path(self.path).read_bytes(), {}

    def get_function(self, name: str) -> Callable:
        return _Function(self, name)

    def get_global(self, name: str, device: str | None = None) -> np.ndarray:
        """The bytes of a variable."""
        at, size = ctypes.c_uint64(), ctypes.c_size_t()
        module, _ = self.loaded()
        call("cuModuleGetGlobal", ctypes.byref(at), ctypes.byref(size), module, name.encode())
        return np.ctypeslib.as_array((ctypes.c_ubyte * size.value).from_address(at.value))

    def compile(self) -> None:
        self.loaded()


class _SourceModule(_Module):
    """CUDA C, compiled by NVRTC to PTX with the options that CuPy adds."""

    def __init__(self, code: str, options: tuple, names: tuple, cooperative: bool) -> None:
        super().__init__("", cooperative)
        self.code, self.options, self.names = code, options, names

    def _ptx(self) -> tuple[bytes, dict[str, str]]:
        target, names = f"compute_{Device().compute_capability}", list(self.names)
        lowered, _, ptx, _ = nvrtc.translate(self.code, names, target, (*self.options, "-ftz=true"))
        return ptx.encode(), dict(zip(names, lowered))


class _Function:
    """A kernel of a module, found at its first launch on each device."""

    def __init__(self, module: _Module, name: str) -> None:
        self.module, self.name = module, name
        self._found: dict[int, int] = {}

    def compile(self) -> None:
        self._handle()

    @property
    def kernel(self) -> _Function:
        """As CuPy's RawKernel: the kernel of the current device, with the driver's handle."""
        return self

    @property
    def ptr(self) -> int:
        return self._handle()

    def _handle(self) -> int:
        if _current.device not in self._found:
            module, names = self.module.loaded()
            entry = names.get(self.name, self.name).encode()
            self._found[_current.device] = handle("cuModuleGetFunction", module, entry)
        return self._found[_current.device]

    def __call__(self, grid: tuple, block: tuple, args: tuple, shared_mem: int = 0) -> None:
        function = self._handle()
        if shared_mem > _MOST_SHARED:
            call("cuFuncSetAttribute", function, _ATTRIBUTE_SHARED, shared_mem)
        kept = [_parameter(value) for value in args]
        values = (ctypes.c_void_p * len(kept))(*(k.ctypes.data for k in kept))
        sizes = [*grid, 1, 1][:3] + [*block, 1, 1][:3]
        name = "cuLaunchCooperativeKernel" if self.module.cooperative else "cuLaunchKernel"
        rest = () if self.module.cooperative else (None,)
        call(name, function, *sizes, shared_mem, get_current_stream().ptr, values, *rest)


def _parameter(value: Any) -> np.ndarray:
    """The bytes of an argument: the address of an array, a number, a structure."""
    if value is None:
        return np.zeros(1, np.uint64)
    if isinstance(value, np.ndarray) and value.ndim and value.dtype.names is None:
        return np.array([value.__array_interface__["data"][0]], np.uint64)
    return np.asarray(value)
