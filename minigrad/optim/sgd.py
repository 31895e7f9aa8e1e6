"""Stochastic gradient descent with momentum."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from kernels import dispatch
from minigrad.optim.arena import Run
from minigrad.optim.optimizer import Optimizer, check_flags, check_not_negative, number


class SGD(Optimizer):
    """``buf = momentum * buf + (1 - dampening) * g``, ``p -= lr * buf`` (Sutskever et al. 2013).

    Args:
        params: parameters or groups.
        lr: learning rate.
        momentum: with 0 there is no buffer.
        dampening: fraction of the gradient that is not added to the buffer.
        weight_decay: factor of p added to the gradient.
        nesterov: step along ``g + momentum * buf``.
        maximize: ascend instead of descend.
    """

    _counts_steps = False
    _takes_sparse = True

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        check_not_negative(lr=lr, momentum=momentum, weight_decay=weight_decay)
        check_flags("SGD", foreach, fused, differentiable, False)
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        super().__init__(
            params,
            dict(
                lr=lr,
                momentum=momentum,
                dampening=dampening,
                weight_decay=weight_decay,
                nesterov=nesterov,
                maximize=maximize,
                foreach=foreach,
                differentiable=differentiable,
                fused=fused,
            ),
        )

    def _state_names(self, group: dict[str, Any]) -> Sequence[str]:
        return ("momentum_buffer",) if group["momentum"] else ()

    def _update(self, group: dict[str, Any], run: Run) -> None:
        dispatch.active.sgd_(
            run.param,
            run.grad,
            run.state("momentum_buffer") if group["momentum"] else None,
            lr=number(group["lr"]),
            momentum=group["momentum"],
            dampening=group["dampening"],
            weight_decay=group["weight_decay"],
            nesterov=group["nesterov"],
            maximize=group["maximize"],
            first=run.fresh,
        )
