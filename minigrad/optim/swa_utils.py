"""Averages of weights over training: stochastic weight averaging (Izmailov et al. 2018) and
exponential moving averages."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from copy import deepcopy
from typing import Any

import minigrad
from minigrad._names import namespace
from minigrad.nn.modules.batchnorm import _BatchNorm
from minigrad.nn.modules.module import Module
from minigrad.optim.lr_scheduler.base import LRScheduler, per_group
from minigrad.optim.optimizer import Optimizer
from minigrad.tensor import Tensor

__all__ = [
    "SWALR",
    "AveragedModel",
    "get_ema_avg_fn",
    "get_ema_multi_avg_fn",
    "get_swa_avg_fn",
    "get_swa_multi_avg_fn",
    "update_bn",
]

__getattr__, __dir__ = namespace(__name__)

One = Callable[[Tensor, Tensor, Any], Tensor]  # (average, new value, count) to the next average
Many = Callable[[list[Tensor], list[Tensor], Any], None]  # in place, for lists of tensors


def get_ema_avg_fn(decay: float = 0.999) -> One:
    """f(average, value, count) = decay * average + (1 - decay) * value; decay in 0..1."""
    if not 0.0 <= decay <= 1.0:
        raise ValueError(
            f"Invalid decay value {decay} provided. Please provide a value in [0,1] range."
        )

    @minigrad.no_grad()
    def ema_update(ema_param: Tensor, current_param: Tensor, num_averaged: Any) -> Tensor:
        return decay * ema_param + (1 - decay) * current_param

    return ema_update


def get_swa_avg_fn() -> One:
    """f(average, value, count): the mean of count + 1 values."""

    @minigrad.no_grad()
    def swa_update(averaged_param: Tensor, current_param: Tensor, num_averaged: Any) -> Tensor:
        return averaged_param + (current_param - averaged_param) / (num_averaged + 1)

    return swa_update


def _in_place(average: One) -> Many:
    @minigrad.no_grad()
    def update(averages: list[Tensor], values: list[Tensor], num_averaged: Any) -> None:
        for old, new in zip(averages, values, strict=True):
            old.copy_(average(old, new, num_averaged))

    return update


def get_ema_multi_avg_fn(decay: float = 0.999) -> Many:
    """`get_ema_avg_fn` for lists of tensors, in place."""
    return _in_place(get_ema_avg_fn(decay))


def get_swa_multi_avg_fn() -> Many:
    """`get_swa_avg_fn` for lists of tensors, in place."""
    return _in_place(get_swa_avg_fn())


class AveragedModel(Module):
    """A copy of a model whose parameters are averages of those at each `update_parameters`.

    Args:
        model: its copy is the attribute `module`; calling the averaged model runs that.
        device: where the copy is kept (default: where the model is).
        avg_fn: f(average, value, count) to the next average (default: the mean of all values).
        multi_avg_fn: the same in place, for lists of tensors.
        use_buffers: average the buffers too, else copy them (see `update_bn`).

    Example::

        ema = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.99))
        for x, y in loader:
            ...
            optimizer.step()
            ema.update_parameters(model)
        ema(x)
    """

    n_averaged: Tensor

    def __init__(
        self,
        model: Module,
        device: Any = None,
        avg_fn: One | None = None,
        multi_avg_fn: Many | None = None,
        use_buffers: bool = False,
    ) -> None:
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise AssertionError("Only one of avg_fn and multi_avg_fn should be provided")
        self.module = deepcopy(model)
        if device is not None:
            self.module = self.module.to(device)
        self.register_buffer("n_averaged", minigrad.tensor(0, device=device))
        self.avg_fn, self.multi_avg_fn, self.use_buffers = avg_fn, multi_avg_fn, use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The averaged model's output."""
        return self.module(*args, **kwargs)

    def update_parameters(self, model: Module) -> None:
        """Take the parameters of `model` into the averages; the first ones are copied."""
        averages, values = self._pairs(model)
        if self.n_averaged == 0:
            for old, new in zip(averages, values, strict=True):
                old.copy_(new)
        elif averages:
            update = self.multi_avg_fn or _in_place(self.avg_fn or get_swa_avg_fn())
            count = self.n_averaged.to(averages[0].device)
            for group in _by_dtype(averages, values):
                update(*group, count)
        if not self.use_buffers:
            for old, new in zip(self.module.buffers(), model.buffers(), strict=True):
                old.detach().copy_(new.detach())
        self.n_averaged += 1

    def _pairs(self, model: Module) -> tuple[list[Tensor], list[Tensor]]:
        """The averages and the new values, detached, on the device of the averages."""
        averages, values = (
            [
                t.detach()
                for t in itertools.chain(m.parameters(), m.buffers() if self.use_buffers else ())
            ]
            for m in (self.module, model)
        )
        values = [new.to(old.device) for old, new in zip(averages, values, strict=True)]
        return averages, values


def _by_dtype(averages: list[Tensor], values: list[Tensor]) -> list[tuple[list, list]]:
    groups: dict[Any, tuple[list, list]] = {}
    for old, new in zip(averages, values, strict=True):
        group = groups.setdefault(old.dtype, ([], []))
        group[0].append(old)
        group[1].append(new)
    return list(groups.values())


@minigrad.no_grad()
def update_bn(loader: Iterable[Any], model: Module, device: Any = None) -> None:
    """Set the running statistics of every batch norm to the mean over the batches of `loader`.

    loader: gives inputs, or tuples and lists that begin with them. device: moves the inputs.
    """
    norms = [module for module in model.modules() if isinstance(module, _BatchNorm)]
    if not norms:
        return
    momenta, training = [norm.momentum for norm in norms], model.training
    model.train()
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # the mean of all batches
    for batch in loader:
        x = batch[0] if isinstance(batch, list | tuple) else batch
        model(x if device is None else x.to(device))
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
    model.train(training)


class SWALR(LRScheduler):
    """From the present rate to the constant `swa_lr` within `anneal_epochs`.

    swa_lr: one for all groups, or a list. anneal_strategy: "cos" or "linear".
    """

    def __init__(
        self,
        optimizer: Optimizer,
        swa_lr: float | list[float],
        anneal_epochs: int = 10,
        anneal_strategy: str = "cos",
        last_epoch: int = -1,
    ) -> None:
        rates = per_group("swa_lr", swa_lr, optimizer)
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["swa_lr"] = rate
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(
                f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}"
            )
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise ValueError(f"anneal_epochs must be equal or greater than 0, got {anneal_epochs}")
        self._anneal_strategy, self.anneal_epochs = anneal_strategy, anneal_epochs
        super().__init__(optimizer, last_epoch)

    def _share(self, step: int) -> float:
        """How far the rate is on its way to swa_lr, 0 to 1."""
        t = max(0, min(1, step / max(1, self.anneal_epochs)))
        return t if self._anneal_strategy == "linear" else (1 - math.cos(math.pi * t)) / 2

    def get_lr(self) -> list[float]:
        """The next rates, computed from the present ones; called by `step`."""
        step = self._step_count - 1
        step = max(1, step) if self.anneal_epochs == 0 else step
        before, now = self._share(step - 1), self._share(step)
        rates = []
        for group in self.optimizer.param_groups:
            lr, end = group["lr"], group["swa_lr"]
            start = end if before == 1 else (lr - before * end) / (1 - before)
            rates.append(end * now + start * (1 - now))
        return rates
