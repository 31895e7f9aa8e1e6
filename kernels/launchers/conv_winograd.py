"""The launches of winograd: kernels of 3 x 3 as 16 matrix products for tiles of 2 x 2 results."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

from kernels.launchers.common import (
    MAX_GRID_YZ,
    Dialect,
    Pair,
    ceil_div,
    compute_dtype,
    empty,
    launcher,
    on_gpu,
)
from kernels.launchers.conv_planes import Geometry, Planes
from kernels.launchers.matmul import matmul
from kernels.launchers.pointwise import pointwise
from kernels.pointwise import TABLE
from kernels.support import thread_pool

# Bytes of the tiles of a part as factors and results of the products: what the second level of a
# core's cache holds, and what the memory of a GPU can spare.
PART, GPU_PART = 800_000, 1 << 28
LEAST = 64  # tiles of a part
COLUMNS = 32  # of the products' tiles: fewer leave a part of each empty
FEW = 4  # transforming inputs and results should take so many times what weights do
SUMMED = 4 * PART  # of backward-weight: what each part makes of the weights is added up


def refusal(name: str, geo: Geometry, dtype) -> str | None:
    """Why the kernels do not take a convolution or its gradient `name`; None where they do."""
    plain = geo.w_shape[2:] == (3, 3) and geo.stride == geo.dilation == (1, 1) and geo.groups == 1
    if not plain:
        return "takes kernels of 3 x 3 with stride 1, dilation 1 and one group"
    if compute_dtype(dtype) != dtype:
        return f"takes float32 and float64, not {dtype}"
    if name == "conv2d_backward_data" and max(geo.padding) > 2:
        return "takes no padding that is wider than the kernel's reach in backward-data"
    if max(geo.channels) > MAX_GRID_YZ:
        return f"takes up to {MAX_GRID_YZ} channels, not {max(geo.channels)}"
    return None


class _Part(NamedTuple):
    """Some images, in how many groups (`numba_cuda.conv_winograd`), and the tiles of each that are
    worked on together: from one to another one."""

    images: int
    groups: int
    tiles: list[Pair]


def _in_parts(
    geo: Geometry, like, most: int, groups: int, make: Callable[[_Part], tuple]
) -> list[tuple]:
    """For each part of the images, of `groups` of about `most` bytes each on a CPU, its slice, and
    what `make` makes of it."""
    images, each = geo.x_shape[0], math.prod(_tiles(geo))
    count = _at_once(geo, like, most)
    full = ceil_div(each, COLUMNS)
    parts = ceil_div(full, max(1, count // COLUMNS))
    ends = [min(full * i // parts * COLUMNS, each) for i in range(parts + 1)]
    tiles = list(itertools.pairwise(ends))
    some = groups * (_fullest(ceil_div(images, groups), each, count) if parts == 1 else 1)
    made: dict[int, tuple] = {}
    steps = []
    for first in range(0, images, some):
        number = min(some, images - first)
        if number not in made:
            made[number] = make(_Part(number, 1 if number % groups else groups, tiles))
        steps.append((slice(first, first + number), *made[number]))
    return steps


def _at_once(geo: Geometry, like, most: int) -> int:
    """How many tiles a part of about `most` bytes on a CPU has."""
    read, written = geo.channels
    # Each part reads, or makes, all weights, and should not be much smaller.
    least = max(LEAST, read * written // (read + written))
    size = 16 * (read + written) * like.dtype.itemsize
    return max(least, (GPU_PART if on_gpu(like) else most) // size)


def _fullest(images: int, each: int, most: int) -> int:
    """How many images a group has, up to twice as many as `most` tiles, so that those of all
    groups fill the fewest tiles of products."""
    few = max(1, min(images, MAX_GRID_YZ, most // each))

    def columns(some: int) -> int:
        whole, rest = divmod(images, some)
        return whole * ceil_div(some * each, COLUMNS) + ceil_div(rest * each, COLUMNS)

    return min(range(few, min(2 * few, images, MAX_GRID_YZ) + 1), key=columns, default=1)


def _tiles(geo: Geometry) -> Pair:
    """Rows of tiles, and how many a row has: the last one of each has no results."""
    return ceil_div(geo.out[0], 2), ceil_div(geo.out[1], 2) + 1


def _inputs(geo: Geometry) -> Planes:
    rows, width = _tiles(geo)
    return Planes(rows + 1, width, geo.padding, (2, 2))


def _factor(
    dialect: Dialect, name: str, like, kind: str, planes: Planes, grid: Pair, groups: int,
    tiles: Pair, *row: int,
):  # fmt: skip
    """The function from planes to a factor of the products, (16 * groups, channels, tiles), by the
    kernel `kind`. grid: channels and images. row: how far rows are apart, if the kernel asks."""
    own, (first, end) = dialect.conv_winograd, tiles
    kernel = getattr(own, kind)(dialect.common.scalar_type(like.dtype))
    run = launcher(name, kind, kernel, (ceil_div(end - first, own.BLOCK), *grid), own.BLOCK)
    sizes = planes.rows * planes.width, *row, first, end - first
    shape = 16 * groups, grid[0], grid[1] // groups * (end - first)

    def factor(flat):
        made = empty(shape, like.dtype, flat)
        run(flat, made, *sizes)
        return made

    return factor


def _knows_groups(dialect: Dialect, like) -> bool:
    """A GPU needs no groups, so the kernels in CUDA C know none."""
    return dialect.name == "numba" and not on_gpu(like)


def _convolution(dialect: Dialect, name: str, geo: Geometry, like, turned: bool, has_bias: bool):
    """The function (w, x, bias) -> y; of `geo`, whose weights are `turned` where it is that of
    backward-data."""
    (images, read), written, dtype = geo.x_shape[:2], geo.w_shape[0], like.dtype
    own, acc_t = dialect.conv_winograd, dialect.common.scalar_type(dtype)
    shape, planes = (images, written, *geo.out), _inputs(geo)
    groups, threads = 1, thread_pool.get_num_threads()
    if _knows_groups(dialect, like):
        # An OS thread multiplies what it made itself, by weights of its own.
        most = images * math.prod(_tiles(geo)) * (read + written) // (FEW * read * written)
        groups = max(1, min(threads, images, most))
    grid = ceil_div(read, own.BLOCK), written, groups
    of_weights = launcher(name, "weights", own.weights(acc_t, turned), grid, own.BLOCK)

    def make(part: _Part) -> tuple:
        pad = planes.launch(dialect, name, like, part.images * read, 1)
        return pad, [one(part.images, part.groups, tiles) for tiles in part.tiles]

    def one(images: int, groups: int, tiles: Pair):
        (first, end), width = tiles, planes.width
        given = planes, (read, images), groups, tiles, width
        inputs = _factor(dialect, name, like, "inputs", *given)
        kernel, grid = own.outputs(acc_t, has_bias), ceil_div(end - first, own.BLOCK)
        outputs = launcher(name, "winograd", kernel, (grid, written, images), own.BLOCK)

        def results(u, flat, bias, y) -> None:
            m = matmul(dialect, u[: 16 * groups], inputs(flat))
            outputs(m, bias, y, width, first, end - first)

        return results

    steps = _in_parts(geo, like, PART * threads // groups, groups, make)

    def convolved(w, x, bias):
        u, y = empty((16 * groups, written, read), dtype, x), empty(shape, dtype, x)
        of_weights(w.reshape(*w.shape[:2], 9), u)
        for some, pad, parts in steps:
            flat = pad(x[some])
            for results in parts:
                results(u, flat, bias, y[some])
            del flat  # so that each part lies where the one before did, in the same caches
        return y

    return convolved


def forward(dialect: Dialect, name: str, geo: Geometry, like, has_bias: bool):
    """The function (w, x, bias) -> y."""
    return _convolution(dialect, name, geo, like, False, has_bias)


def backward_data(dialect: Dialect, name: str, geo: Geometry, like):
    """The function (g, w) -> dx: the convolution of g with the weights turned."""
    (images, inside, *_), outs = geo.x_shape, geo.w_shape[0]
    turned = geo._replace(
        x_shape=(images, outs, *geo.out),
        w_shape=(inside, outs, 3, 3),
        padding=(2 - geo.padding[0], 2 - geo.padding[1]),
    )
    convolved = _convolution(dialect, name, turned, like, True, False)
    no_bias = empty((1,), like.dtype, like)
    return lambda g, w: convolved(w, g, no_bias)


def backward_weight(dialect: Dialect, name: str, geo: Geometry, like):
    """The function (g, x) -> dw: a sum over the tiles for each of the 16 products."""
    own, images, (read, written) = dialect.conv_winograd, geo.x_shape[0], geo.channels
    of_x, (rows, width) = _inputs(geo), _tiles(geo)
    groups = 1
    if _knows_groups(dialect, like) and images * rows * width >= 2 * _at_once(geo, like, SUMMED):
        groups = min(images, 2)  # the same sums with any number of threads
    together = min(groups, thread_pool.get_num_threads())
    of_g = Planes(rows, width, (0, 0), (2, 2))
    kernel = own.filters(dialect.common.scalar_type(like.dtype))
    filters = launcher(name, "winograd", kernel, (ceil_div(read, own.BLOCK), written), own.BLOCK)

    def make(part: _Part) -> tuple:
        given, groups = (dialect, name, like), min(part.groups, together)
        n = part.images // part.groups * groups
        pads = [
            planes.launch(*given, n * channels, 1)
            for planes, channels in ((of_g, written), (of_x, read))
        ]
        factors = [
            (
                _factor(*given, "gradients", of_g, (written, n), groups, some),
                _factor(*given, "inputs", of_x, (read, n), groups, some, width),
            )
            for some in part.tiles
        ]
        return [slice(first, first + n) for first in range(0, part.images, n)], *pads, factors

    steps = _in_parts(geo, like, SUMMED, groups, make)

    def weight(g, x):
        sums: dict[int, Any] = {}
        for part, images, pad_g, pad_x, factors in steps:
            for i, some in enumerate(images):
                planes_g, planes_x = pad_g(g[part][some]), pad_x(x[part][some])
                for gradients, inputs in factors:
                    product = matmul(dialect, gradients(planes_g), inputs(planes_x).swapaxes(1, 2))
                    before = sums.setdefault(i, product)
                    if before is not product:  # a last part may have one group
                        before = before[: len(product)]
                        pointwise(dialect, TABLE["add"], before, product, out=before)
        total, *others = (one[i : i + 16] for one in sums.values() for i in range(0, len(one), 16))
        for other in others:
            total = pointwise(dialect, TABLE["add"], total, other)
        dw = empty((written, read, 9), like.dtype, x)
        filters(total, dw)
        return dw.reshape(geo.w_shape)

    return weight
