"""The lab for CUDA C: a raw kernel, compiled for recording, under the same recorder.

What is counted and how a race is found is `recorder`, as for the other dialect. Here is what
differs: the memory that the runtime lays out, sites that are known by their place in machine code,
and what the runtime says when a kernel goes wrong.
"""

from __future__ import annotations

import ctypes
import linecache
import re
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from kernels.host import checked, compiler, recording, source
from kernels.host.arguments import ByValue
from kernels.host.columns import subscript
from kernels.lab.record import recorder as rec
from kernels.lab.record.clone import Facts, Shared
from kernels.lab.record.instrument import Place, Site
from kernels.lab.record.run import LabError, Memory, Run, grain_of, owner_of, traffic
from kernels.lab.report.findings import Access, Finding, Triple
from kernels.lab.report.hints import LoopCondition, c_loop
from kernels.lab.report.measurement import Counts, Line
from kernels.lab.report.report import Report
from kernels.support.errors import LaunchError
from kernels.support.limits import launch_dimensions

_SHARED_LIMIT = 227 * 1024
_STATIC_LIMIT = 48 * 1024
_DIMENSION, _NOWHERE = -1, -2  # in the place of a row: an index of an array type, a null pointer
MAX_STEPS = 1 << 22  # basic blocks that a thread may run in a row: some seconds
_NOTHING = ctypes.c_char_p(b"")
_SITES = 8192  # places of accesses, distinguished by their call stack
_SPARE = 8  # shared variables of instances of templates: more than their declarations
_GRAIN = 2  # shared memory is watched in pieces of 4 bytes, until something accesses less
_KINDS = ("load", "store", "atomic", "barrier")
_BARRIERS = ("__syncthreads", "__syncwarp", "this_grid().sync()")
_SHUFFLE = re.compile(r"\b__shfl(_up|_down|_xor)?_sync\b|\b__reduce_\w+_sync\b|\.shfl\w*\(")
_WORDS = {
    "cuda.grid(1)": "blockIdx.x * blockDim.x + threadIdx.x",
    "cuda.gridsize(1)": "gridDim.x * blockDim.x",
    "cuda.shfl_down_sync": "__shfl_down_sync",
    "cuda.syncthreads()": "__syncthreads()",
    "cuda.syncwarp()": "__syncwarp()",
    "cuda.atomic.add": "atomicAdd",
    "cuda.atomic": "an atomic function",
}
_FAILED, _TOO_MUCH_SHARED, _ILLEGAL = 1, 2, 3  # as in kernels/host/runtime/report.h


def profile(
    kernel: Any,
    grid: Any,
    block: Any,
    args: tuple,
    shared: int,
    blocks: int | Sequence[int] | None,
    records: int,
) -> Report:
    """`kernels.lab.profile` for a raw kernel."""
    name = kernel.name
    grid, block = launch_dimensions(name, grid, block)
    if not 0 <= shared <= _SHARED_LIMIT:
        raise LaunchError(f"{name}: {shared} bytes of dynamic shared memory; at most 232448")
    for arg in args:
        if type(arg).__module__.partition(".")[0] == "cupy":
            raise LabError(f"{name}: the lab runs kernels on NumPy arrays; pass cupy.asnumpy(...)")
    recorded = recording.Recorded(kernel)
    recorded.compiled.dimensions(grid, block)  # its launch bounds are those of the compiled kernel
    with recorded.shared_variables():
        return _profile(recorded, grid, block, args, shared, blocks, records)


def _profile(
    recorded: recording.Recorded,
    grid: Triple,
    block: Triple,
    args: tuple,
    shared: int,
    blocks: int | Sequence[int] | None,
    records: int,
) -> Report:
    finer: dict[int, int] = {}
    saved = [ctypes.string_at(address, size) for _, address, size in recorded.variables]
    with checked.placed(recorded.compiled.pack, args, recorded=True) as (packed, slots):
        while True:
            run = _Run(recorded, grid, block, packed, slots, args, shared, records, finer)
            chosen = run.choose(blocks)
            started = time.perf_counter()
            run.start(chosen, sampled=blocks is not None)
            if run.coarse is None:
                return run.report(time.perf_counter() - started)
            finer[run.coarse] = run.finer(run.coarse)
            for slot in slots:
                ctypes.memmove(slot.placed, slot.begin, slot.end - slot.begin)
            for (_, address, size), before in zip(recorded.variables, saved):
                ctypes.memmove(address, before, size)


