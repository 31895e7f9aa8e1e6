"""The kernels of conv_direct.cu."""

from __future__ import annotations

import math

import numpy as np

from kernels.cuda_c.common import Kernel, family
from kernels.launchers.common import Pair
from kernels.launchers.conv_few import CHANNELS

_kernel = family("conv_direct.cu")


def _sizes(x_shape, w_shape, y_shape, groups: int, pad_h: int, pad_w: int) -> np.void:
    """`Sizes` of conv_direct.cu."""
    sizes = [*x_shape[1:], *w_shape[:2], *y_shape[2:], groups, pad_h, pad_w]
    return np.array(sizes, np.int32).view(f"V{4 * len(sizes)}")[0]


def _forward(x, w, bias, y, *options):
    return x, w, bias, y, _sizes(x.shape, w.shape, y.shape, *options)


def direct_forward(acc_t, kernel: Pair, stride: Pair, dilation: Pair, has_bias: bool) -> Kernel:
    """kernel(x, w, bias, y, groups, pad_h, pad_w)."""
    constants = (acc_t, *kernel, *stride, *dilation, has_bias)
    return _kernel("direct_forward", (0,), constants, _forward)


def tiled_forward(
    acc_t, kernel: Pair, stride: Pair, dilation: Pair, has_bias: bool, channels: int, rows: int,
    size: Pair,
) -> Kernel:  # fmt: skip
    """kernel(x, w, bias, y, groups, pad_h, pad_w)."""
    constants = (acc_t, *kernel, *stride, *dilation, has_bias, channels, rows, *size)
    return _kernel("tiled_forward", (0,), constants, _forward)


def few_channels(
    acc_t, kernel: Pair, stride: Pair, dilation: Pair, has_bias: bool, read: int, height: int,
    tile_w: int,
) -> Kernel:  # fmt: skip
    """kernel(x, w, bias, y, groups, pad_h, pad_w) for w (O, read * KH * KW)."""

    def arguments(x, w, bias, y, *options):
        return x, w, bias, y, _sizes(x.shape, (len(w), read), y.shape, *options)

    constants = (*kernel, *stride, *dilation, has_bias, read, height, tile_w, CHANNELS)
    return _kernel("few_channels", (0,), (acc_t, *constants), arguments)


def _plane_sizes(x, channels: int, y, *sizes: int) -> np.void:
    """`PlaneSizes` of conv_direct.cu."""
    numbers = [*x.shape[1:], channels, *y.shape[1:], *sizes]
    return np.array(numbers, np.int32).view(f"V{4 * len(numbers)}")[0]


def plane_forward(
    acc_t, kernel: Pair, phases: Pair, stride: Pair, dilation: Pair, has_bias: bool, size: int
) -> Kernel:
    """kernel(x, w, bias, y, written, count, width, lead_h, lead_w) for x and y (planes, H, W)."""

    def arguments(x, w, bias, y, *sizes):
        return x, w, bias, y, _plane_sizes(x, len(w) // math.prod(phases), y, *sizes)

    constants = (acc_t, *kernel, *phases, *stride, *dilation, has_bias, size)
    return _kernel("plane_forward", (0,), constants, arguments)


def plane_weight(acc_t, kernel: Pair, stride: Pair, dilation: Pair, size: int) -> Kernel:
    """kernel(x, g, dw, count, width, lead_h, lead_w) for x and g (planes, H, W), dw (C, taps)."""

    def arguments(x, g, dw, *sizes):
        return x, g, dw, len(x), _plane_sizes(x, len(dw), g, 1, *sizes)

    return _kernel("plane_weight", (0,), (acc_t, *kernel, *stride, *dilation, size), arguments)


def direct_data(acc_t, kernel: Pair, stride: Pair, dilation: Pair) -> Kernel:
    """kernel(g, w, dx, groups, pad_h, pad_w)."""

    def arguments(g, w, dx, *options):
        return g, w, dx, _sizes(dx.shape, w.shape, g.shape, *options)

    return _kernel("direct_data", (0,), (acc_t, *kernel, *stride, *dilation), arguments)


def direct_weight(acc_t, stride: Pair, dilation: Pair) -> Kernel:
    """kernel(g, x, dw, groups, pad_h, pad_w)."""

    def arguments(g, x, dw, *options):
        return g, x, dw, len(g), dw.shape[3], _sizes(x.shape, dw.shape, g.shape, *options)

    return _kernel("direct_weight", (0,), (acc_t, *stride, *dilation), arguments)
