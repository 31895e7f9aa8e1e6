"""Layers on several ranks (pipeline parallel), with torch's names.

    stage = PipelineStage(my_layers, dist.get_rank(), dist.get_world_size(), "cpu")
    schedule = Schedule1F1B(stage, n_microbatches=8, loss_fn=F.cross_entropy)
    if first: schedule.step(x)
    elif last: output = schedule.step(target=y, losses=losses)
    else: schedule.step()

A batch is cut into micro-batches, so that the stages work at the same time. `schedule.timeline()`
says when each stage worked, draws it, and compares its idle share with theory.
"""

from __future__ import annotations

from minigrad._names import namespace
from minigrad.distributed.pipelining.schedules import Schedule1F1B, ScheduleGPipe
from minigrad.distributed.pipelining.split import Pipe, SplitPoint, pipeline
from minigrad.distributed.pipelining.stage import PipelineStage
from minigrad.distributed.pipelining.timeline import Event, Timeline, ideal_bubble

__all__ = [
    "Event",
    "Pipe",
    "PipelineStage",
    "Schedule1F1B",
    "ScheduleGPipe",
    "SplitPoint",
    "Timeline",
    "ideal_bubble",
    "pipeline",
]

__getattr__, __dir__ = namespace(__name__)
