"""The kernel of conv_batch.cu, and its tile."""

from __future__ import annotations

from kernels.cuda_c.common import Kernel, family
from kernels.launchers.common import Pair, ceil_div

_kernel = family("conv_batch.cu")

ROWS = 64  # of a block
_COLUMNS = 64


def tiling(m: int, n: int, gpu: bool) -> tuple[Pair, Pair, tuple]:
    """(blocks along x and y, block, constants of the kernel) for m x n results."""
    block = (16, 16) if gpu else (8, 4)
    tile = (*block, ROWS // block[1], _COLUMNS // block[0], 16)
    return (ceil_div(n, _COLUMNS), ceil_div(m, ROWS)), block, tile


def batch_gemm(
    acc_t, bx: int, by: int, rm: int, rn: int, tk: int, has_bias: bool, adds: bool
) -> Kernel:
    """kernel(left, right, bias, out, rows, places, terms, right_terms, span, groups, n, left_group,
    right_group, out_group, out_split, column, sign, shift)."""

    def arguments(left, right, bias, out, rows, places, terms, right_terms, *rest):
        tables = rows, places, terms, right_terms
        return left, right, bias, out, *tables, rows.size, terms.size, *rest

    return _kernel("batch_gemm", (1, 3), (acc_t, bx, by, rm, rn, tk, has_bias, adds), arguments)
