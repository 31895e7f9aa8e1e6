"""Transformer layers and stacks (Vaswani et al. 2017)."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import minigrad
from minigrad.autograd.mode import mode
from minigrad.nn import functional as F
from minigrad.nn import init
from minigrad.nn.modules.activation import GELU, ReLU
from minigrad.nn.modules.attention import MultiheadAttention
from minigrad.nn.modules.container import ModuleList
from minigrad.nn.modules.dropout import Dropout
from minigrad.nn.modules.linear import Linear
from minigrad.nn.modules.module import Module
from minigrad.nn.modules.normalization import LayerNorm
from minigrad.tensor import Tensor

__all__ = [
    "Transformer",
    "TransformerDecoder",
    "TransformerDecoderLayer",
    "TransformerEncoder",
    "TransformerEncoderLayer",
]

Activation = str | Callable[[Tensor], Tensor]


def _get_activation_fn(activation: str) -> Callable[[Tensor], Tensor]:
    if activation not in ("relu", "gelu"):
        raise RuntimeError(f"activation should be relu/gelu, not {activation}")
    return getattr(F, activation)


def _get_clones(module: Module, N: int) -> ModuleList:
    return ModuleList([deepcopy(module) for _ in range(N)])


class _Layer(Module):
    """What both layers have: self-attention, two linear layers, normalisation before or after."""

    _norms = 2  # with as many dropouts

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = F.relu,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        kind = {"device": device, "dtype": dtype}
        options = {"dropout": dropout, "bias": bias, "batch_first": batch_first, **kind}
        self.self_attn = MultiheadAttention(d_model, nhead, **options)
        if self._norms == 3:
            self.multihead_attn = MultiheadAttention(d_model, nhead, **options)
        self.linear1 = Linear(d_model, dim_feedforward, bias=bias, **kind)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias=bias, **kind)
        self.norm_first = norm_first
        for i in range(1, self._norms + 1):
            setattr(self, f"norm{i}", LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **kind))
        for i in range(1, self._norms + 1):
            setattr(self, f"dropout{i}", Dropout(dropout))
        self.activation = activation if callable(activation) else _get_activation_fn(activation)

    def _residual(self, x: Tensor, number: int, branch: Callable[[Tensor], Tensor]) -> Tensor:
        """x plus what the branch makes of it, normalised before or after."""
        norm, dropout = getattr(self, f"norm{number}"), getattr(self, f"dropout{number}")
        if self.norm_first:
            return x + dropout(branch(norm(x)))
        return norm(x + dropout(branch(x)))

    def _feedforward(self, x: Tensor) -> Tensor:
        return self.linear2(self.dropout(self.activation(self.linear1(x))))


def _attend(
    attention: Module, x: Tensor, memory: Tensor, mask: Any, padding: Any, causal: bool
) -> Tensor:
    given = {"attn_mask": mask, "key_padding_mask": padding, "is_causal": causal}
    return attention(x, memory, memory, need_weights=False, **given)[0]


class TransformerEncoderLayer(_Layer):
    """Self-attention and two linear layers, each with dropout, the sum with its input, layer norm.

    Shapes: src and output (S, N, d_model), with `batch_first` (N, S, d_model), or (S, d_model).
    `norm_first` normalises before attention and linear layers instead of after the sums.
    """

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        """src_mask (S, S): True, or -inf, excludes; src_key_padding_mask (N, S) excludes keys."""
        masks = src_mask, src_key_padding_mask, is_causal
        x = self._residual(src, 1, lambda x: _attend(self.self_attn, x, x, *masks))
        return self._residual(x, 2, self._feedforward)


class TransformerDecoderLayer(_Layer):
    """Self-attention, attention to the encoder's output, and two linear layers; see
    `TransformerEncoderLayer`."""

    _norms = 3

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """The masks are those of tgt's attention to itself and to memory."""
        own = tgt_mask, tgt_key_padding_mask, tgt_is_causal
        other = memory_mask, memory_key_padding_mask, memory_is_causal
        x = self._residual(tgt, 1, lambda x: _attend(self.self_attn, x, x, *own))
        x = self._residual(x, 2, lambda x: _attend(self.multihead_attn, x, memory, *other))
        return self._residual(x, 3, self._feedforward)


class _Stack(Module):
    """`num_layers` copies of a layer, and a normalisation at the end."""

    def __init__(self, layer: Module, num_layers: int, norm: Module | None) -> None:
        super().__init__()
        self.layers = _get_clones(layer, num_layers)
        self.num_layers = num_layers
        self.norm = norm


