"""Limited-memory BFGS (Liu & Nocedal 1989)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import minigrad
from minigrad.optim.optimizer import Optimizer, check_not_negative
from minigrad.tensor import Tensor

_SUFFICIENT, _CURVATURE = 1e-4, 0.9  # constants of the strong Wolfe conditions
_LINE_STEPS = 25


class LBFGS(Optimizer):
    """Newton steps with the curvature of the last `history_size` steps.

    `step(closure)` takes up to `max_iter` steps and evaluates the closure up to `max_eval` times
    (default: 1.25 max_iter). It ends where no element of the gradient exceeds `tolerance_grad`, or
    the loss or the parameters change by less than `tolerance_change`. line_search_fn: None for
    steps of `lr`, or "strong_wolfe".
    """

    _not_recorded = "which decides by the loss how often it calls its closure"

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: str | None = None,
    ) -> None:
        check_not_negative(lr=lr)
        if line_search_fn not in (None, "strong_wolfe"):
            raise RuntimeError("only 'strong_wolfe' is supported")
        super().__init__(
            params,
            dict(
                lr=lr,
                max_iter=max_iter,
                max_eval=max_iter * 5 // 4 if max_eval is None else max_eval,
                tolerance_grad=tolerance_grad,
                tolerance_change=tolerance_change,
                history_size=history_size,
                line_search_fn=line_search_fn,
            ),
        )
        if len(self.param_groups) != 1:
            raise ValueError("LBFGS doesn't support per-parameter options (parameter groups)")
        self._params = self.param_groups[0]["params"]

    def _gradient(self) -> Tensor:
        """The gradients of all parameters as one vector."""
        parts = [p * 0 if p.grad is None else p.grad for p in self._params]
        return minigrad.cat([part.detach().reshape(-1) for part in parts])

    def _move(self, direction: Tensor, length: float) -> None:
        start = 0
        for param in self._params:
            part = direction[start : start + param.numel()]
            param.add_(part.reshape(param.shape), alpha=length)
            start += param.numel()

    def step(self, closure: Callable[[], Any]) -> Any:
        """Minimise; the closure clears the gradients, computes the loss and its gradients, and
        returns the loss. Returns the first loss."""
        group, state = self.param_groups[0], self.state[self._params[0]]
        state.setdefault("func_evals", 0)
        state.setdefault("n_iter", 0)
        first = self._evaluate(closure)
        loss, grad = float(first), self._gradient()
        evaluations, iterations = 1, 0
        with minigrad.no_grad():
            while iterations < group["max_iter"] and not self._is_flat(grad):
                iterations += 1
                state["n_iter"] += 1
                direction = self._direction(grad)
                length = group["lr"]
                if state["n_iter"] == 1:
                    length *= min(1.0, 1.0 / grad.abs().sum().item())
                slope = grad.dot(direction).item()
                state["prev_flat_grad"] = grad.clone()
                if slope > -group["tolerance_change"]:
                    break
                before = loss
                if group["line_search_fn"] is not None:
                    point = (loss, grad, slope)
                    loss, grad, length, count = self._search(closure, direction, length, point)
                else:
                    self._move(direction, length)
                    count = int(iterations != group["max_iter"])
                    if count:
                        loss, grad = float(self._evaluate(closure)), self._gradient()
                state["d"], state["t"] = direction, length
                evaluations += count
                state["func_evals"] += count
                moved = (direction.abs().max() * length).item()
                tolerance = group["tolerance_change"]
                if evaluations >= group["max_eval"] or moved <= tolerance:
                    break
                if abs(loss - before) < tolerance:
                    break
        state["func_evals"] += 1
        return first

    def _evaluate(self, closure: Callable[[], Any]) -> Any:
        with minigrad.enable_grad():
            return closure()

    def _is_flat(self, grad: Tensor) -> bool:
        return grad.abs().max().item() <= self.param_groups[0]["tolerance_grad"]

    def _direction(self, grad: Tensor) -> Tensor:
        """The gradient times the inverse Hessian of the history, by the two-loop recursion."""
        state = self.state[self._params[0]]
        if state["n_iter"] == 1:
            state.update(old_dirs=[], old_stps=[], ro=[], H_diag=1.0)
            return -grad
        change, moved = grad - state["prev_flat_grad"], state["d"] * state["t"]
        product = change.dot(moved).item()
        changes, steps, scales = state["old_dirs"], state["old_stps"], state["ro"]
        if product > 1e-10:
            if len(changes) == self.param_groups[0]["history_size"]:
                for kept in (changes, steps, scales):
                    kept.pop(0)
            changes.append(change)
            steps.append(moved)
            scales.append(1.0 / product)
            state["H_diag"] = product / change.dot(change).item()
        direction, weights = -grad, []
        for y, s, scale in zip(reversed(changes), reversed(steps), reversed(scales)):
            weights.append(s.dot(direction).item() * scale)
            direction = direction.add(y, alpha=-weights[-1])
        direction = direction * state["H_diag"]
        for y, s, scale, weight in zip(changes, steps, scales, reversed(weights)):
            direction = direction.add(s, alpha=weight - y.dot(direction).item() * scale)
        return direction

    def _search(
        self, closure: Callable[[], Any], direction: Tensor, length: float, start: tuple
    ) -> tuple[float, Tensor, float, int]:
        """(loss, gradient, length, evaluations) where the strong Wolfe conditions are fulfilled
        (Nocedal & Wright, "Numerical Optimization", algorithms 3.5 and 3.6)."""
        loss0, grad0, slope0 = start
        here, count = 0.0, 0

        def at(distance: float) -> tuple[float, float, Tensor, float]:
            nonlocal here, count
            self._move(direction, distance - here)
            here, count = distance, count + 1
            loss, grad = float(self._evaluate(closure)), self._gradient()
            return distance, loss, grad, grad.dot(direction).item()

        low, high = (0.0, loss0, grad0, slope0), None
        for _ in range(_LINE_STEPS):
            trial = at(length)
            _, loss, _, slope = trial
            too_high = not loss <= loss0 + _SUFFICIENT * length * slope0 or loss >= low[1]
            if too_high and (high is not None or low[0] > 0 or not loss < loss0):
                high = trial
            elif abs(slope) <= -_CURVATURE * slope0 and not too_high:
                low = trial
                break
            elif too_high:
                high = trial
            else:
                if slope >= 0 if high is None else slope * (high[0] - low[0]) >= 0:
                    high = low
                low = trial
            length = 2 * length if high is None else _between(low, high)
            if high is not None and abs(high[0] - low[0]) * direction.abs().max().item() < 1e-12:
                break
        self._move(direction, low[0] - here)
        return low[1], low[2], low[0], count


def _between(a: tuple, b: tuple) -> float:
    """The minimum of the cubic through two points with their slopes, or the middle."""
    (x, f, _, slope), (z, g, _, other) = a, b
    if all(map(math.isfinite, (g, other))):
        d1 = slope + other - 3 * (f - g) / (x - z)
        square = d1 * d1 - slope * other
        if square >= 0:
            d2 = math.copysign(math.sqrt(square), z - x)
            bottom = other - slope + 2 * d2
            if bottom:
                found = z - (z - x) * (other + d2 - d1) / bottom
                margin = 0.1 * abs(z - x)
                if min(x, z) + margin <= found <= max(x, z) - margin:
                    return found
    return (x + z) / 2
