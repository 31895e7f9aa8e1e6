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
