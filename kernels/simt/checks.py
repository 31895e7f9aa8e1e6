"""What kernels in checked mode call: bounds of every index, reads of unwritten shared memory.

A violation is recorded in the launch's `error` buffer and ends the launch by an exception;
`explain` turns the record into a message.
"""

from __future__ import annotations

from typing import Any

from numba import njit

from .errors import KernelError, KernelIndexError, SimtError, UninitialisedError

DIVERGENT, ENDLESS, UNEXPECTED_SIGN, BOUNDS, UNWRITTEN, RAISED = 1, 2, 3, 4, 5, 6


class CheckFailed(Exception):
    """Ends a compiled kernel in checked mode; never reaches the user."""


@njit
def record(error, kind, site, block, thread):
    """Note what happened, where in the source, and to which thread."""
    error[0], error[1], error[2], error[3] = kind, site, block, thread


@njit
def place(array, index, error, site, block, thread):
    """`index` (a tuple of integers), proven to be inside `array`."""
    for axis in range(len(index)):
        if not -array.shape[axis] <= index[axis] < array.shape[axis]:
            error[4], error[5] = axis, index[axis]
            error[6] = array.ndim
            for d in range(array.ndim):
                error[7 + d] = array.shape[d]
            record(error, BOUNDS, site, block, thread)
            raise CheckFailed
    return index


@njit
def written(marks, index, error, site, block, thread):
    """`index`, proven to have been written since the block began."""
    if not marks[index]:
        for axis in range(len(index)):
            error[4 + axis] = index[axis]
        error[15] = len(index)
        record(error, UNWRITTEN, site, block, thread)
        raise CheckFailed
    return index


@njit
def mark(marks, index):
    """`index`, noted as written."""
    marks[index] = True
    return index


def coordinates(linear: int, dims: tuple[int, int, int]) -> tuple[int, int, int]:
    """(x, y, z) of a linear position."""
    x, y, _ = dims
    return (linear % x, linear // x % y, linear // (x * y))


def explain(
    name: str, error: Any, sites: tuple, block: tuple, grid: tuple, filename: str
) -> SimtError:
    """The exception for the violation in the buffer `error`; `sites` are (array, ndim, line)."""
    kind, site, block_number, thread = (int(v) for v in error[:4])
    who = (
        f"block {coordinates(block_number, grid)}, thread"
        f" {coordinates(thread % (block[0] * block[1] * block[2]), block)}"
    )
    if kind == ENDLESS:
        return KernelError(
            f"{name}: the loop at {filename}:{site} ran for too long ({who}); it seems to wait for"
            " memory that a thread or block which runs later would write"
        )
    if kind == DIVERGENT:
        return KernelError(
            f"{name}: the barrier at {filename}:{site} was reached by only some of the live threads"
            f" of its block ({who} did not come); move the barrier out of the condition"
        )
    array, ndim, line = sites[site]
    where = f"{filename}:{line}"
    if kind == BOUNDS:
        axis, index = int(error[4]), int(error[5])
        shape = tuple(int(n) for n in error[7 : 7 + min(int(error[6]), ndim)])
        return KernelIndexError(
            f"{name}: index {index} is out of bounds for axis {axis} of {array!r} with shape"
            f" {shape}, {who}, at {where}"
        )
    index = tuple(int(v) for v in error[4 : 4 + int(error[15])])
    return UninitialisedError(
        f"{name}: read of uninitialised shared memory: {array!r} at {index}, where no thread of the"
        f" block has written, {who}, at {where}"
    )
