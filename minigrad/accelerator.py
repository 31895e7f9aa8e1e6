"""`minigrad.accelerator`: the GPU, for programs that don't name a kind of device."""

from __future__ import annotations

from minigrad import cuda
from minigrad._names import namespace
from minigrad.cuda import device_count, is_available, synchronize
from minigrad.cuda import set_device as set_device_index
from minigrad.devices import device

__all__ = [
    "current_accelerator",
    "current_device_index",
    "device_count",
    "is_available",
    "set_device_index",
    "synchronize",
]


def current_accelerator(check_available: bool = False) -> device | None:
    """The kind of accelerator of this machine, or None without one."""
    return device("cuda") if is_available() else None


def current_device_index() -> int:
    """The number of the GPU in use."""
    return cuda.current_device()


__getattr__, __dir__ = namespace(__name__)
