"""Limited-memory BFGS (Liu & Nocedal 1989)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import minigrad
from minigrad.optim.optimizer import Optimizer, check_not_negative, number, real_parts
from minigrad.tensor import Tensor

_SUFFICIENT, _CURVATURE = 1e-4, 0.9  # constants of the strong Wolfe conditions
_NARROW = 1e-9  # how far apart the parameters at the ends of a search may at least be


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
        return minigrad.cat([real_parts(part.detach()).reshape(-1) for part in parts])

    def _move(self, direction: Tensor, length: float) -> None:
        start = 0
        for param in map(real_parts, self._params):
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
                length = number(group["lr"])
                if state["n_iter"] == 1:
                    length *= min(1.0, 1.0 / grad.abs().sum().item())
                slope = grad.dot(direction).item()
                state["prev_flat_grad"] = grad.clone()
                if slope > -group["tolerance_change"]:
                    break
                before = state["prev_loss"] = loss
                if group["line_search_fn"] is not None:
                    point, left = (loss, grad, slope), group["max_eval"] - evaluations
                    found = self._search(closure, direction, length, point, left)
                    loss, grad, length, count = found
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
        self, closure: Callable[[], Any], direction: Tensor, length: float, start: tuple, most: int
    ) -> tuple[float, Tensor, float, int]:
        """(loss, gradient, length, evaluations) where the strong Wolfe conditions are fulfilled
        (Nocedal & Wright, "Numerical Optimization", algorithms 3.5 and 3.6), or the best of
        `most` + 1 evaluations."""
        first, count = _Point(0.0, *start), 0
        origin = [param.detach().clone() for param in self._params]

        def go(distance: float) -> None:
            for param, value in zip(self._params, origin, strict=True):
                param.copy_(value)
            self._move(direction, distance)

        def evaluate(distance: float) -> _Point:
            nonlocal count
            count += 1
            go(distance)
            loss, grad = float(self._evaluate(closure)), self._gradient()
            return _Point(distance, loss, grad, grad.dot(direction).item())

        found = _line_search(evaluate, first, length, direction.abs().max().item(), most)
        go(found.at)
        return found.loss, found.grad, found.at, count


class _Point(NamedTuple):
    """A place on the line of a search: the distance from its start, and the loss there."""

    at: float
    loss: float
    grad: Tensor
    slope: float


def _line_search(
    evaluate: Callable[[float], _Point], first: _Point, length: float, size: float, most: int
) -> _Point:
    """The point that a search for the strong Wolfe conditions ends at. size: the largest element
    of the direction. most: evaluations after that of `length`."""

    def too_high(point: _Point) -> bool:
        return not point.loss <= first.loss + _SUFFICIENT * point.at * first.slope

    def flat(point: _Point) -> bool:
        return abs(point.slope) <= -_CURVATURE * first.slope

    before, here = first, evaluate(length)
    for step in range(most):  # further on, until a minimum is in between
        if too_high(here) or (step > 1 and here.loss >= before.loss):
            break
        if flat(here):
            return here
        if here.slope >= 0:
            break
        bounds = here.at + 0.01 * (here.at - before.at), 10 * here.at
        before, here = here, evaluate(_minimum(before, here, *bounds))
    else:
        return min(first, here, key=lambda point: point.loss)

    ends, near_an_end = [before, here], False
    for _ in range(step, most):
        low = _lower(ends)
        left, right = sorted(point.at for point in ends)
        if (right - left) * size < _NARROW:
            break
        length = _minimum(ends[0], ends[1], left, right)
        margin = 0.1 * (right - left)
        if min(right - length, length - left) >= margin:
            near_an_end = False
        elif near_an_end or not left < length < right:  # again: the ends must come closer
            length = right - margin if right - length < length - left else left + margin
            near_an_end = False
        else:
            near_an_end = True
        here = evaluate(length)
        if too_high(here) or here.loss >= ends[low].loss:
            ends[1 - low] = here
            continue
        if flat(here):
            return here
        if here.slope * (ends[1 - low].at - ends[low].at) >= 0:
            ends[1 - low] = ends[low]
        ends[low] = here
    return ends[_lower(ends)]


def _lower(ends: list[_Point]) -> int:
    """Which of two points has the smaller loss."""
    return 1 if ends[1].loss < ends[0].loss else 0


def _minimum(a: _Point, b: _Point, least: float, most: float) -> float:
    """The minimum of the cubic through two points with their slopes, within bounds; their middle
    where there is none."""
    if a.at > b.at:
        a, b = b, a
    d1 = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.at - b.at)
    square = d1 * d1 - a.slope * b.slope
    if not (square >= 0 and math.isfinite(square)):
        return (least + most) / 2
    d2 = math.sqrt(square)
    bottom = b.slope - a.slope + 2 * d2
    if not bottom:
        return (least + most) / 2
    found = b.at - (b.at - a.at) * ((b.slope + d2 - d1) / bottom)
    return min(max(found, least), most)
