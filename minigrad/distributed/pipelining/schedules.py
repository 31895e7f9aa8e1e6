"""In which order a stage works on its micro-batches.

GPipe: all forward passes, then all backward passes (Huang et al., "GPipe: Efficient Training of
Giant Neural Networks using Pipeline Parallelism", 2019). 1F1B: a stage begins with backward passes
as soon as it can, and then takes turns: the same time, and never more micro-batches alive than
there are stages from this one on (Narayanan et al., "PipeDream: Generalized Pipeline Parallelism
for DNN Training", SOSP 2019; "Efficient Large-Scale Language Model Training on GPU Clusters Using
Megatron-LM", SC 2021).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import minigrad
from minigrad.backends import array_module
from minigrad.distributed.errors import DistBackendError
from minigrad.distributed.mpi import Work
from minigrad.distributed.pipelining.stage import PipelineStage
from minigrad.distributed.pipelining.timeline import Event, Timeline, gathered
from minigrad.tensor import Tensor

FORWARD, BACKWARD = "forward", "backward"
Action = tuple[str, int]


def gpipe_order(stage: int, stages: int, count: int) -> list[Action]:
    """What a stage does, in order: (FORWARD or BACKWARD, micro-batch)."""
    return [(kind, i) for kind in (FORWARD, BACKWARD) for i in range(count)]


def one_f_one_b_order(stage: int, stages: int, count: int) -> list[Action]:
    """The same for 1F1B: forward passes until the first gradient can be there, then turns."""
    ahead = min(count, stages - stage)
    actions = [(FORWARD, i) for i in range(ahead)]
    for i in range(count):
        actions.append((BACKWARD, i))
        if ahead + i < count:
            actions.append((FORWARD, ahead + i))
    return actions


class _Schedule:
    """What the schedules share; they differ in `order`."""

    order: Callable[[int, int, int], list[Action]]

    def __init__(
        self,
        stage: PipelineStage,
        n_microbatches: int,
        loss_fn: Callable[..., Tensor] | None = None,
        args_chunk_spec: Any = None,
        kwargs_chunk_spec: Any = None,
        output_merge_spec: Any = None,
        scale_grads: bool = True,
    ) -> None:
        name = type(self).__name__
        if args_chunk_spec or kwargs_chunk_spec or output_merge_spec:
            raise NotImplementedError(
                f"{name}: minigrad cuts and joins along dimension 0; leave out args_chunk_spec, "
                "kwargs_chunk_spec and output_merge_spec"
            )
        if not isinstance(n_microbatches, int) or n_microbatches < 1:
            raise ValueError(f"{name}: expected n_microbatches >= 1, got {n_microbatches!r}")
        self.stage, self.count, self.scale_grads = stage, n_microbatches, scale_grads
        self.loss_fn = loss_fn
        self.events: list[Event] = []
        self.most_alive = 0  # micro-batches of which this stage has held the graph
        self._sending: list[Work] = []

    def step(
        self, *args: Any, target: Any = None, losses: list[Tensor] | None = None, **kwargs: Any
    ) -> Any:
        """Train on one batch: forward, and with a `loss_fn` backward. All stages call it.

        args: the batch, on the first stage; each tensor is cut along dimension 0, and so are those
            of `kwargs`, which every stage gives for itself.
        target: on the last stage, cut likewise: the loss is `loss_fn(output, target)`.
        losses: a list to fill with the losses of the micro-batches, on the last stage.

        Returns the outputs joined along dimension 0 on the last stage, None on the others.
        Gradients are the mean over the micro-batches (`scale_grads`), added to `.grad`.

        Raises ValueError for a batch that the micro-batches do not divide, DistBackendError on
        every stage where the stages' schedules differ.
        """
        stage = self.stage
        self._check(args if stage.is_first else (), target, kwargs)
        parts = self._cut(args) if stage.is_first else []
        options = self._cut(tuple(kwargs.values())) if kwargs else []
        named = [dict(zip(kwargs, part)) for part in options] or [{}] * self.count
        targets = self._cut((target,)) if stage.is_last and self.loss_fn else []
        stage.begin()
        self.events, self.most_alive = [], 0
        self._began = time.perf_counter()
        run = _Step(self, parts, named, targets)
        try:
            run.all()
        finally:
            self._sending = []
        if losses is not None and stage.is_last:
            losses[:] = run.losses
        return _joined(run.outputs) if stage.is_last else None

    def eval(self, *args: Any, target: Any = None, **kwargs: Any) -> Any:
        """`step` without backward passes."""
        loss_fn, self.loss_fn = self.loss_fn, None
        try:
            return self.step(*args, target=target, **kwargs)
        finally:
            self.loss_fn = loss_fn

    def timeline(self) -> Timeline:
        """When each stage worked in the last step; all stages call it."""
        return gathered(type(self).__name__, self.stage, self.count, self.events)

    def _check(self, args: tuple, target: Any, kwargs: dict[str, Any]) -> None:
        """Raise where this stage's batch is wrong; the others are told, and raise as well."""
        name, stage = type(self).__name__, self.stage
        problem = ""
        given = {f"argument {i}": x for i, x in enumerate(args)} | kwargs
        if self.loss_fn and stage.is_last:
            given["target"] = target
            if target is None:
                problem = f"{name}.step: the last stage needs a target for its loss_fn"
        elif stage.is_first and not args and not kwargs:
            problem = f"{name}.step: the first stage needs the batch"
        for key, x in given.items():
            if isinstance(x, Tensor) and (not x.ndim or x.shape[0] % self.count):
                problem = (
                    f"{name}.step: {self.count} micro-batches do not divide {key} of shape "
                    f"{tuple(x.shape)}"
                )
        what = f"{name}.step, {self.count} micro-batches, {'' if self.loss_fn else 'no '}backward"
        try:
            stage.group.agree(problem or what)
        except DistBackendError:
            if not problem:
                raise
        if problem:
            raise ValueError(problem)

    def _cut(self, values: tuple) -> list[tuple]:
        """The values of each micro-batch."""
        cut = [x.chunk(self.count) if isinstance(x, Tensor) else (x,) * self.count for x in values]
        return list(zip(*cut)) if cut else [()] * self.count

    def pending(self, works: list[Work]) -> None:
        """Remember what is being sent; what has gone is forgotten, with its memory."""
        self._sending = [work for work in self._sending if not work.is_completed()] + works


