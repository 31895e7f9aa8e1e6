"""A block in the interpreter: its state at each barrier, and each line that its threads execute.

Python itself executes the kernel, thread by thread, on copies of the arrays, so `print` and
`breakpoint()` in it work too (a debugger takes over the tracing of the thread that it stops: the
steps of that thread end there).
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import kernels.simt.cuda  # noqa: F401 - what the interpreter has in the place of numba.cuda
from kernels.host import RawKernel
from kernels.lab.record import cuda_c_stepper
from kernels.lab.record.trace import Arrays, Loops, Thread, merge
from kernels.lab.report import interactive
from kernels.lab.report.report import MOST_EVENTS
from kernels.lab.report.steps import Trace
from kernels.simt.interpreter import interpreter
from kernels.simt.interpreter.schedule import Task
from kernels.support.errors import SimtError
from kernels.support.limits import Dimensions, block_of, launch_dimensions

POISON, RARE = 0xFF, 0xA7  # bytes of memory not yet written: NaN; of integers, where that is -1


class Snapshot(NamedTuple):
    """A block at a barrier, all its threads waiting, or at its end.

    line: of the barrier in the kernel's file, 0 at the end. waiting: how many threads it holds up.
    shared: shared arrays by name; written: which of their elements have been. changed: how many
    elements of each argument are not what they were before the launch. variables: for each thread
    the numbers and local arrays that it has names for.
    """

    line: int
    waiting: int
    shared: dict[str, np.ndarray]
    written: dict[str, np.ndarray]
    changed: dict[str, int]
    variables: list[dict[str, Any]]
    block: Dimensions

    def thread(self, x: int, y: int = 0, z: int = 0) -> dict[str, Any]:
        """The variables of a thread, by its threadIdx. Those of one that has ended are its last."""
        if not all(0 <= i < n for i, n in zip((x, y, z), self.block)):
            raise IndexError(f"thread ({x}, {y}, {z}) is not in a block of {self.block}")
        return self.variables[x + self.block[0] * (y + self.block[1] * z)]

    def __str__(self) -> str:
        where = f"at line {self.line}: {self.waiting} threads wait" if self.line else "at the end"
        rows = [where]
        for name, array in self.shared.items():
            shown = np.where(self.written[name], array, 0) if array.dtype.kind == "f" else array
            rows.append(f"  {name} = {np.array2string(shown, threshold=64, precision=4)}")
        rows += [f"  thread {i}: {_listed(one)}" for i, one in enumerate(self.variables[:4])]
        if len(self.variables) > 4:
            rows.append(f"  ... {len(self.variables)} threads: see thread(x, y, z)")
        return "\n".join(rows)


def _listed(variables: dict[str, Any]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in variables.items()) or "no variables"


class Shuffled(NamedTuple):
    """A shuffle of a thread: it gave `value` and got `got` from lane `source` of its warp."""

    thread: int
    name: str
    source: int
    value: Any
    got: Any


class Block(interpreter.Block):
    """A block that writes down its state whenever a barrier is complete."""

    def __init__(self, launch: _Launch, number: int, index: Dimensions) -> None:
        arrays = launch.arrays.items()
        self.memory = Arrays({n: c for n, (_, c) in arrays}, {n: a for n, (a, _) in arrays})
        self.loops: dict[str, Loops] = {}  # of each file; a file may change between launches
        super().__init__(launch, number, index)
        self.views: dict[str, np.ndarray] = {}
        self.fills: list[tuple[np.ndarray, int]] = []  # shared memory, and the byte it began with
        self.variables: list[dict[str, Any]] = [{} for _ in self.threads]
        self.shuffles: list[Shuffled] = []

    def shuffled(
        self, thread: interpreter.Thread, name: str, source: int, value: Any, got: Any
    ) -> None:
        self.shuffles.append(Shuffled(thread.number, name, source, value, got))

    def make_thread(self, number: int, index: Dimensions) -> interpreter.Thread:
        thread = Thread if self.launch.events_each else interpreter.Thread
        return thread(self, number, index)

    def shared_array(self, site: Any, shape: Any, dtype: np.dtype) -> np.ndarray:
        array = super().shared_array(site, shape, dtype)
        memory = self.dynamic if shape == 0 else np.asarray(array)
        if self._fill(memory) is None:
            fill = RARE if dtype.kind in "iu" else POISON
            memory.view(np.uint8)[...] = fill
            self.fills.append((memory, fill))
            self.memory.add_shared(array)
        return array

    def _fill(self, view: np.ndarray) -> int | None:
        return next((fill for known, fill in self.fills if np.may_share_memory(known, view)), None)

    def arrive(self, thread: interpreter.Thread, kind: str, value: Any) -> Any:
        frame = interpreter.kernel_frames()[-1]
        self.variables[thread.number] = self._variables(frame.f_locals)
        if len(self.waiting) + 1 == self.live:
            self.launch.snapshots.append(self.snapshot(frame.f_lineno, self.live))
        return super().arrive(thread, kind, value)

    def exited(self, thread: interpreter.Thread) -> None:
        if thread._frame is not None:
            self.variables[thread.number] = self._variables(thread._frame.f_locals)
        if self.live == 1:
            self.launch.snapshots.append(self.snapshot(0, 0))
        super().exited(thread)

    def _variables(self, names: dict[str, Any]) -> dict[str, Any]:
        """The numbers and local arrays among a frame's variables; notes its shared arrays."""
        found = {}
        for name, held in names.items():
            if isinstance(held, np.ndarray):
                own = (*self.static.values(), self.dynamic)
                if any(held is array or np.may_share_memory(held, array) for array in own):
                    self.views[name] = held
                elif name not in self.launch.arrays:
                    found[name] = np.array(held)
            elif isinstance(held, bool | int | float | complex | np.generic):
                found[name] = held.item() if isinstance(held, np.generic) else held
        return found

    def snapshot(self, line: int, waiting: int) -> Snapshot:
        shared, written = {}, {}
        for name, view in self.views.items():
            array = np.array(view)
            raw = array.view(np.uint8).reshape(*array.shape, -1)
            shared[name], written[name] = array, (raw != self._fill(view)).any(-1)
        launch, variables = self.launch, [dict(one) for one in self.variables]
        return Snapshot(line, waiting, shared, written, launch.changed(), variables, launch.block)


