"""How functions and methods of NumPy compute all elements of `vmap` at once; see `rules.py`."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from minigrad.backends import is_batched
from minigrad.batching.arrays import RULES, Batch, NoRule, created, next_axis, of_numpy
from minigrad.ops.views import expand_array


@of_numpy("ufunc", "broadcast_arrays")
def _ufunc(b: Batch, *arrays: Any, **options: Any) -> Any:
    return b.run(*b.aligned(arrays), **options)


@of_numpy("where")
def _where(b: Batch, condition: Any, x: Any, y: Any) -> Any:
    return b.run(*b.aligned((condition, x, y)))


@of_numpy("may_share_memory", "shares_memory")
def _share(b: Batch, *arrays: Any) -> Any:
    return b.run(*[b.whole(a) if b.has(a) else a for a in arrays])


@of_numpy("getitem")
def _getitem(b: Batch, x: Any, key: Any) -> Any:
    key = key if isinstance(key, tuple) else (key,)
    if not all(_is_basic(part) for part in key):
        raise NoRule
    return b.whole(x)[(slice(None), *key)]


@of_numpy("setitem")
def _setitem(b: Batch, x: Any, key: Any, value: Any) -> Any:
    key = key if isinstance(key, tuple) else (key,)
    if not all(_is_basic(part) for part in key):
        raise NoRule
    key = key if Ellipsis in key else (*key, ...)
    target = b.whole(x)[(slice(None), *key)]
    if hasattr(value, "ndim") and value.ndim > target.ndim - 1:
        raise NoRule
    target[...] = b.beside(value, target.ndim - 1)
    return None


def _is_basic(part: Any) -> bool:
    if isinstance(part, bool):
        return False
    return part is None or part is Ellipsis or isinstance(part, slice | int | np.integer)


@of_numpy("reshape")
def _reshape(b: Batch, x: Any, *shape: Any, **options: Any) -> Any:
    given = shape[0] if len(shape) == 1 and not isinstance(shape[0], int | np.integer) else shape
    if options:
        raise NoRule
    return b.whole(x).reshape(b.size, *given)


@of_numpy("ravel", "flatten")
def _ravel(b: Batch, x: Any) -> Any:
    return b.flat(x)


@of_numpy("transpose")
def _transpose(b: Batch, x: Any, *axes: Any) -> Any:
    if len(axes) == 1 and not isinstance(axes[0], int):
        axes = tuple(axes[0] or ())
    order = [a % x.ndim for a in axes] if axes else [*reversed(range(x.ndim))]
    return b.whole(x).transpose((0, *next_axis(order)))


@of_numpy("swapaxes", "moveaxis")
def _of_two_axes(b: Batch, x: Any, first: Any, second: Any) -> Any:
    return b.run(b.whole(x), next_axis(first), next_axis(second))


@of_numpy("expand_dims", "flip")
def _of_axes(b: Batch, x: Any, axis: Any = None) -> Any:
    if axis is None:
        raise NoRule
    return b.run(b.whole(x), next_axis(axis))


@of_numpy("argsort", "sort", "argpartition", "accumulate", "roll", "repeat")
@of_numpy("fft.fft", "fft.ifft", "fft.rfft", "fft.irfft")
def _along_axis(b: Batch, x: Any, *options: Any, axis: Any = None, **named: Any) -> Any:
    if axis is None:
        raise NoRule
    return b.run(b.whole(x), *options, axis=next_axis(axis), **named)


@of_numpy("as_strided")
def _as_strided(b: Batch, x: Any, shape: tuple, strides: tuple) -> Any:
    return b.run(b.whole(x), (b.size, *shape), (b.whole(x).strides[0], *strides))


@of_numpy("diagonal", "trace")
def _diagonal(b: Batch, x: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, **how: Any) -> Any:
    return b.run(b.whole(x), offset, next_axis(axis1), next_axis(axis2), **how)


@of_numpy("squeeze")
def _squeeze(b: Batch, x: Any, axis: Any = None) -> Any:
    kept = tuple([a for a, n in enumerate(x.shape) if n == 1]) if axis is None else axis
    return b.whole(x).squeeze(next_axis(kept))


@of_numpy("broadcast_to")
def _broadcast_to(b: Batch, x: Any, shape: Any, **options: Any) -> Any:
    whole, shape = b.beside(x, len(shape)), (b.size, *shape)
    if is_batched(whole):
        return whole.module.broadcast_to(whole, shape)
    return expand_array(whole, shape)


@of_numpy("astype", "conj", "copy", "round")
def _elementwise(b: Batch, x: Any, *options: Any, **named: Any) -> Any:
    return b.run(b.whole(x), *options, **named)


_OF_MATRICES = "inv det slogdet cholesky eigh eigvalsh pinv qr svd".split()


@of_numpy("tril", "triu", *[f"linalg.{name}" for name in _OF_MATRICES])
def _of_matrices(b: Batch, x: Any, *options: Any, **named: Any) -> Any:
    if x.ndim < 2:
        raise NoRule
    return b.run(b.whole(x), *options, **named)


@of_numpy("view")
def _view(b: Batch, x: Any, *kind: Any) -> Any:
    if not x.ndim:
        raise NoRule
    return b.run(b.whole(x), *kind)


def _like(name: str, b: Batch, x: Any, dtype: Any = None) -> Any:
    return created(name, x, x.shape, x.dtype if dtype is None else dtype).whole


for _name in ("zeros", "ones", "empty"):
    RULES[f"numpy.{_name}_like"] = functools.partial(_like, _name)


@of_numpy("all", "any", "max", "mean", "min", "prod", "std", "sum", "var")
def _statistic(b: Batch, x: Any, axis: Any = None, *options: Any, **named: Any) -> Any:
    every = tuple(range(x.ndim)) if axis is None else axis
    return b.run(b.whole(x), next_axis(every), *options, **named)


@of_numpy("concatenate", "stack")
def _joined(b: Batch, arrays: Any, axis: int = 0) -> Any:
    return b.run([b.full(a) for a in arrays], next_axis(axis))


@of_numpy("linalg.solve")
def _solve(b: Batch, x: Any, y: Any) -> Any:
    if min(x.ndim, y.ndim) < 2:
        raise NoRule
    return b.run(*b.aligned((x, y)))
