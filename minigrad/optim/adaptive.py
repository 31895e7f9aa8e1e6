"""RMSprop, Adagrad, Adadelta and Adamax.

They have no kernel of their own: each update consists of a few Tensor operations on the flat arrays
of a run, so the number of launches does not grow with the number of parameters.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from minigrad.optim.adam import check_betas
from minigrad.optim.arena import Run
from minigrad.optim.optimizer import Optimizer, check_flags, check_not_negative, number
from minigrad.tensor import Tensor, wrap


def _gradient(group: dict[str, Any], run: Run) -> tuple[Tensor, Tensor]:
    """The flat parameter and its gradient with `maximize` and `weight_decay` applied."""
    param, grad = wrap(run.param), wrap(run.grad)
    if group["maximize"]:
        grad = -grad
    if group["weight_decay"]:
        grad = grad.add(param, alpha=group["weight_decay"])
    return param, grad


class RMSprop(Optimizer):
    """Gradient divided by a running root mean square (Hinton 2012; Graves 2013 for `centered`).

    Args:
        alpha: decay of the mean square.
        eps: added to the root.
        momentum: with 0 there is no buffer.
        centered: subtract the squared running mean first.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum: float = 0,
        centered: bool = False,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_not_negative(lr=lr, eps=eps, momentum=momentum, weight_decay=weight_decay)
        check_not_negative(alpha=alpha)
        check_flags("RMSprop", foreach, False, differentiable, capturable)
        super().__init__(
            params,
            dict(
                lr=lr,
                momentum=momentum,
                alpha=alpha,
                eps=eps,
                centered=centered,
                weight_decay=weight_decay,
                capturable=capturable,
                foreach=foreach,
                maximize=maximize,
                differentiable=differentiable,
            ),
        )

    def _state_names(self, group: dict[str, Any]) -> Sequence[str]:
        names = ["square_avg"]
        if group["momentum"]:
            names.append("momentum_buffer")
        if group["centered"]:
            names.append("grad_avg")
        return names

    def _update(self, group: dict[str, Any], run: Run) -> None:
        param, grad = _gradient(group, run)
        alpha = group["alpha"]
        square = wrap(run.state("square_avg"))
        square.mul_(alpha).addcmul_(grad, grad, value=1 - alpha)
        if group["centered"]:
            mean = wrap(run.state("grad_avg"))
            mean.mul_(alpha).add_(grad, alpha=1 - alpha)
            root = (square - mean * mean).sqrt()
        else:
            root = square.sqrt()
        root.add_(group["eps"])
        lr = number(group["lr"])
        if group["momentum"]:
            buffer = wrap(run.state("momentum_buffer"))
            buffer.mul_(group["momentum"]).addcdiv_(grad, root)
            param.add_(buffer, alpha=-lr)
        else:
            param.addcdiv_(grad, root, value=-lr)


class Adagrad(Optimizer):
    """Gradient divided by the root of the sum of its past squares (Duchi et al. 2011).

    Args:
        lr_decay: the rate is ``lr / (1 + (step - 1) * lr_decay)``.
        initial_accumulator_value: initial value of the sum.
    """

    _takes_sparse = True

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-2,
        lr_decay: float = 0,
        weight_decay: float = 0,
        initial_accumulator_value: float = 0,
        eps: float = 1e-10,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        check_not_negative(lr=lr, lr_decay=lr_decay, weight_decay=weight_decay)
        check_not_negative(initial_accumulator_value=initial_accumulator_value, eps=eps)
        check_flags("Adagrad", foreach, fused, differentiable, False)
        super().__init__(
            params,
            dict(
                lr=lr,
                lr_decay=lr_decay,
                eps=eps,
                weight_decay=weight_decay,
                initial_accumulator_value=initial_accumulator_value,
                foreach=foreach,
                maximize=maximize,
                differentiable=differentiable,
                fused=fused,
            ),
        )
        for group in self.param_groups:  # as in torch: a state dict has them before any step
            for param in group["params"]:
                self.state[param] = self._first_state(group, param)

    def _state_names(self, group: dict[str, Any]) -> Sequence[str]:
        return ("sum",)

    def _initial(self, group: dict[str, Any]) -> float:
        return group["initial_accumulator_value"]

    def _update(self, group: dict[str, Any], run: Run) -> None:
        param, grad = _gradient(group, run)
        rate = number(group["lr"]) / (1 + (run.step - 1) * group["lr_decay"])
        total = wrap(run.state("sum"))
        total.addcmul_(grad, grad, value=1)
        param.addcdiv_(grad, total.sqrt().add_(group["eps"]), value=-rate)


class Adadelta(Optimizer):
    """Step sizes from a running mean of earlier steps (Zeiler 2012).

    Args:
        rho: decay of both running means.
        eps: added inside both roots.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        capturable: bool = False,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_not_negative(lr=lr)
        if not 0.0 <= rho <= 1.0:
            raise ValueError(f"Invalid rho value: {rho}")
        check_not_negative(eps=eps, weight_decay=weight_decay)
        check_flags("Adadelta", foreach, False, differentiable, capturable)
        super().__init__(
            params,
            dict(
                lr=lr,
                rho=rho,
                eps=eps,
                weight_decay=weight_decay,
                maximize=maximize,
                capturable=capturable,
                foreach=foreach,
                differentiable=differentiable,
            ),
        )

    def _state_names(self, group: dict[str, Any]) -> Sequence[str]:
        return ("square_avg", "acc_delta")

    def _update(self, group: dict[str, Any], run: Run) -> None:
        param, grad = _gradient(group, run)
        rho, eps = group["rho"], group["eps"]
        square, moved = wrap(run.state("square_avg")), wrap(run.state("acc_delta"))
        square.mul_(rho).addcmul_(grad, grad, value=1 - rho)
        delta = (moved + eps).sqrt() / (square + eps).sqrt() * grad
        moved.mul_(rho).addcmul_(delta, delta, value=1 - rho)
        param.add_(delta, alpha=-number(group["lr"]))


class Adamax(Optimizer):
    """Adam with the infinity norm as second moment (Kingma & Ba 2015, section 7.1)."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        check_not_negative(lr=lr, eps=eps)
        check_betas(betas)
        check_not_negative(weight_decay=weight_decay)
        check_flags("Adamax", foreach, False, differentiable, capturable)
        super().__init__(
            params,
            dict(
                lr=lr,
                betas=betas,
                eps=eps,
                weight_decay=weight_decay,
                foreach=foreach,
                maximize=maximize,
                differentiable=differentiable,
                capturable=capturable,
            ),
        )

    def _state_names(self, group: dict[str, Any]) -> Sequence[str]:
        return ("exp_avg", "exp_inf")

    def _update(self, group: dict[str, Any], run: Run) -> None:
        param, grad = _gradient(group, run)
        beta1, beta2 = group["betas"]
        mean, largest = wrap(run.state("exp_avg")), wrap(run.state("exp_inf"))
        mean.mul_(beta1).add_(grad, alpha=1 - beta1)
        largest.copy_((largest * beta2).maximum(grad.abs() + group["eps"]))
        param.addcdiv_(mean, largest, value=-number(group["lr"]) / (1 - beta1**run.step))
