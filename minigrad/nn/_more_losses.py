"""Losses of `minigrad.nn.functional` beyond the common ones, in torch's names and arguments."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import minigrad
from minigrad.autograd.mode import autocasts
from minigrad.backends import every_element
from minigrad.nn._losses import _reduce, legacy_reduction, not_cast
from minigrad.ops.bounds import check_bounds, check_values
from minigrad.ops.composed import composed
from minigrad.ops.ctc import ctc
from minigrad.ops.pointwise import POINTWISE, check_floating
from minigrad.tensor import Tensor, wrap


@autocasts
def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """Connectionist temporal classification (Graves et al. 2006): minus the logarithm of the
    probability that log_probs (T, N, C), or (T, C), spells the targets.

    targets: (N, S), or all of them in one vector; none is `blank`. input_lengths, target_lengths:
    (N,). "mean" divides each loss by its target's length first. zero_infinity: a target that cannot
    be spelled in its time costs zero, and has no gradient.
    """
    if log_probs.dim() not in (2, 3):
        raise RuntimeError(
            "Expected 3-dimensional tensor log_probs (T, N, C), or (T, C) of one sequence, but got "
            f"{list(log_probs.shape)} (while checking arguments for ctc_loss)"
        )
    if not log_probs.numel():
        raise RuntimeError(f"log_probs tensor must not be empty, got {list(log_probs.shape)}")
    check_floating("ctc_loss", log_probs)
    single = log_probs.dim() == 2
    probs = log_probs.unsqueeze(1) if single else log_probs
    steps, batch, classes = probs.shape
    if not 0 <= blank < classes:
        raise RuntimeError(f"blank must be in label range: 0 to {classes - 1}, got {blank}")
    times = _lengths("input_lengths", input_lengths, batch, steps)
    lengths = _lengths("target_lengths", target_lengths, batch)
    labels = _labels(targets, lengths, classes)
    ends, counts = (minigrad.as_tensor(n, device=probs.device) for n in (times, lengths))
    loss = ctc(probs, labels.to(probs.device), ends, counts, blank, zero_infinity)
    if reduction == "mean":
        loss = loss / counts.clamp(min=1)
    loss = loss.squeeze(0) if single and reduction == "none" else loss
    return _reduce(loss, reduction)


def _lengths(name: str, given: Any, batch: int, most: int | None = None) -> list[int]:
    """A length for each sequence, checked."""
    if isinstance(given, Tensor):
        if given.is_floating_point() or given.is_complex() or given.dtype == minigrad.bool:
            raise RuntimeError(f"{name} must be integral, got {given.dtype}")
        given = given.tolist()
    many = list(given) if isinstance(given, list | tuple) else [given] * batch
    lengths = [operator.index(n) for n in many]
    if len(lengths) != batch:
        raise RuntimeError(f"{name} must be of size batch_size {batch}, got {len(lengths)}")
    for n in lengths:
        limit = "least 0" if n < 0 else f"most {most}"
        if n < 0 or (most is not None and n > most):
            raise RuntimeError(
                f"Expected {name} to have value at {limit}, but got value {n} (while checking "
                "arguments for ctc_loss)"
            )
    return lengths


def _labels(targets: Tensor, lengths: list[int], classes: int) -> Tensor:
    """The targets (N, longest), in int64, with 0 beyond the length of each."""
    targets, longest = targets.detach().to(minigrad.int64), max(lengths)
    places = minigrad.arange(longest, device=targets.device)
    counts = minigrad.as_tensor(lengths, device=targets.device).unsqueeze(1)
    if targets.dim() == 1:
        _check_targets(targets, 0, "", sum(lengths))
        starts = counts.cumsum(0) - counts
        labels = targets[(starts + places).clamp(max=len(targets) - 1)] if longest else targets
        labels = labels.reshape(len(lengths), longest)
    elif targets.dim() == 2:
        _check_targets(targets, 0, "", len(lengths))
        _check_targets(targets, 1, "at least ", longest)
        labels = targets[:, :longest]
    else:
        raise _of_targets(f"Expected 1 to 2 dimensions, but got {targets.dim()}-dimensional tensor")
    labels = minigrad.where(places < counts, labels, 0)
    return wrap(check_bounds(labels._array, 0, classes, _wrong_label))


def _wrong_label(wrong: int) -> RuntimeError:
    return RuntimeError(f"ctc_loss: target {wrong} is none of the classes of log_probs")


def _check_targets(targets: Tensor, dim: int, least: str, size: int) -> None:
    got = targets.shape[dim]
    if got < size or (got > size and not least):
        raise _of_targets(
            f"Expected tensor to have size {least}{size} at dimension {dim}, but got size {got}"
        )


def _of_targets(message: str) -> RuntimeError:
    return RuntimeError(
        f"{message} for argument #2 'targets' (while checking arguments for ctc_loss)"
    )


@autocasts
def poisson_nll_loss(
    input: Tensor,
    target: Tensor,
    log_input: bool = True,
    full: bool = False,
    size_average: bool | None = None,
    eps: float = 1e-8,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """exp(input) - target * input, or with log_input=False input - target * log(input + eps).

    full: adds Stirling's approximation of log(target!) where target > 1.
    """
    reduction = legacy_reduction(size_average, reduce, reduction)
    loss = input.exp() - target * input if log_input else input - target * (input + eps).log()
    if full:
        stirling = target * target.log() - target + 0.5 * (2 * math.pi * target).log()
        loss = loss + minigrad.where(target > 1, stirling, 0.0)
    return _reduce(loss, reduction)


def gaussian_nll_loss(
    input: Tensor,
    target: Tensor,
    var: Any,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Tensor:
    """(log(var) + (input - target)**2 / var) / 2, var at least eps; full: plus log(2 pi) / 2."""
    if not isinstance(var, Tensor):
        var = minigrad.full_like(input, float(var))
    elif var.shape != input.shape:
        if var.shape == input.shape[:-1]:
            var = var.unsqueeze(-1)
        elif var.dim() != input.dim() or _sizes_that_differ(var, input) != [1]:
            raise ValueError("var is of incorrect size")
    if bool((var < 0).any()):
        raise ValueError("var has negative entry/entries")
    bounded = var.clone()
    with minigrad.no_grad():
        bounded.clamp_(min=eps)
    loss = 0.5 * (bounded.log() + (input - target) ** 2 / bounded)
    return _reduce(loss + 0.5 * math.log(2 * math.pi) if full else loss, reduction)


def _sizes_that_differ(a: Tensor, b: Tensor) -> list[int]:
    """The sizes of `a` that those of `b` are not."""
    return [n for n, m in zip(a.shape, b.shape, strict=True) if n != m]


@autocasts
def hinge_embedding_loss(
    input: Tensor,
    target: Tensor,
    margin: float = 1.0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """input where target is 1, max(0, margin - input) where it is -1"""
    reduction = legacy_reduction(size_average, reduce, reduction)
    return _reduce(composed(_hinges, input, target.detach(), margin=margin), reduction)


def _hinges(input: Tensor, target: Tensor, margin: float) -> Tensor:
    apart = minigrad.where(target != 1, (margin - input).clamp(min=0), 0.0)
    return apart + minigrad.where(target != -1, input, 0.0)


@autocasts
def soft_margin_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """log(1 + exp(-target * input)) for targets 1 and -1"""
    reduction = legacy_reduction(size_average, reduce, reduction)
    if target.requires_grad and minigrad.is_grad_enabled():
        raise RuntimeError(
            "The function 'soft_margin_loss' is not differentiable with respect to argument "
            "'target'. This input cannot have requires_grad True."
        )
    product = -input * target
    if product.shape != input.shape:
        raise RuntimeError(
            f"output with shape {list(input.shape)} doesn't match the broadcast shape "
            f"{list(product.shape)}"
        )
    if not input.is_floating_point():
        raise not_cast(product.float(), input)
    return _reduce(product.exp().log1p().to(input.dtype), reduction, "SoftMarginLoss")


@autocasts
def multi_margin_loss(
    input: Tensor,
    target: Tensor,
    p: int = 1,
    margin: float = 1.0,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Sum over the classes i but the target y of max(0, margin - input[y] + input[i])**p / C."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    if p not in (1, 2):
        raise ValueError("only p == 1 and p == 2 supported")
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{reduction} is not a valid value for reduction")
    check_floating("multi_margin_loss", input)
    if input.dim() > 2 or 0 in input.shape[1:]:
        raise RuntimeError(
            f"Expected non-empty vector or matrix with optional 0-dim batch size, but got: "
            f"{list(input.shape)}"
        )
    x = input if input.dim() == 2 else input.reshape(1, -1)
    if target.dim() > 1 or target.numel() != x.shape[0]:
        raise RuntimeError(
            "target tensor should be 1-D with size equal to the batch size. Expected target size "
            f"[{x.shape[0]}], but got {list(target.shape)}"
        )
    if weight is not None and weight.dim() != 1:
        raise ValueError("weight must be one-dimensional")
    if weight is not None and tuple(weight.shape) != (x.shape[1],):
        raise RuntimeError(f"inconsistent weight size, expected {x.shape[1]} elements")
    check_bounds(target._array, 0, x.shape[1], _wrong_target)
    loss = composed(_multi_margins, x, target.reshape(-1, 1), weight, p=p, margin=margin)
    return _reduce(loss if target.dim() else loss.squeeze(0), reduction)


def _wrong_target(wrong: int) -> RuntimeError:
    return RuntimeError("target out of range")


def _multi_margins(x: Tensor, y: Tensor, weight: Tensor | None, p: int, margin: float) -> Tensor:
    own = x.gather(1, y)
    terms = (margin - own + x).clamp(min=0)
    terms = terms if p == 1 else terms * terms
    if weight is not None:
        terms = terms * weight.gather(0, y.reshape(-1)).reshape(-1, 1)
    return terms.scatter(1, y, _zeros_as(own)).sum(1) / x.shape[1]


def _zeros_as(x: Tensor) -> Tensor:
    """Zeros of x's shape, by an operation."""
    return POINTWISE["where"](False, x.detach(), 0.0)


