"""Convolution as one matrix product over the positions of all images, whose operands are found
through tables.

Element (i, k) of the left operand is left[rows[i] + terms[k]], element (k, j) of the right one
right[right_terms[k] + j], and the result (i, j) goes to out[places[i] + j * column]. So the left
operand is read where it lies, in any layout, and the result goes where it belongs, through a tile;
the right operand, whose columns are neighbours, is transposed. With other tables the same kernel
computes

    forward           i an output position of any image, k (channel, kh, kw); right w
    backward-data     i a position of x, k (output channel, kh, kw) of the taps that reach it;
                      left g, right w. With a stride s there are s * s kinds of positions, each
                      with taps of its own, and no zeros between
    backward-weight   i (channel, kh, kw), k an output position; left x, right g

So a product has pieces, rows that have the same terms; where only some windows read padding, they
can be pieces, too, and nothing is multiplied by zero (`launchers/conv_tables`). A table of entries
says which rows and terms the blocks of a blockIdx.z have.

Where windows are two strides wide, rows and terms may stand for pairs, which three products with
other operands compute (`launchers/conv_batch.Pairs`): the later ones add to what lies in `out`.

Small planes make no small products, since all images share one. On the CPU the inner loop is that
of matmul's `tiled`: a row of threads reads an element of the left operand together, and
neighbouring blocks share their tiles of the right one.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from kernels.launchers.common import Pair, ceil_div
from kernels.simt import cuda

TILE = 32


@functools.cache
def batch_gemm(acc_t, tile: int, has_bias: bool, adds: bool):
    """Block (tile, tile), one result per thread; blockIdx.z = (entry, group).

    left, right, out flat; rows and places (m,); terms and right_terms one for each term; entries
    (count, 6): the first row and the end, the first term and the end, the first column, and where
    results begin in out; n columns, `column` apart in out; the `_group`s are the distances between
    groups. adds: what lies in out plus `sign` times the product goes to the place `shift` from it.
    """

    @cuda.jit
    def conv2d_batch_gemm(
        left,
        right,
        bias,
        out,
        rows,
        places,
        terms,
        right_terms,
        entries,
        groups,
        n,
        left_group,
        right_group,
        out_group,
        column,
        sign,
        shift,
    ):
        left_tile = cuda.shared.array((tile, tile), acc_t)
        right_tile = cuda.shared.array((tile, tile), acc_t)
        result = cuda.shared.array((tile, tile), acc_t)
        tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
        entry, group = cuda.blockIdx.z // groups, cuda.blockIdx.z % groups
        start, m = entries[entry, 0], entries[entry, 1]
        first, end, side = entries[entry, 2], entries[entry, 3], entries[entry, 4]
        row0, col0 = start + cuda.blockIdx.y * tile, side + cuda.blockIdx.x * tile
        row, col = min(row0 + ty, m - 1), col0 + tx  # a row beyond them is not written
        left0, right0 = group * left_group, group * right_group
        to = entries[entry, 5] + group * out_group + col0 * column
        last = max(0, end - 1)  # what is read beyond it is not added up
        acc = acc_t(0)
        for k0 in range(first, end, tile):
            left_tile[ty, tx] = acc_t(left[left0 + rows[row] + terms[min(k0 + tx, last)]])
            right_tile[ty, tx] = acc_t(0)
            if col < n:
                right_tile[ty, tx] = acc_t(right[right0 + right_terms[min(k0 + ty, last)] + col])
            cuda.syncthreads()
            for kk in range(min(tile, end - k0)):
                value = left_tile[ty, kk]
                acc += value * right_tile[kk, tx]
            cuda.syncthreads()
        if has_bias and col < n:
            acc += acc_t(bias[group * n + col])
        result[ty, tx] = acc
        cuda.syncthreads()
        if row0 + tx < m and col0 + ty < n:
            at = to + places[row0 + tx] + ty * column
            if adds:
                out[at + shift] = out[at] + acc_t(sign) * result[tx, ty]
            else:
                out[at] = result[tx, ty]

    return conv2d_batch_gemm


ROWS = TILE  # of a block, at most


def tiling(heights: Sequence[int], n: int, gpu: bool) -> tuple[Pair, Pair, tuple]:
    """(columns and rows of a tile, block, constants of the kernel) for pieces of so many rows with
    n columns: tiles of half the size where those of TILE would compute an eighth more."""
    whole, half = (
        ceil_div(n, tile) * sum(ceil_div(m, tile) for m in heights) * tile * tile
        for tile in (TILE, TILE // 2)
    )
    tile = TILE if 8 * whole <= 9 * half else TILE // 2
    return (tile, tile), (tile, tile), (tile,)
