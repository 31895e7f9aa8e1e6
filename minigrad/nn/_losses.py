"""The loss functions of `minigrad.nn.functional`.

Each takes ``reduction`` 'none', 'mean' or 'sum'; ``size_average`` and ``reduce`` are torch's
deprecated form of it.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np

import minigrad
from minigrad.autograd.mode import autocasts, mode
from minigrad.autograd.node import titled
from minigrad.backends import every_element, is_batched, on_gpu
from minigrad.ops import softmax as soft
from minigrad.ops.bounds import check_bounds, check_values
from minigrad.ops.composed import composed
from minigrad.ops.pointwise import POINTWISE, check_floating, is_narrow
from minigrad.tensor import Tensor


def legacy_reduction(size_average: bool | None, reduce: bool | None, reduction: str) -> str:
    """`reduction`, or its equivalent of the deprecated pair of booleans."""
    if size_average is None and reduce is None:
        return reduction
    if reduce is False:
        chosen = "none"
    else:
        chosen = "sum" if size_average is False else "mean"
    warnings.warn(
        "size_average and reduce args will be deprecated, "
        f"please use reduction='{chosen}' instead.",
        stacklevel=3,
    )
    return chosen


def _reduce(loss: Tensor, reduction: str, name: str = "") -> Tensor:
    """name: torch's for the node of the result; by default that of its last operation."""
    if reduction == "mean":
        found = loss.mean()
    elif reduction == "sum":
        found = loss.sum()
    elif reduction == "none":
        found = loss
    else:
        raise ValueError(f"{reduction} is not a valid value for reduction")
    return titled(found, name) if name else found


def not_cast(result: Tensor, target: Tensor) -> RuntimeError:
    """The error where torch writes a result into a tensor of the target's dtype."""
    wide, narrow = (x.dtype.legacy_name.removesuffix("Tensor") for x in (result, target))
    return RuntimeError(f"result type {wide} can't be cast to the desired output type {narrow}")


def _warn_broadcast(input: Tensor, target: Tensor) -> None:
    if input.shape != target.shape:
        warnings.warn(
            f"Using a target size ({target.size()}) that is different to the input size "
            f"({input.size()}). This will likely lead to incorrect results due to broadcasting. "
            "Please ensure they have the same size.",
            stacklevel=3,
        )


# ------------------------------------------------------------------------ regression


@autocasts
def mse_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:
    """(input - target)**2, times `weight` if given (then the mean divides by the sum of weights)"""
    _warn_broadcast(input, target)
    reduction = legacy_reduction(size_average, reduce, reduction)
    return _weighted(POINTWISE["mse"](input, target), weight, reduction, "MseLoss")


@autocasts
def l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:
    """|input - target|, times `weight` if given (then the mean divides by the sum of weights)"""
    _warn_broadcast(input, target)
    reduction = legacy_reduction(size_average, reduce, reduction)
    return _weighted((input - target).abs(), weight, reduction)


def _weighted(loss: Tensor, weight: Tensor | None, reduction: str, name: str = "") -> Tensor:
    if weight is None:
        return _reduce(loss, reduction, name)
    if weight.shape != loss.shape:
        raise ValueError("Weights and input must have the same size.")
    loss = loss * weight
    return loss.sum() / weight.sum() if reduction == "mean" else _reduce(loss, reduction)


@autocasts
def smooth_l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    beta: float = 1.0,
) -> Tensor:
    """0.5 * d**2 / beta where d = |input - target| < beta, else d - 0.5 * beta"""
    _warn_broadcast(input, target)
    reduction = legacy_reduction(size_average, reduce, reduction)
    if beta < 0:
        raise RuntimeError("smooth_l1_loss does not support negative values for beta.")
    if beta == 0:
        return _reduce((input - target).abs(), reduction)
    return _reduce(POINTWISE["smooth_l1"](input, target, params=(beta,)), reduction, "SmoothL1Loss")


@autocasts
def huber_loss(
    input: Tensor,
    target: Tensor,
    reduction: str = "mean",
    delta: float = 1.0,
    weight: Tensor | None = None,
) -> Tensor:
    """0.5 * d**2 where d = |input - target| <= delta, else delta * (d - 0.5 * delta)"""
    _warn_broadcast(input, target)
    if delta <= 0:
        raise RuntimeError("huber_loss does not support non-positive values for delta.")
    return _weighted(
        POINTWISE["huber"](input, target, params=(delta,)), weight, reduction, "HuberLoss"
    )


# ------------------------------------------------------------------------ classes


