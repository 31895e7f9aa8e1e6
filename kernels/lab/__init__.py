"""The lab: what the hardware does with a kernel, explained without the hardware."""

from __future__ import annotations

import importlib
from typing import Any

from kernels.lab.occupancy import Occupancy, occupancy, occupancy_picture

__all__ = ["Occupancy", "occupancy", "occupancy_picture"]

#: imported at their first use, so that importing the lab stays fast
_LAZY = {
    "GPU": "gpus",
    "GPUS": "gpus",
    "Picture": "picture",
    "banks_picture": "pictures",
    "barrier_frames": "barriers",
    "compiled": "compiler",
    "counting": "costs",
    "gpu": "gpus",
    "heat_map": "pictures",
    "launch_picture": "pictures",
    "roofline": "roof",
    "sectors_picture": "pictures",
    "tile_walk": "pictures",
    "timeline": "timelines",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'kernels.lab' has no attribute {name!r}")
    return getattr(importlib.import_module(f"kernels.lab.{_LAZY[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*__all__, *_LAZY])
