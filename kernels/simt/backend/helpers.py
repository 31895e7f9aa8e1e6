"""The helpers of shared launches: Python threads that run machine code forever (`sharing`)."""

from __future__ import annotations

import contextlib
import ctypes
import threading
from collections.abc import Callable
from functools import cache

import numpy as np

from kernels.simt.backend import entry, sharing
from kernels.support import forks, processor, thread_pool

_PATIENCE = 400_000  # ns; as long as there are cores for all

_lock = forks.rlock()
_pool: np.ndarray | None = None


def pool() -> np.ndarray:
    """The words of the pool that machine code knows; no helper runs yet."""
    global _pool
    with _lock:
        if _pool is None:
            words = np.zeros(sharing.POOL_WORDS + 16, np.uint64)
            words = words[-(words.ctypes.data // 8) % 16 :]  # begins a cache line
            _clear(words)
            # Helpers run until the process ends, when Python frees what it can
            for kept in (words, entry.engine()):
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))
            place = entry.engine().get_global_value_address("pool")
            ctypes.c_void_p.from_address(place).value = words.ctypes.data
            _pool = words
    return _pool


def start() -> None:
    """Start the helpers that launches have lacked: this one, or a remembered one, which is not
    launched again before (what it costs may have been measured on a busy machine)."""
    words = pool() if _pool is None else _pool
    if not words[sharing.LACKING]:
        return
    count = min(thread_pool.get_num_threads() - 1, sharing.MAX_HELPERS)
    with _lock:
        enough = count < processor.cores()
        words[sharing.PATIENCE] = _PATIENCE if enough else 0
        for number in range(int(words[sharing.STARTED]), count):
            words[sharing.FIRST_HELPER + number * sharing.HELPER_WORDS + 1] = _new_lock()
            thread = threading.Thread(
                target=_serve(),
                args=(words.ctypes.data, number),
                name="minigrad-kernel",
                daemon=True,
            )
            with contextlib.suppress(RuntimeError):  # there are too many, or Python ends
                thread.start()
                words[sharing.STARTED] = number + 1
        words[sharing.LACKING] = 0


@cache
def _serve() -> Callable[[int, int], None]:
    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint64)
    function = kind(entry.engine().get_function_address("serve"))
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(function))
    return function


def _clear(words: np.ndarray) -> None:
    words[:] = 0
    words[sharing.LOCK] = _new_lock()
    words[sharing.WANTED] = ctypes.addressof(thread_pool.wanted)


def _new_lock() -> int:
    """A lock that nobody holds up: who acquires it waits until another releases it."""
    allocate = ctypes.pythonapi.PyThread_allocate_lock
    allocate.restype = ctypes.c_void_p
    acquire = ctypes.pythonapi.PyThread_acquire_lock
    acquire.argtypes = (ctypes.c_void_p, ctypes.c_int)
    lock = allocate()
    acquire(lock, 1)
    return lock


@forks.in_child
def _forget() -> None:
    """A fork does not copy threads."""
    if _pool is not None:
        _clear(_pool)
