"""The launches of few_channels: the halo of all input channels of a group in shared memory."""

from __future__ import annotations

import math
from typing import NamedTuple

from kernels.launchers.common import Dialect, ceil_div, compute_dtype, empty, launcher
from kernels.launchers.conv_planes import Windows
from kernels.launchers.conv_tiled import tile_height

CHANNELS = 8  # that a block computes at a time
MOST_HALO = 6144  # elements that stay in the first cache, where one row has no more
MOST_BYTES = 48 * 1024  # of shared memory


class Tile(NamedTuple):
    """The outputs of a block, height x width, from a halo of so many elements."""

    height: int
    width: int
    halo: int


def tile(windows: Windows) -> Tile:
    """Up to 8 x 32 outputs; fewer rows, where the halo of these would not stay in a cache."""
    rows, columns = windows.out
    width = 32 if ceil_div(columns, 32) * 2 == ceil_div(columns, 16) else 16
    across = windows.stride[1] * (width + windows.reach(1) // windows.stride[1])
    height = tile_height(rows)
    while True:
        down = (height - 1) * windows.stride[0] + windows.reach(0) + 1
        found = Tile(height, width, windows.channels[0] * down * across)
        if found.halo <= MOST_HALO or height == 1:
            return found
        height = ceil_div(height, 2)


def refusal(windows: Windows, dtype) -> str | None:
    """Why the kernel does not take a convolution; None where it does."""
    terms = windows.channels[0] * math.prod(windows.kernel)
    elements = tile(windows).halo + CHANNELS * terms
    needed = elements * compute_dtype(dtype).itemsize + 4 * terms  # the place of each term
    if needed > MOST_BYTES:
        return f"takes what fits in {MOST_BYTES >> 10} KB of shared memory, not {needed >> 10} KB"
    return None


def forward(dialect: Dialect, name: str, geo, like, has_bias: bool):
    """The function (w, x, bias) -> y."""
    windows, groups = geo.windows, geo.groups
    height, width, _ = tile(windows)
    kernel = dialect.conv_direct.few_channels(
        *(dialect.common.scalar_type(like.dtype), windows.kernel, windows.stride),
        *(windows.dilation, has_bias, windows.channels[0], height, width),
    )
    tiles = ceil_div(windows.out[0], height) * ceil_div(windows.out[1], width)
    grid = geo.x_shape[0] * groups * tiles
    run = launcher(name, "few_channels", kernel, grid, (width, CHANNELS))
    shape = (geo.x_shape[0], geo.w_shape[0], *geo.out)

    def convolved(w, x, bias):
        y = empty(shape, like.dtype, x)
        run(x, w.reshape(len(w), -1), bias, y, groups, *windows.padding)
        return y

    return convolved
