"""Scaled dot product attention, fused, or composed of plain operations."""

from __future__ import annotations

import functools
import math
from typing import Any

from kernels import dispatch
from minigrad import dtypes
from minigrad.autograd.mode import autocasts, mode
from minigrad.autograd.node import Op
from minigrad.ops import random
from minigrad.ops.pointwise import POINTWISE, broadcast_shape
from minigrad.tensor import Tensor, wrap


class Attention(Op):
    """softmax(q @ k.T * scale + mask) @ v, and the log-sum-exp; q (N, H, L, E), k (N, HK, S, E)."""

    saves_outputs = (0, 1)
    first_only = True
    grad_name = "ScaledDotProductAttentionBackward0"

    @staticmethod
    def forward(q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float) -> Any:
        out, lse = dispatch.active.attention(q, k, v, mask, causal, scale)
        if _rows_outermost(q):
            out = dispatch.active.copy(out.swapaxes(1, 2)).swapaxes(1, 2)
        return out, lse

    @staticmethod
    def vjp(ctx: Any, g: Tensor, causal: bool, scale: float) -> tuple:
        q, k, v, mask, out, lse = ctx.tensors()
        if mode.enabled:
            return _recorded_gradients(g, q, k, v, mask, causal, scale)
        grads = dispatch.active.attention_backward(
            *(x._array for x in (g, q, k, v, out, lse)),
            None if mask is None else mask._array,
            causal,
            scale,
        )
        wanted = zip(grads, ctx.needs[:3], strict=True)
        return (*[wrap(a) if need else None for a, need in wanted], None)


def _rows_outermost(q: Any) -> bool:
    """Whether q (N, H, L, E) lies in memory as (N, L, H, E): its heads are parts of the features.
    Then the result does too, as in torch, so that a view joins its heads again."""
    _, heads, rows, _ = q.shape
    return heads > 1 and rows > 1 and q.strides[1] < q.strides[2]


def _probabilities(q: Tensor, k: Tensor, mask: Tensor | None, causal: bool, scale: float) -> Tensor:
    """softmax(q @ k.T * scale + mask) as tensors that can be differentiated; rows of 0 for a
    query without keys."""
    s = (q @ k.mT) * scale
    if mask is not None:
        s = s.masked_fill(~mask, -math.inf) if mask.dtype == dtypes.bool_ else s + mask
    if causal:
        seen = s.detach().new_ones(s.shape[-2:], dtype=dtypes.bool_).tril()
        s = s.masked_fill(~seen, -math.inf)
    blind = POINTWISE["eq"](s.detach(), -math.inf).all(-1, keepdim=True)
    return s.masked_fill(blind, 0).softmax(-1).masked_fill(blind, 0)


