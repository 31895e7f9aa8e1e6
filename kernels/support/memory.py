"""Where arrays lie. On a CPU, what they give back stays with the process.

glibc returns a free block of over 128 KB to the system, or the top of the heap when it has grown by
twice that, and moves both limits only as such blocks come. A training step frees what the next one
asks for, so that every step would touch new pages, which the system fills with zeros first: a third
of the time of a small network.
"""

from __future__ import annotations

import ctypes
import os

import numpy as np

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h
_LARGEST_IN_HEAP = 32 << 20  # what glibc takes at most; larger blocks always go back
_KEPT = 1 << 30
_SETTINGS = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


def keep_freed() -> bool:
    """Let up to 1 GB of freed blocks stay; whether that was done.

    Not where the environment has settings of its own, or the C library is not glibc.
    """
    if any(name in os.environ for name in _SETTINGS):
        return False
    try:
        ctypes.CDLL(None).gnu_get_libc_version  # noqa: B018
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, _LARGEST_IN_HEAP) and mallopt(_M_TRIM_THRESHOLD, _KEPT))


def owner_of(array: np.ndarray) -> np.ndarray:
    """The array whose memory this one is a view of: what an allocator gave."""
    while True:
        base = array.base
        if base is not None and not isinstance(base, np.ndarray):
            base = getattr(base, "base", None)  # as_strided puts an object between
        if not isinstance(base, np.ndarray):
            return array
        array = base


def is_on_gpu(value: object) -> bool:
    """Whether an argument is CuPy's."""
    kind = type(value)
    return kind.__module__.partition(".")[0] == "cupy" and not hasattr(kind, "__host_memory__")
