"""The launches of the tiled convolution: a tile of x with its halo, several results a thread."""

from __future__ import annotations

from kernels.launchers.common import Dialect, Pair, ceil_div, empty, launcher, on_gpu
from kernels.launchers.conv_phases import Transposed
from kernels.launchers.conv_planes import Geometry, Windows


def tile_channels(written: int) -> int:
    """The output channels that a thread computes, of those that a group has."""
    return min(8, 1 << (written - 1).bit_length())


def tile_height(rows: int) -> int:
    """The rows of a tile, of which as few tiles as with 8 cover all rows."""
    return ceil_div(rows, max(1, ceil_div(rows, 8))) or 1


def tile(out: Pair) -> Pair:
    """Rows and columns of a tile: 8 columns, where these are all."""
    return tile_height(out[0]), 8 if out[1] <= 8 else 16


def _convolution(dialect: Dialect, name: str, windows: Windows, like, has_bias: bool):
    """The function (w, x, bias) -> y."""
    (_, written), groups, out = windows.channels, windows.groups, windows.out
    channels, (height, width) = tile_channels(written), tile(out)
    # The registers of a CPU hold the sums of so many rows, or channels.
    rows = height if channels == 1 and not on_gpu(like) else 1
    kernel = dialect.conv_direct.tiled_forward(
        *(dialect.common.scalar_type(like.dtype), windows.kernel, windows.stride),
        *(windows.dilation, has_bias, channels, rows, (height, width)),
    )
    tiles = ceil_div(out[0], height) * ceil_div(out[1], width)
    grid = like.shape[0] * groups * ceil_div(written, channels) * tiles
    run = launcher(name, "tiled", kernel, grid, (width, height // rows))

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
