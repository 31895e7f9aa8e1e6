"""Devices, streams, events and memory, by the names of `cupy.cuda`."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from typing import Any

from .. import _memory as memory
from .._absent import library, unknown
from .._memory import (
    BaseMemory,
    ManagedMemory,
    Memory,
    MemoryAsync,
    MemoryAsyncPool,
    MemoryPointer,
    MemoryPool,
    PinnedMemory,
    PinnedMemoryPointer,
    PinnedMemoryPool,
    PythonFunctionAllocator,
    UnownedMemory,
    alloc,
    alloc_pinned_memory,
    get_allocator,
    malloc_async,
    malloc_managed,
    set_allocator,
    set_pinned_memory_allocator,
    using_allocator,
)
from . import compiler, device, driver, runtime, stream
from .device import Device, get_cublas_handle, get_device_id
from .stream import Event, ExternalStream, Stream, get_current_stream, get_elapsed_time

__all__ = [
    "BaseMemory", "Device", "Event", "ExternalStream", "ManagedMemory", "Memory", "MemoryAsync",
    "MemoryAsyncPool", "MemoryPointer", "MemoryPool", "PinnedMemory", "PinnedMemoryPointer",
    "PinnedMemoryPool", "PythonFunctionAllocator", "Stream", "UnownedMemory", "alloc",
    "alloc_pinned_memory", "compiler", "device", "driver", "get_allocator", "get_cublas_handle",
    "get_cuda_path", "get_current_stream", "get_device_id", "get_elapsed_time",
    "get_local_runtime_version", "get_nvcc_path", "is_available", "malloc_async", "malloc_managed",
    "memory", "nvtx", "pinned_memory", "profile", "profiler", "runtime", "set_allocator",
    "set_pinned_memory_allocator", "stream", "using_allocator",
]  # fmt: skip

pinned_memory = memory
nccl_available = thrust_available = cub_available = False


def is_available() -> bool:
    """True: kernels run, on the CPU."""
    return True


def get_local_runtime_version() -> int:
    return runtime.runtimeGetVersion()


def get_cuda_path() -> None:
    """None: no CUDA toolkit is used."""


def get_nvcc_path() -> None:
    """None: no CUDA toolkit is used."""


get_hipcc_path = get_rocm_path = get_nvcc_path


@contextlib.contextmanager
def profile() -> Iterator[None]:
    """There is no CUDA profiler to start and to stop."""
    yield


#: what needs a GPU's libraries, and what to do instead
_ABSENT = {
    "Graph": "graphs cannot be captured on the CPU; run the work itself",
    "Module": "machine code for a GPU cannot be loaded; use cupy.RawModule(code=...)",
    "Function": "machine code for a GPU cannot be loaded; use cupy.RawModule(code=...)",
    "function": "machine code for a GPU cannot be loaded; use cupy.RawModule(code=...)",
    "CFunctionAllocator": "an allocator in C frees a GPU's memory; use PythonFunctionAllocator",
    "MemoryHook": "allocations are not reported; ask the pool: used_bytes(), total_bytes()",
}


def __getattr__(name: str) -> Any:
    if name in ("nvtx", "profiler", "nvrtc"):
        return importlib.import_module(f"{__name__}.{name}")
    if name in _ABSENT:
        raise AttributeError(f"cupy.cuda.{name}: {_ABSENT[name]}")
    if found := library("cupy.cuda", name):
        return found
    raise unknown("cupy.cuda", name, globals())
