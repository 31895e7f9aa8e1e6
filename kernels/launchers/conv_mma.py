"""The tables of `conv_mma` and `conv_async`: where the packs of operands lie, and the results."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from kernels.launchers.common import (
    MAX_GRID_YZ,
    Dialect,
    ceil_div,
    empty,
    launcher,
    namespace,
)
from kernels.launchers.conv_planes import Geometry, Planes, gradient_planes, padded
from kernels.launchers.reduction import reduce
from kernels.launchers.transpose import cast

MOST_PACK = 8
OUTSIDE = 0xFFFFFFFF
LIMIT = 1 << 31  # elements of an array: the kernels count in 32 bits
MULTIPROCESSORS = 132  # of a large GPU: with blocks for fewer, the terms are split
LEAST_STEPS = 8  # of a split


def kernels_of(dialect: Dialect, dtype: np.dtype):
    """The kernels for operands of a dtype, and their tiles."""
    return dialect.conv_async if dtype == np.float32 else dialect.conv_mma


class Operand(NamedTuple):
    """Element (i, k) lies at edge[i] + terms[k]. Where packs lie across k, a row of `edge` is one,
    else a row of `terms`. group: the distance between groups."""

    edge: np.ndarray
    terms: np.ndarray
    across: bool
    group: int


class Result(NamedTuple):
    """Element (i, j) lies at rows[i] + columns[j]."""

    rows: np.ndarray
    columns: np.ndarray
    group: int


def packed(channels: int, pack: int) -> int:
    """Channels filled up to whole packs."""
    return ceil_div(channels, pack) * pack


def fits(geo: Geometry) -> bool:
    """Whether all arrays can be indexed in 32 bits, and the groups by a grid's z."""
    n, groups, taps = geo.x_shape[0], geo.groups, math.prod(geo.w_shape[2:])
    sides = [geo.x_shape[2 + i] + 2 * (geo.padding[i] + geo.reach(i)) for i in range(2)]
    per_in, per_out = (packed(channels, MOST_PACK) for channels in geo.channels)
    plane = max(math.prod(sides), math.prod(geo.out))
    sizes = n * groups * max(per_in, per_out) * plane, groups * per_in * per_out * taps
    return max(sizes) < LIMIT and groups <= MAX_GRID_YZ


def _filled(table: np.ndarray, multiple: int) -> np.ndarray:
    """A table as uint32 with OUTSIDE behind it, up to a multiple."""
    table = table.reshape(-1)
    whole = np.full(ceil_div(table.size, multiple) * multiple, OUTSIDE, np.uint32)
    whole[: table.size] = table
    return whole


def _only(table: np.ndarray, live: np.ndarray) -> np.ndarray:
    return np.where(live, table, OUTSIDE)


