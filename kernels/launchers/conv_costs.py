"""Which version of a convolution takes least time on a CPU, in Numba's dialect, and which layout of
batch_gemm.

A cost is the time of one result, in terms of a sum that batch_gemm adds up in full tiles. The
constants were fitted with AVX2 and with AVX-512, one thread, on a Zen 4, those of `product` on a
Zen 5; `python -m benchmarks.convolutions --versions` shows where another version would be faster.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection

from kernels.launchers import conv_few, conv_product, conv_tiled
from kernels.launchers.common import Dialect, ceil_div, compute_dtype, on_gpu
from kernels.launchers.conv_planes import PART, Geometry, Windows
from kernels.launchers.conv_product import SECOND_LEVEL
from kernels.launchers.conv_tables import Layout, Problem, Tables
from kernels.support import processor

MOST_HALO = 768  # elements of x that `tiled` keeps at a time
INTERLEAVING = 40  # to bring the phases of a stride together
COPIED = 50  # an element of a window that is copied to a column
# ... whose gradient is added to the others of the element; a pixel, a tap that may reach it
FOLDED, FOLDED_PIXEL, FOLDED_TAP = 30, 1000, 150
BROUGHT_APART = 20  # a result, from the order of channels to that of images
TRANSPOSED = 30  # an element of the weights; from further away than the second level FAR_TRANSPOSED
FAR_TRANSPOSED = 120
# Of winograd: what a channel of a tile takes, and the results of one; planes of them.
WINDOW, SUMMED = 130, 150
READ_PLANE, WRITTEN_PLANE = 6000, 4000
# Of few_channels: a term, a result; an element of the halo, the weights of a term, in a block.
FEW_TERM, FEW_EACH, FEW_HALO, FEW_WEIGHTS = 0.9, 16, 5, 10
PARTS = 40  # launches of the parts
FILTER, FILTERED = 500, 1000  # a filter; more for the gradient of one
# The time of a layout, in multiply-adds:
LAUNCH = 125_000
PADDED = 16  # an element of padded planes
READ = 30  # a line of a cache, of the left operand; from further away than the second level FAR
FAR = 300
WRITTEN = 40  # a line of results
TILES = 8  # what tiles of the right operand cost, in rows


def _is_wide() -> bool:
    return processor.vector_registers().floats >= 16


def _waste(sizes: tuple[int, ...], tiles: tuple[int, ...]) -> float:
    """How many results tiles compute for each that there is."""
    full = [ceil_div(size, tile) * tile for size, tile in zip(sizes, tiles, strict=True)]
    return math.prod(full) / max(math.prod(sizes), 1)


def _batched(dialect: Dialect, rows: int, columns: int) -> float:
    """The waste of batch_gemm."""
    tile, _, _ = dialect.conv_batch.tiling([rows], columns, False)
    return _waste((columns, rows), tile)


def _tiled(windows: Windows) -> float:
    """The cost of `tiled`; infinite where its tiles are too large, or have gaps."""
    (read, written), out, spread = windows.channels, windows.out, windows.stride
    tile = conv_tiled.tile(out)
    halo = math.prod((tile[i] - 1) * spread[i] + windows.reach(i) + 1 for i in range(2))
    one_each = read == written == 1  # depthwise: a product would have one row
    if halo > MOST_HALO or not (one_each or spread == (1, 1)):
        return math.inf
    terms = read * math.prod(windows.kernel)
    waste = _waste((*out, written), (*tile, conv_tiled.tile_channels(written)))
    once = (1.05 if tile[1] > 8 else 1.3) if _is_wide() else 2.05
    return 0 if one_each else waste * (once * terms + 12)


def _few_channels(windows: Windows) -> float:
    """The cost of `few_channels`."""
    (read, written), tile, pixels = windows.channels, conv_few.tile(windows), math.prod(windows.out)
    terms = read * math.prod(windows.kernel)
    waste = _waste((*windows.out, written), (tile.height, tile.width, conv_few.CHANNELS))
    blocks = ceil_div(windows.out[0], tile.height) * ceil_div(windows.out[1], tile.width)
    loaded = FEW_HALO * tile.halo / written + FEW_WEIGHTS * terms
    return waste * (FEW_TERM * terms + FEW_EACH) + loaded * blocks / pixels


def _winograd(windows: Windows, rows: int) -> float:
    """The cost of `winograd`, of so many rows of results in all images."""
    (read, written), (height, width) = windows.channels, windows.out
    tiles = ceil_div(height, 2) * (ceil_div(width, 2) + 1)
    products = _waste((written,), (8,)) * 16 * (read + 6)
    made = (WINDOW + READ_PLANE / tiles) * read / written + SUMMED + WRITTEN_PLANE / tiles
    made *= 1 if _is_wide() else 1.5
    each = tiles / (height * width) * (products + made) + PARTS
    return each + FILTER * read / max(rows, 1)


def _folded(geo: Geometry) -> float:
    """The cost of dx by a product, the gradients of all windows, which are added up."""
    (images, channels, *size), outs, (height, width) = geo.x_shape, geo.w_shape[0], geo.w_shape[2:]
    positions, window = images * math.prod(geo.out), channels * height * width
    each = _waste((positions, window), (8, 32)) * (outs + 24) + FOLDED * max(1, 16 / channels)
    pixel = FOLDED_PIXEL + FOLDED_TAP * height * (1 + width / geo.stride[0])
    pixel *= ceil_div(channels, conv_product.LANES) / channels
    return each * math.prod(geo.out) * window / (channels * math.prod(size)) + pixel


def cheapest(
    dialect: Dialect, windows: Windows, geo: Geometry, columns: int, terms: int, is_small: bool,
    backward: bool, also: Collection[str],
) -> str:  # fmt: skip
    """For the output or dx (`backward`): so many columns of results a group, each of so many terms
    in all.

    The channels of `windows` are the columns, for each phase of a stride. is_small: none of the
    products pays. also: "product" and "winograd" where these take the convolution.
    """
    read, written = windows.channels
    computed, phases = read * math.prod(windows.kernel), written // max(columns, 1)
    tiled, more = _tiled(windows), INTERLEAVING if phases > 1 else 0
    if is_small and tiled == math.inf:
        return "direct"
    pixels, each = math.prod(windows.out), 32 if _is_wide() else 24
    images = geo.x_shape[0]
    rows = images * pixels
    costs = {
        "tiled": tiled + more,
        "batch_gemm": _batched(dialect, rows, columns) * (terms / max(phases, 1) + each),
        "implicit_gemm": _waste((written,), (8,)) * (1.45 * computed + 50) + more,
    }
    near = columns * terms <= SECOND_LEVEL
    transposed = (TRANSPOSED if near else FAR_TRANSPOSED) * terms / max(rows * phases, 1)
    if not backward:
        costs["implicit_gemm"] *= _waste((pixels,), (32,))
    for version in costs if backward else ("batch_gemm",):  # which need transposed weights
        costs[version] += transposed
    if "product" in also and backward:
        costs["product"] = _folded(geo)
    elif "product" in also:
        product = _waste((rows, columns), (32, 32)) * (terms + 24)
        apart = BROUGHT_APART if images > 1 else 0
        costs["product"] = product + COPIED * terms / max(columns, 1) + apart
    if "few_channels" in also:
        costs["few_channels"] = _few_channels(windows)
    if "winograd" in also:
        costs["winograd"] = _winograd(windows, rows)
    return min(costs, key=costs.__getitem__)


def cheapest_of_weights(
    dialect: Dialect, geo: Geometry, rows: int, columns: int, may_filter: bool
) -> str:
    """For the gradient of the weights: a cost of each term, of which there are many. may_filter:
    `winograd` takes the convolution."""
    once, more = (1.45, 12) if _is_wide() else (2.55, 25)
    batched = _batched(dialect, rows, columns) + 22 / max(rows, 1)
    costs = {"batch_gemm": batched, "implicit_gemm": once + more / max(rows, 1)}
    if may_filter:
        read, pixels = geo.channels[0], geo.x_shape[0] * math.prod(geo.out)
        forward = _winograd(geo.windows, pixels) + FILTERED * read / max(pixels, 1)
        costs["winograd"] = forward / (9 * read)
    return min(costs, key=costs.__getitem__)


def cheapest_layout(
    dialect: Dialect, problem: Problem, geo: Geometry, like, columns: int
) -> Layout:
    """For batch_gemm, with so many columns of results a group; on a GPU, where launches cost more,
    that of padded planes."""
    if on_gpu(like):
        return Layout((True, True))
    both = True, False
    layouts = [Layout(padded) for padded in itertools.product(both, both)]
    if compute_dtype(like.dtype) == like.dtype:
        layouts += [Layout((True, True), axis) for axis in (1, 0) if _shares(problem, geo, axis)]
    costs = {one: _of_layout(dialect, problem, one, columns, geo.groups) for one in layouts}
    return min(costs, key=costs.__getitem__)


def _shares(problem: Problem, geo: Geometry, axis: int) -> bool:
    """Whether windows share half of what they read with the next one, and every one has a pair."""
    reads = problem.reads[axis]
    outputs = reads.rows if problem.rows_are_outputs else reads.terms
    halves = geo.dilation[axis] == 1 and geo.w_shape[2 + axis] == 2 * geo.stride[axis]
    return halves and outputs % (2 * reads.step) == 0


def _of_layout(
    dialect: Dialect, problem: Problem, layout: Layout, columns: int, groups: int
) -> float:
    """How long a product takes in a layout, in multiply-adds."""
    tables = Tables(problem, layout)
    sizes = tables.sizes()
    tile, _, _ = dialect.conv_batch.tiling([size.rows for size in sizes], columns, False)
    planes, terms = problem.planes * tables.planes.channel, sum(size.terms for size in sizes)
    near = problem.planes * math.prod(reads.size for reads in problem.reads) <= SECOND_LEVEL
    once = (READ if near else FAR) * problem.planes * sum(size.read for size in sizes)
    once += PADDED * planes if tables.is_padded else 0
    times, each, floats = 1, 24, planes + terms * columns * groups
    if layout.paired is not None:
        # results are read and written again; sums and differences are taken
        times, each, once = 3, 43, once + 16 * floats + 2 * LAUNCH
    if not problem.rows_are_outputs:  # the images of a part are added up
        each *= ceil_div(floats if layout.paired is None else 2 * floats, PART)
    outer, together = problem.rows.outer, tables.together()
    added, heights = 0.0, set()
    for size in sizes:
        blocks = ceil_div(size.rows * together // max(outer, 1), tile[1])
        computed = blocks * tile[1] * ceil_div(outer, max(together, 1))
        added += computed * (size.terms + each + WRITTEN * size.written) + TILES * size.terms
        heights.add(blocks)
    width = ceil_div(columns, tile[0]) * tile[0] * groups
    return once + times * (added * width + len(heights) * LAUNCH)
