"""The lab: a kernel is run on the CPU under a recorder, and explained line by line.

    report = kernels.lab.profile(kernel, grid, block, *args)
    print(report)

What is counted, per source line, is what a GPU's profiler counts:

- a *request* is one load or store instruction of a warp; its *sectors* are the distinct 32-byte
  pieces of global memory that its active lanes touch; ideal are as many as the lanes' bytes fill
  (4, 8 and 16 for 32 lanes of 4, 8 and 16 bytes)
- shared memory has 32 banks of 4-byte words; a request is served in phases of 32, 16 or 8 lanes for
  elements of up to 4, 8 and 16 bytes, and a phase takes as many *wavefronts* as the most distinct
  words that one bank is asked for; ideal is one a phase
- *active lanes* over the lanes of the warps that executed a line show divergence
- a *race* is two threads at one address with no barrier that orders them, one of them writing and
  not both atomic: shared memory within a block, global memory across blocks too. Two stores of the
  same value are none.

CUDA C (`kernels.raw_kernel`) is recorded as its source is written, each access of an expression for
itself: where a compiler would load an element once, `x[i] > a ? x[i] : a` counts two loads.

Arrays are taken to begin at multiples of 256 bytes, as a GPU's allocator gives them; a view keeps
its offset in the array that it is part of.
"""

from __future__ import annotations

import importlib
from typing import Any

from kernels.lab.occupancy import Occupancy, occupancy, occupancy_picture

__all__ = ["Occupancy", "occupancy", "occupancy_picture"]

#: imported at their first use, so that importing the lab stays fast
_LAZY = {
    "Counts": "report",
    "Finding": "findings",
    "GPU": "gpus",
    "GPUS": "gpus",
    "LabError": "profiler",
    "Line": "report",
    "Picture": "picture",
    "Report": "report",
    "access_map": "maps",
    "banks_picture": "pictures",
    "barrier_frames": "barriers",
    "compiled": "compiler",
    "counting": "costs",
    "gpu": "gpus",
    "heat_map": "pictures",
    "launch_picture": "pictures",
    "profile": "profiler",
    "profiled": "capture",
    "request_picture": "maps",
    "roofline": "roof",
    "sectors_picture": "pictures",
    "step": "barriers",
    "tile_walk": "pictures",
    "timeline": "timelines",
}


def __getattr__(name: str) -> Any:
    if name in ("exercises", "solutions"):
        return importlib.import_module(f"kernels.lab.{name}")
    if name not in _LAZY:
        raise AttributeError(f"module 'kernels.lab' has no attribute {name!r}")
    return getattr(importlib.import_module(f"kernels.lab.{_LAZY[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*__all__, *_LAZY, "exercises", "solutions"])
