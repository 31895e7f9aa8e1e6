"""What a block did, line by line, as data: the stepper's page shows it, the tracer records it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kernels.lab.report.findings import Triple


@dataclass(frozen=True)
class Touch:
    """One access of a thread to an element: `index` counts elements of the array in C order.

    op: "load", "store" or "atomic". array: its number in `Trace.arrays`. value: what the element
    holds after a store or an atomic operation.
    """

    op: str
    array: int
    index: int
    value: Any = None


@dataclass
class Event:
    """A thread executes a line.

    key: the place in the program, with the iteration of each loop around it, so that threads that
    would execute the line together have equal keys and smaller keys come first. epoch: how many
    barriers the thread has passed. changes: the variables that have other values after the line.
    """

    key: tuple[int, ...]
    place: tuple[str, int]
    epoch: int
    barrier: str = ""
    touches: list[Touch] = field(default_factory=list)
    changes: dict[str, Any] = field(default_factory=dict)


@dataclass
class Step:
    """The threads of a block that execute one line together."""

    place: tuple[str, int]
    epoch: int
    barrier: str
    threads: list[int]
    events: list[Event]


@dataclass
class Memory:
    """An array that the block can touch.

    space: "global" or "shared". offset: bytes from the beginning of the allocation, which is at a
    multiple of 256. strides: in bytes. initial: the flat values before the launch, None for shared
    memory, which holds nothing yet.
    """

    name: str
    space: str
    dtype: np.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0
    initial: np.ndarray | None = None


@dataclass
class Trace:
    """A block's run. error: what ended it early. cut: whether threads did more than is kept."""

    name: str
    grid: Triple
    block: Triple
    at: Triple
    first: tuple[str, int]  # of the kernel's source
    steps: list[Step]
    arrays: list[Memory]
    error: str = ""
    cut: bool = False
