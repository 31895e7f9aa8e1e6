"""Page-locked host memory, which a GPU reads while the program goes on, and copies out of it.

A copy runs in a stream of its own, beside the kernels of the current one, which then waits
for it: later kernels read the copy. Two more things are kept in order: pinned
memory stays until it has been read, and memory of a copy that nobody holds any more is given to the
next one after the kernels that were launched until then.
"""

from __future__ import annotations

import ctypes
import threading
import weakref
from typing import Any

import numpy as np

from minigrad.backends import device_module


class _Side(threading.local):
    """streams: one per device, of this thread; reading: copies that may not have ended, as events
    and the arrays that they read."""

    def __init__(self) -> None:
        self.streams: dict[int, Any] = {}
        self.reading: list[tuple[Any, np.ndarray]] = []


_side = _Side()


def is_pinned(array: Any) -> bool:
    """Whether an array lies in memory that `pin` made."""
    root = array
    while isinstance(getattr(root, "base", None), np.ndarray):
        root = root.base
    return isinstance(root, np.ndarray) and hasattr(root.base, "pinned")


def pin(array: np.ndarray) -> np.ndarray:
    """A copy of an array in page-locked memory (itself if it is there)."""
    if is_pinned(array):
        return array
    if not array.nbytes:
        return array.copy()
    pointer = device_module("cuda").cuda.alloc_pinned_memory(array.nbytes)
    memory = (ctypes.c_ubyte * array.nbytes).from_address(pointer.ptr)
    memory.pinned = pointer  # type: ignore[attr-defined] # lives as long as arrays on it
    copy = np.ndarray(array.shape, array.dtype, memory)  # type: ignore[arg-type]
    copy[...] = array
    return copy


def to_gpu(array: np.ndarray) -> Any:
    """A pinned, contiguous array on the current GPU, copied while the program goes on."""
    cupy = device_module("cuda")
    number = cupy.cuda.runtime.getDevice()
    if number not in _side.streams:
        _side.streams[number] = cupy.cuda.Stream(non_blocking=True)
    stream, current = _side.streams[number], cupy.cuda.get_current_stream()
    with stream:  # whose pool gives the memory
        result = cupy.empty(array.shape, array.dtype)
    result.data.copy_from_host_async(array.ctypes.data, array.nbytes, stream)
    done = cupy.cuda.Event(disable_timing=True)
    done.record(stream)
    current.wait_event(done)
    _side.reading = [entry for entry in _side.reading if not entry[0].done]
    _side.reading.append((done, array))
    weakref.finalize(result, _wait_for_readers, cupy, number, stream).atexit = False
    return result


def _wait_for_readers(cupy: Any, number: int, stream: Any) -> None:
    """Before the memory of a copy can be another's: its stream waits for the kernels so far."""
    with cupy.cuda.Device(number):
        used = cupy.cuda.Event(disable_timing=True)
        used.record(cupy.cuda.get_current_stream())
        stream.wait_event(used)
