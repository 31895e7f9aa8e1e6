"""Properties of the processor that kernels are compiled for."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import NamedTuple


class Registers(NamedTuple):
    """How many vector registers there are, and how many float32 numbers one holds."""

    number: int
    floats: int

    @property
    def all_floats(self) -> int:
        return self.number * self.floats

    @property
    def have_masks(self) -> bool:
        """Whether a part of a register is loaded, computed and stored as fast as all of it."""
        return self.floats >= 16


_REGISTERS = {  # by the feature that brings them
    "avx512f": Registers(32, 16),
    "avx": Registers(16, 8),
    "neon": Registers(32, 4),
    "sse2": Registers(16, 4),
}
_CGROUPS = Path("/sys/fs/cgroup")  # as a container sees its own
_LIMITS = ("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")  # versions 2 and 1


def cores() -> int:
    """How many cores this process may use: those that it is bound to, or as many as a container's
    limit on processor time comes to (`docker run --cpus`), if that is less."""
    if hasattr(os, "sched_getaffinity"):
        found = len(os.sched_getaffinity(0))
    else:
        found = os.cpu_count() or 1
    return min(found, _limit() or found)


@cache
def _limit() -> int | None:
    """A container's limit in cores, rounded up; None where there is none."""
    for names in _LIMITS:
        try:
            texts = [(_CGROUPS / name).read_text() for name in names]
            quota, period = map(int, " ".join(texts).split())
        except (OSError, ValueError):  # "max": no limit
            continue
        if quota > 0 and period > 0:
            return -(-quota // period)
    return None


@cache
def vector_registers() -> Registers:
    """The vector registers. Where there are few, what a GPU keeps in registers spills to memory.

    The processor is the one that Numba compiles for: NUMBA_CPU_NAME and NUMBA_CPU_FEATURES count.
    """
    features = _features()
    return next((found for name, found in _REGISTERS.items() if name in features), Registers(16, 4))


def _features() -> set[str]:
    asked = os.environ.get("NUMBA_CPU_FEATURES")
    if asked is None and os.environ.get("NUMBA_CPU_NAME") != "generic":
        import llvmlite.binding as llvm

        return {name for name, present in llvm.get_host_cpu_features().items() if present}
    return {name[1:] for name in (asked or "").split(",") if name.startswith("+")}
