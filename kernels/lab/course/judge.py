"""The judge of the exercises: what is wrong with a run, and the hint that fits.

Mistakes in memory explain wrong values, so they come first; then values; then what the exercise
demands of a kernel whose values are right.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from kernels.host import RawKernel
from kernels.lab.course.exercise import Demands, Exercise, Problem, Result
from kernels.lab.course.tasks.table import blocks
from kernels.lab.course.values import difference
from kernels.lab.report.findings import Access, Finding
from kernels.lab.report.measurement import Line
from kernels.lab.report.report import Report

_MISSING = {
    "shared": "no shared memory is used",
    "barrier": "no barrier (cuda.syncthreads()) is used",
    "shuffle": "no shuffle (cuda.shfl_down_sync) is used: a warp adds up in registers with it",
    "atomics": "no atomic operation is used",
    "ballot": "no ballot (cuda.ballot_sync) is used: it says for which lanes a condition is true",
    "grid_barrier": "no barrier of the whole grid (cuda.cg.this_grid().sync()) is used",
    "tensor_cores": "no tensor core is used: nvcuda::wmma::mma_sync multiplies two fragments",
}
_CALLS = {"ballot": "ballot", "grid_barrier": "sync()", "tensor_cores": "mma_sync"}


def mistake(
    problem: Problem, report: Report, again: Callable[[], Problem], advice: dict[str, str]
) -> Result | None:
    """What is wrong with a run, or None. `again` runs the kernel once more, on results that hold a
    number where they held NaN; `advice` is the exercise's."""
    for finding in [*report.errors, *report.races, *report.warnings]:
        if finding.kind != "harmless":
            kind = finding.kind
            if kind == "race":
                kind = f"{finding.space} race" + " of a line" * (len(set(finding.lines)) == 1)
            finding = replace(finding, hint=advice.get(kind, finding.hint))
            return Result(False, _hint(finding, problem, report), report, finding)
    for number, (got, expected) in enumerate(zip(problem.results, problem.expected)):
        if not np.allclose(got, expected, rtol=1e-3, atol=problem.atol, equal_nan=False):
            second = again().results[number]
            return Result(False, difference(got, second, expected, problem), report)
    return None


def unmet(exercise: Exercise, problem: Problem, report: Report) -> Result | None:
    """Which demand of the exercise a run with right values does not meet, or None."""
    hint = _unmet(exercise, problem, report)
    return Result(False, f"the values are right, but {hint}", report) if hint else None


def praise(report: Report) -> str:
    """How well a right kernel does."""
    total = report.totals
    words = [f"{total.sector_efficiency:.0%} of the sectors moved are ideal"]
    if total.shared_requests:
        words.append(f"{total.bank_efficiency:.0%} of the shared wavefronts")
    words.append(f"{total.lane_share:.0%} of the lanes are active")
    said = ", ".join(words)
    for finding in report.warnings:
        said += f"; warning: {finding.message} (line {finding.accesses[0].lineno}), which is"
        said += " harmless while the values are equal"
    return said


# What is demanded


def _unmet(exercise: Exercise, problem: Problem, report: Report) -> str | None:
    """Which demand a kernel with right values does not meet."""
    demands = exercise.demands
    missing = [name for name in demands.instruments if not _used(name, report)]
    total, threads = report.totals, report.grid_blocks * report.threads
    for name in ("shuffle", "atomics", *_CALLS):
        if name in missing:
            return _MISSING[name]
    if total.atomics > demands.atomics * threads:
        return (
            f"there are {total.atomics} atomic operations for {threads} threads: add up in the warp"
            " or block first, and let one thread of it do one"
        )
    arrays = sum(arg.nbytes for arg in problem.args if isinstance(arg, np.ndarray))
    # CUDA C is recorded as written: what a compiler would load once may count twice
    limit = demands.traffic * (2 if isinstance(report.kernel, RawKernel) else 1)
    if limit and total.bytes > limit * arrays:
        said = _too_much_traffic(total.bytes / arrays, demands, missing, report)
        return f"{said}: {exercise.advice['traffic']}" if "traffic" in exercise.advice else said
    if total.lane_share < demands.lanes:
        worst = max(report.lines, key=lambda line: 32 * line.executions - line.active_lanes)
        return (
            f"few threads do the work of all: line {worst.lineno} runs {worst.executions} times"
            f" with {32 * worst.lane_share:.3g} of 32 lanes on average: {worst.source.strip()}."
            " Share it among the threads"
        )
    if missing:
        return _MISSING[missing[0]]
    return _inefficient(demands, report) or _unused_speed(exercise, problem, report)


def _used(name: str, report: Report) -> bool:
    """Whether a kernel used one of the instruments."""
    if name not in _CALLS:
        return name in report.instruments
    return any(line.executions and _CALLS[name] in line.source for line in report.lines)


