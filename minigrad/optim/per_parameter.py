"""NAdam, RAdam, Rprop and ASGD: each parameter is updated by tensor operations of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import minigrad
from minigrad.autograd.mode import sparse_gradients
from minigrad.optim.adam import check_betas
from minigrad.optim.arena import start_value
from minigrad.optim.optimizer import NOTHING, Optimizer, check_flags, check_not_negative, real_parts
from minigrad.tensor import Tensor

NUMBERS = frozenset(("step", "mu_product", "eta", "mu"))  # state that Python computes with


class PerParameter(Optimizer):
    """Subclasses define the state of a parameter (`_start`) and one step of it (`_one`)."""

    def __init__(self, params: Iterable[Any], **options: Any) -> None:
        flags = (options.get(name) for name in ("foreach", "differentiable", "capturable"))
        foreach, differentiable, capturable = flags
        check_flags(type(self).__name__, foreach, False, differentiable, capturable)
        check_not_negative(lr=options["lr"], weight_decay=options.get("weight_decay", 0))
        super().__init__(params, options)

    def _start(self, group: dict[str, Any], param: Tensor) -> dict[str, Tensor]:
        raise NotImplementedError

    def _first_state(self, group: dict[str, Any], param: Tensor) -> dict[str, Tensor]:
        count = {"step": minigrad.tensor(0.0)} if self._counts_steps else {}
        return count | self._start(group, param)

    def _one(self, group: dict[str, Any], param: Tensor, grad: Tensor, state: Any) -> None:
        raise NotImplementedError

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every parameter that has a gradient; closure: recomputes loss and gradients."""
        loss = None
        if closure is not None:
            with minigrad.enable_grad():
                loss = closure()
        with minigrad.no_grad(), self._dense_gradients() if sparse_gradients else NOTHING:
            for group in self.param_groups:
                for param in group["params"]:
                    if param.grad is not None:
                        self._update_one(group, param)
        return loss

    def _update_one(self, group: dict[str, Any], param: Tensor) -> None:
        state = self.state[param]
        if not state:
            state.update(self._first_state(group, param))
        if self._counts_steps:
            if isinstance(state["step"], int | float):  # from an old checkpoint
                state["step"] = minigrad.tensor(float(state["step"]))
            state["step"] += 1
        grad: Any = param.grad
        if param.is_complex():  # real and imaginary parts, each by itself
            param, grad = real_parts(param), real_parts(grad)
            state = {
                name: value if name in NUMBERS else real_parts(value)
                for name, value in state.items()
            }
        grad = -grad if group.get("maximize") else grad
        self._one(group, param, self._decayed(group, param, grad), state)

    def _decayed(self, group: dict[str, Any], param: Tensor, grad: Tensor) -> Tensor:
        """The gradient with the weight decay, unless that has been applied to the parameter."""
        decay = group.get("weight_decay", 0)
        if not decay:
            return grad
        if not group.get("decoupled_weight_decay"):
            return grad.add(param, alpha=decay)
        param.mul_(1 - group["lr"] * decay)
        return grad


def _moments(group: dict[str, Any], grad: Tensor, state: dict[str, Tensor]) -> tuple:
    """Both running moments of Adam, and their bias corrections."""
    (beta1, beta2), step = group["betas"], state["step"].item()
    mean, square = state["exp_avg"], state["exp_avg_sq"]
    mean.mul_(beta1).add_(grad, alpha=1 - beta1)
    square.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
    return mean, square, 1 - beta1**step, 1 - beta2**step


def _two_moments(param: Tensor) -> dict[str, Tensor]:
    return {name: minigrad.zeros_like(param.detach()) for name in ("exp_avg", "exp_avg_sq")}


