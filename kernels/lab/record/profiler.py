"""`kernels.lab.profile`: run a kernel's instrumented clone, and report what was recorded."""

from __future__ import annotations

import functools
import time
from collections.abc import Sequence
from types import FunctionType
from typing import Any

import numpy as np

from kernels.host import RawKernel
from kernels.lab.record import cuda_c_profiler, stepper, timing
from kernels.lab.record.clone import Clone
from kernels.lab.record.run import LabError, Run
from kernels.lab.report.findings import Triple
from kernels.lab.report.report import Report
from kernels.simt.driver import arguments
from kernels.support.errors import LaunchError, Unstructured
from kernels.support.interrupts import deferred
from kernels.support.limits import launch_dimensions

MOST_KEPT = 1 << 24  # bytes of arguments that are copied, so that a block can be run again
_SHARED_LIMIT = 48 * 1024


def profile(
    kernel: Any,
    grid: int | Sequence[int],
    block: int | Sequence[int],
    *args: Any,
    shared: int = 0,
    blocks: int | Sequence[int] | None = None,
    records: int = 0,
) -> Report:
    """Run `kernel[grid, block, 0, shared](*args)` on the CPU, recording all that it accesses.

    kernel: a `cuda.jit` kernel or its Python function, or a `kernels.raw_kernel` of CUDA C; args:
    NumPy arrays (written in place) and numbers. `blocks` chooses what is run: a number of blocks,
    evenly spread over the grid, or their linear indices (x fastest); by default all, or as many as
    make 500 million accesses, which the report then says. `records` keeps that many first accesses
    as `report.records`.

    Raises LaunchError for a launch that hardware refuses, CompileError for a kernel that does not
    compile, LabError for one that cannot be recorded. What the kernel itself does wrong (an index
    outside, a race, a divergent barrier) is in the report.
    """
    if isinstance(kernel, RawKernel):
        copies = kept(args)
        report = cuda_c_profiler.profile(kernel, grid, block, args, shared, blocks, records)
        if copies is not None:
            report.clock = functools.partial(
                timing.time, kernel, grid, block, *copies, shared=shared
            )
            again = functools.partial(stepper.trace_of_cuda_c, kernel, grid, block, copies)
            report.trace = functools.partial(again, shared, _first_block(report.grid, blocks))
        return report
    if not isinstance(getattr(kernel, "py_func", kernel), FunctionType):
        raise LabError(
            f"profile: expected a cuda.jit kernel or its function, or a raw_kernel, got {kernel!r}"
        )
    name = kernel.__name__
    grid, block = launch_dimensions(name, grid, block)
    if not 0 <= shared <= _SHARED_LIMIT:
        raise LaunchError(f"{name}: {shared} bytes of dynamic shared memory; at most 49152")
    args = tuple(arguments.normalise(arg, name) for arg in args)
    try:
        with deferred():
            clone = Clone(kernel, block, args)
    except Unstructured as reason:
        raise LabError(
            f"{name}: the lab runs what can be compiled for the CPU, and this cannot: {reason}"
        ) from None
    run = Run(clone, grid, block, args, shared, records)
    chosen = run.choose(blocks)
    copies = kept(args)
    started = time.perf_counter()
    with np.errstate(all="ignore"):
        run.start(chosen, sampled=blocks is not None)
    report = run.report(time.perf_counter() - started)
    if copies is not None and hasattr(kernel, "py_func"):
        at = _first_block(grid, chosen)
        report.trace = functools.partial(stepper.trace, kernel, grid, block, copies, shared, at)
        report.clock = functools.partial(timing.time, kernel, grid, block, *copies, shared=shared)
    return report


def _first_block(grid: Triple, chosen: int | Sequence[int] | None) -> Triple:
    """The place in the grid of the first block that was recorded."""
    first = min(chosen, default=0) if isinstance(chosen, Sequence) else 0
    z, y, x = (int(i) for i in np.unravel_index(first, grid[::-1]))
    return x, y, z


def kept(args: tuple) -> tuple | None:
    """Copies of the arguments, to run a block again; None where they are large."""
    if sum(arg.nbytes for arg in args if isinstance(arg, np.ndarray)) > MOST_KEPT:
        return None
    return tuple(stepper.copied(arg) if isinstance(arg, np.ndarray) else arg for arg in args)
