"""The tables of `conv_batch.batch_gemm`: where the operands of a convolution and its result lie."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from kernels.launchers.common import (
    MAX_GRID_YZ,
    Dialect,
    ceil_div,
    compute_dtype,
    empty,
    launcher,
    namespace,
    on_gpu,
)
from kernels.launchers.conv_planes import (
    Geometry,
    Planes,
    Reach,
    gradient_planes,
    images_in_parts,
    padded,
)
from kernels.launchers.pointwise import pointwise
from kernels.launchers.reduction import reduce
from kernels.launchers.transpose import cast, transpose
from kernels.pointwise import TABLE

SPAN = 16384  # terms that one sum adds up; the sums of more are added afterwards
HALVED = 1024  # terms from which on a CPU two threads each read half of the images


class Side(NamedTuple):
    """An index of the product: where its elements lie in the left operand, and in the other array
    that it belongs to (the right operand for terms, the result for rows)."""

    left: np.ndarray
    other: np.ndarray


class Groups(NamedTuple):
    """How many groups there are, the columns of one, the distances of groups in both operands and
    the result, and that of columns in the result."""

    count: int
    columns: int
    left: int
    right: int
    out: int
    column: int


def _positions(geo: Geometry, planes: Planes, across: int, down: int, pairs) -> Side:
    """The output positions of all images, or the first ones of `pairs`: in padded planes of x, and
    in an array in which images are `down` elements apart, and positions `across`."""
    n, (height, width) = geo.x_shape[0], geo.out
    image, i, j = np.ogrid[:n, :height, : width : 2 if pairs else 1]
    x = image * geo.x_shape[1] * planes.channel
    x = x + i * geo.stride[0] * planes.width + j * geo.stride[1]
    return Side(x, image * down + (i * width + j) * across)


def _taps(geo: Geometry, planes: Planes, across: int, pairs) -> Side:
    """The weights of one output channel, or the first ones of `pairs`: in padded planes of x, and
    in weights that are `across` elements apart."""
    (_, channels, height, whole) = geo.w_shape
    c, i, j = np.ogrid[:channels, :height, : geo.stride[1] if pairs else whole]
    x = c * planes.channel + i * geo.dilation[0] * planes.width + j * geo.dilation[1]
    return Side(x, ((c * height + i) * whole + j) * across)


class Product:
    """Launches of batch_gemm with the same tables: `product(left, right, bias, out)`.

    shift: where the product, times `sign`, and what lies in out go to, from there; None for the
    product alone.
    """

    def __init__(
        self,
        dialect: Dialect,
        name: str,
        like,
        rows: Side,
        terms: Side,
        groups: Groups,
        *,
        has_bias: bool = False,
        span: int | None = None,
        out_split: int = 0,
        sign: int = 1,
        shift: int | None = None,
    ) -> None:
        xp, gpu = namespace(like), on_gpu(like)
        span = max(span or terms.left.size, 1)
        splits = max(ceil_div(terms.left.size, span), 1)
        tables = [xp.asarray(table.reshape(-1).astype(np.uint32)) for table in terms]
        numbers = (span, *groups[:-1], out_split, groups.column, sign, shift or 0)
        left, places = (table.reshape(-1).astype(np.uint32) for table in rows)
        acc_t = dialect.common.scalar_type(like.dtype)
        tall = dialect.conv_batch.ROWS * MAX_GRID_YZ
        self.steps = []
        for first in range(0, left.size, tall):
            some = [xp.asarray(table[first : first + tall]) for table in (left, places)]
            blocks, block, tile = dialect.conv_batch.tiling(some[0].size, groups.columns, gpu)
            kernel = dialect.conv_batch.batch_gemm(acc_t, *tile, has_bias, shift is not None)
            grid = (*blocks, splits * groups.count)
            run = launcher(name, "batch_gemm", kernel, grid, block)
            self.steps.append((run, (*some, *tables, *numbers)))

    def __call__(self, left, right, bias, out) -> None:
        for run, args in self.steps:
            run(left, right, bias, out, *args)


class Pairs(NamedTuple):
    """Rows that stand for two results, of terms that stand for two:

        y0 = d0 * w0 + d1 * w1        y1 = d1 * w0 + d2 * w1

    Three products take the place of four (S. Winograd, "Arithmetic complexity of computations",
    1980; F(2, 2)):

        both = d1 * (w0 + w1)    y1 = both - (d1 - d2) * w1    y0 = both + (d0 - d1) * w0

    left, right, out: how far d0 and d1, w0 and w1, y0 and y1 are apart.
    """

    left: int
    right: int
    out: int

    def products(self, *given, has_bias: bool, **how) -> list[Product]:
        """As `Product`, for the operands of `operands`."""
        both = Product(*given, has_bias=has_bias, **how)
        y0 = Product(*given, **how, shift=0)
        return [both, Product(*given, **how, sign=-1, shift=self.out), y0]

    def operands(self, dialect: Dialect, left, right) -> list[tuple]:
        """Of the three products."""
        differences = pointwise(dialect, TABLE["sub"], left[: -self.left], left[self.left :])
        sums = pointwise(dialect, TABLE["add"], right[: -self.right], right[self.right :])
        ahead, w1 = differences[self.left :], right[self.right :]
        return [(left[self.left :], sums), (ahead, w1), (differences, right)]


def _multiplied(pairs: Pairs | None, dialect: Dialect, *given, has_bias: bool = False, **how):
    """As `Product`, or of pairs."""
    if pairs is None:
        return Product(dialect, *given, has_bias=has_bias, **how)
    products = pairs.products(dialect, *given, has_bias=has_bias, **how)

    def run(left, right, bias, out) -> None:
        for product, (a, b) in zip(products, pairs.operands(dialect, left, right), strict=True):
            product(a, b, bias, out)

    return run


def _pairs(geo: Geometry, like, right: int, out: int, results: int, terms: int, operands: int):
    """`Pairs` that are a stride apart in x, so that windows that follow each other share half of
    what they read; None where the weights along a row, and the results, are none, and where it
    does not pay. right, out: of `Pairs`; the others: how many there are."""
    stride, width = geo.stride[1], geo.w_shape[3]
    shared = geo.dilation[1] == 1 and width == 2 * stride and geo.out[1] % 2 == 0
    if not shared or not _saves(like, results, terms, operands):
        return None
    return Pairs(stride, right, out)


def _saves(like, results: int, terms: int, operands: int) -> bool:
    """Whether `Pairs` takes less time: on a CPU where the sums are long. In multiply-adds: a result
    is read, and written more than once; sums and differences are taken; there are more launches."""
    if on_gpu(like) or compute_dtype(like.dtype) != like.dtype:
        return False
    return results * (terms // 4 - 40) > 16 * operands + 500_000


def _laid_out(dialect: Dialect, name: str, like, planes: Planes, shape: tuple):
    """The function that pads an array of `shape` (N, C, H, W) to planes; nothing where it is so."""
    if planes == Planes(*shape[2:], (0, 0)) and compute_dtype(like.dtype) == like.dtype:
        return lambda x: x.reshape(-1)
    return planes.launch(dialect, name, like, shape[0] * shape[1], 0)


def forward(dialect: Dialect, name: str, geo: Geometry, like, has_bias: bool):
    """The function (w, x, bias) -> y of a convolution."""
    (per_in, per_out), planes, outs = geo.channels, padded(geo), geo.w_shape[0]
    terms, pixels = math.prod(geo.w_shape[1:]), math.prod(geo.out)
    distances = per_in * planes.channel, per_out * terms, per_out * pixels, pixels
    floats = geo.x_shape[1] * planes.channel + outs * pixels
    results = geo.x_shape[0] * outs * pixels
    operands = geo.x_shape[0] * floats - results + math.prod(geo.w_shape)
    pairs = _pairs(geo, like, geo.stride[1] * per_out, 1, results, terms, operands)

    def convolution(geo: Geometry):
        lay_out = _laid_out(dialect, name, like, planes, geo.x_shape)
        rows = _positions(geo, planes, 1, outs * pixels, pairs)
        groups = Groups(geo.groups, per_out, *distances)
        taps = _taps(geo, planes, per_out, pairs)
        given = dialect, name, like, rows, taps, groups
        product = _multiplied(pairs, *given, has_bias=has_bias)
        return lambda right, x, bias, y: product(lay_out(x), right, bias, y.reshape(-1))

    parts = images_in_parts(geo, floats, on_gpu(like), convolution)

    def convolved(w, x, bias):
        right = transpose(dialect, w.reshape(geo.groups, per_out, terms), (0, 2, 1)).reshape(-1)
        y = empty((geo.x_shape[0], outs, *geo.out), like.dtype, x)
        for images, convolve in parts:
            convolve(right, x[images], bias, y[images])
        return y

    return convolved


def backward_weight(dialect: Dialect, name: str, geo: Geometry, like):
    """The function (g, x) -> dw."""
    (per_in, per_out), planes, dtype = geo.channels, padded(geo), like.dtype
    outs, terms, pixels = geo.w_shape[0], math.prod(geo.w_shape[1:]), math.prod(geo.out)
    size, no_bias = math.prod(geo.w_shape), empty((1,), dtype, like)
    floats, n = geo.x_shape[1] * planes.channel + outs * pixels, geo.x_shape[0]
    pairs = _pairs(geo, like, outs, geo.stride[1], size, n * pixels, n * floats)

    def gradient(geo: Geometry):
        lay_out = _laid_out(dialect, name, like, planes, geo.x_shape)
        positions = _positions(geo, planes, outs, pixels * outs, pairs)
        halved = positions.left.size >= HALVED and not on_gpu(like)
        splits = max(ceil_div(positions.left.size, SPAN), 1 + halved)
        product = _multiplied(
            pairs,
            dialect,
            name,
            like,
            _taps(geo, planes, 1, pairs),
            positions,
            Groups(geo.groups, per_out, per_in * planes.channel, per_out, per_out * terms, terms),
            span=ceil_div(positions.left.size, splits),
            out_split=size,
        )

        def add_up(g, x, sums):
            right = transpose(dialect, g.reshape(-1, outs, pixels), (0, 2, 1))
            product(lay_out(x), right.reshape(-1), no_bias, sums.reshape(-1))

        return splits, add_up

    steps, count = [], 0
    for images, (splits, add_up) in images_in_parts(geo, floats, on_gpu(like), gradient):
        steps.append((images, slice(count, count + splits), add_up))
        count += splits
    result = dtype if count == 1 else compute_dtype(dtype)

    def weight(g, x):
        sums = empty((count, size), result, x)
        for images, own, add_up in steps:
            add_up(g[images], x[images], sums[own])
        dw = sums if count == 1 else reduce(dialect, "sum", sums, 0)
        dw = dw.reshape(geo.w_shape)
        return dw if dw.dtype == dtype else cast(dialect, dw, dtype)

    return weight


def _phases(geo: Geometry, reaches: list[list[Reach]], planes: Planes):
    """For each kind of positions of x: where they lie (in planes of g, and in x), and the terms of
    their sums (in planes of g, and in w with its input channels last)."""
    (per_in, per_out), (n, channels, height, width) = geo.channels, geo.x_shape
    taps, image = geo.w_shape[2] * geo.w_shape[3], np.arange(n).reshape(-1, 1, 1)
    for v in reaches[0]:
        for h in reaches[1]:
            t, u = np.ogrid[: v.count, : h.count]
            g = image * geo.w_shape[0] * planes.channel + t * planes.width + u
            place = (v.phase + t * geo.stride[0]) * width + h.phase + u * geo.stride[1]
            o = np.arange(per_out).reshape(-1, 1, 1)
            down, across = (
                np.array(r.shifts, np.int64) + before for r, before in zip((v, h), planes.lead)
            )
            from_g = o * planes.channel + down[:, None] * planes.width + across
            tap = np.array(v.taps, np.int64)[:, None] * geo.w_shape[3] + np.array(h.taps, np.int64)
            rows = Side(g, image * channels * height * width + place)
            yield rows, Side(from_g, (o * taps + tap) * per_in)


def backward_data(dialect: Dialect, name: str, geo: Geometry, like, has_bias: bool):
    """The function (g, w, bias) -> dx."""
    (per_in, per_out), (_, channels, *size) = geo.channels, geo.x_shape
    reaches, planes = gradient_planes(geo)
    outs, taps, pixels = geo.w_shape[0], geo.w_shape[2] * geo.w_shape[3], math.prod(size)
    distances = per_out * planes.channel, per_out * per_in * taps, per_in * pixels, pixels
    groups = Groups(geo.groups, per_in, *distances)
    no_bias = empty((1,), like.dtype, like)

    def gradient(geo: Geometry):
        lay_out = _laid_out(dialect, name, like, planes, (geo.x_shape[0], outs, *geo.out))
        products = [
            Product(dialect, name, like, rows, terms, groups, has_bias=has_bias)
            for rows, terms in _phases(geo, reaches, planes)
        ]

        def data(right, g, bias, dx):
            left = lay_out(g)
            for product in products:
                product(left, right, bias, dx.reshape(-1))

        return data

    floats = outs * planes.channel + channels * pixels
    parts = images_in_parts(geo, floats, on_gpu(like), gradient)

    def data(g, w, bias):
        right = transpose(dialect, w.reshape(outs, per_in, taps), (0, 2, 1)).reshape(-1)
        dx = empty(geo.x_shape, like.dtype, g)
        for images, part in parts:
            part(right, g[images], bias if has_bias else no_bias, dx[images])
        return dx

    return data
