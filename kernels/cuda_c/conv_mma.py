"""The kernels of conv_mma.cu, and their tiles."""

from __future__ import annotations

from kernels.cuda_c.common import Kernel, as_passed, family
from kernels.launchers.common import Pair, ceil_div

_kernel = family("conv_mma.cu")

VERSION = "mma_sync"
PACK = 8
TERMS = 32  # of a step
EDGES = (64, 128)  # of the tiles, rows and columns alike


def tiling(rows: int, columns: int, groups: int) -> tuple[Pair, Pair]:
    """(rows and columns of a tile, blocks along x and y) for rows x columns results: large tiles
    where they make enough blocks for a GPU, as a guess."""
    small, large = EDGES
    blocks = ceil_div(rows, large) * ceil_div(columns, large) * groups
    edge = large if rows > small and blocks >= 132 else small
    return (edge, edge), (ceil_div(columns, edge), ceil_div(rows, edge))


def threads(tile: Pair) -> int:
    return 256 if tile[0] == 128 else 128


def resident(tile: Pair) -> int:
    """Blocks of a multiprocessor."""
    return 2


def channels_last() -> Kernel:
    """kernel(x, planes, lead_h, lead_w) for x (images, C, H, W), planes (images, rows, width, P)
    of P channels, filled up with zeros."""
    return _kernel("channels_last", (0,), (), planes_of)


def planes_of(x, planes, *lead):
    """The arguments of channels_last."""
    return x, planes, *x.shape[1:], *planes.shape[1:], *lead


def product(tile: Pair, a_across: bool, b_across: bool, has_bias: bool) -> Kernel:
    """kernel(a, b, bias, out, a_edge, a_terms, b_edge, b_terms, out_rows, out_cols, span, groups,
    m, a_group, b_group, out_group, out_split)."""
    warp = (64, 32) if tile[0] == 128 else (32, 32)
    constants = (a_across, b_across, has_bias, *tile, *warp)
    return _kernel("conv_mma", (0, 3), constants, as_passed)
