"""A block run in the interpreter with every line, variable and access of its threads noted.

Each CUDA thread executes the Python function on an operating-system thread of its own, where
`sys.settrace` reports the lines. The threads run one after the other between two barriers; `merge`
puts their events into the order in which a GPU's warps would execute them: at each step the threads
with the smallest place in the program go on, so that branches and loops come together again where
they end (the min-PC policy: Collange, "Stack-less SIMT reconvergence at low cost", 2011).
"""

from __future__ import annotations

import ast
import heapq
import linecache
import sys
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any

import numpy as np

from kernels.lab.report.steps import Event, Memory, Step, Touch
from kernels.simt.interpreter import interpreter
from kernels.simt.interpreter.functions import KERNEL_MARK
from kernels.support.memory import owner_of

MOST_VIEWS = 256  # arrays and views of them whose numbers are kept
MOST_LOCAL = 32  # elements of a local array that is shown as a variable
AFTER_CALLS = 1 << 30  # the rest of a line, after a device function that it calls has returned


Loops = dict[int, tuple[int, ...]]


def loops_of(filename: str) -> Loops:
    """For each line of a file the first lines of the loops around it, outermost first."""
    found: Loops = {}
    try:
        tree = ast.parse("".join(linecache.getlines(filename)))
    except SyntaxError:  # a notebook's cell with a magic command
        return found

    def visit(node: ast.AST, around: tuple[int, ...]) -> None:
        if isinstance(node, ast.FunctionDef | ast.Lambda):
            around = ()
        elif isinstance(node, ast.For | ast.While):
            around = (*around, node.lineno)
            last = node.body[-1].end_lineno or node.lineno
            for line in range(node.lineno, last + 1):
                found[line] = around
        for child in ast.iter_child_nodes(node):
            visit(child, around)

    visit(tree, ())
    return found


class Cut(BaseException):
    """Ends a thread of which enough has been noted."""


class _Frame:
    """A function that a thread is in: where, and what its variables were."""

    def __init__(
        self, frame: FrameType, prefix: tuple[int, ...], nested: bool, loops: Loops
    ) -> None:
        self.prefix = prefix
        self.file = frame.f_code.co_filename
        self.loops = loops
        self.iterations: dict[int, int] = {}
        self.held: dict[str, Any] = {}  # the objects themselves, to see quickly what is the same
        self.known: dict[str, Any] = {}
        self.label = f"{frame.f_code.co_name}." if nested else ""
        self.event: Event | None = None
        self.parameters: dict[str, Any] = {}
        self.returned_here = False  # a function that the current line calls has returned

    def key(self, line: int) -> tuple[int, ...]:
        """The place of a line that is executed now: see `Event.key`."""
        around = self.loops.get(line, ())
        for header in list(self.iterations):
            if header not in around:
                del self.iterations[header]
        key = self.prefix
        for header in around:
            if header == line:
                self.iterations[header] = self.iterations.get(header, 0) + 1
            key += (header, self.iterations.get(header, 1))
        return (*key, line)


