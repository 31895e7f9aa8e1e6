"""Recording a step: it runs once on traced arrays, and every call that computes is written down."""

from __future__ import annotations

import gc
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from kernels import dispatch, launchers
from kernels.launchers.common import namespace, on_gpu
from kernels.pointwise import TABLE
from kernels.support import wrong_index
from kernels.support.interrupts import deferred
from minigrad.autograd.mode import mode
from minigrad.compiler.arrays import TracedArray, plain
from minigrad.compiler.graph import CONSTANT, GIVEN, INPUT, TEMPORARY, Buffer, Call, Unsupported
from minigrad.compiler.late import Draw, Numbers, value_now
from minigrad.compiler.lift import Lifted
from minigrad.compiler.lower import checking, dialect_in_use, is_closed, is_read, logged
from minigrad.compiler.output import noticed_output
from minigrad.compiler.places import (
    arrays_in,
    assign,
    is_array,
    may_share,
    owner_of,
    place_of,
    with_arrays,
)
from minigrad.compiler.updates import Updates
from minigrad.utils._pytree import tree_map

_OURS = str(Path(__file__).parents[1])
_CONTIGUOUS = ("numpy.reshape", "numpy.ravel", "numpy.ascontiguousarray")
_KERNELS = str(Path(launchers.__file__).parents[1])


class _RecordingDialect:
    """Stands for the dialect in use while a step is recorded."""

    def __init__(self, dialect: Any) -> None:
        self.dialect = dialect

    def __getattr__(self, name: str) -> Any:
        if name not in launchers.operations():
            return getattr(self.dialect, name)

        def operation(*args: Any, **kwargs: Any) -> Any:
            function = getattr(self.dialect, name)  # another one once there is a GPU
            if mode.recorder is None:  # another thread
                return function(*plain(args), **plain(kwargs))
            return mode.recorder.operation(name, function, args, kwargs)

        setattr(self, name, operation)
        return operation


