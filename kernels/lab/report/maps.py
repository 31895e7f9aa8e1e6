"""Pictures of recorded accesses: how often each element, and what one request touches."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.lab.draw.canvas import Picture
from kernels.lab.draw.pictures import BANKS, WARP, banks_picture, heat_map, sectors_picture
from kernels.lab.report.measurement import Measurement

_OPS = {"load": "reads", "store": "writes", "atomic": "atomics"}


def access_map(
    report: Measurement, array: str, op: str = "", block: int | None = None, warp: int | None = None
) -> Picture:
    """How often each element of an array is accessed, as colours; of a shared array, each word of
    each bank. `op` is "load", "store" or "atomic"; by default all are counted, of all blocks and
    warps unless one is chosen.

    The report must have records: `profile(..., records=1_000_000)`.
    """
    space, shape, itemsize = _known(report, array)
    found = _of(report, array, op)
    if block is not None:
        found = found[found["block"] == block]
    if warp is not None:
        found = found[found["thread"] // WARP == warp]
    what = _OPS.get(op, "accesses")
    size = int(np.prod(shape)) if shape else 1
    counts = np.bincount(found["offset"] // itemsize % max(size, 1), minlength=size)
    parts = [f"{name} {n}" for name, n in (("block", block), ("warp", warp)) if n is not None]
    whose = f" by {', '.join(parts)}" if parts else ""
    title = f"{report.name}: {what} of {array}{whose}, {len(found):,} in all"
    if space == "shared":
        return _bank_map(counts, itemsize, title, what)
    table = counts.reshape(-1, shape[-1]) if len(shape) > 1 else _folded(counts)
    high, wide = table.shape
    rows = f"row 0 to {high - 1}" if high > 1 else ""
    columns = f"column 0 to {wide - 1}" if len(shape) > 1 else f"element 0 to {wide - 1}"
    return heat_map(
        table, title, what, rows, columns if high == 1 or len(shape) > 1 else "rows of 32"
    )


def _bank_map(counts: np.ndarray, itemsize: int, title: str, what: str) -> Picture:
    """Accesses by 4-byte words, a row for each 32 words and a column for each bank."""
    words = -(-len(counts) * itemsize // 4)
    table = np.zeros(-(-words // BANKS) * BANKS)
    where = np.arange(len(counts)) * itemsize // 4
    for part in range(max(itemsize // 4, 1)):
        np.add.at(table, where + part, counts)
    return heat_map(table.reshape(-1, BANKS), title, what, "row", "bank 0 to 31, left to right")


def _folded(counts: np.ndarray) -> np.ndarray:
    """One dimension as rows of 32 elements."""
    rows = -(-len(counts) // WARP) if len(counts) > WARP else 1
    wide = WARP if len(counts) > WARP else len(counts)
    padded = np.zeros(rows * wide)
    padded[: len(counts)] = counts
    return padded.reshape(rows, wide)


def request_picture(
    report: Measurement, array: str, line: int | None = None, op: str = "load", block: int = 0,
    warp: int = 0, iteration: int = 0,
) -> Picture:  # fmt: skip
    """What one request of a warp touches: sectors of global memory, or banks of shared memory.

    The request is the one of `warp` in `block` (linear) that accesses `array` at the source line
    `line` (default: the first such line) for the `iteration`-th time. The report must have records.
    """
    space, _, itemsize = _known(report, array)
    found = _of(report, array, op)
    found = found[(found["block"] == block) & (found["thread"] // WARP == warp)]
    if line is None and len(found):
        line = int(found["line"][0])
    found = found[found["line"] == line]
    offsets = []
    for thread in np.unique(found["thread"]):
        mine = found[found["thread"] == thread]
        offsets += mine["offset"][iteration : iteration + 1].tolist()
    if not offsets:
        raise ValueError(
            f"request_picture: no record of a {op} of {array} at line {line} by warp {warp} of "
            f"block {block}, iteration {iteration}"
        )
    what = {"load": "reads", "store": "writes", "atomic": "changes"}[op]
    title = f"{report.name}, line {line}: warp {warp} of block {block} {what} {array}"
    draw = sectors_picture if space == "global" else banks_picture
    return draw(np.array(offsets) // itemsize, itemsize, title)


def _known(report: Measurement, array: str) -> tuple[str, tuple[int, ...], int]:
    if array not in report.arrays:
        names = ", ".join(report.arrays) or "none"
        raise ValueError(f"{report.name} has no array {array!r}; its arrays: {names}")
    return report.arrays[array]


def _of(report: Measurement, array: str, op: str) -> Any:
    """The records of an array."""
    if op not in ("", *_OPS):
        raise ValueError(f"op: expected one of {list(_OPS)}, got {op!r}")
    if report.records is None:
        raise ValueError(
            f"{report.name}: no accesses were kept; profile(..., records=1_000_000) keeps them"
        )
    found = report.records[report.records["array"] == array]
    return found[found["op"] == op] if op else found[np.isin(found["op"], list(_OPS))]
