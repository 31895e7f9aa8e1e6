"""Functions of `minigrad.nn.functional` that are composed of others: norms, pools and shuffles."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

import minigrad
from minigrad.autograd.mode import autocasts
from minigrad.ops import norm, pool, random, volume
from minigrad.ops.bags import bag_sums, can_be_summed
from minigrad.ops.bounds import check_values
from minigrad.ops.combine import pad
from minigrad.ops.composed import composed, permuted
from minigrad.ops.distance import pair_distances
from minigrad.ops.pointwise import check_floating
from minigrad.tensor import Tensor


def group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Normalise each of num_groups groups of channels of (N, C, ...), more than one value."""
    if input.dim() >= 2 and num_groups > 0:
        n, channels, *rest = input.shape
        size = [n * channels // num_groups, num_groups, *rest]
        if size[0] * math.prod(rest) == 1:
            raise ValueError(
                f"Expected more than 1 value per channel when training, got input size {size}"
            )
    return norm.group_norm(input, num_groups, weight, bias, eps)


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
    average = pool.avg_pool2d if input.dim() == 3 else channel_average
    mean = average(flat, (size, 1), 1).reshape(input.shape)
    return input / (mean * alpha + k) ** beta


@autocasts
def channel_average(input: Tensor, size: tuple, stride: int) -> Tensor:
    """For what torch has an `avg_pool3d`, which `autocast` on a CPU computes in float32."""
    return pool.avg_pool2d(input, size, stride)


def cross_map_lrn2d(
    input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> Tensor:
    """input * (k + alpha / size * sum of the squares of neighbouring channels)**-beta, for
    (N, C, H, W). The neighbours are those at a distance below (size + 1) // 2 and, as in torch,
    channel 0."""
    if input.dim() != 4:
        raise ValueError(f"CrossMapLRN2d: Expected input to be 4D, got {input.dim()}D instead.")
    reach = (size + 1) // 2 - 1
    squares = input * input
    near = pad(squares, (0, 0, 0, 0, reach, reach)).unfold(1, 2 * reach + 1, 1).sum(-1)
    if input.shape[1] > reach + 1:
        first = squares[:, :1].expand_as(squares)[:, reach + 1 :]
        near = near + pad(first, (0, 0, 0, 0, reach + 1, 0))
    return input * (near * (alpha / size) + k) ** -beta


@autocasts
def fractional_max_pool2d(
    input: Tensor,
    kernel_size: Any,
    output_size: Any = None,
    output_ratio: Any = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Any:
    """Maxima of windows at random distances, which fill (N, C, H, W) or (C, H, W) (Graham 2014).

    Give the output's size or its ratio to the input's. _random_samples: (N, C, 2), from 0 to 1.
    """
    return _fractional(
        input, kernel_size, output_size, output_ratio, return_indices, _random_samples, 2
    )


@autocasts
def fractional_max_pool3d(
    input: Tensor,
    kernel_size: Any,
    output_size: Any = None,
    output_ratio: Any = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Any:
    """`fractional_max_pool2d` for (N, C, D, H, W) or (C, D, H, W), with samples (N, C, 3)."""
    return _fractional(
        input, kernel_size, output_size, output_ratio, return_indices, _random_samples, 3
    )


def _fractional(
    input: Tensor, kernel: Any, size: Any, ratio: Any, indices: bool, samples: Any, dims: int
) -> Any:
    name = f"fractional_max_pool{dims}d"
    if size is None and ratio is None:
        raise ValueError(f"{name} requires specifying either an output_size or an output_ratio")
    x = pool.batched(name, input, dims)
    extent = x.shape[2:]
    size = ntuple(ntuple(ratio, dims) if size is None else size, dims)
    if ratio is not None:
        size = tuple(int(n * part) for n, part in zip(extent, ntuple(ratio, dims), strict=True))
    kernel = ntuple(kernel, dims)
    wanted = (*x.shape[:2], dims)
    if len(kernel) != dims:
        raise RuntimeError(f"{name}: expected a number or {dims} as kernel_size, got {kernel}")
    if samples is not None:
        given = tuple(samples.shape)
        if given[1:] != wanted[1:] or given[0] < wanted[0] or samples.dtype != x.dtype:
            raise RuntimeError(
                f"{name}: expected _random_samples of shape {wanted} and {x.dtype}, got {given} "
                f"and {samples.dtype}"
            )
        samples = samples[: wanted[0]]
    for n, m, k in zip(extent, size, kernel, strict=True):
        if m + k - 1 > n:
            raise RuntimeError(f"{name}: pool size {k} too large relative to input size {n}")
    if samples is None:
        samples = minigrad.rand(wanted, dtype=x.dtype, device=x.device)
    flat: Any = 0
    order = [1, 0] if dims == 2 else [0, 1, 2]  # which sample is that of a dimension, as in torch
    for d, (n, m, k) in enumerate(zip(extent, size, kernel, strict=True)):
        starts = _starts(samples[..., order[d]], n, m, k)
        places = starts.unsqueeze(-1) + minigrad.arange(k, device=x.device)
        shape = [1] * (2 * dims)
        shape[d], shape[dims + d] = m, k
        flat = flat * n + places.reshape(*x.shape[:2], *shape)
    flat = flat.expand(*x.shape[:2], *size, *kernel).flatten(2)
    windows = x.flatten(2).gather(2, flat).reshape(*x.shape[:2], *size, math.prod(kernel))
    found, best = windows.max(-1)
    places = flat.reshape(windows.shape).gather(-1, best.unsqueeze(-1)).squeeze(-1)
    if input.dim() == dims + 1:
        found, places = found.squeeze(0), places.squeeze(0)
    return (found, places) if indices else found


def ntuple(value: Any, n: int) -> tuple:
    """`value` as a tuple of `n`: an int is repeated, an iterable is kept as it is."""
    return tuple(value) if isinstance(value, Iterable) else (value,) * n


def _starts(sample: Tensor, length: int, count: int, kernel: int) -> Tensor:
    """Where `count` windows of a dimension begin (..., count), by a number from 0 to 1 (...)."""
    last = minigrad.full_like(sample, length - kernel, dtype=minigrad.int64).unsqueeze(-1)
    if count == 1:
        return last
    step = (length - kernel) / (count - 1)
    place = minigrad.arange(count - 1, dtype=sample.dtype, device=sample.device)
    sample = sample.unsqueeze(-1)
    starts = ((place + sample) * step).long() - (sample * step).long()
    return minigrad.cat([starts, last], -1)


def _powers(mean: Tensor, count: int, norm_type: float) -> Tensor:
    """The root of sums from means of powers; sums of zero have no gradient."""
    sums = mean.sign() * mean.abs() * count
    empty = sums.detach() == 0
    return (sums.masked_fill(empty, 1.0) ** (1.0 / norm_type)).masked_fill(empty, 0.0)


def _extremes(
    function: Callable, input: Tensor, norm_type: float, kernel: Any, stride: Any, ceil: bool
) -> Tensor:
    """The greatest absolute values of windows, or for -inf the least ones."""
    sign = 1 if norm_type > 0 else -1
    return function(input.abs() * sign, kernel, stride, ceil_mode=ceil) * sign


def lp_pool1d(
    input: Tensor, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False
) -> Tensor:
    """The norm_type-norm of windows of (N, C, L) or (C, L)."""
    size = kernel_size if isinstance(kernel_size, int) else kernel_size[0]
    if math.isinf(norm_type):
        return _extremes(pool.max_pool1d, input, norm_type, kernel_size, stride, ceil_mode)
    mean = pool.avg_pool1d(input**norm_type, kernel_size, stride, 0, ceil_mode)
    return _powers(mean, size, norm_type)


def lp_pool2d(
    input: Tensor, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False
) -> Tensor:
    """The norm_type-norm of windows of (N, C, H, W) or (C, H, W)."""
    size = pool.pair(kernel_size)
    if math.isinf(norm_type):
        return _extremes(pool.max_pool2d, input, norm_type, kernel_size, stride, ceil_mode)
    mean = pool.avg_pool2d(input**norm_type, kernel_size, stride, 0, ceil_mode)
    return _powers(mean, math.prod(size), norm_type)


def lp_pool3d(
    input: Tensor, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False
) -> Tensor:
    """The norm_type-norm of windows of (N, C, D, H, W) or (C, D, H, W)."""
    size = volume.triple(kernel_size)
    if math.isinf(norm_type):
        return _extremes(volume.max_pool3d, input, norm_type, kernel_size, stride, ceil_mode)
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
    n, (high, wide) = len(lead), (height // r, width // r)
    split, shape = (*lead, channels, high, r, wide, r), (*lead, channels * r * r, high, wide)
    order = (*range(n), n, n + 2, n + 4, n + 1, n + 3)
    return composed(permuted, input, split=split, order=order, shape=shape)


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
    split = (n, groups, channels // groups, *input.shape[2:])
    order, shape = (0, 2, 1, *range(3, len(split))), tuple(input.shape)
    return composed(permuted, input, split=split, order=order, shape=shape)


def pdist(input: Tensor, p: float = 2.0) -> Tensor:
    """The p-norms of the differences of all pairs of rows (N, M): (N (N - 1) / 2,)"""
    if input.dim() != 2:
        raise RuntimeError(f"pdist only supports 2D tensors, got: {input.dim()}D")
    check_floating("pdist", input)
    return pair_distances(input, p)


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
    check_floating("leaky_relu", input)
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
    if mode == "max" and (sparse or scale_grad_by_freq):
        what = "sparse weights" if sparse else "scaling the gradient by the frequency"
        raise ValueError(f"max mode does not support {what}")
    if per_sample_weights is not None and mode != "sum":
        raise NotImplementedError(
            f"embedding_bag: per_sample_weights was not None. It is only supported for mode='sum' "
            f"(got mode='{mode}')."
        )
    if per_sample_weights is not None and per_sample_weights.shape != input.shape:
        raise ValueError(
            f"embedding_bag: If per_sample_weights ({per_sample_weights.shape}) is not None, then "
            f"it must have the same shape as the input ({input.shape})"
        )
    if input.dim() == 2:
        if offsets is not None:
            raise ValueError("if input is 2D, then offsets has to be None")
        bags, n = input.shape
        input = input.reshape(-1)
        if per_sample_weights is not None:
            per_sample_weights = per_sample_weights.reshape(-1)
    elif input.dim() == 1 and offsets is not None:
        check_values(_check_offsets, offsets._array, input.shape[0])
        if include_last_offset:
            end = int(offsets[-1])
            input, offsets = input[:end], offsets[:-1]
            if per_sample_weights is not None:
                per_sample_weights = per_sample_weights[:end]
        bags, n = offsets.shape[0], 0
    else:
        raise ValueError("embedding_bag: expected a matrix, or a vector and offsets")
    plain = max_norm is None and not scale_grad_by_freq and not sparse
    if plain and mode != "max" and can_be_summed(weight, input, per_sample_weights):
        starts = n if offsets is None else offsets._array
        return bag_sums(input, weight, starts, per_sample_weights, padding_idx, mode == "mean")
    if offsets is not None:
        places = minigrad.arange(input.shape[0], device=input.device)
        ids = minigrad.searchsorted(offsets.to(places.dtype), places, right=True) - 1
    F = minigrad.nn.functional
    rows = F.embedding(input, weight, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(1)
    if offsets is None and padding_idx is None and n:  # bags of one length
        groups = rows.reshape(bags, n, rows.shape[1])
        if mode == "max":
            return groups.max(1).values
        return groups.sum(1) if mode == "sum" else groups.mean(1)
    if offsets is None:
        ids = minigrad.arange(bags, device=input.device).repeat_interleave(n)
    kept = None if padding_idx is None else input != padding_idx % weight.shape[0]
    if mode == "max":
        rows, ids = (rows, ids) if kept is None else (rows[kept], ids[kept])
        return _first_maxima(rows, ids, bags)
    counted = minigrad.ones(input.shape[0], dtype=rows.dtype, device=rows.device)
    if kept is not None:
        counted = kept.to(rows.dtype)
        rows = rows * counted.unsqueeze(1)
    total = rows.new_zeros((bags, rows.shape[1])).index_add(0, ids, rows)
    if mode == "sum":
        return total
    sizes = rows.new_zeros(bags).index_add(0, ids, counted).clamp(min=1)
    return total / sizes.unsqueeze(1)


def _first_maxima(rows: Tensor, ids: Tensor, bags: int) -> Tensor:
    """The maxima of the rows of each bag, zeros for an empty one; of equal elements the first one
    gets the gradient."""
    count, width = rows.shape
    at = ids.unsqueeze(1).expand(-1, width)
    with minigrad.no_grad():
        best = rows.new_zeros((bags, width)).scatter_reduce(0, at, rows, "amax", include_self=False)
        found = (rows == best[ids]) | rows.isnan()
        places = minigrad.arange(count, device=rows.device).unsqueeze(1)
        places = minigrad.where(found, places, count)
        first = places.new_full((bags, width), count).scatter_reduce(0, at, places, "amin")
    return minigrad.cat([rows, rows.new_zeros((1, width))]).gather(0, first)


def _check_offsets(offsets: Any, length: int) -> None:
    if not isinstance(offsets, np.ndarray) or not offsets.size:  # no wait for a GPU
        return
    if offsets[-1] > length:
        raise RuntimeError(
            f"offsets[-1] can not be greater than input's length {length} but got offsets[-1] of "
            f"{offsets[-1]}"
        )
    if offsets[0] != 0:
        raise RuntimeError(
            "offsets[0] has to be 0, i.e., the first sequence in the mini-batch has to start from "
            f"position 0. However, got {offsets[0]}"
        )
