"""A GPU in software, for the tests marked `gpu`: `python -m pytest -m gpu --gpu=software`.

`install` loads a library that answers to the name of NVIDIA's driver (`driver/`, compiled by the C
compiler). On it the real numba-cuda compiles, loads and launches. Its devices have several compute
capabilities; what it refuses, it refuses with the driver's errors. Work waits in streams until the
host waits for it, new memory holds NaN, and a kernel's accesses are checked against the allocations
of its device.

It must be installed before anything looks for the driver: a later `dlopen("libcuda.so.1")` finds
the library that is already loaded under that name.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from . import cupy_on_driver, library, numba_ptx
from .runner import Runner

CAPABILITIES = ("7.5", "8.0", "9.0", "12.0")
_library: ctypes.CDLL | None = None
_runner: Runner | None = None


def install(*capabilities: str) -> ctypes.CDLL:
    """Make this process see GPUs of some compute capabilities, two of one that is given alone; the
    driver's library.

    Raises ValueError for a capability that there is no model of, RuntimeError where a driver is
    loaded already.
    """
    global _library, _runner
    for capability in capabilities:
        if capability not in CAPABILITIES:
            raise ValueError(f"capability: expected one of {CAPABILITIES}, got {capability!r}")
    if len(capabilities) < 2:
        capabilities = (capabilities or ("8.0",)) * 2
    if _library is None and _is_loaded():
        raise RuntimeError("a driver is loaded already: install the software GPU before")
    _library, _runner = load("libcuda.so.1", capabilities)
    numba_ptx.install()
    cupy_on_driver.install(_library, _runner)
    return _library


def load(soname: str, capabilities: Sequence[str]) -> tuple[ctypes.CDLL, Runner]:
    """The driver's library under a name, with devices of its own, and what runs its kernels."""
    loaded, runner = library.load(soname), Runner()
    for ordinal, capability in enumerate(capabilities):
        loaded.software_gpu_device(ordinal, int(capability.replace(".", "")))
    loaded.software_gpu_runner(ctypes.byref(runner.callbacks))
    return loaded, runner


def installed() -> bool:
    """Whether this process has the software GPU."""
    return _library is not None


def launches() -> int:
    """How many kernels were launched."""
    return _library.software_gpu_launches()


def waits() -> int:
    """How often the host waited: for a device, a stream, an event or a copy from the device."""
    return _library.software_gpu_waits()


def set_memory(device: int, size: int) -> None:
    """Give a device `size` bytes."""
    _library.software_gpu_memory(device, size)


def finish() -> None:
    """Do all work that waits, without an error."""
    _library.software_gpu_finish()


def take_fault() -> str | None:
    """What a kernel did wrong since the last call, or None; the contexts work again.

    A GPU's context answers every call with the error of the first kernel that failed.
    """
    codes = [_library.software_gpu_forget_fault(d) for d in range(len(CAPABILITIES))]
    text, _runner.fault = _runner.fault, None
    return text or (f"CUDA error {max(codes)}" if any(codes) else None)


def _is_loaded() -> bool:
    """Whether the process has loaded a library by the driver's name."""
    try:
        ctypes.CDLL("libcuda.so.1", mode=ctypes.DEFAULT_MODE | 4)  # 4: RTLD_NOLOAD
    except OSError:
        return False
    return True
