"""Multi-head attention (Vaswani et al. 2017)."""

from __future__ import annotations

from typing import Any

import minigrad
from minigrad.nn import functional as F
from minigrad.nn import init
from minigrad.nn._attention import each_once
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
    scores are stored. add_bias_kv, add_zero_attn: a key and a value after the others, which are
    parameters, and which are zeros.
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
        self.embed_dim = embed_dim
        self.num_heads = num_heads
        self.dropout = dropout
        self.batch_first, self.add_zero_attn = batch_first, add_zero_attn
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
            "bias_k": (1, 1, embed_dim) if add_bias_kv else None,
            "bias_v": (1, 1, embed_dim) if add_bias_kv else None,
        }
        for name, shape in shapes.items():
            absent = shape is None or (self._qkv_same_embed_dim and name[1:] == "_proj_weight")
            made = None if absent else Parameter(minigrad.empty(shape, **kind))
            self.register_parameter(name, made)
        self.out_proj = NonDynamicallyQuantizableLinear(embed_dim, embed_dim, bias=bias, **kind)
        self._reset_parameters()

    def _reset_parameters(self) -> None:
        """Xavier-uniform projections, biases 0; the further key and value are Xavier-normal."""
        for name, parameter in self.named_parameters(recurse=False):
            if name == "in_proj_bias":
                init.zeros_(parameter)
                init.zeros_(self.out_proj.bias)
            elif name in ("bias_k", "bias_v"):
                init.xavier_normal_(parameter)
            else:
                init.xavier_uniform_(parameter)

    @property
    def _out_bias(self) -> Tensor | None:
        """What the output projection adds."""
        return self.out_proj.bias

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
        transposed = self.batch_first and query.dim() == 3
        if transposed:
            query, key, value = each_once(lambda x: x.transpose(0, 1), query, key, value)
        out, weights = F.multi_head_attention_forward(
            *(query, key, value, self.embed_dim, self.num_heads),
            *(self.in_proj_weight, self.in_proj_bias, self.bias_k, self.bias_v),
            *(self.add_zero_attn, self.dropout, self.out_proj.weight, self._out_bias),
            training=self.training,
            key_padding_mask=key_padding_mask,
            need_weights=need_weights,
            attn_mask=attn_mask,
            use_separate_proj_weight=not self._qkv_same_embed_dim,
            q_proj_weight=self.q_proj_weight,
            k_proj_weight=self.k_proj_weight,
            v_proj_weight=self.v_proj_weight,
            average_attn_weights=average_attn_weights,
            is_causal=is_causal,
        )
        return out.transpose(0, 1) if transposed else out, weights
