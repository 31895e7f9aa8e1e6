"""Where the time of a program goes: `torch.profiler`'s names, for kernel launches.

An event is one launch of a kernel (timed by events on a GPU) or one `record_function` block.

Example::

    with profile(schedule=schedule(wait=1, warmup=1, active=3)) as prof:
        for x, y in loader:
            train(x, y)
            prof.step()
    print(prof.key_averages().table(sort_by="cpu_time_total", row_limit=10))
"""

from __future__ import annotations

import enum
import functools
import json
import os
import socket
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from kernels.lab import timeline
from minigrad._names import namespace

__all__ = [
    "ProfilerAction",
    "ProfilerActivity",
    "kineto_available",
    "profile",
    "record_function",
    "schedule",
    "supported_activities",
    "tensorboard_trace_handler",
]

__getattr__, __dir__ = namespace(__name__)


def kineto_available() -> bool:
    """False: launches are recorded by minigrad itself."""
    return False


class ProfilerActivity(enum.Enum):
    """What torch can record; here launches are recorded wherever they run."""

    CPU = 0
    CUDA = 1
    XPU = 2


class ProfilerAction(enum.Enum):
    """What a schedule says of a step."""

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3


def supported_activities() -> set[ProfilerActivity]:
    """Where kernels can run here."""
    from minigrad import cuda

    return {ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if cuda.is_available() else [])}


def schedule(
    *,
    wait: int,
    warmup: int,
    active: int,
    repeat: int = 0,
    skip_first: int = 0,
    skip_first_wait: int = 0,
) -> Callable[[int], ProfilerAction]:
    """A function from the number of a step to what is done in it.

    After `skip_first` steps come cycles of `wait` steps that are not recorded, `warmup` steps whose
    record is thrown away, and `active` steps; `repeat` cycles (0: without end). skip_first_wait: 1
    leaves out the first wait.
    """
    if min(wait, warmup, repeat, skip_first) < 0 or active <= 0:
        raise AssertionError(
            "Invalid profiler schedule arguments: active must be positive, the others not negative"
        )

    def action(step: int) -> ProfilerAction:
        step -= skip_first
        if step < 0:
            return ProfilerAction.NONE
        step += wait if skip_first_wait else 0
        cycle, place = divmod(step, wait + warmup + active)
        if place < wait or (repeat and cycle >= repeat):
            return ProfilerAction.NONE
        if place < wait + warmup:
            return ProfilerAction.WARMUP
        last = place == wait + warmup + active - 1
        return ProfilerAction.RECORD_AND_SAVE if last else ProfilerAction.RECORD

    return action


def tensorboard_trace_handler(
    dir_name: str, worker_name: str | None = None, use_gzip: bool = False
) -> Callable[[profile], None]:
    """For `on_trace_ready`: writes each record to a file of the folder, for a trace viewer."""
    worker = worker_name or f"{socket.gethostname()}_{os.getpid()}"

    def handler(prof: profile) -> None:
        os.makedirs(dir_name, exist_ok=True)
        end = ".gz" if use_gzip else ""
        name = f"{worker}.{time.time_ns()}.pt.trace.json{end}"
        prof.export_chrome_trace(os.path.join(dir_name, name))

    return handler


class Event(NamedTuple):
    """A launch or a block: seconds from the start of the record, and how long it took."""

    name: str
    start: float
    seconds: float
    is_block: bool = False


class _Recording:
    """The record in progress: the blocks, and the start of its clock."""

    active: _Recording | None = None

    def __init__(self) -> None:
        self.blocks: list[Event] = []
        self.launches = timeline()
        self.timeline = self.launches.__enter__()
        _Recording.active = self

    def finish(self) -> list[Event]:
        self.launches.__exit__(None, None, None)
        _Recording.active = None
        found = [
            Event(f"{e.family} ({e.version})", e.start, e.seconds) for e in self.timeline.events
        ]
        return sorted([*found, *self.blocks], key=lambda event: event.start)


class record_function:
    """A name for a block, or for each call of a function that it decorates, in the record."""

    def __init__(self, name: str, args: str | None = None) -> None:
        self.name = name

    def __enter__(self) -> record_function:
        self._began = time.perf_counter()
        return self

    def __exit__(self, *exc: Any) -> None:
        recording = _Recording.active
        if recording is not None:
            start = max(self._began - recording.timeline.began, 0.0)
            seconds = time.perf_counter() - self._began
            recording.blocks.append(Event(self.name, start, seconds, True))

    def __call__(self, function: Callable) -> Callable:
        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with record_function(self.name):
                return function(*args, **kwargs)

        return wrapped


@dataclass(frozen=True)
class Average:
    """All events of one name; times in microseconds. `self_`: without the launches in a block."""

    key: str
    count: int
    cpu_time_total: float
    self_cpu_time_total: float

    @property
    def cpu_time(self) -> float:
        """The mean time of an event."""
        return self.cpu_time_total / self.count if self.count else 0.0


