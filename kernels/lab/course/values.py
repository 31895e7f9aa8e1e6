"""How wrong values differ from the right ones, in words: which elements, and what explains them."""

from __future__ import annotations

import numpy as np

from kernels.lab.course.exercise import UNTOUCHED, Problem

FILL = np.float32(12345)  # what results hold in the second run, where they held NaN


def refilled(problem: Problem) -> Problem:
    """The problem, with a number in the results where nothing was written yet."""
    for result in problem.results:
        if result.dtype.kind == "f":
            result[np.isnan(result)] = FILL
    return problem


def difference(got: np.ndarray, second: np.ndarray, expected: np.ndarray, problem: Problem) -> str:
    """What is wrong with a result. `second` is the result of a run that began with other values
    there: elements that were never written still hold those."""
    wrong = ~np.isclose(got, expected, rtol=1e-3, atol=problem.atol)
    first = tuple(int(i) for i in np.argwhere(wrong)[0])
    where = f"element {_place(first)} is {got[first]:.6g}, not {expected[first]:.6g}"
    if got.dtype.kind == "f":
        untouched = np.isnan(got) & (second == FILL)
        if _is_accumulated(got, second, expected):
            return (
                "the result is added to, but it holds nothing at first: add up in a variable that"
                " begins with 0, and store that at the end"
            )
    else:
        untouched = got == UNTOUCHED
    if untouched.all():
        return "nothing was written to the result"
    if untouched.any():
        return _unwritten(untouched, problem)
    if problem.trap:
        return f"{where}: {problem.trap}"
    return _pattern(got, expected, wrong, where, problem)


def _is_accumulated(got: np.ndarray, second: np.ndarray, expected: np.ndarray) -> bool:
    kept = np.isnan(got) & (second != FILL)
    added = np.isclose(second - FILL, expected, rtol=1e-2, atol=0.02)
    return bool(kept.any() and added[kept].mean() > 0.5)


def _place(index: tuple[int, ...]) -> str:
    return ", ".join(map(str, index))


# Elements that were never written


def _unwritten(untouched: np.ndarray, problem: Problem) -> str:
    """Which elements are missing, and the usual reason for just those."""
    count = int(untouched.sum())
    at = _place(tuple(int(i) for i in np.argwhere(untouched)[0]))
    were = "1 element was" if count == 1 else f"{count} elements were"
    said = f"{were} never written, {'at' if count == 1 else 'the first at'} {at}"
    if untouched.ndim == 2:
        reason = _missing_lines(untouched, problem)
    else:
        reason = _missing_range(untouched.ravel(), problem)
    return f"{said}: {reason}" if reason else said


def _extents(problem: Problem) -> tuple[tuple[int, int], tuple[int, int]]:
    """((threads of the grid along x, along y), (threads of a block along x, along y))"""
    grid, block = (
        (*size, 1)[:2] if isinstance(size, tuple) else (size, 1)
        for size in (problem.grid, problem.block)
    )
    return (grid[0] * block[0], grid[1] * block[1]), block


def _missing_range(untouched: np.ndarray, problem: Problem) -> str:
    """For a vector."""
    (threads, _), (block, _) = _extents(problem)
    n, written = len(untouched), np.flatnonzero(~untouched)
    last = int(written[-1]) + 1
    in_front = len(written) == last  # all that were written come first
    if in_front and last == min(block, n) and threads > block:
        return (
            "only as many as a block has threads were written: is blockIdx used? cuda.grid(1)"
            " counts through all blocks"
        )
    if in_front and last == threads < n:
        return (
            f"there are fewer threads ({threads}) than elements ({n}): let each thread go on in"
            " steps of cuda.gridsize(1)"
        )
    if in_front and last == n - 1:
        return "only the last one: does the guard stop one too early?"
    if in_front and last == n // block * block:
        return (
            "those of the last block, which is only partly full: guard each thread for itself, not"
            " the whole block"
        )
    if len(written) == n - 1 and untouched[0]:
        return "only the first one: the guard excludes index 0"
    steps = np.unique(np.diff(written))
    if len(steps) == 1 and steps[0] > 1:
        return f"only one of {steps[0]} elements was written"
    return "a condition leaves them out, and the exercise wants a value for every element"


def _missing_lines(untouched: np.ndarray, problem: Problem) -> str:
    """For a matrix."""
    (_, along_y), (block_x, block_y) = _extents(problem)
    rows = np.flatnonzero(~untouched.all(axis=1))
    columns = np.flatnonzero(~untouched.all(axis=0))
    height, width = int(rows[-1]) + 1, int(columns[-1]) + 1
    if not (~untouched[:height, :width]).all():
        return ""
    flat = not isinstance(problem.grid, tuple)
    if not flat and width == min(along_y, untouched.shape[1]) and width < untouched.shape[1]:
        return (
            f"all columns from {width} on, and there are {along_y} threads along y: x and y are"
            " swapped; the last index is the column, which x runs along"
        )
    if not flat and (height, width) == (
        min(block_y, len(untouched)),
        min(block_x, untouched.shape[1]),
    ):
        return "only as many as one block has threads were written: is blockIdx used?"
    if not flat and (height, width) == (len(untouched) - 1, untouched.shape[1]):
        return "only the last row: does the guard stop one too early?"
    if (height, width) == (len(untouched), untouched.shape[1] - 1):
        return "only the last column: does the guard stop one too early?"
    if height == len(untouched):
        return f"all columns from {width} on"
    return f"all rows from {height} on" if width == untouched.shape[1] else ""


# Elements with wrong values


def _pattern(
    got: np.ndarray, expected: np.ndarray, wrong: np.ndarray, where: str, problem: Problem
) -> str:
    """What relates the values to the right ones."""
    square = got.ndim == 2 and got.shape[0] == got.shape[1]
    if square and np.allclose(got.T, expected, atol=problem.atol):
        return "the result is transposed: x and y are swapped"
    if got.ndim == 1 and len(got) > 2:
        for shift in (1, -1):
            if np.allclose(np.roll(got, shift)[1:-1], expected[1:-1], rtol=1e-3, atol=problem.atol):
                return f"off by one: {where}"
    _, (block, _) = _extents(problem)
    for count, what in ((block, "block"), (32, "warp")):
        if wrong.size > count and not wrong.ravel()[:count].any() and wrong.ravel()[count:].all():
            return f"the first {what} is right and the others are not: {where}"
    return where
