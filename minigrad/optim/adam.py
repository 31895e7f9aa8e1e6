"""Adam and AdamW."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from kernels import dispatch
from minigrad.optim.arena import Run
from minigrad.optim.optimizer import Optimizer, check_flags, check_not_negative, number


def check_betas(betas: Sequence[float]) -> None:
    """Raise ValueError for a beta outside [0, 1)."""
    for i, beta in enumerate(betas):
        if not 0.0 <= float(beta) < 1.0:
            raise ValueError(f"Invalid beta parameter at index {i}: {beta}")


class Adam(Optimizer):
    """Steps scaled by running moments of the gradient (Kingma & Ba 2015).

    Args:
        params: parameters or groups.
        lr: learning rate.
        betas: decay of the first and second moment.
        eps: added to the root of the second moment.
        weight_decay: factor of p added to the gradient, or subtracted from p if decoupled.
        amsgrad: divide by the largest second moment so far (Reddi et al. 2018).
        maximize: ascend instead of descend.
        decoupled_weight_decay: as in AdamW.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        decoupled_weight_decay: bool = False,
    ) -> None:
        check_not_negative(lr=lr, eps=eps)
        check_betas(betas)
        check_not_negative(weight_decay=weight_decay)
        check_flags(type(self).__name__, foreach, fused, differentiable, capturable)
        super().__init__(
            params,
            dict(
                lr=lr,
                betas=betas,
                eps=eps,
                weight_decay=weight_decay,
                amsgrad=amsgrad,
                maximize=maximize,
                foreach=foreach,
                capturable=capturable,
                differentiable=differentiable,
                fused=fused,
                decoupled_weight_decay=decoupled_weight_decay,
            ),
        )

    def _state_names(self, group: dict[str, Any]) -> Sequence[str]:
        if group["amsgrad"]:
            return ("exp_avg", "exp_avg_sq", "max_exp_avg_sq")
        return ("exp_avg", "exp_avg_sq")

    def _update(self, group: dict[str, Any], run: Run) -> None:
        beta1, beta2 = group["betas"]
        dispatch.active.adam_(
            run.param,
            run.grad,
            run.state("exp_avg"),
            run.state("exp_avg_sq"),
            run.state("max_exp_avg_sq") if group["amsgrad"] else None,
            lr=number(group["lr"]),
            beta1=number(beta1),
            beta2=number(beta2),
            eps=group["eps"],
            weight_decay=group["weight_decay"],
            step=run.step,
            decoupled=group["decoupled_weight_decay"],
            maximize=group["maximize"],
        )


class AdamW(Adam):
    """Adam whose weight decay acts on p itself (Loshchilov & Hutter 2019); see `Adam`."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        super().__init__(
            *(params, lr, betas, eps, weight_decay, amsgrad),
            foreach=foreach,
            maximize=maximize,
            capturable=capturable,
            differentiable=differentiable,
            fused=fused,
            decoupled_weight_decay=True,
        )

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            # A checkpoint of AdamW without the flag means decoupled decay.
            group["decoupled_weight_decay"] = True
