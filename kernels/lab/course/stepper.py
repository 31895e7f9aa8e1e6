"""A block passing its barriers, frame by frame: which line it waits at, what shared memory holds.

`step` gives the state at each barrier, `barrier_frames` draws it. The block runs in the interpreter
of `kernels.simt`, thread by thread, on copies of the arrays: Python itself executes the kernel, so
that `print` and `breakpoint()` in it work too.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from kernels.lab.draw.canvas import BLUE, GRID, INK, MUTED, PASTELS, Picture, fitted, plain
from kernels.lab.draw.frames import Frames
from kernels.simt.interpreter import interpreter
from kernels.simt.interpreter.schedule import Task
from kernels.support.limits import Dimensions, launch_dimensions

MOST_VALUES = 16  # a shared array shows at most so many rows and columns
MOST_LINES = 26
MOST_FRAMES = 12
RIGHT = 464  # where the shared arrays are drawn, in pixels
CHANGED, KEPT, UNWRITTEN = PASTELS[1], "#eef2f7", "#ffffff"
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


class _Block(interpreter.Block):
    """A block that writes down its state whenever a barrier is complete."""

    def __init__(self, launch: _Launch, number: int, index: Dimensions) -> None:
        super().__init__(launch, number, index)
        self.views: dict[str, np.ndarray] = {}
        self.fills: list[tuple[np.ndarray, int]] = []  # shared memory, and the byte it began with
        self.variables: list[dict[str, Any]] = [{} for _ in self.threads]

    def shared_array(self, site: Any, shape: Any, dtype: np.dtype) -> np.ndarray:
        array = super().shared_array(site, shape, dtype)
        memory = self.dynamic if shape == 0 else np.asarray(array)
        if self._fill(memory) is None:
            fill = RARE if dtype.kind in "iu" else POISON
            memory.view(np.uint8)[...] = fill
            self.fills.append((memory, fill))
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

    def __init__(self, *args: Any, at: Dimensions, arrays: dict[str, tuple]) -> None:
        super().__init__(*args)
        self.at, self.arrays, self.snapshots = at, arrays, []

    def changed(self) -> dict[str, int]:
        pairs = self.arrays.items()
        return {name: n for name, (old, new) in pairs if (n := int((old != new).sum()))}

    def _tasks(self) -> Iterator[Task]:
        x, y, z = self.at
        number = x + self.grid[0] * (y + self.grid[1] * z)
        block = self.live[number] = _Block(self, number, self.at)
        for thread in block.threads:
            yield thread.task
        self.started_all = True


def step(
    kernel: Any, grid: Any, block: Any, *args: Any, shared: int = 0, at: Dimensions = (0, 0, 0)
) -> list[Snapshot]:
    """A launch's block `at`, at each barrier that it passes and at its end: its shared memory and
    the variables of every thread.

    `args` are NumPy arrays, which are copied, and numbers; `shared` is the bytes of dynamic shared
    memory. Raises what the kernel raises, barriers that not all threads reach among them.
    """
    grid, block = launch_dimensions(kernel.__name__, grid, block)
    at = (*at, 0, 0)[:3]
    if not all(0 <= i < n for i, n in zip(at, grid)):
        raise ValueError(f"{kernel.__name__}: block {at} is not in the grid {grid}")
    copies = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
    names = inspect.signature(kernel.py_func).parameters
    arrays = {n: (a, c) for n, a, c in zip(names, args, copies) if isinstance(a, np.ndarray)}
    launch = _Launch(kernel.py_func, grid, block, copies, shared, at=at, arrays=arrays)
    with np.errstate(all="ignore"):
        launch.scheduler.run()
    return launch.snapshots


def barrier_frames(
    kernel: Any, grid: Any, block: Any, *args: Any, shared: int = 0, at: Dimensions = (0, 0, 0)
) -> Frames:
    """`step` as pictures: the source, the barrier that the block waits at, and shared memory,
    with what has changed since the barrier before. Of many barriers the first and the last."""
    found = step(kernel, grid, block, *args, shared=shared, at=at)
    source, first = inspect.getsourcelines(kernel.py_func)
    frames = []
    for number, snapshot in enumerate(found):
        before = found[number - 1] if number else None
        frames.append(_frame(kernel.__name__, source, first, number, len(found), snapshot, before))
    if len(frames) > MOST_FRAMES:
        frames = [*frames[: MOST_FRAMES - 1], frames[-1]]
    return Frames(frames)


def _frame(
    name: str, source: list[str], first: int, number: int, count: int, now: Snapshot,
    before: Snapshot | None,
) -> Picture:  # fmt: skip
    """One frame: source on the left, shared arrays on the right."""
    if now.line:
        title = f"{name}, barrier {number + 1} of {count - 1}: "
        title += f"{now.waiting} threads wait at line {now.line}"
    else:
        title = f"{name}, the end of the block"
    start = min(max(now.line - first - MOST_LINES // 2, 0), max(len(source) - MOST_LINES, 0))
    lines = source[start : start + MOST_LINES]
    tables = [(key, *_table(now, before, key)) for key in now.shared]
    tall = sum(_height(values) for _, values, _ in tables)
    picture = Picture(860, max(60 + 15 * len(lines), 50 + tall) + 46, title)
    last = before.line if before else first
    for i, line in enumerate(lines):
        at, y = first + start + i, 54 + 15 * i
        if at == now.line:
            picture.rect(12, y - 11, RIGHT - 30, 15, fill=PASTELS[0])
        elif last < at and (at < now.line or not now.line):
            picture.rect(12, y - 11, 4, 15, fill=CHANGED)
        picture.label(40, y, str(at), 10, MUTED, "end", mono=True)
        picture.label(46, y, fitted(line.rstrip(), RIGHT - 70, 10, mono=True), 10, INK, mono=True)
    text, y = [title], 54
    for key, values, colours in tables:
        name = f"{key} ({', '.join(map(str, now.shared[key].shape))})"
        if now.shared[key].size > sum(map(len, values)):
            name += f", its first {len(values)} x {len(values[0])}"
        text += _draw_table(picture, RIGHT, y, name, values, colours)
        y += _height(values)
    if not tables:
        picture.label(RIGHT, 54, "no shared arrays", 11, MUTED)
    if now.changed:
        each = ", ".join(f"{n} element(s) of {key}" for key, n in now.changed.items())
        text.append(f"changed in global memory so far: {each}")
        picture.label(RIGHT, picture.height - 30, text[-1], 10, INK)
    legend = "orange: changed since the barrier before; white: never written"
    picture.label(RIGHT, picture.height - 14, legend, 10, MUTED)
    picture.line(RIGHT - 12, 36, RIGHT - 12, picture.height - 12, GRID)
    picture.text = "\n".join(text)
    return picture


def _table(now: Snapshot, before: Snapshot | None, key: str) -> tuple[list, list]:
    """The shown values of a shared array as text, and their colours."""
    array, written = now.shared[key], now.written[key]
    same = np.zeros(array.shape, bool)
    if before and key in before.shared:
        same = (array == before.shared[key]) & before.written[key]
    values, colours = [], []
    for row in zip(*map(_grid, (array, written, same, np.ones(array.shape, bool)))):
        cells = list(zip(*row))
        values.append([_short(v) if w else "·" if there else "" for v, w, _, there in cells])
        kinds = [KEPT if kept else CHANGED if w else UNWRITTEN for _, w, kept, _ in cells]
        colours.append([kind if cell[3] else None for kind, cell in zip(kinds, cells)])
    return values, colours


def _grid(array: np.ndarray) -> list[list]:
    """The first rows and columns of an array; a long row is folded into several."""
    if array.ndim == 1 and array.size > MOST_VALUES:
        array = np.pad(array, (0, -array.size % MOST_VALUES)).reshape(-1, MOST_VALUES)
    table = array.reshape(-1, array.shape[-1] if array.ndim else 1)
    return table[:MOST_VALUES, :MOST_VALUES].tolist()


def _short(value: Any) -> str:
    return plain(float(value)) if isinstance(value, bool | int | float) else str(value)


def _height(values: list) -> int:
    return 40 + 20 * len(values)


def _draw_table(
    picture: Picture, x: float, y: float, name: str, values: list, colours: list
) -> list[str]:
    """A shared array; returns its rows as text."""
    side = 380 / max(len(values[0]), 8)
    picture.label(x, y, name, 11, BLUE, bold=True)
    picture.cells(x, y + 8, side, colours, gap=1, tall=20)
    for i, row in enumerate(values):
        for j, value in enumerate(row):
            short = (
                value if len(value) <= side / 5.5 else value[: max(int(side / 5.5) - 1, 1)] + "…"
            )
            picture.label(x + (j + 0.5) * side, y + 22 + i * 20, short, 9, INK, "middle")
    return [f"{name}:", *("  " + " ".join(f"{v:>6}" for v in row) for row in values)]
