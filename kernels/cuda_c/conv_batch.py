"""The kernel of conv_batch.cu, and its tile."""

from __future__ import annotations

from collections.abc import Sequence

from kernels.cuda_c.common import Kernel, as_passed, family
from kernels.launchers.common import Pair

_kernel = family("conv_batch.cu")

ROWS = 64  # of a block
_COLUMNS = 64


def tiling(heights: Sequence[int], n: int, gpu: bool) -> tuple[Pair, Pair, tuple]:
    """(columns and rows of a tile, block, constants of the kernel), whatever pieces there are."""
    block = (16, 16) if gpu else (8, 4)
    tile = (*block, ROWS // block[1], _COLUMNS // block[0], 16)
    return (_COLUMNS, ROWS), block, tile


def batch_gemm(
    acc_t, bx: int, by: int, rm: int, rn: int, tk: int, has_bias: bool, adds: bool
) -> Kernel:
    """kernel(left, right, bias, out, rows, places, terms, right_terms, entries, groups, n,
    left_group, right_group, out_group, column, sign, shift)."""
    return _kernel("batch_gemm", (1, 3), (acc_t, bx, by, rm, rn, tk, has_bias, adds), as_passed)