def _repeated(x: Tensor, heads: int) -> Tensor:
    """x (N, HK, S, E) with each head repeated for the query heads that share it."""
    n, shared, length, width = x._array.shape
    if shared == heads:
        return x
    shape = (n, shared, heads // shared, length, width)
    return x.unsqueeze(2).expand(*shape).reshape(n, heads, length, width)


def _recorded_gradients(
    g: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, scale: float
) -> tuple:
    """The gradients as tensors that can be differentiated again."""
    heads, shared = q._array.shape[1], k._array.shape[1]
    keys, values = _repeated(k, heads), _repeated(v, heads)
    p = _probabilities(q, keys, mask, causal, scale)
    dp = g @ values.mT
    ds = p * (dp - (dp * p).sum(-1, keepdim=True)) * scale
    dk, dv = ds.mT @ q, p.mT @ g
    if shared != heads:
        dk, dv = (
            d.reshape(d.shape[0], shared, heads // shared, *d.shape[2:]).sum(2) for d in (dk, dv)
        )
    return ds @ keys, dk, dv, None


def _check(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, p: float) -> None:
    of_q, of_k, of_v = q._array.shape, k._array.shape, v._array.shape
    if min(len(of_q), len(of_k), len(of_v)) < 2:
        raise RuntimeError(
            "Expected query, key, and value to all be  at least 2 dimensional, but got query.dim: "
            f"{q.ndim} key.dim: {k.ndim} and value.dim: {v.ndim} instead."
        )
    if not q._array.dtype == k._array.dtype == v._array.dtype:
        raise RuntimeError(
            "Expected query, key, and value to have the same dtype, but got query.dtype: "
            f"{q.dtype.name} key.dtype: {k.dtype.name} and value.dtype: {v.dtype.name} instead."
        )
    if not q.is_floating_point():
        raise RuntimeError(
            f"scaled_dot_product_attention: expected a floating dtype, got {q.dtype.name}"
        )
    if of_q[-1] != of_k[-1] or of_k[-2] != of_v[-2]:
        raise RuntimeError(
            "scaled_dot_product_attention: expected query (..., L, E), key (..., S, E) and value "
            f"(..., S, Ev), got {list(q.shape)}, {list(k.shape)} and {list(v.shape)}"
        )
    if mask is not None and mask.dtype not in (dtypes.bool_, dtypes.float32, q.dtype):
        raise RuntimeError(
            "Expected attn_mask dtype to be bool or float or to match query dtype, but got "
            f"attn_mask.dtype: {mask.dtype.name} and  query.dtype: {q.dtype.name} instead."
        )
    if not 0 <= p <= 1:
        raise RuntimeError(f"dropout probability has to be between 0 and 1, but got {p}")


def _batch_dims(q: Tensor, k: Tensor, v: Tensor, grouped: bool) -> tuple[tuple, tuple]:
    """The batch dimensions of q, and of k and v. Only the last, the heads, may differ (grouped
    heads)."""
    lead = q._array.shape[:-2]
    if lead and k._array.shape[:-2] == v._array.shape[:-2] == lead:
        return lead, lead
    shapes = [tuple(x._array.shape[:-2]) for x in (q, k, v)]
    if not grouped:
        lead = functools.reduce(broadcast_shape, shapes)
        return lead, lead
    if min(map(len, shapes)) < 1 or shapes[1][-1] != shapes[2][-1]:
        raise RuntimeError(
            "scaled_dot_product_attention: enable_gqa expects (..., heads, length, width) with as "
            f"many heads in key as in value, got {[list(x.shape) for x in (q, k, v)]}"
        )
    heads, shared = shapes[0][-1], shapes[1][-1]
    if not shared or heads % shared:
        raise RuntimeError(
            "Number of heads in key and value must divide the number of heads in query, got "
            f"{shared} and {heads}"
        )
    lead = functools.reduce(broadcast_shape, [s[:-1] for s in shapes])
    return (*lead, heads), (*lead, shared)


def _as_4d(x: Tensor, lead: tuple) -> Tensor:
    """x (..., rows, columns) with its batch dimensions broadcast to `lead`, as (N, H, rows,
    columns)."""
    last = x._array.shape[-2:]
    if x._array.shape[:-2] != lead:
        x = x.expand(*lead, *last)
    if x._array.ndim == 4:
        return x
    return x.reshape(math.prod(lead[:-1]), lead[-1] if lead else 1, *last)


def _mask_as_4d(mask: Tensor, lead: tuple, scores: tuple) -> Tensor:
    """A mask that broadcasts to (*lead, *scores) as (N or 1, H or 1, L or 1, S or 1)."""
    if broadcast_shape(tuple(mask._array.shape), (*lead, *scores)) != (*lead, *scores):
        raise RuntimeError(
            f"scaled_dot_product_attention: attn_mask {list(mask.shape)} does not broadcast to the "
            f"scores {[*lead, *scores]}"
        )
    if mask._array.ndim > 4 or (len(lead) > 2 and mask._array.ndim > 3):
        mask = mask.expand(*lead, *mask._array.shape[-2:])
        return mask.reshape(math.prod(lead[:-1]), lead[-1], *mask._array.shape[-2:])
    return mask.reshape((1,) * (4 - mask._array.ndim) + tuple(mask._array.shape))


@autocasts
def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """softmax(query @ key.T * scale + attn_mask) @ value: (..., L, Ev) from query (..., L, E), key
    (..., S, E) and value (..., S, Ev).

    attn_mask broadcasts to (..., L, S): numbers to add, or bool: False excludes a key. is_causal:
    query i attends to keys 0 .. i. The result of a query without keys is 0. scale: by default 1 /
    sqrt(E). enable_gqa: the number of heads (dimension -3) of key and value divides that of query.
    With dropout_p, or with a mask that requires a gradient, plain operations are used, which store
    the (..., L, S) probabilities.
    """
    if is_causal and attn_mask is not None:
        raise RuntimeError(
            "scaled_dot_product_attention: Explicit attn_mask should not be set when is_causal=True"
        )
    _check(query, key, value, attn_mask, dropout_p)
    lead, shared = _batch_dims(query, key, value, enable_gqa)
    scores = (query._array.shape[-2], key._array.shape[-2])
    q, k, v = _as_4d(query, lead), _as_4d(key, shared), _as_4d(value, shared)
    mask = None if attn_mask is None else _mask_as_4d(attn_mask, lead, scores)
    if scale is None:
        scale = 1 / math.sqrt(max(q._array.shape[-1], 1))
    stored = dropout_p > 0 or (mask is not None and mode.enabled and mask.requires_grad)
    fused = mode.attention - {"math"}
    if "math" not in mode.attention and (stored or not fused):
        raise RuntimeError(
            "No available kernel. Aborting execution. scaled_dot_product_attention: the fused "
            "kernel is not allowed, or there is dropout or an attn_mask that requires a gradient, "
            "which it doesn't take; allow SDPBackend.MATH too"
        )
    if stored or mode.observer is not None or not fused:
        heads = q._array.shape[1]
        p = _probabilities(q, _repeated(k, heads), mask, is_causal, scale)
        p = random.dropout(p, dropout_p) if dropout_p > 0 else p
        out = p.to(q.dtype) @ _repeated(v, heads)
        if not stored and _rows_outermost(q._array):
            out = out.transpose(1, 2).contiguous().transpose(1, 2)
    else:
        out = Attention.apply(q, k, v, mask, causal=bool(is_causal), scale=float(scale))
    return out if len(lead) == 2 else out.reshape(*lead, *out._array.shape[-2:])
