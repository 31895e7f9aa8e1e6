"""`cupyx.time`: the old name of `cupyx.profiler.benchmark`."""

from __future__ import annotations

from kernels.cupyx.profiler import benchmark as repeat

__all__ = ["repeat"]
