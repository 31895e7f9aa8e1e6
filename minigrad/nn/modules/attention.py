"""Multi-head attention (Vaswani et al. 2017)."""

from __future__ import annotations

import math
from typing import Any

import minigrad
from minigrad.nn import functional as F
from minigrad.nn import init
from minigrad.nn.modules.linear import NonDynamicallyQuantizableLinear
from minigrad.nn.modules.module import Module
from minigrad.nn.parameter import Parameter
from minigrad.tensor import Tensor

__all__ = ["MultiheadAttention"]


class MultiheadAttention(Module):
    """Attention of `num_heads` projections of query, key and value, projected to embed_dim.

    Shapes: query (L, N, embed_dim), key (S, N, kdim), value (S, N, vdim), output like query,
    weights (N, L, S); batch first with `batch_first`, or without N. A boolean mask excludes the
    keys where it is True; a mask of numbers is added to the scores. With `need_weights=False` no
    scores are stored.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if embed_dim <= 0 or num_heads <= 0:
            raise ValueError(
                "embed_dim and num_heads must be greater than 0, got "
                f"embed_dim={embed_dim} and num_heads={num_heads} instead"
            )
        if embed_dim % num_heads:
            raise AssertionError("embed_dim must be divisible by num_heads")
        if add_bias_kv or add_zero_attn:
            raise NotImplementedError(
                "MultiheadAttention: add_bias_kv and add_zero_attn are not available in minigrad"
            )
        self.embed_dim = embed_dim
        self.num_heads = num_heads
        self.dropout = dropout
        self.batch_first = batch_first
        self.head_dim = embed_dim // num_heads
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        self._qkv_same_embed_dim = self.kdim == self.vdim == embed_dim
        kind = {"device": device, "dtype": dtype}
        shapes = {
            "in_proj_weight": (3 * embed_dim, embed_dim) if self._qkv_same_embed_dim else None,
            "q_proj_weight": (embed_dim, embed_dim),
            "k_proj_weight": (embed_dim, self.kdim),
            "v_proj_weight": (embed_dim, self.vdim),
            "in_proj_bias": (3 * embed_dim,) if bias else None,
        }
        for name, shape in shapes.items():
            absent = shape is None or (self._qkv_same_embed_dim and name[1:] == "_proj_weight")
            made = None if absent else Parameter(minigrad.empty(shape, **kind))
            self.register_parameter(name, made)
        self.out_proj = NonDynamicallyQuantizableLinear(embed_dim, embed_dim, bias=bias, **kind)
        self._reset_parameters()

    def _reset_parameters(self) -> None:
        """Xavier-uniform projections, biases 0."""
        for name, parameter in self.named_parameters(recurse=False):
            if name == "in_proj_bias":
                init.zeros_(parameter)
                init.zeros_(self.out_proj.bias)
            else:
                init.xavier_uniform_(parameter)

    def _projections(self, query: Tensor, key: Tensor, value: Tensor) -> list[Tensor]:
        """Query, key and value (N, rows, features) as (N, heads, rows, head_dim)."""
        if self._qkv_same_embed_dim:
            weights = self.in_proj_weight.chunk(3)
        else:
            weights = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        biases = (None,) * 3 if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
        return [
            F.linear(x, w, b).reshape(*x.shape[:2], self.num_heads, self.head_dim).transpose(1, 2)
            for x, w, b in zip((query, key, value), weights, biases, strict=True)
        ]

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """(output, weights or None). `is_causal` states that attn_mask is the causal mask."""
        if is_causal and attn_mask is None:
            raise RuntimeError("Need attn_mask if specifying the is_causal hint.")
        batched = self._check(query, key, value)
        if not batched:
            query, key, value = (x.unsqueeze(0) for x in (query, key, value))
            if key_padding_mask is not None:
                key_padding_mask = key_padding_mask.unsqueeze(0)
        elif not self.batch_first:
            query, key, value = (x.transpose(0, 1) for x in (query, key, value))
        q, k, v = self._projections(query, key, value)
        mask = self._mask(attn_mask, key_padding_mask, (*q.shape[:3], k.shape[2]), q.dtype)
        p = self.dropout if self.training else 0.0
        weights = None
        if need_weights:
            scores = (q @ k.mT) / math.sqrt(self.head_dim)
            weights = F.dropout((scores if mask is None else scores + mask).softmax(-1), p)
            out = weights @ v
            weights = weights.mean(1) if average_attn_weights else weights
        else:
            out = F.scaled_dot_product_attention(q, k, v, mask, p)
        out = self._joined(out.transpose(1, 2).flatten(2))
        if not batched:
            return out.squeeze(0), None if weights is None else weights.squeeze(0)
        return out if self.batch_first else out.transpose(0, 1), weights

    def _joined(self, heads: Tensor) -> Tensor:
        """The output projection of all heads (N, L, features)."""
        return self.out_proj(heads)

    def _check(self, query: Tensor, key: Tensor, value: Tensor) -> bool:
        """Check the shapes; whether the inputs are batched."""
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
        for x, features in ((query, self.embed_dim), (key, self.kdim), (value, self.vdim)):
            if x.shape[-1] != features:
                raise AssertionError(
                    f"was expecting embedding dimension of {features}, but got {x.shape[-1]}"
                )
        return query.dim() == 3

    def _mask(
        self, mask: Tensor | None, padding: Tensor | None, shape: tuple, dtype: Any
    ) -> Tensor | None:
        """Both masks as one of numbers, to add to scores of shape (N, heads, L, S)."""
        n, heads, queries, keys = shape
        found = None
        if mask is not None:
            allowed = ((queries, keys), (n * heads, queries, keys))
            if mask.dim() not in (2, 3) or tuple(mask.shape) != allowed[mask.dim() - 2]:
                raise RuntimeError(
                    f"The shape of the attn_mask is {tuple(mask.shape)}, but should be "
                    f"{allowed[0]} or {allowed[1]}."
                )
            found = _additive(mask, dtype)
            found = found.reshape(n, heads, queries, keys) if mask.dim() == 3 else found
        if padding is not None:
            if tuple(padding.shape) != (n, keys):
                raise AssertionError(
                    f"Expected key_padding_mask of shape {(n, keys)}, but got "
                    f"{tuple(padding.shape)}"
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
