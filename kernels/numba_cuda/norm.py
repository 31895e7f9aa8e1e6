"""Batch normalisation of x (N, C, ...) per channel, with its gradient.

y = (x - mean) * invstd * weight + bias. About 8 operations an element forward and 12 backward; at
least x read twice and y written once (the statistics must be complete before the first result).

    statistics  mean and 1 / sqrt(variance + eps) of a channel: two passes (the second sums squares
                of differences from the mean, which does not cancel)
    apply       one thread an element
    sums        backward: sum(g) and sum(g * xhat) of a channel
    gradient    backward: one thread an element

`planes`: a block a channel, threads along the plane of one image, for x (N, C, S) with S > 1.
`columns`: threads along the channels, for x (N, C), where a channel is a column.
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
from kernels.numba_cuda.softmax import CPU_BLOCK, GPU_BLOCK, block_sum
from kernels.simt import cuda

CATALOG = [
    ("batch_norm", "planes", "a block a channel, two passes"),
    ("batch_norm", "columns", "x (N, C): threads along the channels"),
    ("batch_norm_apply", "planes", "one thread an element, a block a piece of a plane"),
    ("batch_norm_apply", "columns", "x (N, C): threads along the channels"),
    ("batch_norm_backward", "planes", "two sums a channel, then one thread an element"),
    ("batch_norm_backward", "columns", "x (N, C): threads along the channels"),
]
COLUMN_BLOCK = (32, 8)


@functools.cache
def statistics_planes(acc_t, block: int):
    """Block `block`, grid (C,); x (N, C, S), mean and invstd (C,)."""
    warps = block // 32

    @cuda.jit
    def batch_norm_statistics(x, mean, invstd, eps):
        partial = cuda.shared.array(warps, acc_t)
        t, c = cuda.threadIdx.x, cuda.blockIdx.x
        count = acc_t(x.shape[0] * x.shape[2])
        total = acc_t(0)
        for n in range(x.shape[0]):
            for i in range(t, x.shape[2], block):
                total += acc_t(x[n, c, i])
        m = block_sum(total, partial) / count
        total = acc_t(0)
        for n in range(x.shape[0]):
            for i in range(t, x.shape[2], block):
                d = acc_t(x[n, c, i]) - m
                total += d * d
        var = block_sum(total, partial) / count
        if t == 0:
            mean[c] = m
            invstd[c] = acc_t(1) / math.sqrt(var + eps)

    return batch_norm_statistics


@functools.cache
def statistics_columns(acc_t):
    """Block COLUMN_BLOCK, grid (tiles of C,); x (N, C): rows of threads share the images."""
    bx, by = COLUMN_BLOCK

    @cuda.jit
    def batch_norm_statistics_columns(x, mean, invstd, eps):
        partial = cuda.shared.array((by, bx), acc_t)
        tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
        c = cuda.blockIdx.x * bx + tx
        live = c < x.shape[1]
        count = acc_t(x.shape[0])
        total = acc_t(0)
        if live:
            for n in range(ty, x.shape[0], by):
                total += acc_t(x[n, c])
        partial[ty, tx] = total
        cuda.syncthreads()
        total = partial[0, tx]
        for i in range(1, by):
            total += partial[i, tx]
        cuda.syncthreads()
        m = total / count
        total = acc_t(0)
        if live:
            for n in range(ty, x.shape[0], by):
                d = acc_t(x[n, c]) - m
                total += d * d
        partial[ty, tx] = total
        cuda.syncthreads()
        if ty == 0 and live:
            total = partial[0, tx]
            for i in range(1, by):
                total += partial[i, tx]
            mean[c] = m
            invstd[c] = acc_t(1) / math.sqrt(total / count + eps)

    return batch_norm_statistics_columns


@functools.cache
def apply_planes(acc_t, has_weight: bool, has_bias: bool):
    """Grid (N * C, tiles of S); x and y (N * C, S)."""

    @cuda.jit
    def batch_norm_apply(x, mean, invstd, weight, bias, y):
        p = cuda.blockIdx.x
        i = cuda.blockIdx.y * cuda.blockDim.x + cuda.threadIdx.x
        if i < x.shape[1]:
            c = p % mean.shape[0]
            scale = acc_t(invstd[c])
            if has_weight:
                scale *= acc_t(weight[c])
            shift = acc_t(bias[c]) if has_bias else acc_t(0)
            y[p, i] = (acc_t(x[p, i]) - acc_t(mean[c])) * scale + shift

    return batch_norm_apply


@functools.cache
def apply_columns(acc_t, has_weight: bool, has_bias: bool):
    """Block COLUMN_BLOCK, grid (tiles of N, tiles of C); x and y (N, C)."""

    @cuda.jit
    def batch_norm_apply_columns(x, mean, invstd, weight, bias, y):
        c = cuda.blockIdx.y * cuda.blockDim.x + cuda.threadIdx.x
        n = cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y
        if n < x.shape[0] and c < x.shape[1]:
            scale = acc_t(invstd[c])
            if has_weight:
                scale *= acc_t(weight[c])
            shift = acc_t(bias[c]) if has_bias else acc_t(0)
            y[n, c] = (acc_t(x[n, c]) - acc_t(mean[c])) * scale + shift

    return batch_norm_apply_columns


@functools.cache
def sums_planes(acc_t, block: int):
    """Block `block`, grid (C,); g and x (N, C, S), dweight and dbias (C,)."""
    warps = block // 32

    @cuda.jit
    def batch_norm_sums(g, x, mean, invstd, dweight, dbias):
        partial = cuda.shared.array(warps, acc_t)
        t, c = cuda.threadIdx.x, cuda.blockIdx.x
        m = acc_t(mean[c])
        plain, scaled = acc_t(0), acc_t(0)
        for n in range(x.shape[0]):
            for i in range(t, x.shape[2], block):
                gv = acc_t(g[n, c, i])
                plain += gv
                scaled += gv * (acc_t(x[n, c, i]) - m)
        plain = block_sum(plain, partial)
        scaled = block_sum(scaled, partial)
        if t == 0:
            dbias[c] = plain
            dweight[c] = scaled * acc_t(invstd[c])

    return batch_norm_sums


@functools.cache
def sums_columns(acc_t):
    """Block COLUMN_BLOCK, grid (tiles of C,); g and x (N, C)."""
    bx, by = COLUMN_BLOCK

    @cuda.jit
    def batch_norm_sums_columns(g, x, mean, invstd, dweight, dbias):
        plain_part = cuda.shared.array((by, bx), acc_t)
        scaled_part = cuda.shared.array((by, bx), acc_t)
        tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
        c = cuda.blockIdx.x * bx + tx
        live = c < x.shape[1]
        plain, scaled = acc_t(0), acc_t(0)
        if live:
            m = acc_t(mean[c])
            for n in range(ty, x.shape[0], by):
                gv = acc_t(g[n, c])
                plain += gv
                scaled += gv * (acc_t(x[n, c]) - m)
        plain_part[ty, tx] = plain
        scaled_part[ty, tx] = scaled
        cuda.syncthreads()
        if ty == 0 and live:
            for i in range(1, by):
                plain += plain_part[i, tx]
                scaled += scaled_part[i, tx]
            dbias[c] = plain
            dweight[c] = scaled * acc_t(invstd[c])

    return batch_norm_sums_columns


@functools.cache
def gradient_planes(acc_t, has_weight: bool):
    """Grid (N * C, tiles of S); g, x and dx (N * C, S); count = N * S."""

    @cuda.jit
    def batch_norm_gradient(g, x, mean, invstd, weight, dweight, dbias, count, dx):
        p = cuda.blockIdx.x
        i = cuda.blockIdx.y * cuda.blockDim.x + cuda.threadIdx.x
        if i < x.shape[1]:
            c = p % mean.shape[0]
            inv = acc_t(invstd[c])
            scale = inv * acc_t(weight[c]) if has_weight else inv
            xhat = (acc_t(x[p, i]) - acc_t(mean[c])) * inv
            dx[p, i] = scale * (acc_t(g[p, i]) - (dbias[c] + xhat * dweight[c]) / count)

    return batch_norm_gradient


@functools.cache
def gradient_columns(acc_t, has_weight: bool):
    """Block COLUMN_BLOCK, grid (tiles of N, tiles of C); g, x and dx (N, C); count = N."""

    @cuda.jit
    def batch_norm_gradient_columns(g, x, mean, invstd, weight, dweight, dbias, count, dx):
        c = cuda.blockIdx.y * cuda.blockDim.x + cuda.threadIdx.x
        n = cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y
        if n < x.shape[0] and c < x.shape[1]:
            inv = acc_t(invstd[c])
            scale = inv * acc_t(weight[c]) if has_weight else inv
            xhat = (acc_t(x[n, c]) - acc_t(mean[c])) * inv
            dx[n, c] = scale * (acc_t(g[n, c]) - (dbias[c] + xhat * dweight[c]) / count)

    return batch_norm_gradient_columns


def _check(name: str, x, *per_channel) -> None:
    """Raise unless x is (N, C, ...) floating and the others are (C,)."""
    check_floating(name, x)
    if x.ndim < 2:
        raise ValueError(f"{name}: expected x (N, C, ...), got shape {x.shape}")
    for v in per_channel:
        if v is not None and v.shape != (x.shape[1],):
            raise ValueError(f"{name}: expected {x.shape[1]} channels, got shape {v.shape}")


def _view(x) -> tuple[str, tuple[int, ...], tuple[int, ...]]:
    """Version, and the shapes under which reductions and elementwise kernels see x."""
    n, c, s = *x.shape[:2], math.prod(x.shape[2:])
    return ("columns", (n, c), (n, c)) if s == 1 else ("planes", (n, c, s), (n * c, s))


def _block(x) -> int:
    """Threads of a block that walks along a plane."""
    return GPU_BLOCK if on_gpu(x) else CPU_BLOCK


def _elementwise_tiling(version: str, shape: tuple[int, ...], block: int):
    """Grid and block for one thread an element of a two-dimensional array."""
    rows, columns = shape
    if version == "columns":
        bx, by = COLUMN_BLOCK
        return (ceil_div(rows, by), ceil_div(columns, bx)), COLUMN_BLOCK
    return (rows, ceil_div(columns, block)), block


def _reduction_tiling(version: str, channels: int, block: int):
    """Grid and block for sums over each channel."""
    if version == "columns":
        return ceil_div(channels, COLUMN_BLOCK[0]), COLUMN_BLOCK
    return channels, block


_plans: dict[tuple, Callable] = {}


def _key(name: str, *arrays) -> tuple:
    """What the plan of a call depends on."""
    parts = (None if a is None else (a.shape, a.dtype) for a in arrays)
    return name, type(arrays[0]), *parts


def _plan_statistics(x):
    version, view, _ = _view(x)
    acc_t, block = scalar_type(x.dtype), _block(x)
    columns = version == "columns"
    kernel = statistics_columns(acc_t) if columns else statistics_planes(acc_t, block)
    tiling = _reduction_tiling(version, x.shape[1], block)
    return launcher("batch_norm", version, kernel, *tiling), view


def batch_norm(x, weight, bias, eps: float):
    """Normalise x (N, C, ...) by the statistics of the batch, then scale and shift.

    weight and bias are (C,) or None. Returns y, mean (C,) and invstd (C,) = 1 / sqrt(biased
    variance + eps), the last two in the dtype that 16-bit floats are computed in. Raises ValueError
    for shapes, TypeError for dtypes that do not fit.
    """
    key = _key("statistics", x)
    plan = _plans.get(key)
    if plan is None:
        _check("batch_norm", x, weight, bias)
        plan = _plans[key] = _plan_statistics(x)
    run, view = plan
    dtype = compute_dtype(x.dtype)
    mean, invstd = (empty(x.shape[1:2], dtype, x) for _ in range(2))
    x = contiguous(x)
    if x.shape[1]:
        run(x.reshape(view), mean, invstd, dtype.type(eps))
    return batch_norm_apply(x, mean, invstd, weight, bias), mean, invstd


def _plan_apply(x, mean, invstd, weight, bias):
    _check("batch_norm_apply", x, mean, invstd, weight, bias)
    version, _, view = _view(x)
    make = apply_columns if version == "columns" else apply_planes
    kernel = make(scalar_type(x.dtype), weight is not None, bias is not None)
    run = launcher(
        "batch_norm_apply", version, kernel, *_elementwise_tiling(version, view, _block(x))
    )
    return run, view, empty((1,), x.dtype, x)


def batch_norm_apply(x, mean, invstd, weight, bias):
    """(x - mean) * invstd * weight + bias per channel of x (N, C, ...); weight, bias or None."""
    key = _key("apply", x, mean, invstd, weight, bias)
    plan = _plans.get(key)
    if plan is None:
        plan = _plans[key] = _plan_apply(x, mean, invstd, weight, bias)
    run, view, none = plan
    y = empty(x.shape, x.dtype, x)
    if y.size:
        weight = none if weight is None else contiguous(weight)
        bias = none if bias is None else contiguous(bias)
        stats = contiguous(mean), contiguous(invstd)
        run(contiguous(x).reshape(view), *stats, weight, bias, y.reshape(view))
    return y


def _plan_backward(g, x, mean, invstd, weight):
    name = "batch_norm_backward"
    _check(name, x, mean, invstd, weight)
    if g.shape != x.shape or g.dtype != x.dtype:
        raise ValueError(f"{name}: expected g like x, {x.shape} {x.dtype}, got {g.shape} {g.dtype}")
    version, channels_view, view = _view(x)
    columns, acc_t = version == "columns", scalar_type(x.dtype)
    block = _block(x)
    sums = sums_columns(acc_t) if columns else sums_planes(acc_t, block)
    gradient = (gradient_columns if columns else gradient_planes)(acc_t, weight is not None)
    run_sums = launcher(name, version, sums, *_reduction_tiling(version, x.shape[1], block))
    run_gradient = launcher(name, version, gradient, *_elementwise_tiling(version, view, block))
    dtype = compute_dtype(x.dtype)
    count = dtype.type(max(x.size // max(x.shape[1], 1), 1))
    return run_sums, run_gradient, channels_view, view, dtype, count, empty((1,), x.dtype, x)


def batch_norm_backward(g, x, mean, invstd, weight):
    """Gradients of batch_norm with respect to x, weight (C,) and bias (C,), for g like x."""
    key = _key("backward", g, x, mean, invstd, weight)
    plan = _plans.get(key)
    if plan is None:
        plan = _plans[key] = _plan_backward(g, x, mean, invstd, weight)
    run_sums, run_gradient, channels_view, view, dtype, count, none = plan
    g, x, mean, invstd = (contiguous(a) for a in (g, x, mean, invstd))
    dx = empty(x.shape, x.dtype, x)
    dweight, dbias = (empty(x.shape[1:2], dtype, x) for _ in range(2))
    if x.shape[1]:
        sums = (g.reshape(channels_view), x.reshape(channels_view))
        run_sums(*sums, mean, invstd, dweight, dbias)
    if dx.size:
        weight = none if weight is None else contiguous(weight)
        flat = (g.reshape(view), x.reshape(view))
        run_gradient(*flat, mean, invstd, weight, dweight, dbias, count, dx.reshape(view))
    return dx, dweight, dbias
