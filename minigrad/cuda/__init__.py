"""`minigrad.cuda`: queries about GPUs. Tensors on a GPU are CuPy arrays."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import warnings
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any

from kernels.support import wrong_index
from minigrad import dtypes, random
from minigrad._names import namespace
from minigrad.creation import legacy_class

if _TYPE_CHECKING:
    from minigrad.cuda import amp as amp
    from minigrad.cuda import memory as memory
    from minigrad.cuda.memory import max_memory_allocated as max_memory_allocated
    from minigrad.cuda.memory import max_memory_reserved as max_memory_reserved
    from minigrad.cuda.memory import memory_allocated as memory_allocated
    from minigrad.cuda.memory import memory_reserved as memory_reserved
    from minigrad.cuda.memory import memory_stats as memory_stats
    from minigrad.cuda.memory import memory_summary as memory_summary
    from minigrad.cuda.memory import (
        reset_accumulated_memory_stats as reset_accumulated_memory_stats,
    )
    from minigrad.cuda.memory import reset_max_memory_allocated as reset_max_memory_allocated
    from minigrad.cuda.memory import reset_peak_memory_stats as reset_peak_memory_stats

FloatTensor = legacy_class(dtypes.float32, "cuda")
DoubleTensor = legacy_class(dtypes.float64, "cuda")
LongTensor = legacy_class(dtypes.int64, "cuda")
ByteTensor = legacy_class(dtypes.uint8, "cuda")


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


def _cupy() -> Any:
    from minigrad.backends import device_module

    return device_module("cuda")


def current_device() -> int:
    """The number of the GPU in use."""
    return _cupy().cuda.Device().id


def set_device(device: Any) -> None:
    """Use this GPU from now on."""
    from minigrad.devices import device as Device

    where = Device(device)
    _cupy().cuda.Device(where.index or 0).use()


def get_device_name(device: Any = None) -> str:
    """The GPU's name."""
    number = current_device() if device is None else device
    return _cupy().cuda.runtime.getDeviceProperties(number)["name"].decode()


def synchronize(device: Any = None) -> None:
    """Wait until a GPU (the current one unless given) has finished all that was launched."""
    from minigrad.devices import device as Device

    index = None if device is None else Device(device).index
    _cupy().cuda.Device(index).synchronize()
    wrong_index.raise_found()


class Stream:
    """A queue of work on the current GPU: `with minigrad.cuda.stream(s): ...` launches into it.

    Work of different streams has no order but the one that `wait_stream`, `wait_event` and
    `synchronize` give it.
    """

    def __init__(self, device: Any = None, priority: int = 0, *, existing: Any = None) -> None:
        made = _cupy().cuda.Stream
        self._stream = existing or made(non_blocking=True, priority=priority or None)

    @property
    def cuda_stream(self) -> int:
        """The driver's handle."""
        return self._stream.ptr

    def synchronize(self) -> None:
        """Wait for all work of the stream."""
        self._stream.synchronize()
        wrong_index.raise_found()

    def query(self) -> bool:
        """Whether all work of the stream is done."""
        return self._stream.done

    def record_event(self, event: Event | None = None) -> Event:
        """Record an event, a new one unless given, and return it."""
        event = event or Event()
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        """Let later work of the stream wait for an event."""
        self._stream.wait_event(event._event)

    def wait_stream(self, stream: Stream) -> None:
        """Let later work of the stream wait for the work so far of another."""
        self.wait_event(stream.record_event())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and self.cuda_stream == other.cuda_stream

    def __hash__(self) -> int:
        return hash(self.cuda_stream)

    def __enter__(self) -> Stream:
        self._stream.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._stream.__exit__(*error)


def stream(stream: Stream | None) -> Any:
    """`with stream(s): ...` launches into `s`; with None nothing changes."""
    return contextlib.nullcontext() if stream is None else stream


def current_stream(device: Any = None) -> Stream:
    """The stream that operations launch into."""
    return Stream(existing=_cupy().cuda.get_current_stream())


def default_stream(device: Any = None) -> Stream:
    """The stream of programs that make none."""
    return Stream(existing=_cupy().cuda.Stream.null)


class Event:
    """A point in a stream's work, to wait for; with `enable_timing`, to measure times between."""

    def __init__(
        self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False
    ) -> None:
        self._event = _cupy().cuda.Event(block=blocking, disable_timing=not enable_timing)

    def record(self, stream: Stream | None = None) -> None:
        """Mark the work so far of a stream, the current one unless given."""
        self._event.record((stream or current_stream())._stream)

    def wait(self, stream: Stream | None = None) -> None:
        """Let later work of a stream, the current one unless given, wait for the event."""
        (stream or current_stream()).wait_event(self)

    def synchronize(self) -> None:
        """Wait for the event."""
        self._event.synchronize()
        wrong_index.raise_found()

    def query(self) -> bool:
        """Whether the work that the event marks is done."""
        return self._event.done

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds from this event to another; both need `enable_timing=True`."""
        return _cupy().cuda.get_elapsed_time(self._event, end_event._event)


def empty_cache() -> None:
    """Free unused GPU memory (no effect without a GPU)."""
    if is_available():
        _cupy().get_default_memory_pool().free_all_blocks()


def manual_seed(seed: int) -> None:
    """Seed the default generator, which all devices share."""
    random.manual_seed(seed)


manual_seed_all = manual_seed


def is_bf16_supported() -> bool:
    """Whether the GPU computes in bfloat16 (kernels here store it and compute in float32)."""
    return is_available()


class OutOfMemoryError(RuntimeError):
    """What `torch.cuda.OutOfMemoryError` is in handlers of programs; CuPy raises its own."""


_MEMORY = (
    "max_memory_allocated", "max_memory_reserved", "memory_allocated", "memory_reserved",
    "memory_stats", "memory_summary", "reset_accumulated_memory_stats",
    "reset_max_memory_allocated", "reset_peak_memory_stats",
)  # fmt: skip
_LAZY = {"amp": "minigrad.cuda.amp", "memory": "minigrad.cuda.memory"}  # amp needs optimisers

__getattr__, __dir__ = namespace(__name__, _LAZY | dict.fromkeys(_MEMORY, "minigrad.cuda.memory"))
