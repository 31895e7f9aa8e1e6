# ruff: noqa: F401 - names are imported to be found here
"""The names of `numba.cuda.cudadrv` and its modules that programs import."""

from __future__ import annotations

import sys

from kernels.simt.device.arrays import (
    CudaAPIError,
    DeviceNDArray,
    DeviceRecord,
    ManagedNDArray,
    MappedNDArray,
)
from kernels.simt.device.arrays import is_cuda_array as is_cuda_ndarray
from kernels.simt.device.context import (
    Context,
    Device,
    Event,
    MemoryInfo,
    Stream,
    gpus,
    require_context,
)
from kernels.simt.device.context import current_context as get_context

DeviceNDArrayBase = DeviceNDArray
IpcArrayHandle = type("IpcArrayHandle", (), {})  # there is none: isinstance() says so


class Runtime:
    """`numba.cuda.runtime`: the version of CUDA whose features kernels find here."""

    supported_versions = ((12, 0), (13, 3))

    @property
    def runtime(self) -> Runtime:
        """Itself: `from numba.cuda.cudadrv.runtime import runtime`."""
        return self

    def get_version(self) -> tuple[int, int]:
        return 12, 8

    def is_supported_version(self) -> bool:
        return True


runtime = Runtime()
#: its modules, one and the same here
driver = devicearray = devices = error = drvapi = sys.modules[__name__]


class CudaDriverError(Exception):
    """An error of CUDA's driver."""


class CudaSupportError(ImportError):
    """There is no CUDA. Never raised here: kernels run on the CPU."""


class NvvmError(Exception):
    """An error of NVIDIA's compiler, which is not used here."""


class NvvmSupportError(ImportError):
    """NVIDIA's compiler is missing. Never raised here."""


class LinkerError(RuntimeError):
    """An error of NVIDIA's linker, which is not used here."""
