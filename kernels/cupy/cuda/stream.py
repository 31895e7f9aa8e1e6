"""Streams and events. Work is done when it is submitted, so every stream keeps its order."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from typing import Any

from .._runtime_error import CUDARuntimeError

_ids = itertools.count(3)


class _Local(threading.local):
    """A thread's current stream, and those of the `with` statements around it. As in CuPy, one that
    ends returns to the stream of the one around it, whatever `use` has set."""

    def __init__(self) -> None:
        self.streams: list[_BaseStream] = []
        self.current: _BaseStream | None = None


_local = _Local()


class Event:
    """A point in a stream's work: `record()`, then `synchronize()` or `get_elapsed_time`."""

    def __init__(
        self, block: bool = False, disable_timing: bool = False, interprocess: bool = False
    ) -> None:
        if interprocess and not disable_timing:
            raise ValueError("Timing must be disabled for interprocess events")
        self.ptr = next(_ids)
        self.disable_timing = disable_timing
        self.time: float | None = None

    @property
    def done(self) -> bool:
        """True: what was recorded has happened."""
        return True

    def record(self, stream: Stream | None = None) -> None:
        self.time = time.perf_counter()

    def synchronize(self) -> None:
        """Wait for the event: it has happened."""


def get_elapsed_time(start_event: Event, end_event: Event) -> float:
    """Milliseconds between two recorded events. Raises CUDARuntimeError for one that was not
    recorded, or was made with disable_timing."""
    for event in (start_event, end_event):
        if event.disable_timing or event.time is None:
            raise CUDARuntimeError(400, "record() the event, and leave disable_timing out")
    return (end_event.time - start_event.time) * 1e3


class _BaseStream:
    ptr = 0
    device_id = 0

    def __init__(self, ptr: int, null: bool = False, ptds: bool = False) -> None:
        self.ptr, self.null, self.ptds = ptr, null, ptds

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _BaseStream) and self.ptr == other.ptr

    def __hash__(self) -> int:
        return hash(self.ptr)

    def __enter__(self) -> _BaseStream:
        _local.streams.append(self)
        return self.use()

    def __exit__(self, *error: object) -> None:
        _local.streams.pop()
        _local.current = _local.streams[-1] if _local.streams else None

    def __repr__(self) -> str:
        return f"<Stream {self.ptr} (device 0)>"

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.ptr

    def use(self) -> _BaseStream:
        """Make this the current stream of the thread."""
        _local.current = self
        return self

    @property
    def done(self) -> bool:
        """True: all submitted work is done."""
        return True

    def is_capturing(self) -> bool:
        """False: nothing is captured on the CPU."""
        return False

    def synchronize(self) -> None:
        """Wait for the stream: nothing is pending."""

    def record(self, event: Event | None = None) -> Event:
        """Record an event, a new one unless given, and return it."""
        event = event or Event()
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        """Let later work wait for an event: it has happened."""

    def launch_host_func(self, callback: Callable, arg: Any) -> None:
        """Call callback(arg) after the work so far, that is, now."""
        callback(arg)

    def add_callback(self, callback: Callable, arg: Any) -> None:
        """Call callback(stream, 0, arg) after the work so far, that is, now."""
        callback(self, 0, arg)

    def begin_capture(self, mode: Any = None) -> None:
        raise CUDARuntimeError(801, "graphs cannot be captured on the CPU; run the work itself")

    end_capture = begin_capture

    def get_priority(self) -> int:
        return getattr(self, "priority", 0)


class Stream(_BaseStream):
    """A queue of work; `with stream:` makes it current."""

    null: Stream
    ptds: Stream

    def __init__(
        self, null: bool = False, non_blocking: bool = False, ptds: bool = False,
        priority: int | None = None,
    ) -> None:  # fmt: skip
        super().__init__(0 if null else 2 if ptds else next(_ids), null, ptds)
        self.non_blocking, self.priority = non_blocking, priority or 0

    def __new__(cls, *args: Any, **options: Any) -> Stream:
        return super().__new__(cls)


class ExternalStream(_BaseStream):
    """The stream of another library, by its handle."""

    def __init__(self, ptr: int, device_id: int = -1) -> None:
        super().__init__(int(ptr))

    @classmethod
    def from_external(cls, obj: Any) -> ExternalStream:
        return cls(obj.__cuda_stream__()[1])


Stream.null = Stream(null=True)
Stream.ptds = Stream(ptds=True)
Stream.from_external = ExternalStream.from_external


def get_current_stream(device_id: int = -1) -> Stream:
    """The current stream of the thread."""
    return _local.current or Stream.null
