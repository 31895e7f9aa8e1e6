"""The launches of attention on tensor cores; where queries are few, blocks share their keys."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from kernels.launchers.common import ceil_div, empty, launcher

BLOCKS = 264  # two for each multiprocessor of a large GPU: with fewer, the keys are split
LEAST_KEYS = 256  # of a split


def _span(plan: Any, other: int) -> int:
    """The keys that a block goes through, whole tiles of them."""
    blocks = ceil_div(plan.l, plan.dialect.attention_mma.OWN) * plan.z
    splits = max(1, min(ceil_div(BLOCKS, blocks), plan.s // LEAST_KEYS)) if blocks else 1
    return ceil_div(ceil_div(plan.s, splits), other) * other


def forward(plan: Any) -> Callable:
    """The function (q, k, v, mask, out, lse, numbers) -> out."""
    kernels, width, name = plan.dialect.attention_mma, max(plan.e, plan.f), "attention"
    span = _span(plan, kernels.other_rows(width))
    splits = max(ceil_div(plan.s, span), 1) if span else 1
    blocks = ceil_div(plan.l, kernels.OWN) * plan.z
    kernel = kernels.attention_mma(width, plan.mask.kind)
    run = launcher(name, "mma_sync", kernel, (blocks, splits), kernels.THREADS)
    rows = plan.z * plan.l
    merge = launcher(name, "mma_sync", plan.kernels.merge(plan.acc_t), rows, 32)

    def attended(q, k, v, mask, out, lse, numbers):
        if splits == 1:
            run(q, k, v, mask, out, lse, *numbers, span)
            return out
        parts = empty((splits, rows, plan.f), plan.acc, q)
        of_part = empty((splits, rows), plan.acc, q)
        run(q, k, v, mask, parts, of_part, *numbers, span)
        merge(parts, of_part, out, lse)
        return out

    return attended


def backward(plan: Any) -> tuple[Callable, int, int]:
    """The kernel of the gradients of keys or queries, its rows a block, and its threads."""
    kernels, width = plan.dialect.attention_mma, max(plan.e, plan.f)
    kernel = partial(kernels.attention_mma_backward, width, plan.mask.kind)
    return kernel, kernels.OWN, kernels.THREADS
