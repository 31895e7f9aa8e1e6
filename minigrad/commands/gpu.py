"""What the NVIDIA driver says about this machine's GPUs, asked through its C library alone.

No Python package has to be installed for this, so that `doctor` can tell "no driver" from
"a driver, but no numba-cuda". Sources: the CUDA Driver API and the NVML
reference manuals.
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
    """What was found: the newest CUDA version it can run, its GPUs, or why there are none."""

    cuda_version: str | None
    gpus: list[Gpu]
    problem: str | None


def library_name() -> str:
    """The file name of the driver's library on this system."""
    return "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"


def query(library=None) -> Driver:
    """Ask the driver; `library` stands in for the loaded library in tests."""
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
    """The driver's own version, such as "580.65.06", from NVML; None where that can't be had."""
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
    """The int that a driver function writes through its first argument; 0 where it fails."""
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
