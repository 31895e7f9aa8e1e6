"""Pictures of launches and of memory: who touches what.

Each function returns a `Picture` (or `Frames`) whose text form says the same. They draw one block
and one warp in full and everything else as coloured areas, so that a launch of millions of threads
is as small a file as one of hundreds.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from kernels.lab.draw.canvas import (
    BLUE,
    GREEN,
    GRID,
    INK,
    MUTED,
    ORANGE,
    PASTELS,
    RAMP,
    RED,
    Picture,
    fitted,
    ink_on,
    plain,
    shade,
    width_of,
)
from kernels.lab.draw.frames import Frames
from kernels.support.limits import launch_dimensions
from kernels.support.names import counted

WARP = 32
LEFT_OF_BANKS = 82  # room for "wavefront 31"
SECTOR, LINE, BANKS = 32, 128, 32
MOST_CELLS = 64  # a heat map has at most so many rows and columns
MOST_BLOCKS = 16  # a grid is drawn as at most so many areas in each direction


def launch_picture(
    grid: Any, block: Any, shape: Sequence[int] | int | None = None, x_axis: int = -1
) -> Picture:
    """A grid of blocks over the array it works on, and the warps of one block.

    grid, block: as in a launch (2 dimensions are drawn). shape: of the array (default: as large as
    the grid), one thread per element. x_axis: the array's axis along which `threadIdx.x` runs; -1,
    the last, makes neighbouring threads touch neighbouring elements, 0 does not.
    """
    grid, block = launch_dimensions("launch_picture", grid, block)
    threads = [g * b for g, b in zip(grid, block)]
    if shape is None:
        shape = (threads[1], threads[0])[-2 if threads[1] > 1 else -1 :]
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    if not 1 <= len(shape) <= 2 or min(shape) < 1:
        raise ValueError(f"launch_picture: expected an array of 1 or 2 dimensions, got {shape}")
    across = len(shape) == 1 or x_axis in (-1, 1)
    order = (1, 0) if across else (0, 1)  # which of x and y runs down, which to the right
    tall, wide = (block[i] for i in order)
    covered = tuple(threads[i] for i in order)
    rows, columns = shape if len(shape) == 2 else (1, shape[0])
    outside = covered[0] * covered[1] - min(covered[0], rows) * min(covered[1], columns)
    missed = rows * columns - min(covered[0], rows) * min(covered[1], columns)
    name = "x".join(map(str, shape))
    text = [
        f"Launch: {counted(math.prod(grid), 'block')} of {counted(math.prod(block), 'thread')} over"
        f" {name} elements",
        f"grid ({grid[0]}, {grid[1]}), block ({block[0]}, {block[1]}): a block covers"
        f" {counted(tall, 'row')} and {counted(wide, 'column')};"
        f" {counted(-(-math.prod(block) // WARP), 'warp')} per block",
        f"{_has(outside, 'thread')} no element: the kernel needs a guard" if outside else
        "every thread has an element",
    ]  # fmt: skip
    if missed:
        text.append(f"{_has(missed, 'element')} no thread: more blocks, or a grid-stride loop")
    picture = Picture(680, 360, text[0])
    picture.label(16, 42, text[1], 11, MUTED)
    picture.label(16, 58, "; ".join(text[2:]), 11, RED if outside or missed else MUTED)
    bottom = _draw_grid(picture, (rows, columns), covered, (tall, wide))
    warps, end = _draw_warps(picture, (tall, wide), across)
    picture.crop(max(bottom, end) + 14)
    picture.text = "\n".join([*text, warps])
    return picture


def _has(number: int, name: str) -> str:
    return f"{counted(number, name)} {'has' if number == 1 else 'have'}"


def _draw_grid(
    picture: Picture, array: tuple[int, int], covered: tuple[int, int], block: tuple[int, int]
) -> float:
    """The left panel: the array's outline over the blocks, to scale. Returns where it ends."""
    left, top, room = 16, 96, 300
    high, wide = max(array[0], covered[0]), max(array[1], covered[1])
    scale = min(room / wide, (room - 70) / high)
    stretch = max(1.0, 40 / (high * scale))  # a row of one element is drawn 40 pixels tall
    blocks = [-(-covered[i] // block[i]) for i in (0, 1)]
    merged = [-(-n // MOST_BLOCKS) for n in blocks]
    colours = [
        [PASTELS[(i + 3 * j) % len(PASTELS)] for j in range(-(-blocks[1] // merged[1]))]
        for i in range(-(-blocks[0] // merged[0]))
    ]
    side = (block[1] * merged[1] * scale, block[0] * merged[0] * scale * stretch)
    picture.label(left, top - 10, "the grid over the array (dark outline)", 11, INK)
    picture.cells(left, top, side[0], colours, gap=0.6 if side[0] > 4 else 0, tall=side[1])
    picture.rect(
        left, top, array[1] * scale, array[0] * scale * stretch, stroke=INK, line=1.6
    )  # the array
    picture.rect(left, top, block[1] * scale, block[0] * scale * stretch, stroke=RED, line=1.6)
    note = "red: block (0, 0)"
    if max(merged) > 1:
        note += f"; a coloured area is {merged[0]}x{merged[1]} blocks"
    bottom = top + max(high * scale * stretch, side[1] * len(colours)) + 18
    picture.label(left, bottom, note, 11, MUTED)
    return bottom


def _draw_warps(picture: Picture, block: tuple[int, int], across: bool) -> tuple[str, float]:
    """The right panel: one block's threads on their elements, coloured by warp. Returns what it
    shows in words, and where it ends."""
    left, top, room = 360, 96, 300
    tall, wide = block
    count = tall * wide
    if 1 in block and count > WARP:  # a long line is folded: a row is a warp
        number = np.arange(-(-count // WARP) * WARP).reshape(-1, WARP)
    else:
        number = np.arange(count).reshape((tall, wide) if across else (wide, tall))
        number = number if across else number.T
    cell = min(room / number.shape[1], (room - 70) / number.shape[0], 26)
    colours = [
        [PASTELS[n // WARP % len(PASTELS)] if n < count else None for n in row]
        for row in number.tolist()
    ]
    picture.label(
        left, top - 10, f"one block: {counted(-(-count // WARP), 'warp')} by colour", 11, INK
    )
    picture.cells(left, top, cell, colours, gap=1 if cell > 3 else 0)
    if cell >= 16:
        for i, row in enumerate(number.tolist()):
            for j, n in enumerate(row):
                x, y = left + (j + 0.5) * cell, top + (i + 0.62) * cell
                picture.label(x, y, str(n), min(10, cell * 0.42), INK, "middle")
    text = f"warp 0 touches {_first_warp(block, across)}"
    bottom = top + number.shape[0] * cell + 18
    picture.label(left, bottom, text, 11, MUTED)
    return text, bottom


def _first_warp(block: tuple[int, int], across: bool) -> str:
    """The elements of the first 32 threads of a block, in words."""
    tall, wide = block
    along = wide if across else tall
    lanes = min(tall * wide, WARP)
    if along >= lanes:
        return f"{lanes} elements of one {'row' if across else 'column'}"
    return f"{-(-lanes // along)} {'rows' if across else 'columns'} of {along} elements"


def _byte_addresses(indices: Any, itemsize: int) -> list[int]:
    found = [int(i) * itemsize for i in np.asarray(indices).ravel()]
    if not 1 <= len(found) <= WARP:
        raise ValueError(f"expected the elements of 1 to {WARP} lanes, got {len(found)}")
    if itemsize not in (1, 2, 4, 8, 16):
        raise ValueError(f"expected items of 1, 2, 4, 8 or 16 bytes, got {itemsize}")
    return found


def sectors_picture(indices: Any, itemsize: int = 4, title: str = "") -> Picture:
    """The sectors of global memory that one request of a warp touches.

    indices: the element that each lane accesses, counted from a 128-byte boundary. A sector is 32
    bytes; a request moves whole sectors, however little of them it uses.
    """
    addresses = _byte_addresses(indices, itemsize)
    asked = {byte for address in addresses for byte in range(address, address + itemsize)}
    used = Counter(byte // SECTOR for byte in asked)
    ideal = -(-len(addresses) * itemsize // SECTOR)
    share = sum(used.values()) / (len(used) * SECTOR)
    summary = (
        f"{counted(len(used), 'sector')} of 32 bytes for {counted(len(addresses), 'lane')}"
        f" (ideal {ideal}): "
        f"{share:.0%} of the bytes moved are used"
    )
    lines = sorted({sector * SECTOR // LINE for sector in used})
    shown = lines[:16]
    more = f"and {len(lines) - len(shown)} more lines of 128 bytes" if lines[16:] else ""
    height = 92 + 22 * len(shown) + (18 if more else 0)
    picture = Picture(680, height, title or "One request to global memory")
    picture.label(16, 42, summary, 12, INK)
    for i, line in enumerate(shown):
        y = 62 + 22 * i
        picture.label(96, y + 13, f"byte {line * LINE}", 10, MUTED, "end")
        for j in range(LINE // SECTOR):
            sector = line * LINE // SECTOR + j
            x = 104 + j * 140
            touched = used.get(sector)
            picture.rect(x, y, 136, 16, fill="#fbe3c5" if touched else "#ffffff", stroke=GRID)
            if touched:
                here = range(sector * SECTOR, (sector + 1) * SECTOR)
                picture.cells(x, y, 136 / SECTOR, [[ORANGE if b in asked else None for b in here]],
                              tall=16)  # fmt: skip
    picture.label(104, 62 + 22 * len(shown) + 12, more, 11, MUTED)
    legend = "orange: bytes that a lane asked for; pale: the rest of a sector that comes with them"
    picture.label(16, picture.height - 14, legend, 11, MUTED)
    where = ", ".join(f"{s * SECTOR}: {n} of 32" for s, n in sorted(used.items())[:32])
    picture.text = f"{picture.title}\n{summary}\nbytes used by sector: {where}"
    return picture


def wavefronts(indices: Any, itemsize: int = 4) -> list[dict[int, list[int]]]:
    """The wavefronts of one request to shared memory: for each, bank -> the lanes it serves.

    Lanes go in phases of 32, 16 or 8 for 4, 8 or 16 bytes; a bank serves one 4-byte word a
    wavefront, to all lanes that want it.
    """
    addresses = _byte_addresses(indices, itemsize)
    lanes_a_phase = {8: 16, 16: 8}.get(itemsize, WARP)
    found = []
    for first in range(0, len(addresses), lanes_a_phase):
        words: dict[int, dict[int, list[int]]] = {}  # bank -> word -> lanes
        for lane in range(first, min(first + lanes_a_phase, len(addresses))):
            for byte in range(0, max(itemsize, 4), 4):
                word = (addresses[lane] + byte) >> 2
                words.setdefault(word % BANKS, {}).setdefault(word, []).append(lane)
        for front in range(max(map(len, words.values()))):
            served = {b: list(w.values())[front] for b, w in words.items() if front < len(w)}
            found.append(served)
    return found


def banks_picture(indices: Any, itemsize: int = 4, title: str = "") -> Picture:
    """Which banks of shared memory serve which lanes of a warp, wavefront by wavefront.

    indices: the element of a shared array that each lane accesses, counted from bank 0.
    """
    fronts = wavefronts(indices, itemsize)
    lanes = len(np.asarray(indices).ravel())
    ideal = -(-lanes // {8: 16, 16: 8}.get(itemsize, WARP))
    conflicts = len(fronts) - ideal
    summary = f"{counted(len(fronts), 'wavefront')}, ideal {ideal}: " + (
        f"{conflicts} lost to bank conflicts" if conflicts else "no bank conflict"
    )
    shown = fronts[:WARP]
    cell = 19
    picture = Picture(710, 100 + cell * len(shown), title or "One request to shared memory")
    picture.label(16, 42, summary, 12, INK)
    for bank in range(BANKS):
        picture.label(LEFT_OF_BANKS + (bank + 0.5) * cell, 62, str(bank), 9, MUTED, "middle")
    picture.label(LEFT_OF_BANKS - 6, 62, "bank", 10, MUTED, "end")
    for i, served in enumerate(shown):
        y = 68 + i * cell
        picture.label(LEFT_OF_BANKS - 6, y + 13, f"wavefront {i}", 10, MUTED, "end")
        row = [PASTELS[0] if bank in served else "#f3f4f6" for bank in range(BANKS)]
        if i >= ideal:
            row = [PASTELS[1] if bank in served else "#f3f4f6" for bank in range(BANKS)]
        picture.cells(LEFT_OF_BANKS, y, cell, [row], gap=1)
        for bank, some in served.items():
            word = str(some[0]) if len(some) == 1 else f"{some[0]}+"
            picture.label(LEFT_OF_BANKS + (bank + 0.5) * cell, y + 13, word, 9, INK, "middle")
    legend = "a cell names the lane that the bank serves (5+: lane 5 and others, the same word)"
    picture.label(16, picture.height - 12, legend, 11, MUTED)
    rows = [
        f"wavefront {i}: "
        + ", ".join(f"bank {b}: {_lanes(some)}" for b, some in sorted(served.items()))
        for i, served in enumerate(shown)
    ]
    picture.text = "\n".join([picture.title, summary, *rows])
    return picture


def _lanes(some: list[int]) -> str:
    return f"lane {some[0]}" if len(some) == 1 else f"lanes {some[0]}..{some[-1]}"


def heat_map(
    values: Any, title: str, unit: str = "",
    rows: str | Sequence[str] = "", columns: str | Sequence[str] = "",
) -> Picture:  # fmt: skip
    """A table of counts as colours, at most 64 x 64 of them: larger ones show means of areas.

    rows, columns: what the axis is, or a name for each row or column.
    """
    table = np.atleast_2d(np.asarray(values, dtype=float))
    if table.ndim != 2 or not table.size:
        raise ValueError(f"heat_map: expected a table of counts, got the shape {table.shape}")
    if not np.isfinite(table).all():
        raise ValueError("heat_map: expected finite numbers, got NaN or infinity")
    steps = [-(-n // MOST_CELLS) for n in table.shape]
    counts = np.ones_like(table)
    for axis, step in enumerate(steps):
        starts = range(0, table.shape[axis], step)
        table, counts = (np.add.reduceat(part, starts, axis=axis) for part in (table, counts))
    table /= counts
    high, wide = table.shape
    cell = min(600 / wide, 360 / high, 40)
    most = float(table.max())
    names = [rows] if isinstance(rows, str) else list(rows)
    heads = [columns] if isinstance(columns, str) else list(columns)
    left = max(56, 22 + max(width_of(name, 11) for name in names))
    picture = Picture(max(wide * cell + left + 24, 420), high * cell + 116, title)
    for i, name in enumerate(names):
        y = 52 + (i + 0.5) * high * cell / len(names) + 4
        picture.label(left - 8, y, name, 11, MUTED, "end")
    for i, name in enumerate(heads):
        if len(heads) == 1:
            picture.label(left, 46, name, 11, MUTED, "start")
            continue
        text = fitted(name, cell, 11) if width_of(name, 11) > 1.25 * cell else name
        picture.label(left + (i + 0.5) * cell, 46, text, 11, MUTED, "middle")
    picture.cells(left, 52, cell, [[shade(v, most) for v in row] for row in table.tolist()],
                  gap=1 if cell > 12 else 0)  # fmt: skip
    if cell >= 26 and table.max() < 1e4:
        for i, row in enumerate(table.tolist()):
            for j, v in enumerate(row):
                ink = ink_on(shade(v, most))
                x, y = left + (j + 0.5) * cell, 52 + (i + 0.62) * cell
                picture.label(x, y, plain(v), 10, ink, "middle")
    y = picture.height - 34
    for i, colour in enumerate(RAMP):
        picture.rect(left + i * 16, y, 16, 10, fill=colour)
    picture.label(left - 6, y + 9, "0", 10, MUTED, "end")
    area = f" (means of {steps[0]}x{steps[1]})" if max(steps) > 1 else ""
    picture.label(left + 6 + len(RAMP) * 16, y + 9, f"{plain(most)} {unit}{area}", 10, MUTED)
    shape = "x".join(map(str, np.atleast_2d(np.asarray(values)).shape))
    lines = [f"{title}: {shape}, from {plain(float(table.min()))} to {plain(most)} {unit}{area}"]
    lines += [" ".join(f"{plain(v):>5}" for v in row) for row in table[:16, :16].tolist()]
    picture.text = "\n".join(lines)
    return picture


def tile_walk(
    m: int, n: int, k: int, tile: tuple[int, int, int], block: tuple[int, int] = (0, 0)
) -> Frames:
    """How a block of a tiled matrix product walks: c (m, n) = a (m, k) @ b (k, n), by frames.

    tile: (rows, columns, depth) of what a block computes and of what it loads per step; block:
    which one, as (row, column) of blocks. Of many steps the first three and the last are drawn.
    """
    tm, tn, tk = tile
    if min(m, n, k, *tile) < 1:
        raise ValueError(f"tile_walk: expected sizes above 0, got {(m, n, k)} in tiles of {tile}")
    blocks = (-(-m // tm), -(-n // tn))
    if not all(0 <= b < most for b, most in zip(block, blocks)):
        raise ValueError(f"tile_walk: block {block} is not one of {blocks[0]} x {blocks[1]}")
    steps = -(-k // tk)
    chosen = list(range(steps)) if steps <= 4 else [0, 1, 2, steps - 1]
    frames = [_walk_frame((m, n, k), tile, block, step, steps) for step in chosen]
    loads = k * (tm + tn)
    frames[0].text = (
        f"Tiled product ({m}x{k}) @ ({k}x{n}), tiles {tm}x{tn}, depth {tk}: block {block} takes "
        f"{counted(steps, 'step')}\n"
        f"each block loads {loads:,} elements for {2 * tm * tn * k:,} operations: "
        f"{plain(2 * tm * tn * k / (4 * loads))} FLOP per byte of float32; without tiles "
        f"{plain(2 / 8)}\n{frames[0].text}"
    )
    return Frames(frames)


def _walk_frame(
    sizes: tuple[int, int, int], tile: tuple[int, int, int], block: tuple[int, int],
    step: int, steps: int,
) -> Picture:  # fmt: skip
    """One step: the tile of a and of b that is in shared memory, the tile of c that grows."""
    (m, n, k), (tm, tn, tk) = sizes, tile
    r0, r1 = block[0] * tm, min((block[0] + 1) * tm, m)
    c0, c1 = block[1] * tn, min((block[1] + 1) * tn, n)
    k0, k1 = step * tk, min((step + 1) * tk, k)
    scale = min(430 / (k + n), 230 / (m + k))
    left, top, gap = 60, 56, 26
    width = max(left + (k + n) * scale + gap + 24, 440)
    picture = Picture(width, top + (m + k) * scale + gap + 64, f"Step {step + 1} of {steps}")
    ax, ay = left, top + k * scale + gap
    bx, by = left + k * scale + gap, top
    _matrix(picture, ax, ay, (m, k), scale, (r0, r1, k0, k1), BLUE, "a", (r0, r1, 0, k))
    _matrix(picture, bx, by, (k, n), scale, (k0, k1, c0, c1), ORANGE, "b", (0, k, c0, c1))
    _matrix(picture, bx, ay, (m, n), scale, (r0, r1, c0, c1), GREEN, "c", None, PASTELS[2])
    load = f"load a[{r0}:{r1}, {k0}:{k1}] and b[{k0}:{k1}, {c0}:{c1}] into shared memory; barrier;"
    add = f"add their product to c[{r0}:{r1}, {c0}:{c1}]; barrier"
    picture.label(16, picture.height - 30, load, 11, INK)
    picture.label(16, picture.height - 14, add, 11, INK)
    picture.text = f"step {step + 1} of {steps}: {load} {add}"
    return picture


def _matrix(
    picture: Picture, x: float, y: float, shape: tuple[int, int], scale: float,
    tile: tuple[int, int, int, int], colour: str, name: str,
    path: tuple[int, int, int, int] | None = None, fill: str = "",
) -> None:  # fmt: skip
    """A matrix to scale, with the stripe that the block will pass over and the tile it is at."""
    rows, columns = shape
    picture.rect(x, y, columns * scale, rows * scale, fill="#f6f8fa", stroke=MUTED)
    for part, paint, stroke in ((path, "#e3e8ee", "none"), (tile, fill or colour, colour)):
        if part is not None:
            r0, r1, c0, c1 = part
            size = (c1 - c0) * scale, (r1 - r0) * scale
            picture.rect(x + c0 * scale, y + r0 * scale, *size, fill=paint, stroke=stroke)
    picture.label(x + 4, y - 6, f"{name} {rows}x{columns}", 11, INK)
