"""Exercises: kernels to be written, checked under the recorder, with a hint that fits the mistake.

    from kernels.lab import exercises

    print(exercises.names())
    print(exercises.text("saxpy"))      # what to write
    print(exercises.start("saxpy"))     # the signature; of a bug hunt, the kernel to repair
    print(exercises.hint("saxpy"))      # a hint; again, one that says more

    @cuda.jit
    def saxpy(a, x, y, out): ...

    print(exercises.check(saxpy))       # by the kernel's name

`check` runs the kernel on several sizes (odd ones, more than one warp and block), on random data
and on data that expose a known mistake. It looks at races, bounds and barriers before it compares
values, and at what the exercise demands afterwards: how much memory traffic, how many active lanes,
which instruments. The answer to a right kernel is how much of the ideal traffic it reaches.

A solution in CUDA C is a `kernels.raw_kernel` of the same name. After the arrays it may take the
sizes, as `int`: `saxpy(float a, const float* x, const float* y, float* out, int n)`. Integer arrays
are `long long`. Solutions: `kernels.lab.solutions`. `minigrad course` shows what is solved.
"""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from types import FunctionType
from typing import Any

import numpy as np
from tqdm import tqdm

from kernels.host import RawKernel
from kernels.lab.course import progress, starts
from kernels.lab.course.exercise import Exercise, Problem, Result
from kernels.lab.course.judge import mistake, praise, unmet
from kernels.lab.course.tasks import EXERCISES
from kernels.lab.course.values import refilled
from kernels.lab.record.cuda_c_profiler import in_cuda_c, parameters
from kernels.lab.record.profiler import profile
from kernels.lab.record.run import LabError
from kernels.lab.report.report import Report
from kernels.support.errors import SimtError
from kernels.support.names import did_you_mean

_TABLE = {exercise.name: exercise for exercise in EXERCISES}
_asked: dict[str, int] = {}  # how many hints of an exercise were given


def names() -> list[str]:
    """The exercises in the order in which to do them."""
    return list(_TABLE)


def text(name: str) -> str:
    """What an exercise asks for."""
    return str(_exercise(name))


def hints(name: str) -> tuple[str, ...]:
    """All hints of an exercise, in the order in which they help."""
    return _exercise(name).hints


def dialects(name: str) -> tuple[str, ...]:
    """Those of "numba" and "cuda_c" that can do an exercise."""
    return _exercise(name).dialects


def is_broken(name: str) -> bool:
    """Whether an exercise is a bug hunt, which gives a wrong kernel."""
    return _exercise(name).broken


def hint(name: str) -> str:
    """The next hint of an exercise: call it again for one that says more."""
    given, number = hints(name), _asked.get(name, 0)
    if number == len(given):
        return f"that was the last hint; a solution is kernels.lab.solutions.{name}"
    _asked[name] = number + 1
    return f"hint {number + 1} of {len(given)}: {given[number]}"


def start(name: str, dialect: str = "numba") -> str:
    """The source to begin with, in "numba" or "cuda_c": the wrong kernel of a bug hunt, else the
    signature. Raises LabError for a dialect that cannot do the exercise."""
    exercise = _exercise(name)
    if dialect not in exercise.dialects:
        raise LabError(
            f"start: {name} is for {' or '.join(exercise.dialects)}, not for {dialect!r}"
        )
    return starts.start(exercise, dialect)


def name_of(solution: Any) -> str:
    """The name of a kernel; of an instance of a CUDA C template, that of the template."""
    if isinstance(solution, RawKernel):
        return solution.name.partition("<")[0].rpartition("::")[2].strip()
    return getattr(solution, "__name__", str(solution))


def check(solution: Any, name: str | None = None, seed: int = 0) -> Result:
    """Try a kernel on the problems of the exercise that it is named after (or of `name`).

    solution: a `cuda.jit` kernel or a `raw_kernel`. Raises LabError for an unknown name.
    """
    exercise = _exercise(name or name_of(solution))
    refusal = (
        _no_kernel(solution)
        or _wrong_dialect(solution, exercise)
        or _wrong_parameters(solution, exercise)
    )
    if refusal:
        return Result(False, refusal)
    result = _first_mistake(solution, exercise, seed)
    if result:
        progress.record(exercise.name)
    if isinstance(solution, RawKernel):
        return replace(result, hint=in_cuda_c(result.hint))
    return result


