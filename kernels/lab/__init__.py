"""The lab: a kernel is run on the CPU under a recorder, and explained line by line.

    report = kernels.lab.profile(kernel, grid, block, *args)
    print(report)

What is counted, per source line, is what a GPU's profiler counts:

- a *request* is one load or store instruction of a warp; its *sectors* are the distinct 32-byte
  pieces of global memory that its active lanes touch; ideal are as many as the lanes' bytes fill
  (4, 8 and 16 for 32 lanes of 4, 8 and 16 bytes)
- shared memory has 32 banks of 4-byte words; a request is served in phases of 32, 16 or 8 lanes for
  elements of up to 4, 8 and 16 bytes, and a phase takes as many *wavefronts* as the most distinct
  words that one bank is asked for; the ideal is one per phase
- *active lanes* over the lanes of the warps that executed a line show divergence
- a *race* is two threads at one address with no barrier that orders them, one of them writing and
  not both atomic: shared memory within a block, global memory across blocks too. Two stores of the
  same value are a "harmless" race, which is a warning
- a *shuffle* that reads from a lane which does not execute it, because it is inactive or has ended,
  is an error, whether or not its value is used

A loop that does not end is stopped after some millions of iterations, and reported. Ctrl-C stops a
run at once.

CUDA C (`kernels.raw_kernel`) is recorded as its source is written, each access of an expression for
itself: where a compiler would load an element once, `x[i] > a ? x[i] : a` counts two loads.

Arrays are taken to begin at multiples of 256 bytes, as a GPU's allocator gives them; a view keeps
its offset in the array that it is part of.
"""

from __future__ import annotations

import importlib
from typing import Any

#: imported at their first use, so that importing the lab stays fast
_LAZY = {
    "Counts": "report.measurement",
    "Estimate": "gpu_model.clock",
    "Finding": "report.findings",
    "GPU": "gpu_model.gpus",
    "GPUS": "gpu_model.gpus",
    "LabError": "record.run",
    "Line": "report.measurement",
    "Occupancy": "gpu_model.occupancy",
    "Picture": "draw.canvas",
    "PtxExecuted": "record.ptx",
    "PtxRun": "record.ptx",
    "Report": "report.report",
    "access_map": "report.maps",
    "banks_picture": "draw.pictures",
    "barrier_frames": "course.barrier_frames",
    "between_barriers": "report.explained",
    "compiled": "gpu_model.compiled",
    "counting": "gpu_model.costs",
    "footprint": "report.explained",
    "gpu": "gpu_model.gpus",
    "heat_map": "draw.pictures",
    "history": "report.explained",
    "launch_picture": "draw.pictures",
    "occupancy": "gpu_model.occupancy",
    "occupancy_picture": "gpu_model.occupancy",
    "profile": "record.profiler",
    "profiled": "record.capture",
    "ptx": "record.ptx",
    "request_picture": "report.maps",
    "roofline": "gpu_model.roofline",
    "sectors_picture": "draw.pictures",
    "shuffle_tree": "report.explained",
    "step": "record.stepper",
    "thread_map": "report.explained",
    "tile_walk": "draw.pictures",
    "time": "record.timing",
    "timeline": "draw.timelines",
    "wavefronts": "draw.pictures",
}


def __getattr__(name: str) -> Any:
    if name in ("exercises", "solutions"):
        return importlib.import_module(f"kernels.lab.course.{name}")
    if name not in _LAZY:
        raise AttributeError(f"module 'kernels.lab' has no attribute {name!r}")
    return getattr(importlib.import_module(f"kernels.lab.{_LAZY[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*_LAZY, "exercises", "solutions"])
