"""Whether the launches of an operation are all that it does.

A launcher may also copy, clear or convert arrays with NumPy, which a repetition of its launches
would miss. So the launches are repeated on results full of another value: they must give the same
bytes again.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.sequence import Launch
from minigrad.compiler.graph import Call, Draw, Memory, arrays_in


def is_closed(call: Call, launches: list[Launch], memory: Memory) -> bool:
    """Whether repeating the launches computes the call's results from its arguments alone."""
    if not launches:
        return False
    results = list(call.outputs) or list(call.writes)
    if not call.outputs and not _only_written(call):
        return False
    if call.outputs and call.writes:
        return False
    touched = [a for launch in launches for a in arrays_in(launch.args)]
    inside = [a for a in touched if memory.find(a) is None and a.size]
    kept = [(a, a.copy()) for a in (*results, *inside)]
    for array in (*results, *inside):
        array[...] = _other(array)
    for launch in launches:
        args = tuple([int(a) if type(a) is Draw else a for a in launch.args])
        Launch(launch.kernel, launch.grid, launch.block, args).bound()()
    same = all(_equal(array, before) for array, before in kept[: len(results)])
    for array, before in kept:
        array[...] = before
    return same


def _only_written(call: Call) -> bool:
    """Whether what the call writes is none of its other arguments."""
    others = [a for a in arrays_in(call.args)]
    return not any(np.may_share_memory(a, w) for a in others for w in call.writes)


def _other(array: np.ndarray) -> Any:
    """A value that no computation gives by chance: all bits set."""
    if array.dtype.kind == "b":
        return ~array
    return np.frombuffer(b"\xff" * array.itemsize, array.dtype)[0]


def _equal(a: np.ndarray, b: np.ndarray) -> bool:
    return np.ascontiguousarray(a).tobytes() == np.ascontiguousarray(b).tobytes()
