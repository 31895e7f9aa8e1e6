"""Memory pools, pointers and allocators, counted as CuPy counts them.

`place` is where results come to lie in device memory. On a CPU the memory that NumPy allocated is
the device's; a device with memory of its own (a software GPU) sets `place` to what moves a fresh
NumPy array there.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ._runtime_error import check_device

ALIGNMENT = 512  # bytes: the sizes that CuPy's pool hands out are multiples


class OutOfMemoryError(MemoryError):
    """The limit of a pool would be exceeded."""

    def __init__(self, size: int, total: int, limit: int = 0) -> None:
        text = f"Out of memory allocating {size:,} bytes (allocated so far: {total:,} bytes"
        super().__init__(text + (f", limit set to: {limit:,} bytes)." if limit else ")."))


def rounded(size: int) -> int:
    """Bytes that an allocation of `size` takes in a pool."""
    return (size + ALIGNMENT - 1) & -ALIGNMENT


class BaseMemory:
    """A piece of device memory: `ptr`, `size` in bytes, `device_id`."""

    device_id = 0

    def __init__(self, ptr: int, size: int, owner: Any = None) -> None:
        self.ptr, self.size, self._owner = ptr, size, owner

    def __int__(self) -> int:
        return self.ptr


class Memory(BaseMemory):
    """Device memory that is freed with this object."""

    def __init__(self, size: int) -> None:
        buffer = np.empty(size + ALIGNMENT, np.uint8)
        begin = -buffer.ctypes.data % ALIGNMENT
        part = buffer[begin : begin + size]
        super().__init__(buffer.ctypes.data + begin if size else 0, size, part)


class ManagedMemory(Memory):
    """Memory that the host may use too; here all memory is."""

    def prefetch(self, stream: Any, *, device_id: int | None = None) -> None:
        """Nothing moves: there is one memory."""

    def advise(self, advise: int, device: Any) -> None:
        """Advice that the one memory does not need."""


class MemoryAsync(Memory):
    """Memory allocated in the order of a stream."""

    def __init__(self, size: int, stream: Any) -> None:
        super().__init__(size)
        self.stream = stream


class UnownedMemory(BaseMemory):
    """Memory that `owner` keeps alive."""

    def __init__(self, ptr: int, size: int, owner: Any, device_id: int = -1) -> None:
        check_device(max(device_id, 0))
        super().__init__(ptr, size, owner)


class PooledMemory(BaseMemory):
    """Memory that goes back to its pool when it is freed."""

    def __init__(self, memory: BaseMemory, pool: MemoryPool) -> None:
        super().__init__(memory.ptr, memory.size, memory)
        self._pool: MemoryPool | None = pool

    def free(self) -> None:
        """Return the memory to its pool."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.give(self.size)

    def __del__(self) -> None:
        self.free()


class MemoryPointer:
    """A place in a piece of memory: `mem`, `ptr`, and copies from and to it."""

    __slots__ = ("__weakref__", "mem", "ptr")

    def __init__(self, mem: BaseMemory, offset: int) -> None:
        self.mem, self.ptr = mem, mem.ptr + offset

    def __int__(self) -> int:
        return self.ptr

    def __add__(self, offset: int) -> MemoryPointer:
        return MemoryPointer(self.mem, self.ptr - self.mem.ptr + offset)

    __radd__ = __iadd__ = __add__

    def __sub__(self, offset: int) -> MemoryPointer:
        return self + -offset

    __isub__ = __sub__

    @property
    def device_id(self) -> int:
        return self.mem.device_id

    def _copy(self, target: int, source: int, size: int) -> None:
        if size:
            ctypes.memmove(target, source, size)

    def copy_from_device(self, src: MemoryPointer, size: int) -> None:
        """Copy `size` bytes from other device memory."""
        self._copy(self.ptr, src.ptr, size)

    def copy_from_device_async(self, src: MemoryPointer, size: int, stream: Any = None) -> None:
        self.copy_from_device(src, size)

    def copy_from_host(self, mem: Any, size: int) -> None:
        """Copy `size` bytes from a host pointer (an integer or ctypes.c_void_p)."""
        self._copy(self.ptr, _address(mem), size)

    def copy_from_host_async(self, mem: Any, size: int, stream: Any = None) -> None:
        self.copy_from_host(mem, size)

    def copy_from(self, mem: Any, size: int) -> None:
        """Copy `size` bytes from a device or a host pointer."""
        self._copy(self.ptr, _address(mem), size)

    def copy_from_async(self, mem: Any, size: int, stream: Any = None) -> None:
        self.copy_from(mem, size)

    def copy_to_host(self, mem: Any, size: int) -> None:
        """Copy `size` bytes to a host pointer."""
        self._copy(_address(mem), self.ptr, size)

    def copy_to_host_async(self, mem: Any, size: int, stream: Any = None) -> None:
        self.copy_to_host(mem, size)

    def memset(self, value: int, size: int) -> None:
        """Fill `size` bytes with a byte."""
        ctypes.memset(self.ptr, value, size)

    def memset_async(self, value: int, size: int, stream: Any = None) -> None:
        self.memset(value, size)


