"""Cross entropy of logits (N, C) against class indices (N,), fused with log-softmax.

loss[r] = -sum_c q[r, c] log_softmax(logits)[r, c], with q = weight[c] * (smoothing / C, plus
1 - smoothing at the target); rows whose target is `ignore_index` have q = 0. About 3 N C operations
and N C exp; at least the logits read once, and in the backward written once.

    warp   a warp a row: lanes along the classes, shuffles; no softmax is ever stored
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

from kernels.numba_cuda.common import (
    ceil_div,
    check_floating,
    compute_dtype,
    contiguous,
    empty,
    launcher,
    on_gpu,
    scalar_type,
)
from kernels.numba_cuda.softmax import LOWEST, warp_max, warp_sum
from kernels.simt import cuda

CATALOG = [
    ("cross_entropy", "warp", "a warp a row, no softmax stored"),
    ("cross_entropy_backward", "warp", "a warp a row"),
]
ROWS = 8  # warps, each with a row, of a block


@functools.cache
def forward(acc_t, has_weight: bool, smooth: bool):
    """Block (32, ROWS), grid (row tiles,)."""

    @cuda.jit
    def cross_entropy_warp(logits, target, weight, ignore, smoothing, losses, lse):
        lane = cuda.threadIdx.x
        row = cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y
        if row >= logits.shape[0]:
            return
        classes = logits.shape[1]
        top = acc_t(LOWEST)
        for c in range(lane, classes, 32):
            top = max(top, acc_t(logits[row, c]))
        top = warp_max(top)
        total = acc_t(0)
        for c in range(lane, classes, 32):
            total += math.exp(acc_t(logits[row, c]) - top)
        norm = top + math.log(warp_sum(total))
        spread = acc_t(0)
        if smooth:
            for c in range(lane, classes, 32):
                share = acc_t(weight[c]) if has_weight else acc_t(1)
                if share != acc_t(0):
                    spread += share * (norm - acc_t(logits[row, c]))
            spread = warp_sum(spread) * smoothing / acc_t(classes)
        if lane == 0:
            lse[row] = norm
            hit = target[row]
            loss = acc_t(0)
            if hit != ignore and not 0 <= hit < classes:
                loss = acc_t(math.nan)
            elif hit != ignore:
                share = acc_t(1) - smoothing
                if has_weight:
                    share *= acc_t(weight[hit])
                if share != acc_t(0):
                    loss = share * (norm - acc_t(logits[row, hit]))
                loss += spread
            losses[row] = loss

    return cross_entropy_warp


@functools.cache
def backward(acc_t, has_weight: bool, smooth: bool):
    """Block (32, ROWS), grid (row tiles,): d = g (softmax * sum(q) - q)."""

    @cuda.jit
    def cross_entropy_warp_backward(g, logits, lse, target, weight, ignore, smoothing, d):
        lane = cuda.threadIdx.x
        row = cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y
        if row >= logits.shape[0]:
            return
        classes = logits.shape[1]
        hit = target[row]
        keep = hit != ignore and 0 <= hit < classes
        hit = hit if keep else 0
        gv = acc_t(g[row]) if keep else acc_t(0)
        norm = acc_t(lse[row])
        at_hit = acc_t(1) - smoothing
        if has_weight:
            at_hit *= acc_t(weight[hit])
        total = at_hit
        if smooth:
            if has_weight:
                part = acc_t(0)
                for c in range(lane, classes, 32):
                    part += acc_t(weight[c])
                total += warp_sum(part) * smoothing / acc_t(classes)
            else:
                total += smoothing
        for c in range(lane, classes, 32):
            q = acc_t(0)
            if smooth:
                q = smoothing / acc_t(classes)
                if has_weight:
                    q *= acc_t(weight[c])
            if c == hit:
                q += at_hit
            p = math.exp(acc_t(logits[row, c]) - norm)
            d[row, c] = gv * (p * total - q)

    return cross_entropy_warp_backward


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


_plans: dict[tuple, Callable] = {}


def _plan(name: str, make: Callable, logits, target, weight, smooth: bool):
    """A launch of the kernel that `make` makes, the scalar type, and what stands for no weight."""
    _check(name, logits, target, weight)
    kernel = make(scalar_type(logits.dtype), weight is not None, smooth)
    run = launcher(name, "warp", kernel, ceil_div(max(len(logits), 1), ROWS), (32, ROWS))
    return run, compute_dtype(logits.dtype).type, empty((1,), logits.dtype, logits)


def _planned(name: str, make: Callable, logits, target, weight, smooth: bool):
    key = (name, type(logits), logits.shape, logits.dtype, target.shape, target.dtype, smooth)
    if weight is not None:
        key += (weight.shape, weight.dtype)
    plan = _plans.get(key)
    if plan is None:
        plan = _plans[key] = _plan(name, make, logits, target, weight, smooth)
    return plan


def cross_entropy(
    logits, target, weight=None, ignore_index: int = -100, label_smoothing: float = 0.0
):
    """Losses (N,) of logits (N, C) against class indices (N,), and the log-sum-exp (N,).

    Losses are weighted by class (weight (C,)) and not reduced; 0 where the target is
    `ignore_index`. Raises IndexError for a target outside 0 .. C-1 (arrays on the CPU; on a GPU
    such a loss is NaN), ValueError for shapes and TypeError for dtypes that do not fit.
    """
    name = "cross_entropy"
    run, scalar, none = _planned(name, forward, logits, target, weight, label_smoothing != 0)
    _check_targets(name, target, logits.shape[1], ignore_index)
    losses, lse = (empty(target.shape, logits.dtype, logits) for _ in range(2))
    if losses.size:
        weight = none if weight is None else contiguous(weight)
        options = (ignore_index, scalar(label_smoothing))
        run(contiguous(logits), contiguous(target), weight, *options, losses, lse)
    return losses, lse


def cross_entropy_backward(
    g, logits, lse, target, weight=None, ignore_index: int = -100, label_smoothing: float = 0.0
):
    """Gradient (N, C) of the losses with respect to the logits, for g (N,); errors as there."""
    name = "cross_entropy_backward"
    run, scalar, none = _planned(name, backward, logits, target, weight, label_smoothing != 0)
    if g.shape != target.shape or lse.shape != target.shape:
        raise ValueError(
            f"{name}: expected g and lse of shape {target.shape}, got {g.shape} and {lse.shape}"
        )
    _check_targets(name, target, logits.shape[1], ignore_index)
    d = empty(logits.shape, logits.dtype, logits)
    if d.size:
        weight = none if weight is None else contiguous(weight)
        options = (ignore_index, scalar(label_smoothing))
        arrays = (contiguous(a) for a in (g, logits, lse, target))
        run(*arrays, weight, *options, d)
    return d
