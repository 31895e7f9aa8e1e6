"""Schedules that go up and down: warm restarts and one cycle."""

from __future__ import annotations

import math
from typing import Any

from minigrad.optim.lr_scheduler.base import LRScheduler, check_optimizer, per_group
from minigrad.optim.optimizer import Optimizer


class CosineAnnealingWarmRestarts(LRScheduler):
    """Half cosines of length T_0, T_0 * T_mult, ..., each from the initial rate (SGDR, 2017)."""

    def __init__(
        self,
        optimizer: Optimizer,
        T_0: int,
        T_mult: int = 1,
        eta_min: float = 0.0,
        last_epoch: int = -1,
    ) -> None:
        if T_0 <= 0 or not isinstance(T_0, int):
            raise ValueError(f"Expected positive integer T_0, but got {T_0}")
        if T_mult < 1 or not isinstance(T_mult, int):
            raise ValueError(f"Expected integer T_mult >= 1, but got {T_mult}")
        if not isinstance(eta_min, (float, int)):
            raise ValueError(
                f"Expected float or int eta_min, but got {eta_min} of type {type(eta_min)}"
            )
        self.T_0 = self.T_i = T_0
        self.T_mult = T_mult
        self.eta_min = eta_min
        self.T_cur = last_epoch
        super().__init__(optimizer, last_epoch)

    def _next_lr(self, lr: float, base: float) -> float:
        height = (1 + math.cos(math.pi * self.T_cur / self.T_i)) / 2
        return self.eta_min + (base - self.eta_min) * height

    def step(self, epoch: float | None = None) -> None:
        """Move on by one epoch, or to `epoch`, which may be a fraction within it."""
        if epoch is not None and epoch < 0:
            raise ValueError(f"Expected non-negative epoch, but got {epoch}")
        self._step_count += 1
        at = self.last_epoch + 1 if epoch is None else epoch
        start, self.T_i = 0, self.T_0
        while at >= start + self.T_i:
            start += self.T_i
            self.T_i *= self.T_mult
        self.T_cur = at - start
        self.last_epoch = math.floor(at) - 1  # _update_lr increments it
        self._update_lr()


class OneCycleLR(LRScheduler):
    """Up to `max_lr`, then down to far below the start; momentum inversely (Smith 2018).

    Stepped after every batch, `total_steps` (or `epochs` * `steps_per_epoch`) times.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float | list[float],
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        cycle_momentum: bool = True,
        base_momentum: float | list[float] = 0.85,
        max_momentum: float | list[float] = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
    ) -> None:
        check_optimizer(optimizer)
        self.total_steps = _one_cycle_steps(total_steps, epochs, steps_per_epoch)
        if not isinstance(pct_start, float) or not 0 <= pct_start <= 1:
            raise ValueError(f"Expected float between 0 and 1 pct_start, but got {pct_start}")
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(
                f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}"
            )
        self.anneal_strategy = anneal_strategy
        self.cycle_momentum = cycle_momentum
        # Phases: last step, and the names of the values at its two ends.
        rise = float(pct_start * self.total_steps) - 1
        phases = [(rise, "initial_lr", "max_lr", "max_momentum", "base_momentum")]
        if three_phase:
            fall = float(2 * pct_start * self.total_steps) - 2
            phases.append((fall, "max_lr", "initial_lr", "base_momentum", "max_momentum"))
            last = ("initial_lr", "min_lr", "max_momentum", "max_momentum")
        else:
            last = ("max_lr", "min_lr", "base_momentum", "max_momentum")
        self._phases = [*phases, (self.total_steps - 1, *last)]
        if last_epoch == -1:
            for group, top in zip(
                optimizer.param_groups, per_group("max_lr", max_lr, optimizer), strict=True
            ):
                group["initial_lr"] = top / div_factor
                group["max_lr"] = top
                group["min_lr"] = group["initial_lr"] / final_div_factor
        if cycle_momentum:
            self._set_up_momentum(optimizer, base_momentum, max_momentum, last_epoch)
        super().__init__(optimizer, last_epoch)

    def _set_up_momentum(self, optimizer: Optimizer, base: Any, top: Any, last_epoch: int) -> None:
        if "momentum" not in optimizer.defaults and "betas" not in optimizer.defaults:
            raise ValueError(
                "optimizer must support momentum or beta1 with `cycle_momentum` option enabled"
            )
        self.use_beta1 = "betas" in optimizer.defaults
        bases = per_group("base_momentum", base, optimizer)
        tops = per_group("max_momentum", top, optimizer)
        if last_epoch == -1:
            for group, low, high in zip(optimizer.param_groups, bases, tops, strict=True):
                group["max_momentum"], group["base_momentum"] = high, low
                self._set_momentum(group, high)

    def _set_momentum(self, group: dict[str, Any], value: float) -> None:
        if self.use_beta1:
            group["betas"] = (value, *group["betas"][1:])
        else:
            group["momentum"] = value

    def _between(self, start: float, end: float, share: float) -> float:
        if self.anneal_strategy == "linear":
            return (end - start) * share + start
        return end + (start - end) / 2.0 * (math.cos(math.pi * share) + 1)

    def get_lr(self) -> list[float]:
        """The rates for this step; also sets the groups' momentum."""
        step = self.last_epoch
        if step > self.total_steps:
            raise ValueError(
                f"Tried to step {step} times. The specified number of total steps is "
                f"{self.total_steps}"
            )
        start_step = 0.0
        for phase in self._phases:
            if step <= phase[0]:
                break
            if phase is not self._phases[-1]:
                start_step = phase[0]
        end_step, lr_from, lr_to, momentum_from, momentum_to = phase
        share = (step - start_step) / (end_step - start_step)
        rates = []
        for group in self.optimizer.param_groups:
            rates.append(self._between(group[lr_from], group[lr_to], share))
            if self.cycle_momentum:
                momentum = self._between(group[momentum_from], group[momentum_to], share)
                self._set_momentum(group, momentum)
        return rates


def _one_cycle_steps(
    total_steps: int | None, epochs: int | None, steps_per_epoch: int | None
) -> int:
    given = {"epochs": epochs, "steps_per_epoch": steps_per_epoch}
    if total_steps is not None:
        given = {"total_steps": total_steps}
    elif epochs is None or steps_per_epoch is None:
        raise ValueError("You must define either total_steps OR (epochs AND steps_per_epoch)")
    for name, value in given.items():
        if not isinstance(value, int) or value <= 0:
            raise ValueError(f"Expected positive integer {name}, but got {value}")
    return math.prod(given.values())
