"""Numerical checks of gradients: `gradcheck` and `gradgradcheck`, with torch's signatures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from minigrad.autograd.engine import as_tuple, grad
from minigrad.autograd.mode import enable_grad
from minigrad.tensor import Tensor, functions, wrap


class GradcheckError(RuntimeError):
    """An analytical gradient differs from finite differences."""


@dataclass(frozen=True)
class _Checks:
    """What is compared, and how closely."""

    eps: float
    atol: float
    rtol: float
    nondet_tol: float = 0.0
    check_batched_grad: bool = False
    check_forward_ad: bool = False
    check_backward_ad: bool = True
    fast_mode: bool = False


def gradcheck(
    func: Callable,
    inputs: Tensor | Sequence[Any],
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_batched_forward_grad: bool = False,
    check_forward_ad: bool = False,
    check_backward_ad: bool = True,
    fast_mode: bool = False,
    masked: bool | None = None,
) -> bool:
    """Compare the gradients of `func(*inputs)` with central differences.

    Every element of every input that requires a gradient is changed by +-`eps`, so inputs should be
    small and float64. Returns True, or raises GradcheckError (returns False without
    `raise_exception`). A gradient scaled by 1.01 fails: the tolerance is atol + rtol * |numerical|.

    nondet_tol: how far two backward passes may differ. check_batched_grad: `grad` of a batch gives
    the same. check_forward_ad: so does forward mode (as of `func.jvp`). fast_mode: along one
    direction of each input and output only. Each output is differentiated alone, so the others'
    gradients are undefined as check_undefined_grad wants them, and gradients always have the dtype
    of their input, as check_grad_dtypes wants it; `masked` is for sparse tensors and changes
    nothing.
    """
    if check_batched_forward_grad and not check_forward_ad:
        raise ValueError("Setting check_batched_forward_grad=True requires check_forward_ad=True")
    if not (check_forward_ad or check_backward_ad):
        raise AssertionError(
            "Expected at least one of check_forward_ad or check_backward_ad to be True"
        )
    if check_batched_grad and not check_backward_ad:
        raise ValueError("Setting check_batched_grad=True requires check_backward_ad to be True")
    checks = _Checks(
        *(eps, atol, rtol, nondet_tol, check_batched_grad),
        *(check_forward_ad, check_backward_ad, fast_mode),
    )
    try:
        _check(func, as_tuple(inputs), checks)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def _check(func: Callable, inputs: tuple, checks: _Checks) -> None:
    chosen = [i for i, x in enumerate(inputs) if isinstance(x, Tensor) and x.requires_grad]
    if not chosen:
        raise ValueError(
            "gradcheck expects at least one input tensor to require gradient, "
            "but none of them have requires_grad=True."
        )
    func, inputs = _of_parts(func, inputs)
    sources = [inputs[i] for i in chosen]
    result = func(*inputs)
    outputs = _differentiable(result)
    if not outputs:
        _check_constant(func, inputs, chosen, result, checks.eps)
    if checks.fast_mode:
        _check_directions(func, inputs, chosen, outputs, checks)
        return
    numerical = _numerical(func, inputs, chosen, outputs, checks.eps)
    for o, output in enumerate(outputs):
        if checks.check_backward_ad:
            analytical = _analytical(output, sources)
            _compare(f"output {o}", analytical, numerical[o], chosen, checks)
            _compare_again(output, sources, checks.nondet_tol)
            if checks.check_batched_grad:
                batched = _batched(output, sources)
                _compare(f"output {o}, with a batch,", batched, numerical[o], chosen, checks)
    if checks.check_forward_ad:
        for o, jacobians in enumerate(_forward(sources, outputs)):
            _compare(f"output {o}, forward,", jacobians, numerical[o], chosen, checks)


def _of_parts(func: Callable, inputs: tuple) -> tuple[Callable, tuple]:
    """The function of the real and imaginary parts of complex inputs, with those of its outputs."""
    places = [i for i, x in enumerate(inputs) if isinstance(x, Tensor) and x.is_complex()]

    def of_parts(*parts: Any) -> tuple:
        given = [functions.view_as_complex(p) if i in places else p for i, p in enumerate(parts)]
        return tuple([
            functions.view_as_real(y) if isinstance(y, Tensor) and y.is_complex() else y
            for y in as_tuple(func(*given))
        ])  # fmt: skip

    parts = list(inputs)
    for i in places:
        parts[i] = functions.view_as_real(inputs[i].detach()).clone()
        parts[i].requires_grad_(inputs[i].requires_grad)
    return of_parts, tuple(parts)


def _check_constant(
    func: Callable, inputs: tuple, chosen: list[int], result: Any, eps: float
) -> None:
    """GradcheckError where results without a graph depend on an input after all."""
    numerical = _numerical(func, inputs, chosen, _floating(result), eps, _floating)
    if any(jacobian.any() for jacobians in numerical for jacobian in jacobians):
        raise GradcheckError("Numerical gradient for function expected to be zero")


def _floating(result: Any) -> list[Tensor]:
    return [t for t in as_tuple(result) if isinstance(t, Tensor) and t.is_floating_point()]


def _compare(
    what: str, analytical: list, numerical: list, chosen: list[int], checks: _Checks
) -> None:
    for i, exact, measured in zip(chosen, analytical, numerical, strict=True):
        if not np.allclose(exact, measured, rtol=checks.rtol, atol=checks.atol):
            worst = np.unravel_index(np.argmax(np.abs(exact - measured)), exact.shape)
            raise GradcheckError(
                f"Jacobian mismatch for {what} with respect to input {i},\n"
                f"numerical:{measured}\nanalytical:{exact}\n"
                f"largest difference at {tuple(int(w) for w in worst)} (input element, output "
                f"element): {measured[worst]} against {exact[worst]}"
            )


def _compare_again(output: Tensor, sources: list, tolerance: float) -> None:
    """GradcheckError where a second backward pass gives other gradients."""
    seed = wrap(np.ones(output._array.shape, output._array.dtype))
    first, second = (
        grad(output, sources, seed, retain_graph=True, allow_unused=True) for _ in range(2)
    )
    for a, b in zip(first, second, strict=True):
        if a is None or b is None:
            continue
        if float((a.detach() - b.detach()).abs().sum()) > tolerance:
            raise GradcheckError(
                "Backward is not reentrant, i.e., running backward with same input and grad_output "
                f"multiple times gives different values; nondet_tol is {tolerance}"
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


def _batched(output: Tensor, inputs: list[Tensor]) -> list[np.ndarray]:
    """The same Jacobians, by one backward pass with a batch of gradients."""
    count = output._array.size
    seeds = np.eye(count, dtype=output._array.dtype).reshape(count, *output._array.shape)
    grads = grad(
        *(output, inputs, wrap(seeds)), retain_graph=True, allow_unused=True, is_grads_batched=True
    )
    empty = [np.zeros((x._array.size, count)) for x in inputs]
    return [
        zeros if g is None else g.detach().numpy().reshape(count, -1).T
        for g, zeros in zip(grads, empty, strict=True)
    ]


def _forward(inputs: list[Tensor], outputs: list[Tensor]) -> list[list[np.ndarray]]:
    """The same Jacobians, per output, one row per direction of an input; as `func.jvp`, by
    differentiating the gradients with respect to what they are linear in."""
    dummies = [wrap(np.zeros(o._array.shape, o._array.dtype)) for o in outputs]
    for dummy in dummies:
        dummy.requires_grad = True
    slopes = grad(outputs, inputs, dummies, create_graph=True, allow_unused=True)
    jacobians = [[np.zeros((x._array.size, o._array.size)) for x in inputs] for o in outputs]
    for i, slope in enumerate(slopes):
        if slope is None or not slope.requires_grad:
            continue
        for row in range(slope._array.size):
            tangent = np.zeros(slope._array.shape, slope._array.dtype)
            tangent.reshape(-1)[row] = 1
            found = grad(slope, dummies, wrap(tangent), retain_graph=True, allow_unused=True)
            for jacobian, g in zip(jacobians, found, strict=True):
                if g is not None:
                    jacobian[i][row] = g.detach().numpy().reshape(-1)
    return jacobians


def _check_directions(
    func: Callable, inputs: tuple, chosen: list[int], outputs: list[Tensor], checks: _Checks
) -> None:
    """u^T J v for one positive u and v of each output and input."""
    generator = np.random.default_rng(0)
    positive = [generator.random(inputs[i]._array.shape) + 0.1 for i in chosen]
    for o, output in enumerate(outputs):
        u = generator.random(output._array.shape) + 0.1
        seed = wrap(u.astype(output._array.dtype))
        sources = [inputs[i] for i in chosen]
        grads = grad(output, sources, seed, retain_graph=True, allow_unused=True)
        for i, v, g in zip(chosen, positive, grads, strict=True):
            exact = 0.0 if g is None else float((g.detach().numpy() * v).sum())
            above, below = (_moved(func, inputs, i, v * sign * checks.eps)[o] for sign in (1, -1))
            measured = float(((above - below) * u.reshape(-1)).sum() / (2 * checks.eps))
            tolerance = checks.atol * u.sum() * v.sum() + checks.rtol * abs(measured)
            if not abs(exact - measured) <= tolerance:
                raise GradcheckError(
                    f"Jacobian mismatch for output {o} with respect to input {i} along one "
                    f"direction (fast_mode): numerical {measured}, analytical {exact}; "
                    "fast_mode=False shows which element"
                )


def _moved(func: Callable, inputs: tuple, i: int, step: np.ndarray) -> list[np.ndarray]:
    """The differentiable results where input i is moved by a step."""
    array = inputs[i]._array
    original = array.copy()
    array += step
    try:
        return _results(func, inputs)
    finally:
        array[...] = original


def _results(
    func: Callable, inputs: tuple, compared: Callable = _differentiable
) -> list[np.ndarray]:
    with enable_grad():  # the function may itself differentiate
        return [t.detach().numpy().reshape(-1).copy() for t in compared(func(*inputs))]


def _numerical(
    func: Callable,
    inputs: tuple,
    chosen: list[int],
    outputs: list[Tensor],
    eps: float,
    compared: Callable = _differentiable,
) -> list[list[np.ndarray]]:
    """The same Jacobians, per output, from (f(x + eps) - f(x - eps)) / 2 eps. compared: which of
    the function's results the outputs are."""
    arrays = [inputs[i]._array for i in chosen]
    jacobians = [[np.zeros((a.size, o._array.size)) for a in arrays] for o in outputs]
    for i, array in enumerate(arrays):
        for row, position in enumerate(np.ndindex(array.shape)):
            original = array[position].copy()
            array[position] = original + eps
            above = _results(func, inputs, compared)
            array[position] = original - eps
            below = _results(func, inputs, compared)
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
    gen_non_contig_grad_outputs: bool = False,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_fwd_over_rev: bool = False,
    check_rev_over_rev: bool = True,
    fast_mode: bool = False,
    masked: bool = False,
) -> bool:
    """`gradcheck` of the gradient: second derivatives against differences of first derivatives.

    check_fwd_over_rev and check_rev_over_rev: by forward mode and by a second backward pass. With
    gen_non_contig_grad_outputs the gradients that are made are not contiguous.
    """
    inputs = as_tuple(inputs)
    outputs = _differentiable(func(*inputs))
    if grad_outputs is None:
        generator = np.random.default_rng(0)
        made = [generator.standard_normal(o._array.shape) for o in outputs]
        seeds = [wrap(np.asarray(m, o._array.dtype)) for m, o in zip(made, outputs, strict=True)]
        if gen_non_contig_grad_outputs:
            seeds = [wrap(np.stack([s._array, s._array], -1)[..., 0]) for s in seeds]
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
        nondet_tol=nondet_tol,
        check_undefined_grad=check_undefined_grad,
        check_grad_dtypes=check_grad_dtypes,
        check_batched_grad=check_batched_grad,
        check_forward_ad=check_fwd_over_rev,
        check_backward_ad=check_rev_over_rev,
        fast_mode=fast_mode,
        masked=masked,
    )
