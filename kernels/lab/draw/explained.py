"""Pictures that explain one idea each: threads and elements, phases between barriers, tiles,
shuffles, variables over a loop, an SM. They draw what they are given and know nothing of kernels;
`report.explained` gives them what was recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from kernels.lab.draw.canvas import (
    BLUE,
    GREEN,
    GRID,
    INK,
    MUTED,
    ORANGE,
    PASTELS,
    RED,
    Picture,
    fitted,
    ink_on,
    plain,
    shade,
)  # fmt: skip
from kernels.support.names import counted

WIDE = 900  # pixels of a page at most
MOST_CELLS = 40  # threads or elements in a row that can still be told apart
COLOURS = {"load": BLUE, "store": ORANGE, "atomic": GREEN}
WORDS = {"load": "reads", "store": "writes", "atomic": "changes"}


class Arrow(NamedTuple):
    """A thread and the element that it touches. op: "load", "store" or "atomic"."""

    thread: int
    element: int
    op: str


def _side(*counts: int) -> float:
    return min((WIDE - 120) / max(*counts, 1), 34)


def _row(
    picture: Picture, x: float, y: float, side: float, texts: Sequence[str], colours: Sequence[str]
) -> None:
    """Cells in a row with texts in them."""
    for number, (text, colour) in enumerate(zip(texts, colours)):
        picture.rect(x + number * side, y, side - 2, 22, fill=colour, radius=3)
        size = 10 if side >= 20 else 8
        if len(text) * size * 0.58 <= side - 2:
            picture.label(x + (number + 0.5) * side - 1, y + 15, text, size, INK, "middle")


def threads_picture(
    name: str, threads: int, block: int, elements: int, arrows: Sequence[Arrow], title: str
) -> Picture:
    """The threads of a grid above the elements of an array, an arrow for each access. Threads
    without one have no element: they fall off the end."""
    _fits("threads_picture", threads, elements)
    side, left = _side(threads, elements), 90
    without = sorted(set(range(threads)) - {arrow.thread for arrow in arrows})
    untouched = sorted(set(range(elements)) - {arrow.element for arrow in arrows})
    said = [title]
    said += [f"thread {a.thread} {WORDS[a.op]} {name}[{a.element}]" for a in arrows]
    said += [f"threads without an element: {', '.join(map(str, without))}"] if without else []
    said += [f"elements without a thread: {', '.join(map(str, untouched))}"] if untouched else []
    picture = Picture(max(left + side * max(threads, elements) + 24, 480), 220, title)
    picture.label(16, 62, "thread i", 12, INK)
    picture.label(16, 162, f"{name}[i]", 12, INK)
    colours = [
        "#f3d4d0" if i in without else PASTELS[i // block % len(PASTELS)] for i in range(threads)
    ]
    for first in range(0, threads, block):
        wide = min(block, threads - first) * side - 4
        text = fitted(f"block {first // block}", wide, 10)
        picture.label(left + first * side, 40, text, 10, MUTED)
    _row(picture, left, 47, side, [*map(str, range(threads))], colours)
    fills = ["#f3d4d0" if i in untouched else "#eef2f7" for i in range(elements)]
    _row(picture, left, 147, side, [*map(str, range(elements))], fills)
    _arrows(picture, arrows, left, side, 70, 145)
    for i in without:
        x = left + (i + 0.5) * side - 1
        picture.path([(x - 4, 84), (x + 4, 92)], RED, 1.6)
        picture.path([(x - 4, 92), (x + 4, 84)], RED, 1.6)
    notes = [text for text in said[1:] if text.startswith(("threads w", "elements w"))]
    note = "; ".join(notes) or "every thread has an element, and every element a thread"
    picture.label(16, 194, fitted(note, picture.width - 32, 11), 11, RED if notes else MUTED)
    _legend(picture, arrows, 210)
    picture.text = "\n".join(said)
    return picture


def _fits(what: str, *counts: int) -> None:
    if max(counts) > MOST_CELLS:
        raise ValueError(
            f"{what}: draws at most {MOST_CELLS} threads and elements, got {max(counts)}: record a"
            " smaller launch"
        )


def _arrows(
    picture: Picture, arrows: Sequence[Arrow], left: float, side: float, above: float, below: float
) -> None:
    """Loads point up to the thread, stores down to the element. Where a thread both reads and
    writes an element, the arrows are beside each other."""
    both = {(a.thread, a.element) for a in arrows if a.op == "load"} & {
        (a.thread, a.element) for a in arrows if a.op != "load"
    }
    for arrow in arrows:
        shift = 0.0
        if (arrow.thread, arrow.element) in both:
            shift = -3 if arrow.op == "load" else 3
        top = left + (arrow.thread + 0.5) * side - 1 + shift, above
        bottom = left + (arrow.element + 0.5) * side - 1 + shift, below
        ends = [bottom, top] if arrow.op == "load" else [top, bottom]
        picture.arrow(ends, COLOURS[arrow.op])


def _legend(picture: Picture, arrows: Sequence[Arrow], y: float) -> None:
    x = 16.0
    for op in dict.fromkeys(arrow.op for arrow in arrows):
        picture.arrow([(x, y - 4), (x + 22, y - 4)], COLOURS[op])
        picture.label(x + 28, y, f"a thread {WORDS[op]}", 11, MUTED)
        x += 130


def phases_picture(
    name: str, threads: int, elements: int, phases: Mapping[str, Sequence[Arrow]], title: str
) -> Picture:
    """Who reads and who writes which element of a shared array, between two barriers each."""
    _fits("phases_picture", threads, elements)
    side, left, tall = _side(threads, elements), 90, 118
    picture = Picture(
        max(left + side * max(threads, elements) + 24, 480), 60 + tall * len(phases), title
    )
    said, y = [title], 40.0
    for number, (what, arrows) in enumerate(phases.items()):
        if number:
            picture.line(16, y - 6, picture.width - 16, y - 6, MUTED, 1.4)
            said.append("-- barrier --")
        picture.label(16, y + 12, fitted(what, picture.width - 32, 11), 11, INK, bold=True)
        active = {arrow.thread for arrow in arrows}
        touched = {arrow.element: shade(1, 4) for arrow in arrows}
        touched |= {a.element: PASTELS[1] for a in arrows if a.op != "load"}
        picture.label(16, y + 36, "threads", 11, MUTED)
        fills = [PASTELS[0] if i in active else "#f3f4f6" for i in range(threads)]
        _row(picture, left, y + 20, side, [*map(str, range(threads))], fills)
        picture.label(16, y + 98, fitted(name, left - 20, 11), 11, MUTED)
        fills = [touched.get(i, "#f3f4f6") for i in range(elements)]
        _row(picture, left, y + 82, side, [*map(str, range(elements))], fills)
        _arrows(picture, arrows, left, side, y + 43, y + 81)
        said += [what, *(f"  thread {a.thread} {WORDS[a.op]} {name}[{a.element}]" for a in arrows)]
        y += tall
    everything = [arrow for arrows in phases.values() for arrow in arrows]
    _legend(picture, everything, y + 8)
    picture.text = "\n".join(said)
    return picture


def footprint_picture(parts: Mapping[str, np.ndarray], title: str, note: str) -> Picture:
    """How often each element of some matrices is accessed by those who are looked at, side by side:
    darker is more often."""
    room, top = (WIDE - 32 - 28 * (len(parts) - 1)) / len(parts), 84
    cell = min(room / max(m.shape[1] for m in parts.values()), 280 / _tallest(parts), 26)
    widths = {n: max(m.shape[1] * cell, 120) for n, m in parts.items()}
    height = top + _tallest(parts) * cell + 26
    picture = Picture(max(sum(widths.values()) + 28 * len(parts) + 8, 460), height, title)
    picture.label(16, 42, fitted(note, picture.width - 32, 11), 11, MUTED)
    said, x = [title, note], 16.0
    for name, counts in parts.items():
        most = int(counts.max())
        total = int(counts.sum())
        about = f"{total} accesses, {int((counts > 0).sum())} elements, {most} of one at most"
        picture.label(x, top - 20, fitted(name, widths[name], 12), 12, INK, bold=True)
        picture.label(
            x, top - 6, fitted(f"{total} on {int((counts > 0).sum())}", widths[name], 10), 10, MUTED
        )
        colours = [[shade(value, most) for value in row] for row in counts.tolist()]
        picture.cells(x, top, cell, colours, gap=1 if cell > 5 else 0)
        if cell >= 15:
            _numbers(picture, x, top, cell, counts, most)
        said.append(f"{name}: {about}")
        x += widths[name] + 28
    picture.label(16, height - 8, "n on m: n accesses on m elements; darker: more often", 10, MUTED)
    picture.text = "\n".join(said)
    return picture


def _tallest(parts: Mapping[str, np.ndarray]) -> int:
    return max(m.shape[0] for m in parts.values())


def _numbers(
    picture: Picture, x: float, y: float, cell: float, counts: np.ndarray, most: int
) -> None:
    for i, row in enumerate(counts.tolist()):
        for j, value in enumerate(row):
            if value:
                ink = ink_on(shade(value, most))
                at = x + (j + 0.5) * cell - 0.5, y + (i + 0.68) * cell
                picture.label(*at, str(value), min(cell * 0.5, 11), ink, "middle")


class Shuffle(NamedTuple):
    """What each lane got: (lane, the lane that it is from, the value it held, the value it got)."""

    what: str
    lanes: tuple[tuple[int, int, Any, Any], ...]


def shuffles_picture(steps: Sequence[Shuffle], title: str) -> Picture:
    """A warp's shuffles, one below the other, an arrow from the lane that gives to the one that
    takes. Lanes whose value the rest depends on are coloured."""
    lanes = max(lane for step in steps for lane, *_ in step.lanes) + 1
    side, left, tall = (WIDE - 110) / max(lanes, 8), 86, 74
    picture = Picture(WIDE, 56 + tall * len(steps) + 46, title)
    needed = _needed(steps)
    said, y = [title], 46.0
    for number, step in enumerate(steps):
        held = {lane: value for lane, _, value, _ in step.lanes}
        fills = [PASTELS[0] if lane in needed[number] else "#f3f4f6" for lane in range(lanes)]
        texts = [_value(held.get(lane)) for lane in range(lanes)]
        _row(picture, left, y, side, texts, fills)
        picture.label(16, y + 15, "values" if not number else "", 11, MUTED)
        picture.label(16, y + 46, fitted(step.what, left - 18, 10), 10, MUTED)
        said.append(step.what)
        for lane, source, _, got in step.lanes:
            if lane in needed[number + 1] and source != lane and 0 <= source < lanes:
                x0, x1 = (left + (i + 0.5) * side - 1 for i in (source, lane))
                picture.arrow([(x0, y + 24), (x1, y + tall - 3)], ORANGE)
                said.append(f"  lane {lane} gets {_value(got)} from lane {source}")
        y += tall
    fills = [PASTELS[0] if lane in needed[-1] else "#f3f4f6" for lane in range(lanes)]
    _row(picture, left, y, side, [str(i) for i in range(lanes)], fills)
    picture.label(16, y + 15, "lane", 11, MUTED)
    note = "blue: what lane 0's result depends on; arrows: from the lane that gives"
    picture.label(left, y + 40, note, 11, MUTED)
    picture.text = "\n".join(said)
    return picture


def _needed(steps: Sequence[Shuffle]) -> list[set[int]]:
    """The lanes before each step, and after the last, whose values lane 0's result depends on."""
    needed = [{0}]
    for step in reversed(steps):
        sources = {source for lane, source, *_ in step.lanes if lane in needed[0]}
        needed.insert(0, needed[0] | sources)
    return needed


