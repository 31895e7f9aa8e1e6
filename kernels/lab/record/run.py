"""One run under the recorder, of a kernel in any dialect: its memory, its blocks, its findings."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from kernels.lab.record import recorder as rec
from kernels.lab.record.clone import Clone, Shared
from kernels.lab.record.instrument import Place, Site
from kernels.lab.record.state import State
from kernels.lab.report.findings import (
    Access,
    Finding,
    Triple,
    absent_lanes,
    endless,
    missing_lanes,
    race_hint,
    same_value,
)
from kernels.lab.report.hints import LoopCondition, guard_hint, python_loop
from kernels.lab.report.measurement import Counts, Line
from kernels.lab.report.report import Report
from kernels.simt.backend import entry
from kernels.simt.ir import checks
from kernels.support import limits
from kernels.support.errors import LaunchError, SimtError
from kernels.support.memory import owner_of

MAX_RECORDS = 500_000_000  # of a run whose blocks were not chosen: some 20 seconds
MAX_WATCHED = 1 << 26  # elements of an array: a shadow takes 64 bytes of those that are touched
_WHAT = {"load": "reads", "store": "writes", "atomic": "atomically changes", "barrier": "waits"}


class LabError(SimtError):
    """A kernel that the lab cannot run under the recorder."""


class Memory(NamedTuple):
    """A row of the recorder's memory: a shared array, or one that arguments lie in."""

    space: str
    shared: Shared | None
    views: list[tuple[str, np.ndarray]]  # arguments by name


