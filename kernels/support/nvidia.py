"""NVIDIA's compilers on this machine, as far as compiled code depends on them."""

from __future__ import annotations

import functools
from pathlib import Path


@functools.cache
def libraries(*names: str) -> tuple[tuple[str, int, int], ...]:
    """Path, size and time of libraries such as "nvrtc": another compiler writes other code."""
    from cuda.pathfinder import load_nvidia_dynamic_lib

    files = [Path(load_nvidia_dynamic_lib(name).abs_path or "").resolve() for name in names]
    return tuple((str(f), f.stat().st_size, f.stat().st_mtime_ns) for f in files)