class Recorder(Lifted):
    """Writes down the calls of one step in this thread.

    reason: why the step cannot be recorded; it then goes on without being written down.
    stand_in: what stands for the dialect in use while it records.
    """

    def __init__(self, fullgraph: bool) -> None:
        super().__init__()
        self.fullgraph = fullgraph
        self.reason: str | None = None
        # Calls that fill what the step made and then changes, and before which call each comes
        self.starts: list[tuple[int, Call]] = []
        self._born: dict[Buffer, int] = {}
        self.calls: list[Call] = []
        self.checks: list[Call] = []  # of numbers that there were before: they come first
        self.draws: dict[Any, int] = {}  # generator -> calls made by the step
        self.drawn: dict[Any, tuple[int, int]] = {}  # generator -> seed, and offset of the first
        self.placed: dict[Buffer, Any] = {}  # gradients that lie in an optimiser's arena
        self.used: set[int] = set()  # ids of the traced arrays that calls read or write
        self.numbers, self.updates = Numbers(), Updates()
        self.stand_in: Any = None
        self._checked: set[tuple] = set()  # where index arrays lie that are checked at each replay

    # -- what tensors report ---------------------------------------------------------------

    def stop(self, reason: str) -> None:
        """The step cannot be recorded."""
        if self.reason is None:
            self.reason = f"{reason}{_user_line()}"
        if self.fullgraph:
            raise Unsupported(self.reason)

    def operation(self, name: str, function: Callable, args: tuple, kwargs: dict) -> Any:
        """Run an operation of the dialect."""
        self.use((args, kwargs))
        args, kwargs = plain(args), plain(kwargs)
        if self.reason is not None:
            args, kwargs = tree_map(value_now, args), tree_map(value_now, kwargs)
            return self._traced_result(function(*args, **kwargs))
        written = self._written(name, args, kwargs)
        if name == "checked_index":  # what it writes is the host's (kernels.support.wrong_index)
            self._roots |= {id(owner_of(array)) for array in written}
        for array in arrays_in((args, kwargs)):
            self.memory.add(array, GIVEN)
        for array in written:
            self._before_write(array)
        if dispatch.tracer is not None:
            self.stop("a step inside of kernels.trace()")
        before = [(a, a.copy()) for a in written if is_read(a, args)]
        if dispatch.backend() == "numpy":  # it computes with the numbers at once
            result, log = logged(
                function, tree_map(value_now, args), tree_map(value_now, kwargs), self.numbers
            )
        else:
            result, log = logged(function, args, kwargs, self.numbers)
        if mode.recorder is not self:  # a child that compiles what comes next: it records nothing
            return result
        args, kwargs, passed = self.numbers.named(args, kwargs)
        call = Call(name, function, args, kwargs, writes=written)
        fresh = self._name_outputs(call, result)
        index = [] if name not in checking() else [a for a in arrays_in(args) if _is_index(a)]
        known = all(place_of(a) in self._checked for a in index)

        def again(arrays: list[np.ndarray]) -> list[np.ndarray]:
            _, second = logged(function, args, kwargs, self.numbers)
            places = {place_of(a) for launch in second.launches for a in arrays_in(launch.args)}
            return [a for a in arrays if place_of(a) in places]

        known = known and passed <= {id(a) for launch in log.launches for a in launch.args}
        if known and is_closed(call, log.launches, self.memory, before, again):
            call.launches = log.launches
        for array in call.arrays():
            self.memory.add(array, TEMPORARY)
        if fresh or written:
            self.calls.append(call)
        return self._traced_result(result)

    def numpy(self, function: Callable, args: Any, kwargs: dict, name: str) -> Any:
        """Run a function of NumPy; a view is no call."""
        if name.endswith("repeat") and any(type(a) is TracedArray for a in args[1:]):
            self.stop("repeat() by counts in a tensor")
        self.use((args, kwargs))
        args, kwargs = plain(args), plain(kwargs)
        if name == "numpy.copy" and args[0].dtype.kind != "c":
            return self.operation("copy", dialect_in_use().copy, args, {})
        written = tuple(arrays_in(kwargs.get("out")))
        if self.reason is None:
            for array in arrays_in((args, kwargs)):
                self.memory.add(array, GIVEN)
            for array in written:
                self._before_write(array)
        result = with_arrays(function(*args, **kwargs))
        if name in _CONTIGUOUS and result.dtype.kind != "c" and not may_share(result, args[0]):
            copied = plain(self.operation("copy", dialect_in_use().copy, (args[0],), {}))
            result = function(copied, *args[1:], **kwargs)  # a view
        if self.reason is None:
            call = Call(name, function, tuple(args), kwargs, writes=written)
            if self._name_outputs(call, result) or written:
                for array in call.outputs:
                    self.memory.add(array, TEMPORARY)
                self.calls.append(call)
        return self._traced_result(result)

    def created(self, array: np.ndarray) -> TracedArray:
        """An array that a function made out of a shape."""
        buffer = self.memory.add(array, CONSTANT)
        if buffer is not None:
            self._born[buffer] = len(self.calls)
        return TracedArray(array)

    def write(self, target: Any, value: Any) -> None:
        """As `assign`, for all elements of an array that may be traced."""
        self.use((target, value))
        self.assign(plain(target), value)

    def assign(self, target: np.ndarray, value: Any) -> None:
        """Copy `value` (an array or a number) into the elements of `target`, a view."""
        self.use(value)
        source = plain(value)
        if is_array(source) and source.shape != target.shape:
            source = namespace(source).broadcast_to(source, target.shape)
        if is_array(source) and source.dtype.kind != "c" != target.dtype.kind:
            function = dialect_in_use().pointwise
            kwargs = {"out": target}
            if source.dtype != target.dtype:
                kwargs["dtype"] = source.dtype
            self.operation("pointwise", function, (TABLE["copy"], source), kwargs)
            return
        if self.reason is None:
            for array in arrays_in((target, source)):
                self.memory.add(array, GIVEN)
            self._before_write(target)
            self.calls.append(Call("assign", assign, (target, source), writes=(target,)))
        target[...] = source

    def draw(self, generator: Any, seed: int, offset: int) -> tuple[int, int]:
        """Seed and offset of a call of a generator, as numbers that a replay draws again."""
        count = self.draws.get(generator, 0)
        self.draws[generator] = count + 1
        self.drawn.setdefault(generator, (seed, offset))
        return Draw.of(seed, generator, None), Draw.of(offset, generator, count)

    def check(self, function: Callable, array: Any, args: tuple) -> None:
        """Check the numbers of an array: operations that need that may then be launched alone."""
        self.use(array)
        array = plain(array)
        function(array, *args)
        if self.reason is None:
            buffer = self.memory.add(array, GIVEN)
            self._checked.add(place_of(array))
            call = Call("check", function, (array, *args))
            changed = {self.memory.find(a) for c in self.calls for a in c.writes}
            made = buffer is not None and (buffer.kind == TEMPORARY or buffer in changed)
            (self.calls if made else self.checks).append(call)

    def lower(self, call: Call) -> bool:
        """Find the launches of a pointwise call that was made of others; False if it has none."""
        target = call.kwargs["out"]
        old = target.copy()
        before = [(target, old)] if is_read(target, call.args) else []
        with deferred():  # `target` may be a tensor's memory
            _, log = logged(dialect_in_use().pointwise, call.args, call.kwargs, self.numbers)
            call.launches = log.launches
            call.kernels = tuple([launch.kernel for launch in log.launches])
            closed = is_closed(call, log.launches, self.memory, before, lambda arrays: [])
            target[...] = old
        return closed

    def optimizer_step(self, optimizer: Any, step: Callable, args: tuple, kwargs: dict) -> Any:
        """Run a step of an optimiser."""
        return self.updates.step(self, optimizer, step, args, kwargs)

    def number(self, value: Any) -> Any:
        """A number as operations take it: late ones become floats."""
        return self.numbers.plain(value)

    def _name_outputs(self, call: Call, result: Any) -> bool:
        """Find the new arrays among results; whether there are any."""
        found = list(enumerate(arrays_in(result)))
        found = [(i, a) for i, a in found if a.size and self.memory.find(a) is None]
        call.places, call.outputs = tuple([i for i, _ in found]), tuple([a for _, a in found])
        return bool(found)

    def use(self, value: Any) -> None:
        if type(value) is TracedArray:
            self.used.add(id(value))
        elif isinstance(value, (tuple, list)):
            for item in value:
                self.use(item)
        elif isinstance(value, dict):
            self.use(tuple(value.values()))

    # -- memory ----------------------------------------------------------------------------

    def _written(self, name: str, args: tuple, kwargs: dict) -> tuple[np.ndarray, ...]:
        declared = launchers.operations()[name].written
        out = kwargs.get("out")
        found = declared(*args, **kwargs) if name != "pointwise" else ()
        return tuple([a for a in (*found, out) if a is not None])

    def _before_write(self, array: np.ndarray) -> None:
        """An array is about to change: one that the step made starts with its content again."""
        if array.dtype.kind in "iu":
            self._checked.clear()
        buffer = self.memory.add(array, GIVEN)
        if buffer is not None and buffer.kind == GIVEN and self.before_change(array):
            self.stop("a change of memory that an argument shares with other tensors")
        if buffer is None or buffer.kind in (TEMPORARY, INPUT) or self.updates.inside:
            return
        if buffer.kind == GIVEN and id(buffer.owner) in self._roots:
            return
        buffer.kind = TEMPORARY
        owner = buffer.owner
        content = owner.copy()
        self.memory.add(content, CONSTANT)
        later, self.calls = self.calls, []
        if owner.dtype.kind == "c":  # which kernels in CUDA C do not take
            self.calls.append(Call("assign", assign, (owner, content), writes=(owner,)))
        else:
            function = dialect_in_use().pointwise
            self.operation("pointwise", function, (TABLE["copy"], content), {"out": owner})
        self.starts.append((self._born.get(buffer, 0), self.calls[0]))
        self.calls = later
        self.trace_tensors_in(buffer)

    def _traced_result(self, result: Any) -> Any:
        if is_array(result):
            return result if type(result) is TracedArray else TracedArray(result)
        if type(result) in (tuple, list):
            return type(result)([self._traced_result(r) for r in result])
        return result

    def part(self, first: int, last: int | None = None) -> list[Call]:
        """The calls from one number to another."""
        last = len(self.calls) if last is None else last
        before: dict[int, list[Call]] = {}
        for place, call in self.starts:
            before.setdefault(place, []).append(call)
        found = [] if last is None else list(self.checks)  # in the forward part
        for place in range(first, last):
            found += [*before.get(place, ()), self.calls[place]]
        return found

    def forget(self) -> None:
        """Let go of what only the recording needed."""
        self.lifted, self.counters, self._traced = {}, [], {}
        self.used, self.starts, self.calls, self.checks = set(), [], [], []
        self.numbers.release()

    def stop_quietly(self, reason: str) -> None:
        """As `stop`, at the end of the step."""
        if self.reason is None:
            self.reason = reason


