"""Which memory the temporary arrays of a step get: buffers whose lives do not overlap share it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from minigrad.compiler.graph import INPUT, PLANNED, Buffer, Call, Memory
from minigrad.compiler.places import ALIGNMENT


class Layout:
    """An offset for each temporary buffer of some calls.

    spans: the first and the last call that needs each. size: bytes in all. unshared: what the
    buffers would take without sharing. device: the number of the GPU; None for the CPU.
    """

    device: Any = None

    def __init__(self, spans: dict[Buffer, tuple[int, int]]) -> None:
        self.spans = spans
        self.offsets: dict[Buffer, int] = {}
        self.size, self.unshared = 0, sum(map(_rounded, spans))


def lives(calls: list[Call], memory: Memory) -> dict[Buffer, tuple[int, int]]:
    """The first and the last call that uses each temporary buffer."""
    found: dict[Buffer, tuple[int, int]] = {}
    for number, call in enumerate(calls):
        for array in call.arrays():
            buffer = memory.find(array)
            if buffer is not None and buffer.kind in PLANNED:
                start = 0 if buffer.kind == INPUT else number
                found[buffer] = (found.get(buffer, (start, 0))[0], number)
    return found


def layout(
    calls: list[Call], memory: Memory, placed: Mapping[Buffer, np.ndarray], kept: Iterable[Buffer]
) -> Layout:
    """Give each temporary buffer a place: the best fit among the gaps of that moment.

    placed: buffers that have memory elsewhere. kept: those that are read after the last call.
    """
    spans = {b: span for b, span in lives(calls, memory).items() if b not in placed}
    for buffer in kept:
        if buffer.kind in PLANNED and buffer not in placed:  # no call may need it
            spans[buffer] = (spans.get(buffer, (0, 0))[0], len(calls))
    ends: dict[int, list[Buffer]] = {}
    for buffer, (_, last) in spans.items():
        ends.setdefault(last, []).append(buffer)
    found = Layout(spans)
    offsets = found.offsets
    gaps: list[tuple[int, int]] = []  # (start, stop), in order, none touch
    size, now = 0, 0
    for buffer, (first, _) in sorted(spans.items(), key=lambda item: item[1][0]):
        while now < first:
            for ended in ends.get(now, ()):
                _free(gaps, offsets[ended], offsets[ended] + _rounded(ended))
            now += 1
        need = _rounded(buffer)
        fits = [gap for gap in gaps if gap[1] - gap[0] >= need]
        if fits:
            best = min(fits, key=lambda gap: gap[1] - gap[0])
            gaps.remove(best)
            if best[1] - best[0] > need:
                _free(gaps, best[0] + need, best[1])
            offsets[buffer] = best[0]
        elif gaps and gaps[-1][1] == size:  # the last gap grows
            offsets[buffer] = gaps.pop()[0]
            size = offsets[buffer] + need
        else:
            offsets[buffer], size = size, size + need
    found.size = size
    return found


def _rounded(buffer: Buffer) -> int:
    return -(-(buffer.stop - buffer.start) // ALIGNMENT) * ALIGNMENT


def _free(gaps: list[tuple[int, int]], start: int, stop: int) -> None:
    """Add a gap, joined with those that it touches."""
    for gap in [g for g in gaps if g[1] == start or g[0] == stop]:
        gaps.remove(gap)
        start, stop = min(start, gap[0]), max(stop, gap[1])
    gaps.append((start, stop))
    gaps.sort()
