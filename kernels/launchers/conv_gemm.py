"""The launches of implicit_gemm: a product whose right operand is read through a table of offsets
in padded planes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from kernels.launchers.common import (
    Dialect,
    Pair,
    ceil_div,
    compute_dtype,
    empty,
    launcher,
    namespace,
    on_gpu,
    splits,
)
from kernels.launchers.conv_phases import Transposed
from kernels.launchers.conv_planes import Geometry, Planes, images_in_parts
from kernels.launchers.reduction import reduce
from kernels.launchers.transpose import cast

LEAST_TERMS = 128  # of a split, where a GPU would have few blocks


class GemmTile(NamedTuple):
    """Block (bx, by), rm channels x rn positions a thread, tk terms of the sum a step."""

    bx: int
    by: int
    rm: int
    rn: int
    tk: int


def gpu_tile(channels: int, positions: int) -> GemmTile:
    """The tile of implicit_gemm on a GPU: up to 8 x 8 results per thread, for 4 multiply-adds per
    load from shared memory; fewer where the output would not fill it."""
    return GemmTile(16, 16, 8 if channels > 64 else 4, 8 if positions > 64 else 4, 16)


class GradTile(NamedTuple):
    """Block (bx, by), rm output channels x rn taps a thread, at most `span` positions a step."""

    bx: int
    by: int
    rm: int
    rn: int
    span: int


def _input_planes(geo: Geometry) -> Planes:
    """Planes for forward and backward-weight: x with its padding, a phase for each stride step."""
    padded = [geo.x_shape[2 + i] + 2 * geo.padding[i] for i in range(2)]
    rows, width = (ceil_div(padded[i], geo.stride[i]) for i in range(2))
    return Planes(rows, width, geo.padding, sub=geo.stride)


def _offsets(geo: Geometry, planes: Planes, channels: int, multiple: int):
    """uint32 offset of (channel, kh, kw) from an output position.

    Zeros fill the table up to a multiple of `multiple`.
    """
    c, i, j = np.ogrid[:channels, : geo.w_shape[2], : geo.w_shape[3]]
    t, a = np.divmod(i * geo.dilation[0], planes.sub[0])
    u, b = np.divmod(j * geo.dilation[1], planes.sub[1])
    phase = a * planes.sub[1] + b
    plane = planes.rows * planes.width
    return _filled(c * planes.channel + phase * plane + t * planes.width + u, multiple)


def _filled(table: np.ndarray, multiple: int) -> np.ndarray:
    offsets = np.zeros(ceil_div(table.size, multiple) * multiple, np.uint32)
    offsets[: table.size] = table.reshape(-1)
    return offsets


class _Sums(NamedTuple):
    """A product: the channels of a group that it reads and writes, height and width of what it
    reads, and the offsets of the terms from an output position, as a function of what their number
    is to be a multiple of."""

    read: int
    written: int
    given: Pair
    terms: int
    offsets: Callable[[int], np.ndarray]


def _convolution(
    dialect: Dialect, name: str, geo: Geometry, planes: Planes, out: Pair, sums: _Sums, like,
    has_bias: bool,
):  # fmt: skip
    """The function (w (G * written, K), x, bias) -> y (N * G * written, OH * OW) of an
    implicit-GEMM convolution. On a GPU blocks share the terms of few results."""
    dtype, terms = like.dtype, sums.terms
    n, groups = geo.x_shape[0], geo.groups
    identity = planes == Planes(*out, (0, 0)) and out == sums.given and terms == sums.read
    lay_out = planes.launch(dialect, name, like, n * groups * sums.read, 0)
    positions = (out[0] - 1) * planes.width + out[1]
    tile = dialect.conv_gemm.gemm_tile(sums.written, terms, positions, on_gpu(like))
    offset = namespace(like).asarray(sums.offsets(tile.tk))

    def tiles(tile: GemmTile) -> tuple[int, int]:
        across = n * groups * ceil_div(positions, tile.bx * tile.rn)
        return across, ceil_div(sums.written, tile.by * tile.rm)

    if on_gpu(like) and splits(math.prod(tiles(tile)), terms, 1) > 1:
        tile = tile._replace(rm=4)  # the least, for more blocks
    grid: tuple[int, ...] = tiles(tile)
    count = splits(math.prod(grid), terms, LEAST_TERMS) if on_gpu(like) else 1
    span = ceil_div(ceil_div(terms, count), tile.tk) * tile.tk
    count = ceil_div(terms, span)
    acc_t = dialect.common.scalar_type(dtype)
    kernel = dialect.conv_gemm.implicit_gemm(acc_t, tile, has_bias, count > 1)
    if count > 1:
        grid = (*grid, count)
    run = launcher(name, "implicit_gemm", kernel, grid, (tile.bx, tile.by))
    sizes = (groups, sums.read * planes.channel, positions, planes.width, out[1], span)
    shape = (n * groups * sums.written, out[0] * out[1])

    def gemm(w, x, bias):
        flat = x.reshape(-1) if identity else lay_out(x)
        wide = dtype if count == 1 else compute_dtype(dtype)
        y = empty((count * shape[0], shape[1]), wide, x)
        run(w, flat, offset, bias, y, *sizes)
        if count == 1:
            return y
        return reduce(dialect, "sum", y.reshape(count, *shape), 0, dtype=dtype)

    return gemm


def forward(dialect: Dialect, name: str, geo: Geometry, like, has_bias: bool):
    """The function (w, x, bias) -> y."""
    planes, (per_in, per_out) = _input_planes(geo), geo.channels

    def offsets(multiple: int) -> np.ndarray:
        return _offsets(geo, planes, per_in, multiple)

    sums = _Sums(per_in, per_out, geo.x_shape[2:], math.prod(geo.w_shape[1:]), offsets)
    gemm = _convolution(dialect, name, geo, planes, geo.out, sums, like, has_bias)

    def convolved(w, x, bias):
        y = gemm(w.reshape(geo.w_shape[0], -1), x, bias)
        return y.reshape(geo.x_shape[0], geo.w_shape[0], *geo.out)

    return convolved


def backward_data(dialect: Dialect, name: str, geo: Geometry, like):
    """The function (g, w) -> dx."""
    whole = Transposed(geo)
    windows, planes = whole.windows, whole.planes
    read, written = windows.channels

    def offsets(multiple: int) -> np.ndarray:
        down, across = (
            lead - padding + step * np.arange(count)
            for lead, padding, step, count in zip(
                planes.lead, windows.padding, windows.dilation, windows.kernel
            )
        )
        c = np.arange(read).reshape(-1, 1, 1)
        return _filled(c * planes.channel + down[:, None] * planes.width + across, multiple)

    sums = _Sums(read, written, geo.out, read * math.prod(windows.kernel), offsets)
    gemm = _convolution(dialect, name, geo, planes, windows.out, sums, like, False)
    weights, no_bias = whole.weights(dialect, name, like), empty((1,), like.dtype, like)

    def data(g, w):
        y = gemm(weights(w).reshape(-1, sums.terms), g, no_bias)
        return whole.interleaved(dialect, y)

    return data


def backward_weight(dialect: Dialect, name: str, geo: Geometry, like):
    """The function (g, x) -> dw of the implicit-GEMM weight gradient."""
    dtype, groups, (per_in, per_out) = like.dtype, geo.groups, geo.channels
    planes, outs, terms = _input_planes(geo), geo.w_shape[0], math.prod(geo.w_shape[1:])
    g_planes = Planes(geo.out[0], planes.width, (0, 0))
    positions = g_planes.channel
    gpu = on_gpu(like)
    tile = dialect.conv_gemm.grad_tile(per_out, terms, positions, gpu)
    grid = ceil_div(terms, tile.by * tile.rn), ceil_div(per_out, tile.rm), groups
    count = max(1, min(geo.x_shape[0], 512 // math.prod(grid))) if gpu else 1
    offset = namespace(like).asarray(_offsets(geo, planes, per_in, tile.by * tile.rn))
    kernel = dialect.conv_gemm.weight_gradient(dialect.common.scalar_type(dtype), tile)
    blocks = (*grid[:2], groups * count)
    run = launcher(name, "implicit_gemm", kernel, blocks, (tile.bx, tile.by))
    slack = planes.channel + tile.span

    def gradient(geo: Geometry):
        n = geo.x_shape[0]
        lay_out_x = planes.launch(dialect, name, like, n * groups * per_in, slack)
        lay_out_g = g_planes.launch(dialect, name, like, n * outs, 0)
        sizes = (n, groups, per_in * planes.channel, positions)
        return lambda g, x, sums: run(lay_out_g(g), lay_out_x(x), offset, sums, *sizes)

    floats = groups * per_in * planes.channel + outs * positions
    steps = images_in_parts(geo, floats, gpu, gradient)

    def weight(g, x):
        sums = empty((len(steps) * count, outs, terms), compute_dtype(dtype), x)
        for part, (images, add_up) in enumerate(steps):
            add_up(g[images], x[images], sums[part * count : (part + 1) * count])
        dw = sums[0] if len(sums) == 1 else reduce(dialect, "sum", sums, 0)
        dw = dw.reshape(geo.w_shape)
        return dw if dw.dtype == dtype else cast(dialect, dw, dtype)

    return weight
