"""The launches of an operation, and whether they are all that it does.

A launcher may also copy, clear or convert arrays with NumPy, which a repetition of its launches
would miss. So the launches are repeated on results full of another value: they must give the same
bytes again.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from kernels import dispatch, launchers
from kernels.launchers.common import empty
from kernels.pointwise import TABLE
from kernels.sequence import Launch
from kernels.support import ahead
from kernels.support.interrupts import deferred
from minigrad.autograd import rehearsal
from minigrad.compiler.graph import GIVEN, Call, Memory
from minigrad.compiler.late import Numbers, value_now
from minigrad.compiler.places import arrays_in, may_share, on_host

# Their operations read an index on the host first, to refuse one that is out of bounds
_CHECKING = ("embedding", "cross_entropy", "sparse")


class Log(dispatch.Trace):
    """Runs launches, and keeps them with their late numbers."""

    def __init__(self, late: Numbers) -> None:
        super().__init__()
        self.late, self._thread = late, threading.get_ident()
        self.launches: list[Launch] = []

    def takes(self, family: str, version: str, kernel: Any, grid: Any, block: Any, args: tuple):
        if threading.get_ident() != self._thread:  # a trace is that of all threads
            return False
        launch = Launch(kernel, grid, block, tuple([self.late.found(a) for a in args]))
        with contextlib.suppress(ahead.LeftOut):
            Launch(kernel, grid, block, numbers(args)).bound()()
        self.launches.append(launch)
        return True

    def contiguous(self, a: np.ndarray) -> np.ndarray:
        out = empty(a.shape, a.dtype, a)
        dialect_in_use().pointwise(TABLE["copy"], a, out=out)
        return out

    def filled(self, zeros: np.ndarray) -> np.ndarray:
        dialect_in_use().pointwise(TABLE["copy"], 0, out=zeros, dtype=zeros.dtype)
        return zeros


rehearsal.traces.add(Log)


@functools.cache
def checking() -> frozenset[str]:
    families = launchers.declared()
    return frozenset(o.name for family in _CHECKING for o in families[family].operations)


def dialect_in_use() -> Any:
    """The dialect in use, also while its stand-in records."""
    return getattr(dispatch.active, "dialect", dispatch.active)


def logged(function: Callable, args: tuple, kwargs: dict, late: Numbers) -> tuple[Any, Log]:
    """The result of an operation, and its launches."""
    log = Log(late)
    with dispatch.tracing(log):
        return function(*args, **kwargs), log


def numbers(args: tuple) -> tuple:
    """Arguments with the present value of each late number."""
    return tuple([value_now(a) for a in args])


def is_closed(
    call: Call,
    launches: list[Launch],
    memory: Memory,
    before: list[tuple[np.ndarray, np.ndarray]],
    again: Callable[[list[np.ndarray]], list[np.ndarray]],
) -> bool:
    """Whether repeating the launches computes the call's results from its arguments alone.

    before: what the call reads and changes, with copies from before it.
    again: which of some arrays a second call of the operation launches with too. Those belong to
    its plan (tables of offsets, scratch memory) and are the same in every call.
    """
    if not launches:
        return False
    results = [*call.outputs, *call.writes]
    inside = _inside(launches, memory)
    if any(not any(a is b or may_share(a, b) for b in results) for a in inside):
        for array in again(inside):
            memory.add(array, GIVEN)
        inside = _inside(launches, memory)
    kept = [(a, a.copy()) for a in (*results, *inside)]
    with deferred():  # an interrupt must not leave other values in the arrays
        for array in (*results, *inside):
            array[...] = _other(array)
        for array, old in before:
            array[...] = old
        for launch in launches:
            launch._replace(args=numbers(launch.args)).bound()()
        same = all(_equal(array, old) for array, old in kept[: len(results)])
        for array, old in kept:
            array[...] = old
    return same


def _inside(launches: list[Launch], memory: Memory) -> list[np.ndarray]:
    """The arrays of launches that are neither arguments of the call nor known otherwise."""
    touched = [a for launch in launches for a in arrays_in(launch.args)]
    return [a for a in touched if a.size and memory.find(a) is None]


def is_read(array: np.ndarray, arguments: tuple) -> bool:
    """Whether an array that a call writes may be one of the arguments that it reads."""
    return any(may_share(a, array) for a in arrays_in(arguments))


def _other(array: np.ndarray) -> Any:
    """Values that differ from those of an array: integers that are safe as an index, else NaN."""
    if array.dtype.kind in "biu":
        return array == 0
    return np.frombuffer(b"\xff" * array.itemsize, array.dtype)[0]


def _equal(a: np.ndarray, b: np.ndarray) -> bool:
    a, b = on_host(a), on_host(b)
    return np.ascontiguousarray(a).tobytes() == np.ascontiguousarray(b).tobytes()
