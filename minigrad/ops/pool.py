"""Pooling: maxima and averages over windows, and the adaptive forms."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from kernels import dispatch
from kernels.launchers.pool import pool_output_size
from kernels.launchers.resample import Taps
from minigrad import dtypes
from minigrad.autograd.mode import mode
from minigrad.autograd.node import Op, titled
from minigrad.backends import array_module
from minigrad.ops import repeated
from minigrad.ops.composed import composed
from minigrad.ops.conv import Pair, check_positive, pair
from minigrad.ops.pointwise import check_floating
from minigrad.ops.reduce import mean
from minigrad.ops.taps import resampled
from minigrad.tensor import Tensor, export, wrap


class MaxPool2d(Op):
    """Maximum over windows: (y, positions in the flattened H * W plane)."""

    repeats = True
    saves = ()
    saves_outputs = (1,)
    grad_name = "MaxPool2DWithIndicesBackward0"

    @staticmethod
    def forward(
        x: Any, kernel: Pair, stride: Pair, padding: Pair, dilation: Pair, ceil_mode: bool
    ) -> Any:
        whole = kernel == x.shape[2:] and padding == (0, 0) and dilation == (1, 1)
        if whole and type(x) is np.ndarray and x.size:  # a reduction is faster than a window
            flat = x.reshape(*x.shape[:2], -1)
            indices = dispatch.active.reduce("argmax", flat, 2, True)
            y = dispatch.active.reduce("max", flat, 2, True)
            return y.reshape(*y.shape, 1), indices.reshape(*y.shape, 1)
        return dispatch.active.max_pool2d(x, kernel, stride, padding, dilation, ceil_mode)

    @staticmethod
    def vjp(
        ctx: Any,
        g: Tensor,
        kernel: Pair,
        stride: Pair,
        padding: Pair,
        dilation: Pair,
        ceil_mode: bool,
    ) -> tuple:
        (indices,) = ctx.tensors()
        shape = ctx.shapes[0]
        if mode.enabled:
            n, c, h, w = shape
            zeros = wrap(array_module(g._array).zeros((n, c, h * w), g._array.dtype))
            flat = zeros.scatter_add(2, indices.flatten(2), g.flatten(2))
            return (flat.reshape(shape),)
        options = dict(x_shape=shape, kernel=kernel, stride=stride, padding=padding)
        arrays, name = (g._array, indices._array), "max_pool2d_backward"
        found = repeated.run(name, *arrays, **options, dilation=dilation)
        return (wrap(found),)


class AdaptiveMaxPool2d(Op):
    """Maximum over windows that divide the planes: (y, positions in the flattened H * W plane)."""

    repeats = True
    saves = ()
    saves_outputs = (1,)
    grad_name = "AdaptiveMaxPool2DBackward0"

    @staticmethod
    def forward(x: Any, size: Pair) -> Any:
        return dispatch.active.adaptive_max_pool2d(x, size)

    @staticmethod
    def vjp(ctx: Any, g: Tensor, size: Pair) -> tuple:
        (indices,) = ctx.tensors()
        n, c, h, w = ctx.shapes[0]
        zeros = wrap(array_module(g._array).zeros((n, c, h * w), g._array.dtype))
        flat = zeros.scatter_add(2, indices.flatten(2), g.flatten(2))
        return (flat.reshape(n, c, h, w),)


class AvgPool2d(Op):
    """Mean over windows."""

    repeats = True
    saves = ()
    grad_name = "AvgPool2DBackward0"

    @staticmethod
    def forward(x: Any, **setting: Any) -> Any:
        return dispatch.active.avg_pool2d(x, **setting)

    @staticmethod
    def vjp(ctx: Any, g: Tensor, **setting: Any) -> tuple:
        return (AvgPool2dGradient.apply(g, shape=ctx.shapes[0], **setting),)


class AvgPool2dGradient(Op):
    """The gradient of AvgPool2d, linear in g."""

    repeats = True
    saves = ()
    grad_name = "AvgPool2DBackwardBackward0"

    @staticmethod
    def forward(g: Any, shape: tuple, **setting: Any) -> Any:
        return dispatch.active.avg_pool2d_backward(g, shape, **setting)

    @staticmethod
    def vjp(ctx: Any, h: Tensor, shape: tuple, **setting: Any) -> tuple:
        return (AvgPool2d.apply(h, **setting),)


def _windows(kernel: Any, stride: Any, padding: Any) -> tuple[Pair, Pair, Pair]:
    kernel = pair(kernel, "kernel_size")
    stride = kernel if stride is None or stride == () else pair(stride, "stride")
    padding = pair(padding, "padding")
    if min(stride) <= 0:
        raise RuntimeError("stride should not be zero")
    if min(kernel) <= 0:
        raise RuntimeError(f"kernel size should be greater than zero, but got {list(kernel)}")
    if min(padding) < 0:
        raise RuntimeError(f"pad must be non-negative, but got pad: {min(padding)}")
    if any(2 * p > k for p, k in zip(padding, kernel, strict=True)):
        raise RuntimeError(
            f"pad should be at most half of effective kernel size, but got pad={max(padding)}, "
            f"kernel_size={max(kernel)}"
        )
    return kernel, stride, padding


def batched(name: str, x: Tensor, dims: int) -> Tensor:
    if x._array.ndim not in (dims + 1, dims + 2):
        raise RuntimeError(
            f"{name}: non-empty {dims + 1}D or {dims + 2}D (batch mode) tensor expected for input, "
            f"but got {list(x.shape)}"
        )
    if 0 in x._array.shape[-dims - 1 :]:
        raise RuntimeError(
            f"{name}: Expected {dims + 1}D or {dims + 2}D (batch mode) tensor with optional 0 dim "
            f"batch size for input, but got: {list(x.shape)}"
        )
    return x if x._array.ndim == dims + 2 else x.unsqueeze(0)


@functools.lru_cache(4096)
def _check_output(
    name: str, size: tuple, kernel: Pair, step: Pair, padding: Pair, dilation: Pair, ceil_mode: bool
) -> None:
    """size: of the images."""
    for window in zip(size, kernel, step, padding, dilation, strict=True):
        if pool_output_size(*window, ceil_mode) < 1:
            raise RuntimeError(
                f"{name}: Given input size: {list(size)} and kernel {list(kernel)}: calculated "
                "output size is too small"
            )
        if window[-1] > window[0] > 0 and _has_empty_window(*window, ceil_mode):
            raise RuntimeError(
                f"{name}: dilation {list(dilation)} and padding {list(padding)} make windows that "
                f"have no element of an image of {list(size)}"
            )


def _has_empty_window(n: int, k: int, step: int, p: int, d: int, ceil_mode: bool) -> bool:
    """Whether all elements of some window along a dimension are padding."""
    starts = range(-p, pool_output_size(n, k, step, p, d, ceil_mode) * step - p, step)
    return not all(any(0 <= start + i * d < n for i in range(k)) for start in starts)


@export(method=False)
def max_pool2d(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """Maximum over windows of (N, C, H, W) or (C, H, W); stride defaults to the window."""
    if input._array.dtype.kind in "bc":
        raise dtypes.refused("max_pool2d", input._array.dtype)
    x = batched("max_pool2d", input, 2)
    kernel, step, pads = _windows(kernel_size, stride, padding)
    dilation = pair(dilation, "dilation")
    check_positive("dilation", dilation)
    _check_output("max_pool2d", x._array.shape[2:], kernel, step, pads, dilation, ceil_mode)
    y, indices = MaxPool2d.apply(
        x, kernel=kernel, stride=step, padding=pads, dilation=dilation, ceil_mode=ceil_mode
    )
    if input._array.ndim == 3:
        y, indices = y.squeeze(0), indices.squeeze(0)
    return (y, indices) if return_indices else y


def _first(value: Any) -> Any:
    """The number that is an option of one dimension; None for none."""
    if value is None or (isinstance(value, tuple | list) and not value):
        return None
    return int(value if isinstance(value, int | np.integer) else value[0])


@export(method=False)
def max_pool1d(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """Maximum over windows of (N, C, L) or (C, L)."""
    if not return_indices:
        check_floating("max_pool1d_impl", input)
    kernel = _first(kernel_size)
    step = kernel if _first(stride) is None else _first(stride)
    sizes = (kernel, step, _first(padding), _first(dilation))
    x = batched("max_pool1d", input, 1)
    if return_indices:
        y, indices = _row_maxima(x, sizes, ceil_mode)
        return (y, indices) if input is x else (y.squeeze(0), indices.squeeze(0))
    y = composed(_row_maxima, x, sizes=sizes, ceil=ceil_mode, alone=True)
    y = titled(y, "SqueezeBackward1")
    return y if input is x else y.squeeze(0)


def _row_maxima(x: Tensor, sizes: tuple, ceil: bool, alone: bool = False) -> Any:
    """Maxima over windows of (N, C, L), and their positions unless `alone`."""
    kernel, step, padding, dilation = sizes
    wide = ((1, kernel), (1, step), (0, padding), (1, dilation))
    y, indices = [t.squeeze(2) for t in max_pool2d(x.unsqueeze(2), *wide, ceil, True)]
    return y if alone else (y, indices)


@export(method=False)
def avg_pool2d(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """Mean over windows of (N, C, H, W) or (C, H, W); stride defaults to the window."""
    x = batched("avg_pool2d", input, 2)
    kernel, step, pads = _windows(kernel_size, stride, padding)
    integers = input._array.dtype == np.int64
    if not integers:
        check_floating("avg_pool2d", input)
    if divisor_override == 0:
        raise RuntimeError("divisor must be not zero")
    _check_output("avg_pool2d", x._array.shape[2:], kernel, step, pads, (1, 1), ceil_mode)
    y = AvgPool2d.apply(
        x.double() if integers else x,
        kernel=kernel,
        stride=step,
        padding=pads,
        ceil_mode=ceil_mode,
        count_include_pad=count_include_pad,
        divisor_override=divisor_override,
    )
    if integers:
        y = y.trunc().to(input.dtype)
    return y if input._array.ndim == 4 else y.squeeze(0)


@export(method=False)
def avg_pool1d(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """Mean over windows of (N, C, L) or (C, L)."""
    kernel = _first(kernel_size)
    step = kernel if _first(stride) is None else _first(stride)
    x, sizes = batched("avg_pool1d", input, 1), (kernel, step, _first(padding))
    how = (ceil_mode, count_include_pad)
    y = titled(composed(_row_means, x, sizes=sizes, how=how), "SqueezeBackward1")
    return y if input is x else y.squeeze(0)


def _row_means(x: Tensor, sizes: tuple, how: tuple) -> Tensor:
    """Means over windows of (N, C, L)."""
    kernel, step, padding = sizes
    return avg_pool2d(x.unsqueeze(2), (1, kernel), (1, step), (0, padding), *how).squeeze(2)


def _adaptive(name: str, x: Tensor) -> Tensor:
    """x with a batch dimension; errors of the adaptive pools of images."""
    if x._array.ndim < 3:
        raise ValueError(f"Input dimension should be at least 3, got {name} of {list(x.shape)}")
    if x._array.size:
        check_floating(name, x)
    if 0 in x._array.shape[-3:]:
        raise RuntimeError(
            f"{name}(): Expected input to have non-zero size for non-batch dimensions, but input "
            f"has sizes {list(x.shape)}"
        )
    return batched(name, x, 2)


def _check_adaptive1d(name: str, x: Tensor, output_size: Any) -> None:
    if x._array.ndim not in (2, 3):
        raise RuntimeError(f"{name}(): Expected 2D or 3D tensor, but got {list(x.shape)}")
    target_size(name, output_size, x._array.shape[-1:])


def target_size(name: str, output_size: Any, size: tuple) -> tuple[int, ...]:
    """The output size; a None among its lengths keeps that of the input."""
    if isinstance(output_size, int):
        output_size = (output_size,) * len(size)
    if output_size is None:
        raise TypeError(f"{name}(): argument 'output_size' must be int or tuple, not NoneType")
    if len(output_size) != len(size):
        raise RuntimeError(f"{name}: output_size must have {len(size)} lengths, got {output_size}")
    sizes = tuple([n if o is None else int(o) for o, n in zip(output_size, size, strict=True)])
    check_positive("the output size of an adaptive pool", sizes)
    return sizes


def _bounds(n: int, out: int) -> list[tuple[int, int]]:
    """Window i of an adaptive pool: floor(i n / out) up to ceil((i + 1) n / out)."""
    return [(i * n // out, -(-(i + 1) * n // out)) for i in range(out)]


@functools.lru_cache
def averages(n: int, out: int) -> Taps:
    """The means of the windows of an adaptive pool."""
    bounds = _bounds(n, out)
    rows = np.concatenate([np.full(b - a, i) for i, (a, b) in enumerate(bounds)])
    columns = np.concatenate([np.arange(a, b) for a, b in bounds])
    return Taps(
        out, n, rows, columns, np.concatenate([np.full(b - a, 1 / (b - a)) for a, b in bounds])
    )


@export(method=False)
def adaptive_avg_pool2d(input: Tensor, output_size: Any) -> Tensor:
    """Mean of (..., H, W) over windows such that the result has `output_size`.

    A single window is a mean; windows of equal size use average pooling.
    """
    x = _adaptive("adaptive_avg_pool2d", input)
    h, w = x._array.shape[2:]
    oh, ow = target_size("adaptive_avg_pool2d", output_size, (h, w))
    if oh == ow == 1:
        y = mean(x, (2, 3), keepdim=True)
    elif h % oh == 0 and w % ow == 0:
        y = avg_pool2d(x, (h // oh, w // ow))
    else:
        y = resampled(resampled(x, 2, averages(h, oh)), 3, averages(w, ow))
    return y if input._array.ndim == 4 else y.squeeze(0)


@export(method=False)
def adaptive_avg_pool1d(input: Tensor, output_size: Any) -> Tensor:
    """Mean of (..., L) over windows such that the result has `output_size`."""
    _check_adaptive1d("adaptive_avg_pool1d", input, output_size)
    return adaptive_avg_pool2d(input.unsqueeze(-2), (1, _first(output_size))).squeeze(-2)


@export(method=False)
def adaptive_max_pool2d(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """Maximum of (..., H, W) over windows such that the result has `output_size`."""
    x = _adaptive("adaptive_max_pool2d", input)
    h, w = x._array.shape[2:]
    oh, ow = target_size("adaptive_max_pool2d", output_size, (h, w))
    if h % oh == 0 and w % ow == 0:
        y, indices = max_pool2d(x, (h // oh, w // ow), return_indices=True)
    elif mode.observer is None:
        y, indices = AdaptiveMaxPool2d.apply(x, size=(oh, ow))
    else:
        y, indices = _unequal_maxima(x, oh, ow, return_indices)
    if input._array.ndim == 3:
        y, indices = y.squeeze(0), indices.squeeze(0)
    return (y, indices) if return_indices else y


def _unequal_maxima(x: Tensor, oh: int, ow: int, return_indices: bool) -> tuple[Tensor, Tensor]:
    """By windows of one size, along rows and then along columns: shorter ones have their last
    element several times. The second result is only right with return_indices."""
    xp, (h, w) = array_module(x._array), x._array.shape[2:]
    (rows, tall), (columns, wide) = _equal_windows(h, oh), _equal_windows(w, ow)
    x = x.index_select(3, wrap(xp.asarray(columns)))
    best, at = max_pool2d(x, (1, wide), return_indices=True)
    best = best.index_select(2, wrap(xp.asarray(rows)))
    best, found = max_pool2d(best, (tall, 1), return_indices=True)
    if not return_indices:
        return best, found
    column = xp.asarray(columns)[at._array % len(columns)]
    row = xp.asarray(rows)[found._array // ow]
    return best, wrap(row * w + xp.take_along_axis(column, row, 2))


@functools.lru_cache
def _equal_windows(n: int, out: int) -> tuple[np.ndarray, int]:
    """The places of all windows, one after the other, and the length of each."""
    bounds = _bounds(n, out)
    length = max(b - a for a, b in bounds)
    return np.concatenate([np.arange(a, a + length).clip(max=b - 1) for a, b in bounds]), length


@export(method=False)
def adaptive_max_pool1d(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """Maximum of (..., L) over windows such that the result has `output_size`."""
    _check_adaptive1d("adaptive_max_pool1d", input, output_size)
    y, indices = adaptive_max_pool2d(input.unsqueeze(-2), (1, _first(output_size)), True)
    return (y.squeeze(-2), indices.squeeze(-2)) if return_indices else y.squeeze(-2)