def _leaves_out_padding(layer: Module) -> bool:
    """Whether torch has a fast path for a layer."""
    if not isinstance(layer, TransformerEncoderLayer) or layer.norm_first:
        return False
    attention, activation = layer.self_attn, layer.activation
    return (
        attention.batch_first
        and attention._qkv_same_embed_dim
        and attention.in_proj_bias is not None
        and (activation in (F.relu, F.gelu) or isinstance(activation, ReLU | GELU))
        and layer.norm1.eps == layer.norm2.eps
        and attention.num_heads % 2 == 0
    )


class TransformerEncoder(_Stack):
    """A stack of `TransformerEncoderLayer`."""

    def __init__(
        self,
        encoder_layer: Module,
        num_layers: int,
        norm: Module | None = None,
        enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ) -> None:
        super().__init__(encoder_layer, num_layers, norm)
        self.enable_nested_tensor = enable_nested_tensor
        self.use_nested_tensor = enable_nested_tensor and _leaves_out_padding(encoder_layer)
        self.mask_check = mask_check

    def forward(
        self,
        src: Tensor,
        mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool | None = None,
    ) -> Tensor:
        """The arguments of each layer. Where torch leaves out what is padded (in evaluation
        without gradients, `batch_first`, padding at the end), this has zeros, as there."""
        padded = src_key_padding_mask if mask is None else None
        padded = padded if self._without_padding(src) else None
        for layer in self.layers:
            src = layer(src, mask, src_key_padding_mask, bool(is_causal))
        if padded is not None:
            padded = padded if padded.dtype == minigrad.bool else padded != 0
            if bool((padded[:, 1:] >= padded[:, :-1]).all()):
                src = src.masked_fill(padded.unsqueeze(-1), 0.0)
        return src if self.norm is None else self.norm(src)

    def _without_padding(self, src: Tensor) -> bool:
        """Whether torch would compute only what is not padded."""
        first = self.layers[0]
        if not self.use_nested_tensor or first.training or src.dim() != 3:
            return False
        if mode.autocast is not None or mode.observer is not None or mode.recorder is not None:
            return False
        return not mode.enabled or not any(x.requires_grad for x in (src, *first.parameters()))


class TransformerDecoder(_Stack):
    """A stack of `TransformerDecoderLayer`."""

    def __init__(self, decoder_layer: Module, num_layers: int, norm: Module | None = None) -> None:
        super().__init__(decoder_layer, num_layers, norm)

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """The arguments of each layer."""
        masks = tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask
        for layer in self.layers:
            tgt = layer(tgt, memory, *masks, bool(tgt_is_causal), memory_is_causal)
        return tgt if self.norm is None else self.norm(tgt)


class Transformer(Module):
    """Encoder and decoder.

    Shapes: src (S, N, d_model), tgt and output (T, N, d_model); batch first with `batch_first`.
    """

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = F.relu,
        custom_encoder: Module | None = None,
        custom_decoder: Module | None = None,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        kind = {"device": device, "dtype": dtype}
        options = d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first
        if custom_encoder is None:
            layer = TransformerEncoderLayer(*options, norm_first, bias, **kind)
            norm = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **kind)
            custom_encoder = TransformerEncoder(layer, num_encoder_layers, norm)
        if custom_decoder is None:
            layer = TransformerDecoderLayer(*options, norm_first, bias, **kind)
            norm = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **kind)
            custom_decoder = TransformerDecoder(layer, num_decoder_layers, norm)
        self.encoder, self.decoder = custom_encoder, custom_decoder
        self._reset_parameters()
        self.d_model = d_model
        self.nhead = nhead
        self.batch_first = batch_first

    def _reset_parameters(self) -> None:
        """All matrices anew."""
        for parameter in self.parameters():
            if parameter.dim() > 1:
                init.xavier_uniform_(parameter)

    def forward(
        self,
        src: Tensor,
        tgt: Tensor,
        src_mask: Tensor | None = None,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        src_is_causal: bool | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """Masks of the encoder's attention, of the decoder's to itself, and of that to memory."""
        if src.dim() == 3:
            batch = 0 if self.batch_first else 1
            if src.shape[batch] != tgt.shape[batch]:
                raise RuntimeError("the batch number of src and tgt must be equal")
        if src.shape[-1] != self.d_model or tgt.shape[-1] != self.d_model:
            raise RuntimeError("the feature number of src and tgt must be equal to d_model")
        memory = self.encoder(src, src_mask, src_key_padding_mask, src_is_causal)
        masks = tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask
        return self.decoder(tgt, memory, *masks, tgt_is_causal, memory_is_causal)

    @staticmethod
    def generate_square_subsequent_mask(sz: int, device: Any = None, dtype: Any = None) -> Tensor:
        """The causal mask (sz, sz): 0 up to the diagonal, -inf above."""
        filled = minigrad.full((sz, sz), float("-inf"), device=device, dtype=dtype)
        return filled.triu(1)
