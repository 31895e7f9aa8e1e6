"""The launches of attention by tiles: of any floats, or of 16 bits on tensor cores.

A block holds some rows while others come by: queries while keys do, or for the gradients of keys
the reverse. Where a GPU would have few blocks, several share the rows that come by. Their weighted
sums are merged by their log-sum-exp ("flash decoding"), their gradients are added up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kernels.launchers.common import BLOCKS, ceil_div, compute_dtype, empty, launcher, splits
from kernels.launchers.reduction import reduce

BX, BY = 16, 16  # threads of a block of the tiled kernels
LEAST_KEYS = 256  # rows that come by a block of a split


def _rows(plan: Any, backward: bool) -> tuple[int, int]:
    """The rows that a block holds, and those that come by at a time."""
    if plan.version == "mma_sync":
        kernels = plan.dialect.attention_mma
        return kernels.OWN, kernels.other_rows(max(plan.e, plan.f), backward)
    return plan.tile.own, plan.tile.other


def _shares(plan: Any, backward: bool, rows: int, heads: int, others: int) -> tuple[int, int, int]:
    """Blocks without a split, over how many blocks the `others` are split, and the others of each,
    whole tiles of them."""
    own, other = _rows(plan, backward)
    blocks = ceil_div(rows, own) * heads
    on_tensor_cores = plan.version == "mma_sync"
    enough = BLOCKS if on_tensor_cores and not backward else BLOCKS // 2
    count = 3 if plan.forced else splits(blocks, others, LEAST_KEYS, enough)
    if count == 1 or not (plan.gpu or plan.forced or on_tensor_cores):
        return blocks, 1, ceil_div(others, other) * other
    span = ceil_div(ceil_div(others, count), other) * other
    return blocks, max(ceil_div(others, max(span, 1)), 1), span


def are_few(plan: Any, backward: bool) -> bool:
    """Whether tiles of floats would leave a GPU few blocks, where a split makes more."""
    own = plan.tile.own
    sides = [(ceil_div(plan.l, own) * plan.z, plan.s)]
    if backward:
        sides.append((ceil_div(plan.s, own) * plan.zk, plan.l))
    return any(splits(blocks, others, LEAST_KEYS) > 1 for blocks, others in sides)


def forward(plan: Any) -> Callable:
    """The function (q, k, v, mask, out, lse, numbers) -> out."""
    name, kind = "attention", plan.mask.kind
    blocks, count, span = _shares(plan, False, plan.l, plan.z, plan.s)
    block: Any = (BX, BY)
    if plan.version == "mma_sync":
        kernel = plan.dialect.attention_mma.attention_mma(max(plan.e, plan.f), kind)
        block = plan.dialect.attention_mma.THREADS
    else:
        kernel = plan.kernels.tiled(plan.acc_t, plan.tile, kind, count > 1)
    grid: Any = (blocks, count) if count > 1 else blocks
    run = launcher(name, plan.version, kernel, grid, block)
    rows = plan.z * plan.l
    merge = launcher(name, plan.version, plan.kernels.merge(plan.acc_t), rows, 32)

    def attended(q, k, v, mask, out, lse, numbers):
        if count == 1:
            run(q, k, v, mask, out, lse, *numbers, span)
            return out
        parts = empty((count * plan.z, plan.l, plan.f), plan.acc, q)
        of_part = empty((count * plan.z, plan.l), plan.acc, q)
        run(q, k, v, mask, parts, of_part, *numbers, span)
        shape = count, rows, plan.f
        merge(parts.reshape(shape), of_part.reshape(shape[:2]), out, lse)
        return out

    return attended


def gradients(plan: Any, of_keys: bool) -> Callable:
    """The function (own_a, own_b, other_a, other_b, mask, lse, delta, numbers) that returns the
    gradients of own_a, and of own_b if `of_keys`: of k and v, or of q."""
    name, kind = "attention_backward", plan.mask.kind
    sides = (plan.s, plan.zk, plan.l), (plan.l, plan.z, plan.s)
    rows, heads, others = sides[0 if of_keys else 1]
    blocks, count, span = _shares(plan, True, rows, heads, others)
    block: Any = (BX, BY)
    if plan.version == "mma_sync":
        found = plan.dialect.attention_mma
        kernel = found.attention_mma_backward(max(plan.e, plan.f), kind, of_keys, count > 1)
        block = found.THREADS
    else:
        kernel = plan.kernels.tiled_backward(plan.acc_t, plan.tile, kind, of_keys, count > 1)
    grid: Any = (blocks, count) if count > 1 else blocks
    run = launcher(name, plan.version, kernel, grid, block)
    widths = (plan.e, plan.f) if of_keys else (plan.e,)
    dtype = plan.dtype if count == 1 else compute_dtype(plan.dtype)

    def computed(own_a, own_b, other_a, other_b, mask, lse, delta, numbers):
        found = [empty((count * heads, rows, width), dtype, own_a) for width in widths]
        run(own_a, own_b, other_a, other_b, mask, lse, delta, found[0], found[-1], *numbers, span)
        if count == 1:
            return found
        parts = [d.reshape(count, heads, rows, d.shape[-1]) for d in found]
        return [reduce(plan.dialect, "sum", d, 0, dtype=plan.dtype) for d in parts]

    return computed
