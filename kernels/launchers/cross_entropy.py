"""Cross entropy: the checks, and the launches of its two kernels."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy import ndarray

import kernels
from kernels.families import Family, Operation, floats, index, normal, ones
from kernels.launchers.common import (
    GPU_BLOCK,
    SMALL_BLOCK,
    Dialect,
    ceil_div,
    check_floating,
    check_version,
    compute_dtype,
    contiguous,
    empty,
    launcher,
    on_gpu,
    parts_of,
    splits,
    warps_a_block,
)
from kernels.launchers.plans import Plans, place
from kernels.launchers.reduction import reduce
from kernels.launchers.relaunch import remembered
from kernels.support.bounds import all_below

VERSIONS = {
    "warp": "a warp per row, no softmax stored",
    "split": "long rows: one or several blocks per row, and a second launch merges their sums",
}
BACKWARD = {"warp": "a warp per row", "split": "long rows: one or several blocks per row"}
ROWS = 8  # warps, each with a row, of a block
CPU_ROWS, SHORT_ROW = 16, 1024  # rows that a block takes together on a CPU, and their longest
LONG_ROW = 4096  # classes that a GPU gives whole blocks
LEAST_CLASSES = 1024  # of a row that a block takes where it is split


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
    if target.size == 0 or on_gpu(target) or all_below(target, classes):
        return
    bad = target[(target != ignore_index) & ((target < 0) | (target >= classes))]
    if bad.size:
        raise IndexError(f"{name}: target {bad[0]} is out of bounds for {classes} classes")


_plans = Plans()


class _Plan(NamedTuple):
    """run: the launches, with the kernels' arguments up to the results. scalar: makes numbers of
    the compute dtype. none: stands for no weight."""

    run: Callable
    scalar: type
    none: Any


def _plan(dialect: Dialect, name: str, logits, target, weight, smooth: bool, version: str | None):
    _check(name, logits, target, weight)
    backward = name.endswith("backward")
    check_version(name, version, BACKWARD if backward else VERSIONS)
    (rows, classes), gpu = logits.shape, on_gpu(logits)
    forced = version == "split"
    if version is None:
        long = gpu and (classes > LONG_ROW or splits(rows, classes, LEAST_CLASSES) > 1)
        version = "split" if long else "warp"
    flags = dialect.common.scalar_type(logits.dtype), weight is not None, smooth
    if version == "split":
        plan = _plan_split_backward if backward else _plan_split
        run = plan(dialect, name, logits, flags, forced)
    else:
        together = CPU_ROWS if rows >= CPU_ROWS and classes <= SHORT_ROW else 1
        warps = warps_a_block(rows, ROWS, gpu) if gpu or backward else together
        kernels, trees = dialect.cross_entropy, warps == 1 or not gpu
        kernel = kernels.backward(*flags) if backward else kernels.forward(*flags, warps, trees)
        run = launcher(name, "warp", kernel, ceil_div(max(rows, 1), warps), (32, warps))
    return _Plan(run, compute_dtype(logits.dtype).type, empty((1,), logits.dtype, logits))


def _plan_split(dialect: Dialect, name: str, like, flags: tuple, forced: bool) -> Callable:
    """The function of forward's arguments: a launch leaves the sums of parts of rows, a second one
    the losses."""
    rows, classes = like.shape
    count, span = parts_of(rows, classes, LEAST_CLASSES, forced)
    kernels, dtype = dialect.cross_entropy, compute_dtype(like.dtype)
    block = GPU_BLOCK if on_gpu(like) else SMALL_BLOCK
    sums = launcher(name, "split", kernels.split_sums(*flags, block), rows * count, block)
    losses = launcher(name, "split", kernels.split(*flags), rows, 32)

    def run(logits, target, weight, ignore, smoothing, *results):
        parts, hits = empty((4, rows, count), dtype, logits), empty((rows,), dtype, logits)
        sums(logits, target, weight, parts, hits, span)
        losses(target, weight, ignore, smoothing, parts, hits, *results, classes)

    return run


def _plan_split_backward(dialect: Dialect, name: str, like, flags: tuple, forced: bool) -> Callable:
    """The function of backward's arguments. The weights are added up before."""
    rows, classes = like.shape
    count, span = parts_of(rows, classes, LEAST_CLASSES, forced)
    dtype, (_, has_weight, smooth) = compute_dtype(like.dtype), flags
    block = GPU_BLOCK if on_gpu(like) else SMALL_BLOCK
    kernel = dialect.cross_entropy.split_backward(*flags)
    gradient = launcher(name, "split", kernel, rows * count, block)
    unused = empty((1,), dtype, like)

    def run(g, logits, lse, target, weight, *others):
        added = has_weight and smooth
        total = reduce(dialect, "sum", weight, keepdims=True, dtype=dtype) if added else unused
        gradient(g, logits, lse, target, weight, total, *others, span, count)

    return run


