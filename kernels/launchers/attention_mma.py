"""The launches of attention on tensor cores; where queries are few, blocks share their keys."""

from __future__ import annotations

from collections.abc import Callable
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


def backward(plan: Any) -> Callable:
    """The function (g, q, k, v, out, lse, mask, delta, numbers) -> dq, dk, dv."""
    kernels, width, name = plan.dialect.attention_mma, max(plan.e, plan.f), "attention_backward"
    products = plan.kernels.row_products(plan.acc_t)
    delta_of = launcher(name, "mma_sync", products, plan.l * plan.z, 32)
    by_keys, by_queries = (
        launcher(
            name,
            "mma_sync",
            kernels.attention_mma_backward(width, plan.mask.kind, of_keys),
            ceil_div(rows, kernels.OWN) * heads,
            kernels.THREADS,
        )
        for of_keys, rows, heads in ((True, plan.s, plan.zk), (False, plan.l, plan.z))
    )

    def gradients(g, q, k, v, out, lse, mask, delta, numbers):
        delta_of(g, out, delta)
        dq, dk, dv = (empty(a.shape, a.dtype, a) for a in (q, k, v))
        by_keys(k, v, q, g, mask, lse, delta, dk, dv, *numbers)
        by_queries(q, g, k, v, mask, lse, delta, dq, dq, *numbers)
        return dq, dk, dv

    return gradients
