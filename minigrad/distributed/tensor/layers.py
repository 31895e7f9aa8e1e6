"""What layers become when `parallelize_module` has divided their weights among ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from minigrad.backends import array_module
from minigrad.distributed.tensor.mappings import (
    Gather,
    Layout,
    Replicate,
    Shard,
    Sum,
    from_partial,
    from_parts,
    to_parts,
    to_whole,
)
from minigrad.nn import functional as F
from minigrad.nn.modules.attention import MultiheadAttention
from minigrad.nn.modules.linear import Linear
from minigrad.nn.modules.module import Module
from minigrad.nn.modules.sparse import Embedding
from minigrad.tensor import Tensor


@dataclass(frozen=True)
class Slicing:
    """How a parameter is divided: along `dim`, each of `blocks` equal blocks by itself."""

    dim: int
    blocks: int = 1

    def part(self, array: Any, rank: int, size: int) -> Any:
        """The part of one rank, in memory of its own."""
        moved = array_module(array).moveaxis(array, self.dim, 0)
        rest = moved.shape[1:]
        parts = moved.reshape(self.blocks, size, -1, *rest)[:, rank].reshape(-1, *rest)
        return array_module(array).array(
            array_module(array).moveaxis(parts, 0, self.dim), order="C", copy=True
        )

    def whole(self, parts: Any) -> Any:
        """The parameter from its parts (size, ...)."""
        xp = array_module(parts)
        moved = xp.moveaxis(parts, self.dim + 1, 1)  # (size, rows, ...)
        size, rows, *rest = moved.shape
        each = moved.reshape(size, self.blocks, rows // self.blocks, *rest)
        whole = xp.moveaxis(each, 0, 1).reshape(size * rows, *rest)
        return xp.ascontiguousarray(xp.moveaxis(whole, 0, self.dim))


class _Part(Module):
    """What divided layers share. layouts: of the input and of the output."""

    layouts: tuple[Layout, Layout]
    _group: Any

    def extra_repr(self) -> str:
        part = f"part {self._group.rank} of {self._group.size}"
        return f"{super().extra_repr()}, {part}".lstrip(", ")


class ColumnLinear(_Part, Linear):
    """Some of the output features."""

    layouts = (Replicate(), Shard(-1))

    def forward(self, input: Tensor) -> Tensor:
        x = to_whole(input, self.layouts[0], self._group)
        return from_parts(F.linear(x, self.weight, self.bias), -1, self.layouts[1], self._group)


class RowLinear(_Part, Linear):
    """Some of the input features: the ranks' results are added up."""

    layouts = (Shard(-1), Replicate())

    def forward(self, input: Tensor) -> Tensor:
        x, wanted = to_parts(input, self.layouts[0], -1, self._group), self.weight.shape[1]
        if x.shape[-1] != wanted:
            raise RuntimeError(
                f"RowwiseParallel: expected this rank's {wanted} of {self.in_features} input "
                f"features, got {x.shape[-1]}; divide the layer before it by ColwiseParallel(), or "
                "set input_layouts=Replicate()"
            )
        out = from_partial(F.linear(x, self.weight), self.layouts[1], self._group)
        if self.bias is None:
            return out
        # With a part of the output, a rank has a part of the bias's gradient.
        is_part = isinstance(self.layouts[1], Shard)
        return out + (to_whole(self.bias, Replicate(), self._group) if is_part else self.bias)


class ColumnEmbedding(_Part, Embedding):
    """Some columns of the table."""

    layouts = (Replicate(), Shard(-1))

    def forward(self, input: Tensor) -> Tensor:
        return from_parts(super().forward(input), -1, self.layouts[1], self._group)


class RowEmbedding(_Part, Embedding):
    """Some rows of the table (of the vocabulary): other ranks' rows are zero here, and the ranks'
    results are added up."""

    layouts = (Replicate(), Replicate())

    def forward(self, input: Tensor) -> Tensor:
        rows = self.weight.shape[0]
        index = input._array
        if index.size and not (0 <= int(index.min()) and int(index.max()) < self.num_embeddings):
            raise IndexError("index out of range in self")
        local = input - self._group.rank * rows
        mine = (local >= 0) & (local < rows)
        padding = None if self.padding_idx is None else self.padding_idx - self._group.rank * rows
        here = padding is not None and 0 <= padding < rows
        found = F.embedding(local * mine, self.weight, padding if here else None)
        out = found * mine.unsqueeze(-1).to(found.dtype)
        return from_partial(out, self.layouts[1], self._group)


class HeadwiseAttention(_Part, MultiheadAttention):
    """Some of the heads."""

    layouts = (Replicate(), Replicate())

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
        group = self._group
        whole = {id(x): x for x in (query, key, value)}  # one sum of gradients for each
        whole = {key: to_whole(x, Replicate(), group) for key, x in whole.items()}
        q, k, v = (whole[id(x)] for x in (query, key, value))
        if attn_mask is not None and attn_mask.dim() == 3:  # of each head
            heads = attn_mask.unflatten(0, (-1, self.num_heads * group.size))
            first = group.rank * self.num_heads
            attn_mask = heads[:, first : first + self.num_heads].flatten(0, 1)
        out, weights = super().forward(
            q, k, v, key_padding_mask, need_weights, attn_mask, average_attn_weights, is_causal
        )
        out = from_partial(out, Replicate(), group)
        out = out if self.out_proj.bias is None else out + self.out_proj.bias
        if weights is None or group.size == 1:
            return out, weights
        if average_attn_weights:
            return out, Sum.apply(weights, group=group) / group.size
        return out, Gather.apply(weights, group=group, dim=-3, partial=False)

    @property
    def _out_bias(self) -> None:
        """None: it is added once, to the sum over the ranks."""
        return None