def _planned(
    dialect: Dialect, name: str, logits, target, weight, smooth: bool, version: str | None
) -> _Plan:
    key: tuple = (
        dialect, name, type(logits) is ndarray or place(logits), logits.shape, logits.dtype,
        target.shape, target.dtype, smooth, version,
    )  # fmt: skip
    if weight is not None:
        key += (weight.shape, weight.dtype)
    return _plans.get(key) or _plans.keep(
        key, _plan(dialect, name, logits, target, weight, smooth, version)
    )


def cross_entropy(
    dialect: Dialect,
    logits,
    target,
    weight=None,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    version: str | None = None,
):
    """Losses (N,) of logits (N, C) against class indices (N,), and the log-sum-exp (N,).

    Losses are weighted by class (weight (C,)) and not reduced; 0 where the target is
    `ignore_index`. Raises IndexError for a target outside 0 .. C-1 (arrays on the CPU; on a GPU
    such a loss is NaN), ValueError for shapes and TypeError for dtypes that do not fit.
    """
    smooth = label_smoothing != 0
    _planned(dialect, "cross_entropy", logits, target, weight, smooth, version)  # checks all
    _check_targets("cross_entropy", target, logits.shape[1], ignore_index)
    return _forward(dialect, logits, target, weight, ignore_index, label_smoothing, version)


@remembered(3)
def _forward(
    dialect: Dialect,
    logits,
    target,
    weight,
    ignore_index: int,
    label_smoothing: float,
    version: str | None,
):
    name, smooth = "cross_entropy", label_smoothing != 0
    run, scalar, none = _planned(dialect, name, logits, target, weight, smooth, version)
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
    version: str | None = None,
):
    """Gradient (N, C) of the losses with respect to the logits, for g (N,); errors as there."""
    name = "cross_entropy_backward"
    run, scalar, none = _planned(
        dialect, name, logits, target, weight, label_smoothing != 0, version
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
    for version, extra in itertools.product(VERSIONS, ((), (weight, -100, 0.1))):
        how = {"version": version}
        yield "cross_entropy", (logits, target, *extra), how, 20
        lse = kernels.cross_entropy(logits, target, backend="numpy")[1]
        yield "cross_entropy_backward", (g, logits, lse, target, *extra), how, 20


def _compiled(versions):
    logits, target = ones(29, 43), np.zeros(29, np.int64)
    for version, extra in itertools.product(VERSIONS, ((), (ones(43), -100, 0.1))):
        how = {"version": version}
        yield "cross_entropy", (logits, target, *extra), how
        yield "cross_entropy_backward", (ones(29), logits, ones(29), target, *extra), how


FAMILY = Family(
    "cross_entropy",
    (
        Operation(
            cross_entropy,
            _cost,
            lambda version: ((floats(30, 50), index(30, 50)), {}),
            VERSIONS,
        ),
        Operation(
            cross_entropy_backward,
            _cost_backward,
            lambda version: ((floats(30), floats(30, 50), floats(30), index(30, 50)), {}),
            BACKWARD,
        ),
    ),
    _cases,
    _compiled,
)
