"""The kernels of pool.cu."""

from __future__ import annotations

import numpy as np

from kernels.cuda_c.common import Kernel, family
from kernels.launchers.pool import Window

_kernel = family("pool.cu")


def _sizes(x, y, pad_h: int = 0, pad_w: int = 0) -> np.void:
    """`Sizes` of pool.cu for x (planes, H, W) and y (planes, OH, OW)."""
    return np.array([*x.shape[1:], *y.shape[1:], pad_h, pad_w], np.int32).view("V24")[0]


def max_forward(acc_t: str, window: Window, inside_always: bool) -> Kernel:
    """kernel(x, y, index, pad_h, pad_w)."""

    def arguments(x, y, index, *padding):
        return x, y, index, _sizes(x, y, *padding)

    constants = (acc_t, *window.kernel, *window.stride, *window.dilation, inside_always)
    return _kernel("max_forward", (0,), constants, arguments)


def max_padded(acc_t: str, window: Window) -> Kernel:
    """kernel(x, y, index, height, width, pad_h, pad_w)."""

    def arguments(x, y, index, height, width, *padding):
        return x, y, index, _sizes(x, y, *padding), np.int32(height), np.int32(width)

    constants = (acc_t, *window.kernel, *window.stride, *window.dilation)
    return _kernel("max_padded", (0,), constants, arguments)


def max_adaptive(acc_t: str) -> Kernel:
    """kernel(x, y, index)."""

    def arguments(x, y, index):
        return x, y, index, _sizes(x, y)

    return _kernel("max_adaptive", (0,), (acc_t,), arguments)


def max_gather(acc_t: str, window: Window) -> Kernel:
    """kernel(g, index, dx, pad_h, pad_w)."""

    def arguments(g, index, dx, *padding):
        return g, index, dx, _sizes(dx, g, *padding)

    constants = (acc_t, *window.kernel, *window.stride, *window.dilation)
    return _kernel("max_gather", (0,), constants, arguments)


def max_owner(acc_t: str, window: Window, pad_h: int, pad_w: int) -> Kernel:
    """kernel(g, index, dx)."""

    def arguments(g, index, dx):
        return g, index, dx, _sizes(dx, g)

    constants = (acc_t, *window.kernel, *window.stride, pad_h, pad_w)
    return _kernel("max_owner", (0,), constants, arguments)


def _by_plane(name: str, acc_t: str) -> Kernel:
    def arguments(g, index, dx):
        return g, index, dx, g.shape[1], dx.shape[1]

    return _kernel(name, (0,), (acc_t,), arguments)


def max_scatter(acc_t: str) -> Kernel:
    """kernel(g, index, dx) for g and index (planes, OH * OW), dx (planes, H * W)."""
    return _by_plane("max_scatter", acc_t)


def max_plane(acc_t: str) -> Kernel:
    """kernel(g, index, dx) as max_scatter."""
    return _by_plane("max_plane", acc_t)


def _avg(name: str, acc_t: str, window: Window, include_pad: bool, divisor: int | None) -> Kernel:
    def arguments(read, written, *padding):
        x, y = (read, written) if name == "avg_forward" else (written, read)
        return read, written, _sizes(x, y, *padding)

    constants = (acc_t, *window.kernel, *window.stride, include_pad, divisor or 0)
    return _kernel(name, (0,), constants, arguments)


def avg_forward(acc_t: str, window: Window, include_pad: bool, divisor: int | None) -> Kernel:
    """kernel(x, y, pad_h, pad_w)."""
    return _avg("avg_forward", acc_t, window, include_pad, divisor)


def avg_gather(acc_t: str, window: Window, include_pad: bool, divisor: int | None) -> Kernel:
    """kernel(g, dx, pad_h, pad_w)."""
    return _avg("avg_gather", acc_t, window, include_pad, divisor)