@autocasts
def multilabel_margin_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Sum over targets j and other classes i of max(0, 1 - input[j] + input[i]) / C.

    target: (N, C) or (C,), the classes of each sample, then -1.
    """
    reduction = legacy_reduction(size_average, reduce, reduction)
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{reduction} is not a valid value for reduction")
    check_floating("multilabel_margin_loss", input)
    if input.dim() > 2 or 0 in input.shape[1:] or not input.dim() <= target.dim() + 1:
        raise RuntimeError(
            f"Expected non-empty vector or matrix with optional 0-dim batch size, but got: "
            f"{list(input.shape)}"
        )
    if input.shape != target.shape and not (input.dim() < 2 and input.numel() == target.numel()):
        raise RuntimeError(
            f"inconsistent target size: {list(target.shape)} for input of size: {list(input.shape)}"
        )
    x, y = (v if v.dim() == 2 else v.reshape(1, -1) for v in (input, target))
    if not x.shape[1]:
        raise RuntimeError(f"Expected non-empty vector or matrix, but got: {list(input.shape)}")
    check_values(_check_classes, every_element(y._array), x.shape[1])
    loss = composed(_multilabel_margins, x, y)
    return _reduce(loss if input.dim() == 2 else loss.squeeze(0), reduction)


def _check_classes(classes: Any, count: int) -> None:
    if classes.size and not (classes.min() >= -1 and classes.max() < count):
        raise RuntimeError("argument #2 'target' is out of range")


def _multilabel_margins(x: Tensor, y: Tensor) -> Tensor:
    before_end = (y < 0).to(minigrad.int64).cumsum(1) == 0
    safe = minigrad.where(before_end, y, 0)
    counts = _zeros_as(x).scatter_add(1, safe, before_end.to(x.dtype))
    terms = (1 - x.gather(1, safe).unsqueeze(2) + x.unsqueeze(1)).clamp(min=0)
    pairs = before_end.unsqueeze(2) & (counts == 0).unsqueeze(1)
    return minigrad.where(pairs, terms, 0.0).sum((1, 2)) / x.shape[1]


def multilabel_soft_margin_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Binary cross-entropy of logits, averaged over the classes (last dimension)."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    logs = minigrad.nn.functional.logsigmoid
    loss = -(target * logs(input) + (1 - target) * logs(-input))
    loss = loss if weight is None else loss * weight
    return _reduce(loss.sum(-1) / input.shape[-1], reduction)


def triplet_margin_with_distance_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """max(0, margin + d(anchor, positive) - d(anchor, negative)); d: pairwise_distance unless
    given. swap: the distance of positive and negative, where it is smaller."""
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    distance = distance_function or minigrad.nn.functional.pairwise_distance
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = POINTWISE["minimum"](far, distance(positive, negative))
    return _reduce((margin + near - far).clamp(min=0), reduction)