class Thread(interpreter.Thread):
    """A CUDA thread whose lines, variables and accesses are noted as `events`."""

    def __init__(self, block: Any, number: int, index: interpreter.Triple) -> None:
        super().__init__(block, number, index)
        self.memory = block.memory
        self.room = block.launch.events_each
        self.events: list[Event] = []
        self.cut = False
        self.epoch = 0
        self._frames: list[_Frame] = []
        self._in_atomic = False
        self._stored: tuple[Event, int, np.ndarray, tuple] | None = None

    # -- what `sys.settrace` calls

    def _body(self) -> None:
        before = sys.gettrace()
        sys.settrace(self._called)
        try:
            super()._body()
        except Cut:
            self.block.exited(self)
        finally:
            sys.settrace(before)

    def returned_early(self) -> bool:
        return super().returned_early() or self.cut

    def _called(self, frame: FrameType, event: str, arg: Any) -> Callable | None:
        if KERNEL_MARK not in frame.f_globals:
            return None
        outer = self._frames[-1] if self._frames else None
        prefix = outer.event.key if outer and outer.event else ()
        file = frame.f_code.co_filename
        if file not in self.block.loops:
            self.block.loops[file] = loops_of(file)
        self._frames.append(_Frame(frame, prefix, outer is not None, self.block.loops[file]))
        return self._executed

    def _executed(self, frame: FrameType, event: str, arg: Any) -> Callable | None:
        if event == "line":
            self._finish(frame)
            self._begin(frame.f_lineno)
        elif event == "return":
            self._finish(frame)
            self._frames.pop()
            if self._frames:
                self._frames[-1].returned_here = True
        return self._executed

    def _begin(self, line: int) -> None:
        now = self._frames[-1]
        now.returned_here = False
        self._add(now, now.key(line), (now.file, line))
        now.event.changes |= now.parameters
        now.parameters = {}

    def _add(self, now: _Frame, key: tuple[int, ...], place: tuple[str, int]) -> None:
        now.event = Event(key, place, self.epoch)
        if len(self.events) < self.room:
            self.events.append(now.event)
        else:
            self._end()

    def _end(self) -> None:
        """Trace no more. What is noted of other threads is right up to the barrier that this one
        does not reach: there they end as well, if the launch is for the trace only."""
        self.cut = True
        launch = self.block.launch
        launch.last_epoch = min(launch.last_epoch, self.epoch)
        sys.settrace(None)
        if launch.ends_with_trace:
            raise Cut

    def _current(self) -> Event | None:
        """The event that what happens now is part of."""
        now = self._frames[-1] if self._frames else None
        if now is None or now.event is None:
            return None
        if now.returned_here:
            now.returned_here = False
            self._add(now, (*now.event.key, AFTER_CALLS), now.event.place)
        return now.event

    def _finish(self, frame: FrameType) -> None:
        """Note what the line before has changed."""
        self._settle()
        now = self._frames[-1]
        for name, held in frame.f_locals.items():
            if now.held.get(name) is held:
                continue
            value = self.memory.variable(name, held)
            if not isinstance(value, list):  # a local array, whose elements may change
                now.held[name] = held
            if value is None or (name in now.known and _same(now.known[name], value)):
                continue
            now.known[name] = value
            event = self._current()
            changes = now.parameters if event is None else event.changes
            changes[now.label + name] = value

    # -- what the interpreter calls

    def tick(self, array: Any, index: Any, stores: bool = False) -> None:
        self._settle()
        event = None if self.cut else self._current()
        place = None if event is None else self.memory.place(array, index)
        if place is not None:
            op = "atomic" if self._in_atomic else "store" if stores else "load"
            if op != "atomic" or stores:
                event.touches.append(Touch(op, *place))
            if stores:
                exact = tuple(map(int, index)) if isinstance(index, tuple) else (int(index),)
                self._stored = event, len(event.touches) - 1, np.asarray(array), exact
        super().tick(array, index, stores)

    def call(self, name: str, args: tuple, kwargs: dict) -> Any:
        if not name.startswith("atomic."):
            return super().call(name, args, kwargs)
        self._in_atomic = True
        try:
            return super().call(name, args, kwargs)
        finally:
            self._in_atomic = False

    def wait(self, what: str) -> Any:
        self._settle()
        event = self._current()
        if event is not None:
            event.barrier = what
        ends_epoch = what.startswith(("syncthreads", "grid"))
        if ends_epoch and not self.cut and self.epoch >= self.block.launch.last_epoch:
            self._end()
        outcome = super().wait(what)
        self.epoch += ends_epoch
        return outcome

    def _settle(self) -> None:
        """Read what the last store has written, before another thread can write there."""
        if self._stored is None:
            return
        event, number, array, index = self._stored
        self._stored = None
        touch = event.touches[number]
        event.touches[number] = Touch(touch.op, touch.array, touch.index, plain(array[index]))