class _Launch(interpreter.Launch):
    """One block of a grid."""

    def __init__(
        self, kernel: Any, grid: Dimensions, block: Dimensions, args: tuple, shared: int,
        at: Dimensions | int, events: int,
    ) -> None:  # fmt: skip
        grid, block = launch_dimensions(kernel.__name__, grid, block)
        at = block_of(kernel.__name__, at, grid)
        copies = [copied(a) if isinstance(a, np.ndarray) else a for a in args]
        super().__init__(kernel.py_func, grid, block, copies, shared)
        names = inspect.signature(kernel.py_func).parameters
        self.at, self.snapshots = at, []
        self.events_each = events // (block[0] * block[1] * block[2])
        self.arrays = {n: (a, c) for n, a, c in zip(names, args, copies) if _is_array(a)}
        self.traced: Block | None = None
        self.last_epoch = sys.maxsize  # barriers passed where the first thread had to be cut
        self.ends_with_trace = False

    def changed(self) -> dict[str, int]:
        pairs = self.arrays.items()
        return {name: n for name, (old, new) in pairs if (n := int((old != new).sum()))}

    def _tasks(self) -> Iterator[Task]:
        x, y, z = self.at
        number = x + self.grid[0] * (y + self.grid[1] * z)
        block = self.traced = self.live[number] = Block(self, number, self.at)
        for thread in block.threads:
            yield thread.task
        self.started_all = True


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray)