class NAdam(PerParameter):
    """Adam with Nesterov momentum (Dozat 2016); `momentum_decay` is that of its schedule."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_betas(betas)
        check_not_negative(eps=eps, momentum_decay=momentum_decay)
        super().__init__(
            params,
            lr=lr,
            betas=betas,
            eps=eps,
            weight_decay=weight_decay,
            momentum_decay=momentum_decay,
            decoupled_weight_decay=decoupled_weight_decay,
            maximize=maximize,
            foreach=foreach,
            capturable=capturable,
            differentiable=differentiable,
        )

    def _start(self, group: dict[str, Any], param: Tensor) -> dict[str, Tensor]:
        return {"mu_product": minigrad.ones(()), **_two_moments(param)}

    def _one(self, group: dict[str, Any], param: Tensor, grad: Tensor, state: Any) -> None:
        mean, square, _, correction = _moments(group, grad, state)
        step, beta1 = state["step"].item(), group["betas"][0]
        now, after = (
            beta1 * (1 - 0.5 * 0.96 ** (t * group["momentum_decay"])) for t in (step, step + 1)
        )
        state["mu_product"] *= now
        product = state["mu_product"].item()
        root = (square / correction).sqrt().add_(group["eps"])
        param.addcdiv_(grad, root, value=-group["lr"] * (1 - now) / (1 - product))
        param.addcdiv_(mean, root, value=-group["lr"] * after / (1 - product * after))


class RAdam(PerParameter):
    """Adam that adapts only once the variance of its step sizes is known (Liu et al. 2020)."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_betas(betas)
        check_not_negative(eps=eps)
        super().__init__(
            params,
            lr=lr,
            betas=betas,
            eps=eps,
            weight_decay=weight_decay,
            maximize=maximize,
            foreach=foreach,
            capturable=capturable,
            decoupled_weight_decay=decoupled_weight_decay,
            differentiable=differentiable,
        )

    def _start(self, group: dict[str, Any], param: Tensor) -> dict[str, Tensor]:
        return _two_moments(param)

    def _one(self, group: dict[str, Any], param: Tensor, grad: Tensor, state: Any) -> None:
        mean, square, correction1, correction2 = _moments(group, grad, state)
        step, beta2 = state["step"].item(), group["betas"][1]
        most = 2 / (1 - beta2) - 1
        length = most - 2 * step * beta2**step / correction2  # of the moving average
        rate = -group["lr"] / correction1
        if length <= 5:
            param.add_(mean, alpha=rate)
            return
        rectified = (length - 4) * (length - 2) * most / ((most - 4) * (most - 2) * length)
        root = square.sqrt().add_(group["eps"])
        param.addcdiv_(mean, root, value=rate * (rectified * correction2) ** 0.5)


class Rprop(PerParameter):
    """A step size per element that grows while the gradient keeps its sign (Riedmiller & Braun
    1993): times etas[1], else times etas[0], within `step_sizes`."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-2,
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50),
        *,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        if not 0.0 < etas[0] < 1.0 < etas[1]:
            raise ValueError(f"Invalid eta values: {etas[0]}, {etas[1]}")
        super().__init__(
            params,
            lr=lr,
            etas=etas,
            step_sizes=step_sizes,
            foreach=foreach,
            maximize=maximize,
            differentiable=differentiable,
            capturable=capturable,
        )

    def _start(self, group: dict[str, Any], param: Tensor) -> dict[str, Tensor]:
        value = param.detach()
        rate = start_value(float(group["lr"]), param.is_complex())
        return {"prev": minigrad.zeros_like(value), "step_size": minigrad.full_like(value, rate)}

    def _one(self, group: dict[str, Any], param: Tensor, grad: Tensor, state: Any) -> None:
        (shrink, grow), (least, most) = group["etas"], group["step_sizes"]
        agreement = grad * state["prev"]
        same, other = ((agreement > 0).to(grad.dtype), (agreement < 0).to(grad.dtype))
        factor = same * grow + other * shrink + (1 - same - other)
        state["step_size"].mul_(factor).clamp_(least, most)
        grad = grad.masked_fill(agreement < 0, 0.0)
        param.sub_(grad.sign() * state["step_size"])
        state["prev"].copy_(grad)


class ASGD(PerParameter):
    """Averaged SGD (Polyak & Juditsky 1992): state["ax"] is the average since step `t0`."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-2,
        lambd: float = 1e-4,
        alpha: float = 0.75,
        t0: float = 1e6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        super().__init__(
            params,
            lr=lr,
            lambd=lambd,
            alpha=alpha,
            t0=t0,
            weight_decay=weight_decay,
            foreach=foreach,
            maximize=maximize,
            differentiable=differentiable,
            capturable=capturable,
        )

    def _start(self, group: dict[str, Any], param: Tensor) -> dict[str, Tensor]:
        return {
            "eta": minigrad.tensor(float(group["lr"])),
            "mu": minigrad.ones(()),
            "ax": minigrad.zeros_like(param.detach()),
        }

    def _one(self, group: dict[str, Any], param: Tensor, grad: Tensor, state: Any) -> None:
        eta, mu, step = state["eta"].item(), state["mu"].item(), state["step"].item()
        param.mul_(1 - group["lambd"] * eta).add_(grad, alpha=-eta)
        average = state["ax"]
        average.copy_(param) if mu == 1 else average.add_(param - average, alpha=mu)
        lr = group["lr"]
        state["eta"].fill_(lr / (1 + group["lambd"] * lr * step) ** group["alpha"])
        state["mu"].fill_(1 / max(1, step - group["t0"]))
