"""Sorting, top-k, k-th value, unique values, histograms.

The positions are computed by the array library; the values, with their gradient, by `gather`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minigrad import dtypes
from minigrad.backends import array_module
from minigrad.ops.pointwise import POINTWISE
from minigrad.ops.reduce import values_and_indices
from minigrad.tensor import Tensor, export, normalize_dim, wrap

_Sort, _TopK, _KthValue = map(values_and_indices, ("sort", "topk", "kthvalue"))


def _order(x: Tensor, dim: int, descending: bool) -> Tensor:
    """Positions that sort x along dim; equal values keep their order, NaN counts as largest."""
    xp = array_module(x._array)
    array = x._array
    if not descending:
        return wrap(xp.argsort(array, axis=dim, kind="stable"))
    flipped = xp.argsort(xp.flip(array, dim), axis=dim, kind="stable")
    return wrap(array.shape[dim] - 1 - xp.flip(flipped, dim))


@export()
def sort(
    input: Tensor,
    dim: int = -1,
    descending: bool = False,
    stable: bool = True,
) -> Any:
    """(values, indices) in order along `dim`."""
    if not input._array.ndim:
        return _Sort(input.clone(), wrap(np.zeros((), np.int64)))
    place = normalize_dim(dim, input._array.ndim)
    indices = _order(input, place, descending)
    return _Sort(input.gather(place, indices), indices)


@export()
def argsort(
    input: Tensor,
    dim: int = -1,
    descending: bool = False,
    stable: bool = True,
) -> Tensor:
    """The positions that sort `input` along `dim`."""
    return sort(input.detach(), dim, descending).indices


@export()
def topk(
    input: Tensor,
    k: int,
    dim: int = -1,
    largest: bool = True,
    sorted: bool = True,
) -> Any:
    """(values, indices) of the k largest (or smallest) along `dim`."""
    place = normalize_dim(dim, input._array.ndim)
    n = input._array.shape[place] if input._array.ndim else 1
    if not 0 <= k <= n:
        raise RuntimeError("selected index k out of range")
    values, indices = sort(input, place, largest)
    if not input._array.ndim:
        return _TopK(values, indices)
    indices = indices.narrow(place, 0, k).contiguous()
    return _TopK(input.gather(place, indices), indices)


@export()
def kthvalue(input: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    """(value, index) of the k-th smallest (from 1) along `dim`."""
    place = normalize_dim(dim, input._array.ndim)
    n = input._array.shape[place] if input._array.ndim else 1
    if not 1 <= k <= n:
        raise RuntimeError(f"kthvalue(): selected number k out of range for dimension {dim}")
    if not input._array.ndim:
        return _KthValue(input.clone(), wrap(np.zeros((), np.int64)))
    indices = _order(input, place, False).narrow(place, k - 1, 1).contiguous()
    values = input.gather(place, indices)
    if keepdim:
        return _KthValue(values, indices)
    return _KthValue(values.squeeze(place), indices.squeeze(place))


@export()
def median(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """The lower median: a tensor, or with `dim` (values, indices)."""
    if dim is None:
        return _median_of_all(input.reshape(-1))
    place = normalize_dim(dim, input._array.ndim)
    if not input._array.ndim:
        return input.kthvalue(1, 0, keepdim)
    count = input._array.shape[place]
    middle = input.kthvalue((count + 1) // 2, place, keepdim)
    absent = POINTWISE["isnan"](input.detach())
    if not bool(absent.any()):
        return middle
    first = absent.to(dtypes.uint8).argmax(place, keepdim=True)  # in a row with NaN, its position
    indices = middle.indices if keepdim else middle.indices.unsqueeze(place)
    indices = POINTWISE["where"](absent.any(place, keepdim=True), first, indices)
    values = input.gather(place, indices)
    if keepdim:
        return type(middle)(values, indices)
    return type(middle)(values.squeeze(place), indices.squeeze(place))


def _median_of_all(x: Tensor) -> Tensor:
    """The median; NaN if there is a NaN or no element. Equal elements share the gradient."""
    values = x.detach()
    if not values.numel() or bool(POINTWISE["isnan"](values).any()):
        return x.sum() * float("nan")
    middle = values.kthvalue((values.numel() + 1) // 2).values
    return x.masked_select(POINTWISE["eq"](values, middle)).amax()


@export()
def unique(
    input: Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
    *,
    axis: int | None = None,
) -> Any:
    """The distinct values in order; optionally the index of each element in them, and their
    counts."""
    array = input.detach()._array
    found = array_module(array).unique(
        array,
        return_inverse=return_inverse,
        return_counts=return_counts,
        axis=axis if dim is None else dim,
    )
    if not (return_inverse or return_counts):
        return wrap(found)
    parts = [wrap(part) for part in found]
    if return_inverse and dim is None and axis is None:
        parts[1] = parts[1].reshape(array.shape)
    return tuple(parts)


@export(method=False)
def searchsorted(sorted_sequence: Tensor, values: Any, *, right: bool = False) -> Tensor:
    """The positions (int64) at which values would be inserted into an ascending vector."""
    wanted = values._array if isinstance(values, Tensor) else values
    side = "right" if right else "left"
    found = array_module(sorted_sequence._array).searchsorted(sorted_sequence._array, wanted, side)
    return wrap(np.asarray(found, np.int64))


@export()
def bincount(input: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    """The count of each non-negative integer (or the sum of its weights)."""
    array = input._array
    if array.ndim != 1 or array.dtype.kind not in "iu" or (array.size and array.min() < 0):
        raise RuntimeError("bincount only supports 1-d non-negative integral inputs.")
    w = None if weights is None else weights.detach()._array
    return wrap(array_module(array).bincount(array, w, minlength))


@export()
def histc(input: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
    """Counts of elements in `bins` equal intervals of [min, max] (of the data if both are 0)."""
    array = input.detach()._array
    limits = (min, max) if (min, max) != (0, 0) else (float(array.min()), float(array.max()))
    counts, _ = np.histogram(array, bins, limits)
    return wrap(counts.astype(array.dtype))