def copied(array: np.ndarray) -> np.ndarray:
    """A copy with the same strides, so that addresses are as in the launch."""
    if array.flags.c_contiguous:
        return array.copy()
    low, high = np.lib.array_utils.byte_bounds(array)
    memory = np.zeros(high - low, np.uint8)
    start = array.__array_interface__["data"][0] - low
    made = np.ndarray(array.shape, array.dtype, memory, start, array.strides)
    made[...] = array
    return made


class Steps(list[Snapshot]):
    """The snapshots of a block, `trace`: each line that its threads executed, and `shuffles`.

    In a notebook it shows itself as a page to step through; `save_html(path)` writes that page.
    """

    def __init__(self, snapshots: list[Snapshot], traced: Trace, shuffles: list[Shuffled]) -> None:
        super().__init__(snapshots)
        self.trace, self.shuffles = traced, shuffles

    def __repr__(self) -> str:
        return f"<{self.trace.name}, block {self.trace.at}: {len(self.trace.steps)} steps>"

    def __str__(self) -> str:
        return "\n\n".join(map(str, self))

    def _repr_html_(self) -> str:
        return interactive.frame(interactive.page(self.trace))

    def save_html(self, path: str | Path) -> None:
        """Write the page: one file that needs no server and no network."""
        interactive.save(path, interactive.page(self.trace))


def snapshots(
    kernel: Any, grid: Any, block: Any, *args: Any, shared: int = 0, at: Dimensions | int = 0
) -> list[Snapshot]:
    """`step` without the trace."""
    launch = _Launch(kernel, grid, block, args, shared, at, 0)
    _run(launch)
    return launch.snapshots


def step(
    kernel: Any, grid: Any, block: Any, *args: Any, shared: int = 0, at: Dimensions | int = 0
) -> Steps:
    """A launch's block `at`, line by line: a list of its state at each barrier that it passes and
    at its end, and a page to step through (`save_html`, and in a notebook).

    `args` are NumPy arrays, which are copied, and numbers; `shared` is the bytes of dynamic shared
    memory. Raises what the kernel raises, barriers that not all threads reach among them. A kernel
    of CUDA C has the page only, without variables.
    """
    if isinstance(kernel, RawKernel):
        return Steps([], trace_of_cuda_c(kernel, grid, block, args, shared, at, MOST_EVENTS), [])
    launch = _Launch(kernel, grid, block, args, shared, at, MOST_EVENTS)
    _run(launch)
    shuffles = launch.traced.shuffles if launch.traced is not None else []
    return Steps(launch.snapshots, _trace(kernel, launch), shuffles)


def trace_of_cuda_c(
    kernel: RawKernel,
    grid: Any,
    block: Any,
    args: tuple,
    shared: int,
    at: Dimensions | int,
    events: int,
) -> Trace:
    """`trace` of a kernel in CUDA C, on copies of the arrays."""
    copies = tuple(copied(arg) if isinstance(arg, np.ndarray) else arg for arg in args)
    return cuda_c_stepper.trace(kernel, grid, block, copies, shared, at, events)


def trace(
    kernel: Any, grid: Any, block: Any, args: tuple, shared: int, at: Dimensions | int, events: int
) -> Trace:
    """The trace of `step`, also of a kernel that fails: up to there, with the reason. `events` is
    how many lines executed by threads are kept."""
    launch = _Launch(kernel, grid, block, args, shared, at, events)
    launch.ends_with_trace = True
    try:
        _run(launch)
    except (SimtError, ArithmeticError, LookupError, TypeError, ValueError) as error:
        return _trace(kernel, launch, f"{type(error).__name__}: {error}")
    return _trace(kernel, launch)


def _run(launch: _Launch) -> None:
    with np.errstate(all="ignore"):
        launch.scheduler.run()


def _trace(kernel: Any, launch: _Launch, error: str = "") -> Trace:
    threads = launch.traced.threads
    return Trace(
        kernel.__name__,
        launch.grid,
        launch.block,
        launch.at,
        (kernel.py_func.__code__.co_filename, kernel.py_func.__code__.co_firstlineno),
        merge(thread.events for thread in threads),
        launch.traced.memory.found,
        error,
        any(thread.cut for thread in threads),
    )
