"""Sliding windows of images as columns (`unfold`, also called im2col) and their sum (`fold`)."""

from __future__ import annotations

import math
from typing import Any

from minigrad import dtypes
from minigrad.autograd.node import Op
from minigrad.backends import array_module
from minigrad.ops.conv import Pair, pair
from minigrad.tensor import Tensor


def _counts(size: Pair, kernel: Pair, dilation: Pair, padding: Pair, stride: Pair) -> Pair:
    """How many windows fit in each direction."""
    rows, columns = (
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, k, d, p, s in zip(size, kernel, dilation, padding, stride, strict=True)
    )
    return rows, columns


def _places(
    size: Pair, kernel: Pair, dilation: Pair, padding: Pair, stride: Pair
) -> list[tuple[int, int, slice, slice]]:
    """Per position in the window: (row, column, and the slices of the padded image that hold this
    position of all windows)."""
    counts = _counts(size, kernel, dilation, padding, stride)
    places = []
    for i in range(kernel[0]):
        for j in range(kernel[1]):
            starts = i * dilation[0], j * dilation[1]
            rows, columns = (
                slice(a, a + (n - 1) * s + 1, s)
                for a, n, s in zip(starts, counts, stride, strict=True)
            )
            places.append((i, j, rows, columns))
    return places


class Im2Col(Op):
    """Windows of x (N, C, H, W) as (N, C * KH * KW, windows)."""

    saves = ()

    @staticmethod
    def forward(x: Any, size: Pair, padding: Pair, **windows: Pair) -> Any:
        n, c, h, w = x.shape
        xp, (ph, pw), kernel = array_module(x), padding, windows["kernel"]
        padded = xp.zeros((n, c, h + 2 * ph, w + 2 * pw), x.dtype)
        padded[:, :, ph : ph + h, pw : pw + w] = x
        counts = _counts(size, padding=padding, **windows)
        out = xp.empty((n, c, *kernel, *counts), x.dtype)
        for i, j, rows, columns in _places(size, padding=padding, **windows):
            out[:, :, i, j] = padded[:, :, rows, columns]
        return out.reshape(n, c * kernel[0] * kernel[1], counts[0] * counts[1])

    @staticmethod
    def vjp(ctx: Any, g: Tensor, **setting: Pair) -> tuple:
        return (Col2Im.apply(g, **setting),)


class Col2Im(Op):
    """Columns (N, C * KH * KW, windows) added at their places in an image (N, C, H, W): the
    gradient of Im2Col."""

    saves = ()

    @staticmethod
    def forward(x: Any, size: Pair, padding: Pair, **windows: Pair) -> Any:
        (h, w), (ph, pw), kernel = size, padding, windows["kernel"]
        n, channels = x.shape[0], x.shape[1] // (kernel[0] * kernel[1])
        counts = _counts(size, padding=padding, **windows)
        x = x.reshape(n, channels, *kernel, *counts)
        image = array_module(x).zeros((n, channels, h + 2 * ph, w + 2 * pw), x.dtype)
        for i, j, rows, columns in _places(size, padding=padding, **windows):
            image[:, :, rows, columns] += x[:, :, i, j]
        return image[:, :, ph : ph + h, pw : pw + w].copy()

    @staticmethod
    def vjp(ctx: Any, g: Tensor, **setting: Pair) -> tuple:
        return (Im2Col.apply(g, **setting),)


def _setting(size: Pair, kernel: Any, dilation: Any, padding: Any, stride: Any) -> dict[str, Pair]:
    """The checked attributes of both operations."""
    setting = {
        "kernel": pair(kernel, "kernel_size"),
        "dilation": pair(dilation, "dilation"),
        "padding": pair(padding, "padding"),
        "stride": pair(stride, "stride"),
    }
    for name, value in setting.items():
        lowest = 0 if name == "padding" else 1
        if min(value) < lowest:
            raise RuntimeError(
                f"{name} should be {'non-negative' if lowest == 0 else 'greater than zero'}, "
                f"but got {list(value)}"
            )
    counts = _counts(size, **setting)
    if min(counts) < 1:
        raise RuntimeError(
            f"Given an image of size {list(size)} and windows of {setting}, calculated shape of "
            f"the array of sliding blocks as {list(counts)}, but its components must be at least "
            "one."
        )
    return {"size": size, **setting}


def unfold(
    input: Tensor, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
) -> Tensor:
    """The windows of input (N, C, H, W) or (C, H, W) as columns (N, C * KH * KW, windows)."""
    shape = input._array.shape
    if len(shape) not in (3, 4) or 0 in shape[-3:]:
        raise RuntimeError(
            "Expected 3D or 4D (batch mode) tensor with possibly 0 batch size and other non-zero "
            f"dimensions for input, but got: {list(shape)}"
        )
    if input._array.dtype.kind in "iu":
        raise dtypes.refused("im2col_out_cpu", input._array.dtype)
    setting = _setting(shape[-2:], kernel_size, dilation, padding, stride)
    if len(shape) == 4:
        return Im2Col.apply(input, **setting)
    return Im2Col.apply(input.unsqueeze(0), **setting).squeeze(0)


def fold(
    input: Tensor,
    output_size: Any,
    kernel_size: Any,
    dilation: Any = 1,
    padding: Any = 0,
    stride: Any = 1,
) -> Tensor:
    """Columns (N, C * KH * KW, windows), or without N, added at their places in images
    (N, C, *output_size)."""
    shape, size = input._array.shape, pair(output_size, "output_size")
    if len(shape) not in (2, 3) or 0 in shape[-2:]:
        raise RuntimeError(
            "Expected 2D or 3D (batch mode) tensor for input with possibly 0 batch size and "
            f"non-zero dimensions for input, but got: {list(shape)}"
        )
    setting = _setting(size, kernel_size, dilation, padding, stride)
    kernel = setting["kernel"]
    if shape[-2] % math.prod(kernel):
        raise RuntimeError(
            "Expected size of input's dimension 1 to be divisible by the product of kernel_size, "
            f"but got input.size(1)={shape[-2]} and kernel_size={kernel}."
        )
    windows = math.prod(_counts(**setting))
    if shape[-1] != windows:
        raise RuntimeError(
            f"Given output_size={size} and {setting}, expected size of input's dimension 2 to "
            f"match the calculated number of sliding blocks {windows}, but got "
            f"input.size(2)={shape[-1]}."
        )
    if len(shape) == 3:
        return Col2Im.apply(input, **setting)
    return Col2Im.apply(input.unsqueeze(0), **setting).squeeze(0)
