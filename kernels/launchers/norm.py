"""Batch normalisation, and the gradient of group norm: how x is seen, and the launches."""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple

import numpy as np
from numpy import ndarray

import kernels
from kernels.families import Family, Operation, floats, normal, ones
from kernels.launchers.common import (
    BLOCKS,
    CPU_BLOCK,
    GPU_BLOCK,
    MAX_BLOCK,
    Dialect,
    ceil_div,
    check_floating,
    check_version,
    compute_dtype,
    contiguous,
    empty,
    launcher,
    namespace,
    on_gpu,
    parts_of,
    splits,
    warps_a_block,
    zeros,
)
from kernels.launchers.plans import Plans, place
from kernels.launchers.pointwise import pointwise
from kernels.launchers.reduction import reduce
from kernels.launchers.relaunch import remembered
from kernels.launchers.row_norm import layer_norm_backward
from kernels.launchers.transpose import copy
from kernels.pointwise import TABLE, Expr

SPLIT = {"split": "few channels: several blocks per channel, whose sums are added up after"}
COLUMN_BLOCK = (32, 8)
SMALL_PLANE, MANY = 49, 4096  # elements of planes, and of x, that a CPU takes side by side
LEAST_ROWS, LEAST_ELEMENTS = 64, 4096  # of a channel that a block adds up where it is split


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
    (n, c), s = x.shape[:2], math.prod(x.shape[2:])
    return ("columns", (n, c), (n, c)) if s == 1 else ("planes", (n, c, s), (n * c, s))


def _is_small(x) -> bool:
    """Whether x has small planes on a CPU: with a block each, most of its time is their ends."""
    return not on_gpu(x) and 1 < math.prod(x.shape[2:]) <= SMALL_PLANE and x.size >= MANY


def _block(x) -> int:
    """Threads of a block that walks along a plane."""
    return GPU_BLOCK if on_gpu(x) else CPU_BLOCK


def _elementwise_tiling(version: str, shape: tuple[int, ...], block: int, each: int):
    """Grid and block for one thread an element of a two-dimensional array, or `each` of a plane."""
    rows, columns = shape
    if version == "columns":
        bx, by = COLUMN_BLOCK
        return (ceil_div(rows, by), ceil_div(columns, bx)), COLUMN_BLOCK
    block = MAX_BLOCK if block == CPU_BLOCK else block
    return rows * ceil_div(columns, each * block), block


def _reduction_tiling(version: str, channels: int, block: int):
    """Grid and block for sums over each channel."""
    if version == "columns":
        return ceil_div(channels, COLUMN_BLOCK[0]), COLUMN_BLOCK
    return channels, block


