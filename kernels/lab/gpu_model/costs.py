"""What operations cost, from shapes alone: a dialect that computes nothing.

Inside `with counting() as count:` every operation of `kernels` checks nothing and launches nothing:
it hands back an array of the right shape and dtype whose content is meaningless, and notes its
floating-point operations, by the rule that its family declares, and the least bytes it must move
(each operand read once, each result written once). So a network, its gradients and its optimiser
can be "run" in milliseconds, at any size, and `count` says what they would cost. Results share one
piece of memory, however large.

An operation of a pointwise line is an arithmetic operator, a comparison or a call (`exp` counts 1).
What NumPy does itself (sorting, assignments to indexed elements) is not counted.
"""

from __future__ import annotations

import functools
import math
import mmap
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from kernels import dispatch, launchers
from kernels.families import Operation, Shape


class Launch(NamedTuple):
    """One operation: family, floating-point operations, least bytes, and whether tensor cores
    could do it (matrix products and convolutions)."""

    family: str
    flops: int
    bytes: int
    matrix: bool


class Counting:
    """The dialect that counts. launches: all operations so far, in order.

    live: bytes of the results that something still holds; peak: the most there ever were.
    """

    def __init__(self) -> None:
        self.launches: list[Launch] = []
        self.live = self.peak = 0
        self._scratch = mmap.mmap(-1, 1 << 12)
        self._held: dict[int, tuple[weakref.ref, int]] = {}

    @property
    def flops(self) -> int:
        return sum(launch.flops for launch in self.launches)

    @property
    def bytes(self) -> int:
        return sum(launch.bytes for launch in self.launches)

    def __getattr__(self, name: str) -> Callable:
        if name.startswith("__") or name not in launchers.operations():
            raise AttributeError(f"counting: no operation {name!r}")
        return functools.partial(self._run, launchers.operations()[name])

    def _run(self, operation: Operation, *args: Any, **kwargs: Any) -> Any:
        specs, flops = operation.cost(*args, **kwargs)
        given = [*args, *kwargs.values()]
        moved = sum(map(_bytes, given))
        out = kwargs.get("out")
        if specs is None:  # an optimiser: what it changes is also written
            written = sum(map(_bytes, operation.written(*args)))
            results: tuple = ()
        elif out is not None:
            written, results = 0, (out,)
        else:
            results = tuple([None if spec is None else self.empty(*spec) for spec in specs])
            written = sum(map(_bytes, results))
        name = operation.name
        family = f"{name}.{args[0].name}" if name == "pointwise" else name
        family = f"{name}.{args[0]}" if name == "reduce" else family
        self.launches.append(Launch(family, int(flops), moved + written, operation.matrix))
        return results if len(results) > 1 else results[0] if results else None

    def empty(self, shape: Shape, dtype: np.dtype) -> np.ndarray:
        """An array of any size that takes no memory of its own and is counted while it lives."""
        size = math.prod(shape) * np.dtype(dtype).itemsize
        if size > len(self._scratch):
            self._scratch = mmap.mmap(-1, size)  # pages that nothing touches take no memory
        array = np.ndarray(shape, dtype, buffer=self._scratch)
        key = id(array)
        self._held[key] = (weakref.ref(array, lambda _: self._freed(key)), size)
        self.live += size
        self.peak = max(self.peak, self.live)
        return array

    def _freed(self, key: int) -> None:
        self.live -= self._held.pop(key)[1]


@contextmanager
def counting() -> Iterator[Counting]:
    """Count the operations of the block instead of running them."""
    count, before = Counting(), dispatch.active
    dispatch.active = count
    try:
        yield count
    finally:
        dispatch.active = before


def _bytes(value: Any) -> int:
    """Bytes of the arrays in an argument; what a broadcast repeats counts once."""
    if isinstance(value, np.ndarray):
        steps = zip(value.shape, value.strides)
        return math.prod(n for n, step in steps if step) * value.itemsize if value.size else 0
    return sum(map(_bytes, value)) if isinstance(value, list | tuple) else 0
