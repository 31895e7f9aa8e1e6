# ruff: noqa: F401 - names are imported to be found here
"""The names of `numba.cuda.cudadrv` and its modules that programs import."""

from __future__ import annotations

from kernels.simt.device.arrays import CudaAPIError, DeviceNDArray
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
