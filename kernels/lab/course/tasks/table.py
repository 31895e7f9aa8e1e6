"""How an exercise is added, and what the functions that make problems share."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from kernels.lab.course.exercise import DIALECTS, UNTOUCHED, Demands, Exercise, Problem
from kernels.lab.course.tasks.hints import HINTS

Generator = np.random.Generator
EXERCISES: list[Exercise] = []
FLAT = (64, 200, 1000)  # lengths of vectors: a full block, and ones that end inside a block


def exercise(
    signature: str, text: str, sizes: tuple, uses: str = "", advice: dict[str, str] | None = None,
    dialects: tuple[str, ...] = DIALECTS, broken: bool = False, **demands: float,
):  # fmt: skip
    """Add an exercise; the decorated function makes its problem of one size. `uses` names the
    instruments that are demanded; the rest is as `Exercise` and `Demands` say."""

    def add(make: Callable[..., Problem]) -> Callable[..., Problem]:
        def sized(size):
            numbers = size if isinstance(size, tuple) else (size,)
            return lambda rng: replace(make(rng, *numbers), sizes=numbers[: len(names)])

        names = tuple(inspect.signature(make).parameters)[1 : 1 + _count(sizes[0])]
        problems = tuple(sized(size) for size in sizes)
        asked = Demands(tuple(uses.split()), **demands)
        name = make.__name__
        EXERCISES.append(
            Exercise(
                *(name, signature, text, problems, asked, names),
                *(HINTS[name], advice or {}, dialects, broken),
            )
        )
        return make

    return add


def _count(size: int | tuple) -> int:
    return len(size) if isinstance(size, tuple) else 1


def blank(*shape: int, dtype=np.float32) -> np.ndarray:
    """A result that nothing has been written to."""
    return np.full(shape, np.nan if np.dtype(dtype).kind == "f" else UNTOUCHED, dtype)


def floats(rng: Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape, dtype=np.float32)


def blocks(n: int, per: int) -> int:
    return -(-n // per)
