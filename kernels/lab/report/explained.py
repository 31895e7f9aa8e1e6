"""Pictures that explain a kernel, from what was recorded of it: `draw.explained` draws them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kernels.lab.draw import explained
from kernels.lab.draw.canvas import Picture
from kernels.lab.draw.explained import Arrow, Shuffle
from kernels.lab.report.maps import _known, _of
from kernels.lab.report.measurement import Measurement
from kernels.support.names import counted


def thread_map(report: Measurement, array: str, op: str = "") -> Picture:
    """Which thread of the grid touches which element of a global array, as arrows; threads and
    elements that are left over are marked. For a launch of one dimension with at most 40 threads,
    recorded with `profile(..., records=10_000)`."""
    _, shape, itemsize = _known(report, array)
    found = _of(report, array, op)
    number = found["block"] * report.threads + found["thread"]
    rows = zip(number.tolist(), (found["offset"] // itemsize).tolist(), found["op"].tolist())
    arrows = [Arrow(*row) for row in dict.fromkeys(rows)]
    threads, elements = report.grid_blocks * report.threads, int(np.prod(shape))
    title = f"{report.name}: {threads} threads, {elements} elements of {array}"
    return explained.threads_picture(array, threads, report.threads, elements, arrows, title)


def between_barriers(report: Measurement, array: str, block: int = 0) -> Picture:
    """Who reads and who writes which element of a shared array between two barriers each, of one
    block. For blocks of at most 40 threads, recorded with `profile(..., records=10_000)`."""
    _, shape, itemsize = _known(report, array)
    found = _of(report, array, "")
    found = found[found["block"] == block]
    phases: dict[str, list[Arrow]] = {}
    for epoch in np.unique(found["barriers"]).tolist():
        mine = found[found["barriers"] == epoch]
        lines = sorted(set(mine["line"].tolist()))
        where = "after barrier " + str(epoch) if epoch else "before the first barrier"
        rows = zip(
            mine["thread"].tolist(), (mine["offset"] // itemsize).tolist(), mine["op"].tolist()
        )
        name = f"{where}, line {', '.join(map(str, lines))}"
        phases[name] = [Arrow(*row) for row in dict.fromkeys(rows)]
    title = f"{report.name}: {array} between barriers"
    return explained.phases_picture(array, report.threads, int(np.prod(shape)), phases, title)


def footprint(
    report: Measurement, arrays: Sequence[str], thread: int | None = 0, block: int = 0
) -> Picture:
    """How often one thread of a block (or all of it, with None) accesses each element of some
    arrays: what a register tile reads and what it makes. The report must have records."""
    whose = f"thread {thread}" if thread is not None else "all threads"
    parts = {}
    for array in arrays:
        space, shape, itemsize = _known(report, array)
        found = _of(report, array, "")
        found = found[found["block"] == block]
        if thread is not None:
            found = found[found["thread"] == thread]
        counts = np.bincount(found["offset"] // itemsize, minlength=int(np.prod(shape)))
        table = counts.reshape(-1, shape[-1]) if len(shape) > 1 else counts.reshape(1, -1)
        parts[f"{array} ({space})"] = table
    title = f"{report.name}: what {whose} of block {block} touches"
    each = round(report.flops / max(report.grid_blocks * report.threads, 1))
    note = f"{counted(each, 'operation')} per thread"
    return explained.footprint_picture(parts, title, note)


def shuffle_tree(steps: Any, warp: int = 0) -> Picture:
    """A warp's shuffles, as `lab.step` recorded them: which lane takes which lane's value."""
    rows = [one for one in steps.shuffles if one.thread // 32 == warp]
    if not rows:
        raise ValueError(f"shuffle_tree: warp {warp} of {steps.trace.name} executes no shuffle")
    each: dict[int, list] = {}
    names: list[str] = []
    taken: dict[int, int] = {}
    for one in rows:
        step = taken[one.thread] = taken.get(one.thread, -1) + 1
        if step == len(names):
            names.append(one.name)
        each.setdefault(step, []).append((one.thread % 32, one.source, one.value, one.got))
    found = [
        Shuffle(_said(names[step], lanes), tuple(sorted(lanes))) for step, lanes in each.items()
    ]
    title = f"{steps.trace.name}: {len(found)} shuffles of warp {warp}"
    return explained.shuffles_picture(found, title)


def _said(name: str, lanes: list) -> str:
    """The operation with how far its values go."""
    kind = name.removeprefix("shfl_").removesuffix("_sync")
    distances = {abs(source - lane) for lane, source, *_ in lanes if source != lane}
    return f"{kind} {min(distances)}" if len(distances) == 1 else kind


def history(steps: Any, *names: str, thread: tuple[int, int, int] | int = 0) -> Picture:
    """The values of a thread's variables after each change of the first of `names`, as `lab.step`
    recorded them: the online softmax is `history(steps, "value", "top", "total")`."""
    if not names:
        raise ValueError("history: name the variables to show")
    trace = steps.trace
    x, y, z = (thread, 0, 0) if isinstance(thread, int) else thread
    number = x + trace.block[0] * (y + trace.block[1] * z)
    values: dict[str, list] = {name: [] for name in names}
    now: dict[str, Any] = {}
    open_row = False
    for step in trace.steps:
        if number not in step.threads:
            continue
        event = step.events[step.threads.index(number)]
        known = {n: v for n, v in event.changes.items() if n in values}
        if names[0] in known:
            if open_row:
                _close(values, now)
            open_row = True
        now |= known
    if open_row:
        _close(values, now)
    if not values[names[0]]:
        raise ValueError(f"history: thread {thread} of {trace.name} never assigns {names[0]!r}")
    title = f"{trace.name}: {', '.join(names)} of thread {thread} over its loop"
    return explained.history_picture(values, title)


def _close(values: dict[str, list], now: dict[str, Any]) -> None:
    for name, column in values.items():
        value = now.get(name)
        column.append(None if value is None else float(value))
