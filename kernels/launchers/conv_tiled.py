"""The launches of the tiled convolution: a tile of x with its halo, several channels a thread."""

from __future__ import annotations

from kernels.launchers.common import Dialect, ceil_div, empty, launcher
from kernels.launchers.conv_phases import Transposed
from kernels.launchers.conv_planes import Geometry, Windows


def tile_channels(written: int) -> int:
    """The output channels that a thread computes, of those that a group has."""
    return min(8, 1 << (written - 1).bit_length())


def tile_height(rows: int) -> int:
    """The rows of a tile, of which as few tiles as with 8 cover all rows."""
    return ceil_div(rows, max(1, ceil_div(rows, 8))) or 1


def tile_width(columns: int) -> int:
    """The columns of a tile: half as many, where these are all."""
    return 8 if columns <= 8 else 16


def _convolution(dialect: Dialect, name: str, windows: Windows, like, has_bias: bool):
    """The function (w, x, bias) -> y."""
    (_, written), groups, out = windows.channels, windows.groups, windows.out
    direct, channels = dialect.conv_direct, tile_channels(written)
    height, width = tile_height(out[0]), tile_width(out[1])
    kernel = direct.tiled_forward(
        dialect.common.scalar_type(like.dtype),
        windows.kernel,
        windows.stride,
        windows.dilation,
        has_bias,
        channels,
        height,
        width,
    )
    block = width, height
    tiles = ceil_div(out[0], block[1]) * ceil_div(out[1], block[0])
    grid = like.shape[0] * groups * ceil_div(written, channels) * tiles
    run = launcher(name, "tiled", kernel, grid, block)

    def convolved(w, x, bias):
        y = empty((x.shape[0], groups * written, *out), like.dtype, x)
        run(x, w, bias, y, groups, *windows.padding)
        return y

    return convolved


def forward(dialect: Dialect, name: str, geo: Geometry, like, has_bias: bool):
    """The function (w, x, bias) -> y."""
    return _convolution(dialect, name, geo.windows, like, has_bias)


def backward_data(dialect: Dialect, name: str, geo: Geometry, like):
    """The function (g, w) -> dx."""
    whole = Transposed(geo)
    weights = whole.weights(dialect, name, like)
    convolved = _convolution(dialect, name, whole.windows, like, False)
    no_bias = empty((1,), like.dtype, like)
    return lambda g, w: whole.interleaved(dialect, convolved(weights(w), g, no_bias))
