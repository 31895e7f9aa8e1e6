"""Cross entropy: the checks, and the launches of its two kernels."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy import ndarray

import kernels
from kernels.families import Family, Operation, floats, index, normal, ones
from kernels.launchers.common import (
    Dialect,
    ceil_div,
    check_floating,
    compute_dtype,
    contiguous,
    empty,
    launcher,
    on_gpu,
)
from kernels.launchers.plans import Plans, place
from kernels.launchers.relaunch import remembered

ROWS = 8  # warps, each with a row, of a block


def _check(name: str, logits, target, weight) -> None:
    """Raise unless shapes and dtypes fit."""
    check_floating(name, logits, weight)
    if logits.ndim != 2 or target.shape != logits.shape[:1]:
        raise ValueError(
            f"{name}: expected logits (N, C) and target (N,), got {logits.shape} and {target.shape}"
        )
    if target.dtype.kind not in "iu":
        raise TypeError(f"{name}: expected a target of integers, got {target.dtype}")
    if weight is not None and weight.shape != logits.shape[1:]:
        raise ValueError(
            f"{name}: expected a weight of shape {logits.shape[1:]}, got {weight.shape}"
        )


def _check_targets(name: str, target, classes: int, ignore_index: int) -> None:
    """Raise IndexError for a class outside 0 .. C-1 (on the CPU: a GPU would have to wait)."""
    if target.size == 0 or on_gpu(target):
        return
    if target.min() >= 0 and target.max() < classes:
        return
    bad = target[(target != ignore_index) & ((target < 0) | (target >= classes))]
    if bad.size:
        raise IndexError(f"{name}: target {bad[0]} is out of bounds for {classes} classes")


_plans = Plans()


def _plan(dialect: Dialect, name: str, make: Callable, logits, target, weight, smooth: bool):
    """A launch of the kernel that `make` makes, the scalar type, and what stands for no weight."""
    _check(name, logits, target, weight)
    kernel = make(dialect.common.scalar_type(logits.dtype), weight is not None, smooth)
    run = launcher(name, "warp", kernel, ceil_div(max(len(logits), 1), ROWS), (32, ROWS))
    return run, compute_dtype(logits.dtype).type, empty((1,), logits.dtype, logits)


def _planned(dialect: Dialect, name: str, make: Callable, logits, target, weight, smooth: bool):
    key = (
        dialect, name, type(logits) is ndarray or place(logits), logits.shape, logits.dtype,
        target.shape, target.dtype, smooth,
    )  # fmt: skip
    if weight is not None:
        key += (weight.shape, weight.dtype)
    return _plans.get(key) or _plans.keep(
        key, _plan(dialect, name, make, logits, target, weight, smooth)
    )


def cross_entropy(
    dialect: Dialect,
    logits,
    target,
    weight=None,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
):
    """Losses (N,) of logits (N, C) against class indices (N,), and the log-sum-exp (N,).

    Losses are weighted by class (weight (C,)) and not reduced; 0 where the target is
    `ignore_index`. Raises IndexError for a target outside 0 .. C-1 (arrays on the CPU; on a GPU
    such a loss is NaN), ValueError for shapes and TypeError for dtypes that do not fit.
    """
    _planned_forward(dialect, logits, target, weight, label_smoothing)  # which checks the operands
    _check_targets("cross_entropy", target, logits.shape[1], ignore_index)
    return _forward(dialect, logits, target, weight, ignore_index, label_smoothing)


def _planned_forward(dialect: Dialect, logits, target, weight, label_smoothing: float):
    make, smooth = dialect.cross_entropy.forward, label_smoothing != 0
    return _planned(dialect, "cross_entropy", make, logits, target, weight, smooth)


@remembered(3)
def _forward(dialect: Dialect, logits, target, weight, ignore_index: int, label_smoothing: float):
    run, scalar, none = _planned_forward(dialect, logits, target, weight, label_smoothing)
    losses, lse = (empty(target.shape, logits.dtype, logits) for _ in range(2))
    if losses.size:
        weight = none if weight is None else contiguous(weight)
        options = (ignore_index, scalar(label_smoothing))
        run(contiguous(logits), contiguous(target), weight, *options, losses, lse)
    return losses, lse


def cross_entropy_backward(
    dialect: Dialect,
    g,
    logits,
    lse,
    target,
    weight=None,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
):
    """Gradient (N, C) of the losses with respect to the logits, for g (N,); errors as there."""
    name = "cross_entropy_backward"
    run, scalar, none = _planned(
        dialect, name, dialect.cross_entropy.backward, logits, target, weight, label_smoothing != 0
    )
    if g.shape != target.shape or lse.shape != target.shape:
        raise ValueError(
            f"{name}: expected g and lse of shape {target.shape}, got {g.shape} and {lse.shape}"
        )
    if g.dtype != logits.dtype or lse.dtype != logits.dtype:
        raise TypeError(
            f"{name}: expected g and lse of {logits.dtype}, got {g.dtype} and {lse.dtype}"
        )
    _check_targets(name, target, logits.shape[1], ignore_index)
    d = empty(logits.shape, logits.dtype, logits)
    if d.size:
        weight = none if weight is None else contiguous(weight)
        options = (ignore_index, scalar(label_smoothing))
        arrays = (contiguous(a) for a in (g, logits, lse, target))
        run(*arrays, weight, *options, d)
    return d


def _cost(logits, *_, **__):
    row = (logits.shape[:1], logits.dtype)
    return [row, row], 5 * logits.size


def _cost_backward(g, logits, *_, **__):
    return [(logits.shape, logits.dtype)], 4 * logits.size


def _cases(rng, versions):
    logits, target = normal(rng, (65, 33)), rng.integers(0, 33, 65)
    target[::5] = -100
    weight, g = rng.random(33).astype(np.float32), normal(rng, 65)
    for extra in ((), (weight, -100, 0.1)):
        yield "cross_entropy", (logits, target, *extra), {}, 20
        lse = kernels.cross_entropy(logits, target, backend="numpy")[1]
        yield "cross_entropy_backward", (g, logits, lse, target, *extra), {}, 20


def _compiled(versions):
    logits, target = ones(29, 43), np.zeros(29, np.int64)
    for extra in ((), (ones(43), -100, 0.1)):
        yield "cross_entropy", (logits, target, *extra), {}
        yield "cross_entropy_backward", (ones(29), logits, ones(29), target, *extra), {}


FAMILY = Family(
    "cross_entropy",
    (
        Operation(
            cross_entropy,
            _cost,
            lambda version: ((floats(30, 50), index(30, 50)), {}),
            {"warp": "a warp a row, no softmax stored"},
        ),
        Operation(
            cross_entropy_backward,
            _cost_backward,
            lambda version: ((floats(30), floats(30, 50), floats(30), index(30, 50)), {}),
            {"warp": "a warp a row"},
        ),
    ),
    _cases,
    _compiled,
)
