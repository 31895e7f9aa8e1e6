"""Softmax, logsumexp and the fused cross entropy, with their fused gradients."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from kernels import dispatch
from kernels.pointwise import TABLE, Expr
from kernels.support import wrong_index
from kernels.support.bounds import all_below
from minigrad import dtypes
from minigrad.autograd.mode import mode
from minigrad.autograd.node import Op
from minigrad.backends import array_module, on_gpu
from minigrad.ops import repeated
from minigrad.ops.bounds import check_bounds
from minigrad.ops.index import ScatterAdd
from minigrad.ops.pointwise import POINTWISE
from minigrad.ops.reduce import Dims, axes_of, with_reduced
from minigrad.tensor import Tensor, check_flag, export, functions, normalize_dim, wrap


def _again(name: str, dim: int, *arrays: Any) -> Any:
    """The result of an operation over rows by a remembered launch, or None."""
    operation = dispatch.named(name, dim)
    return dispatch.relaunch(dispatch.tracer, dispatch.active, operation, *arrays)


class Softmax(Op):
    """exp(x) / sum(exp(x)) along a dimension."""

    saves = ()
    saves_outputs = (0,)

    @staticmethod
    def again(x: Any, dim: int) -> Any:
        return _again("softmax", dim, x)

    @staticmethod
    def forward(x: Any, dim: int) -> Any:
        return dispatch.active.softmax(x, dim)

    @staticmethod
    def vjp(ctx: Any, g: Tensor, dim: int) -> tuple:
        (y,) = ctx.tensors()
        if mode.enabled:
            return (y * (g - (g * y).sum(dim, keepdim=True)),)
        found = _again("softmax_backward", dim, g._array, y._array)
        if found is None:
            found = dispatch.active.softmax_backward(g._array, y._array, dim)
        return (wrap(found),)


class LogSoftmax(Op):
    """x - logsumexp(x) along a dimension."""

    saves = ()
    saves_outputs = (0,)

    @staticmethod
    def again(x: Any, dim: int) -> Any:
        return _again("log_softmax", dim, x)

    @staticmethod
    def forward(x: Any, dim: int) -> Any:
        return dispatch.active.log_softmax(x, dim)

    @staticmethod
    def vjp(ctx: Any, g: Tensor, dim: int) -> tuple:
        (y,) = ctx.tensors()
        if mode.enabled:
            return (g - POINTWISE["exp"](y) * g.sum(dim, keepdim=True),)
        found = _again("log_softmax_backward", dim, g._array, y._array)
        if found is None:
            found = dispatch.active.log_softmax_backward(g._array, y._array, dim)
        return (wrap(found),)


class CrossEntropy(Op):
    """Losses (N,) of logits (N, C) against class indices, and the log-sum-exp (N,)."""

    saves_outputs = (1,)

    @staticmethod
    def again(logits: Any, target: Any, weight: Any, ignore_index: int, smoothing: float) -> Any:
        if not _inside(logits, target):
            return None
        losses = _losses(ignore_index, smoothing)
        return dispatch.relaunch(dispatch.tracer, dispatch.active, losses, logits, target, weight)

    @staticmethod
    def forward(logits: Any, target: Any, weight: Any, ignore_index: int, smoothing: float) -> Any:
        losses = _losses(ignore_index, smoothing)
        if _inside(logits, target):
            return dispatch.together(losses, logits, target, weight)
        if not (_checked_beside(target) and target.size):
            return losses(logits, target, weight)
        classes = logits.shape[1]
        expected = wrong_index.expected(array_module(target), target, 0, classes, wrong_class)
        with expected as (record, number):
            checked = _checked_losses(classes, ignore_index, smoothing)
            return dispatch.together(checked, logits, target, weight, record, number)

    @staticmethod
    def vjp(ctx: Any, g: Tensor, ignore_index: int, smoothing: float) -> tuple:
        logits, target, weight, lse = ctx.tensors()
        if mode.enabled:
            wanted = _wanted(logits, target, weight, ignore_index, smoothing)
            probability = POINTWISE["exp"](LogSoftmax.apply(logits, dim=1))
            return (
                g.unsqueeze(1) * (probability * wanted.sum(1, keepdim=True) - wanted),
                None,
                None,
            )
        given = (g, logits, lse, target, weight)
        arrays = [None if t is None else t._array for t in given]
        options = dict(ignore_index=ignore_index, label_smoothing=smoothing)
        found = repeated.run("cross_entropy_backward", *arrays, **options)
        return (wrap(found), None, None)


_WEIGHTED = Expr("nll_weighted", ("x", "scale"), "-x * scale")
_SLOPES = Expr("nll_slopes", ("g", "target", "number"), "where(target == number, -g, 0)")
_EXACT = 1 << 24  # up to here integers are numbers of float32


def _where_kept(x: Any, target: Any, ignore_index: int | None) -> Any:
    """x with 0 where a target is `ignore_index`."""
    if ignore_index is None:
        return x
    ignored = dispatch.active.pointwise(TABLE["eq"], target, ignore_index)
    return dispatch.active.pointwise(TABLE["masked_fill"], x, ignored, params=(0,))


def _weights_of(classes: Any, weight: Any) -> Any:
    return dispatch.active.gather(weight, 0, classes.reshape(-1)).reshape(classes.shape)


@functools.lru_cache
def _nll_slopes(ignore_index: int | None) -> Callable:
    """The gradient of `NllLoss`, as remembered launches know it; numbers: of the classes."""

    def slopes(g: Any, target: Any, classes: Any, weight: Any, numbers: Any) -> Any:
        active = dispatch.active
        if weight is not None:
            g = active.pointwise(TABLE["mul"], g, _weights_of(classes, weight), dtype=g.dtype)
        kept = _where_kept(g, target, ignore_index)[:, None]
        own = active.cast(classes, numbers.dtype)[:, None]  # as vectors have them
        return active.pointwise(_SLOPES, kept, own, numbers, dtype=g.dtype)

    return slopes


class NllLoss(Op):
    """-x at classes along dimension 1, times their weights (C,), which have no gradient; 0 where a
    target is `ignore_index`: x (N, C, ...), target and the result (N, ...). classes: the targets,
    checked, with any class in place of one that is none."""

    saves = (1, 2, 3)
    repeats = True

    @staticmethod
    def forward(x: Any, target: Any, classes: Any, weight: Any, ignore_index: int | None) -> Any:
        active = dispatch.active
        found = active.gather(x, 1, classes[:, None]).reshape(classes.shape)
        if weight is None:
            found = active.pointwise(TABLE["neg"], found)
        else:
            found = active.pointwise(_WEIGHTED, found, _weights_of(classes, weight))
        return _where_kept(found, target, ignore_index)

    @staticmethod
    def vjp(ctx: Any, g: Tensor, ignore_index: int | None) -> tuple:
        target, classes, weight = ctx.tensors()
        shape, xp = ctx.shapes[0], array_module(g._array)
        if not mode.enabled and shape[1] <= _EXACT:
            exact = np.promote_types(g._array.dtype, np.float32)
            numbers = xp.arange(shape[1], dtype=exact).reshape(-1, *(1,) * (len(shape) - 2))
            arrays = [None if t is None else t._array for t in (g, target, classes, weight)]
            found = wrap(dispatch.together(_nll_slopes(ignore_index), *arrays, numbers))
            return found, None, None, None
        slope = -g if weight is None else -g * weight.detach()[classes]
        if ignore_index is not None:
            slope = slope.masked_fill(target == ignore_index, 0)
        zeros = wrap(xp.zeros(shape, g._array.dtype))
        found = ScatterAdd.apply(zeros, classes.unsqueeze(1), slope.unsqueeze(1), dim=1)
        return found, None, None, None


# NaN where all weights are 0, also of a sum that is not: smoothed targets have other classes' too.
_SHARE = Expr("share_of_classes", ("x", "n"), "where(n == 0, 0 / n, x / n)")


def _share(g: Any, divisor: Any) -> Any:
    """g / divisor, as remembered launches know it: their dtypes may differ."""
    return dispatch.active.pointwise(_SHARE, g, divisor, dtype=g.dtype)


class MeanOfClasses(Op):
    """The sum of losses, divided by the sum of the weights (C,) of the targets that are not
    `ignore_index`, or by how many there are; and that divisor. classes: as in `NllLoss`."""

    saves, saves_outputs = (), (1,)
    repeats = True

    @staticmethod
    def forward(loss: Any, target: Any, classes: Any, weight: Any, ignore_index: int | None) -> Any:
        active = dispatch.active
        if weight is None:
            kept = active.pointwise(TABLE["ne"], target, ignore_index)
            divisor = active.reduce("sum", kept, dtype=np.dtype(np.int64))
        else:
            kept = _where_kept(_weights_of(classes, weight), target, ignore_index)
            divisor = active.reduce("sum", kept)
        total = active.reduce("sum", loss)
        return _share(total, divisor), divisor

    @staticmethod
    def vjp(ctx: Any, g: Tensor, ignore_index: int | None) -> tuple:
        (divisor,) = ctx.tensors()
        if mode.enabled:
            share = (g / divisor).masked_fill(divisor == 0, math.nan)
        else:
            share = wrap(dispatch.together(_share, g._array, divisor._array))
        return share.expand(ctx.shapes[0]), None, None, None


def _inside(logits: Any, target: Any) -> bool:
    """Whether targets on the CPU are classes, so that a launch needs no checks."""
    known = type(target) is np.ndarray and logits.ndim == 2 and target.dtype.kind in "iu"
    return known and all_below(target, logits.shape[1])


@functools.lru_cache
def _losses(ignore_index: int, smoothing: float) -> Callable:
    """Losses and log-sum-exps, as remembered launches know them."""

    def cross_entropy(logits: Any, target: Any, weight: Any) -> Any:
        return dispatch.active.cross_entropy(
            logits, target, weight, ignore_index=ignore_index, label_smoothing=smoothing
        )

    return cross_entropy


def _checked_beside(target: Any) -> bool:
    """Whether classes on a GPU are checked by a launch that is remembered with that of the loss."""
    return mode.recorder is None and on_gpu(target)


@functools.lru_cache
def _checked_losses(classes: int, ignore_index: int, smoothing: float) -> Callable:
    """As `_losses`, after a check of the targets (`kernels.support.wrong_index`)."""
    losses = _losses(ignore_index, smoothing)

    def cross_entropy(logits: Any, target: Any, weight: Any, record: Any, number: int) -> Any:
        dispatch.active.checked_index(target, 0, classes, ignore_index, number, record)
        return losses(logits, target, weight)

    return cross_entropy


def _wanted(logits: Tensor, target: Tensor, weight: Any, ignore: int, smoothing: float) -> Tensor:
    """The weights q (N, C) for which the loss is -sum(q * log_softmax(logits))."""
    classes = logits._array.shape[1]
    used = POINTWISE["ne"](target, ignore)
    safe = target.masked_fill(~used, 0)
    numbers = wrap(array_module(logits._array).arange(classes))
    hot = POINTWISE["eq"](safe.unsqueeze(1), numbers).to(logits.dtype)
    smooth = hot * (1 - smoothing) + smoothing / classes
    if weight is not None:
        smooth = smooth * weight
    return smooth.masked_fill(~used.unsqueeze(1), 0)


def _prepared(name: str, x: Tensor, dim: int | None, dtype: Any) -> tuple[Tensor, int]:
    if dtype is not None:
        x = x.to(dtypes.to_numpy_dtype(dtype))  # a number would name a GPU
    if not x.is_floating_point() and x._array.size:
        legacy = x.dtype.legacy_name.removesuffix("Tensor")
        raise NotImplementedError(
            f"\"{name}_lastdim_kernel_impl\" not implemented for '{legacy}'; pass dtype="
        )
    if dim is None:  # torch's legacy default
        dim = 0 if x._array.ndim in (0, 1, 3) else 1
    return x, normalize_dim(dim, x._array.ndim)


_EXP_BELOW = Expr("exp_below", ("x", "m"), "exp(x - where(isinf(m), 0, m))")
_LOG_ABOVE = Expr("log_above", ("t", "m"), "log(t) + where(isinf(m), 0, m)")


@functools.cache
def _log_sum_exp(axes: tuple | None, keepdim: bool) -> Callable:
    """logsumexp over axes, as remembered launches know it."""

    def launches(x: Any) -> Any:
        active = dispatch.active
        most = active.reduce("max", x, axes, True)
        total = active.reduce("sum", active.pointwise(_EXP_BELOW, x, most), axes, True)
        found = active.pointwise(_LOG_ABOVE, total, most)
        if keepdim:
            return found
        return found.reshape([n for d, n in enumerate(x.shape) if axes and d not in axes])

    return launches


class LogSumExp(Op):
    """log(sum(exp(x))) over axes (None: all), shifted by the maximum."""

    saves_outputs = (0,)
    grad_name = "LogsumexpBackward0"

    @staticmethod
    def forward(x: Any, axes: tuple | None, keepdim: bool) -> Any:
        return dispatch.together(_log_sum_exp(axes, keepdim), x)

    @staticmethod
    def vjp(ctx: Any, g: Tensor, axes: tuple | None, keepdim: bool) -> tuple:
        x, y = ctx.tensors()
        g, y = (with_reduced(t, ctx.shapes[0], axes) for t in (g, y))
        return (g * POINTWISE["exp"](x - y),)


@export()
def logsumexp(input: Tensor, dim: Dims, keepdim: bool = False) -> Tensor:
    """log(sum(exp(x))) over `dim`, shifted by the maximum to avoid overflow."""
    check_flag("logsumexp", "keepdim", keepdim)
    known = input.is_floating_point() or input.is_complex()
    x = input if known else input.to(dtypes.get_default_dtype())
    axes = axes_of(dim, x._array.ndim)
    if not x._array.size:
        return POINTWISE["log"](functions.sum(x, axes, keepdim))
    if x._array.dtype.kind == "f" and mode.observer is None:
        return LogSumExp.apply(x, axes=axes, keepdim=keepdim)
    shift = functions.amax(functions.real(x.detach()), axes, keepdim=True)
    shift = shift.masked_fill(POINTWISE["isinf"](shift), 0)
    total = functions.sum(POINTWISE["exp"](x - shift), axes, keepdim)
    return POINTWISE["log"](total) + (shift if keepdim else shift.reshape(total._array.shape))


@export()
def softmax(input: Tensor, dim: int | None = None, dtype: Any = None) -> Tensor:
    """exp(x) / sum(exp(x)) along `dim`."""
    x, place = _prepared("softmax", input, dim, dtype)
    if not x._array.size:
        return x.clone()
    return Softmax.apply(x, dim=place) if x._array.ndim else x * 0 + 1


@export()
def log_softmax(input: Tensor, dim: int | None = None, dtype: Any = None) -> Tensor:
    """log(softmax(x)) along `dim`, computed without overflow."""
    x, place = _prepared("log_softmax", input, dim, dtype)
    if not x._array.size:
        return x.clone()
    return LogSoftmax.apply(x, dim=place) if x._array.ndim else x * 0


def check_class_target(logits: Tensor, target: Tensor, ignore_index: int) -> None:
    """Check (N, C) logits and (N,) class indices of cross_entropy and nll_loss."""
    a, t = logits._array, target._array
    if dtypes.category(t.dtype) != dtypes.INTEGER:
        legacy = target.dtype.legacy_name.removesuffix("Tensor")
        raise RuntimeError(f"expected target dtype to be Long or Byte, but got {legacy}")
    if a.ndim != 2 or t.shape != a.shape[:1]:
        batch = (a.shape[0] if a.ndim else 0, t.shape[0] if t.ndim else 0)
        raise ValueError(
            f"Expected input batch_size ({batch[0]}) to match target batch_size ({batch[1]})."
        )
    if not _checked_beside(t):
        check_bounds(t, 0, a.shape[1], wrong_class, ignore_index)


def wrong_class(wrong: int) -> IndexError:
    """The error of a class index outside of the classes."""
    return IndexError(f"Target {wrong} is out of bounds.")


def cross_entropy(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Tensor:
    """Losses (N,) of logits (N, C) against class indices (N,), not reduced; 0 where ignored.

    weight (C,) scales classes. `nn.functional.cross_entropy` adds reductions, more dimensions and
    probability targets.
    """
    launch_checks = mode.recorder is None and not on_gpu(target._array)
    if not launch_checks:
        check_class_target(logits, target, ignore_index)
    if weight is not None and weight._array.shape != logits._array.shape[1:]:
        raise RuntimeError(
            "cross_entropy: weight tensor should be defined either for all "
            f"{logits._array.shape[1]} classes or no classes but got weight tensor of shape: "
            f"{list(weight.shape)}"
        )
    try:
        return CrossEntropy.apply(
            logits, target, weight, ignore_index=ignore_index, smoothing=label_smoothing
        )[0]
    except (IndexError, TypeError, ValueError):
        if launch_checks:
            check_class_target(logits, target, ignore_index)  # torch's words for it
        raise
