"""The judge of the exercises: what is wrong with a run, and the hint that fits."""

from __future__ import annotations

import numpy as np

from kernels.lab.course.exercise import UNTOUCHED, Exercise, Problem, Result
from kernels.lab.report.findings import Finding
from kernels.lab.report.report import Report


def judge(exercise: Exercise, problem: Problem, report: Report) -> Result | None:
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


def praise(report: Report) -> str:
    total = report.totals
    words = [f"{total.sector_efficiency:.0%} of the sectors moved are ideal"]
    if total.shared_requests:
        words.append(f"{total.bank_efficiency:.0%} of the shared wavefronts")
    words.append(f"{total.lane_share:.0%} of the lanes are active")
    return ", ".join(words)
