"""The kernels of conv_async.cu, and their tiles."""

from __future__ import annotations

from kernels.cuda_c.common import Kernel, as_passed, family
from kernels.cuda_c.conv_mma import planes_of
from kernels.launchers.common import Pair, ceil_div

_kernel = family("conv_async.cu")

VERSION = "double_buffer"
PACK = 4
TERMS = 16  # of a step
RESULTS = (8, 8)  # rows and columns of a thread
STAGES = 2
COLUMNS = (128, 64)  # of a tile: those with the fewest outside, the first of equals


def tiling(rows: int, columns: int, groups: int) -> tuple[Pair, Pair]:
    """(rows and columns of a tile, blocks along x and y) for rows x columns results: so many
    columns that the fewest lie outside."""
    height = 64 if rows > 32 else 32
    width = min(COLUMNS, key=lambda one: ceil_div(columns, one) * one)
    return (height, width), (ceil_div(columns, width), ceil_div(rows, height))


def threads(tile: Pair) -> int:
    return tile[0] // RESULTS[0] * (tile[1] // RESULTS[1])


def resident(tile: Pair) -> int:
    """Blocks of a multiprocessor: 168 registers per thread."""
    return 384 // threads(tile)


def channels_last() -> Kernel:
    """As of conv_mma."""
    return _kernel("channels_last", (0,), (), planes_of)


def product(tile: Pair, a_across: bool, b_across: bool, has_bias: bool) -> Kernel:
    """As of conv_mma. In blocks of one or two warps, whose threads copy more, a thread that stores
    both operands down a tile has 255 registers."""
    few = threads(tile) < 128 and not (a_across or b_across)
    blocks = 256 // threads(tile) if few else resident(tile)
    shape = (*tile, *RESULTS, TERMS, STAGES, blocks)
    return _kernel("conv_async", (), ("float", a_across, b_across, has_bias, *shape), as_passed)
