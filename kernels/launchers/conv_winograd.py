"""The launches of winograd: kernels of 3 x 3 as 16 matrix products for tiles of 2 x 2 results."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import NamedTuple

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

# Bytes of the tiles of a part as factors and results of the products: what the second level of a
# CPU's cache holds, and what the memory of a GPU can spare.
PART, GPU_PART = 800_000, 1 << 28
LEAST = 64  # tiles of a part
MOST = 512  # tiles of a part of an image: their results lie in shared memory
MORE = 4  # parts of backward-weight are larger: what each makes of the weights is added up


def refusal(name: str, geo: Geometry, dtype) -> str | None:
    """Why the kernels do not take a convolution or its gradient `name`; None where they do."""
    plain = geo.w_shape[2:] == (3, 3) and geo.stride == geo.dilation == (1, 1) and geo.groups == 1
    if not plain:
        return "takes kernels of 3 x 3 with stride 1, dilation 1 and one group"
    if compute_dtype(dtype) != dtype:
        return f"takes float32 and float64, not {dtype}"
    if name == "conv2d_backward_data" and max(geo.padding) > 2:
        return "takes no padding that is wider than the kernel's reach in backward-data"
    if max(geo.x_shape[3], geo.out[1]) > 2 * (MOST - 1):
        return f"takes images up to {2 * (MOST - 1)} columns, not {geo.x_shape[3]}"
    if max(geo.channels) > MAX_GRID_YZ:
        return f"takes up to {MAX_GRID_YZ} channels, not {max(geo.channels)}"
    return None


class _Part(NamedTuple):
    """Some images, and the rows of tiles of each that are worked on together."""

    images: int
    rows: list[Pair]


def _cut(count: int, parts: int) -> list[Pair]:
    """The ends of so many parts of `count`, none for an empty batch, all of about the same size."""
    return list(itertools.pairwise(count * i // max(parts, 1) for i in range(parts + 1)))


def _in_parts(geo: Geometry, like, more: int, make: Callable[[_Part], tuple]) -> list[tuple]:
    """For each part of the images its slice, and what `make` makes of it. more: how many times
    larger than PART they may be."""
    (images, *_), (read, written), gpu = geo.x_shape, geo.channels, on_gpu(like)
    rows, width = _tiles(geo)
    # Each part reads, or makes, all weights, and should not be much smaller.
    least = max(LEAST, read * written // (read + written))
    each = 16 * (read + written) * like.dtype.itemsize
    tiles = max(least, (GPU_PART if gpu else more * PART) // each)
    heights = ceil_div(rows, min(tiles, MOST) // width or 1)
    some = max(1, min(tiles // (rows * width), MAX_GRID_YZ))
    made: dict[int, tuple] = {}
    steps = []
    for first, end in _cut(images, ceil_div(images, some)):
        size = end - first
        if size not in made:
            made[size] = make(_Part(size, _cut(rows, heights)))
        steps.append((slice(first, end), *made[size]))
    return steps


def _tiles(geo: Geometry) -> Pair:
    """Rows of tiles, and how many a row has: the last one of each has no results."""
    return ceil_div(geo.out[0], 2), ceil_div(geo.out[1], 2) + 1


def _inputs(geo: Geometry) -> Planes:
    rows, width = _tiles(geo)
    return Planes(rows + 1, width, geo.padding, (2, 2))


def _factor(
    dialect: Dialect, name: str, like, kind: str, planes: Planes, grid: Pair, rows: Pair, *step: int
):
    """The function from planes to a factor of the products, (16, channels, tiles), by the kernel
    `kind`. grid: channels and images. rows: the first row of tiles and the end. step: how far rows
    are apart, if the kernel asks for it."""
    own, (first, end) = dialect.conv_winograd, rows
    count = (end - first) * planes.width
    kernel = getattr(own, kind)(dialect.common.scalar_type(like.dtype))
    run = launcher(name, kind, kernel, (ceil_div(count, own.BLOCK), *grid), own.BLOCK)
    sizes = planes.rows * planes.width, *step, first * planes.width, count

    def factor(flat):
        made = empty((16, grid[0], grid[1] * count), like.dtype, flat)
        run(flat, made, *sizes)
        return made

    return factor


def _convolution(dialect: Dialect, name: str, geo: Geometry, like, turned: bool, has_bias: bool):
    """The function (w, x, bias) -> y; of `geo`, whose weights are `turned` where it is that of
    backward-data."""
    (images, read), written, dtype = geo.x_shape[:2], geo.w_shape[0], like.dtype
    own, acc_t = dialect.conv_winograd, dialect.common.scalar_type(dtype)
    shape, planes = (images, written, *geo.out), _inputs(geo)
    grid = ceil_div(read, own.BLOCK), written
    of_weights = launcher(name, "weights", own.weights(acc_t, turned), grid, own.BLOCK)

    def make(part: _Part) -> tuple:
        pad = planes.launch(dialect, name, like, part.images * read, 1)
        return pad, [one(part.images, rows) for rows in part.rows]

    def one(images: int, rows: Pair):
        (first, end), grid = rows, (read, images)
        inputs = _factor(dialect, name, like, "inputs", planes, grid, rows, planes.width)
        count = (end - first) * planes.width
        size = 1 << (count - 1).bit_length()  # a power of two: few of them are compiled
        kernel = own.outputs(acc_t, has_bias, size)
        outputs = launcher(name, "winograd", kernel, (written, images), own.BLOCK)

        def results(u, flat, bias, y) -> None:
            outputs(matmul(dialect, u, inputs(flat)), bias, y, planes.width, 2 * first, count)

        return results

    steps = _in_parts(geo, like, 1, make)

    def convolved(w, x, bias):
        u, y = empty((16, written, read), dtype, x), empty(shape, dtype, x)
        of_weights(w.reshape(*w.shape[:2], 9), u)
        for some, pad, parts in steps:
            flat = pad(x[some])
            for results in parts:
                results(u, flat, bias, y[some])
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
        padding=tuple(2 - padding for padding in geo.padding),
    )
    convolved = _convolution(dialect, name, turned, like, True, False)
    no_bias = empty((1,), like.dtype, like)
    return lambda g, w: convolved(w, g, no_bias)


def backward_weight(dialect: Dialect, name: str, geo: Geometry, like):
    """The function (g, x) -> dw: a sum over the tiles for each of the 16 products."""
    own, (read, written) = dialect.conv_winograd, geo.channels
    of_x, (rows, width) = _inputs(geo), _tiles(geo)
    of_g = Planes(rows, width, (0, 0), (2, 2))
    kernel = own.filters(dialect.common.scalar_type(like.dtype))
    filters = launcher(name, "winograd", kernel, (ceil_div(read, own.BLOCK), written), own.BLOCK)

    def make(part: _Part) -> tuple:
        given, n = (dialect, name, like), part.images
        pads = [
            planes.launch(*given, n * channels, 1)
            for planes, channels in ((of_g, written), (of_x, read))
        ]
        factors = [
            (
                _factor(*given, "gradients", of_g, (written, n), some),
                _factor(*given, "inputs", of_x, (read, n), some, width),
            )
            for some in part.rows
        ]
        return *pads, factors

    steps = _in_parts(geo, like, MORE, make)

    def weight(g, x):
        total = None
        for some, pad_g, pad_x, factors in steps:
            planes_g, planes_x = pad_g(g[some]), pad_x(x[some])
            for gradients, inputs in factors:
                product = matmul(dialect, gradients(planes_g), inputs(planes_x).swapaxes(1, 2))
                if total is None:
                    total = product
                else:
                    pointwise(dialect, TABLE["add"], total, product, out=total)
        dw = empty((written, read, 9), like.dtype, x)
        filters(total, dw)
        return dw.reshape(geo.w_shape)

    return weight