@contextmanager
def traced_arrays(recorder: Recorder) -> Iterator[None]:
    """Tensors may hold traced arrays, those of other threads, too, which go on computing."""
    dialect = dispatch.dialect(dispatch.backend())  # also where none has been in use yet
    stand_in: Any = _RecordingDialect(dialect)
    dispatch.active = recorder.stand_in = stand_in
    try:
        yield
    finally:
        dispatch.active = dialect


@contextmanager
def recording(recorder: Recorder) -> Iterator[None]:
    """Let a recorder write down what this thread computes."""
    mode.recorder = recorder
    try:
        with wrong_index.recording(), noticed_output(), _old_objects_apart():
            yield
    finally:
        mode.recorder = None


@contextmanager
def _old_objects_apart() -> Iterator[None]:
    """A search for the tensors that the step has made passes over what there was before: in a
    process with Numba that takes milliseconds."""
    apart = not gc.get_freeze_count()
    if apart:
        gc.freeze()
    try:
        yield
    finally:
        if apart:
            gc.unfreeze()


def _is_index(array: Any) -> bool:
    """Whether an operation reads an array on the host first; on a GPU a launch checks it."""
    return array.dtype.kind in "iu" and not on_gpu(array)


def _user_line() -> str:
    """Where the program is, outside of this package."""
    frame = inspect.currentframe()
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith((_OURS, _KERNELS)) and "numpy" not in file:
            return f" ({Path(file).name}, line {frame.f_lineno})"
        frame = frame.f_back
    return ""