class _Step:
    """One step of one stage: its actions with the messages between them."""

    def __init__(
        self, schedule: _Schedule, parts: list[tuple], kwargs: list[dict], targets: list[tuple]
    ) -> None:
        self.schedule, self.stage = schedule, schedule.stage
        self.parts, self.kwargs, self.targets = parts, kwargs, targets
        self.keep = schedule.loss_fn is not None
        self.outputs: list[Any] = []
        self.losses: list[Tensor] = []
        self._values: dict[int, Tensor] = {}  # losses with their graphs, by micro-batch
        self._wait: list[Work] = []
        self._taken: Any = None

    def all(self) -> None:
        stage, schedule = self.stage, self.schedule
        actions = schedule.order(stage.stage_index, stage.num_stages, schedule.count)
        if not self.keep:
            actions = [action for action in actions if action[0] == FORWARD]
        result = None
        for before, action in zip([None, *actions], [*actions, None]):
            self._named(before, action, result)
            if action is None:
                break
            begun = time.perf_counter()
            result = self._forward(action[1]) if action[0] == FORWARD else self._backward(action[1])
            seconds = time.perf_counter() - begun
            since = begun - schedule._began
            schedule.events.append(Event(stage.stage_index, *action, since, seconds))
            schedule.most_alive = max(schedule.most_alive, stage.alive)
        for work in schedule._sending:
            work.wait()

    def _named(self, before: Action | None, action: Action | None, result: Any) -> None:
        """`_communicate`, whose errors say what was waited for."""
        try:
            self._communicate(before, action, result)
        except DistBackendError as error:
            kind, number = action or before or ("", 0)
            raise DistBackendError(
                f"{type(self.schedule).__name__}.step: stage {self.stage.stage_index} of "
                f"{self.stage.num_stages}, before {kind} of micro-batch {number}: {error}"
            ) from error

    def _communicate(self, before: Action | None, action: Action | None, result: Any) -> None:
        """Send what the action before has made, and receive what the next needs. Both begin
        together: with NCCL neighbours that each send first would wait for each other."""
        stage = self.stage
        if action == (FORWARD, 0):
            stage.receive_shapes()
        arriving: list[Work] = []
        self._taken = ()
        with stage.group.together():
            if before is not None and before[0] == FORWARD:
                self.schedule.pending(stage.send_outputs(result))
            elif before is not None:
                self.schedule.pending(stage.send_grads(result))
            if action is not None and action[0] == FORWARD:
                self._taken, arriving = stage.receive_inputs(self.keep)
            elif action is not None:
                self._taken, arriving = stage.receive_grads(action[1])
        for work in arriving:
            work.wait()

    def _forward(self, number: int) -> Any:
        stage, schedule = self.stage, self.schedule
        args = self.parts[number] if stage.is_first else self._taken
        output = stage.forward(number, args, self.kwargs[number], self.keep)
        if stage.is_last:
            self.outputs.append(_detached(output))
            if schedule.loss_fn is not None:
                value = schedule.loss_fn(output, *self.targets[number])
                self._values[number] = value
                self.losses.append(value.detach())
        return output

    def _backward(self, number: int) -> list[Any]:
        stage, grads = self.stage, self._taken
        loss = self._values.pop(number, None)
        if loss is not None:
            xp = array_module(loss._array)
            share = 1 / self.schedule.count if self.schedule.scale_grads else 1.0
            grads = [xp.full(loss.shape, share, loss._array.dtype)]
        return stage.backward(number, list(grads), loss)


class ScheduleGPipe(_Schedule):
    """All forward passes, then all backward passes; see `step`."""

    order = staticmethod(gpipe_order)


class Schedule1F1B(_Schedule):
    """Forward and backward passes in turns; see `step`."""

    order = staticmethod(one_f_one_b_order)


def _detached(output: Any) -> Any:
    if isinstance(output, tuple | list):
        return tuple(x.detach() for x in output)
    return output.detach()


def _joined(outputs: list[Any]) -> Any:
    if isinstance(outputs[0], tuple):
        return tuple(_joined(list(some)) for some in zip(*outputs))
    if not outputs[0].ndim:
        return minigrad.stack(outputs)
    return minigrad.cat(outputs)
