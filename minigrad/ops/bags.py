"""Sums of rows per bag: a product with the sparse matrix that counts which bag has which row."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from kernels import dispatch
from minigrad.autograd.mode import mode
from minigrad.autograd.node import Op
from minigrad.ops.index import AddRows, Embedding
from minigrad.tensor import Tensor, functions, wrap


class BagSums(Op):
    """Sums (bags, D) of rows of weight (V, D) at index (n,); scales: None, or a factor for each.

    ends (bags + 1,): where in index each bag begins, and where the last ends.
    """

    saves: ClassVar[tuple[int, ...] | None] = (1, 2, 3)
    grad_name = "EmbeddingBagBackward0"

    @staticmethod
    def rule(weight: Tensor, index: Tensor, ends: Tensor, scales: Tensor | None) -> None:
        Embedding.rule(weight, index)

    @staticmethod
    def forward(weight: Any, index: Any, ends: Any, scales: Any) -> Any:
        factors = np.ones(index.size, weight.dtype) if scales is None else scales
        return dispatch.active.spmm(ends, index, factors, weight)

    @staticmethod
    def vjp(ctx: Any, g: Tensor) -> tuple:
        index, ends, scales = ctx.tensors()
        each = functions.repeat_interleave(g, ends.diff(), 0)
        each = each if scales is None else each * scales.unsqueeze(1)
        return AddRows.apply(each, index, rows=ctx.shapes[0][0]), None, None, None


class ScaledSums(BagSums):
    """`BagSums` whose scales have a gradient, for which it saves the weight."""

    saves = (0, 1, 2, 3)

    @staticmethod
    def vjp(ctx: Any, g: Tensor) -> tuple:
        weight, index, ends, scales = ctx.tensors()
        each = functions.repeat_interleave(g, ends.diff(), 0)
        to_weight = to_scales = None
        if ctx.needs[0]:
            to_weight = AddRows.apply(each * scales.unsqueeze(1), index, rows=ctx.shapes[0][0])
        if ctx.needs[3]:
            to_scales = (Embedding.apply(weight, index, padding_idx=None) * each).sum(1)
        return to_weight, None, None, to_scales


def can_be_summed(weight: Tensor, index: Tensor, scales: Tensor | None) -> bool:
    """Whether `BagSums` takes these: on the CPU, of floats of 32 or 64 bits, and where nobody notes
    operations."""
    arrays = [t._array for t in (weight, index, scales) if t is not None]
    if mode.recorder is not None or mode.observer is not None:
        return False
    return (
        all(type(a) is np.ndarray for a in arrays)
        and weight._array.dtype in (np.float32, np.float64)
        and (scales is None or scales._array.dtype == weight._array.dtype)
        and index._array.size > 0
    )


def bag_sums(
    index: Tensor,
    weight: Tensor,
    starts: Any,
    scales: Tensor | None,
    padding: int | None,
    mean: bool,
) -> Tensor:
    """Sums or means of bags without the rows at `padding`. starts: an array, or the length of each
    bag."""
    at = index._array
    if isinstance(starts, int):
        ends = np.arange(0, at.size + 1, starts, dtype=at.dtype)
    else:
        ends = np.concatenate((starts, [at.size]), dtype=at.dtype)
    if padding is not None:
        Embedding.rule(weight, index)
        kept = at != padding % weight._array.shape[0]
        ends = np.concatenate(([0], kept.cumsum()), dtype=at.dtype)[ends]
        index = wrap(at[kept])
        scales = None if scales is None else scales[wrap(kept)]
    op = BagSums if scales is None or not scales.requires_grad else ScaledSums
    total = op.apply(weight, index, wrap(ends), scales)
    if not mean:
        return total
    sizes = np.maximum(ends[1:] - ends[:-1], 1)
    return total / wrap(sizes[:, None].astype(total._array.dtype))
