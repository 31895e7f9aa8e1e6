"""Exercises: kernels to be written, checked under the recorder, with a hint that fits the mistake.

    from kernels.lab import exercises

    print(exercises.names())
    print(exercises.text("saxpy"))      # what to write

    @cuda.jit
    def saxpy(a, x, y): ...

    print(exercises.check(saxpy))       # by the kernel's name

`check` runs the kernel on several sizes (odd ones, more than one warp and block), on random data,
and looks at its races, bounds and barriers before it compares values. A kernel that is right is
told how much of the ideal memory traffic it reaches. Solutions: `kernels.lab.solutions`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernels.lab.record.profiler import LabError, profile
from kernels.lab.report.findings import Finding
from kernels.lab.report.report import Report
from kernels.support.errors import SimtError


@dataclass(frozen=True)
class Problem:
    """One launch: the last of `args` are what the kernel writes, and must become `expected`."""

    grid: Any
    block: Any
    args: tuple
    expected: tuple[np.ndarray, ...]


@dataclass(frozen=True)
class Exercise:
    """What is asked for.

    problems: functions of a random generator. uses: what must be used, "shared", "atomics" or
    nothing. efficiency: the share of sectors (and of wavefronts, where shared memory is used) that
    must be useful.
    """

    name: str
    signature: str
    text: str
    problems: tuple[Callable[[np.random.Generator], Problem], ...]
    uses: str = ""
    efficiency: float = 0.0

    def __str__(self) -> str:
        return f"{self.name}({self.signature})\n\n{self.text}"


@dataclass(frozen=True)
class Result:
    """What `check` found. `hint` says what to do, or how well a right kernel does."""

    passed: bool
    hint: str
    report: Report | None = None
    finding: Finding | None = None

    def __bool__(self) -> bool:
        return self.passed

    def __str__(self) -> str:
        lines = ["right" if self.passed else "not yet", self.hint]
        if self.finding is not None:
            lines.append(str(self.finding))
        return "\n".join(lines)


def names() -> list[str]:
    """The exercises in the order in which to do them."""
    return list(_table())


def text(name: str) -> str:
    """What an exercise asks for."""
    return str(_exercise(name))


def check(solution: Any, name: str | None = None, seed: int = 0) -> Result:
    """Try a kernel on the problems of the exercise that it is named after (or of `name`)."""
    exercise = _exercise(name or getattr(solution, "__name__", str(solution)))
    report = None
    for number, make in enumerate(exercise.problems):
        problem = make(np.random.default_rng(seed + number))
        try:
            report = profile(solution, problem.grid, problem.block, *problem.args)
        except SimtError as error:
            return Result(False, f"the kernel does not run: {error}")
        result = _judge(exercise, problem, report)
        if result is not None:
            return result
    return Result(True, _praise(report), report)


def _table() -> dict[str, Exercise]:
    from kernels.lab.course.tasks import EXERCISES

    return {exercise.name: exercise for exercise in EXERCISES}


def _exercise(name: str) -> Exercise:
    table = _table()
    if name not in table:
        raise LabError(
            f"no exercise is named {name!r}: name the kernel after one of {', '.join(table)}, or"
            " say check(kernel, name)"
        )
    return table[name]


def _judge(exercise: Exercise, problem: Problem, report: Report) -> Result | None:
    """What is wrong with a run, or None. Mistakes in memory explain wrong values, so they go
    first."""
    for finding in [*report.errors, *report.races, *report.warnings]:
        return Result(False, _hint(finding, problem), report, finding)
    for got, expected in zip(problem.args[-len(problem.expected) :], problem.expected):
        if not np.allclose(got, expected, rtol=1e-3, atol=1e-4, equal_nan=False):
            return Result(False, _difference(got, expected, problem), report)
    total = report.totals
    if exercise.uses == "shared" and not total.shared_requests:
        return Result(False, "the values are right, but no shared memory is used", report)
    if exercise.uses == "atomics" and not total.atomics:
        return Result(False, "the values are right, but no atomic operation is used", report)
    if total.sector_efficiency < exercise.efficiency:
        worst = max(report.lines, key=lambda line: line.excess_sectors)
        return Result(
            False,
            "the values are right, but memory access is not coalesced: neighbours in x should"
            f" touch neighbouring elements. Line {worst.lineno} moves"
            f" {worst.sectors / worst.requests:.3g} sectors a request:"
            f" {worst.source.strip()}",
            report,
        )
    if exercise.efficiency and total.bank_efficiency < exercise.efficiency:
        worst = max(report.lines, key=lambda line: line.wavefronts - line.ideal_wavefronts)
        return Result(
            False,
            f"the values are right, but line {worst.lineno} has bank conflicts"
            f" ({worst.worst_wavefronts} lanes wait for one bank): {worst.source.strip()}. One more"
            " column in the tile puts a column into different banks",
            report,
        )
    return None


def _hint(finding: Finding, problem: Problem) -> str:
    """Advice for a race or an error."""
    if finding.kind == "bounds":
        where = f"an index ({finding.index[0]}) is outside of {finding.array}"
        if any(isinstance(a, np.ndarray) and a.ndim == 2 for a in problem.args):
            return (
                f"{where}: are x and y swapped? The last index is the column, which x runs along."
                " Guard both"
            )
        if finding.count == 1:
            return f"{where}, and no other: a guard with <= lets one too many in"
        return f"{where}: there are more threads than elements. Guard the access with `if`"
    if finding.kind == "race":
        return f"two threads race for {finding.array}: {finding.hint}"
    if finding.kind == "uninitialised":
        return f"shared memory is read where no thread wrote it: {finding.hint}"
    if finding.kind in ("barrier", "returned"):
        return f"not all threads come to the barrier: {finding.hint}"
    return finding.hint


def _difference(got: np.ndarray, expected: np.ndarray, problem: Problem) -> str:
    """How the values differ, in words."""
    wrong = ~np.isclose(got, expected, rtol=1e-3, atol=1e-4)
    first = tuple(int(i) for i in np.argwhere(wrong)[0])
    where = f"element {', '.join(map(str, first))} is {got[first]:.6g}, not {expected[first]:.6g}"
    untouched = np.isnan(got) if got.dtype.kind == "f" else got == UNTOUCHED
    if untouched.all():
        return "nothing was written to the result"
    if untouched.any():
        at = tuple(int(i) for i in np.argwhere(untouched)[0])
        return (
            f"{int(untouched.sum())} elements were never written, the first at"
            f" {', '.join(map(str, at))}: do the threads of all blocks have elements of their own?"
        )
    if got.ndim == 2 and got.shape[0] == got.shape[1] and np.allclose(got.T, expected, atol=1e-4):
        return "the result is transposed: x and y are swapped"
    if got.ndim == 1 and len(got) > 2:
        for shift in (1, -1):
            if np.allclose(np.roll(got, shift)[1:-1], expected[1:-1], rtol=1e-3, atol=1e-4):
                return f"off by one: {where}"
    if not wrong.ravel()[:32].any():
        return f"the first warp is right and others are not: is blockIdx used? {where}"
    return where


UNTOUCHED = -123  # fills integer results; float results are NaN until they are written


def _praise(report: Report) -> str:
    total = report.totals
    words = [f"{total.sector_efficiency:.0%} of the sectors moved are ideal"]
    if total.shared_requests:
        words.append(f"{total.bank_efficiency:.0%} of the shared wavefronts")
    words.append(f"{total.lane_share:.0%} of the lanes are active")
    return ", ".join(words)
