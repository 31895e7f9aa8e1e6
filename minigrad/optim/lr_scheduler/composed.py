"""Schedules made of schedules."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from minigrad.optim.lr_scheduler.base import LRScheduler, present_rates, set_rate
from minigrad.optim.lr_scheduler.plateau import ReduceLROnPlateau
from minigrad.optim.optimizer import Optimizer


class _Composed(LRScheduler):
    """A schedule whose state consists of that of its schedulers."""

    _schedulers: Sequence[LRScheduler]

    def state_dict(self) -> dict[str, Any]:
        """Without the optimiser; the schedulers as their own state dicts."""
        state = {k: v for k, v in super().state_dict().items() if k != "_schedulers"}
        return {**state, "_schedulers": [s.state_dict() for s in self._schedulers]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the result of `state_dict`."""
        state = dict(state_dict)
        for scheduler, saved in zip(self._schedulers, state.pop("_schedulers"), strict=True):
            scheduler.load_state_dict(saved)
        self.__dict__.update(state)


class SequentialLR(_Composed):
    """Uses `schedulers[i]` until epoch `milestones[i]`, then starts the next one."""

    def __init__(
        self,
        optimizer: Optimizer,
        schedulers: list[LRScheduler],
        milestones: list[int],
        last_epoch: int = -1,
    ) -> None:
        if len(schedulers) < 1:
            raise ValueError("SequentialLR expects at least one scheduler, but got no scheduler.")
        for i, scheduler in enumerate(schedulers):
            if isinstance(scheduler, ReduceLROnPlateau):
                raise ValueError(
                    "SequentialLR does not support `ReduceLROnPlateau` scheduler as it requires "
                    "additional kwargs to be specified when calling `step`, but got one at index "
                    f"{i} in the given schedulers sequence."
                )
            if scheduler.optimizer is not optimizer:
                raise ValueError(
                    "SequentialLR expects all schedulers to belong to the same optimizer, but "
                    f"scheduler {type(scheduler).__name__} at index {i} has another one"
                )
        if len(milestones) != len(schedulers) - 1:
            raise ValueError(
                "Sequential Schedulers expects number of schedulers provided to be one more than "
                f"the number of milestone points, but got number of schedulers {len(schedulers)} "
                f"and the number of milestones to be equal to {len(milestones)}"
            )
        self._schedulers = schedulers
        self._milestones = milestones
        self.last_epoch = last_epoch + 1
        self.optimizer = optimizer
        # Every scheduler made its first step in its constructor: undo these.
        for group in optimizer.param_groups:
            set_rate(group, group["initial_lr"])
        self._undo(schedulers)
        first = schedulers[bisect_right(milestones, 0)]
        first._initial_step()
        self._last_lr = first.get_last_lr()

    def _undo(self, schedulers: Sequence[LRScheduler]) -> None:
        for scheduler in schedulers:
            if isinstance(scheduler, _Composed):
                self._undo(scheduler._schedulers)
            else:
                scheduler.last_epoch -= 1

    def step(self) -> None:
        """Move to the next epoch."""
        self.last_epoch += 1
        i = bisect_right(self._milestones, self.last_epoch)
        scheduler = self._schedulers[i]
        if i > 0 and self._milestones[i - 1] == self.last_epoch:
            scheduler._update_lr(0)
        else:
            scheduler.step()
        self._last_lr = scheduler.get_last_lr()


class ChainedScheduler(_Composed):
    """Steps all `schedulers` of one optimiser, one after another."""

    def __init__(
        self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None
    ) -> None:
        if len(schedulers) < 1:
            raise ValueError(
                "ChainedScheduler expects at least one scheduler to be chained, "
                "but got no scheduler."
            )
        self.optimizer = optimizer or schedulers[0].optimizer
        for i, scheduler in enumerate(schedulers):
            if isinstance(scheduler, ReduceLROnPlateau):
                raise ValueError(
                    "ChainedScheduler does not support `ReduceLROnPlateau` scheduler as it "
                    "requires additional kwargs to be specified when calling `step`, but got one "
                    f"at index {i} in the given schedulers sequence."
                )
            if scheduler.optimizer is not self.optimizer:
                raise ValueError(
                    "ChainedScheduler expects all schedulers to belong to the same optimizer, "
                    f"but scheduler {type(scheduler).__name__} at index {i} has another one"
                )
        self._schedulers = schedulers
        self._last_lr = present_rates(self.optimizer)

    def step(self) -> None:
        """Move to the next epoch."""
        for scheduler in self._schedulers:
            scheduler.step()
        self._last_lr = present_rates(self.optimizer)
