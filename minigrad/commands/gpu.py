"""Queries the NVIDIA driver about the GPUs of this machine, through its C library.

It needs no Python package, so `doctor` can distinguish "no driver" from "a driver, but no
numba-cuda". Sources: the reference manuals of the CUDA Driver API and of NVML.
"""

from __future__ import annotations

import ctypes
import sys
from dataclasses import dataclass

COMPUTE_CAPABILITY_MAJOR, COMPUTE_CAPABILITY_MINOR, MULTIPROCESSORS = 75, 76, 16


@dataclass
class Gpu:
    """One device: its name, memory in bytes, compute capability and multiprocessors."""

    name: str
    memory: int
    capability: tuple[int, int]
    multiprocessors: int


@dataclass
class Driver:
    """The result of `query`: the newest supported CUDA version, the GPUs, or why there are none."""

    cuda_version: str | None
    gpus: list[Gpu]
    problem: str | None


def library_name() -> str:
    """The file name of the driver's library on this system."""
    return "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"


def query(library=None) -> Driver:
    """Query the driver; tests pass a replacement for the `library`."""
    if library is None:
        try:
            library = ctypes.CDLL(library_name())
        except OSError:
            return Driver(None, [], f"no NVIDIA driver ({library_name()} not found)")
    status = library.cuInit(0)
    if status:
        return Driver(None, [], f"the NVIDIA driver is there but cuInit failed (error {status})")
    version = _integer(library.cuDriverGetVersion)
    count = _integer(library.cuDeviceGetCount)
    gpus = [_gpu(library, ordinal) for ordinal in range(count)]
    problem = None if gpus else "the NVIDIA driver is there but sees no GPU"
    return Driver(f"{version // 1000}.{version % 1000 // 10}", gpus, problem)


def driver_version(library=None) -> str | None:
    """The driver's own version, such as "580.65.06", from NVML; None without NVML."""
    if library is None:
        try:
            library = ctypes.CDLL("nvml.dll" if sys.platform == "win32" else "libnvidia-ml.so.1")
        except OSError:
            return None
    text = ctypes.create_string_buffer(80)
    if library.nvmlInit_v2() or library.nvmlSystemGetDriverVersion(text, len(text)):
        return None
    return text.value.decode()


def _integer(function, *args) -> int:
    """The int that a driver function writes through its first argument; 0 if it fails."""
    value = ctypes.c_int(0)
    return 0 if function(ctypes.byref(value), *args) else value.value


def _gpu(library, ordinal: int) -> Gpu:
    device = _integer(library.cuDeviceGet, ordinal)
    name = ctypes.create_string_buffer(100)
    library.cuDeviceGetName(name, len(name), device)
    memory = ctypes.c_size_t(0)
    library.cuDeviceTotalMem_v2(ctypes.byref(memory), device)

    def attribute(which: int) -> int:
        return _integer(library.cuDeviceGetAttribute, which, device)

    capability = (attribute(COMPUTE_CAPABILITY_MAJOR), attribute(COMPUTE_CAPABILITY_MINOR))
    return Gpu(name.value.decode(), memory.value, capability, attribute(MULTIPROCESSORS))
