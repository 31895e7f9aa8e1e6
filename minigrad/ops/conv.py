"""Convolutions: one operation and its two gradients, each the gradient of the others.

A 1-D convolution is a 2-D one of height 1. A transposed convolution computes the gradient of a
convolution with respect to its input.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kernels import dispatch
from minigrad import dtypes
from minigrad.autograd.mode import autocasts, joining
from minigrad.autograd.node import Op, titled
from minigrad.ops.combine import pad_constant
from minigrad.tensor import Tensor, export

Pair = tuple[int, int]


def _by_parts(kernel: Callable, a: Any, b: Any, bias: Any, *shape: tuple, **geometry: Any) -> Any:
    """`kernel` of complex arrays, from those of their parts: it is linear in both."""
    real = kernel(a.real, b.real, *shape, **geometry) - kernel(a.imag, b.imag, *shape, **geometry)
    other = kernel(a.real, b.imag, *shape, **geometry) + kernel(a.imag, b.real, *shape, **geometry)
    out = real + 1j * other
    return out if bias is None else out + bias[:, None, None]


def _conjugates(ctx: Any) -> list[Any]:
    """What a node has saved, without what no gradient needs."""
    return [None if t is None else t.conj() for t in ctx.tensors()]


class Conv2d(Op):
    """Cross-correlation of x (N, C, H, W) with w (O, C / groups, KH, KW), plus bias (O,)."""

    repeats = True
    bilinear = True
    grad_name = "ConvolutionBackward0"

    @staticmethod
    def rule(x: Tensor, w: Tensor, bias: Tensor | None, **geometry: Any) -> None:
        check_dtypes(x, w, bias, geometry["dilation"] != (1, 1))
        check_sizes(x._array.shape, w._array.shape, bias, **geometry)

    @staticmethod
    def forward(x: Any, w: Any, bias: Any, **geometry: Any) -> Any:
        if x.dtype.kind == "c":
            return _by_parts(dispatch.active.conv2d, x, w, bias, **geometry)
        return dispatch.active.conv2d(x, w, bias, **geometry)

    @staticmethod
    def vjp(ctx: Any, g: Tensor, **geometry: Any) -> tuple:
        x, w = _conjugates(ctx) if g._array.dtype.kind == "c" else ctx.tensors()
        need = ctx.needs
        return (
            ConvData.apply(g, w, None, shape=ctx.shapes[0], **geometry) if need[0] else None,
            _slope_of_weight(ctx, g, x, geometry) if need[1] else None,
            g.sum((0, 2, 3)) if need[2] else None,
        )


class Conv1d(Conv2d):
    """Conv2d of height 1; its errors name the sizes without the height."""

    grad_name = "ConvolutionBackward0"

    @staticmethod
    def rule(x: Tensor, w: Tensor, bias: Tensor | None, **geometry: Any) -> None:
        n, c, _, length = x._array.shape
        o, group, _, k = w._array.shape
        check_dtypes(x, w, bias, geometry["dilation"] != (1, 1))
        check_sizes((n, c, length), (o, group, k), bias, **geometry)


def check_dtypes(x: Tensor, w: Tensor, bias: Tensor | None, rare: bool = False) -> None:
    """Errors of dtypes; rare: a form that torch has for floats and int64 only."""
    dtype = x._array.dtype
    for other in (w, bias):
        if other is not None and other._array.dtype != dtype:
            raise RuntimeError(
                f"Input type ({x.dtype}) and weight type ({other.dtype}) should be the same"
            )
    if dtype.kind == "b" or (rare and dtype.kind in "iu" and dtype != np.int64):
        raise dtypes.refused("convolution", dtype)


def check_sizes(
    shape: tuple,
    kernel: tuple,
    bias: Tensor | None,
    stride: Pair,
    padding: Pair,
    dilation: Pair,
    groups: int,
) -> None:
    """Errors of an input (N, C, ...) and a weight (O, C / groups, ...) of one or two dimensions."""
    if 0 in kernel[2:]:
        raise RuntimeError(f"kernel size should be greater than zero, but got {list(kernel[2:])}")
    if kernel[0] == 0:
        raise RuntimeError(
            f"Given groups={groups}, expected weight to be at least {groups} at dimension 0, but "
            f"got weight of size {list(kernel)} instead"
        )
    if 0 in shape[1:]:
        raise RuntimeError(
            f"Only zero batch inputs are supported, but got input shape: {list(shape)}"
        )
    if groups <= 0 or kernel[0] % groups:
        raise RuntimeError(
            f"Given groups={groups}, expected weight to be divisible by {groups} at dimension 0, "
            f"but got weight of size {list(kernel)} instead"
        )
    if shape[1] != kernel[1] * groups:
        raise RuntimeError(
            f"Given groups={groups}, weight of size {list(kernel)}, expected input{list(shape)} to "
            f"have {kernel[1] * groups} channels, but got {shape[1]} channels instead"
        )
    if bias is not None and bias._array.shape != kernel[:1]:
        raise RuntimeError(
            f"Given weight of size {list(kernel)}, expected bias to be 1-dimensional with "
            f"{kernel[0]} elements, but got bias of size {list(bias.shape)} instead"
        )
    if min(stride) <= 0:
        raise RuntimeError("non-positive stride is not supported")
    if min(padding) < 0:
        raise RuntimeError("negative padding is not supported")
    check_positive("dilation", dilation)
    dims = len(shape) - 2
    _check_kernel_fits(shape[2:], kernel[2:], padding[-dims:], dilation[-dims:])


def _check_kernel_fits(size: tuple, kernel: tuple, padding: tuple, dilation: tuple) -> None:
    for n, k, p, d in zip(size, kernel, padding, dilation, strict=True):
        if d * (k - 1) + 1 > n + 2 * p:
            break
    else:
        return
    padded = [n + 2 * p for n, p in zip(size, padding, strict=True)]
    reach = [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)]
    raise RuntimeError(
        f"Calculated padded input size per channel: ({' x '.join(map(str, padded))}). Kernel size: "
        f"({' x '.join(map(str, reach))}). Kernel size can't be greater than actual input size"
    )


class ConvData(Op):
    """The gradient of Conv2d with respect to x, of `shape`; linear in g and in w. With a bias (C,)
    for the channels of x it is a transposed convolution of g."""

    repeats = True
    bilinear = True
    grad_name = "ConvolutionBackward0"

    @staticmethod
    def rule(g: Tensor, w: Tensor, bias: Tensor | None, shape: tuple, **geometry: Any) -> None:
        if g._array.shape[1] != w._array.shape[0]:
            raise RuntimeError(
                f"Given transposed=1, weight of size {list(w.shape)}, expected "
                f"input{list(g.shape)} to have {w._array.shape[0]} channels, but got "
                f"{g._array.shape[1]} channels instead"
            )
        if 0 in (*g._array.shape[1:], *w._array.shape):
            raise RuntimeError(
                f"Only zero batch inputs are supported, but got input {list(g.shape)} and weight "
                f"{list(w.shape)}"
            )
        if bias is not None and bias._array.shape != shape[1:2]:
            raise RuntimeError(
                f"Given transposed=1, weight of size {list(w.shape)}, expected bias to be "
                f"1-dimensional with {shape[1]} elements, but got bias of size {list(bias.shape)} "
                "instead"
            )
        check_positive("dilation", geometry["dilation"])

    @staticmethod
    def forward(g: Any, w: Any, bias: Any, shape: tuple, **geometry: Any) -> Any:
        kernel = dispatch.active.conv2d_backward_data
        if g.dtype.kind == "c":
            return _by_parts(kernel, g, w, bias, shape, **geometry)
        return kernel(g, w, shape, bias=bias, **geometry)

    @staticmethod
    def vjp(ctx: Any, h: Tensor, shape: tuple, **geometry: Any) -> tuple:
        g, w = _conjugates(ctx) if h._array.dtype.kind == "c" else ctx.tensors()
        return (
            Conv2d.apply(h, w, None, **geometry) if ctx.needs[0] else None,
            _slope_of_weight(ctx, g, h, geometry) if ctx.needs[1] else None,
            h.sum((0, 2, 3)) if ctx.needs[2] else None,
        )


class ConvWeight(Op):
    """The gradient of Conv2d with respect to w, of `shape`; linear in g and in x."""

    repeats = True
    bilinear = True
    grad_name = "ConvolutionBackward0"

    @staticmethod
    def forward(g: Any, x: Any, shape: tuple, **geometry: Any) -> Any:
        kernel = dispatch.active.conv2d_backward_weight
        if g.dtype.kind == "c":
            return _by_parts(kernel, g, x, None, shape, **geometry)
        return kernel(g, x, shape, **geometry)

    @staticmethod
    def vjp(ctx: Any, h: Tensor, shape: tuple, **geometry: Any) -> tuple:
        g, x = _conjugates(ctx) if h._array.dtype.kind == "c" else ctx.tensors()
        return (
            Conv2d.apply(x, h, None, **geometry) if ctx.needs[0] else None,
            ConvData.apply(g, h, None, shape=ctx.shapes[1], **geometry) if ctx.needs[1] else None,
        )


def _slope_of_weight(ctx: Any, g: Tensor, x: Tensor, geometry: dict) -> Tensor:
    """The gradient of the weight, input 1."""
    if joining:
        g, x = joining[0](g, x, ctx.shapes[1], 0, 0)
    return ConvWeight.apply(g, x, shape=ctx.shapes[1], **geometry)


def pair(value: Any, name: str = "value") -> Pair:
    """An integer or a sequence of one or two as (height, width)."""
    if isinstance(value, int | np.integer):
        return (int(value), int(value))
    values = tuple([int(v) for v in value])
    if len(values) == 1:
        return values * 2
    if len(values) != 2:
        raise RuntimeError(f"expected {name} to be an integer or two integers, got {value}")
    return values


def check_positive(name: str, values: Pair) -> None:
    """RuntimeError for a value below one."""
    if min(values) <= 0:
        raise RuntimeError(f"{name} should be greater than zero, but got {list(values)}")


def _row(value: Any, name: str, fill: int) -> Pair:
    """The 2-D form of a 1-D setting: height `fill`, width the value."""
    return (fill, int(value if isinstance(value, int | np.integer) else value[0]))


def with_batch(dims: int, x: Tensor, w: Tensor) -> Tensor:
    """x with a batch dimension; RuntimeError for a wrong number of dimensions."""
    shape, kernel = x._array.shape, w._array.shape
    if len(shape) not in (dims + 1, dims + 2):
        raise RuntimeError(
            f"Expected {dims + 1}D (unbatched) or {dims + 2}D (batched) input to conv{dims}d, but "
            f"got input of size: {list(shape)}"
        )
    if len(kernel) != dims + 2:
        raise RuntimeError(
            f"conv{dims}d: expected a {dims + 2}D weight, got weight of size {list(kernel)}"
        )
    return x if len(shape) == dims + 2 else x.unsqueeze(0)


def _padded(x: Tensor, padding: Any, kernel: tuple, stride: Pair, dilation: Pair) -> tuple:
    """(x, padding as a pair); x is padded here if "same" is not symmetric."""
    if padding == "valid":
        return x, (0, 0)
    if padding != "same":
        if isinstance(padding, str):
            raise RuntimeError(f"Invalid padding string: {padding!r}; expected 'valid' or 'same'")
        return x, pair(padding, "padding")
    if stride != (1, 1):
        raise RuntimeError("padding='same' is not supported for strided convolutions")
    totals = [d * (k - 1) for d, k in zip(dilation, (1, *kernel)[-2:], strict=True)]
    if all(t % 2 == 0 for t in totals):
        return x, (totals[0] // 2, totals[1] // 2)
    pads = [p for t in reversed(totals) for p in (t // 2, t - t // 2)]
    return pad_constant(x, pads[: 2 * len(kernel)]), (0, 0)


@export(method=False)
def conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """Cross-correlation of input (N, C, H, W) or (C, H, W) with weight (O, C / groups, KH, KW).

    padding is a number, a pair, "valid" or "same".
    """
    x = with_batch(2, input, weight)
    stride, dilation = pair(stride, "stride"), pair(dilation, "dilation")
    x, pads = _padded(x, padding, weight._array.shape[2:], stride, dilation)
    y = Conv2d.apply(x, weight, bias, stride=stride, padding=pads, dilation=dilation, groups=groups)
    return y if input._array.ndim == 4 else y.squeeze(0)


@export(method=False)
def conv1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """Cross-correlation of input (N, C, L) or (C, L) with weight (O, C / groups, K)."""
    x = with_batch(1, input, weight)
    stride, dilation = _row(stride, "stride", 1), _row(dilation, "dilation", 1)
    padding = padding if isinstance(padding, str) else _row(padding, "padding", 0)
    x, pads = _padded(x, padding, weight._array.shape[2:], stride, dilation)
    x, weight = x.unsqueeze(2), weight.unsqueeze(2)
    y = Conv1d.apply(
        x, weight, bias, stride=stride, padding=pads, dilation=dilation, groups=groups
    ).squeeze(2)
    return titled(y, "Convolution") if input._array.ndim == 3 else y.squeeze(0)


def _transposed(x: Tensor, w: Tensor, bias: Any, setting: dict, output_padding: Pair) -> Tensor:
    """Transposed convolution of x (N, C, H, W) with w (C, O / groups, KH, KW)."""
    stride, padding, dilation, groups = setting.values()
    check_dtypes(x, w, bias, rare=True)
    if min(stride) <= 0:
        raise RuntimeError("non-positive stride is not supported")
    for extra, s, d in zip(output_padding, stride, dilation, strict=True):
        if extra >= max(s, d):
            raise RuntimeError("output padding must be smaller than either stride or dilation")
    # Zeros appended to x give the rows beyond the last step of the stride.
    steps = [extra // s for extra, s in zip(output_padding, stride, strict=True)]
    if any(steps):
        x = pad_constant(x, (0, steps[1], 0, steps[0]))
        output_padding = tuple([e % s for e, s in zip(output_padding, stride, strict=True)])
    size = [
        (n - 1) * s - 2 * p + d * (k - 1) + extra + 1
        for n, s, p, d, k, extra in zip(
            x._array.shape[2:], stride, padding, dilation, w._array.shape[2:], output_padding,
            strict=True,
        )
    ]  # fmt: skip
    if min(size) < 1:
        raise RuntimeError(
            f"Given input size per channel: {list(x._array.shape[2:])}. Calculated output size per "
            f"channel: {size}. Output size is too small"
        )
    shape = (x._array.shape[0], w._array.shape[1] * groups, *size)
    return ConvData.apply(x, w, bias, shape=shape, **setting)


@export(method=False)
@autocasts
def conv_transpose2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Tensor:
    """Transposed convolution of (N, C, H, W) or (C, H, W) with weight (C, O / groups, KH, KW)."""
    x = with_batch(2, input, weight)
    setting = {
        "stride": pair(stride),
        "padding": pair(padding),
        "dilation": pair(dilation),
        "groups": groups,
    }
    y = _transposed(x, weight, bias, setting, pair(output_padding))
    return y if input._array.ndim == 4 else y.squeeze(0)


@export(method=False)
@autocasts
def conv_transpose1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Tensor:
    """Transposed convolution of (N, C, L) or (C, L) with weight (C, O / groups, K)."""
    x = with_batch(1, input, weight).unsqueeze(2)
    setting = {
        "stride": _row(stride, "stride", 1),
        "padding": _row(padding, "padding", 0),
        "dilation": _row(dilation, "dilation", 1),
        "groups": groups,
    }
    extra = _row(output_padding, "output_padding", 0)
    y = _transposed(x, weight.unsqueeze(2), bias, setting, extra).squeeze(2)
    return y if input._array.ndim == 3 else y.squeeze(0)
