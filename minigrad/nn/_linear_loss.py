"""`linear_cross_entropy`: the loss of a linear layer's logits, in parts of the batch."""

from __future__ import annotations

import dataclasses
import warnings

import minigrad
from minigrad import dtypes
from minigrad.nn._losses import cross_entropy, may_ignore, reduce_classes
from minigrad.ops.matmul import linear
from minigrad.tensor import Tensor

_POLICIES = ("auto", "accurate", "balanced", "compact")
_NARROW = dtypes.float16, dtypes.bfloat16
_SUMS = (None, *_NARROW, dtypes.float32, dtypes.float64)


@dataclasses.dataclass(slots=True, frozen=True)
class LinearCrossEntropyOptions:
    """How `linear_cross_entropy` takes the batch in parts: only one part's logits exist at a time.

    batch_chunk_size: rows of a part; None leaves it to `chunking_method`. chunking_method:
    "aspect_ratio", where a part's logits are about as large as the input; "aspect_ratio:N", an N-th
    of it; "auto" is one of them; None, one part of all rows. ValueError where both are given, and
    differ.

    The others are checked as torch does, and change nothing here. allow_retain_graph: the logits
    are computed again in each backward pass, so that the graph may always be kept. acc_policy,
    acc_dtype: kernels sum in float32 what has 16 bits, and in the inputs' dtype else.
    """

    allow_retain_graph: bool = False
    batch_chunk_size: int | None = None
    chunking_method: str | None = "auto"
    acc_policy: str = "auto"
    acc_dtype: dtypes.dtype | None = None

    def __post_init__(self) -> None:
        if self.acc_policy not in _POLICIES:
            raise ValueError(f"invalid acc_policy: {self.acc_policy!r}; use one of {_POLICIES}")
        if self.chunking_method not in (None, "auto") and not _divisor(self.chunking_method):
            raise ValueError(
                f"invalid chunking_method: {self.chunking_method!r}; use 'auto', 'aspect_ratio',"
                " 'aspect_ratio:2' or None"
            )
        size = self.batch_chunk_size
        if size is not None and not (isinstance(size, int) and size > 0):
            raise ValueError(f"batch_chunk_size must be positive int or None, got {size!r}")
        if self.acc_dtype not in _SUMS:
            raise ValueError(f"acc_dtype must be one of {_SUMS}, got {self.acc_dtype!r}")

    def rows(self, input: Tensor, classes: int) -> int:
        """Of a part of `input` (N, in)."""
        count, features = input.shape
        size, method = self.batch_chunk_size, self.chunking_method
        if method == "auto":
            method = "aspect_ratio" if input.dtype in _NARROW else "aspect_ratio:2"
            method = None if size is not None else method
        if method is None:
            return max(count if size is None else min(size, count), 1)
        times = -(-classes // max(features, 1))  # as large are the logits of a row as its input
        alike = 1 << max(-(-count // max(times, 1)) - 1, 0).bit_length()
        found = min(alike // _divisor(method), count)
        if size not in (None, found):
            raise ValueError(
                f"linear_cross_entropy: batch_chunk_size {size} and chunking_method {method!r}, "
                f"which gives {found}, differ; pass only one"
            )
        return max(found, 1)


def _divisor(method: str) -> int:
    """N of "aspect_ratio:N"; 0 for another text."""
    name, colon, number = method.partition(":")
    if name != "aspect_ratio" or (colon and not (number.isascii() and number.isdigit())):
        return 0
    return int(number) if colon else 1


def linear_cross_entropy(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    *,
    linear_bias: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    options: LinearCrossEntropyOptions | None = None,
) -> Tensor:
    """`cross_entropy` of the logits that a linear layer makes of `input` (N, in) or (in,)

    `linear_weight` is (C, in), or (C, d1, ..., in) for a loss at each of several places, with a
    `linear_bias` (C,) or (C, d1, ...). `ignore_index`: None is -100. With `options` the logits of
    parts of the batch are made one after the other, and again in the backward pass; where that is
    not possible, a warning says so.
    """
    rows, features = list(input.shape), list(linear_weight.shape)
    if not 1 <= len(rows) <= 2 or len(features) < 2:
        raise RuntimeError(
            "linear_cross_entropy: expected an input (N, in) or (in,) and a linear_weight (C, in) "
            f"or (C, d1, ..., in), got {rows} and {features}"
        )
    if rows[-1] != features[-1]:
        raise RuntimeError(
            "expected equal input and linear_weight last dimensions (in_features), "
            f"got {rows[-1]} and {features[-1]}, respectively"
        )
    if linear_bias is not None and list(linear_bias.shape) != features[:-1]:
        raise RuntimeError(
            f"linear_cross_entropy: expected a linear_bias {features[:-1]} beside a linear_weight "
            f"{features}, got {list(linear_bias.shape)}"
        )
    if len(features) > 2 and len(rows) == 1:
        raise RuntimeError(
            f"linear_cross_entropy: a linear_weight {features} needs an input (N, {rows[-1]}), got "
            f"{rows}"
        )
    shape = rows[:-1] + features[:-1]
    if ignore_index is not None and list(target.shape) == shape:
        raise RuntimeError(
            "linear_cross_entropy: ignore_index is a class; leave it out where the target holds "
            "probabilities"
        )
    index = -100 if ignore_index is None else ignore_index
    if options is not None:
        reason = _why_whole(shape, target, reduction, label_smoothing)
        if reason is None:
            given = target, linear_bias, weight, index, reduction
            return _in_parts(input, linear_weight, *given, options)
        warnings.warn(f"linear_cross_entropy: options ignored: {reason}", stacklevel=3)
    bias = None if linear_bias is None else linear_bias.reshape(-1)
    logits = linear(input, linear_weight.reshape(-1, features[-1]), bias)
    return cross_entropy(
        logits.reshape(shape), target, weight, None, index, None, reduction, label_smoothing
    )


def _why_whole(shape: list, target: Tensor, reduction: str, label_smoothing: float) -> str | None:
    """Why the batch cannot be taken in parts; None where it can."""
    if len(shape) > 2:
        return "the weight has losses at several places"
    if target.dtype != dtypes.int64:
        return f"the target is of {target.dtype}, not of int64"
    if label_smoothing != 0:
        return "label_smoothing is not 0"
    if reduction not in ("mean", "sum", "none"):
        return f"reduction is {reduction!r}"
    return None


def _in_parts(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    bias: Tensor | None,
    weight: Tensor | None,
    index: int,
    reduction: str,
    options: LinearCrossEntropyOptions,
) -> Tensor:
    """`linear_cross_entropy` of a `linear_weight` (C, in), for the classes of a `target`."""
    from minigrad.utils.checkpoint import checkpoint

    def losses(x: Tensor, y: Tensor) -> Tensor:
        logits = linear(x, linear_weight, bias)
        return cross_entropy(logits, y, weight, ignore_index=index, reduction="none")

    shape = target.shape
    rows = input if input.ndim == 2 else input.unsqueeze(0)
    target = target.reshape(1) if input.ndim == 1 else target
    if target.shape != rows.shape[:1]:
        raise ValueError(
            f"Expected input batch_size ({len(rows)}) to match target batch_size "
            f"({target.shape[0] if target.ndim else 1})."
        )
    size = options.rows(rows, linear_weight.shape[0])
    parts = [
        checkpoint(losses, x, y, use_reentrant=False, preserve_rng_state=False)
        for x, y in zip(rows.split(size), target.split(size), strict=True)
    ]
    ignored = index if may_ignore(target, index) else None
    return reduce_classes(minigrad.cat(parts), target, weight, ignored, reduction, shape)
