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

from typing import Any

import numpy as np

from kernels.lab.course.exercise import Exercise, Result
from kernels.lab.course.judge import judge, praise
from kernels.lab.course.tasks import EXERCISES
from kernels.lab.record.profiler import profile
from kernels.lab.record.run import LabError
from kernels.support.errors import SimtError


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
        result = judge(exercise, problem, report)
        if result is not None:
            return result
    return Result(True, praise(report), report)


def _table() -> dict[str, Exercise]:
    return {exercise.name: exercise for exercise in EXERCISES}


def _exercise(name: str) -> Exercise:
    table = _table()
    if name not in table:
        raise LabError(
            f"no exercise is named {name!r}: name the kernel after one of {', '.join(table)}, or"
            " say check(kernel, name)"
        )
    return table[name]
