"""A recorded step with memory of its own: what is left to do for each replay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kernels.graph import Graph
from kernels.sequence import Launch, Sequence, compiled_for
from kernels.support import wrong_index
from minigrad.compiler import places
from minigrad.compiler.graph import Buffer, Call, Memory, Place
from minigrad.compiler.late import Draw, Late, value_now
from minigrad.compiler.places import ALIGNMENT, arrays_in, with_arrays
from minigrad.compiler.plan import Layout
from minigrad.random import Generator
from minigrad.utils._pytree import tree_leaves, tree_map

_LATE = (Draw, Late)


class _Written:
    """A number that replays write into a launch: which one, and the object that it was last."""

    __slots__ = ("last", "number", "write")

    def __init__(self, write: Callable[[Any], None], number: Draw | Late) -> None:
        self.write, self.number = write, number
        self.last: Any = None

    def update(self, value: Any) -> None:
        """Write it, unless it is the object that is there already."""
        if value is not self.last:
            self.write(value)
            self.last = value


class Program:
    """The calls of a step in parts (forward, and backward where that is replayed apart).

    busy: a forward part has been replayed whose backward part may follow.
    """

    def __init__(
        self,
        parts: list[list[Call]],
        memory: Memory,
        plan: Layout,
        placed: dict[Buffer, np.ndarray],
        draws: dict[Generator, int],
        drawn: dict[Generator, tuple[int, int]],
    ) -> None:
        self._memory, self._plan, self._placed = memory, plan, placed
        self._device = plan.device
        self._bytes = places.memory(plan.size, ALIGNMENT, plan.device)
        self._first, self._draws = len(parts[0]), draws
        self._drawn = dict(drawn)  # by the last run of the first part
        self._late: list[_Written] = []
        self.busy = False
        self._parts = [self._steps(calls) for calls in parts]

    def run(self, part: int) -> None:
        """Replay a part."""
        if self._device is not None:
            wrong_index.raise_found()
        if part == 0:
            for generator, count in self._draws.items():
                self._drawn[generator] = generator.next_calls(count)
            for written in self._late:
                written.update(self._number(written.number))
        for step in self._parts[part]:
            step()

    def array(self, value: Any) -> Any:
        """Where an array of the recording lies in this program; any other value itself."""
        found = self._memory.described(value)
        if not isinstance(found, Place):
            return found
        memory, start = self._bytes, found.offset
        if found.buffer in self._placed:
            memory = self._placed[found.buffer].reshape(-1).view(np.uint8)
        else:
            start += self._plan.offsets[found.buffer]
        return places.view(memory, start, found.shape, found.dtype, found.strides)

    def load(self) -> None:
        """Copy the results of the recorded first part here, as if it had been a replay."""
        for buffer, (first, last) in self._plan.spans.items():
            if first < self._first <= last:
                place, content = buffer.moved or (buffer.owner, buffer.owner)
                self.array(place)[...] = content

    # -- how calls are replayed --------------------------------------------------------------

    def _steps(self, calls: list[Call]) -> list[Callable[[], None]]:
        steps: list[Callable[[], None]] = []
        packed: list[Launch] = []

        def flush() -> None:
            if packed:
                steps.append(self._sequence(list(packed)).run)
                packed.clear()

        for call in calls:
            if call.launches is None:
                flush()
                steps.append(self._python(call))
                continue
            for launch in call.launches:
                moved = launch._replace(args=tuple([self.array(a) for a in launch.args]))
                if self._device is not None or compiled_for(_now(moved)) is not None:
                    packed.append(moved)
                else:
                    flush()
                    steps.append(self._bound(moved))
        flush()
        return steps

    def _sequence(self, launches: list[Launch]) -> Sequence | Graph:
        make = Sequence if self._device is None else Graph
        sequence = make([_now(launch) for launch in launches])
        for number, launch in enumerate(launches):
            for place, value in enumerate(launch.args):
                if type(value) in _LATE:
                    self._late.append(_Written(sequence.writer(number, place), value))
        return sequence

    def _bound(self, launch: Launch) -> Callable[[], None]:
        """A launch from Python: of a kernel that needs it."""
        run = launch.kernel.bind(launch.grid, launch.block, *_now(launch).args)
        args = launch.args
        if any(type(a) in _LATE for a in args):
            return lambda: run(*[self._number(a) for a in args])
        return lambda: run(*args)

    def _python(self, call: Call) -> Callable[[], None]:
        """A call of a function."""
        function, args, kwargs = call.function, call.args, call.kwargs
        args, kwargs = tree_map(self.array, args), tree_map(self.array, kwargs)
        outputs = [self.array(a) for a in call.outputs]
        places, late = call.places, any(type(a) in _LATE for a in tree_leaves((args, kwargs)))
        name = call.name

        def repeat() -> None:
            given, named = args, kwargs
            if late:
                given, named = tree_map(self._number, args), tree_map(self._number, kwargs)
            result = function(*given, **named)
            if places:
                found = list(arrays_in(with_arrays(result)))
                for place, output in zip(places, outputs, strict=True):
                    if found[place].shape != output.shape:
                        raise RuntimeError(
                            f"compile: {name} gave a result of shape {list(found[place].shape)}"
                            f" where it gave {list(output.shape)} when the step was recorded; leave"
                            " it out of the compiled function"
                        )
                    output[...] = found[place]

        return repeat

    def _number(self, value: Any) -> Any:
        """The present value of a late number; any other value itself."""
        if type(value) is Late:
            return value.again()
        if type(value) is not Draw:
            return value
        seed, first = self._drawn[value.generator]
        return seed if value.call is None else first + value.call


def _now(launch: Launch) -> Launch:
    """A launch with plain numbers."""
    return launch._replace(args=tuple([value_now(a) for a in launch.args]))
