"""What an exercise is, one of its problems, and what the judge answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernels.lab.report.findings import Finding
from kernels.lab.report.report import Report

UNTOUCHED = -123  # fills integer results; float results are NaN until they are written


@dataclass(frozen=True)
class Problem:
    """One launch: the last of `args` are what the kernel writes, and must become `expected`.

    sizes: what CUDA C kernels get after the arrays, whose shapes they do not know. trap: what wrong
    values usually mean on data that are chosen to expose one mistake. atol: the tolerance.
    """

    grid: Any
    block: Any
    args: tuple
    expected: tuple[np.ndarray, ...]
    sizes: tuple[int, ...] = ()
    trap: str = ""
    atol: float = 1e-4

    @property
    def results(self) -> tuple[np.ndarray, ...]:
        """The arguments that the kernel writes."""
        return self.args[-len(self.expected) :]


@dataclass(frozen=True)
class Demands:
    """What a kernel must do beside giving the right values.

    instruments: those that it must use, of "shared", "barrier", "shuffle" and "atomics".
    efficiency: the least share of useful sectors (and wavefronts of shared memory). traffic: how
    many times the bytes of the arrays the threads may ask of global memory; 0 is no limit. lanes:
    the least share of active lanes. atomics: the most atomic operations per thread.
    """

    instruments: tuple[str, ...] = ()
    efficiency: float = 0.0
    traffic: float = 0.0
    lanes: float = 0.4
    atomics: float = 1.0


@dataclass(frozen=True)
class Exercise:
    """What is asked for. `problems` are functions of a random generator, `sizes` their names."""

    name: str
    signature: str
    text: str
    problems: tuple[Callable[[np.random.Generator], Problem], ...]
    demands: Demands
    sizes: tuple[str, ...]

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
