"""Profile whatever the operations launch, in the place of running it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from kernels import dispatch
from kernels.lab.record.profiler import profile
from kernels.lab.report.report import Report


class Launch(NamedTuple):
    """One launch of an operation."""

    family: str
    version: str
    report: Report


class _Profiler(dispatch.Trace):
    def __init__(self, options: dict) -> None:
        super().__init__()
        self.options, self.launches = options, []

    def takes(self, family: str, version: str, kernel, grid, block, args: tuple) -> bool:
        shared = 0
        if hasattr(kernel, "instance"):  # CUDA C: the instance of a template
            shared = kernel.shared
            kernel, args = kernel.instance(*args), kernel.arguments(*args)
        report = profile(kernel, grid, block, *args, shared=shared, **self.options)
        self.launches.append(Launch(family, version, report))
        return True


@contextmanager
def profiled(**options) -> Iterator[list[Launch]]:
    """Profile each kernel launched: `with profiled() as launches: kernels.softmax(x)`.

    `options` are those of `profile`: `blocks`, `records`. Results are as ever if all blocks run.
    """
    profiler = _Profiler(options)
    with dispatch.trace(profiler):
        yield profiler.launches
