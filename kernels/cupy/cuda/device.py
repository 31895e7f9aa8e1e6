"""The one device: this machine's CPU, with the limits of a GPU of compute capability 8.0."""

from __future__ import annotations

from typing import Any

from kernels.simt.device.context import Device as Limits

from .. import _memory
from .._runtime_error import CUDARuntimeError, check_device

_LIBRARIES = "vendor libraries have no handle here; call the array functions (cupy.linalg, `@`)"
COMPUTE_CAPABILITY = "80"


class Device:
    """A device by its number; `with Device(0):` makes it current.

    There is one: `use()`, `with` and each property of another raise CUDARuntimeError.
    """

    def __init__(self, device: Any = None) -> None:
        self.id = 0 if device is None else int(device)

    def __int__(self) -> int:
        return self.id

    def __enter__(self) -> Device:
        check_device(self.id)
        return self

    def __exit__(self, *error: object) -> None:
        return None

    def __repr__(self) -> str:
        return f"<CUDA Device {self.id}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and self.id == other.id

    def __lt__(self, other: Device) -> bool:
        return self.id < other.id

    def __hash__(self) -> int:
        return hash(self.id)

    @classmethod
    def from_pci_bus_id(cls, pci_bus_id: str) -> Device:
        return cls(0)

    def use(self) -> Device:
        """Make the device current."""
        check_device(self.id)
        return self

    def synchronize(self) -> None:
        """Wait for the device: nothing is pending."""
        check_device(self.id)

    @property
    def compute_capability(self) -> str:
        check_device(self.id)
        return COMPUTE_CAPABILITY

    @property
    def pci_bus_id(self) -> str:
        check_device(self.id)
        return "0000:00:00.0"

    @property
    def mem_info(self) -> tuple[int, int]:
        """Free and total bytes."""
        check_device(self.id)
        return _memory.total_memory()

    @property
    def attributes(self) -> dict[str, int]:
        """The device's limits by the names of CUDA's attributes."""
        check_device(self.id)
        return {name: getattr(_LIMITS, theirs) for name, theirs in _ATTRIBUTES.items()}

    @property
    def cublas_handle(self) -> int:
        return get_cublas_handle()

    cusolver_handle = cusolver_sp_handle = cusparse_handle = cublas_handle


_LIMITS = Limits()
_ATTRIBUTES = {
    "MaxThreadsPerBlock": "MAX_THREADS_PER_BLOCK",
    "MaxBlockDimX": "MAX_BLOCK_DIM_X",
    "MaxBlockDimY": "MAX_BLOCK_DIM_Y",
    "MaxBlockDimZ": "MAX_BLOCK_DIM_Z",
    "MaxGridDimX": "MAX_GRID_DIM_X",
    "MaxGridDimY": "MAX_GRID_DIM_Y",
    "MaxGridDimZ": "MAX_GRID_DIM_Z",
    "MaxSharedMemoryPerBlock": "MAX_SHARED_MEMORY_PER_BLOCK",
    "MaxSharedMemoryPerBlockOptin": "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN",
    "MaxSharedMemoryPerMultiprocessor": "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR",
    "MaxThreadsPerMultiProcessor": "MAX_THREADS_PER_MULTIPROCESSOR",
    "MaxRegistersPerBlock": "MAX_REGISTERS_PER_BLOCK",
    "MaxRegistersPerMultiprocessor": "MAX_REGISTERS_PER_MULTIPROCESSOR",
    "TotalConstantMemory": "TOTAL_CONSTANT_MEMORY",
    "WarpSize": "WARP_SIZE",
    "MultiProcessorCount": "MULTIPROCESSOR_COUNT",
    "ConcurrentKernels": "CONCURRENT_KERNELS",
    "CooperativeLaunch": "COOPERATIVE_LAUNCH",
    "UnifiedAddressing": "UNIFIED_ADDRESSING",
    "CanMapHostMemory": "CAN_MAP_HOST_MEMORY",
    "ManagedMemory": "MANAGED_MEMORY",
    "KernelExecTimeout": "KERNEL_EXEC_TIMEOUT",
    "Integrated": "INTEGRATED",
    "ComputeCapabilityMajor": "COMPUTE_CAPABILITY_MAJOR",
    "ComputeCapabilityMinor": "COMPUTE_CAPABILITY_MINOR",
}


def properties() -> dict[str, Any]:
    """What cudaGetDeviceProperties tells: the limits, and the CPU's name."""
    limits = _LIMITS
    return {
        "name": limits.name.encode(),
        "totalGlobalMem": _memory.total_memory()[1],
        "sharedMemPerBlock": limits.MAX_SHARED_MEMORY_PER_BLOCK,
        "sharedMemPerBlockOptin": limits.MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
        "sharedMemPerMultiprocessor": limits.MAX_SHARED_MEMORY_PER_MULTIPROCESSOR,
        "regsPerBlock": limits.MAX_REGISTERS_PER_BLOCK,
        "regsPerMultiprocessor": limits.MAX_REGISTERS_PER_MULTIPROCESSOR,
        "warpSize": limits.WARP_SIZE,
        "maxThreadsPerBlock": limits.MAX_THREADS_PER_BLOCK,
        "maxThreadsPerMultiProcessor": limits.MAX_THREADS_PER_MULTIPROCESSOR,
        "maxThreadsDim": (limits.MAX_BLOCK_DIM_X, limits.MAX_BLOCK_DIM_Y, limits.MAX_BLOCK_DIM_Z),
        "maxGridSize": (limits.MAX_GRID_DIM_X, limits.MAX_GRID_DIM_Y, limits.MAX_GRID_DIM_Z),
        "totalConstMem": limits.TOTAL_CONSTANT_MEMORY,
        "major": limits.COMPUTE_CAPABILITY_MAJOR,
        "minor": limits.COMPUTE_CAPABILITY_MINOR,
        "multiProcessorCount": limits.MULTIPROCESSOR_COUNT,
        "concurrentKernels": limits.CONCURRENT_KERNELS,
        "cooperativeLaunch": limits.COOPERATIVE_LAUNCH,
        "unifiedAddressing": limits.UNIFIED_ADDRESSING,
        "canMapHostMemory": limits.CAN_MAP_HOST_MEMORY,
        "managedMemory": limits.MANAGED_MEMORY,
        "integrated": limits.INTEGRATED,
        "asyncEngineCount": limits.ASYNC_ENGINE_COUNT,
        "ECCEnabled": 0,
        "pciBusID": 0,
        "pciDeviceID": 0,
        "pciDomainID": 0,
        "tccDriver": 0,
        "isMultiGpuBoard": 0,
        "multiGpuBoardGroupID": 0,
    }


def get_compute_capability() -> str:
    return COMPUTE_CAPABILITY


def get_device_id() -> int:
    return 0


def from_pointer(ptr: int) -> Device:
    """The device of a pointer: there is one."""
    return Device(0)


def get_cublas_handle() -> int:
    """Refused: there is no cuBLAS here."""
    raise CUDARuntimeError(801, _LIBRARIES)


get_cusolver_handle = get_cusolver_sp_handle = get_cusparse_handle = get_cublas_handle
get_cutensor_handle = get_cublas_handle
