"""Reductions: the lines of `kernels.reduction`, one NumPy call each."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from kernels.reduction import TABLE as REDUCTIONS
from kernels.reduction import normalize_axes
from kernels.reference.common import compute_dtype, traced

_REDUCERS = {
    "sum": lambda x, axis: np.sum(x, axis=axis, dtype=x.dtype),
    "nansum": lambda x, axis: np.nansum(x, axis=axis, dtype=x.dtype),
    "mean": lambda x, axis: (
        np.sum(x, axis=axis, dtype=x.dtype) / x.dtype.type(_count(x.shape, axis))
    ),
    "prod": lambda x, axis: np.prod(x, axis=axis, dtype=x.dtype),
    "max": lambda x, axis: np.max(x, axis=axis),
    "min": lambda x, axis: np.min(x, axis=axis),
    "any": lambda x, axis: np.any(x, axis=axis),
    "all": lambda x, axis: np.all(x, axis=axis),
    "argmax": lambda x, axis: _arg_reduce(np.argmax, x, axis),
    "argmin": lambda x, axis: _arg_reduce(np.argmin, x, axis),
    "logsumexp": lambda x, axis: np.logaddexp.reduce(x, axis=axis),
    "sum_squares": lambda x, axis: np.sum(x * x, axis=axis, dtype=x.dtype),
    "norm1": lambda x, axis: np.sum(np.abs(x), axis=axis, dtype=x.dtype),
    "norm2": lambda x, axis: np.sqrt(np.sum(x * x, axis=axis, dtype=x.dtype)),
    "norm_inf": lambda x, axis: np.max(np.abs(x), axis=axis, initial=0),
}


@traced
def deviations(
    a: np.ndarray, axis: int | Sequence[int] | None = None, keepdims: bool = False
) -> np.ndarray:
    """The sum over `axis` (all axes for None) of the squares of the distances from the mean there,
    for a of a floating dtype."""
    axes = normalize_axes("deviations", axis, a.ndim)
    x = a.astype(compute_dtype(a.dtype), copy=False)
    with np.errstate(all="ignore"):
        centre = np.sum(x, axis=axes, dtype=x.dtype, keepdims=True) / _count(x.shape, axes)
        found = np.sum((x - centre) ** 2, axis=axes, keepdims=keepdims)
        return np.asarray(found, a.dtype)


def _count(shape: tuple[int, ...], axis: tuple[int, ...]) -> int:
    return math.prod(shape[a] for a in axis)


def _arg_reduce(fn: Callable, x: np.ndarray, axis: tuple[int, ...]) -> np.ndarray:
    if len(axis) == x.ndim:
        return np.asarray(fn(x), np.int64)
    if len(axis) != 1:
        raise ValueError(f"{fn.__name__}: takes one axis or all of them, got {axis}")
    return fn(x, axis=axis[0]).astype(np.int64)


@traced
def reduce(
    name: str,
    a: np.ndarray,
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
    dtype: np.dtype | None = None,
) -> np.ndarray:
    """Reduce over `axis` (all axes for None) with a line of `kernels.reduction`.

    dtype: of accumulation and result (default: that of `a`; float32 for 16-bit storage types
    while accumulating). Returns bool for any/all and int64 for argmax/argmin.
    Raises ValueError where there is nothing to reduce and no identity (max of an empty axis).
    """
    if name not in REDUCTIONS:
        raise ValueError(f"reduce: no reduction named {name!r}; there are {sorted(REDUCTIONS)}")
    axes = normalize_axes(name, axis, a.ndim)
    line = REDUCTIONS[name]
    if line.identity in ("lowest", "highest") and _count(a.shape, axes) == 0 and a.size == 0:
        raise ValueError(f"{name}: cannot reduce an empty axis of shape {a.shape}: no identity")
    dtype = np.dtype(dtype or a.dtype)
    x = a.astype(compute_dtype(dtype), copy=False)
    with np.errstate(all="ignore"):
        result = np.asarray(_REDUCERS[name](x, axes))
    if line.result == "same":
        result = result.astype(dtype, copy=False)
    if keepdims:
        result = result.reshape([1 if i in axes else n for i, n in enumerate(a.shape)])
    return result
