"""What the driver library asks Python: to load PTX, to describe a kernel, to run it.

The structures mirror those of `driver/code.c` and `driver/gpu.h`.
"""

from __future__ import annotations

import ctypes
import math
import traceback
from collections.abc import Callable
from ctypes import POINTER, c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p
from typing import Any

from kernels import ptx
from kernels.support.errors import KernelError, KernelIndexError

SUCCESS, NO_BINARY_FOR_GPU, INVALID_PTX, NOT_FOUND = 0, 209, 218, 500
ILLEGAL_ADDRESS, MISALIGNED_ADDRESS, LAUNCH_FAILED = 700, 716, 719
MAX_PARAMETERS = 256
REGISTERS = 64  # what the assembler would say; PTX does not tell


class Kernel(ctypes.Structure):
    """Mirrors Kernel."""

    _fields_ = (
        ("static_shared", c_int),
        ("most_threads", c_int),
        ("registers", c_int),
        ("local", c_int),
        ("parameters", c_int),
        ("sizes", c_int * MAX_PARAMETERS),
    )


class Allocation(ctypes.Structure):
    """Mirrors Allocation."""

    _fields_ = (("at", c_uint64), ("size", c_uint64), ("device", c_int))


_LOAD = ctypes.CFUNCTYPE(c_int, c_int, c_void_p)
_FIND = ctypes.CFUNCTYPE(c_int, c_int, c_char_p, POINTER(Kernel))
_GLOBAL = ctypes.CFUNCTYPE(c_int, c_int, c_char_p, POINTER(c_uint64), POINTER(c_size_t))
_LAUNCH = ctypes.CFUNCTYPE(
    c_int, c_int, c_char_p, POINTER(c_uint), POINTER(c_void_p), POINTER(Allocation), c_size_t
)


class Callbacks(ctypes.Structure):
    """Mirrors Runner."""

    _fields_ = (("load", _LOAD), ("find", _FIND), ("global_", _GLOBAL), ("launch", _LAUNCH))


class Runner:
    """The callbacks, the modules that were loaded, and what went wrong."""

    def __init__(self) -> None:
        self.modules: list[ptx.Module] = []
        self.fault: str | None = None
        self.interrupted = False  # by Ctrl-C, while C had called this
        self.callbacks = Callbacks(
            _LOAD(self._guarded(self.load, -INVALID_PTX)),
            _FIND(self._guarded(self.find, INVALID_PTX)),
            _GLOBAL(self._guarded(self.find_global, INVALID_PTX)),
            _LAUNCH(self._guarded(self.launch, LAUNCH_FAILED)),
        )

    def _guarded(self, method: Callable[..., int], failed: int) -> Callable[..., int]:
        """The method, for C: an exception of Python becomes the fault and an error."""

        def call(*args: Any) -> int:
            try:
                return method(*args)
            except KernelError as error:
                self.fault = self.fault or str(error)
                outside = isinstance(error, KernelIndexError)
                misaligned = "misaligned" in str(error)
                return ILLEGAL_ADDRESS if outside else MISALIGNED_ADDRESS if misaligned else failed
            except KeyboardInterrupt:
                self.interrupted = True
                return failed
            except Exception:
                self.fault = self.fault or traceback.format_exc()
                return failed

        return call

    def load(self, device: int, image: int) -> int:
        """The number of a module, which each device loads for itself."""
        if ctypes.string_at(image, 4) == b"\x7fELF":
            return -NO_BINARY_FOR_GPU
        self.modules.append(ptx.load(ctypes.string_at(image)))
        return len(self.modules)

    def find(self, module: int, name: bytes, found: Any) -> int:
        """Describe a kernel."""
        loaded = self.modules[module - 1]
        if name.decode() not in loaded.kernels:
            return NOT_FOUND
        kernel, described = loaded.kernel(name.decode()), found.contents
        sizes = [size for _, size in kernel.parameters.values()]
        described.static_shared = kernel.static_shared
        described.most_threads = math.prod(kernel.most_threads) if kernel.most_threads else 1024
        described.registers = REGISTERS
        described.local = kernel.local_bytes
        described.parameters = len(sizes)
        described.sizes[: len(sizes)] = sizes
        return SUCCESS

    def find_global(self, module: int, name: bytes, at: Any, size: Any) -> int:
        """Where a variable lies."""
        place = self.modules[module - 1].globals.get(name.decode())
        if place is None:
            return NOT_FOUND
        at[0], size[0] = place
        return SUCCESS

    def launch(
        self, module: int, name: bytes, dimensions: Any, values: Any, there: Any, count: int
    ) -> int:
        """Run a kernel; `there` are the allocations of its device."""
        loaded, given = self.modules[module - 1], dimensions[:8]
        parameters = len(loaded.kernel(name.decode()).parameters)
        loaded.launch(
            name.decode(),
            given[:3],
            given[3:6],
            given[6],
            values[:parameters],
            allocations=[(a.at, a.size) for a in there[:count]],
            cooperative=bool(given[7]),
        )
        return SUCCESS
