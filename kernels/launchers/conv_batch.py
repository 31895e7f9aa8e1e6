"""The launches of batch_gemm: one product over the positions of all images, whose operands are
found through tables (`conv_tables`)."""

from __future__ import annotations

import collections
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
from kernels.launchers.conv_costs import cheapest_layout
from kernels.launchers.conv_planes import Geometry, images_in_parts, padded
from kernels.launchers.conv_tables import Piece, Tables, of_inputs, of_outputs, of_weights
from kernels.launchers.pointwise import pointwise
from kernels.launchers.reduction import reduce
from kernels.launchers.transpose import cast, transpose
from kernels.pointwise import TABLE

SPAN = 16384  # terms that one sum adds up; the sums of more are added afterwards
HALVED = 1024  # positions from which on a CPU two threads each read half of the images


class Groups(NamedTuple):
    """How many groups there are, the columns of one, the distances of groups in both operands and
    the result, and that of columns in the result."""

    number: int
    columns: int
    left: int
    right: int
    out: int
    column: int


class Product:
    """Launches of batch_gemm with the same tables: `product(left, right, bias, out)`.

    splits: parts of each sum, `out_split` apart in out. shift: where the product, times `sign`, and
    what lies in out go to, from there; None for the product alone.
    """

    def __init__(
        self,
        dialect: Dialect,
        name: str,
        like,
        tables: Tables,
        groups: Groups,
        *,
        has_bias: bool = False,
        splits: int = 1,
        out_split: int = 0,
        sign: int = 1,
        shift: int | None = None,
    ) -> None:
        xp, gpu, pieces = namespace(like), on_gpu(like), tables.pieces()
        outer = max(1, tables.problem.rows.outer)
        together = outer if gpu else tables.together()
        heights = [piece.rows.left.size * together // outer for piece in pieces]
        tile, block, constants = dialect.conv_batch.tiling(heights, groups.columns, gpu)
        acc_t = dialect.common.scalar_type(like.dtype)
        kernel = dialect.conv_batch.batch_gemm(acc_t, *constants, has_bias, shift is not None)
        # rows and places, terms and right_terms, each those of all pieces
        sides = [side for kind in zip(*pieces, strict=True) for side in zip(*kind, strict=True)]
        arrays = [xp.asarray(np.concatenate(side)) for side in sides]
        numbers = (*groups[:-1], groups.column, sign, shift or 0)
        across = ceil_div(groups.columns, tile[0])
        if len(pieces) > 1 and together == outer and not gpu:
            # OS threads write lines of their own: those of some columns, or of half of the images
            together = outer if across > 1 else ceil_div(outer, 2)
            across = 1
        columns = range(0, groups.columns, across * tile[0])
        turns = [
            Turn(first, min(first + together, outer), outer, column, split, splits, out_split)
            for split in range(splits)
            for column in columns
            for first in range(0, outer, together)
        ]
        self.steps = []
        most = max(1, MAX_GRID_YZ // groups.number)
        for height, entries in _by_height(pieces, turns, tile[1]).items():
            for first in range(0, len(entries), most):
                some = entries[first : first + most]
                grid = (across, height, len(some) * groups.number)
                run = launcher(name, "batch_gemm", kernel, grid, block)
                self.steps.append((run, (*arrays, xp.asarray(some, np.uint32), *numbers)))

    def __call__(self, left, right, bias, out) -> None:
        for run, args in self.steps:
            run(left, right, bias, out, *args)


class Turn(NamedTuple):
    """Of a product: the rows of the outer parts from `first` to `end`, of `outer`; columns from
    `column` on; one of the splits of each sum."""

    first: int
    end: int
    outer: int
    column: int
    split: int
    splits: int
    out_split: int


def _by_height(pieces: list[Piece], turns: list[Turn], tile: int) -> dict[int, list]:
    """For so many tiles of rows, the entries of the pieces of all turns that have so many."""
    found = collections.defaultdict(list)
    for turn in turns:
        row = term = 0
        for rows, terms in pieces:
            size, count = rows.left.size, terms.left.size
            first, end = (row + size // turn.outer * i for i in (turn.first, turn.end))
            span = ceil_div(count, turn.splits)
            low, high = (term + min(i * span, count) for i in (turn.split, turn.split + 1))
            for start in range(first, end, tile * MAX_GRID_YZ):
                stop = min(start + tile * MAX_GRID_YZ, end)
                entry = start, stop, low, high, turn.column, turn.split * turn.out_split
                found[ceil_div(stop - start, tile)].append(entry)
            row, term = row + size, term + count
    return found


class Pairs(NamedTuple):
    """Rows that stand for two results, of terms that stand for two:

        y0 = d0 * w0 + d1 * w1        y1 = d1 * w0 + d2 * w1

    Three products take the place of four (S. Winograd, "Arithmetic complexity of computations",
    1980; F(2, 2)):

        both = d1 * (w0 + w1)    y1 = both - (d1 - d2) * w1    y0 = both + (d0 - d1) * w0

    Of an infinite d0 y1 is a number still, of an infinite d1 both are none (NaN).

    left, right, out: how far d0 and d1, w0 and w1, y0 and y1 are apart. turned: w1 lies before w0.
    """

    left: int
    right: int
    out: int
    turned: bool

    @classmethod
    def of(cls, tables: Tables) -> Pairs | None:
        """Those of a product, if it is one of pairs."""
        problem, axis = tables.problem, tables.layout.paired
        if axis is None:
            return None
        reads, unit = problem.reads[axis], (tables.planes.width, 1)[axis]
        rows, terms = (side.distances[1 + axis] for side in (problem.rows, problem.terms))
        if problem.rows_are_outputs:
            by, out, right = reads.by_row, rows * reads.step, terms * reads.by_row * reads.step
        else:
            by, out, right = reads.by_term, rows * reads.by_term, terms
        return cls(by * unit, right, out, reads.by_term < 0)

    def products(self, *given, has_bias: bool, **how) -> list[Product]:
        """As `Product`, for the operands of `operands`."""
        both = Product(*given, has_bias=has_bias, **how)
        y0 = Product(*given, **how, shift=0)
        return [both, Product(*given, **how, sign=-1, shift=self.out), y0]

    def sums(self, dialect: Dialect, right):
        """w0 + w1 of the right operand."""
        return pointwise(dialect, TABLE["add"], right[: -self.right], right[self.right :])

    def operands(self, dialect: Dialect, left, right, sums) -> list[tuple]:
        """Of the three products."""
        differences = pointwise(dialect, TABLE["sub"], left[: -self.left], left[self.left :])
        ahead, w0, w1 = differences[self.left :], right, right[self.right :]
        if self.turned:
            w0, w1 = w1, w0
        return [(left[self.left :], sums), (ahead, w1), (differences, w0)]


def _multiplied(pairs: Pairs | None, dialect: Dialect, *given, has_bias: bool = False, **how):
    """The function (left, right, bias, out, sums) of a `Product`, or of pairs with their sums."""
    if pairs is None:
        product = Product(dialect, *given, has_bias=has_bias, **how)
        return lambda left, right, bias, out, sums: product(left, right, bias, out)
    products = pairs.products(dialect, *given, has_bias=has_bias, **how)

    def run(left, right, bias, out, sums) -> None:
        operands = pairs.operands(dialect, left, right, sums)
        for product, (a, b) in zip(products, operands, strict=True):
            product(a, b, bias, out)

    return run


def _laid_out(dialect: Dialect, name: str, like, tables: Tables):
    """The function that pads x, or g, to planes."""
    if not tables.is_padded and compute_dtype(like.dtype) == like.dtype:
        return lambda x: x.reshape(-1)
    return tables.planes.launch(dialect, name, like, tables.problem.planes, 0)


def forward(dialect: Dialect, name: str, geo: Geometry, like, has_bias: bool):
    """The function (w, x, bias) -> y of a convolution."""
    (per_in, per_out), outs = geo.channels, geo.w_shape[0]
    terms, pixels = math.prod(geo.w_shape[1:]), math.prod(geo.out)
    layout = cheapest_layout(dialect, of_outputs(geo), geo, like, per_out)
    pairs = Pairs.of(Tables(of_outputs(geo), layout))

    def convolution(geo: Geometry):
        tables = Tables(of_outputs(geo), layout)
        lay_out = _laid_out(dialect, name, like, tables)
        distances = per_in * tables.planes.channel, per_out * terms, per_out * pixels, pixels
        groups = Groups(geo.groups, per_out, *distances)
        given = dialect, name, like, tables, groups
        product = _multiplied(pairs, *given, has_bias=has_bias)
        return lambda right, x, bias, y, sums: product(lay_out(x), right, bias, y.reshape(-1), sums)

    floats = (1 + bool(pairs)) * geo.x_shape[1] * padded(geo).channel + outs * pixels
    parts = images_in_parts(geo, floats, on_gpu(like), convolution)

    def convolved(w, x, bias):
        right = transpose(dialect, w.reshape(geo.groups, per_out, terms), (0, 2, 1)).reshape(-1)
        sums = pairs and pairs.sums(dialect, right)
        y = empty((geo.x_shape[0], outs, *geo.out), like.dtype, x)
        for images, convolve in parts:
            convolve(right, x[images], bias, y[images], sums)
        return y

    return convolved


def backward_weight(dialect: Dialect, name: str, geo: Geometry, like):
    """The function (g, x) -> dw."""
    (per_in, per_out), dtype = geo.channels, like.dtype
    outs, terms, pixels = geo.w_shape[0], math.prod(geo.w_shape[1:]), math.prod(geo.out)
    size, no_bias = math.prod(geo.w_shape), empty((1,), dtype, like)
    layout = cheapest_layout(dialect, of_weights(geo), geo, like, per_out)
    pairs = Pairs.of(Tables(of_weights(geo), layout))

    def gradient(geo: Geometry):
        tables = Tables(of_weights(geo), layout)
        longest = max(size.terms for size in tables.sizes())
        halved = longest * (1 + bool(pairs)) >= HALVED and not on_gpu(like)
        splits = max(ceil_div(longest, SPAN), 1 + halved)
        distances = per_in * tables.planes.channel, per_out, per_out * terms, terms
        groups = Groups(geo.groups, per_out, *distances)
        given = dialect, name, like, tables, groups
        product = _multiplied(pairs, *given, splits=splits, out_split=size)
        lay_out = _laid_out(dialect, name, like, tables)

        def add_up(g, x, found):
            right = transpose(dialect, g.reshape(-1, outs, pixels), (0, 2, 1)).reshape(-1)
            sums = pairs and pairs.sums(dialect, right)
            product(lay_out(x), right, no_bias, found.reshape(-1), sums)

        return splits, add_up

    steps, count = [], 0
    floats = (1 + bool(pairs)) * (geo.x_shape[1] * padded(geo).channel + outs * pixels)
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


def backward_data(dialect: Dialect, name: str, geo: Geometry, like, has_bias: bool):
    """The function (g, w, bias) -> dx."""
    (per_in, per_out), (_, channels, *size) = geo.channels, geo.x_shape
    outs, taps, pixels = geo.w_shape[0], geo.w_shape[2] * geo.w_shape[3], math.prod(size)
    layout = cheapest_layout(dialect, of_inputs(geo), geo, like, per_in)
    pairs = Pairs.of(Tables(of_inputs(geo), layout))
    no_bias = empty((1,), like.dtype, like)

    def gradient(geo: Geometry):
        tables = Tables(of_inputs(geo), layout)
        distances = per_out * tables.planes.channel, per_out * per_in * taps, per_in * pixels
        groups = Groups(geo.groups, per_in, *distances, pixels)
        given = dialect, name, like, tables, groups
        product = _multiplied(pairs, *given, has_bias=has_bias)
        lay_out = _laid_out(dialect, name, like, tables)
        return lambda right, g, bias, dx, sums: product(
            lay_out(g), right, bias, dx.reshape(-1), sums
        )

    floats = (1 + bool(pairs)) * outs * math.prod(geo.out) + channels * pixels
    parts = images_in_parts(geo, floats, on_gpu(like), gradient)

    def data(g, w, bias):
        right = transpose(dialect, w.reshape(outs, per_in, taps), (0, 2, 1)).reshape(-1)
        sums = pairs and pairs.sums(dialect, right)
        dx = empty(geo.x_shape, like.dtype, g)
        for images, part in parts:
            part(right, g[images], bias if has_bias else no_bias, dx[images], sums)
        return dx

    return data
