"""The base class of learning-rate schedules."""

from __future__ import annotations

import types
import warnings
from typing import Any

from minigrad.autograd.mode import mode
from minigrad.optim.optimizer import Optimizer, number
from minigrad.tensor import Tensor

_ORDER_WARNING = (
    "Detected call of `lr_scheduler.step()` before `optimizer.step()`. In PyTorch 1.1.0 and "
    "later, you should call them in the opposite order: `optimizer.step()` before "
    "`lr_scheduler.step()`. Failure to do this will result in skipping the first value of the "
    "learning rate schedule."
)
EPOCH_WARNING = (
    "The epoch parameter in `scheduler.step()` was not necessary and is being deprecated where "
    "possible. Please use `scheduler.step()` to step the scheduler."
)


def stop_recording() -> None:
    """A compiled step runs eagerly that also steps a schedule: its rates are Python's numbers."""
    if mode.recorder is not None:
        mode.recorder.stop("a step of a learning-rate schedule (take it after the compiled step)")


def check_optimizer(optimizer: Any) -> None:
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")


def per_group(name: str, value: Any, optimizer: Optimizer) -> list[Any]:
    count = len(optimizer.param_groups)
    if not isinstance(value, (list, tuple)):
        return [value] * count
    if len(value) != count:
        raise ValueError(
            f"{name} must have the same length as optimizer.param_groups. {name} has "
            f"{len(value)} values, param_groups has {count}."
        )
    return list(value)


def attributes(function: Any) -> dict[str, Any] | None:
    """What a state dict keeps of a function: the attributes of a callable object."""
    plain = function is None or isinstance(function, types.FunctionType)
    return None if plain else dict(function.__dict__)


def copied(value: Any) -> Any:
    """An option of a group; of a tensor a copy, because a schedule writes into those."""
    return value.clone() if isinstance(value, Tensor) else value


def present_rates(optimizer: Optimizer) -> list[Any]:
    """The rates of all groups, as `get_last_lr` gives them."""
    return [copied(group["lr"]) for group in optimizer.param_groups]


def set_rate(group: dict[str, Any], rate: Any) -> None:
    """Set a group's rate; a tensor stays the same one, which a program may have elsewhere."""
    if isinstance(group["lr"], Tensor):
        group["lr"].fill_(number(rate))
    else:
        group["lr"] = rate


class LRScheduler:
    """Base class of schedules.

    A subclass defines `_next_lr` (per group) or overrides `get_lr` (all groups at once).

    Args:
        optimizer: the optimiser to schedule; the present rates of its groups become "initial_lr".
        last_epoch: the epoch to continue from; -1 starts from the beginning.
    """

    # torch's names: they are keys of its state dicts, and schedules of users read them.
    _is_initial = False
    _get_lr_called_within_step = False

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        check_optimizer(optimizer)
        self.optimizer = optimizer
        for i, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", copied(group["lr"]))
            elif "initial_lr" not in group:
                raise KeyError(
                    f"param 'initial_lr' is not specified in param_groups[{i}] when resuming "
                    "scheduler with last_epoch >= 0; load the optimizer's state dict first"
                )
        self.base_lrs = [copied(group["initial_lr"]) for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        self._initial_step()

    def _initial_step(self) -> None:
        """Set the rates of the first epoch."""
        self._step_count = 0
        self._is_initial = True
        try:
            self.step()
        finally:
            self._is_initial = False

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimiser."""
        return {key: value for key, value in self.__dict__.items() if key != "optimizer"}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the result of `state_dict`."""
        self.__dict__.update(state_dict)

    def get_last_lr(self) -> list[float]:
        """The rates that the last step set, per group."""
        return self._last_lr

    def get_lr(self) -> list[float]:
        """The rates for `last_epoch`, computed from the present ones; called by `step`."""
        if not self._get_lr_called_within_step:
            warnings.warn(
                "To get the last learning rate computed by the scheduler, "
                "please use `get_last_lr()`.",
                stacklevel=2,
            )
        groups = self.optimizer.param_groups
        return [
            self._next_lr(group["lr"], base)
            for group, base in zip(groups, self._bases(), strict=True)
        ]

    def _bases(self) -> list[float]:
        """What the rates of all groups start from."""
        return self.base_lrs

    def _next_lr(self, lr: float, base: float) -> float:
        raise NotImplementedError

    def step(self, epoch: int | None = None) -> None:
        """Move to the next epoch, after ``optimizer.step()``; naming the `epoch` is deprecated."""
        if self._step_count == 1 and not self.optimizer._opt_called:
            warnings.warn(_ORDER_WARNING, stacklevel=2)
        self._step_count += 1
        if epoch is not None:
            warnings.warn(EPOCH_WARNING, stacklevel=2)
        self._update_lr(epoch)

    def _update_lr(self, epoch: int | None = None) -> None:
        stop_recording()
        self._get_lr_called_within_step = True
        try:
            closed_form = getattr(self, "_get_closed_form_lr", None)
            if epoch is None:
                self.last_epoch += 1
                rates = self.get_lr()
            else:
                self.last_epoch = epoch
                rates = closed_form() if closed_form is not None else self.get_lr()
        finally:
            self._get_lr_called_within_step = False
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            set_rate(group, rate)
        self._last_lr = present_rates(self.optimizer)


class ClosedForm(LRScheduler):
    """A schedule with a formula for the rate of any epoch."""

    def _lr_at(self, base: float) -> float:
        raise NotImplementedError

    def _bases(self) -> list[float]:
        """Those of groups that were added later are their present rates: such schedules go from
        one rate to the next."""
        later = self.optimizer.param_groups[len(self.base_lrs) :]
        return [*self.base_lrs, *(group["lr"] for group in later)]

    def _get_closed_form_lr(self) -> list[float]:
        return [self._lr_at(base) for base in self.base_lrs]
