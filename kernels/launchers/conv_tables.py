"""Where the operands of a convolution lie: the tables of `conv_batch.batch_gemm`.

A convolution or a gradient is a product of a left operand, x or the gradient of the output, with
one that has a column for each channel. Its rows (results) and terms (of their sums) are counted by
three indices each: an outer one (images or channels), down and across.

Where the left operand has no padding, windows at the edges have fewer terms than others. So rows
that have the same terms make a piece of the product: of the forward operation with a 3 x 3 kernel
and padding 1 the inner positions, the four edges and the four corners. The positions that a stride
leaves to different taps, of the gradient of x, are pieces in the same way.
"""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple

import numpy as np

from kernels.launchers.common import ceil_div
from kernels.launchers.conv_planes import Geometry, Planes

LINE = 16  # elements of a line of a cache
TOGETHER = 1 << 16  # elements that stay in it
LEAST_ROWS = 512  # of the largest piece


class Index(NamedTuple):
    """Rows or terms: how many the outer part has, how many planes of the left operand lie from one
    to the next, and distances in the other array: those of the outer part, down and across."""

    outer: int
    planes: int
    distances: tuple[int, int, int]


class Reads(NamedTuple):
    """Along one axis, a row reads element (row * by_row + term * by_term + first) / step of the
    left operand, of `size` elements, with each term for which that is a whole number."""

    rows: int
    terms: int
    by_row: int
    by_term: int
    first: int
    step: int
    size: int

    def reached(self, padded: bool) -> tuple[np.ndarray, np.ndarray, int]:
        """Of each row the first term, and how many there are, `every` so many; without `padded`
        those that read an element of the left operand."""
        start, top = np.arange(self.rows) * self.by_row + self.first, (self.size - 1) * self.step
        low, high = np.zeros_like(start), np.full_like(start, self.terms)
        if not padded:
            ends = (0, top) if self.by_term > 0 else (top, 0)
            low = np.clip(-((start - ends[0]) // self.by_term), 0, self.terms)
            high = np.clip((ends[1] - start) // self.by_term + 1, 0, self.terms)
        every = self.step // math.gcd(self.step, self.by_term)
        meeting = np.full(self.step, -1)  # the first term, by what is left of the start
        for term in reversed(range(every)):
            meeting[-term * self.by_term % self.step] = term
        first = meeting[start % self.step]
        low += (first - low) % every
        count = np.where(first < 0, 0, np.maximum(0, -((low - high) // every)))
        return np.where(count, low, 0), count, every


class Problem(NamedTuple):
    """A product. planes: those of the left operand, in all; rows_are_outputs: or else the terms."""

    rows: Index
    terms: Index
    reads: tuple[Reads, Reads]
    planes: int
    rows_are_outputs: bool = True


class Layout(NamedTuple):
    """How a product is computed: whether the left operand has padding, down and across; and the
    axis along which windows are taken in pairs (`conv_batch.Pairs`), 0 down, 1 across, or None."""

    padded: tuple[bool, bool]
    paired: int | None = None


class Side(NamedTuple):
    """An index of the product: where its elements lie in the left operand, and in the other array
    that it belongs to (the right operand for terms, the result for rows)."""

    left: np.ndarray
    other: np.ndarray


class Piece(NamedTuple):
    """Rows that have the same terms."""

    rows: Side
    terms: Side


class Size(NamedTuple):
    """Of a piece: how many rows and terms; lines of a cache that it reads of a plane, and that it
    writes for each row of a column."""

    rows: int
    terms: int
    read: int
    written: float


class _Kind(NamedTuple):
    """Rows along an axis that have the same terms; a row reads, with a term, the element at the sum
    of `rows_at` and `terms_at`."""

    rows: np.ndarray
    terms: np.ndarray
    rows_at: np.ndarray
    terms_at: np.ndarray


def of_outputs(geo: Geometry) -> Problem:
    """The forward operation: rows are output positions, terms weights (O last)."""
    (per_in, per_out), taps = geo.channels, geo.w_shape[2:]
    n, channels, outs, (height, width) = *geo.x_shape[:2], geo.w_shape[0], geo.out
    rows = Index(n, channels, (outs * height * width, width, 1))
    terms = Index(per_in, 1, (math.prod(taps) * per_out, taps[1] * per_out, per_out))
    return Problem(rows, terms, (_windows(geo, 0), _windows(geo, 1)), n * channels)


def of_weights(geo: Geometry) -> Problem:
    """The gradient of the weights: rows are weights, terms output positions (of g, O last)."""
    n, channels, outs, (height, width) = *geo.x_shape[:2], geo.w_shape[0], geo.out
    rows = Index(geo.w_shape[1], 1, (math.prod(geo.w_shape[2:]), geo.w_shape[3], 1))
    terms = Index(n, channels, (height * width * outs, width * outs, outs))
    down, across = (
        one._replace(rows=one.terms, terms=one.rows, by_row=one.by_term, by_term=one.by_row)
        for one in (_windows(geo, 0), _windows(geo, 1))
    )
    return Problem(rows, terms, (down, across), n * channels, rows_are_outputs=False)


def of_inputs(geo: Geometry) -> Problem:
    """The gradient of x: rows are its positions, terms weights (of w, input channels last)."""
    (per_in, per_out), taps = geo.channels, geo.w_shape[2:]
    (n, channels, height, width), outs = geo.x_shape, geo.w_shape[0]
    rows = Index(n, outs, (channels * height * width, width, 1))
    terms = Index(per_out, 1, (math.prod(taps) * per_in, taps[1] * per_in, per_in))
    return Problem(rows, terms, (_reaching(geo, 0), _reaching(geo, 1)), n * outs)


def _windows(geo: Geometry, i: int) -> Reads:
    """What outputs read with their taps."""
    counts = geo.out[i], geo.w_shape[2 + i]
    return Reads(
        *counts, geo.stride[i], geo.dilation[i], -geo.padding[i], step=1, size=geo.x_shape[2 + i]
    )


def _reaching(geo: Geometry, i: int) -> Reads:
    """The outputs that read positions of x with their taps."""
    counts = geo.x_shape[2 + i], geo.w_shape[2 + i]
    return Reads(*counts, 1, -geo.dilation[i], geo.padding[i], step=geo.stride[i], size=geo.out[i])


def _kinds(reads: Reads, padded: bool) -> tuple[list[_Kind], int, int]:
    """The kinds along an axis, the padding before the left operand, and its size with both."""
    low, count, every = reads.reached(padded)
    numbers = low * (reads.terms + 1) + count
    found, least, most = [], 0, reads.size - 1
    for number in np.unique(numbers):
        rows = np.flatnonzero(numbers == number)
        terms = low[rows[0]] + every * np.arange(count[rows[0]])
        lowest = terms[:1] if reads.by_term > 0 else terms[-1:]
        at = rows * reads.by_row + reads.first + lowest.sum() * reads.by_term
        at, more = at // reads.step, (terms - lowest.sum()) * reads.by_term // reads.step
        if terms.size:
            least, most = min(least, at.min()), max(most, at.max() + more.max())
        found.append(_Kind(rows, terms, at if terms.size else np.zeros_like(rows), more))
    found = [kind._replace(rows_at=kind.rows_at - least) for kind in found]
    return found, -least, most - least + 1


def _half(kind: _Kind, rows_are_outputs: bool) -> _Kind:
    """Every other output with the first half of the taps, from the first element that both of a
    pair's taps read."""
    taps = kind.terms if rows_are_outputs else kind.rows
    halves = slice(None, None, 2), slice(taps.size // 2)
    rows, terms = halves if rows_are_outputs else reversed(halves)
    at = kind.terms_at[terms]
    return _Kind(kind.rows[rows], kind.terms[terms], kind.rows_at[rows], at - at.min())


class Tables:
    """The tables of a product in a layout; `planes` are those of its left operand."""

    def __init__(self, problem: Problem, layout: Layout) -> None:
        (down, top, height), (across, before, width) = (
            _kinds(reads, padded)
            for reads, padded in zip(problem.reads, layout.padded, strict=True)
        )
        kinds = [down, across]
        if layout.paired is not None:
            whole = kinds[layout.paired]
            kinds[layout.paired] = [_half(kind, problem.rows_are_outputs) for kind in whole]
        self.layout, (self.down, self.across) = layout, kinds
        self.problem, self.planes = problem, Planes(height, width, (top, before))

    @property
    def is_padded(self) -> bool:
        """Whether the left operand is not read as it lies."""
        down, across = self.problem.reads
        return self.planes != Planes(down.size, across.size, (0, 0))

    def sizes(self) -> list[Size]:
        """Those of each piece."""
        return [self._size(v, h) for v, h in itertools.product(self.down, self.across)]

    def _size(self, v: _Kind, h: _Kind) -> Size:
        rows, terms = self.problem.rows, self.problem.terms
        each, below, beside = rows.distances
        outer = np.arange(min(rows.outer, LINE)).reshape(-1, 1, 1)
        places = outer * each + v.rows[:LINE, None] * below + h.rows[:LINE] * beside
        down, across = (int(p.terms_at.max(initial=0) + np.ptp(p.rows_at)) + 1 for p in (v, h))
        lines = min(down, v.rows.size * v.terms.size) * (across // LINE + 1)
        return Size(
            rows.outer * v.rows.size * h.rows.size,
            terms.outer * v.terms.size * h.terms.size,
            min(lines, self.planes.channel // LINE + 1),
            np.unique(places // LINE).size / max(places.size, 1),
        )

    def together(self) -> int:
        """How many of the outer parts, images, one piece after the other takes, so that lines that
        several of them read or write stay in a cache; all where that is no question."""
        rows = self.problem.rows
        most = max(v.rows.size * h.rows.size for v, h in itertools.product(self.down, self.across))
        if not self.problem.rows_are_outputs or len(self.down) * len(self.across) == 1:
            return rows.outer
        each = rows.planes * self.planes.channel + rows.distances[0]
        parts = max(1, rows.outer // max(TOGETHER // each, ceil_div(LEAST_ROWS, most)))
        return ceil_div(rows.outer, parts)

    def pieces(self) -> list[Piece]:
        """Those that have rows."""
        return [
            Piece(
                self._side(self.problem.rows, v.rows, h.rows, v.rows_at, h.rows_at),
                self._side(self.problem.terms, v.terms, h.terms, v.terms_at, h.terms_at),
            )
            for v, h in itertools.product(self.down, self.across)
            if self.problem.rows.outer
        ]

    def _side(self, index: Index, v, h, v_at, h_at) -> Side:
        outer, planes = np.arange(index.outer).reshape(-1, 1, 1), self.planes
        each, below, beside = index.distances
        left = outer * index.planes * planes.channel + v_at[:, None] * planes.width + h_at
        other = outer * each + v[:, None] * below + h * beside
        return Side(*(table.reshape(-1).astype(np.uint32) for table in (left, other)))
