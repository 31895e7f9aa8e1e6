"""`minigrad.cuda`: queries about GPUs. Tensors on a GPU are CuPy arrays."""

# ruff: noqa: F401, F811 - names are imported to be found here

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any

from kernels.support import wrong_index
from minigrad._absent import absent
from minigrad._names import namespace
from minigrad.creation import legacy_classes
from minigrad.cuda.properties import (
    can_device_access_peer,
    device,
    device_count,
    device_of,
    get_device_capability,
    get_device_properties,
    is_available,
    mem_get_info,
)
from minigrad.cuda.random import (
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    manual_seed_all,
    seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
)

if _TYPE_CHECKING:
    from minigrad.cuda import amp as amp
    from minigrad.cuda import memory as memory
    from minigrad.cuda import nvtx as nvtx
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

globals().update(legacy_classes("cuda"))


def _cupy() -> Any:
    from minigrad.backends import device_module

    return device_module("cuda")


def init() -> None:
    """Start CuPy, which the first tensor on a GPU does too; RuntimeError without a GPU."""
    _cupy()


def is_initialized() -> bool:
    """Whether CuPy has been loaded and finds a GPU."""
    return "cupy" in sys.modules and is_available()


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
        _before.streams.append(current_stream())
        set_stream(self)
        return self

    def __exit__(self, *error: object) -> None:
        set_stream(_before.streams.pop())


class _Before(threading.local):
    """The streams that a thread's `with` statements return to. (CuPy's own return to the stream of
    the `with` around them, though another was set in it.)"""

    def __init__(self) -> None:
        self.streams: list[Stream] = []


_before = _Before()


class StreamContext:
    """`with StreamContext(s): ...` launches into `s`; with None nothing changes."""

    def __init__(self, stream: Stream | None) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        if self.stream is not None:
            self.stream.__enter__()

    def __exit__(self, *error: object) -> None:
        if self.stream is not None:
            self.stream.__exit__(*error)


stream = StreamContext


def set_stream(stream: Stream | None) -> None:
    """Launch into `stream` from now on; with None nothing changes."""
    if stream is not None:
        stream._stream.use()


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


def ipc_collect() -> None:
    """No effect: no memory of a GPU is shared with other processes."""


def is_bf16_supported() -> bool:
    """Whether the GPU computes in bfloat16 (kernels here store it and compute in float32)."""
    return is_available()


# Programs with a checkpoint function of their own save the states of the GPUs' generators if this
# is True. Here one generator serves all devices, and they save its state anyway.
_initialized = False

_MEMORY = (
    "OutOfMemoryError", "max_memory_allocated", "max_memory_reserved", "memory_allocated",
    "memory_reserved", "memory_stats", "memory_summary", "reset_accumulated_memory_stats",
    "reset_max_memory_allocated", "reset_peak_memory_stats",
)  # fmt: skip
_LAZY = {name: f"minigrad.cuda.{name}" for name in ("amp", "memory", "nvtx")}  # amp: optimisers
# `dir` lists them, and an error suggests them, though they are defined in these modules
_IMPORTED = {
    name: value.__module__
    for name, value in globals().items()
    if not name.startswith("_")
    and getattr(value, "__module__", None) in ("minigrad.cuda.properties", "minigrad.cuda.random")
}

_GRAPHS = "minigrad has no graphs to record by hand; fix: minigrad.compile, which records a step"
CUDAGraph, graph = absent("CUDAGraph", _GRAPHS), absent("graph", _GRAPHS)

__getattr__, __dir__ = namespace(
    __name__, _LAZY | _IMPORTED | dict.fromkeys(_MEMORY, "minigrad.cuda.memory")
)
