"""The control word of a thread's floating-point arithmetic: whether it flushes subnormal results.

On x86 an instruction that reads or makes a subnormal number takes a hundred cycles and more, so a
step of a network in which units have died can take twice as long (their moments decay towards
zero). With FTZ of the register MXCSR such results are 0 (Intel SDM, volume 1, 10.2.3). Its
neighbour DAZ, which also reads subnormal operands as 0, stays as it is: kernels convert float16 by
way of subnormal numbers. Each thread has a register of its own; those that share a launch take that
of the thread that launches (`sharing`).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache

from kernels.simt.backend import entry, sharing
from kernels.support import thread_pool

_FTZ = 1 << 15


def flush_subnormals(flush: bool) -> bool:
    """Whether what kernels on the CPU compute is 0 instead of a subnormal number, from now on, in
    this thread and those that help it. Returns whether this processor can be told."""
    if not sharing.HAS_CONTROL:
        return False
    thread_pool.control = _get, _set
    _set(_get() | _FTZ if flush else _get() & ~_FTZ)
    return True


def _get() -> int:
    word = ctypes.c_uint32()
    _function("get.control")(ctypes.byref(word))
    return word.value


def _set(value: int) -> None:
    _function("set.control")(ctypes.byref(ctypes.c_uint32(value)))


@cache
def _function(name: str) -> Callable[..., None]:
    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    return kind(entry.engine().get_function_address(name))
