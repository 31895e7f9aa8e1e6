"""Convolution and pooling of volumes (N, C, D, H, W), made of the operations for images.

A convolution in three dimensions is one in two whose channels are those of the depth window: the
windows along the depth are stacked with the channels, and the frames with the batch. Maxima and
averages separate: over each frame first, then over the depth.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from minigrad import dtypes
from minigrad.autograd.mode import autocasts
from minigrad.autograd.node import check_devices
from minigrad.ops.combine import pad_constant
from minigrad.ops.composed import composed
from minigrad.ops.conv import check_dtypes, check_sizes, conv2d, conv_transpose2d, with_batch
from minigrad.ops.fold import Col2Im
from minigrad.ops.pointwise import check_floating
from minigrad.ops.pool import (
    adaptive_avg_pool2d,
    adaptive_max_pool2d,
    averages,
    avg_pool2d,
    batched,
    max_pool2d,
    target_size,
)
from minigrad.ops.taps import resampled
from minigrad.tensor import Tensor, export

Triple = tuple[int, int, int]


def triple(value: Any, name: str = "value") -> Triple:
    """An integer or a sequence of one or three as (depth, height, width)."""
    if isinstance(value, int | np.integer):
        return (int(value),) * 3
    values = tuple([int(v) for v in value])
    if len(values) == 1:
        return values * 3
    if len(values) != 3:
        raise RuntimeError(f"expected {name} to be an integer or three integers, got {value}")
    return values


def _padded(x: Tensor, padding: Any, kernel: Triple, stride: Triple, dilation: Triple) -> tuple:
    """(x, padding); x is padded here where "same" is not symmetric."""
    if padding == "valid":
        return x, (0, 0, 0)
    if not isinstance(padding, str):
        return x, triple(padding, "padding")
    if padding != "same":
        raise RuntimeError(f"Invalid padding string: {padding!r}; expected 'valid' or 'same'")
    if stride != (1, 1, 1):
        raise RuntimeError("padding='same' is not supported for strided convolutions")
    totals = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
    if all(t % 2 == 0 for t in totals):
        return x, tuple([t // 2 for t in totals])
    return pad_constant(x, [p for t in reversed(totals) for p in (t // 2, t - t // 2)]), (0, 0, 0)


@export(method=False)
def conv3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """Cross-correlation of (N, C, D, H, W) or (C, D, H, W) with weight (O, C / groups, KD, KH, KW).

    padding is a number, three of them, "valid" or "same".
    """
    x = with_batch(3, input, weight)
    stride, dilation = triple(stride, "stride"), triple(dilation, "dilation")
    kernel = tuple(weight._array.shape[2:])
    x, pads = _padded(x, padding, kernel, stride, dilation)
    check_dtypes(x, weight, bias, dilation != (1, 1, 1))
    check_sizes(x._array.shape, weight._array.shape, bias, stride, pads, dilation, groups)
    check_devices([x, weight, bias])
    n, c = x._array.shape[:2]
    if pads[0]:
        x = pad_constant(x, (0, 0, 0, 0, pads[0], pads[0]))
    windows = x.unfold(2, dilation[0] * (kernel[0] - 1) + 1, stride[0])[..., :: dilation[0]]
    depth, (height, width) = windows._array.shape[2], windows._array.shape[3:5]
    frames = windows.permute(0, 2, 1, 5, 3, 4).reshape(n * depth, c * kernel[0], height, width)
    flat = weight.reshape(weight._array.shape[0], -1, *kernel[1:])
    y = conv2d(frames, flat, bias, stride[1:], pads[1:], dilation[1:], groups)
    y = y.reshape(n, depth, *y._array.shape[1:]).permute(0, 2, 1, 3, 4)
    return y if input._array.ndim == 5 else y.squeeze(0)


@export(method=False)
@autocasts
def conv_transpose3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Tensor:
    """Transposed convolution of (N, C, D, H, W) or (C, D, H, W) with weight
    (C, O / groups, KD, KH, KW)."""
    x = with_batch(3, input, weight)
    if x.dtype.itemsize == 2:  # frames are added up in float32
        bias = None if bias is None else bias.float()
        how: tuple[Any, ...] = (stride, padding, output_padding, groups, dilation)
        return conv_transpose3d(input.float(), weight.float(), bias, *how).to(input.dtype)
    stride, padding = triple(stride, "stride"), triple(padding, "padding")
    dilation, extra = triple(dilation, "dilation"), triple(output_padding, "output_padding")
    if stride[0] <= 0:
        raise RuntimeError("non-positive stride is not supported")
    if extra[0] >= max(stride[0], dilation[0]):
        raise RuntimeError("output padding must be smaller than either stride or dilation")
    n, c, depth = x._array.shape[:3]
    kernel = weight._array.shape[2:]
    channels = weight._array.shape[1] * groups
    frames = x.permute(0, 2, 1, 3, 4).reshape(n * depth, c, *x._array.shape[3:])
    flat = weight.reshape(weight._array.shape[0], -1, *kernel[1:])
    y = conv_transpose2d(
        *(frames, flat, None, stride[1:], padding[1:], extra[1:], groups, dilation[1:])
    )
    height, width = y._array.shape[2:]
    columns = y.reshape(n, depth, channels * kernel[0], height * width).permute(0, 2, 1, 3)
    full = (depth - 1) * stride[0] + dilation[0] * (kernel[0] - 1) + 1
    y = Col2Im.apply(
        columns.reshape(n, channels * kernel[0], -1),
        size=(full, height * width),
        kernel=(kernel[0], 1),
        dilation=(dilation[0], 1),
        padding=(0, 0),
        stride=(stride[0], 1),
    ).reshape(n, channels, full, height, width)
    length = full - 2 * padding[0] + extra[0]
    y = y[:, :, padding[0] : padding[0] + length]
    missing = length - y._array.shape[2]
    y = pad_constant(y, (0, 0, 0, 0, 0, missing)) if missing else y
    y = y if bias is None else y + bias.reshape(1, -1, 1, 1, 1)
    return y if input._array.ndim == 5 else y.squeeze(0)


def _joined(
    y: Tensor, inner: Tensor, outer: Tensor, shape: tuple, size: tuple, has_batch: bool, both: bool
) -> Any:
    """The maxima of a volume of `shape` (N, C, D, H, W), whose place is `inner` in the planes, then
    `outer` along the depth; with the places in the flattened D * H * W if `both`."""
    n, c, depth, height, width = shape
    y = y.reshape(n, c, *size) if has_batch else y.reshape(c, *size)
    if not both:
        return y
    plane = size[1] * size[2]
    outer = outer.reshape(n, c, math.prod(size))
    at = inner.reshape(n, c, depth * plane).gather(2, outer) + outer // plane * (height * width)
    return y, at.reshape(y._array.shape)


@export(method=False)
def max_pool3d(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """Maximum over windows of (N, C, D, H, W) or (C, D, H, W); also its position in the flattened
    D * H * W if `return_indices`."""
    pool = _max_pool3d if return_indices else max_pool3d_alone
    return pool(input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def _max_pool3d(
    input: Tensor,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil: bool,
    both: bool,
) -> Any:
    x = batched("max_pool3d", input, 3)
    kernel = triple(kernel_size, "kernel_size")
    step = kernel if stride is None or stride == () else triple(stride, "stride")
    pads, reach = triple(padding, "padding"), triple(dilation, "dilation")
    how: dict[str, Any] = dict(kernel=kernel, step=step, pads=pads, reach=reach, ceil=ceil)
    found = _maxima(x, **how, both=True) if both else composed(_maxima, x, **how, both=False)
    if input is x:
        return found
    return tuple([y.squeeze(0) for y in found]) if both else found.squeeze(0)


def _maxima(
    x: Tensor, kernel: tuple, step: tuple, pads: tuple, reach: tuple, ceil: bool, both: bool
) -> Any:
    """`max_pool3d` of (N, C, D, H, W), by planes and along the depth."""
    n, c, depth, height, width = x._array.shape
    frames = x.reshape(n, c * depth, height, width)
    y, inner = max_pool2d(frames, kernel[1:], step[1:], pads[1:], reach[1:], ceil, True)
    size = y._array.shape[2:]
    y, outer = max_pool2d(
        y.reshape(n, c, depth, size[0] * size[1]),
        *((kernel[0], 1), (step[0], 1), (pads[0], 0), (reach[0], 1), ceil, True),
    )
    size = (outer._array.shape[2], *size)
    return _joined(y, inner, outer, x._array.shape, size, True, both)


@autocasts
def max_pool3d_alone(input: Tensor, *how: Any) -> Tensor:
    """`max_pool3d` without positions, which only `autocast` on a CPU tells from that with them."""
    return _max_pool3d(input, *how)


@export(method=False)
@autocasts
def avg_pool3d(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """Mean over windows of (N, C, D, H, W) or (C, D, H, W)."""
    if divisor_override == 0:
        raise RuntimeError("divisor must be not zero")
    x = batched("avg_pool3d", input, 3)
    if x._array.dtype.kind in "bu":
        raise dtypes.refused("avg_pool3d_out_frame", x._array.dtype)
    if x._array.dtype.kind == "i":  # in two steps: rounded once, towards zero
        setting = (kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
        return avg_pool3d(input.double(), *setting).trunc().to(input.dtype)
    kernel = triple(kernel_size, "kernel_size")
    step = kernel if stride is None or stride == () else triple(stride, "stride")
    pads, how = triple(padding, "padding"), (ceil_mode, count_include_pad)
    y = composed(
        _averages, x, kernel=kernel, step=step, pads=pads, how=how, divisor=divisor_override
    )
    return y if input._array.ndim == 5 else y.squeeze(0)


def _averages(
    x: Tensor,
    kernel: tuple,
    step: tuple,
    pads: tuple,
    how: tuple[bool, bool],
    divisor: int | None,
) -> Tensor:
    """`avg_pool3d` of (N, C, D, H, W), by planes and along the depth."""
    n, c, depth, height, width = x._array.shape
    sums = None if divisor is None else 1
    y = avg_pool2d(
        x.reshape(n, c * depth, height, width), kernel[1:], step[1:], pads[1:], *how, sums
    )
    size = y._array.shape[2:]
    y = avg_pool2d(
        y.reshape(n, c, depth, size[0] * size[1]),
        *((kernel[0], 1), (step[0], 1), (pads[0], 0), *how, divisor),
    )
    return y.reshape(n, c, y._array.shape[2], *size)


def _adaptive(name: str, x: Tensor) -> Tensor:
    """x with a batch dimension; errors of the adaptive pools of volumes."""
    if x._array.ndim not in (4, 5):
        raise ValueError(f"{name}: Expected 4D or 5D input, but got {list(x.shape)}")
    check_floating(name, x)
    if 0 in x._array.shape[-4:]:
        raise RuntimeError(
            f"{name}(): Expected input to have non-zero size for non-batch dimensions, but input "
            f"has sizes {list(x.shape)}"
        )
    return batched(name, x, 3)


@export(method=False)
@autocasts
def adaptive_avg_pool3d(input: Tensor, output_size: Any) -> Tensor:
    """Mean of (..., D, H, W) over windows such that the result has `output_size`."""
    x = _adaptive("adaptive_avg_pool3d", input)
    n, c, depth = x._array.shape[:3]
    size = target_size("adaptive_avg_pool3d", output_size, x._array.shape[2:])
    y = adaptive_avg_pool2d(x.reshape(n, c * depth, *x._array.shape[3:]), size[1:])
    y = resampled(y.reshape(n, c, depth, *size[1:]), 2, averages(depth, size[0]))
    return y if input._array.ndim == 5 else y.squeeze(0)


@export(method=False)
@autocasts
def adaptive_max_pool3d(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """Maximum of (..., D, H, W) over windows such that the result has `output_size`."""
    x = _adaptive("adaptive_max_pool3d", input)
    n, c, depth, height, width = x._array.shape
    size = target_size("adaptive_max_pool3d", output_size, x._array.shape[2:])
    frames = x.reshape(n, c * depth, height, width)
    y, inner = adaptive_max_pool2d(frames, size[1:], True)
    plane = size[1] * size[2]
    y, outer = adaptive_max_pool2d(y.reshape(n, c, depth, plane), (size[0], plane), True)
    return _joined(y, inner, outer, x._array.shape, size, input is x, return_indices)
