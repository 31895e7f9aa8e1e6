"""Wrong indices on a GPU: found by a kernel, an error when the host next waits, as in torch.

To know at once, the host would have to wait for the GPU at each index. Instead the kernel that
reads the index, or one before it, replaces wrong numbers, so that none leads outside of memory, and
records the first of them where the host can read it without waiting: in page-locked memory, which a
GPU can write to. `raise_found` reads it. It is called wherever minigrad waits for a GPU, and before
each further check.
With CUDA_LAUNCH_BLOCKING=1 the host waits after each check, and the error comes from the call that
is wrong.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from kernels.support import forks

_KEPT = 4096  # errors of the last checks; so many launches do not wait in a stream
_NOTE = "found on the GPU, after the call: CUDA_LAUNCH_BLOCKING=1 raises it there"


class _Here(threading.local):
    recording = False


_here = _Here()


@contextmanager
def recording() -> Iterator[None]:
    """The checks of this thread may be repeated later with the numbers that they have now."""
    _here.recording = True
    try:
        yield
    finally:
        _here.recording = False


class _Device:
    """What the kernels of a GPU record: (number of the check, wrong number), 0 if there is none."""

    def __init__(self, module: Any, device: Any) -> None:
        self.device, self.lock, self.number = device, forks.lock(), 0
        self.errors: dict[int, Callable[[int], Exception]] = {}
        self.lasting: dict[int, Callable[[int], Exception]] = {}  # of launches that are repeated
        self.seen = np.zeros(2, np.int64)
        if not hasattr(module, "cuda"):  # NumPy, where the lab looks what a GPU would be given
            self.record = module.zeros(2, np.int64)
            return
        with device:  # whichever is the current one
            memory = module.cuda.alloc_pinned_memory(16)
        self.seen = np.ctypeslib.as_array((ctypes.c_int64 * 2).from_address(memory.ptr))
        self.seen[:] = 0
        owned = module.cuda.UnownedMemory(memory.ptr, 16, memory, device.id)
        self.record = module.ndarray((2,), np.int64, module.cuda.MemoryPointer(owned, 0))

    def remember(self, error: Callable[[int], Exception]) -> int:
        """A number for a check whose error is `error(wrong)`."""
        with self.lock:
            self.number += 1
            (self.lasting if _here.recording else self.errors)[self.number] = error
            self.errors.pop(self.number - _KEPT, None)
            return self.number

    def raise_found(self) -> None:
        self.device.synchronize()  # the wrong number is written after that of the check
        number, wrong = self.seen.tolist()
        self.seen[:] = 0
        error = (self.lasting.get(number) or self.errors[number])(wrong)
        error.add_note(_NOTE)
        raise error


_devices: dict[tuple, _Device] = {}


def inside(
    launch: Callable,
    module: Any,
    index: Any,
    low: int,
    high: int,
    error: Callable[[int], Exception],
    ignore: int | None = None,
) -> Any:
    """A copy of an index on a GPU whose numbers from low to -1 count from the end, high, and with
    a number inside in place of those outside of low .. high - 1.

    If there is one, other than `ignore`, `error(wrong)` is raised later. launch: `checked_index` of
    a dialect; module: that of the array, CuPy.
    """
    if not index.size:
        raise_found()
        return index
    with expected(module, index, low, high, error) as (record, number):
        return launch(index, low, high, low if ignore is None else ignore, number, record)


@contextmanager
def expected(
    module: Any, index: Any, low: int, high: int, error: Callable[[int], Exception]
) -> Iterator[tuple[Any, int]]:
    """What a kernel that is launched in the block needs to check an index on a GPU, which is not
    empty: where it records (number of the check, number outside of low .. high - 1), and that
    number of the check. `error(wrong)` is raised later."""
    raise_found()
    if high <= low:
        raise error(int(index.ravel()[0]))
    device = getattr(index, "device", None)
    where = type(index), getattr(device, "id", device)
    if where not in _devices:
        _devices[where] = _Device(module, device)
    found = _devices[where]
    yield found.record, found.remember(error)
    if os.environ.get("CUDA_LAUNCH_BLOCKING") == "1":
        synchronize()


def raise_found() -> None:
    """Raise the error of a wrong index that a GPU has found so far. Waits for nothing."""
    for device in _devices.values():
        if device.seen[0]:
            device.raise_found()


def synchronize() -> None:
    """Wait until the GPUs have done what was launched, and raise the error of a wrong index."""
    for device in _devices.values():
        device.device.synchronize()
    raise_found()
