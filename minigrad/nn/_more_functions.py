"""Functions of `minigrad.nn.functional` that are composed of others: norms, pools and shuffles."""

from __future__ import annotations

import math
from typing import Any

import minigrad
from minigrad.ops import pool, random, volume
from minigrad.ops.combine import pad
from minigrad.ops.pointwise import check_floating
from minigrad.tensor import Tensor


def local_response_norm(
    input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> Tensor:
    """input / (k + alpha * mean of the squares of `size` neighbouring channels)**beta, for
    (N, C, ...) (Krizhevsky et al. 2012)."""
    if input.dim() < 3:
        raise ValueError(
            f"Expected 3D or higher dimensionality input (got {input.dim()} dimensions)"
        )
    if not input.numel():
        return input
    flat = (input * input).reshape(input.shape[0], 1, input.shape[1], -1)
    flat = pad(flat, (0, 0, size // 2, (size - 1) // 2))
    mean = pool.avg_pool2d(flat, (size, 1), 1).reshape(input.shape)
    return input / (mean * alpha + k) ** beta


def _powers(mean: Tensor, count: int, norm_type: float) -> Tensor:
    """The root of sums from means of powers."""
    return (mean.sign() * mean.abs().relu() * count) ** (1.0 / norm_type)


def lp_pool1d(
    input: Tensor, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False
) -> Tensor:
    """The norm_type-norm of windows of (N, C, L) or (C, L)."""
    size = kernel_size if isinstance(kernel_size, int) else kernel_size[0]
    mean = pool.avg_pool1d(input**norm_type, kernel_size, stride, 0, ceil_mode)
    return _powers(mean, size, norm_type)


def lp_pool2d(
    input: Tensor, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False
) -> Tensor:
    """The norm_type-norm of windows of (N, C, H, W) or (C, H, W)."""
    size = pool.pair(kernel_size)
    mean = pool.avg_pool2d(input**norm_type, kernel_size, stride, 0, ceil_mode)
    return _powers(mean, math.prod(size), norm_type)


def lp_pool3d(
    input: Tensor, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False
) -> Tensor:
    """The norm_type-norm of windows of (N, C, D, H, W) or (C, D, H, W)."""
    size = volume.triple(kernel_size)
    mean = volume.avg_pool3d(input**norm_type, kernel_size, stride, 0, ceil_mode)
    return _powers(mean, math.prod(size), norm_type)


def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Tensor:
    """(..., C, H * r, W * r) to (..., C * r * r, H, W)"""
    r = downscale_factor
    if input.dim() < 3 or r <= 0:
        raise RuntimeError(
            "pixel_unshuffle expects input to have at least 3 dimensions and a positive "
            f"downscale_factor, but got {input.dim()} dimension(s) and {r}"
        )
    *lead, channels, height, width = input.shape
    if height % r or width % r:
        raise RuntimeError(
            f"pixel_unshuffle expects height and width to be divisible by downscale_factor, but "
            f"{height} x {width} is not divisible by {r}"
        )
    split = input.reshape(*lead, channels, height // r, r, width // r, r)
    n = len(lead)
    order = (*range(n), n, n + 2, n + 4, n + 1, n + 3)
    return split.permute(*order).reshape(*lead, channels * r * r, height // r, width // r)


def channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """The channels of (N, C, ...) in the order 0, C / groups, 2 C / groups, ..., 1, ..."""
    if input.dim() < 3:
        raise RuntimeError(
            f"channel_shuffle expects input with > 2 dims, but got input with sizes "
            f"{list(input.shape)}"
        )
    n, channels = input.shape[:2]
    if groups <= 0 or channels % groups:
        raise RuntimeError(
            "Number of channels must be divisible by groups. Got "
            f"{channels} channels and {groups} groups."
        )
    split = input.reshape(n, groups, channels // groups, *input.shape[2:])
    return split.transpose(1, 2).reshape(input.shape)


def pdist(input: Tensor, p: float = 2.0) -> Tensor:
    """The p-norms of the differences of all pairs of rows (N, M): (N (N - 1) / 2,)"""
    if input.dim() != 2:
        raise RuntimeError(f"pdist only supports 2D tensors, got: {input.dim()}D")
    check_floating("pdist", input)
    rows, columns = minigrad.triu_indices(input.shape[0], input.shape[0], 1, device=input.device)
    return (input[rows] - input[columns]).norm(p, -1)


def _alpha_dropout(input: Tensor, p: float, shape: tuple, inplace: bool) -> Tensor:
    """Dropout to the saturation value of selu, which keeps mean and variance."""
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
    if p == 1.0:
        return input.mul_(0) if inplace else input * 0
    keep = random.dropout(minigrad.ones(shape, dtype=input.dtype, device=input.device), p)
    keep = (keep != 0).to(input.dtype)
    low = -1.7580993408473766
    scale = ((1 - p) * (1 + p * low * low)) ** -0.5
    found = (input * keep + low * (1 - keep)) * scale + (-scale * low * p)
    return input.copy_(found) if inplace else found


def alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    """Dropout for selu, which keeps mean and variance (Klambauer et al. 2017)."""
    return _alpha_dropout(input, p, tuple(input.shape), inplace) if training else input


def feature_alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    """`alpha_dropout` of entire channels of (N, C, ...)."""
    shape = (*input.shape[:2], *(1,) * (input.dim() - 2))
    return _alpha_dropout(input, p, shape, inplace) if training else input


def rrelu(
    input: Tensor,
    lower: float = 1.0 / 8,
    upper: float = 1.0 / 3,
    training: bool = False,
    inplace: bool = False,
) -> Tensor:
    """input where positive, else times a slope: random per element in training, else the mean."""
    if lower > upper:
        raise RuntimeError("Lower bound should be less than or equal to the upper bound")
    slope: Any = (lower + upper) / 2
    if training:
        slope = minigrad.rand_like(input.detach()) * (upper - lower) + lower
    source = input.clone() if inplace else input
    found = minigrad.where(source > 0, source, source * slope)
    return input.copy_(found) if inplace else found


def embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    """Sums, means or maxima of rows of weight (V, D), per bag: (bags, D).

    input: (bags, n), or a vector of all bags with `offsets`, where each begins. Rows at padding_idx
    do not count; an empty bag gives zeros. per_sample_weights, like input, only with mode "sum".
    """
    if mode not in ("sum", "mean", "max"):
        raise ValueError(f"mode has to be one of sum, mean or max, got {mode!r}")
    if per_sample_weights is not None and mode != "sum":
        raise NotImplementedError(
            f"embedding_bag: per_sample_weights was not None. It is only supported for mode='sum' "
            f"(got mode='{mode}')."
        )
    if input.dim() == 2:
        if offsets is not None:
            raise ValueError("if input is 2D, then offsets has to be None")
        bags, n = input.shape
        ids = minigrad.arange(bags, device=input.device).repeat_interleave(n)
        input = input.reshape(-1)
    elif input.dim() == 1 and offsets is not None:
        starts = offsets[:-1] if include_last_offset else offsets
        bags = starts.shape[0]
        places = minigrad.arange(input.shape[0], device=input.device)
        ids = minigrad.searchsorted(starts.to(places.dtype), places, right=True) - 1
    else:
        raise ValueError("embedding_bag: expected a matrix, or a vector and offsets")
    F = minigrad.nn.functional
    rows = F.embedding(input, weight, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.reshape(-1, 1)
    if offsets is None and padding_idx is None and n and mode != "max":  # bags of one length
        groups = rows.reshape(bags, n, rows.shape[1])
        return groups.sum(1) if mode == "sum" else groups.mean(1)
    counted = minigrad.ones(input.shape[0], dtype=rows.dtype, device=rows.device)
    if padding_idx is not None:
        counted = (input != padding_idx % weight.shape[0]).to(rows.dtype)
    zeros = rows.new_zeros((bags, rows.shape[1]))
    if mode == "max":
        kept = counted > 0
        at = ids[kept].unsqueeze(1).expand(-1, rows.shape[1])
        return zeros.scatter_reduce(0, at, rows[kept], "amax", include_self=False)
    total = zeros.index_add(0, ids, rows * counted.unsqueeze(1))
    if mode == "sum":
        return total
    sizes = rows.new_zeros(bags).index_add(0, ids, counted).clamp(min=1)
    return total / sizes.unsqueeze(1)