def _unused_speed(exercise: Exercise, problem: Problem, report: Report) -> str | None:
    """Whether registers, wide loads and the overlap of loads and products are used as demanded."""
    demands, total = exercise.demands, report.totals
    passed = [
        line.executions for line in report.lines if "syncthreads" in line.source and line.executions
    ]
    each = sum(passed) / (report.blocks * blocks(report.threads, 32))
    if problem.barriers and each > problem.barriers:
        return (
            f"a block passes {each:.3g} barriers, and {problem.barriers} are enough: load the next"
            " tile into the other buffer before this one is used, so that one barrier serves both"
        )
    if demands.shared_reads and total.shared_bytes > demands.shared_reads * total.flops:
        worst = max(report.lines, key=lambda line: line.shared_bytes)
        return (
            f"shared memory gives {total.shared_bytes / total.flops:.2g} bytes per operation, line"
            f" {worst.lineno} most: {worst.source.strip()}. {exercise.advice['shared_reads']}"
        )
    if demands.width and total.bytes < demands.width * 32 * total.requests:
        worst = max(report.lines, key=lambda line: line.requests)
        return (
            f"a lane asks for {total.bytes / (32 * total.requests):.2g} bytes at a time, line"
            f" {worst.lineno} most: {worst.source.strip()}. A float4 is 16 bytes in one load"
        )
    return None


def _too_much_traffic(times: float, demands: Demands, missing: list[str], report: Report) -> str:
    worst = max(report.lines, key=lambda line: line.bytes)
    where = f"line {worst.lineno} most: {worst.source.strip()}"
    moved = f"the threads ask for {times:.3g} times the bytes that the arrays hold, {where}"
    if any(finding.kind == "harmless" for finding in report.warnings):
        return (
            f"every thread does the work of all: {moved}. Give each thread elements of its own, by"
            " its index in the grid or block"
        )
    if "shared" not in demands.instruments:
        return f"{moved}. Read each element once, into a variable"
    unused = "no shared memory is used, and " if "shared" in missing else ""
    return f"{unused}{moved}. Load each element once, and take it from shared memory afterwards"


def _inefficient(demands: Demands, report: Report) -> str | None:
    total = report.totals
    if total.sector_efficiency < demands.efficiency:
        worst = max(report.lines, key=lambda line: line.excess_sectors)
        return (
            "memory access is not coalesced: neighbours in x should touch neighbouring elements."
            f" Line {worst.lineno} moves {worst.sectors / worst.requests:.3g} sectors per request:"
            f" {worst.source.strip()}"
        )
    if demands.efficiency and total.bank_efficiency < demands.efficiency:
        worst = max(report.lines, key=_conflicts)
        return (
            f"line {worst.lineno} has bank conflicts ({worst.worst_wavefronts} lanes wait for one"
            f" bank): {worst.source.strip()}. One more column in the tile puts a column into"
            " different banks"
        )
    return None


def _conflicts(line: Line) -> int:
    return line.wavefronts - line.ideal_wavefronts


# Findings of the recorder


def _hint(finding: Finding, problem: Problem, report: Report) -> str:
    """Advice for a race or an error."""
    if finding.kind == "bounds":
        return _bounds_hint(finding, problem, report)
    if finding.kind == "race":
        return f"two threads race for {finding.array}: {finding.hint}"
    if finding.kind == "uninitialised":
        return f"shared memory is read where no thread wrote it: {finding.hint}"
    if finding.kind in ("barrier", "returned"):
        return f"not all threads reach the barrier: {finding.hint}"
    if finding.kind == "endless":
        return finding.message
    return finding.hint


def _bounds_hint(finding: Finding, problem: Problem, report: Report) -> str:
    if finding.index is None or finding.axis is None:
        return finding.hint
    index, axis, array = finding.index[0], finding.axis, finding.array
    where = f"an index ({index}) is outside of {array}"
    space, shape, _ = report.arrays.get(array, ("", (), 0))
    if space == "shared":
        return f"{where}, which has {shape[axis]} elements: is it too small? Else {finding.hint}"
    x, y = _position(finding.accesses[0], problem)
    matrix, flat = len(shape) == 2 and isinstance(problem.grid, tuple), len(shape) == 1
    if matrix and index == (x, y)[axis] != (y, x)[axis]:
        return (
            f"{where}: are x and y swapped? The last index is the column, which x runs along."
            " Guard both"
        )
    is_thread = index == (y, x)[axis] if matrix else index == x
    if is_thread and flat and finding.count == 1 and index == shape[0]:
        return f"{where}, and no other: a guard with <= lets one too many in"
    if is_thread and "`if" in finding.hint:
        return f"{where}: there are more threads than elements; {finding.hint}"
    return f"{where}: {finding.hint}"


def _position(access: Access, problem: Problem) -> tuple[int, int]:
    """(x, y) of a thread in the grid."""
    block = problem.block if isinstance(problem.block, tuple) else (problem.block, 1)
    return tuple(b * size + t for b, size, t in zip(access.block, block, access.thread))[:2]
