"""When each stage of a pipeline worked: as numbers, as a picture, and as theory has it."""

from __future__ import annotations

import pickle
from typing import Any, NamedTuple

from kernels.lab.draw.canvas import GRID, INK, MUTED, PASTELS, Picture

FILLS = {"forward": PASTELS[0], "backward": PASTELS[2]}
LEFT, WIDE, TALL, TOP = 76, 680, 30, 76


class Event(NamedTuple):
    """A pass of one stage: `kind` is "forward" or "backward"; seconds from the step's start."""

    stage: int
    kind: str
    micro_batch: int
    start: float
    seconds: float


def ideal_bubble(stages: int, micro_batches: int) -> float:
    """The share of time in which a stage is idle if all stages take equally long and messages take
    no time: (p - 1) / (m + p - 1), for GPipe and for 1F1B."""
    return (stages - 1) / (micro_batches + stages - 1)


class Timeline:
    """The passes of all stages. `bubble` is the share of time in which stages were idle."""

    def __init__(self, name: str, stages: int, micro_batches: int, events: list[Event]) -> None:
        self.name, self.stages, self.micro_batches = name, stages, micro_batches
        self.events = sorted(events, key=lambda event: event.start)

    @classmethod
    def ideal(
        cls, schedule: Any, stages: int, micro_batches: int, forward: float = 1, backward: float = 2
    ) -> Timeline:
        """What a schedule (`ScheduleGPipe`, `Schedule1F1B`) would be with stages that take equally
        long, and messages that take no time; nothing is run."""
        orders = [schedule.order(i, stages, micro_batches) for i in range(stages)]
        seconds = {"forward": forward, "backward": backward}
        return cls(schedule.__name__, stages, micro_batches, _simulated(orders, seconds))

    @property
    def seconds(self) -> float:
        """From the first pass to the end of the last."""
        return self._end - self.events[0].start

    @property
    def _end(self) -> float:
        return max(event.start + event.seconds for event in self.events)

    @property
    def busy(self) -> float:
        """Seconds of all stages in passes."""
        return sum(event.seconds for event in self.events)

    @property
    def bubble(self) -> float:
        return 1 - self.busy / (self.stages * self.seconds)

    def __str__(self) -> str:
        """One line on the whole, one per stage: its passes in order."""
        ideal = ideal_bubble(self.stages, self.micro_batches)
        first = (
            f"{self.name}: {self.stages} stages, {self.micro_batches} micro-batches, "
            f"idle {self.bubble:.1%} (theory {ideal:.1%})"
        )
        rows = []
        for stage in range(self.stages):
            mine = [event for event in self.events if event.stage == stage]
            passes = " ".join(f"{event.kind[0].upper()}{event.micro_batch}" for event in mine)
            rows.append(f"stage {stage}: {passes}")
        return "\n".join([first, *rows])

    def picture(self) -> Picture:
        """A row for each stage, a box for each pass with the number of its micro-batch."""
        picture = Picture(LEFT + WIDE + 24, TOP + TALL * self.stages + 34, "", str(self))
        picture.title = str(self).partition("\n")[0]
        picture.label(16, 22, picture.title, 13, INK, bold=True)
        x: float = LEFT
        for kind, fill in FILLS.items():
            picture.rect(x, 40, 14, 14, fill=fill, stroke=MUTED, line=0.5)
            picture.label(x + 20, 52, kind, 11, MUTED)
            x += 100
        picture.label(x, 52, "blank: the stage waits", 11, MUTED)
        begin, scale = self.events[0].start, WIDE / (self.seconds or 1)
        for stage in range(self.stages):
            y = TOP + stage * TALL
            picture.label(LEFT - 10, y + 18, f"stage {stage}", 11, INK, "end")
            picture.line(LEFT, y + TALL - 1, LEFT + WIDE, y + TALL - 1, GRID)
        for event in self.events:
            x, y = LEFT + (event.start - begin) * scale, TOP + event.stage * TALL
            width = max(event.seconds * scale, 0.5)
            tip = f"{event.kind} of micro-batch {event.micro_batch}: {event.seconds:.3g} s"
            fill = FILLS[event.kind]
            picture.rect(x, y + 3, width, TALL - 8, fill=fill, stroke=MUTED, line=0.5, tip=tip)
            if width > 14:
                picture.label(x + width / 2, y + 18, str(event.micro_batch), 10, INK, "middle")
        y = TOP + TALL * self.stages + 18
        picture.label(LEFT, y, "0", 10, MUTED)
        picture.label(LEFT + WIDE, y, f"{self.seconds:.3g} s", 10, MUTED, "end")
        return picture


def _simulated(orders: list[list[tuple[str, int]]], seconds: dict[str, float]) -> list[Event]:
    """The passes of all stages, each as early as its own order and its inputs allow."""
    last = len(orders) - 1
    free = [0.0] * len(orders)
    done: dict[tuple[int, str, int], float] = {}  # when a pass ended
    events: list[Event] = []
    waiting = [list(order) for order in orders]

    def ready(stage: int, kind: str, number: int) -> float | None:
        """When the input of a pass is there."""
        if kind == "forward":
            return 0.0 if stage == 0 else done.get((stage - 1, kind, number))
        if stage == last:
            return done.get((stage, "forward", number))
        return done.get((stage + 1, kind, number))

    while any(waiting):
        moved = False
        for stage, actions in enumerate(waiting):
            while actions and (arrived := ready(stage, *actions[0])) is not None:
                kind, number = actions.pop(0)
                start = max(free[stage], arrived)
                events.append(Event(stage, kind, number, start, seconds[kind]))
                free[stage] = done[stage, kind, number] = start + seconds[kind]
                moved = True
        if not moved:
            raise RuntimeError("Timeline.ideal: the stages wait for each other")
    return events


def gathered(name: str, stage: Any, count: int, events: list[Event]) -> Timeline:
    """The timeline of a step from all stages' events."""
    found = stage.group.exchange(f"{name}.timeline", pickle.dumps([tuple(e) for e in events]))
    passes = [Event(*fields) for data in found for fields in pickle.loads(data)]
    if not passes:
        raise RuntimeError(f"{name}.timeline: no step has been made")
    return Timeline(name, stage.num_stages, count, passes)