class Arrays:
    """The arrays of a launch and of one of its blocks, by their addresses."""

    def __init__(self, args: dict[str, np.ndarray], originals: dict[str, np.ndarray]) -> None:
        self.found: list[Memory] = []
        self._ranges: list[tuple[int, int, np.ndarray]] = []
        self._known: dict[int, tuple[np.ndarray, int]] = {}  # by id; the arrays are kept alive
        for name, array in args.items():
            self._add(name, "global", array, originals[name])

    def _add(self, name: str, space: str, array: np.ndarray, initial: np.ndarray | None) -> None:
        low, high = np.lib.array_utils.byte_bounds(array)
        flat = None if initial is None else np.ascontiguousarray(initial).reshape(-1)
        offset = 0 if initial is None else _offset(initial)
        shape, strides = tuple(map(int, np.shape(array))), tuple(map(int, array.strides))
        self.found.append(Memory(name, space, array.dtype, shape, strides, offset, flat))
        self._ranges.append((low, high, array))

    def add_shared(self, array: np.ndarray) -> None:
        """Shared memory that a thread has asked for; its name is known once a variable holds it."""
        plain = np.asarray(array)
        low, high = np.lib.array_utils.byte_bounds(plain)
        if plain.size and not any(a <= low and high <= b for a, b, _ in self._ranges):
            self._add("", "shared", plain, None)

    def variable(self, name: str, held: Any) -> Any:
        """A variable's value if it is a number or a small local array, else None."""
        if isinstance(held, np.ndarray):
            number = self._number(held) if held.size else None
            if number is not None:
                memory = self.found[number]
                memory.name = memory.name or name
                return None
            return np.asarray(held).tolist() if 0 < held.size <= MOST_LOCAL else None
        if isinstance(held, bool | int | float | complex | np.generic):
            return plain(held)
        return None

    def _number(self, array: np.ndarray) -> int | None:
        if id(array) in self._known:
            return self._known[id(array)][1]
        start = array.__array_interface__["data"][0]
        for number, (low, high, _) in enumerate(self._ranges):
            if low <= start < high:
                if len(self._known) < MOST_VIEWS:
                    self._known[id(array)] = array, number
                return number
        return None

    def place(self, array: Any, index: Any) -> tuple[int, int] | None:
        """(number, index in C order) of an element; None for local arrays, slices and indices
        outside."""
        parts = index if isinstance(index, tuple) else (index,)
        if len(parts) != np.ndim(array) or any(isinstance(part, slice) for part in parts):
            return None
        number = self._number(array)
        if number is None:
            return None
        address = array.__array_interface__["data"][0]
        for part, length, stride in zip(parts, np.shape(array), array.strides):
            if not -length <= part < length:
                return None
            address += int(part + length if part < 0 else part) * int(stride)
        low, _, owner = self._ranges[number]
        return number, _element(owner, address - low)


def _element(array: np.ndarray, offset: int) -> int:
    """The C-order index of the element `offset` bytes behind the array's lowest address."""
    if array.flags.c_contiguous:
        return offset // array.itemsize
    position = [0] * array.ndim
    for axis in sorted(range(array.ndim), key=lambda axis: -abs(array.strides[axis])):
        stride, last = array.strides[axis], array.shape[axis] - 1
        if stride and last:
            steps, offset = divmod(offset, abs(stride))
            position[axis] = steps if stride > 0 else last - steps
    return int(np.ravel_multi_index(position, array.shape))


def _offset(array: np.ndarray) -> int:
    """Bytes from the beginning of the memory that an array is a view of."""
    return array.__array_interface__["data"][0] - np.lib.array_utils.byte_bounds(owner_of(array))[0]


def plain(value: Any) -> Any:
    """A number as Python's own."""
    return value.item() if isinstance(value, np.generic) else value


def _same(a: Any, b: Any) -> bool:
    return type(a) is type(b) and (a == b or (a != a and b != b))


def merge(threads: Iterable[list[Event]]) -> list[Step]:
    """The events of a block's threads as steps, in the order described above."""
    threads = list(threads)
    following = [0] * len(threads)
    waiting: dict[tuple, list[int]] = {}
    ready: list[tuple] = []

    def offer(thread: int) -> None:
        if following[thread] < len(threads[thread]):
            event = threads[thread][following[thread]]
            place = (event.epoch, event.key, event.place)
            if place not in waiting:
                waiting[place] = []
                heapq.heappush(ready, place)
            waiting[place].append(thread)

    for thread in range(len(threads)):
        offer(thread)
    steps = []
    while ready:
        place = heapq.heappop(ready)
        active = sorted(waiting.pop(place))
        events = [threads[thread][following[thread]] for thread in active]
        barrier = next((event.barrier for event in events if event.barrier), "")
        steps.append(Step(place[2], place[0], barrier, active, events))
        for thread in active:
            following[thread] += 1
            offer(thread)
    return steps