def _value(value: Any) -> str:
    return "" if value is None else plain(float(value))


def history_picture(history: Mapping[str, Sequence[float | None]], title: str) -> Picture:
    """The values of some variables over the iterations of a loop, a row of bars each; a bar is
    outlined where the value differs from the one before."""
    count = max(map(len, history.values()))
    _fits("history_picture", count)
    side, left, tall = min((WIDE - 130) / count, 60), 106, 92
    picture = Picture(max(left + side * count + 24, 460), 40 + tall * len(history) + 26, title)
    said, y = [title], 44.0
    for name, values in history.items():
        known = [v for v in values if v is not None and np.isfinite(v) and abs(v) < 1e30]
        low, high = min([0.0, *known]), max([0.0, *known])
        scale = 52 / ((high - low) or 1)
        zero = y + 8 + high * scale
        picture.label(16, y + 36, fitted(name, left - 24, 12, mono=True), 12, INK, mono=True)
        picture.line(left, zero, left + side * count, zero, GRID)
        before = None
        for i, value in enumerate(values):
            x = left + i * side
            if value in known:
                top, bottom = sorted((zero, zero - value * scale))
                fresh = before is None or value != before
                fill, edge = (PASTELS[1], ORANGE) if fresh else (PASTELS[0], "none")
                tall_enough = max(bottom - top, 1)
                picture.rect(x + 3, top, side - 6, tall_enough, fill, edge)
            text = fitted(_value(value) if value in known else "-inf", side, 9)
            picture.label(x + side / 2, y + 76, text, 9, INK, "middle")
            before = value
        said.append(f"{name}: {', '.join('-inf' if v not in known else _value(v) for v in values)}")
        y += tall
    picture.label(left, y + 8, "iterations from left to right; orange: changed", 11, MUTED)
    picture.text = "\n".join(said)
    return picture