class Product:
    """Launches of a product with the same tables: `product(a, b, bias, out)`, of flat arrays; out
    (splits, size)."""

    def __init__(
        self, dialect: Dialect, name: str, like, a: Operand, b: Operand, result: Result,
        groups: int, splits: int, size: int, has_bias: bool = False,
    ) -> None:  # fmt: skip
        kernels, asarray = kernels_of(dialect, like.dtype), namespace(like).asarray
        pack = kernels.PACK
        tile, blocks = kernels.tiling(result.rows.size, result.columns.size, groups)
        terms = a.terms.size * (1 if a.across else pack)
        span = ceil_div(ceil_div(terms, kernels.TERMS), splits) * kernels.TERMS

        def tables(x: Operand, edge: int):
            edges, along = (
                (edge // pack, span * splits) if x.across else (edge, span * splits // pack)
            )
            return asarray(_filled(x.edge, edges)), asarray(_filled(x.terms, max(along, 1)))

        places = [asarray(_filled(table, edge)) for table, edge in zip(result[:2], tile)]
        self.numbers = (span, groups, result.rows.size, a.group, b.group, result.group, size)
        self.tables = (*tables(a, tile[0]), *tables(b, tile[1]), *places)
        kernel = kernels.product(tile, a.across, b.across, has_bias)
        grid = (*blocks, splits * groups)
        self.run = launcher(name, kernels.VERSION, kernel, grid, kernels.threads(tile))

    def __call__(self, a, b, bias, out) -> None:
        self.run(a, b, bias, out, *self.tables, *self.numbers)


def _splits(kernels, rows: int, columns: int, groups: int, terms: int) -> int:
    """How many blocks share the terms of a result."""
    tile, blocks = kernels.tiling(rows, columns, groups)
    steps = terms // kernels.TERMS
    enough = MULTIPROCESSORS * kernels.resident(tile)
    wanted = ceil_div(enough, max(math.prod(blocks) * groups, 1))
    return max(1, min(wanted, steps // LEAST_STEPS))


def _laid_out(dialect: Dialect, name: str, like, planes: Planes, shape: tuple):
    """The function that lays x out, `shape` (images, channels, H, W), with its channels last."""
    kernels = kernels_of(dialect, like.dtype)
    channels = packed(shape[1], kernels.PACK)
    positions = planes.rows * planes.width
    grid = (shape[0] * ceil_div(positions, 32), ceil_div(channels, 32))
    run = launcher(name, "channels_last", kernels.channels_last(), grid, (32, 8))

    def lay_out(x):
        out = empty((shape[0], planes.rows, planes.width, channels), like.dtype, x)
        run(x.reshape(shape), out, *planes.lead)
        return out.reshape(-1)

    return lay_out


def _weights(dialect: Dialect, name: str, geo: Geometry, like):
    """As `_laid_out`, w as (O, taps, packed channels)."""
    outs, per_in, *taps = geo.w_shape
    count = math.prod(taps)
    return _laid_out(dialect, name, like, Planes(1, count, (0, 0)), (outs, per_in, 1, count))


def _images(dialect: Dialect, name: str, geo: Geometry, like, planes: Planes, channels: int, size):
    """As `_laid_out`, for images (N, groups * channels, *size)."""
    shape = (geo.x_shape[0] * geo.groups, channels, *size)
    return _laid_out(dialect, name, like, planes, shape)


def _positions(geo: Geometry, planes: Planes, pack: int) -> tuple[np.ndarray, np.ndarray]:
    """The output positions of all images: in padded planes of x, and in an output's pixels."""
    n, (height, width) = geo.x_shape[0], geo.out
    image, i, j = np.ogrid[:n, :height, :width]
    x = image * (geo.groups * planes.channel) + i * geo.stride[0] * planes.width
    x = (x + j * geo.stride[1]) * packed(geo.channels[0], pack)
    return x, image * (geo.w_shape[0] * height * width) + i * width + j


def _taps(geo: Geometry, planes: Planes, pack: int) -> np.ndarray:
    """The packs (kh, kw, channel) in padded planes of x."""
    channels = packed(geo.channels[0], pack)
    i, j, c = np.ogrid[: geo.w_shape[2], : geo.w_shape[3], :channels:pack]
    return (i * geo.dilation[0] * planes.width + j * geo.dilation[1]) * channels + c


def _finished(dialect: Dialect, parts, dtype: np.dtype, shape: tuple):
    """The parts of the sums as one array of the dtype."""
    whole = parts if len(parts) == 1 else reduce(dialect, "sum", parts, 0)
    whole = whole.reshape(shape)
    return whole if whole.dtype == dtype else cast(dialect, whole, dtype)


def _parts(splits: int, shape: tuple, dtype: np.dtype, like):
    return empty((splits, math.prod(shape)), dtype if splits == 1 else np.float32, like)


def forward(dialect: Dialect, name: str, geo: Geometry, like, has_bias: bool):
    """The function (w, x, bias) -> y."""
    (per_in, per_out), planes, pixels = geo.channels, padded(geo), math.prod(geo.out)
    kernels = kernels_of(dialect, like.dtype)
    pack = kernels.PACK
    terms = math.prod(geo.w_shape[2:]) * packed(per_in, pack)
    shape = (geo.x_shape[0], geo.w_shape[0], *geo.out)
    positions, places = _positions(geo, planes, pack)
    splits = _splits(kernels, per_out, positions.size, geo.groups, terms)
    product = Product(
        dialect, name, like,
        Operand(np.arange(per_out) * terms, np.arange(0, terms, pack), False, per_out * terms),
        Operand(positions, _taps(geo, planes, pack), False, planes.channel * packed(per_in, pack)),
        Result(np.arange(per_out) * pixels, places, per_out * pixels),
        geo.groups, splits, math.prod(shape), has_bias,
    )  # fmt: skip
    of_w = _weights(dialect, name, geo, like)
    of_x = _images(dialect, name, geo, like, planes, per_in, geo.x_shape[2:])

    def convolved(w, x, bias):
        y = _parts(splits, shape, like.dtype, x)
        product(of_w(w), of_x(x), bias, y)
        return _finished(dialect, y, like.dtype, shape)

    return convolved


def backward_weight(dialect: Dialect, name: str, geo: Geometry, like):
    """The function (g, x) -> dw."""
    (per_in, per_out), planes, pixels = geo.channels, padded(geo), math.prod(geo.out)
    taps, dtype = math.prod(geo.w_shape[2:]), like.dtype
    kernels = kernels_of(dialect, dtype)
    pack = kernels.PACK
    wide_in, wide_out = packed(per_in, pack), packed(per_out, pack)
    positions, _ = _positions(geo, planes, pack)
    image, pixel = np.ogrid[: geo.x_shape[0], :pixels]
    from_g = (image * (geo.groups * pixels) + pixel) * wide_out
    tap, c = np.ogrid[:taps, :wide_in]
    columns = _only(c * taps + tap, c < per_in)
    splits = _splits(kernels, per_out, columns.size, geo.groups, positions.size)
    group = per_out * per_in * taps
    product = Product(
        dialect, name, like,
        Operand(np.arange(0, wide_out, pack), from_g, True, pixels * wide_out),
        Operand(_taps(geo, planes, pack), positions, True, planes.channel * wide_in),
        Result(np.arange(per_out) * per_in * taps, columns, group),
        geo.groups, splits, math.prod(geo.w_shape),
    )  # fmt: skip
    of_g = _images(dialect, name, geo, like, Planes(*geo.out, (0, 0)), per_out, geo.out)
    of_x = _images(dialect, name, geo, like, planes, per_in, geo.x_shape[2:])
    no_bias = empty((1,), dtype, like)

    def weight(g, x):
        dw = _parts(splits, geo.w_shape, dtype, x)
        product(of_g(g), of_x(x), no_bias, dw)
        return _finished(dialect, dw, dtype, geo.w_shape)

    return weight


def backward_data(dialect: Dialect, name: str, geo: Geometry, like):
    """The function (g, w) -> dx: a product for each of the s * s kinds of positions of stride s."""
    (per_in, per_out), (n, channels, height, width) = geo.channels, geo.x_shape
    groups, taps = geo.groups, math.prod(geo.w_shape[2:])
    reaches, planes = gradient_planes(geo)
    kernels = kernels_of(dialect, like.dtype)
    pack = kernels.PACK
    wide_in, wide_out = packed(per_in, pack), packed(per_out, pack)
    most = [max(reaches[axis], key=lambda r: r.count) for axis in range(2)]
    longest = math.prod(max(len(r.taps) for r in axis) for axis in reaches) * wide_out
    splits = _splits(kernels, per_in, n * most[0].count * most[1].count, groups, longest)
    image = np.arange(n).reshape(-1, 1, 1)
    o = np.arange(wide_out)
    products = []
    for v in reaches[0]:
        for h in reaches[1]:
            t, u = np.ogrid[: v.count, : h.count]
            from_g = (image * (groups * planes.channel) + t * planes.width + u) * wide_out
            place = (v.phase + t * geo.stride[0]) * width + h.phase + u * geo.stride[1]
            down, across = (
                np.array(r.shifts, np.int64) + before for r, before in zip((v, h), planes.lead)
            )
            shift = (down[:, None] * planes.width + across).reshape(-1, 1) * wide_out
            tap = np.array(v.taps, np.int64)[:, None] * geo.w_shape[3] + np.array(h.taps, np.int64)
            from_w = _only((o * taps + tap.reshape(-1, 1)) * wide_in, o < per_out)
            products.append(Product(
                dialect, name, like,
                Operand(np.arange(0, wide_in, pack), from_w, True, per_out * taps * wide_in),
                Operand(from_g, shift + o[::pack], False, planes.channel * wide_out),
                Result(
                    np.arange(per_in) * (height * width),
                    image * (channels * height * width) + place,
                    per_in * height * width,
                ),
                groups, splits, math.prod(geo.x_shape),
            ))  # fmt: skip
    of_w = _weights(dialect, name, geo, like)
    of_g = _images(dialect, name, geo, like, planes, per_out, geo.out)
    no_bias = empty((1,), like.dtype, like)

    def data(g, w):
        dx, laid_w, laid_g = _parts(splits, geo.x_shape, like.dtype, g), of_w(w), of_g(g)
        for product in products:
            product(laid_w, laid_g, no_bias, dx)
        return _finished(dialect, dx, like.dtype, geo.x_shape)

    return data
