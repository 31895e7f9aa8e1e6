"""Streams, events and the device, where the device is this machine's CPU.

Kernels run as they are launched, so streams keep their order trivially; events read the clock when
they are recorded. Names and arguments are numba.cuda's.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from kernels.simt.device.arrays import CudaAPIError


class Stream:
    """A queue of work. Work here is done when it is submitted, so the queue is always empty."""

    def __init__(self, handle: int = 0) -> None:
        self.handle = handle

    def synchronize(self) -> None:
        """Wait for the stream: nothing is pending."""

    @contextmanager
    def auto_synchronize(self) -> Iterator[Stream]:
        """Synchronise on leaving the context."""
        yield self
        self.synchronize()

    def add_callback(self, callback: Callable[[Stream, int, Any], None], arg: Any = None) -> None:
        """Call `callback(stream, status, arg)` after the work so far, that is, now."""
        callback(self, 0, arg)

    def async_done(self) -> Any:
        """An awaitable that is ready when the work so far is done."""
        import asyncio  # 40 ms that few programs need

        future = asyncio.get_running_loop().create_future()
        future.set_result(self)
        return future

    def __int__(self) -> int:
        return self.handle

    def __repr__(self) -> str:
        return f"<CUDA stream {self.handle} on the CPU>"


_DEFAULT_STREAM = Stream(0)
_stream_count = 0


def stream() -> Stream:
    """A new stream."""
    global _stream_count
    _stream_count += 1
    return Stream(_stream_count)


def default_stream() -> Stream:
    return _DEFAULT_STREAM


legacy_default_stream = per_thread_default_stream = default_stream


def external_stream(ptr: int) -> Stream:
    """Streams of a GPU library cannot be used: kernels here run on the CPU."""
    raise CudaAPIError("external_stream: there is no GPU stream to wrap; use cuda.stream()")


class Event:
    """A point in a stream's work, and the time at which it was reached."""

    def __init__(self, timing: bool = True) -> None:
        self.timing = timing
        self._nanoseconds: int | None = None

    def __repr__(self) -> str:
        state = "not recorded" if self._nanoseconds is None else "recorded"
        return f"<CUDA event, {state}, on the CPU>"

    def record(self, stream: Any = 0) -> None:
        self._nanoseconds = time.perf_counter_ns()

    def query(self) -> bool:
        """Whether the recorded work is done: always."""
        return True

    def wait(self, stream: Any = 0) -> None:
        """Make later work of `stream` wait for this event: it has happened."""

    def synchronize(self) -> None:
        """Wait for the event: it has happened."""

    def elapsed_time(self, evtend: Event) -> float:
        """Milliseconds from this event to `evtend`."""
        for event_ in (self, evtend):
            if not event_.timing:
                raise CudaAPIError("elapsed_time: an event was made with timing=False")
            if event_._nanoseconds is None:
                raise CudaAPIError("elapsed_time: an event has not been recorded; call record()")
        return (evtend._nanoseconds - self._nanoseconds) / 1e6


def event(timing: bool = True) -> Event:
    """A new event; `record()` it around work and ask `start.elapsed_time(end)`."""
    return Event(timing)


def event_elapsed_time(evtstart: Event, evtend: Event) -> float:
    """Milliseconds between two recorded events."""
    return evtstart.elapsed_time(evtend)


def synchronize() -> None:
    """Wait for all work: kernels run as they are launched, so there is none left."""


# --- the device


class MemoryInfo(NamedTuple):
    free: int
    total: int


def _cpu_name() -> str:
    try:
        with open("/proc/cpuinfo") as lines:
            for line in lines:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