def sm_picture(
    resident: int, warps: int, most_warps: int, used: Mapping[str, tuple[float, float, str]],
    title: str, note: str,
) -> Picture:  # fmt: skip
    """An SM filled with blocks: its warp slots, coloured by block, and how much of each resource
    they use. warps: of a block; used: (share used, share of one block, in words) by resource."""
    columns = 16
    rows = -(-most_warps // columns)
    side, left, top = 30, 16, 80
    picture = Picture(860, max(top + rows * (side + 2) + 60, top + 44 * len(used) + 30), title)
    picture.label(16, 42, fitted(note, 828, 11), 11, MUTED)
    picture.label(left, top - 10, f"warp slots of an SM: {most_warps}", 11, INK)
    for slot in range(most_warps):
        block = slot // warps
        x, y = left + slot % columns * side, top + slot // columns * (side + 2)
        taken = block < resident
        fill = PASTELS[block % len(PASTELS)] if taken else "#ffffff"
        picture.rect(x, y, side - 2, side, fill, "none" if taken else MUTED, 0.6, 3)
        if taken:
            picture.label(x + side / 2 - 1, y + 19, str(block), 10, INK, "middle")
    picture.label(
        left, top + rows * (side + 2) + 16, "a number: the block whose warp it is", 11, MUTED
    )
    x, wide, y = left + columns * side + 26, 300, top
    for name, (share, each, words) in used.items():
        full = share + each > 1.0001
        picture.label(x, y - 4, f"{name}: {words}", 11, RED if full else INK)
        picture.rect(x, y, wide, 14, "#f3f4f6")
        for block in range(min(resident, 64)):
            width = max(wide * each - 1, 0.5)
            fill = PASTELS[block % len(PASTELS)]
            picture.rect(x + wide * each * block, y, width, 14, fill)
        y += 44
    picture.label(x, y - 8, "red: no room for one more block", 11, MUTED)
    picture.crop(max(y + 6, top + rows * (side + 2) + 30))
    said = [
        title,
        note,
        f"{counted(resident, 'block')} of {counted(warps, 'warp')}: {resident * warps} of"
        f" {most_warps}",
    ]
    said += [f"{name}: {words}, {share:.0%} used" for name, (share, _, words) in used.items()]
    picture.text = "\n".join(said)
    return picture