def _class_weights_checked(input: Tensor, weight: Tensor, classes: bool = True) -> None:
    """classes: whether targets are classes, not probabilities."""
    if classes and mode.enabled and weight.requires_grad:
        name = "nll_loss2d" if input.dim() > 2 else "nll_loss"
        raise RuntimeError(
            f"The function '{name}_forward' is not differentiable with respect to argument "
            "'weight'. This input cannot have requires_grad True."
        )
    classes = input.shape[1] if input.dim() > 1 else input.shape[0]
    if weight.dim() != 1 or weight.numel() != classes:
        raise RuntimeError(
            f"weight tensor should be defined either for all {classes} classes or no classes but "
            f"got weight tensor of shape: {list(weight.shape)}"
        )
    if weight.dtype != input.dtype and input.is_floating_point():
        raise RuntimeError(
            f"expected a weight of input's dtype, {input.dtype}, but found {weight.dtype}"
        )


def _check_batch(shape: tuple[int, ...], given: tuple[int, ...]) -> None:
    if len(shape) > 1 and given and given[0] != shape[0]:
        raise ValueError(
            f"Expected input batch_size ({shape[0]}) to match target batch_size ({given[0]})."
        )


def _classes_last(input: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """(C,) or (N, C, d1, ...) and its targets as (M, C) and (M,)."""
    input, target = _in_batches(input, target)
    if input._array.ndim == 2:
        return input, target
    rows = input.movedim(1, -1)
    return rows.reshape(-1, rows._array.shape[-1]), target.reshape(-1)


def _in_batches(input: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """(C,) or (N, C, d1, ...) and its targets, with a batch; torch's errors for other shapes."""
    shape, given = input._array.shape, target._array.shape
    if not shape:
        raise ValueError("Expected 1 or more dimensions (got 0)")
    if len(shape) == 1 and len(given) == 1:
        if given[0] != 1:
            raise ValueError(
                f"For 1D input, 1D target must have size 1, but got target size: {given[0]}"
            )
        return input.unsqueeze(0), target
    expected = (*shape[:1], *shape[2:]) if len(shape) > 1 else ()
    if given != expected:
        _check_batch(shape, given)
        if len(shape) <= 2:
            raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")
        raise RuntimeError(f"Expected target size {list(expected)}, got {list(given)}")
    return (input, target) if len(shape) > 1 else (input.unsqueeze(0), target.reshape(1))


def reduce_classes(
    loss: Tensor,
    target: Tensor,
    weight: Tensor | None,
    ignore_index: int | None,
    reduction: str,
    shape: Any,
) -> Tensor:
    """Reduce losses, one for each target and 0 where it is `ignore_index`, which is None where none
    is. The mean divides by the sum of the targets' weights, or by how many are not ignored."""
    if reduction == "none":
        return loss if loss._array.shape == shape else loss.reshape(shape)
    if reduction == "sum":
        return loss.sum()
    if reduction != "mean":
        raise ValueError(f"{reduction} is not a valid value for reduction")
    if weight is None and ignore_index is None:
        return loss.mean()
    classes = None if weight is None else _as_classes(target, ignore_index, weight._array.size)
    target = target.long()
    return soft.MeanOfClasses.apply(loss, target, classes, weight, ignore_index=ignore_index)[0]


def _as_classes(target: Tensor, ignore_index: int | None, count: int) -> Tensor:
    """The targets, with a class in place of an `ignore_index` that is none of `count`."""
    classes = target.long()
    if ignore_index is None or 0 <= ignore_index < count:
        return classes
    return classes.masked_fill(classes == ignore_index, 0)


def may_ignore(target: Tensor, ignore_index: int) -> bool:
    """Whether some targets may be ignored; False where the host has seen that none is."""
    if target.is_cuda or target.is_meta or mode.recorder is not None:
        return True
    if ignore_index >= 0 or is_batched(target._array):
        return True
    classes = target._array
    if classes.size and classes.item(classes.argmin()) >= 0:
        return False
    return bool((classes == ignore_index).any())


_CLASS_DTYPES = (np.dtype(np.int64), np.dtype(np.uint8))


def _check_class_dtype(name: str, target: Tensor) -> None:
    if target._array.dtype not in _CLASS_DTYPES:
        raise RuntimeError(
            f"{name}: expected target dtype to be Long or Byte, but got {target.dtype};"
            " use target.long()"
        )


@autocasts
def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """-weight[target] * input[target]: input holds log-probabilities (N, C, ...), target (N, ...)

    Raises IndexError for a target outside the classes that is not `ignore_index`.
    """
    reduction = legacy_reduction(size_average, reduce, reduction)
    _check_class_dtype("nll_loss", target)
    check_floating("nll_loss_out_frame", input)
    if weight is not None:
        _class_weights_checked(input, weight)
    shape = target._array.shape if input._array.ndim > 1 else ()
    input, classes = _in_batches(input, target)
    index = ignore_index if may_ignore(classes, ignore_index) else None
    target, count = classes.long(), input._array.shape[1]
    classes = _as_classes(target, index, count)
    check_bounds(classes._array, 0, count, soft.wrong_class)
    loss = soft.NllLoss.apply(input, target, classes, weight, ignore_index=index)
    found = reduce_classes(loss, target, weight, index, reduction, shape)
    return titled(found, "NllLoss2D" if len(shape) > 1 else "NllLoss")


@autocasts
def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Softmax cross entropy of logits (N, C, ...) or (C,)

    `target` holds classes (N, ...), or probabilities of the shape of `input`.  With classes,
    the loss is one fused kernel, and its gradient another.
    """
    reduction = legacy_reduction(size_average, reduce, reduction)
    if not 0.0 <= label_smoothing <= 1.0:
        raise RuntimeError(f"label_smoothing must be between 0.0 and 1.0. Got: {label_smoothing}")
    probabilities = target._array.shape == input._array.shape
    if weight is not None:
        _class_weights_checked(input, weight, not probabilities)
    if probabilities:
        return _soft_cross_entropy(input, target, weight, ignore_index, reduction, label_smoothing)
    if target._array.ndim == input._array.ndim and target.is_floating_point():
        _check_batch(input._array.shape, target._array.shape)
        raise RuntimeError(
            f"cross_entropy: probability targets need the shape of the input {list(input.shape)}, "
            f"got {list(target.shape)}"
        )
    if not input.is_floating_point():
        raise NotImplementedError(f"cross_entropy: expected floating logits, got {input.dtype}")
    _check_class_dtype("cross_entropy", target)
    if label_smoothing == 0 and _in_planes(input):
        logs = soft.log_softmax(input, 1)
        return nll_loss(logs, target, weight, ignore_index=ignore_index, reduction=reduction)
    rows, classes = _classes_last(input, target)
    loss = soft.cross_entropy(rows, classes, weight, ignore_index, label_smoothing)
    shape = target._array.shape if input._array.ndim > 1 else ()
    index = ignore_index if may_ignore(classes, ignore_index) else None
    found = reduce_classes(loss, classes, weight, index, reduction, shape)
    return titled(found, "NllLoss2D" if len(shape) > 1 else "NllLoss")


def _in_planes(input: Tensor) -> bool:
    """Whether a CPU is faster with logits (N, C, d1, ...) as they lie, by softmax over planes, than
    with rows of classes, which are copies."""
    array = input._array
    if array.ndim < 3 or on_gpu(array) or is_narrow(array) or mode.recorder is not None:
        return False
    return array.size >= 32 * array.shape[0] * array.shape[1] ** 2


def _soft_cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None,
    ignore_index: int,
    reduction: str,
    label_smoothing: float,
) -> Tensor:
    if not target.is_floating_point():
        raise RuntimeError(
            f"Expected floating point type for target with class probabilities, got {target.dtype}"
        )
    if ignore_index >= 0:
        raise RuntimeError("ignore_index is not supported for floating point target")
    dim = 1 if input.dim() > 1 else 0
    if label_smoothing > 0:
        target = target * (1 - label_smoothing) + label_smoothing / input.shape[dim]
    terms = soft.log_softmax(input, dim) * target
    if weight is not None:
        terms = terms * weight.reshape(-1, *(1,) * (input.dim() - 1 - dim))
    loss = -terms.sum(dim)
    if reduction == "mean":
        return loss.sum() / (input.numel() // max(input.shape[dim], 1))
    return _reduce(loss, reduction)


# ------------------------------------------------------------------------ probabilities


@autocasts
def binary_cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """-(target * log(input) + (1 - target) * log(1 - input)), each logarithm at least -100

    Raises RuntimeError if `input` is outside [0, 1].
    """
    reduction = legacy_reduction(size_average, reduce, reduction)
    if input.shape != target.shape:
        raise ValueError(
            f"Using a target size ({target.size()}) that is different to the input size "
            f"({input.size()}) is deprecated. Please ensure they have the same size."
        )
    if target.dtype != input.dtype:
        raise RuntimeError(
            f"binary_cross_entropy: expected a target of input's dtype, {input.dtype}, got "
            f"{target.dtype}; target.to(input.dtype) converts it"
        )
    check_floating("binary_cross_entropy", input)
    check_values(_check_probabilities, every_element(input._array), "input")
    check_values(_check_probabilities, every_element(target._array), "target")
    loss = POINTWISE["bce"](input, target)
    loss = loss if weight is None else loss * weight
    return _reduce(loss, reduction, "BinaryCrossEntropy")


def _check_probabilities(values: Any, name: str) -> None:
    if values.size and not (values.min() >= 0 and values.max() <= 1):
        raise RuntimeError(f"all elements of {name} should be between 0 and 1")


@autocasts
def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """`binary_cross_entropy` of sigmoid(input), without overflow

    pos_weight scales the positive term, broadcast against the target.
    """
    reduction = legacy_reduction(size_average, reduce, reduction)
    if target.shape != input.shape:
        raise ValueError(
            f"Target size ({target.size()}) must be the same as input size ({input.size()})"
        )
    check_floating("log_sigmoid_cpu", input)
    if not target.is_floating_point():
        raise not_cast(input, target)
    if pos_weight is None:
        loss = POINTWISE["bce_logits"](input, target)
    else:
        factor = (pos_weight - 1) * target + 1
        loss = (1 - target) * input - factor * POINTWISE["logsigmoid"](input)
    loss = (loss if weight is None else loss * weight).to(target.dtype)
    return _reduce(loss, reduction, "BinaryCrossEntropyWithLogits")


@autocasts
def kl_div(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    log_target: bool = False,
) -> Tensor:
    """target * (log(target) - input), input log-probabilities; 'batchmean' divides by N

    With `log_target` the target holds log-probabilities too.
    """
    reduction = legacy_reduction(size_average, reduce, reduction)
    for x in (input, target):
        if not x.is_floating_point():
            kind = "Complex" if x.is_complex() else "Integral"
            raise RuntimeError(f"kl_div: {kind} inputs not supported.")
    if reduction == "mean":
        warnings.warn(
            "kl_div: reduction 'mean' divides by batch size times support size; the definition of "
            "the KL divergence is reduction='batchmean'.",
            stacklevel=2,
        )
    if log_target:
        loss = target.exp() * (target - input)
    else:
        loss = POINTWISE["kl_div"](input, target)
    if reduction == "batchmean":
        return loss.sum() / input.shape[0] if input.dim() else loss.sum()
    return _reduce(loss, reduction)


# ------------------------------------------------------------------------ distances


@autocasts
def margin_ranking_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """max(0, -target * (input1 - input2) + margin)"""
    reduction = legacy_reduction(size_average, reduce, reduction)
    _check_same_dims("margin_ranking_loss: input1, input2 and target", input1, input2, target)
    return _reduce((-target * (input1 - input2) + margin).clamp(min=0), reduction)


@autocasts
def cosine_embedding_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """1 - cos where target is 1, max(0, cos - margin) where it is -1"""
    reduction = legacy_reduction(size_average, reduce, reduction)
    if target.dim() > 1 or not input1.dim() == input2.dim() == target.dim() + 1:
        raise RuntimeError(
            f"cosine_embedding_loss: a target of {target.dim()} dimensions expects inputs with one "
            f"more and has at most one, but found inputs with sizes {list(input1.shape)} and "
            f"{list(input2.shape)}"
        )
    loss = composed(_cosine_terms, input1, input2, target.detach(), margin=margin)
    return _reduce(loss, reduction)


def _cosine_terms(input1: Tensor, input2: Tensor, target: Tensor, margin: float) -> Tensor:
    eps = 1e-12
    dot = (input1 * input2).sum(-1)
    squares = ((input1 * input1).sum(-1) + eps) * ((input2 * input2).sum(-1) + eps)
    cos = dot / squares.sqrt()
    near = minigrad.where(target == 1, 1 - cos, 0.0)
    return near + minigrad.where(target == -1, (cos - margin).clamp(min=0), 0.0)


@autocasts
def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2,
    eps: float = 1e-6,
    swap: bool = False,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """max(0, d(anchor, positive) - d(anchor, negative) + margin)

    d is the p-norm of the difference plus eps; `swap` also considers d(positive, negative).
    """
    reduction = legacy_reduction(size_average, reduce, reduction)
    if margin <= 0 or not math.isfinite(margin):
        raise ValueError(f"margin must be greater than 0, got {margin}")

    _check_same_dims("triplet_margin_loss: the three tensors", anchor, positive, negative)

    def distance(a: Tensor, b: Tensor) -> Tensor:
        return (a - b + eps).norm(p, -1)

    far = distance(anchor, negative)
    if swap:
        far = minigrad.minimum(far, distance(positive, negative))
    return _reduce((distance(anchor, positive) - far + margin).clamp(min=0), reduction)


def _check_same_dims(what: str, *tensors: Tensor) -> None:
    if len({x.dim() for x in tensors}) > 1:
        shapes = ", ".join(str(list(x.shape)) for x in tensors)
        raise RuntimeError(f"{what} should have as many dimensions, but got sizes {shapes}")
