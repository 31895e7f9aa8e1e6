"""Attention whose scores are changed and masked by functions of their positions.

    def alibi(score, b, h, q_idx, kv_idx):
        return score - slopes[h] * (q_idx - kv_idx)

    def causal(b, h, q_idx, kv_idx):
        return q_idx >= kv_idx

    mask = create_block_mask(causal, B=None, H=None, Q_LEN=256, KV_LEN=256)
    y = flex_attention(query, key, value, score_mod=alibi, block_mask=mask)

The functions are written for one score, and called once, with tensors of indices that broadcast to
the shape of all scores. One that is not elementwise is called for each score (`func.vmap`).
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import minigrad
from minigrad._names import namespace
from minigrad.func import vmap
from minigrad.nn import functional as F
from minigrad.tensor import Tensor

__all__ = [
    "AuxOutput",
    "AuxRequest",
    "BlockMask",
    "and_masks",
    "create_block_mask",
    "create_mask",
    "flex_attention",
    "noop_mask",
    "or_masks",
]

_DEFAULT_SPARSE_BLOCK_SIZE = 128  # other packages import it


class AuxRequest(NamedTuple):
    """What `flex_attention` also returns."""

    lse: bool = False
    max_scores: bool = False


class AuxOutput(NamedTuple):
    """For each query, the logarithm of the sum of its exponentiated scores, and the largest one."""

    lse: Tensor | None = None
    max_scores: Tensor | None = None


def noop_mask(batch: Tensor, head: Tensor, token_q: Tensor, token_kv: Tensor) -> Tensor:
    """Every query attends to every key."""
    return batch.new_ones((), dtype=minigrad.bool)


def and_masks(*mask_mods: Callable) -> Callable:
    """The function that masks what any of these does."""
    return _joined("and_masks", mask_mods, minigrad.logical_and)


def or_masks(*mask_mods: Callable) -> Callable:
    """The function that masks what all of these do."""
    return _joined("or_masks", mask_mods, minigrad.logical_or)


def _joined(name: str, mask_mods: tuple, join: Callable) -> Callable:
    if not all(callable(mod) for mod in mask_mods):
        raise RuntimeError(f"{name}: expected functions, got {mask_mods}")

    def mask_mod(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        found = b.new_tensor(join is minigrad.logical_and, dtype=minigrad.bool)
        for mod in mask_mods:
            found = join(found, mod(b, h, q_idx, kv_idx))
        return found

    return mask_mod


def _positions(shape: tuple, device: Any) -> list[Tensor]:
    """The indices of batch, head, query and key, which broadcast to this shape."""
    return [
        minigrad.arange(n, device=device).reshape([-1 if i == d else 1 for i in range(4)])
        for d, n in enumerate(shape)
    ]


def _everywhere(mod: Callable, shape: tuple, device: Any, score: Tensor | None = None) -> Tensor:
    """mod(score if there is one, b, h, q_idx, kv_idx) for all positions, of this shape."""
    places = _positions(shape, device)
    scores = [] if score is None else [score]
    found = mod(*scores, *places)
    if _elementwise(mod, found, shape, scores, places):
        return found.expand(shape)
    flat = [x.expand(shape).reshape(-1) for x in (*scores, *places)]
    return vmap(mod)(*flat).reshape(shape)


def _elementwise(mod: Callable, found: Any, shape: tuple, scores: list, places: list) -> bool:
    """Whether one call for all positions has given what a call for one position does, at two."""
    pairs = zip(found.shape[::-1], shape[::-1], strict=False)
    broadcasts = found.ndim <= 4 and all(n in (1, m) for n, m in pairs)
    if not broadcasts or 0 in shape:
        return broadcasts
    for at in (tuple(n - 1 for n in shape), tuple(n // 2 for n in shape)):
        indices = [place.reshape(-1)[i] for place, i in zip(places, at, strict=True)]
        one = mod(*[score[at] for score in scores], *indices)
        same = found.expand(shape)[at]
        if one.ndim or not minigrad.allclose(one.double(), same.double(), equal_nan=True):
            return False
    return True


def create_mask(
    mod_fn: Callable,
    B: int | None,
    H: int | None,
    Q_LEN: int,
    KV_LEN: int,
    device: Any = None,
) -> Tensor:
    """The bools (B, H, Q_LEN, KV_LEN) of a function of (b, h, q_idx, kv_idx): where a query attends
    to a key. None for B and H is 1. Of a function of (score, b, h, q_idx, kv_idx): where it does
    not return -inf.
    """
    shape = (B or 1, H or 1, Q_LEN, KV_LEN)
    needed = [p for p in inspect.signature(mod_fn).parameters.values() if p.default is p.empty]
    if len(needed) == 5:
        found = _everywhere(mod_fn, shape, device, minigrad.zeros(shape, device=device))
        return minigrad.logical_not(minigrad.isneginf(found))
    return _everywhere(mod_fn, shape, device).to(minigrad.bool)


class BlockMask:
    """Which blocks of keys each block of queries attends to: partly (`kv_num_blocks` blocks, the
    first ones of `kv_indices`, to which `mask_mod` applies), or as a whole (`full_kv_...`)."""

    def __init__(
        self,
        seq_lengths: tuple[int, int],
        partial: Tensor,
        full: Tensor | None,
        BLOCK_SIZE: tuple[int, int],
        mask_mod: Callable,
    ) -> None:
        self.seq_lengths, self.BLOCK_SIZE, self.mask_mod = seq_lengths, BLOCK_SIZE, mask_mod
        self._partial, self._full = partial, full
        self.kv_num_blocks, self.kv_indices = _ordered(partial)
        whole: tuple = (None, None) if full is None else _ordered(full)
        self.full_kv_num_blocks: Tensor | None = whole[0]
        self.full_kv_indices: Tensor | None = whole[1]

    @property
    def shape(self) -> tuple[int, ...]:
        """(batch, heads, queries, keys)"""
        return (*self.kv_num_blocks.shape[:2], *self.seq_lengths)

    def numel(self) -> int:
        """The number of scores."""
        return math.prod(self.shape)

    def to_dense(self) -> Tensor:
        """1 for each block that has a score, else 0."""
        used = self._partial if self._full is None else self._partial | self._full
        return used.to(minigrad.int32)

    def sparsity(self) -> float:
        """The percentage of scores that are not computed."""
        computed = int(self.to_dense().sum()) * math.prod(self.BLOCK_SIZE)
        return 100 * (1 - computed / self.numel())

    def to(self, device: Any) -> BlockMask:
        """The same mask for tensors on another device."""
        full = None if self._full is None else self._full.to(device)
        partial = self._partial.to(device)
        return BlockMask(self.seq_lengths, partial, full, self.BLOCK_SIZE, self.mask_mod)

    def __repr__(self) -> str:
        return f"BlockMask(shape={self.shape}, sparsity={self.sparsity():.2f}%)"


def _ordered(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """How many blocks of each row are used, and the numbers of all, the used ones first."""
    counts = blocks.sum(-1).to(minigrad.int32)
    order = minigrad.argsort(blocks.to(minigrad.int32), -1, descending=True, stable=True)
    return counts, order.to(minigrad.int32)


def create_block_mask(
    mask_mod: Callable,
    B: int | None,
    H: int | None,
    Q_LEN: int,
    KV_LEN: int,
    device: Any = None,
    BLOCK_SIZE: int | tuple[int, int] = _DEFAULT_SPARSE_BLOCK_SIZE,
    _compile: bool = False,
    separate_full_blocks: bool = True,
) -> BlockMask:
    """The blocks of (queries, keys) in which `mask_mod(b, h, q_idx, kv_idx)` is true somewhere;
    None for B and H: the same for each."""
    rows, columns = (BLOCK_SIZE,) * 2 if isinstance(BLOCK_SIZE, int) else BLOCK_SIZE
    mask = create_mask(mask_mod, B, H, Q_LEN, KV_LEN, device)
    mask = F.pad(mask, (0, -KV_LEN % columns, 0, -Q_LEN % rows), value=False)
    blocks = mask.unflatten(-1, (-1, columns)).unflatten(-3, (-1, rows))
    used, full = blocks.any(-1).any(-2), blocks.all(-1).all(-2)
    if not separate_full_blocks:
        return BlockMask((Q_LEN, KV_LEN), used, None, (rows, columns), mask_mod)
    return BlockMask((Q_LEN, KV_LEN), used & ~full, full, (rows, columns), mask_mod)


def flex_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: Callable | None = None,
    block_mask: BlockMask | None = None,
    scale: float | None = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    kernel_options: dict | None = None,
    *,
    return_aux: AuxRequest | None = None,
) -> Any:
    """softmax of score_mod(query @ key^T * scale, b, h, q_idx, kv_idx) where the mask lets pass,
    times value. A query that attends to nothing gets zeros.

    query (B, Hq, L, E), key (B or 1, Hkv, S, E), value (B or 1, Hkv, S, Ev). enable_gqa: several
    heads of query share one of key. return_lse: (result, lse); return_aux: (result, AuxOutput).
    kernel_options: for torch's compiler, not used here; all scores are in memory.
    Raises: NotImplementedError for tensors that have not 4 dimensions, ValueError for shapes that
    don't fit, or a mask of other lengths.
    """
    _check(query, key, value, block_mask, enable_gqa)
    if return_lse and return_aux is not None:
        raise ValueError("flex_attention: expected return_lse or return_aux, got both")
    shape = (*query.shape[:3], key.shape[2])
    masking = None if block_mask is None else block_mask.mask_mod
    mask = None if masking is None else _everywhere(masking, shape, query.device)
    groups = query.shape[1] // key.shape[1]
    key, value = (x.repeat_interleave(groups, 1).expand(shape[0], -1, -1, -1) for x in (key, value))
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    if score_mod is None and not return_lse and return_aux is None:
        return F.scaled_dot_product_attention(query, key, value, mask, scale=scale)
    precise = minigrad.float64 if query.dtype is minigrad.float64 else minigrad.float32
    scores = (query @ key.transpose(-2, -1)).to(precise) * scale
    if score_mod is not None:
        scores = _everywhere(score_mod, shape, query.device, scores).to(precise)
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    nowhere = (scores == -math.inf).all(-1, keepdim=True)
    weights = scores.masked_fill(nowhere, 0).softmax(-1).masked_fill(nowhere, 0)
    result = (weights.to(query.dtype) @ value).to(query.dtype)
    if return_aux is None and not return_lse:
        return result
    asked = AuxRequest(lse=True) if return_aux is None else return_aux
    found = AuxOutput(
        scores.logsumexp(-1) if asked.lse else None, scores.amax(-1) if asked.max_scores else None
    )
    return (result, found.lse) if return_aux is None else (result, found)


def _check(
    query: Tensor, key: Tensor, value: Tensor, block_mask: BlockMask | None, gqa: bool
) -> None:
    """Raise for what `flex_attention` doesn't take."""
    shapes = [tuple(x.shape) for x in (query, key, value)]
    if any(len(shape) != 4 for shape in shapes):
        raise NotImplementedError(
            f"flex_attention: expected query, key and value of 4 dimensions, got {shapes}"
        )
    if query.dtype is not key.dtype or query.dtype is not value.dtype:
        raise ValueError(
            "Expected query, key, and value to have the same dtype, but got query.dtype: "
            f"{query.dtype}, key.dtype: {key.dtype}, and value.dtype: {value.dtype} instead."
        )
    (batch, heads, queries, width), (keys_batch, groups, keys, of_key), _ = shapes
    if width != of_key or shapes[1][:3] != shapes[2][:3]:
        raise ValueError(f"flex_attention: query, key and value don't fit: {shapes}")
    if heads != groups and not gqa:
        raise ValueError(
            f"Expect query and key/value to have the same number of heads but got Hq={heads} and "
            f"Hkv={groups}. Try setting enable_gqa=True for GQA."
        )
    if heads % groups:
        raise ValueError(
            "Expect number of query heads to be a multiple of kv heads for GQA but got "
            f"Hq={heads} and Hkv={groups}."
        )
    if batch != keys_batch and (block_mask is None or keys_batch != 1):
        raise ValueError(
            f"flex_attention: expected the same batch size of query and key (or 1 and a mask), "
            f"got {batch} and {keys_batch}"
        )
    if block_mask is not None and block_mask.seq_lengths != (queries, keys):
        raise ValueError(
            f"block_mask was created for block_mask.shape={block_mask.shape} but got "
            f"q_len={queries} and kv_len={keys}; fix: create it for these lengths"
        )


__getattr__, __dir__ = namespace(__name__)
