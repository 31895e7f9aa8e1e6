"""A block of a CUDA C kernel, line by line: the recorder's trace of executed lines and accesses.

Machine code runs, so there are no variables to show; which threads execute a line, what they read
and write, and the barriers are as in the other dialect.
"""

from __future__ import annotations

import linecache
import math
import re
from collections.abc import Iterable
from typing import Any

import numpy as np

from kernels.host import checked, recording, source
from kernels.lab.record import recorder as rec
from kernels.lab.record import trace as tracing
from kernels.lab.record.cuda_c_profiler import _Run
from kernels.lab.report.steps import Event, Memory, Touch, Trace
from kernels.support.limits import Dimensions, block_of, launch_dimensions

_DTYPES = {
    "float": "f4", "double": "f8", "int": "i4", "unsigned": "u4", "long long": "i8", "char": "i1",
    "short": "i2", "__half": "f2", "half": "f2", "bool": "?",
}  # fmt: skip


def trace(
    kernel: Any, grid: Any, block: Any, args: tuple, shared: int, at: Dimensions | int, events: int
) -> Trace:
    """The steps of block `at`. `events`: how many lines executed by threads are kept. `args` are
    written to, as by a launch."""
    grid, block = launch_dimensions(kernel.name, grid, block)
    at = block_of(kernel.name, at, grid)
    number = at[0] + grid[0] * (at[1] + grid[1] * at[2])
    recorded = recording.Recorded(kernel)
    recorded.compiled.dimensions(grid, block)
    before = {id(arg): arg.copy() for arg in args if isinstance(arg, np.ndarray)}
    with checked.placed(recorded.compiled.pack, args, recorded=True) as (packed, slots):
        run = _Run(recorded, grid, block, packed, slots, args, shared, 4 * events, {})
        run.state.head[rec.TRACE_LINES] = 1
        together = recorded.cooperative
        run.start(run.choose(None if together else [number]), sampled=not together)
        report = run.report(0)
        rows = run.state.trace[: int(run.state.head[rec.TRACED])]
        rows = rows[rows[:, 1] >> 10 == number]
        names = recorded.compiled.pack.names
        initial = {n: before[id(arg)] for n, arg in zip(names, args) if id(arg) in before}
        memories = _Memories(run, initial, kernel.code)
        threads = math.prod(block)
        steps = tracing.merge(_events(run, rows, memories, threads))
    lines = [line + "\n" for line in kernel.code.splitlines()]
    linecache.cache[run.main] = (len(kernel.code), None, lines, run.main)
    error = next((finding.message for finding in report.errors), "")
    first = (run.main, source.extent(kernel.code, kernel.name)[0])
    cut = bool(run.state.head[rec.TRACED] == len(run.state.trace))
    return Trace(kernel.name, grid, block, at, first, steps, memories.found, error, cut)


class _Memories:
    """The arrays of a run, by the recorder's rows, and their elements by offset."""

    def __init__(self, run: _Run, initial: dict[str, np.ndarray], code: str) -> None:
        self.run, self.initial, self.code = run, initial, code
        self.found: list[Memory] = []
        self.numbers: dict[int, int] = {}

    def number(self, row: int) -> int:
        if row not in self.numbers:
            self.numbers[row] = len(self.found)
            self.found.append(self._made(row))
        return self.numbers[row]

    def _made(self, row: int) -> Memory:
        memory = self.run.memories[row]
        if memory.shared is None:
            name, view = memory.views[0]
            start = self.initial.get(name)
            values = None if start is None else start.ravel()
            return Memory(name, "global", view.dtype, view.shape, view.strides, 0, values)
        one = memory.shared
        dtype = self._dtype(one.name, one.itemsize)
        shape = one.shape or (max(one.nbytes, self.run.shared) // dtype.itemsize,)
        strides = np.empty(shape, dtype).strides
        return Memory(one.name, "shared", dtype, shape, strides)

    def _dtype(self, name: str, itemsize: int) -> np.dtype:
        """The type that a shared variable is declared with, else bits of its size."""
        pattern = rf"__shared__\s+((?:\w+\s+)+?)[^;]*\b{re.escape(name)}\b"
        found = re.search(pattern, self.code)
        words = found[1].strip() if found else ""
        known = next((code for key, code in _DTYPES.items() if key == words), None)
        return np.dtype(known or f"u{itemsize if itemsize in (1, 2, 4, 8) else 4}")

    def touches(self, op: str, row: int, offset: int, size: int, value: int) -> list[Touch]:
        """An access as elements. The value of an atomic operation is known afterwards only."""
        number = self.number(row)
        dtype = self.found[number].dtype
        bits = np.int64(value).tobytes()
        touches = []
        for at in range(0, max(size, dtype.itemsize), dtype.itemsize):
            part = bits[at : at + dtype.itemsize]
            known = op != "atomic" and len(part) == dtype.itemsize
            held = np.frombuffer(part, dtype)[0].item() if known else None
            touches.append(Touch(op, number, (offset + at) // dtype.itemsize, held))
        return touches


def _events(
    run: _Run, rows: np.ndarray, memories: _Memories, threads: int
) -> Iterable[list[Event]]:
    """What each thread executes, in order."""
    found: list[list[Event]] = [[] for _ in range(threads)]
    current: list[list[Event]] = [[] for _ in range(threads)]  # of the last block of code
    for site, who, row, offset, size, _, epoch, value in rows.tolist():
        thread, place = who & 1023, run.sites[site]
        mine = found[thread]
        if place.kind == "lines":
            current[thread] = [_executed(mine, one, epoch) for one in place.lines]
            continue
        event = _at(current[thread], place.place)
        if event is None:
            event = _executed(mine, place.place, epoch)
            current[thread].append(event)
        if place.kind == "barrier":
            event.barrier = place.array
            for later in current[thread][current[thread].index(event) + 1 :]:
                later.epoch = epoch + 1  # a block of code goes on behind its barrier
        else:
            event.touches += memories.touches(place.kind, row, offset, size, value)
    return found


def _executed(events: list[Event], place: tuple[str, int], epoch: int) -> Event:
    """The event of a line that a thread executes: a new one, or the last, where the line's parts
    are several blocks of code (the head of a loop)."""
    last = events[-1] if events else None
    if last is None or last.place != place or last.epoch != epoch or last.touches or last.barrier:
        events.append(Event((place[1],), place, epoch))
    return events[-1]


def _at(events: list[Event], place: tuple[str, int]) -> Event | None:
    return next((event for event in events if event.place == place), None)
