"""Schedules that go up and down: warm restarts, cycles and one cycle."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from minigrad.optim.lr_scheduler.base import (
    LRScheduler,
    attributes,
    check_optimizer,
    per_group,
    set_rate,
)
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
        at = self.last_epoch + 1 if epoch is None else epoch
        start, self.T_i = 0, self.T_0
        while at >= start + self.T_i:
            start += self.T_i
            self.T_i *= self.T_mult
        self.T_cur = at - start
        self.last_epoch = math.floor(at) - 1  # _update_lr increments it
        self._update_lr()


class _WithMomentum(LRScheduler):
    """Schedules that move the momentum (or beta1) against the rate."""

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


class CyclicLR(_WithMomentum):
    """Up and down between `base_lr` and `max_lr`, along straight lines (Smith 2017).

    Stepped after every batch: `step_size_up` steps up, `step_size_down` (default: as many) down.
    mode: "triangular" keeps the height, "triangular2" halves it in each cycle, "exp_range"
    multiplies it by gamma in each step. scale_fn: a height of your own, by the number of the cycle
    from 1 on or (scale_mode="iterations") of the step. The momentum moves between `max_momentum`
    and `base_momentum` against the rate.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        base_lr: float | list[float],
        max_lr: float | list[float],
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: str = "triangular",
        gamma: float = 1.0,
        scale_fn: Callable[[float], float] | None = None,
        scale_mode: str = "cycle",
        cycle_momentum: bool = True,
        base_momentum: float | list[float] = 0.8,
        max_momentum: float | list[float] = 0.9,
        last_epoch: int = -1,
    ) -> None:
        check_optimizer(optimizer)
        base_lrs = per_group("base_lr", base_lr, optimizer)
        self.max_lrs = per_group("max_lr", max_lr, optimizer)
        if last_epoch == -1:
            for group, rate in zip(optimizer.param_groups, base_lrs, strict=True):
                set_rate(group, rate)
        self.total_size = float(step_size_up) + float(
            step_size_up if step_size_down is None else step_size_down
        )
        self.step_ratio = step_size_up / self.total_size
        if mode not in ("triangular", "triangular2", "exp_range") and scale_fn is None:
            raise ValueError("mode is invalid and scale_fn is None")
        self.mode, self.gamma, self._scale_fn_custom = mode, gamma, scale_fn
        own = "iterations" if mode == "exp_range" else "cycle"
        self.scale_mode = scale_mode if scale_fn is not None else own
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self._set_up_momentum(optimizer, base_momentum, max_momentum, last_epoch)
            self.base_momentums = per_group("base_momentum", base_momentum, optimizer)
            self.max_momentums = per_group("max_momentum", max_momentum, optimizer)
        super().__init__(optimizer, last_epoch)
        self.base_lrs = base_lrs

    def scale_fn(self, x: float) -> float:
        """The height in cycle (or step) x, as a share of the first."""
        if self._scale_fn_custom is not None:
            return self._scale_fn_custom(x)
        return {"triangular": 1.0, "triangular2": 0.5 ** (x - 1)}.get(self.mode, self.gamma**x)

    def state_dict(self) -> dict[str, Any]:
        """Without the optimiser; of a scale_fn, only the attributes of a callable object."""
        return {**super().state_dict(), "_scale_fn_custom": attributes(self._scale_fn_custom)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the result of `state_dict`; a scale_fn is that given to the constructor."""
        state = dict(state_dict)
        saved = state.pop("_scale_fn_custom", None)
        super().load_state_dict(state)
        if saved is not None:
            self._scale_fn_custom.__dict__.update(saved)

    def get_lr(self) -> list[float]:
        """The rates for this step; also sets the groups' momentum."""
        cycle = math.floor(1 + self.last_epoch / self.total_size)
        x = 1.0 + self.last_epoch / self.total_size - cycle
        rising = x <= self.step_ratio
        share = x / self.step_ratio if rising else (x - 1) / (self.step_ratio - 1)
        scale = self.scale_fn(cycle if self.scale_mode == "cycle" else self.last_epoch)
        rates = []
        groups = self.optimizer.param_groups
        for group, low, high in zip(groups, self.base_lrs, self.max_lrs, strict=True):
            rates.append(low + (high - low) * share * scale)
            if self.cycle_momentum:
                base, top = group["base_momentum"], group["max_momentum"]
                self._set_momentum(group, top - (top - base) * share * scale)
        return rates


class OneCycleLR(_WithMomentum):
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
        self._anneal_func_type = anneal_strategy
        self.cycle_momentum = cycle_momentum
        self._schedule_phases = _phases(self.total_steps, pct_start, three_phase)
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

    def _between(self, start: float, end: float, share: float) -> float:
        if self._anneal_func_type == "linear":
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
        for phase in self._schedule_phases:
            if step <= phase["end_step"]:
                break
            if phase is not self._schedule_phases[-1]:
                start_step = phase["end_step"]
        share = (step - start_step) / (phase["end_step"] - start_step)
        rates = []
        for group in self.optimizer.param_groups:
            rates.append(self._between(group[phase["start_lr"]], group[phase["end_lr"]], share))
            if self.cycle_momentum:
                ends = group[phase["start_momentum"]], group[phase["end_momentum"]]
                momentum = self._between(*ends, share)
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


def _phases(total_steps: int, pct_start: float, three_phase: bool) -> list[dict[str, Any]]:
    """The phases of one cycle: the last step, and the names of the values at both ends."""
    names = ("end_step", "start_lr", "end_lr", "start_momentum", "end_momentum")
    rise = float(pct_start * total_steps) - 1
    phases: list[tuple] = [(rise, "initial_lr", "max_lr", "max_momentum", "base_momentum")]
    if three_phase:
        fall = float(2 * pct_start * total_steps) - 2
        phases.append((fall, "max_lr", "initial_lr", "base_momentum", "max_momentum"))
        last = ("initial_lr", "min_lr", "max_momentum", "max_momentum")
    else:
        last = ("max_lr", "min_lr", "base_momentum", "max_momentum")
    return [dict(zip(names, p, strict=True)) for p in [*phases, (total_steps - 1, *last)]]
