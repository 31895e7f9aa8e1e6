"""What a profile measured: counts by source line, totals, races and errors."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from typing import Any

import numpy as np

from kernels.lab.report.findings import Finding, Triple

SECTOR = 32  # bytes


@dataclass
class Counts:
    """What warps did. See `kernels.lab` for the definitions.

    `executions` are those of a line by warps, `active_lanes` the lanes that took part in all of
    them together. `requests`, `sectors`, `ideal_sectors` and `bytes` (asked for by lanes) are of
    global memory, `shared_requests`, `wavefronts`, `ideal_wavefronts` of shared memory;
    `shuffles` are those of warps; `atomics` are operations by lanes, `contention` how many more
    than one went to the same address at once; `worst_sectors` and `worst_wavefronts` are those of
    the worst single request (or phase of one: 32 is a 32-way bank conflict).
    """

    executions: int = 0
    active_lanes: int = 0
    requests: int = 0
    sectors: int = 0
    ideal_sectors: int = 0
    excess_sectors: int = 0
    bytes: int = 0
    shared_requests: int = 0
    wavefronts: int = 0
    ideal_wavefronts: int = 0
    shared_bytes: int = 0
    atomics: int = 0
    contention: int = 0
    shuffles: int = 0
    flops: int = 0
    worst_sectors: int = 0
    worst_wavefronts: int = 0

    def add(self, other: Counts) -> None:
        for item in fields(Counts):
            mine, theirs = getattr(self, item.name), getattr(other, item.name)
            worst = item.name.startswith("worst_")
            setattr(self, item.name, max(mine, theirs) if worst else mine + theirs)

    @property
    def lane_share(self) -> float:
        """Active lanes over lanes of the warps that executed the line: 1 is no divergence."""
        return self.active_lanes / (32 * self.executions) if self.executions else 0.0

    @property
    def sector_efficiency(self) -> float:
        """Sectors that the lanes' bytes would fill over sectors touched, at most 1."""
        if not self.sectors:
            return 1.0
        return (self.sectors - self.excess_sectors) / self.sectors

    @property
    def bank_efficiency(self) -> float:
        """Ideal wavefronts over wavefronts."""
        return self.ideal_wavefronts / self.wavefronts if self.wavefronts else 1.0


@dataclass
class Part(Counts):
    """The counts of one access of a line. op: "load", "store" or "atomic"; text: as the source says
    it, `x[i + 1]`, or the name of the array."""

    op: str = ""
    text: str = ""


@dataclass
class Line(Counts):
    """The counts of one source line, and of each access in it."""

    lineno: int = 0
    source: str = ""
    filename: str = ""
    parts: list[Part] = field(default_factory=list)

    def add_part(self, op: str, text: str, counts: Counts) -> None:
        """Add an access; those of equal `op` and `text` are one."""
        self.add(counts)
        for part in self.parts:
            if (part.op, part.text) == (op, text):
                return part.add(counts)
        self.parts.append(Part(op=op, text=text))
        self.parts[-1].add(counts)


@dataclass
class Measurement:
    """A kernel's run under the recorder, as data; `Report` shows it.

    lines: of the kernel's source, then lines of other functions that it calls (`Line.filename`
    tells). races, errors, warnings: `Finding`s. `flops` and `global_bytes` (32 for each sector) are
    totals of the blocks that were run: `blocks` of the grid's `grid_blocks`; `scale` is how many
    times more the whole grid is. `shared_bytes` is what a block has, static and dynamic. `records`
    are the first accesses as a structured array, where `profile(..., records=n)` asked for them.
    arrays: (space, shape, bytes per element) of the arrays that it can touch, by name. instruments:
    what it used of "shared" memory, "barrier", "shuffle" and "atomics". `kernel` and `types` are
    what was profiled, for `compiled`.
    """

    name: str
    filename: str
    grid: Triple
    block: Triple
    lines: list[Line]
    races: list[Finding]
    errors: list[Finding]
    warnings: list[Finding]
    shared_bytes: int
    blocks: int
    accesses: int
    seconds: float
    notes: list[str] = field(default_factory=list)
    records: np.ndarray | None = None
    arrays: dict[str, tuple[str, tuple[int, ...], int]] = field(default_factory=dict)
    instruments: set[str] = field(default_factory=set)
    kernel: Any = field(default=None, repr=False)
    types: tuple = field(default=(), repr=False)

    @property
    def grid_blocks(self) -> int:
        return self.grid[0] * self.grid[1] * self.grid[2]

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.block[0] * self.block[1] * self.block[2]

    @property
    def scale(self) -> float:
        return self.grid_blocks / self.blocks if self.blocks else 0.0

    @property
    def findings(self) -> list[Finding]:
        """Races and errors, then warnings."""
        return [*self.races, *self.errors, *self.warnings]

    @cached_property
    def totals(self) -> Counts:
        """The sums over all lines."""
        total = Counts()
        for line in self.lines:
            total.add(line)
        return total

    @property
    def flops(self) -> int:
        """Floating-point operations."""
        return self.totals.flops

    @property
    def global_bytes(self) -> int:
        """Bytes of the sectors moved to and from global memory."""
        return SECTOR * self.totals.sectors

    @property
    def intensity(self) -> float:
        """Arithmetic intensity: floating-point operations for each byte of global memory moved,
        without what caches save."""
        return self.flops / self.global_bytes if self.global_bytes else 0.0

    def line(self, lineno: int) -> Line:
        """The counts of a line of the kernel's file. Raises KeyError."""
        for line in self.lines:
            if line.lineno == lineno and line.filename == self.filename:
                return line
        raise KeyError(f"{self.name} has no line {lineno}")

    def at(self, text: str) -> Line:
        """The counts of the one executed line whose source has `text`. Raises KeyError."""
        found = [line for line in self.lines if text in line.source and line.executions]
        if len(found) != 1:
            raise KeyError(f"{len(found)} executed lines of {self.name} contain {text!r}")
        return found[0]

    def json(self) -> str:
        """Everything but the records, as JSON."""
        data: dict[str, Any] = {
            "name": self.name,
            "file": self.filename,
            "grid": self.grid,
            "block": self.block,
            "blocks": self.blocks,
            "shared_bytes": self.shared_bytes,
            "flops": self.flops,
            "global_bytes": self.global_bytes,
            "intensity": self.intensity,
            "totals": asdict(self.totals),
            "lines": [asdict(line) for line in self.lines],
            "races": [finding.json() for finding in self.races],
            "errors": [finding.json() for finding in self.errors],
            "warnings": [finding.json() for finding in self.warnings],
            "instruments": sorted(self.instruments),
            "notes": self.notes,
        }
        return json.dumps(data, indent=1)
