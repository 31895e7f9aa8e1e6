"""The kernels of attention.cu: q (Z, L, E), k (ZK, S, E), v (ZK, S, F), a mask (., ., S)."""

from __future__ import annotations

from kernels.cuda_c.common import Kernel, family
from kernels.launchers.attention import Tile

_kernel = family("attention.cu")
KINDS = {"none": 0, "add": 1, "keep": 2}


def softmax_rows(acc_t: str, mask_kind: str) -> Kernel:
    """kernel(s, mask, lse, scale, causal, div, mod, step)."""

    def arguments(s, *others):
        return s, *others, *s.shape[1:]

    return _kernel("softmax_rows", (1,), (acc_t, KINDS[mask_kind]), arguments)


def merge(acc_t: str) -> Kernel:
    """kernel(parts, of_part, out, lse)."""

    def arguments(parts, of_part, out, lse):
        return parts, of_part, out, lse, *parts.shape

    return _kernel("merge", (2,), (acc_t,), arguments)


def row_products(acc_t: str) -> Kernel:
    """kernel(g, out, delta)."""

    def arguments(g, out, delta):
        return g, out, delta, g.shape[2]

    return _kernel("row_products", (0,), (acc_t,), arguments)


def score_gradients(acc_t: str, mask_kind: str) -> Kernel:
    """kernel(s, ds, mask, lse, delta, scale, causal, div, mod, step)."""

    def arguments(s, *others):
        return s, *others, *s.shape[1:]

    return _kernel("score_gradients", (2,), (acc_t, KINDS[mask_kind]), arguments)


def with_sizes(q, k, v, *others):
    """The arguments of a forward kernel: heads of q per head of k, and the sizes, follow."""
    return q, k, v, *others, q.shape[0] // k.shape[0], q.shape[1], *k.shape[1:], v.shape[2]


def backward_with_sizes(own_a, own_b, other_a, *others):
    """As `with_sizes`, of a backward kernel."""
    heads = sorted((own_a.shape[0], other_a.shape[0]))
    sizes = own_a.shape[1], other_a.shape[1], own_a.shape[2], own_b.shape[2]
    return own_a, own_b, other_a, *others, heads[1] // heads[0], *sizes


def tiled(acc_t: str, tile: Tile, mask_kind: str, split: bool) -> Kernel:
    """kernel(q, k, v, mask, out, lse, scale, causal, div, mod, step, span)."""
    return _kernel("tiled", (0, 3, 4), (acc_t, KINDS[mask_kind], split, *tile), with_sizes)


def tiled_backward(acc_t: str, tile: Tile, mask_kind: str, of_keys: bool, split: bool) -> Kernel:
    """kernel(own_a, own_b, other_a, other_b, mask, lse, delta, da, db, scale, ..., step, span)."""
    constants = (acc_t, KINDS[mask_kind], of_keys, split, *tile)
    return _kernel("tiled_backward", (0, 4, 7), constants, backward_with_sizes)
