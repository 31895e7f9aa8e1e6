"""Races and errors as text: which threads, which lines, which element, and the usual fix."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any

from kernels.lab.report.hints import LoopCondition, endless_loop
from kernels.simt.ir.checks import named_lanes, wrong_mask

Triple = tuple[int, int, int]


@dataclass(frozen=True)
class Access:
    """One side of a finding: a thread at a source line."""

    what: str  # "reads", "writes", "atomically changes", "waits", "is missing"
    block: Triple
    thread: Triple
    filename: str
    lineno: int
    source: str

    def __str__(self) -> str:
        code = f"   {self.source.strip()}" if self.source else ""
        return f"block {self.block} thread {self.thread} {self.what}, line {self.lineno}{code}"


@dataclass(frozen=True)
class Finding:
    """Something wrong with a kernel.

    kind: "race", "bounds", "uninitialised", "barrier", "shuffle", "endless", "exception", "wraps",
    "returned" or "harmless" (a race of equal values); the last three are warnings. `accesses` are
    the threads that take part (two for a race), `array` and `index` the element (of an index
    outside, the one on `axis`), `address` its byte offset in the array's memory, `count` how often
    it came about.
    """

    kind: str
    message: str
    accesses: tuple[Access, ...]
    hint: str
    array: str = ""
    index: tuple[int, ...] | None = None
    space: str = ""
    address: int | None = None
    count: int = 1
    severity: str = field(default="error")
    axis: int | None = None

    @property
    def lines(self) -> tuple[int, ...]:
        """The source lines that take part."""
        return tuple(access.lineno for access in self.accesses)

    def __str__(self) -> str:
        rows = [self.message + (f" ({self.count} times)" if self.count > 1 else "")]
        rows += [f"    {access}" for access in self.accesses]
        return "\n".join([*rows, f"    fix: {self.hint}"])

    def json(self) -> dict[str, Any]:
        return asdict(self)


def same_value(race: Finding, count: int) -> Finding:
    """For two stores of the same value: a race by CUDA's rules, and a harmless one."""
    return replace(
        race,
        kind="harmless",
        message=f"{race.space} {race.array}: several threads store the same value",
        hint="harmless while the values are equal; where each thread does the work of all, give"
        " each its own element, else let one thread store it",
        count=count,
        severity="warning",
    )


def missing_lanes(access: Access, lane: int, missing: int, count: int) -> Finding:
    """For a shuffle that reads from lanes which do not execute it; `missing` is their mask."""
    return Finding(
        "shuffle",
        f"a shuffle reads from lane {lane}, which does not execute it (missing:"
        f" {named_lanes(missing)}): the value is undefined",
        (access,),
        "let all lanes of the warp execute the shuffle: take it out of the condition, and guard the"
        " data instead (a lane without data gives 0), not the thread with `return`",
        count=count,
    )


def absent_lanes(access: Access, mask: int, missing: int) -> Finding:
    """For a warp operation whose mask names lanes that are elsewhere, or not the caller."""
    return Finding(
        "shuffle",
        f"a warp operation {wrong_mask(mask, missing)}: a GPU hangs or goes on with wrong data",
        (access,),
        "every lane that the mask names must come to the call: take it out of the branch, or make"
        " the mask from cuda.ballot_sync before the branch",
    )


def endless(access: Access, condition: LoopCondition | None) -> Finding:
    """For a loop that was stopped after very many iterations."""
    message, hint = endless_loop(condition)
    return Finding("endless", message, (access,), hint)


def race_hint(space: str, a: Access, b: Access, barriers: list[int], same_warp: bool) -> str:
    """The usual fix of a race between two accesses; `barriers` are the lines of barriers."""
    writes = {a.what, b.what} == {"writes"}
    changes = a.lineno == b.lineno and a.what != b.what
    if space == "global" and a.block != b.block:
        if changes:
            return "blocks run in any order: use cuda.atomic.add, or let one thread own the element"
        if writes:
            return "give each element to one thread, or use cuda.atomic; blocks run in any order"
        return "no barrier orders two blocks: use two launches, or write to another array"
    if changes and space == "global":
        return "use cuda.atomic.add, or let one thread own the element"
    if writes:
        return "let one thread write the element, or use cuda.atomic"
    if changes:
        return (
            "read into a variable, cuda.syncthreads(), then write; in a loop, one more"
            " cuda.syncthreads() after the write"
        )
    barrier = "cuda.syncwarp() or cuda.syncthreads()" if same_warp else "cuda.syncthreads()"
    if a.filename != b.filename:
        return f"{barrier} between the two accesses"
    first, second = sorted((a.lineno, b.lineno))
    collectives = first in barriers and second in barriers  # each with a barrier of its own
    if any(first < line <= second and not (collectives and line == second) for line in barriers):
        return (
            f"the loop returns to line {first} before all threads have finished line {second}: one"
            f" more {barrier} after line {second}"
        )
    return f"{barrier} between line {first} and line {second}"