class Run:
    """One profile: the clone, the recorder's state, and what came of it.

    What is here serves any dialect, but for the clone itself: `cuda_c_profiler` has its own.
    """

    def __init__(
        self, clone: Clone, grid: Triple, block: Triple, args: tuple, shared: int, records: int
    ) -> None:
        self.clone, self.grid, self.block, self.args, self.shared = clone, grid, block, args, shared
        self.threads = block[0] * block[1] * block[2]
        self.blocks = grid[0] * grid[1] * grid[2]
        self.sites = clone.facts.sites
        self.notes: list[str] = []
        self.errors: list[Finding] = []
        self.returned: tuple[int, int, int] | None = None
        self.ran = 0
        self.ended = False  # by the kernel's own fault
        self.memories: list[Memory] = []
        rows = self.rows()
        together = self.blocks if clone.facts.cooperative else 1
        self.state = State(self.site_room(), rows, 1024 * together, records)
        for number, memory in enumerate(self.memories):
            self.watch(number, memory, together)
        self.error = entry.report()

    def site_room(self) -> int:
        return len(self.sites)

    # -- memory --------------------------------------------------------------------------------

    def rows(self) -> np.ndarray:
        """The memory that the kernel can share: its shared arrays, then those of arguments."""
        rows = []
        for array in self.clone.facts.shared:
            size = array.nbytes or self.shared
            rows.append((rec.SHARED, 0, 0, array.grain, size * self.clone.facts.cooperative))
            self.memories.append(Memory("shared", array, []))
        owners: dict[int, list] = {}
        for name, arg in zip(self.clone.facts.parameters, self.args):
            if isinstance(arg, np.ndarray) and arg.size:
                owner = owner_of(arg)
                owners.setdefault(owner.ctypes.data, [owner, []])[1].append((name, arg))
        for owner, views in owners.values():
            low, high = np.lib.array_utils.byte_bounds(owner)
            grain = np.gcd.reduce(
                [grain_of(view.dtype) for _, view in views]
                + [view.ctypes.data - low for _, view in views]
            )
            rows.append((rec.GLOBAL, low, high, int(grain), 0))
            self.memories.append(Memory("global", None, views))
        table = np.zeros((max(len(rows), 1), rec.MEMORY_COLUMNS), np.int64)
        virtual = 0
        for row, (kind, low, high, grain, each) in zip(table, rows):
            row[rec.START], row[rec.END], row[rec.KIND] = low, high, kind
            row[rec.GRANULE] = (grain & -grain).bit_length() - 1
            row[rec.BLOCK_BYTES], row[rec.VIRTUAL] = each, virtual
            if kind == rec.GLOBAL:
                virtual += (high - low + 511) // 256 * 256
        return table

    def watch(self, number: int, memory: Memory, together: int) -> None:
        row = self.state.memories[number]
        size = int(row[rec.END] - row[rec.START])
        if memory.shared is not None:
            size = (memory.shared.nbytes or self.shared) * together
        granules = (size >> int(row[rec.GRANULE])) + 1
        if granules > MAX_WATCHED:
            names = ", ".join(name for name, _ in memory.views)
            self.notes.append(f"races on {names} were not looked for: it has {granules} elements")
        else:
            self.state.watch(number, granules)

    # -- running -------------------------------------------------------------------------------

    def choose(self, blocks: int | Sequence[int] | None) -> list[int]:
        """The linear indices of the blocks to run, in order."""
        if blocks is None:
            return list(range(self.blocks))
        if self.clone.facts.cooperative:
            raise LabError(f"{self.clone.name}: a grid barrier needs all blocks; leave out blocks=")
        if isinstance(blocks, int):
            return _spread(range(self.blocks), blocks)
        chosen = sorted({int(b) for b in blocks})
        if not chosen or not 0 <= chosen[0] <= chosen[-1] < self.blocks:
            raise LaunchError(
                f"{self.clone.name}: blocks={list(blocks)!r}: the grid has blocks 0 to"
                f" {self.blocks - 1}"
            )
        return chosen

    def start(self, chosen: list[int], sampled: bool) -> None:
        """Run the blocks `chosen`; fewer where they would take too long and were not asked for.

        They run on a thread of their own, because a signal reaches Python on its main thread only
        when no kernel runs there. Ctrl-C stops the kernel.
        """
        with ThreadPoolExecutor(1) as worker:
            running = worker.submit(copy_context().run, self._run, chosen, sampled)
            try:
                running.result()
            except KeyboardInterrupt:
                self.state.head[rec.STOP] = rec.INTERRUPTED
                raise

    def _run(self, chosen: list[int], sampled: bool) -> None:
        if self.clone.facts.cooperative:
            self._launch(range(self.blocks))
            return
        todo = chosen
        while todo and not self.ended:
            self._launch(range(todo[0], todo[0] + 1))
            todo = todo[1:]
            if self.ran == 1 and todo and not sampled:
                each = max(int(self.state.head[rec.RECORDS]), 1)
                todo = _spread(todo, max(MAX_RECORDS // each - 1, 1))
        if self.ran < self.blocks and not self.ended:
            self.notes.append(
                f"sampled: {self.ran} of {self.blocks} blocks were run; counts are theirs,"
                " and only races among them can be seen"
            )

    def _launch(self, blocks: range) -> None:
        self.state.begin()
        self.execute(blocks)
        self.state.finish()
        self.ran += len(blocks)
        if not self.ended:
            self._note_returned(blocks)

    def execute(self, blocks: range) -> None:
        """Run some blocks of the grid, and note why it ended if it should not have."""
        self.error[: limits.REPORT] = 0
        try:
            status = self.clone.run(
                blocks, self.grid, self.shared, self.error, self.args, self.state.address
            )
        except checks.CheckFailed:
            if self.state.head[rec.STOP]:
                self.stopped()
            elif self.error[0]:
                self._stopped("bounds" if self.error[0] == checks.BOUNDS else "uninitialised")
            else:
                self.notes.append("the run ended at an index outside of its array")
                self.ended = True
        except Exception as error:
            if self.error[0] != checks.RAISED:
                raise
            self._stopped("exception", error)
        else:
            if status:
                kinds = {checks.ENDLESS: "endless", checks.LANES: "lanes"}
                self._stopped(kinds.get(int(self.error[0]), "barrier"))

    def stopped(self) -> None:
        """The run was interrupted, or a thread's loop does not end."""
        self.ended = True
        if self.state.head[rec.STOP] == rec.ENDLESS:
            site = self.sites[int(self.state.head[rec.STOPPED_SITE])]
            who = int(self.state.head[rec.STOPPED_WHO])
            self.errors.append(self.endless(site.place, who, self.loop_condition(site.place)))

    def endless(self, place: Place, who: int, condition: LoopCondition | None) -> Finding:
        line = condition.line if condition else place[1]
        return endless(self.access((place[0], line), "loops", who), condition)

    def loop_condition(self, place: Place) -> LoopCondition | None:
        return python_loop(*place)

    def _note_returned(self, blocks: range) -> None:
        """Whether threads had returned where others waited at a barrier."""
        if self.returned is not None:
            return
        for position, number in enumerate(blocks):
            first = 1024 * position
            clocks = self.state.clocks[first : first + self.threads]
            passed = clocks[:, rec.BLOCK_CLOCK]
            if passed.min() != passed.max():
                waits, left = int(passed.argmax()), int(passed.argmin())
                site = int(clocks[waits, rec.LAST_BARRIER])
                self.returned = (site, number << 10 | waits, number << 10 | left)
                return

    def _stopped(self, kind: str, error: Exception | None = None) -> None:
        """A finding for what ended the run."""
        self.ended = True
        block, thread = int(self.error[2]), int(self.error[3]) % self.threads
        who = block << 10 | thread
        if kind in ("barrier", "endless", "lanes"):
            place = self._place_of_line(int(self.error[1]))
        else:
            array, _, line = self.clone.sites[int(self.error[1])]
            place = self._place_of_line(line)
        if kind == "barrier":
            self.errors.append(self.divergent(place, self._waiting(place, who), who))
        elif kind == "lanes":
            access = self.access(place, "executes it", who)
            self.errors.append(absent_lanes(access, int(self.error[4]), int(self.error[5])))
        elif kind == "endless":
            condition = self.loop_condition(place)
            if condition and not condition.waits:
                self.errors.append(self.endless(place, who, condition))
                return
            access = self.access(place, "keeps reading", who)
            message = "a thread waits for memory that no other thread will write"
            hint = "threads of other blocks may run later: do not wait for them in a loop"
            self.errors.append(Finding("barrier", message, (access,), hint))
        elif kind == "exception":
            access = self.access(place, f"raises {type(error).__name__}", who)
            hint = "a GPU ends the thread without a message"
            self.errors.append(Finding("exception", str(error), (access,), hint))
        else:
            access = self.access(place, "accesses", who)
            text = str(
                checks.explain(
                    self.clone.name, self.error, self.clone.sites, self.block, self.grid, place[0]
                )
            )
            message = text.partition(": ")[2].partition(", block")[0]
            hint = "guard the access, or make the array larger"
            self.errors.append(Finding(kind, message, (access,), hint, array))

    def divergent(self, place: Place, waiting: int, missing: int) -> Finding:
        accesses = (
            self.access(place, "waits", waiting),
            self.access(place, "does not come", missing),
        )
        return Finding(
            "barrier",
            "divergent barrier: only some of the block's threads reach it",
            accesses,
            "move cuda.syncthreads() out of the condition, so that all threads reach it",
        )

    def _returned(self, place: Place, waiting: int, left: int) -> Finding:
        accesses = (
            self.access(place, "waits", waiting),
            self.access(place, "has returned", left),
        )
        return Finding(
            "returned",
            "some threads had returned when others reached a barrier",
            accesses,
            "guard the work with `if`, not the thread with `return`: new GPUs go on without such"
            " threads, old ones hang",
            severity="warning",
        )

    def _waiting(self, place: Place, missing: int) -> int:
        """A thread of the same block that waits at a barrier which `missing` does not come to."""
        block, first = missing >> 10, 0
        if len(self.state.clocks) > 1024:
            first = block << 10
        for thread in range(self.threads):
            site = int(self.state.clocks[first + thread, rec.LAST_BARRIER])
            here = site >= 0 and self.sites[site].place[1] == place[1]
            if here and thread != missing & 1023:
                return block << 10 | thread
        return missing

    # -- findings ------------------------------------------------------------------------------

    def _place_of_line(self, line: int) -> Place:
        for site in self.sites:
            for place in (site.place, *site.lines):
                if place[1] == line:
                    return place
        return self.sites[0].place

    def access(self, place: Place, what: str, who: int) -> Access:
        block = checks.coordinates(who >> 10, self.grid)
        thread = checks.coordinates(who & 1023, self.block)
        source = self.clone.facts.sources.get(place, "")
        return Access(what, block, thread, *place, source)

    def element(self, memory: int, offset: int, site: Site) -> tuple[str, tuple[int, ...] | None]:
        """(the name of an array, the index in it) for a byte of some memory."""
        kind = self.memories[memory]
        if kind.shared is not None:
            shape, size = kind.shared.shape, kind.shared.itemsize
            if not shape:
                return site.array, (offset // site.itemsize,)
            return kind.shared.name, _unravel(offset // size, shape)
        start = int(self.state.memories[memory, rec.START])
        views = sorted(kind.views, key=lambda view: view[0] != site.array)
        name, view = views[0]
        place = start + offset - view.ctypes.data
        if view.flags.c_contiguous and 0 <= place < view.nbytes:
            return name, _unravel(place // view.itemsize, view.shape)
        index = []
        for stride, length in sorted(zip(view.strides, view.shape), reverse=True):
            index.append(min(place // stride, length - 1) if stride > 0 else 0)
            place -= index[-1] * stride
        order = sorted(range(view.ndim), key=lambda axis: -view.strides[axis])
        return name, tuple(index[order.index(axis)] for axis in range(view.ndim))

    def found(self) -> tuple[list[Finding], list[Finding], list[Finding]]:
        """(races, errors, warnings) of the recorder's table."""
        races: dict[tuple, Finding] = {}
        errors, unwritten, harmless = list(self.errors), [], []
        warnings: list[Finding] = []
        rows = self.state.findings[: int(self.state.head[rec.FOUND])].tolist()
        rows.sort(key=lambda row: -(row[rec.WHAT] & rec.APART))  # those far apart need most
        racing: set[int] = set()
        for row in rows:
            what, site = row[rec.WHAT], self.sites[row[rec.SITE_B]]
            if what & ~rec.APART in (rec.READ_WRITE, rec.WRITE_WRITE):
                if self._is_verified(row):
                    continue
                race = self._race(row)
                racing |= {row[rec.SITE_A], row[rec.SITE_B]}
                key = (race.array, race.space, frozenset(race.lines))
                known = races.setdefault(key, race)
                if known is not race:
                    races[key] = replace(known, count=known.count + race.count)
            elif what & ~rec.APART == rec.SAME_VALUE:
                harmless.append(row)
            elif what == rec.UNWRITTEN:
                unwritten.append(row)
            elif what == rec.MISSING_LANES:
                access = self.access(site.place, "reads", row[rec.WHO_B])
                errors.append(
                    missing_lanes(access, row[rec.INDEX], row[rec.LENGTH], row[rec.COUNT])
                )
            else:
                finding = self.outside(row, site)
                (warnings if finding.severity == "warning" else errors).append(finding)
        warnings += self._harmless(harmless, racing)
        for row in unwritten:
            if row[rec.SITE_B] not in racing:  # else the race says it better
                errors.append(self._unwritten(row, self.sites[row[rec.SITE_B]]))
        if self.returned is not None:
            site, waits, left = self.returned
            place = self.sites[site].place
            if any(line < place[1] for line in self.clone.facts.returns):
                warnings.append(self._returned(place, waits, left))
            else:
                errors.append(self.divergent(place, waits, left))
        return list(races.values()), errors, warnings

    def _harmless(self, rows: list[list[int]], racing: set[int]) -> list[Finding]:
        """Stores of equal values by several threads, one finding for each array and lines; none
        where a race says it already."""
        found: dict[tuple, Finding] = {}
        for row in rows:
            if {row[rec.SITE_A], row[rec.SITE_B]} & racing:
                continue
            race = self._race(row)
            known = found.get((race.array, race.lines))
            count = race.count + (known.count if known else 0)
            found[race.array, race.lines] = same_value(known or race, count)
        return list(found.values())

    def _is_verified(self, row: list[int]) -> bool:
        """Whether a race is of an atomic operation and a read after which its threads change the
        element atomically: a loop around a compare-and-swap begins so, and sees what it missed."""
        kinds = {self.sites[row[site]].kind: row[site] for site in (rec.SITE_A, rec.SITE_B)}
        if set(kinds) != {"atomic", "load"}:
            return False
        return bool(self.state.stats[kinds["load"], rec.VERIFIED])

    def _race(self, row: list[int]) -> Finding:
        site_a, site_b = self.sites[row[rec.SITE_A]], self.sites[row[rec.SITE_B]]
        who_a, who_b = row[rec.WHO_A], row[rec.WHO_B]
        a = self.access(site_a.place, _WHAT[site_a.kind], who_a)
        b = self.access(site_b.place, _WHAT[site_b.kind], who_b)
        array, index = self.element(row[rec.WHERE], row[rec.OFFSET], site_a)
        space = self.memories[row[rec.WHERE]].space
        barriers = [s.place[1] for s in self.sites if s.kind == "barrier"]
        hint = race_hint(space, a, b, barriers, who_a >> 5 == who_b >> 5)
        message = f"{space} {array}[{_text(index)}]: unsynchronised accesses by two threads"
        return Finding(
            "race", message, (a, b), hint, array, index, space, row[rec.OFFSET], row[rec.COUNT]
        )

    def _unwritten(self, row: list[int], site: Site) -> Finding:
        array, index = self.element(row[rec.WHERE], row[rec.OFFSET], site)
        message = f"uninitialised: shared {array}[{_text(index)}] is read, and no thread wrote it"
        access = self.access(site.place, _WHAT[site.kind], row[rec.WHO_B])
        return Finding(
            "uninitialised",
            message,
            (access,),
            "write every element that is read, zero where the input has ended, then"
            " cuda.syncthreads()",
            array,
            index,
            "shared",
            row[rec.OFFSET],
            row[rec.COUNT],
        )

    def outside(self, row: list[int], site: Site) -> Finding:
        axis, index, length = row[rec.AXIS], row[rec.INDEX], row[rec.LENGTH]
        access = self.access(site.place, _WHAT[site.kind], row[rec.WHO_B])
        size = f"{site.array}.shape[{axis}] is {length}"
        if row[rec.WHAT] == rec.WRAPPED:
            message = f"index {index} of {site.array} counts from the end: {size}"
            hint = "C has no such indices; if the first element's neighbour is meant, guard it"
            kind, severity = "wraps", "warning"
        else:
            message = f"out of bounds: index {index} of {site.array}, axis {axis}: {size}"
            hint = guard_hint(site.array, axis, index, access.source)
            kind, severity = "bounds", "error"
        return Finding(
            kind,
            message,
            (access,),
            hint,
            site.array,
            (index,),
            count=row[rec.COUNT],
            severity=severity,
            axis=axis,
        )

    # -- the report ----------------------------------------------------------------------------

    def lines(self) -> list[Line]:
        facts = self.clone.facts
        lines = {
            place: Line(lineno=place[1], source=text, filename=place[0])
            for place, text in facts.sources.items()
        }
        for site, stat in zip(self.sites, self.state.stats.tolist()):
            if site.kind == "shuffle":
                lines[site.place].shuffles += stat[rec.REQUESTS]
            elif site.kind == "lines":
                for place, operations in site.lines.items():
                    flops = operations * stat[rec.LANES]
                    executions = Counts(stat[rec.REQUESTS], stat[rec.LANES], flops=flops)
                    lines[place].add(executions)
            elif stat[rec.REQUESTS]:
                counts = traffic(site, stat, self.memories[stat[rec.PLACE] - 1])
                lines[site.place].add_part(site.kind, site.text or site.array, counts)
        return list(lines.values())

    def report(self, seconds: float) -> Report:
        facts = self.clone.facts
        races, errors, warnings = self.found()
        self.notes += [f"not recorded: {what}" for what in facts.missed]
        if self.state.head[rec.OVERFLOW]:
            self.notes.append(
                f"a thread made more than {rec.CAPACITY_OF_A_WARP} accesses between two barriers:"
                " where other lanes did too, what they did together counts as several requests"
            )
        lines = self.lines()
        static = sum(array.nbytes for array in facts.shared)
        return Report(
            self.clone.name,
            lines[0].filename,
            self.grid,
            self.block,
            lines,
            races,
            errors,
            warnings,
            static + self.shared,
            self.ran,
            int(self.state.head[rec.RECORDS]),
            seconds,
            self.notes,
            self._records() if len(self.state.trace) else None,
            self.arrays(),
            self.instruments(lines),
            self.clone.kernel,
            self.clone.kinds,
        )

    def instruments(self, lines: list[Line]) -> set[str]:
        """What the kernel used of "shared" memory, "barrier", "shuffle" and "atomics"."""
        used = {"shared"} if any(line.shared_requests for line in lines) else set()
        used |= {"atomics"} if any(line.atomics for line in lines) else set()
        for site, stat in zip(self.sites, self.state.stats):
            if site.kind == "shuffle" and stat[rec.REQUESTS]:
                used.add("shuffle")
            if site.kind == "barrier" and stat[rec.LANES]:
                used.add("barrier")
        return used

    def arrays(self) -> dict[str, tuple[str, tuple[int, ...], int]]:
        """(space, shape, bytes per element) of each array, by name."""
        found = {}
        for memory in self.memories:
            if memory.shared is not None:
                _, nbytes, itemsize, _, shape = memory.shared
                size = nbytes or self.shared
                found[memory.shared.name] = ("shared", shape or (size // itemsize,), itemsize)
            for name, view in memory.views:
                found[name] = (memory.space, view.shape, view.itemsize)
        return found

    def _records(self) -> np.ndarray:
        """The trace with names in the place of numbers."""
        rows = self.state.trace[: int(self.state.head[rec.TRACED])]
        kinds = [
            *(("line", "i4"), ("op", "U6"), ("space", "U6"), ("array", "U32"), ("block", "i4")),
            *(("thread", "i4"), ("offset", "i8"), ("size", "i4"), ("barriers", "i4")),
        ]
        out = np.empty(len(rows), kinds)
        sites, who = rows[:, 0], rows[:, 1]
        out["line"] = np.array([site.place[1] for site in self.sites])[sites]
        out["op"] = np.array([site.kind for site in self.sites])[sites]
        out["array"] = np.array([site.array for site in self.sites])[sites]
        spaces = [*(memory.space for memory in self.memories), ""]  # -1: no memory
        out["space"] = np.array(spaces)[rows[:, 2]]
        out["block"], out["thread"] = who >> 10, who & 1023
        out["offset"], out["size"], out["barriers"] = rows[:, 3], rows[:, 4], rows[:, 6]
        return out


def traffic(site: Site, stat: list[int], memory: Memory) -> Counts:
    counts = Counts()
    if site.kind == "atomic":
        counts.atomics, counts.contention = stat[rec.LANES], stat[rec.CONTENTION]
    if memory.space == "global":
        counts.requests, counts.bytes = stat[rec.REQUESTS], stat[rec.BYTES]
        counts.sectors, counts.ideal_sectors = stat[rec.SECTORS], stat[rec.IDEAL_SECTORS]
        counts.excess_sectors, counts.worst_sectors = stat[rec.EXCESS_SECTORS], stat[rec.WORST]
    else:
        counts.shared_requests, counts.shared_bytes = stat[rec.REQUESTS], stat[rec.BYTES]
        counts.wavefronts = stat[rec.WAVEFRONTS]
        counts.ideal_wavefronts = stat[rec.IDEAL_WAVEFRONTS]
        counts.worst_wavefronts = stat[rec.WORST]
    return counts


def grain_of(dtype: np.dtype) -> int:
    """How many bytes all sizes and offsets in an element are multiples of."""
    sizes = [dtype.itemsize]
    for field, offset, *_ in (dtype.fields or {}).values():
        sizes += [offset, grain_of(field.base)]
    return int(np.gcd.reduce(sizes))


def _spread(blocks: Sequence[int], count: int) -> list[int]:
    """`count` of the blocks, evenly spread."""
    if count < 1:
        raise LaunchError(f"blocks={count}: at least one block is run")
    step = max(len(blocks) / count, 1.0)
    return [blocks[int(i * step)] for i in range(min(count, len(blocks)))]


def _unravel(position: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(position, shape))


def _text(index: tuple[int, ...] | None) -> str:
    return ", ".join(map(str, index or ("?",)))
