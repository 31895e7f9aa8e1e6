"""The kernels of a stretch of work in the order they ran: `with timeline() as t: ...; print(t)`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from kernels import dispatch
from kernels.lab.draw.canvas import GRID, INK, MUTED, PASTELS, Picture, fitted

MOST_ROWS = 12
MOST_BARS = 2000


class Event(NamedTuple):
    """One launch: seconds from the start of the timeline to its own, and how long it took."""

    family: str
    version: str
    start: float
    seconds: float


class Timeline(dispatch.Trace):
    """A trace that keeps every launch. `rows` and `table()` are the trace's."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[Event] = []
        self.began = time.perf_counter()
        self.seconds = 0.0

    def add(self, family: str, version: str, seconds: float, began: float | None = None) -> None:
        super().add(family, version, seconds)
        start = (time.perf_counter() - seconds if began is None else began) - self.began
        self.events.append(Event(family, version, max(start, 0.0), seconds))

    @property
    def busy(self) -> float:
        """Seconds in kernels."""
        return sum(event.seconds for event in self.events)

    def __str__(self) -> str:
        share = f"{self.busy / self.seconds:.0%}" if self.seconds else "-"
        first = f"{self.seconds * 1e3:.2f} ms, {len(self.events)} launches, {share} in kernels"
        rows = [
            f"{event.start * 1e3:>9.3f} ms {event.seconds * 1e3:>9.3f} ms  "
            f"{event.family} ({event.version})"
            for event in self.events[:MOST_BARS]
        ]
        return "\n".join([first, *rows])

    def picture(self) -> Picture:
        """A bar for each launch, a row for each family, the costliest families first."""
        cost: dict[str, float] = {}
        for event in self.events:
            cost[event.family] = cost.get(event.family, 0.0) + event.seconds
        families = sorted(cost, key=cost.get, reverse=True)
        named = families if len(families) <= MOST_ROWS else [*families[: MOST_ROWS - 1], "others"]
        row_of = {family: min(i, len(named) - 1) for i, family in enumerate(families)}
        left, wide, tall = 210, 480, 20
        picture = Picture(780, 96 + tall * len(named), "Timeline by kernel", str(self))
        picture.label(16, 42, str(self).partition("\n")[0], 11, MUTED)
        whole = self.seconds or 1.0
        for i, family in enumerate(named):
            y = 56 + i * tall
            if family == "others":
                spent = sum(cost[f] for f in families[MOST_ROWS - 1 :])
                family = f"{len(families) - MOST_ROWS + 1} others"
            else:
                spent = cost[family]
            picture.line(left, y + tall - 2, left + wide, y + tall - 2, GRID)
            picture.label(left - 8, y + 13, fitted(family, 190, 11), 11, INK, "end")
            share = f"{spent * 1e3:.2f} ms {spent / (self.busy or 1):.0%}"
            picture.label(left + wide + 8, y + 13, share, 10, MUTED)
        for event in self.events[:MOST_BARS]:
            row = row_of[event.family]
            x, y = left + wide * event.start / whole, 56 + row * tall
            width = max(wide * event.seconds / whole, 0.5)
            tip = f"{event.family} ({event.version}): {event.seconds * 1e6:.0f} us"
            fill = PASTELS[row % len(PASTELS)]
            picture.rect(x, y + 2, width, tall - 6, fill=fill, stroke=MUTED, line=0.3, tip=tip)
        y = 56 + tall * len(named) + 18
        picture.label(left, y, "0", 10, MUTED)
        picture.label(left + wide, y, f"{self.seconds * 1e3:.2f} ms", 10, MUTED, "end")
        return picture


@contextmanager
def timeline() -> Iterator[Timeline]:
    """Keep every kernel launch of the block, in order; those on a GPU are timed by events."""
    with dispatch.trace(Timeline()) as found:
        try:
            yield found
        finally:
            found.finish()
            found.seconds = time.perf_counter() - found.began