def _address(pointer: Any) -> int:
    if isinstance(pointer, MemoryPointer):
        return pointer.ptr
    if isinstance(pointer, ctypes.c_void_p):
        return pointer.value or 0
    return int(pointer)


class MemoryPool:
    """A pool of device memory: counts what arrays use, and what it keeps for the next ones."""

    def __init__(self, allocator: Callable[[int], MemoryPointer] | None = None) -> None:
        self._allocate = allocator
        self._used = self._kept = self._limit = 0
        self._blocks: dict[int, int] = {}  # sizes of freed blocks, and how many there are

    def take(self, size: int) -> None:
        """Count an allocation of `size` bytes, a multiple of 512."""
        blocks = self._blocks.get(size)
        if blocks:
            self._blocks[size] = blocks - 1
            self._kept -= size
        elif self._limit and self._used + self._kept + size > self._limit:
            self.free_all_blocks()
            if self._used + size > self._limit:
                raise OutOfMemoryError(size, self._used, self._limit)
        self._used += size

    def give(self, size: int) -> None:
        """Count a block that is freed: the pool keeps it."""
        self._used -= size
        self._kept += size
        self._blocks[size] = self._blocks.get(size, 0) + 1

    def malloc(self, size: int) -> MemoryPointer:
        """Allocate `size` bytes."""
        size = rounded(size)
        self.take(size)
        memory = self._allocate(size).mem if self._allocate else Memory(size)
        return MemoryPointer(PooledMemory(memory, self), 0)

    def used_bytes(self) -> int:
        """Bytes in use."""
        return self._used

    def free_bytes(self) -> int:
        """Bytes that the pool keeps for later allocations."""
        return self._kept

    def total_bytes(self) -> int:
        return self._used + self._kept

    def n_free_blocks(self) -> int:
        return sum(self._blocks.values())

    def free_all_blocks(self, stream: Any = None) -> None:
        """Forget the blocks that nothing uses."""
        self._blocks.clear()
        self._kept = 0

    def free_all_free(self) -> None:
        self.free_all_blocks()

    def get_limit(self) -> int:
        """The limit in bytes; 0 is none."""
        return self._limit

    def set_limit(self, size: int | None = None, fraction: float | None = None) -> None:
        """Set the limit to `size` bytes, or to a fraction of the memory there is."""
        if (size is None) == (fraction is None) and not (size is None and fraction is None):
            raise ValueError("size and fraction cannot be specified at one time")
        if fraction is not None:
            if not 0 <= fraction <= 1:
                raise ValueError(f"memory limit fraction out of range: {fraction}")
            size = int(fraction * total_memory()[1])
        size = size or 0
        if size < 0:
            raise ValueError(f"memory limit size out of range: {size}")
        self._limit = size


class MemoryAsyncPool(MemoryPool):
    """A pool in the order of a stream: work here is done when it is submitted."""

    def __init__(self, pool_handles: Any = "current") -> None:
        super().__init__()


class PythonFunctionAllocator:
    """An allocator of two functions: malloc(size, device_id) and free(pointer, device_id)."""

    def __init__(self, malloc_func: Callable, free_func: Callable) -> None:
        self._malloc, self._free = malloc_func, free_func

    def malloc(self, size: int) -> MemoryPointer:
        return MemoryPointer(_Foreign(self._malloc(size, 0), size, self._free), 0)


class _Foreign(BaseMemory):
    def __init__(self, ptr: int, size: int, free: Callable) -> None:
        super().__init__(ptr, size, free)

    def __del__(self) -> None:
        self._owner(self.ptr, 0)


class PinnedMemory(Memory):
    """Host memory; here there is no transfer that locked pages would speed up."""


