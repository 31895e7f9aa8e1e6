"""What a recorded step consists of: calls in order, and the memory that they read and write."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kernels.sequence import Launch
from minigrad.compiler.places import address, arrays_in, bounds, device_of, is_array, owner_of
from minigrad.utils._pytree import tree_map

GIVEN, INPUT, CONSTANT, TEMPORARY = "given", "input", "constant", "temporary"
PLANNED = (INPUT, TEMPORARY)  # each program has memory of its own for these


class Unsupported(RuntimeError):
    """What `compile(fullgraph=True)` raises for a step that cannot be recorded."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"compile(fullgraph=True): the step cannot be recorded: {reason}; leave that out of the"
            " compiled function, or compile with fullgraph=False, which runs such a step eagerly"
        )


@dataclass(eq=False)
class Buffer:
    """Memory of an array that owns it.

    kind: GIVEN existed before the step, an INPUT is copied from an argument, a CONSTANT is made by
        the step and never changed, the step writes a TEMPORARY before it reads it.
    """

    owner: Any  # None once the memory of the recording is gone
    kind: str
    start: int
    stop: int
    moved: tuple[Any, Any] | None = None  # an array in it, and where its elements went on


@dataclass(eq=False)
class Call:
    """A call that a replay repeats.

    name: for people. function: of NumPy or of a dialect, or a function without arguments.
    outputs: the new arrays that it returned; places: their numbers among all.
    writes: arguments that it changes in place.
    launches: what to launch instead; None to call the function again.
    kernels: those that were generated for it.
    """

    name: str
    function: Callable
    args: tuple = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    outputs: tuple[np.ndarray, ...] = ()
    places: tuple[int, ...] = ()
    writes: tuple[np.ndarray, ...] = ()
    launches: list[Launch] | None = None
    kernels: tuple = ()

    def describe(self, memory: Memory) -> None:
        """Replace arrays by their places, so that the memory of the recording can go."""
        place = memory.described
        self.args, self.kwargs = tree_map(place, self.args), tree_map(place, self.kwargs)
        self.outputs = tuple([place(a) for a in self.outputs])
        self.writes = tuple([place(a) for a in self.writes])
        if self.launches is not None:
            self.launches = [
                launch._replace(args=tuple([place(a) for a in launch.args]))
                for launch in self.launches
            ]

    def reads(self) -> Iterator[np.ndarray]:
        """The arrays among its arguments."""
        yield from arrays_in((self.args, self.kwargs))

    def arrays(self) -> Iterator[np.ndarray]:
        """All arrays that it reads or writes."""
        yield from self.reads()
        yield from self.outputs
        yield from self.writes
        for launch in self.launches or ():
            yield from arrays_in(launch.args)


class Memory:
    """The buffers of a recording, by address. It keeps them alive, so that no two overlap."""

    def __init__(self) -> None:
        self._merged: dict[Buffer, Buffer] = {}
        self._starts: list[int] = []
        self._buffers: list[Buffer] = []

    def find(self, array: np.ndarray) -> Buffer | None:
        """The buffer that an array lies in; None for an empty array, or one in unknown memory."""
        found, _ = self.place(array)
        while found in self._merged:
            found = self._merged[found]
        return found

    def of_call(self, call: Call) -> set[Buffer]:
        """The buffers that a call reads or writes."""
        return {buffer for buffer in map(self.find, call.arrays()) if buffer is not None}

    def devices(self) -> set[Any]:
        """Where the buffers lie."""
        return {device_of(buffer.owner) for buffer in self._buffers}

    def release(self) -> None:
        """Forget the arrays that programs have memory for."""
        for buffer in self._buffers:
            if buffer.kind in PLANNED:
                buffer.owner = buffer.moved = None

    def merge(self, buffer: Buffer, into: Buffer) -> None:
        """What lies in one buffer lies in another of the same size."""
        self._merged[buffer] = into

    def described(self, value: Any) -> Any:
        """The place of an array that a program has memory for; any other value itself."""
        if not is_array(value):
            return value
        buffer = self.find(value)
        if buffer is None or buffer.kind not in PLANNED:
            return value
        return Place(buffer, self.place(value)[1], value.shape, value.strides, value.dtype)

    def place(self, array: np.ndarray) -> tuple[Buffer | None, int]:
        """The buffer that an array was made in, and the bytes before the array."""
        if not array.size:
            return None, 0
        start = address(array)
        place = bisect.bisect(self._starts, start) - 1
        if place < 0 or self._buffers[place].stop <= start:
            return None, 0
        return self._buffers[place], start - self._starts[place]

    def add(self, array: np.ndarray, kind: str) -> Buffer | None:
        """The buffer of an array, of this kind if it is new."""
        found = self.find(array)
        if found is not None or not array.size:
            return found
        owner = owner_of(array)
        start, stop = bounds(owner)
        buffer = Buffer(owner, kind, start, stop)
        place = bisect.bisect(self._starts, start)
        self._starts.insert(place, start)
        self._buffers.insert(place, buffer)
        return buffer


@dataclass(frozen=True)
class Place:
    """Where an array of a recording lies, once the array itself is gone."""

    buffer: Buffer
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype

    @property
    def ndim(self) -> int:
        return len(self.shape)
