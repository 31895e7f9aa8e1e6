"""Matrix multiplication: c[z] = a[z] @ b[z] + bias, for a (Z, M, K), b (Z, K, N).

2 Z M N K floating-point operations; at least Z (M K + K N + M N) elements moved. Each version
below does the same operations; what changes is how often an element is loaded, and from where.

1. naive          one thread per element; neighbours run down a column: a sector for every load
2. coalesced      neighbours run along a row: a warp's loads of b are one segment
3. tiled          a block copies tiles into shared memory: elements are loaded TILE times less
4. register_1d    a thread keeps a column of results: each shared load of b feeds RM multiplications
5. register_2d    a thread keeps a RM x RN tile: RM + RN shared loads feed RM * RN multiplications
6. warp_tile      the threads of a warp form a compact tile too: fewer distinct shared addresses
7. matvec         few columns or rows: a warp reads a row of a and a column of b, shuffles add up
8. matvec_split   few rows: warps of several blocks read parts of one, whose sums are added up
9. short          M < 128: tiled in blocks of 8 rows, so that few are empty; each loads 4 rows of b
10. thin          M <= 16: a block has all rows, so only a has a tile: b is read once anyway
11. narrow        few columns: tiled in blocks of 16 x 16, so that few are empty

register_2d serves GPUs, with tiles of 128 x 128. On the CPU, tiled is as fast as a BLAS: the
compiler keeps a thread's result in a register, runs rows of threads together and lets neighbouring
blocks share their tiles of b (`kernels.simt.transforms.block_interleave`). Small products of a
batch go by coalesced there, a block each. An operand that is transposed in memory is read in place:
`trans_a` and `trans_b` are constants of the kernel. float16 and bfloat16 are summed in float32.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np
from numpy import int64

from kernels.launchers.common import MAX_BLOCK, MAX_GRID_YZ, ceil_div
from kernels.numba_cuda.common import scalar_type
from kernels.simt import cuda
from kernels.support import processor

FULL_WARP = 0xFFFFFFFF


class Tile(NamedTuple):
    """A register tile: block (bx, by), rm x rn results per thread, tk columns of a per step.

    The block computes by * rm rows and bx * rn columns. `pad` widens the shared rows that are
    written down a column, to avoid bank conflicts.
    """

    bx: int
    by: int
    rm: int
    rn: int
    tk: int
    pad: int = 0


LARGE = Tile(16, 16, 8, 8, 16, pad=1)
SMALL = Tile(16, 16, 4, 4, 16, pad=1)


@functools.cache
def naive(acc_t, trans_a: bool, trans_b: bool, has_bias: bool):
    """threadIdx.x runs down a column of c: a warp touches 32 rows at once."""

    @cuda.jit
    def matmul_naive(a, b, bias, c):
        row, col = cuda.grid(2)
        z = cuda.blockIdx.z
        if row < c.shape[1] and col < c.shape[2]:
            za = z if a.shape[0] > 1 else 0
            zb = z if b.shape[0] > 1 else 0
            acc = acc_t(bias[col]) if has_bias else acc_t(0)
            for k in range(a.shape[1] if trans_a else a.shape[2]):
                av = acc_t(a[za, k, row] if trans_a else a[za, row, k])
                bv = acc_t(b[zb, col, k] if trans_b else b[zb, k, col])
                acc += av * bv
            c[z, row, col] = acc

    return matmul_naive


@functools.cache
def coalesced(acc_t, trans_a: bool, trans_b: bool, has_bias: bool):
    """threadIdx.x runs along a row of c: loads of b and stores of c are whole segments."""

    @cuda.jit
    def matmul_coalesced(a, b, bias, c):
        col, row = cuda.grid(2)
        z = cuda.blockIdx.z
        if row < c.shape[1] and col < c.shape[2]:
            za = z if a.shape[0] > 1 else 0
            zb = z if b.shape[0] > 1 else 0
            acc = acc_t(bias[col]) if has_bias else acc_t(0)
            for k in range(a.shape[1] if trans_a else a.shape[2]):
                av = acc_t(a[za, k, row] if trans_a else a[za, row, k])
                bv = acc_t(b[zb, col, k] if trans_b else b[zb, k, col])
                acc += av * bv
            c[z, row, col] = acc

    return matmul_coalesced


TILE, NARROW = 32, 16


@functools.cache
def tiled(acc_t, trans_a: bool, trans_b: bool, has_bias: bool, tile: int = TILE):
    """Block (tile, tile): the classic shared tile, one result per thread.

    A tile of a transposed `a` has the layout of `a`, so that the loads of a warp are contiguous.
    Beyond the last term a thread may load anything: no more terms are added than there are.
    """

    @cuda.jit
    def matmul_tiled(a, b, bias, c):
        a_tile = cuda.shared.array((tile, tile), acc_t)
        b_tile = cuda.shared.array((tile, tile), acc_t)
        tx, ty, z = cuda.threadIdx.x, cuda.threadIdx.y, cuda.blockIdx.z
        row0 = cuda.blockIdx.y * tile
        row, col = row0 + ty, cuda.blockIdx.x * tile + tx
        m, n = c.shape[1], c.shape[2]
        k = a.shape[1] if trans_a else a.shape[2]
        za = z if a.shape[0] > 1 else 0
        zb = z if b.shape[0] > 1 else 0
        last = max(0, k - 1)
        acc = acc_t(0)
        for k0 in range(0, k, tile):
            a_tile[ty, tx] = acc_t(0)
            b_tile[ty, tx] = acc_t(0)
            if trans_a:
                if row0 + tx < m:
                    a_tile[ty, tx] = acc_t(a[za, min(k0 + ty, last), row0 + tx])
            elif row < m:
                a_tile[ty, tx] = acc_t(a[za, row, min(k0 + tx, last)])
            if trans_b:
                if k0 + ty < k and col < n:
                    b_tile[ty, tx] = acc_t(b[zb, col, k0 + ty])
            elif col < n:
                b_tile[ty, tx] = acc_t(b[zb, min(k0 + ty, last), col])
            cuda.syncthreads()
            for kk in range(min(tile, k - k0)):
                av = a_tile[kk, ty] if trans_a else a_tile[ty, kk]
                acc += av * b_tile[kk, tx]
            cuda.syncthreads()
        if row < m and col < n:
            c[z, row, col] = acc + acc_t(bias[col]) if has_bias else acc

    return matmul_tiled


ROWS_1D = 8
TILE_1D = 32


SHORT = 8  # rows of a block


@functools.cache
def short(acc_t, trans_a: bool, trans_b: bool, has_bias: bool):
    """Block (TILE, SHORT): as `tiled`, with a tile of b that is higher than the block."""

    @cuda.jit
    def matmul_short(a, b, bias, c):
        a_tile = cuda.shared.array((TILE, SHORT) if trans_a else (SHORT, TILE), acc_t)
        b_tile = cuda.shared.array((TILE, TILE), acc_t)
        tx, ty, z = cuda.threadIdx.x, cuda.threadIdx.y, cuda.blockIdx.z
        row0 = cuda.blockIdx.y * SHORT
        row, col = row0 + ty, cuda.blockIdx.x * TILE + tx
        m, n = c.shape[1], c.shape[2]
        k = a.shape[1] if trans_a else a.shape[2]
        za = z if a.shape[0] > 1 else 0
        zb = z if b.shape[0] > 1 else 0
        last = max(0, k - 1)
        acc = acc_t(0)
        for k0 in range(0, k, TILE):
            if not trans_a:
                a_tile[ty, tx] = acc_t(0)
                if row < m:
                    a_tile[ty, tx] = acc_t(a[za, row, min(k0 + tx, last)])
            for r in range(0, TILE, SHORT):
                at = k0 + ty + r
                if trans_a and tx < SHORT:
                    a_tile[ty + r, tx] = acc_t(0)
                    if row0 + tx < m:
                        a_tile[ty + r, tx] = acc_t(a[za, min(at, last), row0 + tx])
                b_tile[ty + r, tx] = acc_t(0)
                if trans_b:
                    if at < k and col < n:
                        b_tile[ty + r, tx] = acc_t(b[zb, col, at])
                elif col < n:
                    b_tile[ty + r, tx] = acc_t(b[zb, min(at, last), col])
            cuda.syncthreads()
            for kk in range(min(TILE, k - k0)):
                av = a_tile[kk, ty] if trans_a else a_tile[ty, kk]
                acc += av * b_tile[kk, tx]
            cuda.syncthreads()
        if row < m and col < n:
            c[z, row, col] = acc + acc_t(bias[col]) if has_bias else acc

    return matmul_short


THIN = 16  # rows of a block, at most
THIN_STEP = 16  # columns of a in the tile
ALIASED = 1024  # columns after which the rows of b lie in the same lines of a cache
ALIASED_BYTES = 4 * ALIASED


@functools.cache
def thin(acc_t, trans_a: bool, trans_b: bool, has_bias: bool):
    """Block (columns, rows): a thread reads its column of b where it lies, a row of which the
    blocks beside each other read together."""

    @cuda.jit
    def matmul_thin(a, b, bias, c):
        a_tile = cuda.shared.array((THIN, THIN_STEP), acc_t)
        tx, ty, z = cuda.threadIdx.x, cuda.threadIdx.y, cuda.blockIdx.z
        col, row = cuda.grid(2)
        m, n = c.shape[1], c.shape[2]
        k = a.shape[1] if trans_a else a.shape[2]
        za = z if a.shape[0] > 1 else 0
        zb = z if b.shape[0] > 1 else 0
        acc = acc_t(0)
        for k0 in range(0, k, THIN_STEP):
            if tx < THIN_STEP:
                a_tile[ty, tx] = acc_t(0)
                if row < m and k0 + tx < k:
                    a_tile[ty, tx] = acc_t(a[za, k0 + tx, row] if trans_a else a[za, row, k0 + tx])
            cuda.syncthreads()
            if row < m and col < n:
                for kk in range(min(THIN_STEP, k - k0)):
                    bv = acc_t(b[zb, col, k0 + kk] if trans_b else b[zb, k0 + kk, col])
                    acc += a_tile[ty, kk] * bv
            cuda.syncthreads()
        if row < m and col < n:
            c[z, row, col] = acc + acc_t(bias[col]) if has_bias else acc

    return matmul_thin


@functools.cache
def register_1d(acc_t, trans_a: bool, trans_b: bool, has_bias: bool):
    """Block (32, 4) computes 32 x 32: a thread keeps ROWS_1D results of one column."""
    by = TILE_1D // ROWS_1D

    @cuda.jit
    def matmul_register_1d(a, b, bias, c):
        a_tile = cuda.shared.array((TILE_1D, TILE_1D), acc_t)
        b_tile = cuda.shared.array((TILE_1D, TILE_1D), acc_t)
        acc = cuda.local.array(ROWS_1D, acc_t)
        tx, ty, z = cuda.threadIdx.x, cuda.threadIdx.y, cuda.blockIdx.z
        row0 = cuda.blockIdx.y * TILE_1D
        col = cuda.blockIdx.x * TILE_1D + tx
        m, n = c.shape[1], c.shape[2]
        k = a.shape[1] if trans_a else a.shape[2]
        za = z if a.shape[0] > 1 else 0
        zb = z if b.shape[0] > 1 else 0
        for i in range(ROWS_1D):
            acc[i] = acc_t(0)
        for k0 in range(0, k, TILE_1D):
            for i in range(ROWS_1D):
                r = i * by + ty
                a_tile[r, tx] = acc_t(0)
                b_tile[r, tx] = acc_t(0)
                if row0 + r < m and k0 + tx < k:
                    a_tile[r, tx] = acc_t(
                        a[za, k0 + tx, row0 + r] if trans_a else a[za, row0 + r, k0 + tx]
                    )
                if k0 + r < k and col < n:
                    b_tile[r, tx] = acc_t(b[zb, col, k0 + r] if trans_b else b[zb, k0 + r, col])
            cuda.syncthreads()
            for kk in range(TILE_1D):
                bv = b_tile[kk, tx]
                for i in range(ROWS_1D):
                    acc[i] += a_tile[i * by + ty, kk] * bv
            cuda.syncthreads()
        for i in range(ROWS_1D):
            row = row0 + i * by + ty
            if row < m and col < n:
                c[z, row, col] = acc[i] + acc_t(bias[col]) if has_bias else acc[i]

    return matmul_register_1d


@functools.cache
def register_2d(acc_t, tile: Tile, trans_a: bool, trans_b: bool, has_bias: bool):
    """A thread keeps rm x rn results, `by` rows and `bx` columns apart (no bank conflicts).

    A shared tile is filled along the axis that is contiguous in memory, whichever that is.
    """
    bx, by, rm, rn, tk, pad = tile
    tm, tn = by * rm, bx * rn
    a_shape = (tk, tm) if trans_a else (tm, tk)
    b_shape = (tk, tn + pad) if trans_b else (tk, tn)
    k_by_x, k_by_y, m_by_x, n_by_y = tk // bx, tk // by, tm // bx, tn // by

    @cuda.jit
    def matmul_register_2d(a, b, bias, c):
        a_tile = cuda.shared.array(a_shape, acc_t)
        b_tile = cuda.shared.array(b_shape, acc_t)
        acc = cuda.local.array((rm, rn), acc_t)
        tx, ty, z = cuda.threadIdx.x, cuda.threadIdx.y, cuda.blockIdx.z
        row0 = cuda.blockIdx.y * tm
        col0 = cuda.blockIdx.x * tn
        m, n = c.shape[1], c.shape[2]
        k = a.shape[1] if trans_a else a.shape[2]
        za = z if a.shape[0] > 1 else 0
        zb = z if b.shape[0] > 1 else 0
        for i in range(rm):
            for j in range(rn):
                acc[i, j] = acc_t(0)
        for k0 in range(0, k, tk):
            if trans_a:
                for i in range(k_by_y):
                    for j in range(m_by_x):
                        kk = i * by + ty
                        r = j * bx + tx
                        inside = k0 + kk < k and row0 + r < m
                        a_tile[kk, r] = acc_t(a[za, k0 + kk, row0 + r]) if inside else acc_t(0)
            else:
                for i in range(rm):
                    for j in range(k_by_x):
                        r = i * by + ty
                        kk = j * bx + tx
                        inside = row0 + r < m and k0 + kk < k
                        a_tile[r, kk] = acc_t(a[za, row0 + r, k0 + kk]) if inside else acc_t(0)
            if trans_b:
                for i in range(n_by_y):
                    for j in range(k_by_x):
                        q = i * by + ty
                        kk = j * bx + tx
                        inside = col0 + q < n and k0 + kk < k
                        b_tile[kk, q] = acc_t(b[zb, col0 + q, k0 + kk]) if inside else acc_t(0)
            else:
                for i in range(k_by_y):
                    for j in range(rn):
                        kk = i * by + ty
                        q = j * bx + tx
                        inside = k0 + kk < k and col0 + q < n
                        b_tile[kk, q] = acc_t(b[zb, k0 + kk, col0 + q]) if inside else acc_t(0)
            cuda.syncthreads()
            for kk in range(tk):
                for i in range(rm):
                    r = i * by + ty
                    av = a_tile[kk, r] if trans_a else a_tile[r, kk]
                    for j in range(rn):
                        acc[i, j] += av * b_tile[kk, j * bx + tx]
            cuda.syncthreads()
        for i in range(rm):
            row = row0 + i * by + ty
            for j in range(rn):
                col = col0 + j * bx + tx
                if row < m and col < n:
                    c[z, row, col] = acc[i, j] + acc_t(bias[col]) if has_bias else acc[i, j]

    return matmul_register_2d


WARP_BLOCK = 128  # 4 warps, 2 x 2, each of 32 x 64 results: lanes 4 x 8, 8 x 8 per thread
WARP_M, WARP_N, WARP_K = 64, 128, 16


@functools.cache
def warp_tile(acc_t, trans_a: bool, trans_b: bool, has_bias: bool):
    """Block 128 computes 64 x 128: a warp's 32 x 64 tile needs only 4 + 8 distinct addresses."""
    a_steps = WARP_M * WARP_K // WARP_BLOCK
    b_steps = WARP_N * WARP_K // WARP_BLOCK

    @cuda.jit
    def matmul_warp_tile(a, b, bias, c):
        a_tile = cuda.shared.array((WARP_K, WARP_M), acc_t)
        b_tile = cuda.shared.array((WARP_K, WARP_N), acc_t)
        acc = cuda.local.array((8, 8), acc_t)
        t, z = cuda.threadIdx.x, cuda.blockIdx.z
        warp, lane = t // 32, t % 32
        row_in = (warp // 2) * 32 + lane // 8
        col_in = (warp % 2) * 64 + lane % 8
        row0 = cuda.blockIdx.y * WARP_M
        col0 = cuda.blockIdx.x * WARP_N
        m, n = c.shape[1], c.shape[2]
        k = a.shape[1] if trans_a else a.shape[2]
        za = z if a.shape[0] > 1 else 0
        zb = z if b.shape[0] > 1 else 0
        for i in range(8):
            for j in range(8):
                acc[i, j] = acc_t(0)
        for k0 in range(0, k, WARP_K):
            for s in range(a_steps):
                e = s * WARP_BLOCK + t
                kk, r = (e // WARP_M, e % WARP_M) if trans_a else (e % WARP_K, e // WARP_K)
                v = acc_t(0)
                if row0 + r < m and k0 + kk < k:
                    v = acc_t(a[za, k0 + kk, row0 + r] if trans_a else a[za, row0 + r, k0 + kk])
                a_tile[kk, r] = v
            for s in range(b_steps):
                e = s * WARP_BLOCK + t
                kk, q = (e % WARP_K, e // WARP_K) if trans_b else (e // WARP_N, e % WARP_N)
                v = acc_t(0)
                if k0 + kk < k and col0 + q < n:
                    v = acc_t(b[zb, col0 + q, k0 + kk] if trans_b else b[zb, k0 + kk, col0 + q])
                b_tile[kk, q] = v
            cuda.syncthreads()
            for kk in range(WARP_K):
                for i in range(8):
                    av = a_tile[kk, row_in + 4 * i]
                    for j in range(8):
                        acc[i, j] += av * b_tile[kk, col_in + 8 * j]
            cuda.syncthreads()
        for i in range(8):
            row = row0 + row_in + 4 * i
            for j in range(8):
                col = col0 + col_in + 8 * j
                if row < m and col < n:
                    c[z, row, col] = acc[i, j] + acc_t(bias[col]) if has_bias else acc[i, j]

    return matmul_warp_tile


@functools.cache
def matvec(acc_t, trans_a: bool, trans_b: bool, has_bias: bool):
    """Block (32, 4), a column for each y of the grid: a warp reads along a row of a, then sums by
    shuffles."""

    @cuda.jit
    def matmul_matvec(a, b, bias, c):
        lane, col, z = cuda.threadIdx.x, cuda.blockIdx.y, cuda.blockIdx.z
        row = cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y
        za = z if a.shape[0] > 1 else 0
        zb = z if b.shape[0] > 1 else 0
        k = a.shape[1] if trans_a else a.shape[2]
        last = k if row < c.shape[1] else 0  # no elements beyond the last row, and no branch
        acc = acc_t(0)
        for i in range(lane, last, 32):
            av = acc_t(a[za, i, row] if trans_a else a[za, row, i])
            acc += av * acc_t(b[zb, col, i] if trans_b else b[zb, i, col])
        acc += cuda.shfl_down_sync(FULL_WARP, acc, 16)
        acc += cuda.shfl_down_sync(FULL_WARP, acc, 8)
        acc += cuda.shfl_down_sync(FULL_WARP, acc, 4)
        acc += cuda.shfl_down_sync(FULL_WARP, acc, 2)
        acc += cuda.shfl_down_sync(FULL_WARP, acc, 1)
        if lane == 0 and row < c.shape[1]:
            c[z, row, col] = acc + acc_t(bias[col]) if has_bias else acc

    return matmul_matvec


@functools.cache
def matvec_split(acc_t, trans_a: bool, trans_b: bool, has_bias: bool):
    """Block (32, warps), grid (tiles of M, 1, parts): c (parts, M), each over `span` of K."""

    @cuda.jit
    def matmul_matvec_split(a, b, c, span):
        part = cuda.blockIdx.z
        row = cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y
        if row >= c.shape[1]:
            return
        k = a.shape[1] if trans_a else a.shape[2]
        last = min((part + 1) * span, k)
        acc = acc_t(0)
        for i in range(part * span + cuda.threadIdx.x, last, 32):
            av = acc_t(a[0, i, row] if trans_a else a[0, row, i])
            acc += av * acc_t(b[0, 0, i] if trans_b else b[0, i, 0])
        for step in (16, 8, 4, 2, 1):
            acc += cuda.shfl_down_sync(FULL_WARP, acc, step)
        if cuda.threadIdx.x == 0:
            c[part, row] = acc

    return matmul_matvec_split


def accumulator(dtype: np.dtype):
    """The type in which products are summed: float32 for 16-bit floats, int64 for integers."""
    return int64 if dtype.kind in "iu" else scalar_type(dtype)


def for_parts(version: str, dtype: np.dtype) -> str | None:
    """The version that computes parts of the sums of one; None where there is none."""
    return version if version in ("coalesced", "register_2d", "warp_tile") else None


def check(version: str, product) -> None:
    """All versions accept all products."""


def _fits_short(product) -> bool:
    """Whether tiles of 8 rows take less time on a CPU than those of 32, many of which may be
    empty. (Measured with AVX2, up to 128 rows.)"""
    m, n = product.m, product.n
    has_masks = processor.vector_registers().have_masks
    if not has_masks and not product.trans_b and n % TILE and n < 8 * TILE:
        return False  # it fills a part of a tile slowly, and more often
    if m <= 3 * SHORT:
        return True
    if product.trans_a or n < TILE or m >= 4 * TILE:
        return False
    high, low = ceil_div(m, TILE) * TILE, ceil_div(m, SHORT) * SHORT
    return m <= TILE or 10 * high >= 11 * low


LEAST_FOR_NARROW = 1 << 13  # elements of a: less does not pay for one more kernel to compile


def _fits_narrow(product) -> bool:
    """Whether tiles of 16 columns take less time on a CPU than those of 32, the last of which would
    be half empty. (Measured with AVX2 and AVX-512.)"""
    m, n, k = product.m, product.n, product.k
    if product.batch * m * k < LEAST_FOR_NARROW:
        return False
    if n <= NARROW:
        return m > SHORT + 2
    row = product.dtype.itemsize * (m if product.trans_a else k)
    if ceil_div(n, NARROW) % 2 == 0 or row % ALIASED_BYTES == 0:
        return False
    if processor.vector_registers().have_masks:
        return n <= 11 * NARROW
    return n <= 7 * NARROW and m >= TILE and k >= TILE and n % NARROW == 0


def _thin_block(m: int, n: int) -> tuple[int, int]:
    """Columns and rows of a block of `thin`; a CPU goes through 64 columns together."""
    rows = min(1 << (m - 1).bit_length(), THIN)
    columns = max(THIN_STEP, 1 << (n - 1).bit_length()) if n <= 64 else 256
    return min(columns, 1024 // rows), rows


def _fits_thin(product) -> bool:
    """Whether a CPU is faster without a tile of b. In blocks that are not full, rows do not go
    together. (Measured with AVX2 and AVX-512.)"""
    m, n = product.m, product.n
    if product.trans_b or min(m, n) > THIN or (m > THIN and product.k < 4):
        return False
    columns, _ = _thin_block(m, n)
    has_masks = processor.vector_registers().have_masks
    if not has_masks and m > 4 and product.k >= THIN_STEP and n % ALIASED == 0:
        return False  # with few registers it reads b again and again, in one place of the cache
    few = 2 if has_masks else 8  # for which that matters little
    return m <= few or 4 * (n % columns) <= n or (m <= 4 and n >= 64)


def _fits_matvec(product) -> bool:
    """Whether few rows, and columns that lie as rows do, are faster without tiles: long ones.
    (Measured with AVX2 and AVX-512.)"""
    few = 2 if processor.vector_registers().have_masks else 4
    along = product.trans_b and not product.trans_a
    return along and product.m <= few and product.k >= 256 and product.n <= MAX_GRID_YZ


MANY = 16  # products of a batch, for which a kernel for their size pays
SIZES = (1, 2, 3, 4, 8, 16, 32)  # of these: each is compiled anew, and lengths of texts differ
MOST_REREAD = 1 << 17  # elements of a that stay in the cache while each column reads them again


def _for_few_columns(product) -> str:
    """The fastest version on a CPU where n < 8. (Measured with AVX2 and AVX-512.)"""
    _, m, n, k, trans_a, trans_b, *_ = product
    if trans_a and m >= 8 and m * k <= MOST_REREAD:
        return "naive"  # whose threads go down a column, as a lies
    if n == 1:
        return "matvec" if product.has_long_sums or m < TILE else "naive"
    along = trans_b and not trans_a  # rows and columns lie along k
    if m <= 2 and k >= TILE:
        return "matvec"
    many = 2 * TILE if m <= 2 * TILE else 4 * TILE  # terms from which it is faster for all n
    if along and (m < TILE or k >= many or (n <= 3 and k >= TILE)):
        return "matvec"
    if m <= 4:
        return "thin"
    return "narrow" if _fits_narrow(product) else "short" if m <= 2 * TILE else "tiled"


def _fills_block(batch: int, m: int, n: int) -> bool:
    """Whether a kernel for just this size pays on a CPU: a block for each of many results, whose
    loops over threads have no guards."""
    return batch >= MANY and m in SIZES and n in SIZES and m * n <= MAX_BLOCK


def _is_small(product) -> bool:
    """Whether one of many products is faster in a block of its own than in tiles. (Measured with
    AVX2 and AVX-512.)"""
    _, m, n, k, _, trans_b, *_ = product
    if not _fills_block(product.batch, m, n):
        return False
    wide = m >= TILE or (m == n == NARROW and _fits_narrow(product))
    if trans_b and ((wide and k >= TILE) or (n < 8 and product.has_long_sums)):
        return False  # where b is copied for it
    return n % 8 == 0 or (k <= 16 and not 8 < n < 16)


def pick(product) -> str:
    """The version that ships for a `kernels.launchers.matmul.Product`."""
    m, n, k = product.m, product.n, product.k
    if product.cc is None:
        if _is_small(product):
            return "coalesced"
        if n < 8:
            return _for_few_columns(product)
        narrow = _fits_narrow(product)
        has_masks = processor.vector_registers().have_masks
        if product.trans_a and m >= 16 and m * n <= 256 and not (narrow and has_masks):
            return "naive"
        if _fits_matvec(product):
            return "matvec"
        if n <= NARROW and narrow:
            return "narrow"
        if _fits_thin(product):
            return "thin"
        if _fits_short(product):
            return "short"
        return "narrow" if narrow else "tiled"
    if n == 1 and product.has_long_sums:
        return "matvec"
    return "coalesced" if m * n < 256 or k < 4 or n < 4 else "register_2d"


def configure(version: str, acc_t, flags, z: int, m: int, n: int, gpu: bool):
    """Kernel, grid and block of a version."""
    if version == "naive":
        rows, columns = (256, 1) if n == 1 and not gpu else (16, 16)
        grid = (ceil_div(m, rows), ceil_div(n, columns), z)
        return naive(acc_t, *flags), grid, (rows, columns)
    if version == "coalesced":
        if not gpu and _fills_block(z, m, n):
            return coalesced(acc_t, *flags), (1, 1, z), (n, m)
        return coalesced(acc_t, *flags), (ceil_div(n, 32), ceil_div(m, 8), z), (32, 8)
    if version == "tiled":
        return tiled(acc_t, *flags), (ceil_div(n, TILE), ceil_div(m, TILE), z), (TILE, TILE)
    if version == "narrow":
        grid = (ceil_div(n, NARROW), ceil_div(m, NARROW), z)
        return tiled(acc_t, *flags, NARROW), grid, (NARROW, NARROW)
    if version == "short":
        return short(acc_t, *flags), (ceil_div(n, TILE), ceil_div(m, SHORT), z), (TILE, SHORT)
    if version == "thin":
        columns, rows = _thin_block(m, n)
        grid = (ceil_div(n, columns), ceil_div(m, rows), z)
        return thin(acc_t, *flags), grid, (columns, rows)
    if version == "register_1d":
        grid = (ceil_div(n, TILE_1D), ceil_div(m, TILE_1D), z)
        return register_1d(acc_t, *flags), grid, (TILE_1D, TILE_1D // ROWS_1D)
    if version == "warp_tile":
        grid = (ceil_div(n, WARP_N), ceil_div(m, WARP_M), z)
        return warp_tile(acc_t, *flags), grid, WARP_BLOCK
    if version == "matvec":
        return matvec(acc_t, *flags), (ceil_div(m, 4), n, z), (32, 4)
    if version == "matvec_split":
        return matvec_split(acc_t, *flags), (ceil_div(m, 4), 1, z), (32, 4)
    tile = LARGE if gpu and m >= 512 and n >= 512 else SMALL
    grid = (ceil_div(n, tile.bx * tile.rn), ceil_div(m, tile.by * tile.rm), z)
    return register_2d(acc_t, tile, *flags), grid, (tile.bx, tile.by)
