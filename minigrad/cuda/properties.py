"""What the driver says about a GPU, and which one is the current one."""

from __future__ import annotations

import importlib.util
import warnings
from dataclasses import dataclass
from typing import Any

from minigrad.backends import device_module
from minigrad.devices import device as Device
from minigrad.tensor import Tensor

# Names of CuPy's dictionary that differ from torch's.
_NAMES = {
    "total_memory": "totalGlobalMem",
    "multi_processor_count": "multiProcessorCount",
    "warp_size": "warpSize",
    "max_threads_per_multi_processor": "maxThreadsPerMultiProcessor",
    "max_threads_per_block": "maxThreadsPerBlock",
    "regs_per_multiprocessor": "regsPerMultiprocessor",
    "shared_memory_per_block": "sharedMemPerBlock",
    "shared_memory_per_block_optin": "sharedMemPerBlockOptin",
    "shared_memory_per_multiprocessor": "sharedMemPerMultiprocessor",
    "L2_cache_size": "l2CacheSize",
    "is_integrated": "integrated",
    "is_multi_gpu_board": "isMultiGpuBoard",
    "pci_bus_id": "pciBusID",
    "pci_device_id": "pciDeviceID",
    "pci_domain_id": "pciDomainID",
}


@dataclass(frozen=True)
class _CudaDeviceProperties:
    """A GPU: sizes in bytes; a number that the driver does not tell is 0."""

    name: str
    major: int
    minor: int
    total_memory: int
    multi_processor_count: int
    warp_size: int
    max_threads_per_multi_processor: int
    max_threads_per_block: int
    regs_per_multiprocessor: int
    shared_memory_per_block: int
    shared_memory_per_block_optin: int
    shared_memory_per_multiprocessor: int
    L2_cache_size: int
    is_integrated: int
    is_multi_gpu_board: int
    pci_bus_id: int
    pci_device_id: int
    pci_domain_id: int

    def __repr__(self) -> str:
        return (
            f"_CudaDeviceProperties(name='{self.name}', major={self.major}, minor={self.minor}, "
            f"total_memory={self.total_memory // 2**20}MB, "
            f"multi_processor_count={self.multi_processor_count})"
        )


def is_available() -> bool:
    """Whether tensors can live on a GPU here: CuPy is installed and finds a GPU."""
    return device_count() > 0


def device_count() -> int:
    """The number of GPUs that tensors can live on."""
    if importlib.util.find_spec("cupy") is None:
        return 0
    try:
        import cupy
    except OSError as error:  # CuPy makes its cache folder when it is imported
        warnings.warn(f"CuPy cannot be used: {error}; set CUPY_CACHE_DIR", stacklevel=2)
        return 0
    if hasattr(cupy.ndarray, "__host_memory__"):  # kernels.install(): CuPy's arrays on the CPU
        return 0
    try:
        return cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError:
        return 0


def gpu_number(device: Any, optional: bool = True) -> int:
    """The number of a GPU that is given as a number, a name or a device; None: the current one.

    ValueError for another device."""
    cuda = device_module("cuda").cuda
    if device is None and optional:
        return cuda.Device().id
    where = Device(device)
    if where.type != "cuda":
        raise ValueError(f"Expected a cuda device, but got: {where}")
    return cuda.Device().id if where.index is None else where.index


def get_device_properties(device: Any = None) -> _CudaDeviceProperties:
    """Name, memory, compute capability and limits of a GPU, the current one unless given.

    AssertionError for a number that no GPU has; RuntimeError without one."""
    number, runtime = gpu_number(device), device_module("cuda").cuda.runtime
    if not 0 <= number < runtime.getDeviceCount():
        raise AssertionError("Invalid device id")
    found = runtime.getDeviceProperties(number)
    major, minor = get_device_capability(number)
    rest = {name: int(found.get(theirs, 0)) for name, theirs in _NAMES.items()}
    return _CudaDeviceProperties(found["name"].decode(), major, minor, **rest)


def get_device_capability(device: Any = None) -> tuple[int, int]:
    """The compute capability, such as (9, 0)."""
    found = device_module("cuda").cuda.Device(gpu_number(device)).compute_capability
    return int(found[:-1]), int(found[-1])


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """Bytes that are free on a GPU, and all that it has."""
    cuda = device_module("cuda").cuda
    with cuda.Device(gpu_number(device)):
        return cuda.runtime.memGetInfo()


def can_device_access_peer(device: Any, peer_device: Any) -> bool:
    """Whether a GPU can reach the memory of another."""
    numbers = gpu_number(device, optional=False), gpu_number(peer_device, optional=False)
    return bool(device_module("cuda").cuda.runtime.deviceCanAccessPeer(*numbers))


class device:
    """`with minigrad.cuda.device(1): ...`: another GPU is the current one in the block.

    With None or a negative number nothing changes."""

    def __init__(self, device: Any) -> None:
        without = device is None or (isinstance(device, int) and device < 0)
        self._gpu = None if without else device_module("cuda").cuda.Device(gpu_number(device))

    def __enter__(self) -> None:
        if self._gpu is not None:
            self._gpu.__enter__()

    def __exit__(self, *error: object) -> None:
        if self._gpu is not None:
            self._gpu.__exit__(*error)


class device_of(device):
    """`with minigrad.cuda.device_of(x): ...`: the GPU of a tensor; nothing changes for one on the
    CPU."""

    def __init__(self, obj: Tensor) -> None:
        super().__init__(obj.get_device())