class _Parts(NamedTuple):
    """A channel split over blocks. columns: each has `span` rows of x (N, C). planes: part p has
    every (number / pieces)-th image from p // pieces on, of which it has piece p % pieces, `span`
    elements of the plane."""

    number: int
    pieces: int
    span: int

    def sizes(self, rows: int, plane: int) -> list[int]:
        """The elements of each part, for a channel of so many rows (N) and elements of a plane."""
        if not self.pieces:
            return [min(self.span, rows - first) for first in range(0, rows, self.span)]
        step = self.number // self.pieces
        return [
            len(range(p // self.pieces, rows, step))
            * min(self.span, plane - p % self.pieces * self.span)
            for p in range(self.number)
        ]


def _parts(x, version: str | None) -> _Parts | None:
    """How the channels of x are split over blocks; None where each has one."""
    (n, c), s = x.shape[:2], math.prod(x.shape[2:])
    forced = version == "split"
    if not (forced or on_gpu(x)) or not x.size:
        return None
    if s == 1:
        count, span = parts_of(ceil_div(c, COLUMN_BLOCK[0]), n, LEAST_ROWS, forced)
        return _Parts(count, 0, span) if count > 1 or forced else None
    count = splits(c, n * s, LEAST_ELEMENTS, wanted=4 * BLOCKS)
    if count == 1 and not forced:
        return None
    of_images = min(n, max(count, 2))
    span = ceil_div(s, max(ceil_div(count, of_images), 2 if forced else 1))
    pieces = ceil_div(s, span)
    return _Parts(of_images * pieces, pieces, span)


_plans = Plans()


def _key(dialect: Dialect, name: str, version: str | None, *arrays) -> tuple:
    """What the plan of a call depends on."""
    where = type(arrays[0]) is ndarray or place(arrays[0])
    seen = (None if a is None else (a.shape, a.dtype) for a in arrays)
    return dialect, name, version, where, *seen


def _plan_split_statistics(dialect: Dialect, x, parts: _Parts):
    """As `_plan_statistics`: the means and squares of parts of a channel, then those of all."""
    layout, view, _ = _view(x)
    acc_t, block, c = dialect.common.scalar_type(x.dtype), _block(x), x.shape[1]
    kernels, name, dtype = dialect.norm, "batch_norm", compute_dtype(x.dtype)
    make = kernels.split_columns if layout == "columns" else kernels.split_planes
    kernel = make(acc_t) if layout == "columns" else make(acc_t, block)
    grid, block = _reduction_tiling(layout, c, block)
    run = launcher(name, "split", kernel, (grid, parts.number), block)
    merge = launcher(
        name, "split", kernels.merge(acc_t), ceil_div(c, COLUMN_BLOCK[0]), COLUMN_BLOCK
    )
    sizes = parts.sizes(x.shape[0], math.prod(x.shape[2:]))
    sizes = namespace(x).asarray(np.array(sizes, dtype))

    def statistics(x, mean, invstd, eps):
        means, squares = (empty((parts.number, c), dtype, x) for _ in range(2))
        run(x, sizes, means, squares, *parts[1:])
        merge(means, squares, sizes, mean, invstd, eps)

    return statistics, view


def _plan_small_statistics(dialect: Dialect, x):
    """As `_plan_statistics`, for small planes: the mean and squares of each element's column, which
    are then the parts of a channel."""
    (n, c), s = x.shape[:2], math.prod(x.shape[2:])
    acc_t, dtype, name = dialect.common.scalar_type(x.dtype), compute_dtype(x.dtype), "batch_norm"
    grid, block = _reduction_tiling("columns", c * s, CPU_BLOCK)
    run = launcher(name, "split", dialect.norm.split_columns(acc_t), (grid, 1), block)
    grid, block = _reduction_tiling("columns", c, CPU_BLOCK)
    merge = launcher(name, "split", dialect.norm.merge(acc_t), grid, block)
    sizes = np.full(s, n, dtype)

    def statistics(x, mean, invstd, eps):
        means, squares = (empty((1, c * s), dtype, x) for _ in range(2))
        run(x, sizes, means, squares, 0, n)
        parts = [copy(dialect, a.reshape(c, s).T) for a in (means, squares)]
        merge(*parts, sizes, mean, invstd, eps)

    return statistics, (n, c * s)


def _plan_statistics(dialect: Dialect, x, version: str | None):
    """The function (x, mean, invstd, eps), and the shape in which it sees x."""
    check_version("batch_norm", version, SPLIT)
    if version is None and _is_small(x):
        return _plan_small_statistics(dialect, x)
    if parts := _parts(x, version):
        return _plan_split_statistics(dialect, x, parts)
    version, view, _ = _view(x)
    acc_t, block = dialect.common.scalar_type(x.dtype), _block(x)
    columns = version == "columns"
    kernel = (
        dialect.norm.statistics_columns(acc_t)
        if columns
        else dialect.norm.statistics_planes(acc_t, block)
    )
    tiling = _reduction_tiling(version, x.shape[1], block)
    return launcher("batch_norm", version, kernel, *tiling), view


@remembered(3)
def batch_norm(dialect: Dialect, x, weight, bias, eps: float, version: str | None = None):
    """Normalise x (N, C, ...) by the statistics of the batch, then scale and shift.

    weight and bias are (C,) or None. Returns y, mean (C,) and invstd (C,) = 1 / sqrt(biased
    variance + eps), the last two in the dtype that 16-bit floats are computed in. Raises ValueError
    for shapes, TypeError for dtypes that do not fit.
    """
    key = _key(dialect, "statistics", version, x)
    plan = _plans.get(key)
    if plan is None:
        _check("batch_norm", x, weight, bias)
        plan = _plans.keep(key, _plan_statistics(dialect, x, version))
    run, view = plan
    dtype = compute_dtype(x.dtype)
    mean, invstd = (empty(x.shape[1:2], dtype, x) for _ in range(2))
    x = contiguous(x)
    if x.shape[1]:
        run(x.reshape(view), mean, invstd, dtype.type(eps))
    return batch_norm_apply(dialect, x, mean, invstd, weight, bias), mean, invstd


def _plan_apply(dialect: Dialect, x, mean, invstd, weight, bias):
    _check("batch_norm_apply", x, mean, invstd, weight, bias)
    version, _, view = _view(x)
    kernels = dialect.norm
    make = kernels.apply_columns if version == "columns" else kernels.apply_planes
    kernel = make(dialect.common.scalar_type(x.dtype), weight is not None, bias is not None)
    name = "batch_norm_apply"
    tiling = _elementwise_tiling(version, view, _block(x), kernels.OF_PLANES)
    run = launcher(name, version, kernel, *tiling)
    return run, view, empty((1,), x.dtype, x)


@remembered(5)
def batch_norm_apply(dialect: Dialect, x, mean, invstd, weight, bias):
    """(x - mean) * invstd * weight + bias per channel of x (N, C, ...); weight, bias or None."""
    key = _key(dialect, "apply", None, x, mean, invstd, weight, bias)
    plan = _plans.get(key)
    if plan is None:
        plan = _plans.keep(key, _plan_apply(dialect, x, mean, invstd, weight, bias))
    if _is_small(x):
        return _apply_small(dialect, x, mean, invstd, weight, bias)
    run, view, none = plan
    y = empty(x.shape, x.dtype, x)
    if y.size:
        weight = none if weight is None else contiguous(weight)
        bias = none if bias is None else contiguous(bias)
        stats = contiguous(mean), contiguous(invstd)
        run(contiguous(x).reshape(view), *stats, weight, bias, y.reshape(view))
    return y


def _line(dialect: Dialect, expr: Expr, like, *arrays, params=()):
    """A line on arrays (N, C, S), of the dtype of `like`, and vectors (C,)."""
    c, wide, own = like.shape[1], compute_dtype(like.dtype), like.dtype
    seen = [contiguous(a).reshape(c, 1) if a.ndim == 1 else a for a in arrays]
    out_dtype = None if wide == own else own
    return pointwise(dialect, expr, *seen, params=params, dtype=wide, out_dtype=out_dtype)


def _apply_small(dialect: Dialect, x, mean, invstd, weight, bias):
    """`batch_norm_apply` for small planes."""
    vectors = [v for v in (mean, invstd, weight, bias) if v is not None]
    line = _APPLY[weight is not None, bias is not None]
    y = _line(dialect, line, x, contiguous(x).reshape(*x.shape[:2], -1), *vectors)
    return y.reshape(x.shape)


def _apply_line(has_weight: bool, has_bias: bool) -> Expr:
    scale = "invstd * weight" if has_weight else "invstd"
    args = ("x", "mean", "invstd", *["weight"] * has_weight, *["bias"] * has_bias)
    text = f"(x - mean) * ({scale}){' + bias' * has_bias}"
    return Expr("batch_norm_apply", args, text)


_APPLY = {flags: _apply_line(*flags) for flags in itertools.product((False, True), repeat=2)}
_GRADIENT = Expr(
    "batch_norm_gradient", ("g", "x", "mean", "scale", "plain", "slope"),
    "scale * (g - plain - (x - mean) * slope)",
)  # fmt: skip
_SHARE = Expr("share", ("d",), "d / count", params=("count",))


def _gradient_small(dialect: Dialect, g, x, mean, invstd, weight, dweight, dbias, count):
    """The gradient of batch norm with respect to x, for small planes."""
    planes = [a.reshape(*x.shape[:2], -1) for a in (g, x)]
    mul, wide = TABLE["mul"], compute_dtype(x.dtype)
    scale = invstd if weight is None else pointwise(dialect, mul, invstd, weight, dtype=wide)
    plain, slope = (pointwise(dialect, _SHARE, d, params=(count,)) for d in (dbias, dweight))
    slope = pointwise(dialect, mul, slope, invstd, dtype=wide)
    return _line(dialect, _GRADIENT, x, *planes, mean, scale, plain, slope).reshape(x.shape)


def _plan_small_sums(dialect: Dialect, name: str, x):
    """As `_plan_sums`, for small planes."""
    (n, c), s = x.shape[:2], math.prod(x.shape[2:])
    acc_t, dtype = dialect.common.scalar_type(x.dtype), compute_dtype(x.dtype)
    grid, block = _reduction_tiling("columns", c * s, CPU_BLOCK)
    run = launcher(name, "columns", dialect.norm.sums_columns(acc_t), grid, block)

    def sums(g, x, mean, invstd):
        repeated = (np.broadcast_to(v.reshape(c, 1), (c, s)) for v in (mean, invstd))
        statistics = [copy(dialect, v).reshape(-1) for v in repeated]
        found = [empty((c * s,), dtype, x) for _ in range(2)]
        run(g.reshape(n, c * s), x.reshape(n, c * s), *statistics, *found)
        return [reduce(dialect, "sum", a.reshape(c, s), 1) for a in found]

    return sums


def _plan_sums(dialect: Dialect, name: str, x, asked: str | None):
    """The function (g, x, mean, invstd) -> dweight, dbias."""
    if asked is None and _is_small(x):
        return _plan_small_sums(dialect, name, x)
    version, view, _ = _view(x)
    columns, acc_t, c = version == "columns", dialect.common.scalar_type(x.dtype), x.shape[1]
    parts, block, dtype = _parts(x, asked), _block(x), compute_dtype(x.dtype)
    kernels = dialect.norm
    grid, threads = _reduction_tiling(version, c, block)
    if parts is None:
        kernel = kernels.sums_columns(acc_t) if columns else kernels.sums_planes(acc_t, block)
        run = launcher(name, version, kernel, grid, threads)
    else:
        make = kernels.split_sums_columns if columns else kernels.split_sums_planes
        kernel = make(acc_t) if columns else make(acc_t, block)
        run = launcher(name, "split", kernel, (grid, parts.number), threads)

    def sums(g, x, mean, invstd):
        given = g.reshape(view), x.reshape(view), mean, invstd
        if parts is None:
            dweight, dbias = (empty((c,), dtype, x) for _ in range(2))
            if c:
                run(*given, dweight, dbias)
            return dweight, dbias
        both = empty((2, parts.number, c), dtype, x)
        run(*given, both[0], both[1], *parts[1:])
        return reduce(dialect, "sum", both, 1)

    return sums


def _plan_backward(dialect: Dialect, g, x, mean, invstd, weight, version: str | None):
    name = "batch_norm_backward"
    _check(name, x, mean, invstd, weight)
    check_version(name, version, SPLIT)
    if g.shape != x.shape or g.dtype != x.dtype:
        raise ValueError(f"{name}: expected g like x, {x.shape} {x.dtype}, got {g.shape} {g.dtype}")
    sums = _plan_sums(dialect, name, x, version)
    layout, _, view = _view(x)
    columns, acc_t = layout == "columns", dialect.common.scalar_type(x.dtype)
    gradient = (dialect.norm.gradient_columns if columns else dialect.norm.gradient_planes)(
        acc_t, weight is not None
    )
    tiling = _elementwise_tiling(layout, view, _block(x), dialect.norm.OF_PLANES)
    run_gradient = launcher(name, layout, gradient, *tiling)
    count = compute_dtype(x.dtype).type(max(x.size // max(x.shape[1], 1), 1))
    return sums, run_gradient, view, count, empty((1,), x.dtype, x)


@remembered(5)
def batch_norm_backward(
    dialect: Dialect, g, x, mean, invstd, weight, fixed: bool = False, version: str | None = None
):
    """Gradients of batch_norm with respect to x, weight (C,) and bias (C,), for g like x; `fixed`:
    those of batch_norm_apply, whose statistics do not depend on x."""
    key = _key(dialect, "backward", version, g, x, mean, invstd, weight)
    plan = _plans.get(key)
    if plan is None:
        plan = _plans.keep(key, _plan_backward(dialect, g, x, mean, invstd, weight, version))
    sums, run_gradient, view, count, none = plan
    g, x, mean, invstd = (contiguous(a) for a in (g, x, mean, invstd))
    dweight, dbias = sums(g, x, mean, invstd)
    if fixed:
        none = zeros(mean.shape, mean.dtype, x)
        return batch_norm_apply(dialect, g, none, invstd, weight, None), dweight, dbias
    if version is None and _is_small(x):
        given = g, x, mean, invstd, weight, dweight, dbias, count
        return _gradient_small(dialect, *given), dweight, dbias
    dx = empty(x.shape, x.dtype, x)
    if dx.size:
        weight = none if weight is None else contiguous(weight)
        flat = (g.reshape(view), x.reshape(view))
        run_gradient(*flat, mean, invstd, weight, dweight, dbias, count, dx.reshape(view))
    return dx, dweight, dbias


def _plan_groups(dialect: Dialect, g, x, mean, invstd, weight):
    """The launch, the shapes in which it sees x and weight, and what stands for no weight."""
    name = "group_norm_backward"
    _check(name, x, weight)
    if g.shape != x.shape or g.dtype != x.dtype:
        raise ValueError(f"{name}: expected g like x, {x.shape} {x.dtype}, got {g.shape} {g.dtype}")
    (n, channels), size = x.shape[:2], math.prod(x.shape[2:])
    groups = mean.shape[-1]
    if not mean.shape == invstd.shape == (n, groups) or not groups or channels % groups:
        raise ValueError(
            f"{name}: expected statistics ({n}, groups) with groups that divide {channels}, got"
            f" {mean.shape} and {invstd.shape}"
        )
    warps = warps_a_block(n * groups, 8, True) if on_gpu(x) else 1
    acc_t = dialect.common.scalar_type(x.dtype)
    kernel = dialect.norm.group_gradient(acc_t, weight is not None, warps)
    run = launcher(name, "groups", kernel, n * groups, (32, warps))
    view = n * groups, channels // groups, size
    return run, view, (groups, channels // groups), empty((1, 1), x.dtype, x)


@remembered(5)
def group_norm_backward(dialect: Dialect, g, x, mean, invstd, weight):
    """Gradients of group norm with respect to x (N, C, ...), weight (C,) and bias (C,).

    g: like x. mean and invstd (N, groups): the statistics of consecutive channels, as `layer_norm`
    gives them. weight: (C,) or None. ValueError for shapes that do not fit.
    """
    key = _key(dialect, "groups", None, g, x, mean, invstd, weight)
    plan = _plans.get(key)
    if plan is None:
        plan = _plans.keep(key, _plan_groups(dialect, g, x, mean, invstd, weight))
    run, view, table, none = plan
    if x.size and view[2] == 1 and not on_gpu(x) and compute_dtype(x.dtype) == x.dtype:
        return _groups_of_rows(dialect, g, x, mean, invstd, weight)
    dx, dtype = empty(x.shape, x.dtype, x), compute_dtype(x.dtype)
    if not x.size:
        return dx, *[zeros(x.shape[1:2], dtype, x) for _ in range(2)]
    given = [contiguous(a).reshape(view) for a in (g, x)]
    given += [contiguous(a).reshape(-1) for a in (mean, invstd)]
    weight = none if weight is None else contiguous(weight).reshape(table)
    each = empty((2, *x.shape[:2]), dtype, x)
    run(*given, weight, *each.reshape(2, *view[:2]), dx.reshape(view))
    return dx, *[reduce(dialect, "sum", part, 0) for part in each]


def _groups_of_rows(dialect: Dialect, g, x, mean, invstd, weight):
    """`group_norm_backward` where a channel is one element: a group is a row of layer norm."""
    shape, (n, channels), groups = x.shape, x.shape[:2], mean.shape[1]
    rows, own = (n, groups, channels // groups), (n, groups, 1)
    g, x = (contiguous(a).reshape(rows) for a in (g, x))
    statistics = [contiguous(a).reshape(own) for a in (mean, invstd)]
    terms = pointwise(dialect, _TERMS, g, x, *statistics, dtype=x.dtype)
    dweight, dbias = (reduce(dialect, "sum", a.reshape(n, channels), 0) for a in (terms, g))
    if weight is not None:
        g = pointwise(dialect, TABLE["mul"], g, contiguous(weight).reshape(rows[1:]), dtype=x.dtype)
    statistics = [a.reshape(n, groups) for a in statistics]
    dx = layer_norm_backward(dialect, g, x, *statistics, None, 1, False)[0]
    return dx.reshape(shape), dweight, dbias


_TERMS = Expr("group_norm_terms", ("g", "x", "mean", "invstd"), "g * (x - mean) * invstd")


def _cost(x, *_, **__):
    per_channel = (x.shape[1:2], compute_dtype(x.dtype))
    return [(x.shape, x.dtype), per_channel, per_channel], 7 * x.size


def _cost_of_apply(x, *_, **__):
    return [(x.shape, x.dtype)], 3 * x.size


def _cost_backward(g, x, *_, **__):
    return _cost(x)[0], 10 * x.size


def _problem(version: str):
    return (_x(version), None, None, 1e-5), {}


def _problem_of_apply(version: str):
    x = _x(version)
    return (x, *[floats(x.shape[1])] * 4), {}


def _problem_backward(version: str):
    x = _x(version)
    return (x, x, *[floats(x.shape[1])] * 3), {}


def _problem_of_groups(version: str):
    x = floats(2, 6, 9, 7)
    return (x, x, *floats(2, 2, 3), floats(6)), {}


def _x(version: str):
    return floats(50, 37) if version == "columns" else floats(4, 3, 9, 7)


def _cases(rng, versions):
    for shape in [(33, 5, 7, 9), (2, 3, 70, 65), (257, 33)]:
        x, g = 2 + 3 * normal(rng, shape), normal(rng, shape)
        weight, bias = normal(rng, shape[1]), normal(rng, shape[1])
        for how in ({}, {"version": "split"}):
            yield "batch_norm", (x, weight, bias, 1e-5), how, 40
        _, mean, invstd = kernels.batch_norm(x, weight, bias, 1e-5, backend="numpy")
        yield "batch_norm_apply", (x, mean, invstd, weight, bias), {}, 40
        for how in ({}, {"version": "split"}):
            yield "batch_norm_backward", (g, x, mean, invstd, weight), how, 2000
        yield "batch_norm_backward", (g, x, mean, invstd, weight), {"fixed": True}, 2000

    for n, channels, size, groups in [(3, 12, 35, 4), (2, 5, 70, 1), (70, 6, 1, 3)]:
        x, g = 2 + 3 * normal(rng, (n, channels, size)), normal(rng, (n, channels, size))
        stats = normal(rng, (n, groups)), 1 + normal(rng, (n, groups)) ** 2
        for weight in (normal(rng, channels), None):
            yield "group_norm_backward", (g, x, *stats, weight), {}, 2000


def _compiled(versions):
    for x in (ones(5, 4, 12, 12), ones(37, 19)):
        per = [ones(x.shape[1]) for _ in range(4)]
        yield "batch_norm_apply", (x, *per), {}
        for how in ({}, {"version": "split"}):
            yield "batch_norm", (x, per[0], per[1], 1e-5), how
            yield "batch_norm_backward", (x, x, *per[:3]), how
    x, per = ones(5, 4, 12, 12), ones(5, 2)
    yield "group_norm_backward", (x, x, per, per, ones(4)), {}


_COLUMNS = {"columns": "x (N, C): threads along the channels"}
FAMILY = Family(
    "norm",
    (
        Operation(
            batch_norm,
            _cost,
            _problem,
            SPLIT,
            {"planes": "a block per channel, two passes", **_COLUMNS},
        ),
        Operation(
            batch_norm_apply,
            _cost_of_apply,
            _problem_of_apply,
            {"planes": "one thread per element, a block per piece of a plane", **_COLUMNS},
        ),
        Operation(
            batch_norm_backward,
            _cost_backward,
            _problem_backward,
            SPLIT,
            {"planes": "two sums per channel, then one thread per element", **_COLUMNS},
        ),
        Operation(
            group_norm_backward,
            _cost_backward,
            _problem_of_groups,
            by_shape={"groups": "a block per group of an image, a warp per channel"},
        ),
    ),
    _cases,
    _compiled,
)
