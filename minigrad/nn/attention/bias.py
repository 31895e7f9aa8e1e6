"""Causal masks as tensors of their own class: torch.nn.attention.bias's names."""

from __future__ import annotations

import enum
from typing import Any

import minigrad
from minigrad import dtypes
from minigrad._names import namespace
from minigrad.tensor import Tensor

__all__ = ["CausalBias", "CausalVariant", "causal_lower_right", "causal_upper_left"]

__getattr__, __dir__ = namespace(__name__)


class CausalVariant(enum.IntEnum):
    """Where the diagonal of a mask that is not square begins, or where it ends."""

    UPPER_LEFT = 1
    LOWER_RIGHT = 2


class CausalBias(Tensor):
    """The bools (queries, keys) of what a query sees; for attn_mask of
    `scaled_dot_product_attention`."""

    def __new__(cls, variant: CausalVariant, seq_len_q: int, seq_len_kv: int) -> CausalBias:
        if not isinstance(variant, CausalVariant):
            raise AssertionError(f"CausalBias: expected a CausalVariant, got {variant!r}")
        shift = seq_len_kv - seq_len_q if variant is CausalVariant.LOWER_RIGHT else 0
        seen = minigrad.ones(seq_len_q, seq_len_kv, dtype=dtypes.bool_).tril(shift)
        return Tensor._make_subclass(cls, seen)

    def __init__(self, variant: CausalVariant, seq_len_q: int, seq_len_kv: int) -> None:
        self.variant, self.seq_len_q, self.seq_len_kv = variant, seq_len_q, seq_len_kv


def _lengths(name: str, size: Any) -> tuple[int, int]:
    if len(size) != 2:
        raise AssertionError(f"{name} only supports 2D tensors, got {len(size)} lengths")
    return size[0], size[1]


def causal_upper_left(*size: int) -> CausalBias:
    """Query i sees keys 0 .. i, for size = (queries, keys)."""
    return CausalBias(CausalVariant.UPPER_LEFT, *_lengths("causal_upper_left", size))


def causal_lower_right(*size: int) -> CausalBias:
    """The last query sees all keys, each one before it a key less, for size = (queries, keys)."""
    return CausalBias(CausalVariant.LOWER_RIGHT, *_lengths("causal_lower_right", size))
