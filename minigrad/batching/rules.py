"""How the operations of the dialect compute all elements of `vmap` at once.

A rule gets the batch and the arguments, of which at least one is a BatchedArray of the level, and
returns the `whole` of the results. `batch.run` is the operation on arrays without the level. Where
a parameter has elements of its own, those of a convolution or of a norm become channels.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kernels import dispatch
from kernels.pointwise import TABLE
from minigrad.backends import array_module, every_element
from minigrad.batching.arrays import Batch, NoRule, next_axis, rule


def _pointwise(op: str, *arrays: Any) -> Any:
    return dispatch.active.pointwise(TABLE[op], *arrays)


# --- pointwise, reductions


@rule("pointwise")
def _of_line(b: Batch, expr: Any, *arrays: Any, out: Any = None, **options: Any) -> Any:
    if out is None:
        return b.run(expr, *b.aligned(arrays), **options)
    *operands, into = b.aligned([*arrays, out])
    b.run(expr, *operands, out=into, **options)
    return out


@rule("reduce")
def _reduce(
    b: Batch, name: str, x: Any, axis: Any = None, keepdims: bool = False, dtype: Any = None
) -> Any:
    if axis is not None:
        return b.run(name, b.whole(x), next_axis(axis), keepdims, dtype)
    found = b.run(name, b.flat(x), (1,), False, dtype)
    return found.reshape(b.size, *[1] * x.ndim) if keepdims else found


@rule("deviations")
def _deviations(b: Batch, x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    every = tuple(range(x.ndim)) if axis is None else axis
    if not every:
        raise NoRule
    return b.run(b.whole(x), next_axis(every), keepdims)


# --- products


@rule("matmul")
def _matmul(b: Batch, x: Any, y: Any, bias: Any = None) -> Any:
    if min(x.ndim, y.ndim) < 2:
        raise NoRule
    if not b.has(bias):
        return _product(b, x, y, bias)
    return _pointwise("add", _product(b, x, y, None), b.beside(bias, max(x.ndim, y.ndim)))


def _product(b: Batch, x: Any, y: Any, bias: Any) -> Any:
    if b.has(x) and not b.has(y) and y.ndim == 2:  # one product of all rows
        *rows, k = b.whole(x).shape
        found = b.run(b.whole(x).reshape(math.prod(rows), k), y, bias)
        return found.reshape(*rows, found.shape[-1])
    if not (b.has(x) or b.has(y)):
        return b.full(b.run(x, y, bias))
    x, y = b.aligned((x, y))
    if x.shape[-1] == 1 and bias is None and x.dtype.kind == "f":  # outer products
        return _pointwise("mul", x, y)
    return b.run(x, y, bias)


@rule("conv2d")
def _conv2d(b: Batch, x: Any, w: Any, bias: Any = None, groups: int = 1, **geometry: Any) -> Any:
    if not (b.has(w) or b.has(bias)):
        return b.unfold(b.run(b.fold(x), w, bias, groups=groups, **geometry))
    if b.has(x) or groups > 1:
        x, groups = b.fold_channels(x), groups * b.size
    y = b.run(x, b.fold(w), b.fold(bias), groups=groups, **geometry)
    return b.unfold_channels(y)


@rule("conv2d_backward_data")
def _conv2d_backward_data(
    b: Batch, g: Any, w: Any, shape: tuple, bias: Any = None, groups: int = 1, **geometry: Any
) -> Any:
    rows, channels, *size = shape
    if not (b.has(w) or b.has(bias)):
        shape = (b.size * rows, channels, *size)
        found = b.run(b.fold(g), w, shape, bias=bias, groups=groups, **geometry)
        return b.unfold(found)
    shape, groups = (rows, b.size * channels, *size), groups * b.size
    g, w, bias = b.fold_channels(g), b.fold(w), b.fold(bias)
    return b.unfold_channels(b.run(g, w, shape, bias=bias, groups=groups, **geometry))


@rule("conv2d_backward_weight")
def _conv2d_backward_weight(
    b: Batch, g: Any, x: Any, shape: tuple, groups: int = 1, **geometry: Any
) -> Any:
    if b.has(x) or groups > 1:
        x, groups = b.fold_channels(x), groups * b.size
    shape = (b.size * shape[0], *shape[1:])
    return b.unfold(b.run(b.fold_channels(g), x, shape, groups=groups, **geometry))


@rule("attention")
def _attention(b: Batch, q: Any, k: Any, v: Any, mask: Any = None, *options: Any) -> Any:
    return b.unfold(b.run(b.fold(q), b.fold(k), b.fold(v), _mask(b, q, mask), *options))


@rule("attention_backward")
def _attention_backward(b: Batch, *arrays: Any) -> Any:
    *given, mask, causal, scale = arrays  # given: g, q, k, v, out, lse
    return b.unfold(b.run(*[b.fold(a) for a in given], _mask(b, given[1], mask), causal, scale))


def _mask(b: Batch, q: Any, mask: Any) -> Any:
    """A mask that broadcasts to (N, H, L, S), for all N of q."""
    if not (b.has(mask) or (mask is not None and mask.ndim == 4 and mask.shape[0] > 1)):
        return mask
    full = b.beside(mask, 4) if b.has(mask) else b.full(mask)
    shape = (b.size, q.shape[0], *full.shape[2:])
    return array_module(full).broadcast_to(full, shape).reshape(b.size * q.shape[0], *shape[2:])


# --- along an axis, or of images


@rule("softmax", "log_softmax", "cumsum", "cumprod", "logcumsumexp", "cummax", "cummin")
def _along(b: Batch, x: Any, axis: int = -1) -> Any:
    if not x.ndim:
        raise NoRule
    return b.run(b.whole(x), next_axis(axis))


@rule("softmax_backward", "log_softmax_backward", "cross")
def _along_of_two(b: Batch, x: Any, y: Any, axis: int = -1) -> Any:
    return b.run(b.full(x), b.full(y), next_axis(axis))


@rule("grid_sample", "distances")
def _of_rows(b: Batch, x: Any, y: Any, *options: Any) -> Any:
    return b.unfold(b.run(b.fold(x), b.fold(y), *options))


@rule("grid_sample_backward")
def _grid_sample_backward(b: Batch, g: Any, x: Any, grid: Any, *options: Any) -> Any:
    return b.unfold(b.run(b.fold(g), b.fold(x), b.fold(grid), *options))


@rule("resample")
def _resample(b: Batch, x: Any, axis: int, taps: Any) -> Any:
    return b.run(b.whole(x), next_axis(axis), taps)


@rule("max_pool2d", "avg_pool2d", "adaptive_max_pool2d")
def _pool(b: Batch, x: Any, *setting: Any, **options: Any) -> Any:
    return b.unfold(b.run(b.fold(x), *setting, **options))


@rule("max_pool2d_backward")
def _max_pool2d_backward(b: Batch, g: Any, indices: Any, x_shape: tuple, **setting: Any) -> Any:
    shape = (b.size * x_shape[0], *x_shape[1:])
    return b.unfold(b.run(b.fold(g), b.fold(indices), x_shape=shape, **setting))


@rule("avg_pool2d_backward")
def _avg_pool2d_backward(b: Batch, g: Any, x_shape: tuple, **setting: Any) -> Any:
    shape = (b.size * x_shape[0], *x_shape[1:])
    return b.unfold(b.run(b.fold(g), shape, **setting))


@rule("copy", "cast", "triangle", "sort", "quantize_rows")
def _of_last_dimensions(b: Batch, x: Any, *options: Any, **named: Any) -> Any:
    return b.run(b.whole(x), *options, **named) if x.ndim else b.run(b.flat(x), *options)[:, 0]


@rule("pad")
def _pad(b: Batch, x: Any, pads: Any, *options: Any, **named: Any) -> Any:
    return b.run(b.whole(x), [(0, 0), *pads], *options, **named)


@rule("concat")
def _concat(b: Batch, arrays: Any, axis: int = 0) -> Any:
    return b.run([b.full(a) for a in arrays], next_axis(axis))


@rule("dropout")
def _dropout(b: Batch, x: Any, p: float, seed: int, offset: int) -> Any:
    """The same numbers are drawn for each element, as in calls with one seed."""
    whole = b.whole(x)
    factors = b.run(array_module(whole).ones(x.shape, x.dtype), p, seed, offset)
    return np.where(factors == 0, factors, _pointwise("mul", whole, factors))


# --- norms and losses


@rule("layer_norm")
def _layer_norm(b: Batch, x: Any, weight: Any, bias: Any, eps: float, dims: int = 1) -> Any:
    if not (b.has(weight) or b.has(bias)):
        return b.run(b.whole(x), weight, bias, eps, dims)
    y, *statistics = b.run(b.full(x), None, None, eps, dims)
    y = y if weight is None else _pointwise("mul", y, b.beside(weight, x.ndim))
    y = y if bias is None else _pointwise("add", y, b.beside(bias, x.ndim))
    return y, *statistics


@rule("layer_norm_backward")
def _layer_norm_backward(
    b: Batch, g: Any, x: Any, mean: Any, invstd: Any, weight: Any, dims: int, affine: bool
) -> Any:
    g, x, mean, invstd = b.full(g), b.full(x), b.full(mean), b.full(invstd)
    scaled = g
    if b.has(weight):
        scaled, weight = _pointwise("mul", g, b.beside(weight, x.ndim - 1)), None
    dx = b.run(scaled, x, mean, invstd, weight, dims, False)[0]
    if not affine:
        return dx, None, None
    shape = (*x.shape[: x.ndim - dims], *[1] * dims)
    mean, invstd = mean.reshape(shape), invstd.reshape(shape)
    normal = _pointwise("mul", _pointwise("sub", x, mean), invstd)
    axes = tuple(range(1, x.ndim - dims))
    return dx, _summed(_pointwise("mul", g, normal), axes), _summed(g, axes)


def _summed(x: Any, axes: tuple) -> Any:
    return dispatch.active.reduce("sum", x, axes, False, x.dtype) if axes else x


@rule("rms_norm")
def _rms_norm(b: Batch, x: Any, weight: Any, eps: float, dims: int) -> Any:
    if not b.has(weight):
        return b.run(b.whole(x), weight, eps, dims)
    y, invrms = b.run(b.full(x), None, eps, dims)
    return _pointwise("mul", y, b.beside(weight, x.ndim)), invrms


@rule("rms_norm_backward")
def _rms_norm_backward(
    b: Batch, g: Any, x: Any, invrms: Any, weight: Any, dims: int, affine: bool
) -> Any:
    g, x, invrms = b.full(g), b.full(x), b.full(invrms)
    scaled = g
    if b.has(weight):
        scaled, weight = _pointwise("mul", g, b.beside(weight, x.ndim - 1)), None
    dx = b.run(scaled, x, invrms, weight, dims, False)[0]
    if not affine:
        return dx, None
    normal = _pointwise("mul", x, invrms.reshape(*x.shape[: x.ndim - dims], *[1] * dims))
    return dx, _summed(_pointwise("mul", g, normal), tuple(range(1, x.ndim - dims)))


@rule("batch_norm")
def _batch_norm(b: Batch, x: Any, weight: Any, bias: Any, eps: float) -> Any:
    y, *statistics = b.run(b.fold_channels(x), b.fold(weight), b.fold(bias), eps)
    return b.unfold_channels(y), *[b.unfold(part) for part in statistics]


@rule("batch_norm_apply")
def _batch_norm_apply(b: Batch, x: Any, *vectors: Any) -> Any:
    if not any(b.has(v) for v in vectors):
        return b.unfold(b.run(b.fold(x), *vectors))
    return b.unfold_channels(b.run(b.fold_channels(x), *[b.fold(v) for v in vectors]))


@rule("batch_norm_backward")
def _batch_norm_backward(b: Batch, g: Any, x: Any, *vectors: Any, **options: Any) -> Any:
    channels = b.fold_channels(g), b.fold_channels(x), *[b.fold(v) for v in vectors]
    dx, *slopes = b.run(*channels, **options)
    return b.unfold_channels(dx), *[b.unfold(part) for part in slopes]


@rule("group_norm_backward")
def _group_norm_backward(b: Batch, g: Any, x: Any, mean: Any, invstd: Any, weight: Any) -> Any:
    channels = [b.fold_channels(a) for a in (g, x, mean, invstd)]
    dx, *slopes = b.run(*channels, b.fold(weight))
    return b.unfold_channels(dx), *[b.unfold(part) for part in slopes]


@rule("cross_entropy", "cross_entropy_backward")
def _cross_entropy(b: Batch, *arrays: Any, **options: Any) -> Any:
    *rows, weight = arrays
    if b.has(weight):
        raise NoRule
    return b.unfold(b.run(*[b.fold(a) for a in rows], weight, **options))


# --- indices


def _offset(b: Batch, index: Any, size: int, negative: bool = False) -> Any:
    """Positions in what has `size` elements, as positions in all of them. One that is outside is
    left to a call for its element, which raises the error."""
    values = every_element(index)
    if values.size and (values.min() < (-size if negative else 0) or values.max() >= size):
        raise NoRule
    full = b.full(index)
    first = np.arange(b.size).reshape(b.size, *[1] * index.ndim) * size
    return np.where(full < 0, full + size, full).astype(np.int64) + first


@rule("embedding")
def _embedding(b: Batch, weight: Any, index: Any, negative: bool = False, error: Any = None) -> Any:
    if not b.has(weight):
        return b.run(weight, b.whole(index), negative, error)
    return b.run(b.fold(weight), _offset(b, index, weight.shape[0], negative))


@rule("take")
def _take(b: Batch, x: Any, index: Any, negative: bool = False, error: Any = None) -> Any:
    if not b.has(x):
        return b.run(x, b.whole(index), negative, error)
    return b.run(b.whole(x), _offset(b, index, x.size, negative))


@rule("embedding_backward")
def _embedding_backward(
    b: Batch, g: Any, index: Any, rows: int, negative: bool = False, onto: Any = None
) -> Any:
    places, how = _offset(b, index, rows, negative), {}
    if onto is not None:
        how["onto"] = b.fold(onto)
    return b.unfold(b.run(b.full(g), places, b.size * rows, **how))


@rule("take_backward")
def _take_backward(b: Batch, g: Any, index: Any, size: int, negative: bool = False) -> Any:
    places = _offset(b, index, size, negative)
    return b.run(b.full(g), places, b.size * size).reshape(b.size, size)


@rule("gather")
def _gather(b: Batch, x: Any, axis: int, index: Any) -> Any:
    return b.run(b.full(x), next_axis(axis), b.full(index))


@rule("scatter", "scatter_add")
def _scatter(b: Batch, x: Any, axis: int, index: Any, src: Any, out: Any = None, **how: Any) -> Any:
    if out is not None:
        how["out"] = b.whole(out)
    return b.run(b.full(x), next_axis(axis), b.full(index), b.full(src), **how)