class Averages(list):
    """The averages by name, in the order of the first event; `table` prints them."""

    @property
    def self_cpu_time_total(self) -> float:
        """The time of all events in microseconds, each counted once."""
        return sum(row.self_cpu_time_total for row in self)

    def total_average(self) -> Average:
        """All events as one."""
        count, whole = sum(row.count for row in self), sum(row.cpu_time_total for row in self)
        return Average("Total", count, whole, self.self_cpu_time_total)

    def table(
        self,
        sort_by: str | None = None,
        row_limit: int = 100,
        max_name_column_width: int = 55,
        **options: Any,
    ) -> str:
        """A row for each name. sort_by: "cpu_time_total", "self_cpu_time_total", "cpu_time" or
        "count", the largest first; names with cuda_ or device_ stand for those with cpu_."""
        rows = list(self)
        if sort_by is not None:
            key = sort_by.replace("cuda", "cpu").replace("device", "cpu")
            if key not in ("cpu_time_total", "self_cpu_time_total", "cpu_time", "count"):
                raise ValueError(
                    f"table: sort_by must be 'cpu_time_total', 'self_cpu_time_total', 'cpu_time' "
                    f"or 'count', got {sort_by!r}; memory is not recorded"
                )
            rows.sort(key=lambda row: getattr(row, key), reverse=True)
        whole = self.self_cpu_time_total or 1.0
        width = min(max([len(row.key) for row in rows] + [4]), max_name_column_width)
        heads = ("Self %", "Self time", "Total time", "Time avg", "# of Calls")
        lines = [f"{'Name':<{width}}" + "".join(f"{head:>14}" for head in heads)]
        for row in rows[: row_limit if row_limit >= 0 else None]:
            cells = (
                f"{row.self_cpu_time_total / whole:.2%}",
                *(_text(t) for t in (row.self_cpu_time_total, row.cpu_time_total, row.cpu_time)),
                str(row.count),
            )
            lines.append(f"{row.key[:width]:<{width}}" + "".join(f"{c:>14}" for c in cells))
        rule = "-" * len(lines[0])
        total = f"Self time total: {_text(whole if self else 0.0)}"
        return "\n".join([rule, lines[0], rule, *lines[1:], rule, total])


def _text(microseconds: float) -> str:
    for unit, factor in (("s", 1e6), ("ms", 1e3)):
        if microseconds >= factor:
            return f"{microseconds / factor:.3f}{unit}"
    return f"{microseconds:.3f}us"


class profile:
    """Records the kernel launches of a block: `with profile() as prof: ...`.

    schedule: by the number of the step, which `step` advances, what is done (default: all is
    recorded). on_trace_ready: called with this object at the end of each record. The other
    arguments are torch's, and have no effect.
    """

    def __init__(
        self,
        *,
        activities: Iterable[ProfilerActivity] | None = None,
        schedule: Callable[[int], ProfilerAction] | None = None,
        on_trace_ready: Callable[[profile], Any] | None = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_flops: bool = False,
        with_modules: bool = False,
        **options: Any,
    ) -> None:
        self.schedule, self.on_trace_ready = schedule, on_trace_ready
        self.step_num = 0
        self._recording: _Recording | None = None
        self._events: list[Event] = []

    def start(self) -> None:
        """Begin with step 0; RuntimeError inside another profile."""
        if _Recording.active is not None:
            raise RuntimeError("profile: another profile is recording; they cannot be nested")
        self.step_num = 0
        self._enter(self._action())

    def stop(self) -> None:
        """End the record, if one is in progress."""
        if self._recording is not None:
            self._finish(self._action() is not ProfilerAction.WARMUP)

    def step(self) -> None:
        """The next step begins."""
        before = self._action()
        self.step_num += 1
        after = self._action()
        begins = before is ProfilerAction.WARMUP and after is not ProfilerAction.WARMUP
        if before is ProfilerAction.RECORD_AND_SAVE or begins:
            self._finish(not begins)
        self._enter(after)

    def __enter__(self) -> profile:
        self.start()
        return self

    def __exit__(self, *exc: Any) -> None:
        self.stop()

    def _action(self) -> ProfilerAction:
        return ProfilerAction.RECORD if self.schedule is None else self.schedule(self.step_num)

    def _enter(self, action: ProfilerAction) -> None:
        if action is not ProfilerAction.NONE and self._recording is None:
            self._recording = _Recording()

    def _finish(self, keep: bool) -> None:
        recording, self._recording = self._recording, None
        if recording is None:
            return
        events = recording.finish()
        if keep:
            self._events = events
            if self.on_trace_ready is not None:
                self.on_trace_ready(self)

    def events(self) -> list[Event]:
        """The launches and blocks of the last record, in order."""
        return list(self._events)

    def key_averages(self, group_by_input_shape: bool = False, **options: Any) -> Averages:
        """The events of the last record by name."""
        sums: dict[str, list[float]] = {}
        for event in self._events:
            entry = sums.setdefault(event.name, [0, 0.0, 0.0])
            inside = sum(
                other.seconds
                for other in self._events
                if event.is_block
                and not other.is_block
                and event.start <= other.start < event.start + event.seconds
            )
            entry[0] += 1
            entry[1] += event.seconds * 1e6
            entry[2] += max(event.seconds - inside, 0.0) * 1e6
        return Averages(Average(name, int(n), *times) for name, (n, *times) in sums.items())

    def export_chrome_trace(self, path: str) -> None:
        """The last record as a file for chrome://tracing and ui.perfetto.dev (".gz": packed)."""
        import gzip

        content = {
            "displayTimeUnit": "ms",
            "traceEvents": [
                {
                    "name": event.name,
                    "cat": "user_annotation" if event.is_block else "kernel",
                    "ph": "X",
                    "ts": event.start * 1e6,
                    "dur": event.seconds * 1e6,
                    "pid": os.getpid(),
                    "tid": 0 if event.is_block else 1,
                }
                for event in self._events
            ],
        }
        opened = gzip.open if os.fspath(path).endswith(".gz") else open
        with opened(path, "wt") as file:
            json.dump(content, file)
