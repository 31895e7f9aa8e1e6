"""Attention over a sequence that is divided among ranks.

Each rank has equal blocks of queries, keys and values. Blocks of keys and values travel from rank
to rank, round a ring, while each rank attends to the block that it has; results of blocks are
combined by their log-sum-exp (online softmax). A rank holds two blocks of keys and values at a
time, never the whole sequence. Backward, the blocks travel once more, with their gradients. (Liu,
Zaharia, Abbeel, "Ring Attention with Blockwise Transformers for Near-Infinite Context", 2023.)
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, ClassVar

from kernels import dispatch
from minigrad._names import namespace
from minigrad.autograd.mode import mode, no_grad
from minigrad.autograd.node import Op
from minigrad.backends import array_module
from minigrad.distributed.groups import resolve
from minigrad.distributed.mpi import Work
from minigrad.tensor import Tensor, wrap

__all__ = ["ring_attention"]


class _Ring:
    """Arrays that go to the next rank while the rank before sends its own."""

    def __init__(self, group: Any) -> None:
        self.group = group
        self.following = (group.rank + 1) % group.size
        self.previous = (group.rank - 1) % group.size

    def begin(self, arrays: list[Any]) -> tuple[list[Any], list[Work]]:
        """(where the previous rank's arrays will be, the works to wait for)."""
        xp = array_module(arrays[0])
        taken = [xp.empty(a.shape, a.dtype) for a in arrays]
        works = []
        with self.group.together():
            for tag, (give, take) in enumerate(zip(arrays, taken)):
                works.append(self.group.send(give, self.following, tag))
                works.append(self.group.receive(take, self.previous, tag)[0])
        return taken, works

    def pass_on(self, arrays: list[Any]) -> list[Any]:
        taken, works = self.begin(arrays)
        for work in works:
            work.wait()
        return taken

    def blocks(self, arrays: list[Any]) -> Iterator[tuple[int, list[Any]]]:
        """(the rank that a block comes from, its arrays), this rank's own first. The next block
        arrives while the caller computes with one."""
        for step in range(self.group.size):
            last = step == self.group.size - 1
            taken, works = ([], []) if last else self.begin(arrays)
            yield (self.group.rank - step) % self.group.size, arrays
            for work in works:
                work.wait()
            arrays = taken


class RingAttention(Op):
    """The result for this rank's queries, and their log-sum-exp over the whole sequence."""

    saves_outputs = (0, 1)
    grad_name: ClassVar[str] = "RingAttentionBackward0"

    @staticmethod
    def forward(q: Any, k: Any, v: Any, causal: bool, scale: float, group: Any) -> Any:
        result: tuple[Tensor, Tensor] | None = None
        with no_grad():
            for source, (key, value) in _Ring(group).blocks(_contiguous(k, v)):
                if causal and source > group.rank:
                    continue
                diagonal = causal and source == group.rank
                part = dispatch.active.attention(q, key, value, None, diagonal, scale)
                part = (wrap(part[0]).to(wrap(part[1]).dtype), wrap(part[1]))
                result = part if result is None else _combined(*result, *part)
        assert result is not None, "a rank attends to its own block at least"
        out, lse = result
        return out._array.astype(q.dtype, copy=False), lse._array

    @staticmethod
    def vjp(ctx: Any, g: Tensor, causal: bool, scale: float, group: Any) -> tuple:
        if mode.enabled:
            raise NotImplementedError(
                "ring_attention: its gradient cannot be differentiated again (create_graph=True)"
            )
        q, k, v, out, lse = (x._array for x in ctx.tensors())
        ring, xp = _Ring(group), array_module(q)
        dq, dk, dv = (xp.zeros(a.shape, lse.dtype) for a in (q, k, v))
        for source, (key, value) in ring.blocks(_contiguous(k, v)):
            if source != group.rank:  # the gradients follow their block
                dk, dv = ring.pass_on([dk, dv])
            if causal and source > group.rank:
                continue
            diagonal = causal and source == group.rank
            grads = dispatch.active.attention_backward(
                g._array, q, key, value, out, lse, None, diagonal, scale
            )
            for total, grad in zip((dq, dk, dv), grads):
                wrap(total).add_(wrap(grad))
        if group.size > 1:
            dk, dv = ring.pass_on([dk, dv])  # the last step home
        return tuple(wrap(d.astype(a.dtype, copy=False)) for d, a in zip((dq, dk, dv), (q, k, v)))


def _contiguous(*arrays: Any) -> list[Any]:
    return [array_module(a).ascontiguousarray(a) for a in arrays]


def _combined(out: Tensor, lse: Tensor, part: Tensor, of_part: Tensor) -> tuple[Tensor, Tensor]:
    """Two results with their log-sum-exp, each of some of the keys, as one."""
    total = lse.logaddexp(of_part)
    weights = [(one - total).exp().unsqueeze(-1) for one in (lse, of_part)]
    return out.mul_(weights[0]).add_(part.mul_(weights[1])), total


def ring_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    is_causal: bool = False,
    scale: float | None = None,
    group: Any = None,
) -> Tensor:
    """`scaled_dot_product_attention` of a sequence whose rank-th block this rank has.

    Shapes: query (N, H, L, E), key (N, HK, L, E), value (N, HK, L, F), result (N, H, L, F), where
    HK divides H and L is the length of a block, the same on all ranks. is_causal: a query attends
    to keys up to its own place in the whole sequence. scale: by default 1 / sqrt(E).

    All ranks of `group` call it, forward and backward. Raises RuntimeError for shapes and dtypes
    that do not fit, DistBackendError on every rank where the ranks' blocks differ.
    """
    shapes = [tuple(x.shape) for x in (query, key, value)]
    if any(len(shape) != 4 for shape in shapes) or len({shape[2] for shape in shapes}) > 1:
        raise RuntimeError(
            "ring_attention: expected query (N, H, L, E), key (N, HK, L, E) and value "
            f"(N, HK, L, F), got {', '.join(map(str, shapes))}"
        )
    dtypes = {x.dtype for x in (query, key, value)}
    if len(dtypes) > 1 or not query.is_floating_point():
        raise RuntimeError(
            "ring_attention: expected one floating dtype, got "
            + ", ".join(x.dtype.name for x in (query, key, value))
        )
    members = resolve(group)
    causal = ", causal" if is_causal else ""
    members.agree(f"ring_attention of {query.dtype.name} {', '.join(map(str, shapes))}{causal}")
    scale = 1 / math.sqrt(max(shapes[0][3], 1)) if scale is None else float(scale)
    return RingAttention.apply(
        query, key, value, causal=bool(is_causal), scale=scale, group=members
    )[0]


__getattr__, __dir__ = namespace(__name__)
