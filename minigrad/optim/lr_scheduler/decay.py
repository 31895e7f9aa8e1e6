"""Schedules that decay (or warm up) along one simple curve."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from minigrad.optim.lr_scheduler.base import (
    ClosedForm,
    LRScheduler,
    attributes,
    check_optimizer,
    per_group,
)
from minigrad.optim.optimizer import Optimizer


class LambdaLR(LRScheduler):
    """initial rate * lr_lambda(epoch); one function, or one per group."""

    def __init__(self, optimizer: Optimizer, lr_lambda: Any, last_epoch: int = -1) -> None:
        check_optimizer(optimizer)
        given = len(lr_lambda) if isinstance(lr_lambda, (list, tuple)) else None
        if given is not None and given != len(optimizer.param_groups):
            raise ValueError(f"Expected {len(optimizer.param_groups)} lr_lambdas, but got {given}")
        self.lr_lambdas: list[Callable[[int], float]] = per_group("lr_lambda", lr_lambda, optimizer)
        super().__init__(optimizer, last_epoch)

    def state_dict(self) -> dict[str, Any]:
        """Without the optimiser; of `lr_lambda`, only the attributes of callable objects."""
        state = {k: v for k, v in super().state_dict().items() if k != "lr_lambdas"}
        state["lr_lambdas"] = [attributes(fn) for fn in self.lr_lambdas]
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the result of `state_dict`; functions are those given to the constructor."""
        state = dict(state_dict)
        for fn, saved in zip(self.lr_lambdas, state.pop("lr_lambdas"), strict=True):
            if saved is not None:
                fn.__dict__.update(saved)
        self.__dict__.update(state)

    def get_lr(self) -> list[float]:
        """The rates for `last_epoch`."""
        return [
            base * fn(self.last_epoch)
            for base, fn in zip(self.base_lrs, self.lr_lambdas, strict=True)
        ]


class MultiplicativeLR(LambdaLR):
    """present rate * lr_lambda(epoch), from the second epoch on."""

    def get_lr(self) -> list[float]:
        """The rates for `last_epoch`."""
        groups = self.optimizer.param_groups
        if self._is_initial:
            return [group["lr"] for group in groups]
        return [
            group["lr"] * fn(self.last_epoch)
            for group, fn in zip(groups, self.lr_lambdas, strict=True)
        ]


class StepLR(ClosedForm):
    """Multiplies the rate by `gamma` every `step_size` epochs."""

    def __init__(
        self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        self.step_size = step_size
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def _next_lr(self, lr: float, base: float) -> float:
        due = self.last_epoch != 0 and self.last_epoch % self.step_size == 0
        return lr * self.gamma if due else lr

    def _lr_at(self, base: float) -> float:
        return base * self.gamma ** (self.last_epoch // self.step_size)


class MultiStepLR(ClosedForm):
    """Multiplies the rate by `gamma` at each of `milestones` (twice if listed twice)."""

    def __init__(
        self,
        optimizer: Optimizer,
        milestones: Iterable[int],
        gamma: float = 0.1,
        last_epoch: int = -1,
    ) -> None:
        self.milestones = Counter(milestones)
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def _next_lr(self, lr: float, base: float) -> float:
        times = self.milestones.get(self.last_epoch, 0)
        return lr * self.gamma**times if times else lr

    def _lr_at(self, base: float) -> float:
        return base * self.gamma ** bisect_right(
            sorted(self.milestones.elements()), self.last_epoch
        )


class ConstantLR(ClosedForm):
    """Multiplies the rate by `factor` until epoch `total_iters`."""

    def __init__(
        self,
        optimizer: Optimizer,
        factor: float = 1.0 / 3,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        if factor > 1.0 or factor < 0:
            raise ValueError("Constant multiplicative factor expected to be between 0 and 1.")
        self.factor = factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def _next_lr(self, lr: float, base: float) -> float:
        if self.last_epoch == 0:
            return lr * self.factor
        return lr * (1.0 / self.factor) if self.last_epoch == self.total_iters else lr

    def _lr_at(self, base: float) -> float:
        return base * (self.factor if self.last_epoch < self.total_iters else 1.0)


class LinearLR(ClosedForm):
    """Multiplies the rate by a factor, linear from `start_factor` to `end_factor`."""

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1.0 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        if start_factor > 1.0 or start_factor <= 0:
            raise ValueError(
                "Starting multiplicative factor expected to be greater than 0 "
                "and less or equal to 1."
            )
        if end_factor > 1.0 or end_factor < 0:
            raise ValueError("Ending multiplicative factor expected to be between 0 and 1.")
        self.start_factor = start_factor
        self.end_factor = end_factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def _factor(self, epoch: int) -> float:
        share = min(self.total_iters, epoch) / self.total_iters
        return self.start_factor + (self.end_factor - self.start_factor) * share

    def _next_lr(self, lr: float, base: float) -> float:
        if self.last_epoch == 0:
            return lr * self.start_factor
        if self._is_initial or self.last_epoch > self.total_iters:
            return lr
        rise = self.end_factor - self.start_factor
        before = self.total_iters * self.start_factor + (self.last_epoch - 1) * rise
        return lr * (1.0 + rise / before)

    def _lr_at(self, base: float) -> float:
        return base * self._factor(self.last_epoch)


class ExponentialLR(ClosedForm):
    """Multiplies the rate by `gamma` every epoch."""

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def _next_lr(self, lr: float, base: float) -> float:
        return lr if self._is_initial else lr * self.gamma

    def _lr_at(self, base: float) -> float:
        return base * self.gamma**self.last_epoch


class PolynomialLR(ClosedForm):
    """initial rate * (1 - epoch / total_iters) ** power, down to zero."""

    def __init__(
        self,
        optimizer: Optimizer,
        total_iters: int = 5,
        power: float = 1.0,
        last_epoch: int = -1,
    ) -> None:
        self.total_iters = total_iters
        self.power = power
        super().__init__(optimizer, last_epoch)

    def _next_lr(self, lr: float, base: float) -> float:
        if self._is_initial or self.last_epoch > self.total_iters:
            return lr
        now = 1.0 - self.last_epoch / self.total_iters
        before = 1.0 - (self.last_epoch - 1) / self.total_iters
        return lr * (now / before) ** self.power

    def _lr_at(self, base: float) -> float:
        share = 1.0 - min(self.total_iters, self.last_epoch) / self.total_iters
        return base * share**self.power


class CosineAnnealingLR(ClosedForm):
    """Half a cosine from the initial rate to `eta_min` over `T_max` epochs (Loshchilov 2017)."""

    def __init__(
        self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1
    ) -> None:
        self.T_max = T_max
        self.eta_min = eta_min
        super().__init__(optimizer, last_epoch)

    def _next_lr(self, lr: float, base: float) -> float:
        if self._is_initial:
            return lr
        if self._step_count == 1 and self.last_epoch > 0:
            return self._lr_at(base)
        if (self.last_epoch - 1 - self.T_max) % (2 * self.T_max) == 0:
            # One step after the minimum, where the ratio below would be 0 / 0.
            return lr + (base - self.eta_min) * (1 - math.cos(math.pi / self.T_max)) / 2
        now = 1 + math.cos(math.pi * self.last_epoch / self.T_max)
        before = 1 + math.cos(math.pi * (self.last_epoch - 1) / self.T_max)
        return now / before * (lr - self.eta_min) + self.eta_min

    def _lr_at(self, base: float) -> float:
        height = (1 + math.cos(math.pi * self.last_epoch / self.T_max)) / 2
        return self.eta_min + (base - self.eta_min) * height
