"""Losses of `minigrad.nn.functional` beyond the common ones, in torch's names and arguments."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import minigrad
from minigrad.autograd.mode import autocasts
from minigrad.backends import every_element
from minigrad.nn._losses import _reduce, legacy_reduction, not_cast
from minigrad.ops.bounds import check_bounds, check_values
from minigrad.ops.combine import pad_constant
from minigrad.ops.composed import composed
from minigrad.ops.pointwise import POINTWISE, check_floating
from minigrad.tensor import Tensor

LOG_ADD, CTC_STEP = POINTWISE["logaddexp"], POINTWISE["ctc_step"]
IMPOSSIBLE = -1e30  # the logarithm of a probability of zero, in the recursion of ctc_loss


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
        raise RuntimeError(f"ctc_loss: expected log_probs (T, N, C), got {list(log_probs.shape)}")
    if not log_probs.numel():
        raise RuntimeError(f"ctc_loss: log_probs must not be empty, got {list(log_probs.shape)}")
    single = log_probs.dim() == 2
    probs = log_probs.unsqueeze(1) if single else log_probs
    steps, batch, classes = probs.shape
    times, lengths = _lengths(input_lengths, batch), _lengths(target_lengths, batch)
    _check_ctc(times, lengths, steps, batch, blank, classes)
    labels = _labels(targets, lengths, blank)
    where: dict[str, Any] = {"device": probs.device}
    spelled = minigrad.as_tensor(labels, **where)
    emitted = probs.transpose(0, 1).gather(2, spelled.unsqueeze(1).expand(-1, steps, -1))
    total = _spelled(emitted, spelled, times, blank)
    ends = minigrad.as_tensor(lengths, **where) * 2
    last = total.gather(1, ends.unsqueeze(1)).squeeze(1)
    before = total.gather(1, (ends - 1).clamp(min=0).unsqueeze(1)).squeeze(1)
    before = minigrad.where(ends > 0, before, IMPOSSIBLE)
    loss = -LOG_ADD(last, before)
    # torch's gradient holds for log_probs that are normalised: it has that of their mass added.
    running = minigrad.arange(steps, **where).unsqueeze(1) < minigrad.as_tensor(times, **where)
    mass = (probs.exp() * running.unsqueeze(2)).sum((0, 2))
    loss = loss + (mass - mass.detach())
    impossible = loss > -IMPOSSIBLE / 10
    if zero_infinity:
        loss = minigrad.where(impossible, 0.0, loss)
    else:  # as a factor, for the gradient is not to be finite either
        loss = loss * minigrad.ones_like(loss).masked_fill(impossible, math.inf)
    if reduction == "mean":
        loss = loss / minigrad.as_tensor([max(n, 1) for n in lengths], dtype=loss.dtype, **where)
    loss = loss.squeeze(0) if single and reduction == "none" else loss
    return _reduce(loss, reduction)


def _lengths(given: Any, batch: int) -> list[int]:
    values = given.tolist() if isinstance(given, Tensor) else given
    return [int(v) for v in values] if isinstance(values, list | tuple) else [int(values)] * batch


def _check_ctc(
    times: list, lengths: list, steps: int, batch: int, blank: int, classes: int
) -> None:
    if not 0 <= blank < classes:
        raise RuntimeError(f"blank must be in label range: 0 to {classes - 1}, got {blank}")
    if len(times) != batch or len(lengths) != batch:
        raise RuntimeError(
            f"input_lengths and target_lengths must be of size batch_size {batch}, got "
            f"{len(times)} and {len(lengths)}"
        )
    if max(times) > steps or min(times) < 0 or min(lengths) < 0:
        raise RuntimeError(
            f"Expected input_lengths to have value at most {steps}, and no length below zero, but "
            f"got input_lengths {times} and target_lengths {lengths}"
        )


def _labels(targets: Tensor, lengths: list[int], blank: int) -> list[list[int]]:
    """The targets with a blank before, between and after, padded by blanks to one length."""
    given = targets.tolist()
    if targets.dim() == 1:
        if len(given) < sum(lengths):
            raise RuntimeError(
                f"ctc_loss: expected {sum(lengths)} targets in one vector, got {len(given)}"
            )
        starts = [sum(lengths[:i]) for i in range(len(lengths))]
        given = [given[s : s + n] for s, n in zip(starts, lengths, strict=True)]
    elif targets.shape[1] < max(lengths):
        raise RuntimeError(
            f"Expected tensor to have size at least {max(lengths)} at dimension 1, but got size "
            f"{list(targets.shape)} for targets"
        )
    longest = max(lengths)
    rows = []
    for row, n in zip(given, lengths, strict=True):
        padded = [int(v) for v in row[:n]] + [blank] * (longest - n)
        rows.append([blank, *(label for v in padded for label in (v, blank))])
    return rows


def _spelled(emitted: Tensor, labels: Tensor, times: list[int], blank: int) -> Tensor:
    """For each prefix of the labels (N, L), the logarithm of the probability that it is spelled
    after the time of its sequence; emitted (N, T, L)."""
    batch, steps, count = emitted.shape
    impossible = emitted.new_full((batch, count), IMPOSSIBLE)
    first = minigrad.arange(count, device=emitted.device) < 2
    emissions = emitted.unbind(1)
    total = minigrad.where(first, emissions[0], impossible)
    skips = (labels[:, 2:] != blank) & (labels[:, 2:] != labels[:, :-2])
    toll = impossible.new_zeros((batch, count - 2)).masked_fill(~skips, IMPOSSIBLE)
    toll = pad_constant(toll, (2, 0), IMPOSSIBLE)[:, :count]  # of a step over a label
    times, shortest = minigrad.as_tensor(times, device=emitted.device), min(times)
    for t in range(1, steps):
        before = pad_constant(total, (2, 0), IMPOSSIBLE)
        step = CTC_STEP(total, before[:, 1:-1], before[:, :-2], toll, emissions[t])
        total = step if t < shortest else minigrad.where((times > t).unsqueeze(1), step, total)
    return total


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
