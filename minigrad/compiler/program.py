"""A recorded step with memory of its own: what is left to do for each replay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kernels.sequence import Launch, Sequence, can_be_packed
from kernels.simt import get_num_threads
from minigrad.compiler.graph import Buffer, Call, Draw, Memory, Place, arrays_in
from minigrad.compiler.plan import ALIGNMENT, Layout
from minigrad.random import Generator
from minigrad.utils._tree import mapped

_PARALLEL_SECONDS = 2e-4  # shorter launches stay on the calling thread


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
    ) -> None:
        self._memory, self._plan, self._placed = memory, plan, placed
        raw = np.empty(plan.size + ALIGNMENT, np.uint8)
        skip = -raw.ctypes.data % ALIGNMENT
        self._bytes = raw[skip : skip + plan.size]
        self._first, self._draws = len(parts[0]), draws
        self._drawn: dict[Generator, tuple[int, int]] = {}
        self._redraw: list[tuple[np.ndarray, int, Draw]] = []  # words, place, what it is
        self.busy = False
        self._parts = [self._steps(calls) for calls in parts]

    def run(self, part: int) -> None:
        """Replay a part."""
        if part == 0 and self._draws:
            for generator, count in self._draws.items():
                self._drawn[generator] = generator.next_calls(count)
            for words, place, draw in self._redraw:
                words[place] = self._number(draw) & 0xFFFFFFFFFFFFFFFF
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
        return np.ndarray(found.shape, found.dtype, memory, start, found.strides)

    def load(self) -> None:
        """Copy the results of the recorded first part here, as if it had been a replay."""
        for buffer, (first, last) in self._plan.spans.items():
            if first < self._first <= last:
                self.array(buffer.owner)[...] = buffer.owner

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
            long = get_num_threads() > 1 and call.seconds > _PARALLEL_SECONDS
            for launch in call.launches:
                moved = launch._replace(args=tuple([self.array(a) for a in launch.args]))
                if not long and can_be_packed(_drawn_once(moved)):
                    packed.append(moved)
                else:
                    flush()
                    steps.append(self._bound(moved))
        flush()
        return steps

    def _sequence(self, launches: list[Launch]) -> Sequence:
        sequence = Sequence([_drawn_once(launch) for launch in launches])
        for number, launch in enumerate(launches):
            for place, value in enumerate(launch.args):
                if type(value) is Draw:
                    self._redraw.append((sequence.words, sequence.word(number, place), value))
        return sequence

    def _bound(self, launch: Launch) -> Callable[[], None]:
        """A launch from Python: one with random numbers, or one for several threads."""
        run = launch.kernel.bind(launch.grid, launch.block, *_drawn_once(launch).args)
        args = launch.args
        if any(type(a) is Draw for a in args):
            return lambda: run(*[self._number(a) for a in args])
        return lambda: run(*args)

    def _python(self, call: Call) -> Callable[[], None]:
        """A call of a function."""
        function, args, kwargs = call.function, call.args, call.kwargs
        args, kwargs = mapped(self.array, args), mapped(self.array, kwargs)
        outputs = [self.array(a) for a in call.outputs]
        places, draws = call.places, any(type(a) is Draw for a in args)
        name = call.name

        def repeat() -> None:
            given = [self._number(a) for a in args] if draws else args
            result = function(*given, **kwargs)
            if isinstance(result, np.generic):
                result = np.asarray(result)
            if places:
                found = list(arrays_in(result))
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
        """The present value of a draw."""
        if type(value) is not Draw:
            return value
        seed, first = self._drawn[value.generator]
        return seed if value.call is None else first + value.call


def _drawn_once(launch: Launch) -> Launch:
    """A launch with plain integers."""
    return launch._replace(args=tuple([int(a) if type(a) is Draw else a for a in launch.args]))