def _first_mistake(solution: Any, exercise: Exercise, seed: int) -> Result:
    """The judge's answer for the first problem that a kernel does not solve, then for the first
    where it does not meet the demands, else its praise."""
    runs: list[tuple[Problem, Report]] = []
    for number, make in enumerate(_counted(exercise)):
        problem = make(np.random.default_rng(seed + number))
        try:
            report = _run(solution, problem)
            again = partial(_again, solution, make, seed + number)
            found = mistake(problem, report, again, exercise.advice)
        except SimtError as error:
            return Result(False, f"the kernel does not run: {_explained(solution, error)}")
        if found is not None:
            return found
        runs.append((problem, report))
    right = Result(True, praise(report), report)
    demanded = (unmet(exercise, problem, report) for problem, report in runs)
    return next((found for found in demanded if found is not None), right)


def _counted(exercise: Exercise) -> Iterable[Any]:
    """The problems of an exercise, with a line that says which one is tried, where someone looks:
    at once in a terminal, and in a notebook after a second."""
    terminal, notebook = sys.stderr.isatty(), "ipykernel" in sys.modules
    return tqdm(
        exercise.problems,
        f"{exercise.name}: problem",
        bar_format="{desc} {n_fmt} of {total_fmt} [{elapsed}]",
        leave=False,
        delay=0 if terminal else 1,
        disable=not (terminal or notebook),
    )


def _exercise(name: str) -> Exercise:
    if name not in _TABLE:
        raise LabError(
            f"no exercise is named {name!r}{did_you_mean(name, _TABLE)}: name the kernel after one"
            f" of {', '.join(_TABLE)}, or say check(kernel, name)"
        )
    return _TABLE[name]


def _run(solution: Any, problem: Problem) -> Report:
    args = problem.args
    if isinstance(solution, RawKernel) and len(parameters(solution)) > len(args):
        args = (*args, *map(np.int32, problem.sizes))
    return profile(solution, problem.grid, problem.block, *args)


def _again(solution: Any, make: Any, seed: int) -> Problem:
    """The problem after a run on results that hold a number where they held NaN."""
    problem = refilled(make(np.random.default_rng(seed)))
    _run(solution, problem)
    return problem


def _no_kernel(solution: Any) -> str | None:
    """Why a solution is no kernel at all."""
    if isinstance(solution, FunctionType):
        return (
            f"{solution.__name__} is a plain Python function: write @cuda.jit above"
            f" `def {solution.__name__}`, which makes a kernel of it"
        )
    if getattr(solution, "device", False):
        return "a device function is called by kernels: take device=True out of @cuda.jit"
    if not isinstance(solution, RawKernel) and not hasattr(solution, "py_func"):
        return f"{solution!r} is no kernel: pass a cuda.jit kernel or a raw_kernel"
    return None


def _wrong_dialect(solution: Any, exercise: Exercise) -> str | None:
    """Whether a solution is in a dialect that cannot do the exercise."""
    dialect = "cuda_c" if isinstance(solution, RawKernel) else "numba"
    if dialect in exercise.dialects:
        return None
    return (
        f"{exercise.name} is for CUDA C, as its text says: write it as"
        f' kernels.raw_kernel(code, "{exercise.name}")'
    )


def _wrong_parameters(solution: Any, exercise: Exercise) -> str | None:
    """Whether a solution has other parameters than are passed to it."""
    if not isinstance(solution, RawKernel):
        return None
    given, wanted = len(parameters(solution)), exercise.signature.count(",") + 1
    if given in (wanted, wanted + len(exercise.sizes)):
        return None
    return (
        f"the kernel takes {given} parameters; the exercise passes {exercise.signature}, and after"
        f" them, if the kernel wants them, the sizes {', '.join(exercise.sizes)} (int)"
    )


def _explained(solution: Any, error: SimtError) -> str:
    """An error of the compiler, with the reason where it is a known mistake."""
    shape = None if isinstance(solution, RawKernel) else _compared_shape(solution)
    if shape is None:
        return str(error)
    return (
        f"`{shape}` is a tuple, and a number cannot be compared with it: take one of its lengths,"
        f" {shape}[0], or {shape.removesuffix('.shape')}.size"
    )


def _compared_shape(solution: Any) -> str | None:
    """The `x.shape` that a kernel compares as a whole."""
    try:
        source = inspect.getsource(solution.py_func)
        tree = ast.parse(textwrap.dedent(source))
    except (OSError, SyntaxError):
        return None
    for node in ast.walk(tree):
        for side in (node.left, *node.comparators) if isinstance(node, ast.Compare) else ():
            if isinstance(side, ast.Attribute) and side.attr == "shape":
                return ast.unparse(side)
    return None
