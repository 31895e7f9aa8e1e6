"""SparseAdam: Adam for sparse gradients, which only moves the rows that have one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import minigrad
from minigrad.optim.adam import check_betas
from minigrad.optim.optimizer import Optimizer, one_number
from minigrad.tensor import Tensor


class SparseAdam(Optimizer):
    """Adam whose moments change where the gradient has elements, as for `Embedding(sparse=True)`.

    Args:
        params: parameters or groups; each gets sparse gradients.
        lr: learning rate.
        betas: decay of the first and second moment.
        eps: added to the root of the second moment.
        maximize: ascend instead of descend.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        maximize: bool = False,
    ) -> None:
        if not 0.0 < one_number("lr", lr):
            raise ValueError(f"Invalid learning rate: {lr}")
        if not 0.0 < eps:
            raise ValueError(f"Invalid epsilon value: {eps}")
        check_betas(betas)
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, maximize=maximize))
        for group in self.param_groups:
            for i, param in enumerate(group["params"]):
                if param.is_sparse:
                    raise ValueError(
                        f"Sparse params at indices [{i}]: SparseAdam requires dense parameter "
                        "tensors"
                    )
                if param.is_complex():
                    raise ValueError(
                        f"Complex params at indices [{i}]: SparseAdam does not support complex "
                        "parameters"
                    )

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update the rows that have a gradient; closure: recomputes loss and gradients."""
        loss = None
        if closure is not None:
            with minigrad.enable_grad():
                loss = closure()
        with minigrad.no_grad():
            for group in self.param_groups:
                for param in group["params"]:
                    if param.grad is not None:
                        self._update_one(group, param)
        return loss

    def _first_state(self, group: dict[str, Any], param: Tensor) -> dict[str, Any]:
        zeros = minigrad.zeros_like(param.detach())
        return {"step": 0, "exp_avg": zeros, "exp_avg_sq": zeros.clone()}

    def _update_one(self, group: dict[str, Any], param: Tensor) -> None:
        grad: Any = param.grad
        if not grad.is_sparse:
            raise RuntimeError(
                "SparseAdam does not support dense gradients, please consider Adam instead"
            )
        state = self.state[param]
        if not state:
            state.update(self._first_state(group, param))
        state["step"] += 1
        grad = grad.coalesce()
        places, values = tuple(grad.indices().unbind(0)), grad.values()
        values = -values if group["maximize"] else values
        (beta1, beta2), step = group["betas"], state["step"]
        mean = _moved(state["exp_avg"], places, values, 1 - beta1)
        square = _moved(state["exp_avg_sq"], places, values * values, 1 - beta2)
        size = float(group["lr"]) * (1 - beta2**step) ** 0.5 / (1 - beta1**step)
        param[places] = param[places] - size * mean / (square.sqrt() + group["eps"])


def _moved(moment: Tensor, places: tuple, values: Tensor, weight: float) -> Tensor:
    """Move a moment towards values at some places; its values there."""
    old = moment[places]
    new = old + (values - old) * weight
    moment[places] = new
    return new