class PinnedMemoryPointer:
    """A place in host memory, a buffer for `np.frombuffer(pointer, dtype, count)`."""

    mem: PinnedMemory
    ptr: int

    def __new__(cls, mem: PinnedMemory, offset: int) -> PinnedMemoryPointer:
        # An array of ctypes' has the protocol; classes in Python may have it from Python 3.12 on.
        kind: Any = type(cls.__name__, (cls, ctypes.c_ubyte * (mem.size - offset)), {})
        pointer = kind.from_address(mem.ptr + offset)
        pointer.mem, pointer.ptr = mem, mem.ptr + offset
        return pointer

    def __init__(self, mem: PinnedMemory, offset: int) -> None:
        pass

    def __int__(self) -> int:
        return self.ptr

    def __add__(self, offset: int) -> PinnedMemoryPointer:
        return PinnedMemoryPointer(self.mem, self.ptr - self.mem.ptr + offset)

    __radd__ = __iadd__ = __add__

    def __sub__(self, offset: int) -> PinnedMemoryPointer:
        return self + -offset

    __isub__ = __sub__

    def size(self) -> int:
        """The bytes from here to the end of the memory."""
        return self.mem.size - (self.ptr - self.mem.ptr)


class PinnedMemoryPool:
    """A pool of host memory."""

    def malloc(self, size: int) -> PinnedMemoryPointer:
        return PinnedMemoryPointer(PinnedMemory(size), 0)

    def free_all_blocks(self) -> None:
        """Nothing is kept."""

    def n_free_blocks(self) -> int:
        return 0


# --- what is in use


class _Current(threading.local):
    allocator: Any = None  # inside `using_allocator`


default_pool = MemoryPool()
default_pinned_pool = PinnedMemoryPool()
#: the pool that counts new arrays (None: nothing does)
pool: MemoryPool | None = default_pool
#: moves a fresh NumPy array into device memory; None: NumPy's memory is the device's
place: Callable[[np.ndarray], np.ndarray] | None = None
_allocator: Callable[[int], MemoryPointer] = default_pool.malloc


def set_allocator(allocator: Callable[[int], MemoryPointer] | None = None) -> None:
    """Let `allocator` provide the memory of arrays; None is memory without a pool."""
    global pool, place, _allocator
    _allocator = allocator or malloc
    owner = getattr(allocator, "__self__", None)
    plain = allocator is None or isinstance(owner, MemoryPool)
    pool = owner if isinstance(owner, MemoryPool) else None
    place = _device_place if plain else _placed_by_allocator


_device_place: Callable[[np.ndarray], np.ndarray] | None = None


def set_place(move: Callable[[np.ndarray], np.ndarray] | None) -> None:
    """Set what moves fresh arrays into device memory (see `place`)."""
    global place, _device_place
    place = _device_place = move


def _placed_by_allocator(array: np.ndarray) -> np.ndarray:
    pointer = _allocator(max(array.nbytes, 1))
    target = array_at(pointer, array.shape, array.dtype, array.strides)
    target[...] = array
    return target


def array_at(
    pointer: Any, shape: Any, dtype: Any, strides: Any = None, size: int = 0
) -> np.ndarray:
    """A NumPy array over the memory of a pointer, which it keeps alive."""
    size = size or pointer.mem.size - (pointer.ptr - pointer.mem.ptr)
    raw = (ctypes.c_ubyte * size).from_address(pointer.ptr) if size else bytearray(1)
    if size:
        raw._owner = pointer
    return np.ndarray(shape, dtype, raw, 0, strides)


def get_allocator() -> Callable[[int], MemoryPointer]:
    return _allocator


@contextlib.contextmanager
def using_allocator(allocator: Callable[[int], MemoryPointer] | None = None) -> Iterator[None]:
    """Use an allocator for the arrays made in a block."""
    before = _allocator
    set_allocator(allocator)
    try:
        yield
    finally:
        set_allocator(before)


def alloc(size: int) -> MemoryPointer:
    """Memory from the current allocator."""
    return _allocator(size)


def malloc(size: int) -> MemoryPointer:
    return MemoryPointer(Memory(size), 0)


def malloc_managed(size: int) -> MemoryPointer:
    return MemoryPointer(ManagedMemory(size), 0)


def malloc_async(size: int) -> MemoryPointer:
    return MemoryPointer(MemoryAsync(size, None), 0)


def alloc_pinned_memory(size: int) -> PinnedMemoryPointer:
    return default_pinned_pool.malloc(size)


def set_pinned_memory_allocator(allocator: Callable | None = None) -> None:
    """Host memory is never locked here, whoever allocates it."""


def total_memory() -> tuple[int, int]:
    """Free and total bytes of this machine's memory."""
    from kernels.simt.device.context import current_context

    return tuple(current_context().get_memory_info())
