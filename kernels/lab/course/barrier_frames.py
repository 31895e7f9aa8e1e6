"""A block at its barriers as pictures: which line it waits at, what shared memory holds."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np

from kernels.lab.draw.canvas import BLUE, GRID, INK, MUTED, PASTELS, Picture, fitted, plain
from kernels.lab.draw.frames import Frames
from kernels.lab.record.stepper import Snapshot, snapshots
from kernels.support.limits import Dimensions
from kernels.support.names import counted

MOST_VALUES = 16  # a shared array shows at most so many rows and columns
MOST_LINES = 26
MOST_FRAMES = 12
RIGHT = 464  # where the shared arrays are drawn, in pixels
CHANGED, KEPT, UNWRITTEN = PASTELS[1], "#eef2f7", "#ffffff"


def barrier_frames(
    kernel: Any, grid: Any, block: Any, *args: Any, shared: int = 0, at: Dimensions | int = 0
) -> Frames:
    """`step` as pictures: the source, the barrier that the block waits at, and shared memory,
    with what has changed since the barrier before. Of many barriers the first and the last."""
    found = snapshots(kernel, grid, block, *args, shared=shared, at=at)
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
        each = ", ".join(f"{counted(n, 'element')} of {key}" for key, n in now.changed.items())
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
