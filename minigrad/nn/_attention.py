"""Multi-head attention from its weights (Vaswani et al. 2017)."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import minigrad
from minigrad.ops.attention import scaled_dot_product_attention
from minigrad.ops.combine import pad
from minigrad.ops.matmul import linear
from minigrad.ops.random import dropout
from minigrad.tensor import Tensor


def multi_head_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """(output, weights or None) of `MultiheadAttention` with these weights.

    Shapes: query (L, N, embed_dim), key and value (S, N, features), all three also without N.

    bias_k, bias_v: (1, 1, embed_dim), a key and a value after the others; then those of
    `add_zero_attn` are zeros. static_k, static_v: (N * num_heads, S, head_dim), in the place of the
    projections.
    """
    if is_causal and attn_mask is None:
        raise RuntimeError("Need attn_mask if specifying the is_causal hint.")
    weights: Any = (q_proj_weight, k_proj_weight, v_proj_weight)
    if not use_separate_proj_weight:
        weights = in_proj_weight.chunk(3)  # type: ignore[union-attr]
    batched = _check((query, key, value), embed_dim_to_check, weights)
    if not batched:
        query, key, value = each_once(lambda x: x.unsqueeze(1), query, key, value)
        key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
    query, key, value = each_once(lambda x: x.transpose(0, 1), query, key, value)
    if use_separate_proj_weight:
        biases: Any = (None,) * 3 if in_proj_bias is None else in_proj_bias.chunk(3)
        projected: Any = _in_projection(query, key, value, *weights, *biases)
    else:
        weight: Any = in_proj_weight
        projected = _in_projection_packed(query, key, value, weight, in_proj_bias)
    q, k, v = (_heads(x, num_heads) for x in projected)
    if static_k is not None:
        k = static_k.reshape(*q.shape[:2], *static_k.shape[1:])
    if static_v is not None:
        v = static_v.reshape(*q.shape[:2], *static_v.shape[1:])
    mask = _mask(attn_mask, key_padding_mask, (*q.shape[:3], k.shape[2]), q.dtype)
    more_k, more_v = (
        [] if b is None else [_heads(b.reshape(1, 1, -1), num_heads)] for b in (bias_k, bias_v)
    )
    if add_zero_attn:
        zeros = k.new_zeros((1, 1, 1, 1))
        more_k, more_v = [*more_k, zeros], [*more_v, zeros]
    if more_k:
        k, v = _longer(k, more_k), _longer(v, more_v)
        mask = None if mask is None else pad(mask, (0, len(more_k)))
    p = dropout_p if training else 0.0
    found = None
    if need_weights:
        scores = (q @ k.mT) / math.sqrt(q.shape[-1])
        found = dropout((scores if mask is None else scores + mask).softmax(-1), p)
        out = found @ v
        found = found.mean(1) if average_attn_weights else found
    else:
        out = scaled_dot_product_attention(q, k, v, mask, p)
    out = linear(out.transpose(1, 2).flatten(2), out_proj_weight, out_proj_bias)
    if not batched:
        return out.squeeze(0), None if found is None else found.squeeze(0)
    return out.transpose(0, 1), found


def each_once(change: Callable[[Tensor], Tensor], *inputs: Tensor) -> list[Tensor]:
    """What becomes of each input: one tensor of inputs that are one tensor."""
    changed = {id(x): x for x in inputs}
    changed = {number: change(x) for number, x in changed.items()}
    return [changed[id(x)] for x in inputs]


def _heads(x: Tensor, count: int) -> Tensor:
    """(N, rows, features) as (N, heads, rows, head_dim)."""
    n, rows, features = x.shape
    return x.reshape(n, rows, count, features // count).transpose(1, 2)


def _longer(x: Tensor, more: list[Tensor]) -> Tensor:
    """With further rows for each head (N, heads, rows, head_dim)."""
    shape = (*x.shape[:2], 1, x.shape[3])
    return minigrad.cat([x, *(row.expand(shape) for row in more)], 2)


def _check(inputs: tuple, embed_dim: int, weights: tuple) -> bool:
    """Check the shapes of query, key and value; whether they are batched."""
    query, key, value = inputs
    if query.dim() not in (2, 3):
        raise AssertionError(
            "query should be unbatched 2D or batched 3D tensor but received "
            f"{query.dim()}-D query tensor"
        )
    if not key.dim() == value.dim() == query.dim():
        kind = "batched (3-D)" if query.dim() == 3 else "unbatched (2-D)"
        raise AssertionError(
            f"For {kind} `query`, expected `key` and `value` to be {query.dim()}-D but found "
            f"{key.dim()}-D and {value.dim()}-D tensors respectively"
        )
    if query.shape[-1] != embed_dim:
        raise AssertionError(
            f"was expecting embedding dimension of {embed_dim}, but got {query.shape[-1]}"
        )
    for x, weight in zip(inputs, weights, strict=True):
        if x.shape[-1] != weight.shape[-1]:
            raise AssertionError(
                f"was expecting embedding dimension of {weight.shape[-1]}, but got {x.shape[-1]}"
            )
    return query.dim() == 3


def _mask(mask: Tensor | None, padding: Tensor | None, shape: tuple, dtype: Any) -> Tensor | None:
    """Both masks as one of numbers, to add to scores of shape (N, heads, L, S)."""
    n, heads, queries, keys = shape
    found = None
    if mask is not None:
        if mask.dtype != minigrad.bool and not mask.is_floating_point():
            raise AssertionError("only bool and floating types of attn_mask are supported")
        allowed = ((queries, keys), (n * heads, queries, keys))
        if mask.dim() not in (2, 3) or tuple(mask.shape) != allowed[mask.dim() - 2]:
            raise RuntimeError(
                f"The shape of the attn_mask is {tuple(mask.shape)}, but should be "
                f"{allowed[0]} or {allowed[1]}."
            )
        found = _additive(mask, dtype)
        found = found.reshape(n, heads, queries, keys) if mask.dim() == 3 else found
    if padding is not None:
        if padding.dtype != minigrad.bool and not padding.is_floating_point():
            raise AssertionError("only bool and floating types of key_padding_mask are supported")
        if tuple(padding.shape) != (n, keys):
            raise AssertionError(
                f"Expected key_padding_mask of shape {(n, keys)}, but got {tuple(padding.shape)}"
            )
        padding = _additive(padding, dtype).reshape(n, 1, 1, keys)
        found = padding if found is None else found + padding
    return found


def _additive(mask: Tensor, dtype: Any) -> Tensor:
    """A boolean mask as numbers: -inf where it is True; numbers are unchanged."""
    if mask.dtype == minigrad.bool:
        return minigrad.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(
            mask, -math.inf
        )
    return mask.to(dtype)


# What copies of torch's transformer layers call.


def _none_or_dtype(input: Tensor | None) -> Any:
    """The dtype of a tensor."""
    if input is None or isinstance(input, Tensor):
        return None if input is None else input.dtype
    raise RuntimeError("input to _none_or_dtype() must be None or minigrad.Tensor")


def _canonical_mask(
    mask: Tensor | None,
    mask_name: str,
    other_type: Any,
    other_name: str,
    target_type: Any,
    check_other: bool = True,
) -> Tensor | None:
    """A mask as numbers; one of bools gets the dtype `target_type`. Warns if another mask has
    another dtype."""
    if mask is None:
        return None
    if mask.dtype != minigrad.bool and not mask.is_floating_point():
        raise AssertionError(f"only bool and floating types of {mask_name} are supported")
    if check_other and other_type is not None and mask.dtype != other_type:
        warnings.warn(
            f"Support for mismatched {mask_name} and {other_name} is deprecated. Use same type for "
            "both instead.",
            stacklevel=2,
        )
    return _additive(mask, target_type if mask.dtype == minigrad.bool else mask.dtype)


def _in_projection(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    w_q: Tensor,
    w_k: Tensor,
    w_v: Tensor,
    b_q: Tensor | None = None,
    b_k: Tensor | None = None,
    b_v: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Linear layers of queries, keys and values."""
    return linear(q, w_q, b_q), linear(k, w_k, b_k), linear(v, w_v, b_v)


def _in_projection_packed(
    q: Tensor, k: Tensor, v: Tensor, w: Tensor, b: Tensor | None = None
) -> list[Tensor]:
    """The same by one weight (3 E, E) and bias (3 E,): one product for inputs that are the same."""
    if q is k and k is v:
        return list(linear(q, w, b).chunk(3, -1))
    if k is v:
        sizes = [len(w) // 3, len(w) // 3 * 2]
        (w_q, w_kv), (b_q, b_kv) = w.split(sizes), (None, None) if b is None else b.split(sizes)
        return [linear(q, w_q, b_q), *linear(k, w_kv, b_kv).chunk(2, -1)]
    biases: Any = (None, None, None) if b is None else b.chunk(3)
    return list(_in_projection(q, k, v, *w.chunk(3), *biases))