def in_cuda_c(hint: str) -> str:
    """A hint in the words of CUDA C."""
    for word, ours in _WORDS.items():
        hint = hint.replace(word, ours)
    return hint


def parameters(kernel: Any) -> list[str]:
    """The names of a raw kernel's parameters."""
    plain = kernel.name.partition("<")[0].rpartition("::")[2].strip()
    texts = source.kernels(kernel.code).get(plain, [])
    return [source.parameter_name(text, index) for index, text in enumerate(texts)]


class _RawClone:
    """What a `Run` knows of its kernel."""

    def __init__(self, recorded: recording.Recorded, main: str) -> None:
        self.kernel, self.kinds, self.name = recorded.kernel, (), recorded.name
        text = recorded.kernel.code
        self.first, self.last = source.extent(text, recorded.name)
        masked = source.masked(text).split("\n")
        returns = [
            number
            for number in range(self.first, self.last + 1)
            if re.search(r"\breturn\b", masked[number - 1])
        ]
        names = recorded.compiled.pack.names
        self.facts = Facts([], [], names, recorded.cooperative, [], {}, [], returns)
        self.lines = text.splitlines()


class _Run(Run):
    """One profile of a raw kernel. `coarse` is a row of memory that must be watched more finely."""

    def __init__(
        self,
        recorded: recording.Recorded,
        grid: Triple,
        block: Triple,
        packed: bytes,
        slots: list[checked.Slot],
        args: tuple,
        shared: int,
        records: int,
        finer: dict[int, int],
    ) -> None:
        self.recorded, self.code, self.packed, self.slots = recorded, recorded.code, packed, slots
        self.main = recorded.library.file
        self.grains, self.coarse = finer, None
        super().__init__(_RawClone(recorded, self.main), grid, block, args, shared, records)
        head = self.state.head
        head[rec.PATIENT], head[rec.MAX_STEPS] = 1, MAX_STEPS
        head[rec.TRAP] = ctypes.cast(compiler.runtime().mgh_trap, ctypes.c_void_p).value
        head[rec.NOTHING] = ctypes.cast(_NOTHING, ctypes.c_void_p).value
        self._tell_runtime()

    # -- memory --------------------------------------------------------------------------------

    def site_room(self) -> int:
        return len(self.code.blocks) + _SITES

    def rows(self) -> np.ndarray:
        """A row for each slot of arrays, device variable and shared variable there can be."""
        rows: list[tuple[int, int, int, int, int]] = []
        virtual: dict[int, int] = {}
        end = 0
        for slot in self.slots:
            views = [(self._name(label), _placed(slot, array)) for label, array in slot.arrays]
            owner = owner_of(slot.arrays[0][1])
            low, high = np.lib.array_utils.byte_bounds(owner)
            if low not in virtual:
                virtual[low], end = end, end + (high - low + 511) // 256 * 256
            offsets = [array.ctypes.data - slot.begin for _, array in slot.arrays]
            grain = np.gcd.reduce([grain_of(view.dtype) for _, view in views] + offsets)
            size = slot.end - slot.begin
            at = virtual[low] + slot.begin - low
            rows.append((rec.GLOBAL, slot.placed, size, int(grain & -grain).bit_length() - 1, at))
            by_value = all(isinstance(array, ByValue) for _, array in slot.arrays)
            self.memories.append(Memory("constant" if by_value else "global", None, views))
        for name, address, size in self.recorded.variables:
            memory = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))
            rows.append((rec.GLOBAL, address, size, _GRAIN, end))
            end += (size + 511) // 256 * 256
            self.memories.append(Memory("global", None, [(name, memory)]))
        self.first_shared = len(rows)
        declared = len(re.findall(r"\b__shared__\b", source.masked(self.recorded.kernel.code)))
        for _ in range(declared + _SPARE + 1):
            rows.append((rec.SHARED, 0, 0, _GRAIN, 0))
            self.memories.append(Memory("shared", Shared("", 0, 4, 4, ()), []))
        table = np.zeros((len(rows), rec.MEMORY_COLUMNS), np.int64)
        self.grain = np.zeros(len(rows), np.uint8)
        for number, (row, (kind, low, size, grain, at)) in enumerate(zip(table, rows)):
            self.grain[number] = grain = self.grains.get(number, grain)
            row[rec.START], row[rec.END], row[rec.KIND] = low, low + size, kind
            row[rec.GRANULE], row[rec.VIRTUAL] = grain, at
            row[rec.BLOCK_BYTES] = kind == rec.SHARED and self.recorded.cooperative
        return table

    def _name(self, label: str) -> str:
        """The parameter's name in checked mode's "argument 2 (out)"; "_p_x" is `x` of an expression
        for each element."""
        return label.partition("(")[2].rstrip(")").removeprefix("_p_")

    def watch(self, number: int, memory: Memory, together: int) -> None:
        if memory.shared is None:
            super().watch(number, memory, together)
        else:  # memory that is not touched is not there
            size = max(_STATIC_LIMIT, self.shared) * together
            try:
                self.state.watch(number, size >> int(self.grain[number]))
            except MemoryError:
                raise LabError(
                    f"{self.clone.name}: no memory to watch the shared memory of {together} blocks"
                    " at once; launch fewer"
                ) from None

    def finer(self, row: int) -> int:
        """In which pieces to watch a row that is accessed in smaller ones than now."""
        item = self.memories[row].shared.itemsize if self.memories[row].shared else 1
        grain = (item & -item).bit_length() - 1
        return grain if grain < self.grain[row] else 0

    def _tell_runtime(self) -> None:
        recorder = self.recorder = self.recorded.recorder()
        recorder.head = self.state.address
        for name in ("note", "execute", "arrive", "declare", "outside", "finish"):
            setattr(recorder, name, rec.address(name))
        self.places = (recording.Site * _SITES)()
        recorder.sites = self.places
        recorder.first_site, recorder.site_room = len(self.code.blocks), _SITES
        self.held = (recording.Held * (len(self.memories) - len(self.slots)))()
        recorder.held, recorder.held_room = self.held, len(self.held)
        recorder.first_held = len(self.slots)
        for held, (_, address, size) in zip(self.held, self.recorded.variables):
            held.begin, held.bytes = address, size
            recorder.held_count += 1
        recorder.grain = self.grain.ctypes.data

    # -- running -------------------------------------------------------------------------------

    def execute(self, blocks: range) -> None:
        report = self.recorded.run(
            self.packed, blocks, self.grid, self.block, self.shared, self.recorder
        )
        if self.recorder.misfit >= 0:
            self.coarse, self.ended = self.recorder.misfit, True
            self._name_shared()
        elif self.state.head[rec.STOP]:
            self._name_shared()
            self._name_sites()
            self.stopped()
        elif report.status:
            self.ended = True
            self._wrong(report)

    def _wrong(self, report: Any) -> None:
        """A finding for what ended the run."""
        message = report.message.decode(errors="replace")
        if report.status == _TOO_MUCH_SHARED or "needs a cooperative launch" in message:
            raise LaunchError(f"{self.clone.name}: {message}")
        line = re.match(r"line (\d+): ", message)
        frames = (self.code.place(at - self.recorder.base) for at in report.frame[: report.frames])
        place = next(filter(None, frames), (self.main, int(line[1]) if line else self.clone.first))
        places = [(self.main, line) if line else place for line in report.where]
        waits = "deadlock" in message or "divergent barrier" in message
        accesses = tuple(
            self.access(places[i], "waits" if waits else "is there", report.who[i])
            for i in range(report.named)
        )
        hint = "move __syncthreads() out of the condition, so that all threads reach it"
        kind, message = "barrier", message.partition("; every thread")[0]
        if "reads from lane" in message:
            message, hint = message.split("; ")
            kind = "shuffle"
        elif "mask" in message:
            hint = "every lane that the mask names must come to the call: take it out of the branch"
        elif "this_grid" in message:
            hint = "every block must come to this_grid().sync(): take it out of the condition"
        elif "spins" in message:
            hint = "threads of other blocks may run later: do not wait for them in a loop"
        elif report.status == _ILLEGAL:
            kind, hint = "bounds", _fault_hint(message)
        elif not waits:
            kind, hint = "exception", "a GPU stops, and the program can launch nothing more"
        elif "divergent" not in message:
            message = f"divergent barrier: {message}"
        rows = self.state.findings[: int(self.state.head[rec.FOUND])]
        outside = (rows[:, rec.WHAT] == rec.BOUNDS) | (rows[:, rec.WHAT] == rec.WRAPPED)
        known = outside & (rows[:, rec.AXIS] != _DIMENSION)
        if report.status == _FAILED or report.who[0] not in rows[known, rec.WHO_B]:
            self.errors.append(Finding(kind, message, accesses, hint))
        if report.status != _FAILED:
            self.notes.append("the run ended at an access outside of its array")

    def loop_condition(self, place: Place) -> LoopCondition | None:
        file, line = place
        return c_loop(self.clone.lines if file == self.main else linecache.getlines(file), line)

    # -- findings ------------------------------------------------------------------------------

    def access(self, place: Place, what: str, who: int) -> Access:
        found = super().access(place, what, who)
        return replace(found, source=self._text(place))

    def _text(self, place: Place) -> str:
        file, line = place
        if file != self.main:
            return linecache.getline(file, line).rstrip("\n")
        return self.clone.lines[line - 1] if 0 < line <= len(self.clone.lines) else ""

    def element(self, memory: int, offset: int, site: Site) -> tuple[str, tuple[int, ...] | None]:
        name, index = super().element(memory, offset, site)
        if len(self.slots) <= memory < self.first_shared:
            index = (offset // max(site.itemsize, 1),)
        return name, index

    def found(self) -> tuple[list[Finding], list[Finding], list[Finding]]:
        """Those of the recorder, in C's words; of a wrong index each line's first."""
        lists = []
        for findings in super().found():
            kept: dict[Any, Finding] = {}
            for number, finding in enumerate(findings):
                hint = in_cuda_c(finding.hint)
                key = finding.lines if finding.kind == "bounds" else number
                kept.setdefault(key, replace(finding, hint=hint))
            lists.append(list(kept.values()))
        return lists[0], lists[1], lists[2]

    def outside(self, row: list[int], site: Site) -> Finding:
        memory, offset, size = row[rec.AXIS], row[rec.INDEX], row[rec.LENGTH]
        what = {"load": "reads", "store": "writes", "atomic": "atomically changes"}[site.kind]
        array, space, item = "", "", 1
        if memory >= 0:
            kind = self.memories[memory]
            space = kind.space
            array = kind.shared.name if kind.shared else " or ".join(n for n, _ in kind.views)
            item = kind.shared.itemsize if kind.shared else kind.views[0][1].itemsize
            if memory >= len(self.slots) and item == 1:  # of no type that is known
                item = site.itemsize
            index = offset // item
            text = f"index {index} of {array}, which has {size // item} elements"
            if offset % item:
                text = f"byte {offset} of {array}, which has {size} bytes"
        elif memory == _NOWHERE:
            index, text = 0, "a null pointer (an argument None?)"
        else:
            index, array, what = offset, "an array", "uses the index"
            text = f"index {index} in a dimension of {size}"
        access = self.access(site.place, what, row[rec.WHO_B])
        return Finding(
            "bounds",
            f"out of bounds: {text}",
            (access,),
            "guard the access with the array's size (`if (i < n)`), or make the array larger",
            array,
            (index,),
            space,
            offset,
            row[rec.COUNT],
        )

    # -- the report ----------------------------------------------------------------------------

    def report(self, seconds: float) -> Report:
        self._name_shared()
        self._name_sites()
        self._name_lines()
        return super().report(seconds)

    def _name_shared(self) -> None:
        """What the runtime has met of shared variables."""
        first = len(self.slots)
        for number in range(self.recorder.held_count):
            held, row = self.held[number], first + number
            if not held.key:
                continue
            item, dimensions = held.shape[0], held.shape[1]
            shape = tuple(held.shape[2 + i] for i in range(dimensions)) if item > 1 else ()
            if not dimensions and item > 1:
                shape = (1,)
            grain = 1 << int(self.grain[row])
            shared = Shared(held.name.decode(), held.bytes, item, grain, shape)
            self.memories[row] = Memory("shared", shared, [])
        unmet = self.recorder.held_count + first
        del self.memories[unmet:]
        dynamic = "dynamic shared memory"
        self.clone.facts.shared[:] = [
            m.shared for m in self.memories if m.shared and m.shared.name != dynamic
        ]

    def _name_sites(self) -> None:
        """Blocks of code, then the places of accesses, as the recorder numbers them."""
        code, stats = self.code, self.state.stats
        self.sites = [Site("lines", next(iter(b.lines)), lines=b.lines) for b in code.blocks]
        self.unmodelled: set[int] = set()
        missed = set()
        for number in range(self.recorder.site_count):
            site = self.places[number]
            frames = site.frame[: site.frames]
            places = [(self.main, site.line)] if site.line else map(code.place, frames)
            place = next(filter(None, places), (self.main, self.clone.first))
            row = int(stats[len(self.sites), rec.PLACE]) - 1
            kind, array = _KINDS[site.op], ""
            if site.op == recording.BARRIER:
                array = _BARRIERS[site.size]
            elif row >= 0:
                memory = self.memories[row]
                array = memory.shared.name if memory.shared else memory.views[0][0]
            if frames and code.is_from(frames[0], "mma.h"):
                self.unmodelled.add(len(self.sites))
                missed.add(
                    "the traffic of WMMA's loads and stores (which lane moves what is not"
                    " documented); races are looked for"
                )
            self.sites.append(Site(kind, place, array, site.size))
        if self.recorder.site_count == _SITES:
            missed.add(f"more than {_SITES} places of accesses: some lines' counts are mixed up")
        if self.recorded.library.trivial:
            missed.add(
                "structures passed by value straight from memory (this source has a union"
                " or constant of them)"
            )
        if code.tensor:
            missed.add("the operations of tensor cores (mma)")
        self.clone.facts.missed[:] = sorted(missed)

    def _name_lines(self) -> None:
        """The kernel's lines, and those of other functions that were run."""
        ran = {
            place
            for site, stat in zip(self.sites, self.state.stats[:, rec.REQUESTS])
            if stat
            for place in (site.place, *site.lines)
        }
        ran |= {(self.main, line) for line in range(self.clone.first, self.clone.last + 1)}
        for file, line in sorted(ran):  # a line or two between them belong there too
            for gap in (2, 3):
                if (file, line + gap) in ran:
                    ran |= {(file, line + i) for i in range(1, gap)}
        order = sorted(ran, key=lambda place: (place[0] != self.main, *place))
        self.clone.facts.sources.update((place, self._text(place)) for place in order)

    def instruments(self, lines: list[Line]) -> set[str]:
        """As for the other dialect; shuffles are found in the source."""
        text = "\n".join(self.clone.lines[self.clone.first - 1 : self.clone.last])
        used = super().instruments(lines)
        return used | ({"shuffle"} if _SHUFFLE.search(source.masked(text)) else set())

    def lines(self) -> list[Line]:
        """A line is executed as often as the block of its code that is run most: the parts of a
        loop's head are blocks of their own."""
        lines = {
            place: Line(lineno=place[1], source=text, filename=place[0])
            for place, text in self.clone.facts.sources.items()
        }
        executions: dict[tuple[int, Place], tuple[int, int]] = {}
        alike = Counter((site.place, site.kind, site.array) for site in self.sites)
        stats = self.state.stats.tolist()
        for number, (site, stat) in enumerate(zip(self.sites, stats)):
            if not stat[rec.REQUESTS] or number in self.unmodelled:
                continue
            if site.kind == "lines":
                function = self.code.blocks[number].function
                ran = stat[rec.REQUESTS], stat[rec.LANES]
                for place, operations in site.lines.items():
                    lines[place].flops += operations * stat[rec.LANES]
                    key = function, place
                    executions[key] = max(executions.get(key, (0, 0)), ran)
            elif site.kind != "barrier":
                memory = self.memories[stat[rec.PLACE] - 1]
                if memory.space == "constant":  # no traffic of global memory
                    continue
                counts = traffic(site, stat, memory)
                several = alike[site.place, site.kind, site.array] > 1
                text = self._expression(number, site) if several else None
                lines[site.place].add_part(site.kind, text or site.array, counts)
        for (_, place), (warps, lanes) in executions.items():
            lines[place].add(Counts(warps, lanes))
        return list(lines.values())

    def _expression(self, number: int, site: Site) -> str | None:
        """The subscript that a site is, where the compiler tells it."""
        place = self.places[number - len(self.code.blocks)]
        library = self.recorded.library.loaded._name
        line, source = site.place[1], self.recorded.kernel.code.splitlines()
        if site.place[0] != self.main or not 0 < line <= len(source):
            return None
        frames = (at for at in place.frame[: place.frames] if self.code.place(at) == site.place)
        return next((subscript(library, at, line, source[line - 1]) for at in frames), None)


def _fault_hint(message: str) -> str:
    """What helps against an access where nothing is."""
    if "dynamic shared memory" in message:
        return "launch with more dynamic shared memory (`shared`), or guard the access"
    if "local memory" in message:
        return "does a function call itself without end? Else make its local arrays smaller"
    return "guard the access, or make the array larger"


def _placed(slot: checked.Slot, array: np.ndarray) -> np.ndarray:
    """An argument where it lies during the run."""
    address = slot.placed + array.ctypes.data - slot.begin
    if not array.size:
        return array
    memory = (ctypes.c_uint8 * array.nbytes).from_address(address)
    return np.frombuffer(memory, array.dtype).reshape(array.shape)
