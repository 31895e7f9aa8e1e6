"""Properties of the processor that kernels are compiled for."""

from __future__ import annotations

import os
from functools import cache

MANY_REGISTERS = 512
_REGISTERS = {  # float32 numbers in all vector registers together, by the feature that brings them
    "avx512f": 32 * 16,
    "avx": 16 * 8,
    "neon": 32 * 4,
    "sse2": 16 * 4,
}


@cache
def register_floats() -> int:
    """How many float32 numbers the vector registers hold: MANY_REGISTERS or, with AVX2, 128.

    Where there are fewer, what a GPU keeps in registers spills to memory. The processor
    is the one that Numba compiles for: NUMBA_CPU_NAME and NUMBA_CPU_FEATURES count.
    """
    features = _features()
    return next((count for name, count in _REGISTERS.items() if name in features), 64)


def _features() -> set[str]:
    asked = os.environ.get("NUMBA_CPU_FEATURES")
    if asked is None and os.environ.get("NUMBA_CPU_NAME") != "generic":
        import llvmlite.binding as llvm

        return {name for name, present in llvm.get_host_cpu_features().items() if present}
    return {name[1:] for name in (asked or "").split(",") if name.startswith("+")}
