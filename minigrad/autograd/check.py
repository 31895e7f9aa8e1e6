"""Numerical checks of gradients: `gradcheck` and `gradgradcheck`, with torch's signatures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from minigrad.autograd.engine import as_tuple, grad
from minigrad.autograd.mode import enable_grad
from minigrad.tensor import Tensor, wrap


class GradcheckError(RuntimeError):
    """An analytical gradient differs from finite differences."""


def gradcheck(
    func: Callable,
    inputs: Tensor | Sequence[Any],
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
) -> bool:
    """Compare the gradients of `func(*inputs)` with central differences.

    Every element of every input that requires a gradient is changed by +-`eps`, so inputs should be
    small and float64. Returns True, or raises GradcheckError (returns False without
    `raise_exception`). A gradient scaled by 1.01 fails: the tolerance is atol + rtol * |numerical|.
    """
    try:
        _check(func, as_tuple(inputs), eps, atol, rtol)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def _check(func: Callable, inputs: tuple, eps: float, atol: float, rtol: float) -> None:
    chosen = [i for i, x in enumerate(inputs) if isinstance(x, Tensor) and x.requires_grad]
    if not chosen:
        raise ValueError(
            "gradcheck expects at least one input tensor to require gradient, "
            "but none of the them have requires_grad=True."
        )
    outputs = _differentiable(func(*inputs))
    numerical = _numerical(func, inputs, chosen, outputs, eps)
    for o, output in enumerate(outputs):
        analytical = _analytical(output, [inputs[i] for i in chosen])
        for i, exact, measured in zip(chosen, analytical, numerical[o], strict=True):
            if not np.allclose(exact, measured, rtol=rtol, atol=atol):
                worst = np.unravel_index(np.argmax(np.abs(exact - measured)), exact.shape)
                raise GradcheckError(
                    f"Jacobian mismatch for output {o} with respect to input {i},\n"
                    f"numerical:{measured}\nanalytical:{exact}\n"
                    f"largest difference at {tuple(int(w) for w in worst)} (input element, output "
                    f"element): {measured[worst]} against {exact[worst]}"
                )


def _differentiable(result: Any) -> list[Tensor]:
    return [t for t in as_tuple(result) if isinstance(t, Tensor) and t.requires_grad]


def _analytical(output: Tensor, inputs: list[Tensor]) -> list[np.ndarray]:
    """Jacobians (input elements, output elements), one column per backward pass."""
    count = output._array.size
    jacobians = [np.zeros((x._array.size, count)) for x in inputs]
    for column in range(count):
        seed = np.zeros(output._array.shape, output._array.dtype)
        seed.reshape(-1)[column] = 1
        grads = grad(output, inputs, wrap(seed), retain_graph=True, allow_unused=True)
        for jacobian, g in zip(jacobians, grads, strict=True):
            if g is not None:
                jacobian[:, column] = g.detach().numpy().reshape(-1)
    return jacobians


def _numerical(
    func: Callable, inputs: tuple, chosen: list[int], outputs: list[Tensor], eps: float
) -> list[list[np.ndarray]]:
    """The same Jacobians, per output, from (f(x + eps) - f(x - eps)) / 2 eps."""

    def run() -> list[np.ndarray]:
        with enable_grad():  # the function may itself differentiate
            return [t.detach().numpy().reshape(-1).copy() for t in _differentiable(func(*inputs))]

    arrays = [inputs[i]._array for i in chosen]
    jacobians = [[np.zeros((a.size, o._array.size)) for a in arrays] for o in outputs]
    for i, array in enumerate(arrays):
        for row, position in enumerate(np.ndindex(array.shape)):
            original = array[position].copy()
            array[position] = original + eps
            above = run()
            array[position] = original - eps
            below = run()
            array[position] = original
            for jacobian, high, low in zip(jacobians, above, below, strict=True):
                jacobian[i][row] = (high - low) / (2 * eps)
    return jacobians


def gradgradcheck(
    func: Callable,
    inputs: Tensor | Sequence[Any],
    grad_outputs: Tensor | Sequence[Tensor] | None = None,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
) -> bool:
    """`gradcheck` of the gradient: second derivatives against differences of first derivatives."""
    inputs = as_tuple(inputs)
    outputs = _differentiable(func(*inputs))
    if grad_outputs is None:
        generator = np.random.default_rng(0)
        made = [generator.standard_normal(o._array.shape) for o in outputs]
        seeds = [wrap(np.asarray(m, o._array.dtype)) for m, o in zip(made, outputs, strict=True)]
    else:
        seeds = [g.detach().clone() for g in as_tuple(grad_outputs)]
    for seed in seeds:
        seed.requires_grad = True
    count = len(inputs)

    def first_order(*arguments: Any) -> tuple[Tensor, ...]:
        results = _differentiable(func(*arguments[:count]))
        sources = [x for x in arguments[:count] if isinstance(x, Tensor) and x.requires_grad]
        found = grad(results, sources, arguments[count:], create_graph=True, allow_unused=True)
        return tuple(g for g in found if g is not None and g.requires_grad)

    return gradcheck(
        first_order,
        (*inputs, *seeds),
        eps=eps,
        atol=atol,
        rtol=rtol,
        raise_exception=raise_exception,
    )
