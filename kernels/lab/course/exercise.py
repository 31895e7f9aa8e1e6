"""What an exercise is, one of its problems, and what the judge answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kernels.lab.report.findings import Finding
from kernels.lab.report.report import Report

DIALECTS = ("numba", "cuda_c")
UNTOUCHED = -123  # fills integer results; float results are NaN until they are written


@dataclass(frozen=True)
class Problem:
    """One launch: the last of `args` are what the kernel writes, and must become `expected`.

    sizes: what CUDA C kernels get after the arrays, whose shapes they do not know. trap: what wrong
    values usually mean on data that are chosen to expose one mistake. atol: the tolerance.
    barriers: the most that a block may pass; 0 is no limit.
    """

    grid: Any
    block: Any
    args: tuple
    expected: tuple[np.ndarray, ...]
    sizes: tuple[int, ...] = ()
    trap: str = ""
    atol: float = 1e-4
    barriers: int = 0

    @property
    def results(self) -> tuple[np.ndarray, ...]:
        """The arguments that the kernel writes."""
        return self.args[-len(self.expected) :]


@dataclass(frozen=True)
class Demands:
    """What a kernel must do beside giving the right values.

    instruments: those that it must use, of "shared", "barrier", "shuffle", "atomics", "ballot",
    "grid_barrier" and "tensor_cores". efficiency: the least share of useful sectors (and wavefronts
    of shared memory). lanes: the least share of active lanes. atomics: the most atomic operations
    per thread. Of these, 0 is no limit: traffic, how many times the bytes of the arrays the threads
    may ask of global memory; shared_reads, the most bytes of shared memory per floating-point
    operation; width, the least bytes per lane and request of global memory.
    """

    instruments: tuple[str, ...] = ()
    efficiency: float = 0.0
    traffic: float = 0.0
    lanes: float = 0.4
    atomics: float = 1.0
    shared_reads: float = 0.0
    width: float = 0.0


@dataclass(frozen=True)
class Exercise:
    """What is asked for.

    problems: functions of a random generator. sizes: the names of their sizes. hints: for a reader
    who asks, one after the other. advice: what to say, instead of the general hint, about a kind of
    finding ("global race", "shared race of a line" with itself, "shuffle") or an unmet demand
    ("traffic", "shared_reads"). broken: a bug hunt, which gives a kernel.
    """

    name: str
    signature: str
    text: str
    problems: tuple[Callable[[np.random.Generator], Problem], ...]
    demands: Demands
    sizes: tuple[str, ...]
    hints: tuple[str, ...] = ()
    advice: dict[str, str] = field(default_factory=dict)
    dialects: tuple[str, ...] = DIALECTS
    broken: bool = False

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
