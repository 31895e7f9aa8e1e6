"""The launches of an operation, and whether they are all that it does.

A launcher may also copy, clear or convert arrays with NumPy, which a repetition of its launches
would miss. So the launches are repeated on results full of another value: they must give the same
bytes again.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from kernels import dispatch, launchers
from kernels.pointwise import TABLE
from kernels.sequence import Launch
from minigrad.compiler.graph import GIVEN, Call, Draw, Memory, arrays_in

# Their operations read an index on the host first, to refuse one that is out of bounds
_CHECKING = ("embedding", "cross_entropy", "sparse")


class Log(dispatch.Trace):
    """Runs launches, and keeps them."""

    def __init__(self) -> None:
        super().__init__()
        self.launches: list[Launch] = []
        self.seconds = 0.0

    def takes(self, family: str, version: str, kernel: Any, grid: Any, block: Any, args: tuple):
        launch = Launch(kernel, grid, block, args)
        run = Launch(kernel, grid, block, numbers(args)).bound()
        started = time.perf_counter()
        run()
        self.seconds += time.perf_counter() - started
        self.launches.append(launch)
        return True

    def contiguous(self, a: np.ndarray) -> np.ndarray:
        out = np.empty(a.shape, a.dtype)
        dialect_in_use().pointwise(TABLE["copy"], a, out=out)
        return out

    def filled(self, zeros: np.ndarray) -> np.ndarray:
        dialect_in_use().pointwise(TABLE["copy"], 0, out=zeros, dtype=zeros.dtype)
        return zeros


@functools.cache
def checking() -> frozenset[str]:
    families = launchers.declared()
    return frozenset(o.name for family in _CHECKING for o in families[family].operations)


def dialect_in_use() -> Any:
    """The dialect in use, also while its stand-in records."""
    return getattr(dispatch.active, "dialect", dispatch.active)


def logged(function: Callable, args: tuple, kwargs: dict) -> tuple[Any, Log]:
    """The result of an operation, and its launches."""
    outer, dispatch.tracer = dispatch.tracer, Log()
    try:
        return function(*args, **kwargs), dispatch.tracer
    finally:
        dispatch.tracer = outer


def numbers(args: tuple) -> tuple:
    """Arguments with the present value of each draw."""
    return tuple([int(a) if type(a) is Draw else a for a in args])


def is_closed(
    call: Call,
    launches: list[Launch],
    memory: Memory,
    again: Callable[[list[np.ndarray]], list[np.ndarray]],
) -> bool:
    """Whether repeating the launches computes the call's results from its arguments alone.

    again: which of some arrays a second call of the operation launches with too. Those belong to
    its plan (tables of offsets, scratch memory) and are the same in every call.
    """
    if not launches:
        return False
    results = list(call.outputs) or list(call.writes)
    if not call.outputs and not _only_written(call):
        return False
    if call.outputs and call.writes:
        return False
    inside = _inside(launches, memory)
    if any(not any(a is b or np.may_share_memory(a, b) for b in results) for a in inside):
        for array in again(inside):
            memory.add(array, GIVEN)
        inside = _inside(launches, memory)
    kept = [(a, a.copy()) for a in (*results, *inside)]
    for array in (*results, *inside):
        array[...] = _other(array)
    for launch in launches:
        launch._replace(args=numbers(launch.args)).bound()()
    same = all(_equal(array, before) for array, before in kept[: len(results)])
    for array, before in kept:
        array[...] = before
    return same


def _inside(launches: list[Launch], memory: Memory) -> list[np.ndarray]:
    """The arrays of launches that are neither arguments of the call nor known otherwise."""
    touched = [a for launch in launches for a in arrays_in(launch.args)]
    return [a for a in touched if a.size and memory.find(a) is None]


def _only_written(call: Call) -> bool:
    """Whether what the call writes is none of its other arguments."""
    others = arrays_in(call.args)
    return not any(np.may_share_memory(a, w) for a in others for w in call.writes)


def _other(array: np.ndarray) -> Any:
    """Values that differ from those of an array: integers that are safe as an index, else NaN."""
    if array.dtype.kind in "biu":
        return array == 0
    return np.frombuffer(b"\xff" * array.itemsize, array.dtype)[0]


def _equal(a: np.ndarray, b: np.ndarray) -> bool:
    return np.ascontiguousarray(a).tobytes() == np.ascontiguousarray(b).tobytes()