class Device:
    """This machine's CPU with the limits of a GPU of compute capability 8.0.

    Kernels that stay within these limits run on hardware too. A multiprocessor is a core: each
    runs one block at a time.
    """

    id = 0
    uuid = "CPU-0"
    compute_capability = (8, 0)
    supports_float16 = supports_bfloat16 = True
    supports_fp8 = False
    COMPUTE_CAPABILITY_MAJOR, COMPUTE_CAPABILITY_MINOR = compute_capability
    WARP_SIZE = 32
    MAX_THREADS_PER_BLOCK = 1024
    MAX_BLOCK_DIM_X = MAX_BLOCK_DIM_Y = 1024
    MAX_BLOCK_DIM_Z = 64
    MAX_GRID_DIM_X = 2**31 - 1
    MAX_GRID_DIM_Y = MAX_GRID_DIM_Z = 65535
    MAX_SHARED_MEMORY_PER_BLOCK = 48 * 1024
    MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 163 * 1024
    MAX_SHARED_MEMORY_PER_MULTIPROCESSOR = 164 * 1024
    MAX_THREADS_PER_MULTIPROCESSOR = 2048
    MAX_REGISTERS_PER_BLOCK = MAX_REGISTERS_PER_MULTIPROCESSOR = 65536
    TOTAL_CONSTANT_MEMORY = 64 * 1024
    CONCURRENT_KERNELS = ASYNC_ENGINE_COUNT = 1
    COOPERATIVE_LAUNCH = UNIFIED_ADDRESSING = CAN_MAP_HOST_MEMORY = MANAGED_MEMORY = 1
    KERNEL_EXEC_TIMEOUT = TCC_DRIVER = INTEGRATED = 0

    @property
    def MULTIPROCESSOR_COUNT(self) -> int:
        return os.cpu_count() or 1

    @property
    def name(self) -> str:
        return f"CPU, SIMT compiler ({_cpu_name()})"

    def get_device_identity(self) -> dict[str, int]:
        return {"pci_domain_id": 0, "pci_bus_id": 0, "pci_device_id": 0}

    def reset(self) -> None:
        """There is no state to reset."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"the CPU device has no attribute {name!r}")

    def __repr__(self) -> str:
        return f"<CUDA device 0 '{self.name}'>"


class Context:
    """The one context of the one device; also what `cuda.gpus[0]` is."""

    id = 0

    def __init__(self, device: Device) -> None:
        self.device = device

    def __getattr__(self, name: str) -> Any:  # cuda.gpus[0].name and its like
        return getattr(self.device, name)

    def get_memory_info(self) -> MemoryInfo:
        """Free and total memory of this machine in bytes."""
        pages = getattr(os, "sysconf", None)
        if pages is None:
            raise CudaAPIError("get_memory_info: this system does not tell its memory size")
        page = pages("SC_PAGE_SIZE")
        free = "SC_AVPHYS_PAGES" if "SC_AVPHYS_PAGES" in os.sysconf_names else "SC_PHYS_PAGES"
        return MemoryInfo(free=pages(free) * page, total=pages("SC_PHYS_PAGES") * page)

    def synchronize(self) -> None:
        """Wait for all work: there is none pending."""

    def can_access_peer(self, peer_context: Any) -> bool:
        """False: there is one device."""
        return False

    def enable_peer_access(self, peer_context: Any, flags: int = 0) -> None:
        """Raises CudaAPIError: there is one device."""
        raise CudaAPIError(
            "enable_peer_access: peer access is not supported; there is only device 0, the CPU, so"
            " keep all arrays on it"
        )

    def open_ipc_handle(self, handle: Any, size: int) -> None:
        """Raises CudaAPIError: there is no GPU memory to share."""
        raise CudaAPIError(
            "open_ipc_handle: there is no GPU memory to share between processes; use"
            " multiprocessing.shared_memory"
        )

    def push(self) -> None:
        """The context is always the current one."""

    def pop(self) -> None:
        """The context is always the current one."""

    def create_stream(self) -> Stream:
        return stream()

    def create_event(self, timing: bool = True) -> Event:
        return Event(timing)

    def get_default_stream(self) -> Stream:
        return _DEFAULT_STREAM

    def defer_cleanup(self) -> Any:
        """Deallocation is Python's; there is nothing to defer."""
        return defer_cleanup()

    def reset(self) -> None:
        """There is no state to reset."""

    def __enter__(self) -> Context:
        return self

    def __exit__(self, *exc: object) -> None:
        return None

    def __repr__(self) -> str:
        return "<Managed Device 0>"


_CONTEXT = Context(Device())


class DeviceList:
    """`cuda.gpus`: one device."""

    lst = (_CONTEXT,)
    current = _CONTEXT

    def __getitem__(self, index: int) -> Context:
        if index not in (0, -1):
            raise IndexError(f"device {index} does not exist; there is only device 0, the CPU")
        return _CONTEXT

    def __iter__(self) -> Iterator[Context]:
        return iter(self.lst)

    def __len__(self) -> int:
        return 1

    def __repr__(self) -> str:
        return "<Managed Device 0>"


gpus = DeviceList()


def list_devices() -> DeviceList:
    return gpus


def current_context(devnum: int | None = None) -> Context:
    """The context of the device; raises CudaAPIError for a device that is not there."""
    if devnum not in (None, 0):
        raise CudaAPIError(f"device {devnum} does not exist; there is only device 0, the CPU")
    return _CONTEXT


def get_current_device() -> Device:
    return _CONTEXT.device


def select_device(device_id: int) -> Device:
    return current_context(device_id).device


def close() -> None:
    """There is no context to destroy."""


def require_context(function: Callable) -> Callable:
    """Decorator: the context is always there."""
    return function


@contextmanager
def defer_cleanup() -> Iterator[None]:
    """Deallocation is Python's; there is nothing to defer."""
    yield


def is_available() -> bool:
    """True: kernels run, on the CPU.

    Numba's simulator answers the same, so programs and tests that ask before using `cuda` do use
    it. `numba.cuda.is_available()` still says whether there is a GPU.
    """
    return True


def is_supported_version() -> bool:
    return True


def is_float16_supported() -> bool:
    return True


def is_bfloat16_supported() -> bool:
    return True


def is_fp8_supported() -> bool:
    return False


def profile_start() -> None:
    """Begin what a profiler looks at: none is attached."""


def profile_stop() -> None:
    """End what a profiler looks at: none is attached."""


@contextmanager
def profiling() -> Iterator[None]:
    """What a profiler looks at: none is attached."""
    yield


def cuda_error() -> None:
    """No driver error: there is no driver."""


def detect() -> bool:
    """Print what kernels run on; True, since there is something."""
    device = get_current_device()
    print("Found 1 CUDA devices")
    print(f"id 0    {device.name:>40} {'[SUPPORTED]':>20}")
    print(f"{'Compute Capability':>40}: {'.'.join(map(str, device.compute_capability))} (limits)")
    print(f"{'Multiprocessors':>40}: {device.MULTIPROCESSOR_COUNT} (cores)")
    print("Summary:\n\t1/1 devices are supported")
    return True
