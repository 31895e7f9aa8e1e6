"""Adafactor and Muon, which treat a parameter as a matrix."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import minigrad
from minigrad.optim.optimizer import number, one_number
from minigrad.optim.per_parameter import PerParameter
from minigrad.tensor import Tensor


def _root_mean_square(x: Tensor) -> Tensor:
    """A tensor, so that no GPU is waited for, and a compiled step has it as launches."""
    return x.norm() / math.sqrt(x.numel())


class Adafactor(PerParameter):
    """Gradients divided by the root of a mean square that is kept as a row and a column (Shazeer &
    Stern 2018): m + n numbers for an m x n matrix. Vectors keep one number per element.

    Args:
        lr: the largest relative step size, which is otherwise 1 / sqrt(step).
        beta2_decay: the mean of squares takes the share step ** beta2_decay of each new one.
        eps: the smallest root of the mean square (None: that of the dtype), and the smallest root
            mean square of a parameter that its step size is relative to.
        d: an update with a larger root mean square than this is scaled down to it.
        weight_decay: decoupled, relative to lr.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-2,
        beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0,
        weight_decay: float = 0.0,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
    ) -> None:
        _check_not_below("Learning rate", lr)
        if not beta2_decay <= 0.0:
            raise ValueError(f"beta2_decay should be <= 0 but is: {beta2_decay}")
        if eps[0] is not None:
            _check_not_below("epsilon1", eps[0])
        _check_not_below("epsilon2", eps[1])
        _check_not_below("Clipping threshold d", d, 1)
        _check_not_below("weight_decay", weight_decay)
        super().__init__(
            params,
            lr=lr,
            beta2_decay=beta2_decay,
            eps=eps,
            d=d,
            weight_decay=weight_decay,
            foreach=foreach,
            maximize=maximize,
        )

    def _start(self, group: dict[str, Any], param: Tensor) -> dict[str, Tensor]:
        _check_real("Adafactor", param)
        if param.ndim < 2:
            return {"variance": minigrad.zeros_like(param.detach())}
        *outer, rows, columns = param.shape
        return {
            "row_var": param.new_zeros((*outer, rows, 1)),
            "col_var": param.new_zeros((*outer, 1, columns)),
        }

    def _decayed(self, group: dict[str, Any], param: Tensor, grad: Tensor) -> Tensor:
        return grad  # _one decays the parameter, after it has taken its root mean square

    def _one(self, group: dict[str, Any], param: Tensor, grad: Tensor, state: Any) -> None:
        step, (eps1, eps2), lr = state["step"].item(), group["eps"], number(group["lr"])
        eps1 = minigrad.finfo(param.dtype).eps if eps1 is None else eps1
        rate = _root_mean_square(param).clamp(min=eps2) * min(lr, step**-0.5)
        param.mul_(1 - lr * group["weight_decay"])
        share, squares = step ** group["beta2_decay"], grad * grad
        if grad.ndim < 2:
            variance = state["variance"].lerp_(squares, share)
        else:
            row, column = state["row_var"], state["col_var"]
            row.lerp_(squares.mean(-1, keepdim=True), share)
            column.lerp_(squares.mean(-2, keepdim=True), share)
            variance = row @ column / row.mean(-2, keepdim=True).clamp(min=eps1)
        update = grad * variance.clamp(min=eps1 * eps1).rsqrt()
        rate = rate / (_root_mean_square(update) / group["d"]).clamp(min=1.0)
        param.addcmul_(update, rate, value=-1.0)


class Muon(PerParameter):
    """Momentum whose singular values are replaced by about 1 (Jordan et al. 2024), for matrices.

    The replacement is `ns_steps` Newton-Schulz iterations in bfloat16, in which X becomes
    a X + b A X + c A A X with A = X X^T. Train biases, embeddings and all that is no matrix with
    another optimiser.

    Args:
        ns_coefficients: (a, b, c).
        eps: the smallest norm that the momentum is divided by before the iterations.
        adjust_lr_fn: "original" (the same as None) multiplies the rate for an m x n matrix by
            sqrt(max(1, m / n)), "match_rms_adamw" by 0.2 sqrt(max(m, n)), which allows AdamW's
            rates.
    """

    _counts_steps = False

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.775, 2.0315),
        eps: float = 1e-7,
        ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
    ) -> None:
        _check_not_below("Learning rate", lr)
        _check_not_below("momentum", momentum)
        _check_not_below("weight decay", weight_decay)
        if adjust_lr_fn not in (None, "original", "match_rms_adamw"):
            raise ValueError(f"Adjust learning rate function {adjust_lr_fn} is not supported")
        super().__init__(
            params,
            lr=lr,
            weight_decay=weight_decay,
            momentum=momentum,
            nesterov=nesterov,
            ns_coefficients=ns_coefficients,
            eps=eps,
            ns_steps=ns_steps,
            adjust_lr_fn=adjust_lr_fn,
        )

    def _check_params(self, params: list[Any]) -> None:
        super()._check_params(params)
        for param in params:
            if param.ndim != 2:
                raise ValueError(
                    "Muon only supports 2D parameters whereas we found a parameter with size: "
                    f"{param.size()}"
                )

    def _start(self, group: dict[str, Any], param: Tensor) -> dict[str, Tensor]:
        _check_real("Muon", param)
        return {"momentum_buffer": minigrad.zeros_like(param.detach())}

    def _decayed(self, group: dict[str, Any], param: Tensor, grad: Tensor) -> Tensor:
        param.mul_(1 - number(group["lr"]) * group["weight_decay"])
        return grad

    def _one(self, group: dict[str, Any], param: Tensor, grad: Tensor, state: Any) -> None:
        buffer = state["momentum_buffer"].lerp_(grad, 1 - group["momentum"])
        update = grad.lerp(buffer, group["momentum"]) if group["nesterov"] else buffer
        update = _orthogonalised(update, group["ns_coefficients"], group["ns_steps"], group["eps"])
        m, n = param.shape
        factor = math.sqrt(max(1, m / n))
        if group["adjust_lr_fn"] == "match_rms_adamw":
            factor = 0.2 * math.sqrt(max(m, n))
        param.add_(update.to(param.dtype), alpha=-number(group["lr"]) * factor)


def _orthogonalised(
    grad: Tensor, coefficients: tuple[float, float, float], steps: int, eps: float
) -> Tensor:
    """The matrix with singular values near 1 and the same singular vectors, in bfloat16."""
    if steps >= 100:
        raise ValueError("Number of steps must be less than 100 for computational efficiency")
    if len(coefficients) != 3:
        raise ValueError("Coefficients must be a tuple of exactly 3 values")
    a, b, c = coefficients
    tall = grad.shape[0] > grad.shape[1]
    x = grad.bfloat16().T if tall else grad.bfloat16()
    x = x / x.norm().clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.T
        x = minigrad.addmm(x, minigrad.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if tall else x


def _check_real(name: str, param: Tensor) -> None:
    if param.is_complex():
        raise RuntimeError(f"{name} does not support complex parameters")


def _check_not_below(name: str, value: Any, least: int = 0) -> None:
    if not least <= one_number("lr", value):
        raise ValueError(f"{name} should be >= {least} but is: {value}")
