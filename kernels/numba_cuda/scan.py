"""Running sums (inclusive scans) along any axis.

n elements take n - 1 additions and 2 n elements of memory traffic; the parallel versions do more
additions, so that more threads work at once.

Versions, which differ in how a block scans a tile of 256 elements:
1. hillis_steele: log2(256) steps, in each of which every element adds the one `stride` before it
   (Hillis and Steele, 1986): short, but n log n additions
2. blelloch: a tree of sums upward and back down (Blelloch, 1990): 2 n additions, a barrier per step
3. shuffle: each warp scans in registers, then the first warp scans the warps' sums: two barriers

A block loops over the tiles of its segment of a row and carries the sum. Rows longer than one
segment take three launches: scan the segments, scan their sums, add those to the segments.
Along other axes than the last, neighbouring threads take neighbouring columns.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from kernels.launchers.scan import THREADS, accumulator
from kernels.numba_cuda.common import array, signature
from kernels.simt import cuda

WARPS = THREADS // 32
FULL = 0xFFFFFFFF


@functools.cache
def rows_kernel(version: str, dtype: np.dtype) -> Callable:
    """kernel(x, out, totals, length, segment, segments): a block per segment of a row.

    totals (rows, segments) receives each segment's sum.
    """
    A = accumulator(dtype).type

    def scan_hillis_steele(x, out, totals, length, segment, segments):
        tile = cuda.shared.array(THREADS, A)
        tid = cuda.threadIdx.x
        row = cuda.blockIdx.x // segments
        first = (cuda.blockIdx.x % segments) * segment
        last = min(first + segment, length)
        carry = A(0)
        for base in range(row * length + first, row * length + last, THREADS):
            i = base + tid
            value = A(x[i]) if i < row * length + last else A(0)
            tile[tid] = value
            cuda.syncthreads()
            stride = 1
            while stride < THREADS:
                before = tile[tid - stride] if tid >= stride else A(0)
                cuda.syncthreads()
                tile[tid] += before
                cuda.syncthreads()
                stride *= 2
            if i < row * length + last:
                out[i] = carry + tile[tid]
            carry += tile[THREADS - 1]
            cuda.syncthreads()
        if tid == 0:
            totals[cuda.blockIdx.x] = carry

    def scan_blelloch(x, out, totals, length, segment, segments):
        tile = cuda.shared.array(THREADS, A)
        tid = cuda.threadIdx.x
        row = cuda.blockIdx.x // segments
        first = (cuda.blockIdx.x % segments) * segment
        last = min(first + segment, length)
        carry = A(0)
        for base in range(row * length + first, row * length + last, THREADS):
            i = base + tid
            value = A(x[i]) if i < row * length + last else A(0)
            tile[tid] = value
            cuda.syncthreads()
            stride = 1
            while stride < THREADS:  # up: the right end of each pair receives the sum of the pair
                right = 2 * stride * (tid + 1) - 1
                if right < THREADS:
                    tile[right] += tile[right - stride]
                cuda.syncthreads()
                stride *= 2
            stride = THREADS // 4
            while stride > 0:  # down: each right end is added to the middle of the next pair
                middle = 2 * stride * (tid + 1) + stride - 1
                if middle < THREADS:
                    tile[middle] += tile[middle - stride]
                cuda.syncthreads()
                stride //= 2
            if i < row * length + last:
                out[i] = carry + tile[tid]
            carry += tile[THREADS - 1]
            cuda.syncthreads()
        if tid == 0:
            totals[cuda.blockIdx.x] = carry

    def scan_shuffle(x, out, totals, length, segment, segments):
        sums = cuda.shared.array(WARPS, A)
        tid = cuda.threadIdx.x
        lane, warp = tid % 32, tid // 32
        row = cuda.blockIdx.x // segments
        first = (cuda.blockIdx.x % segments) * segment
        last = min(first + segment, length)
        carry = A(0)
        for base in range(row * length + first, row * length + last, THREADS):
            i = base + tid
            value = A(x[i]) if i < row * length + last else A(0)
            stride = 1
            while stride < 32:
                before = cuda.shfl_up_sync(FULL, value, stride)
                if lane >= stride:
                    value += before
                stride *= 2
            if lane == 31:
                sums[warp] = value
            cuda.syncthreads()
            before = A(0)
            total = A(0)
            for w in range(WARPS):
                if w < warp:
                    before += sums[w]
                total += sums[w]
            if i < row * length + last:
                out[i] = carry + before + value
            carry += total
            cuda.syncthreads()
        if tid == 0:
            totals[cuda.blockIdx.x] = carry

    kernels = dict(hillis_steele=scan_hillis_steele, blelloch=scan_blelloch, shuffle=scan_shuffle)
    flat, sums = array(dtype), array(accumulator(dtype))
    return cuda.jit(signature(flat, flat, sums, *["int64"] * 3))(kernels[version])


@functools.cache
def offsets_kernel(dtype: np.dtype) -> Callable:
    """kernel(out, sums, length, segment, segments): add to each segment the sum of those before."""
    A = accumulator(dtype).type

    def add_offsets(out, sums, length, segment, segments):
        row = cuda.blockIdx.x // segments
        part = cuda.blockIdx.x % segments
        if part > 0:
            first = row * length + part * segment
            last = min(first + segment, (row + 1) * length)
            for i in range(first + cuda.threadIdx.x, last, THREADS):
                out[i] = A(out[i]) + sums[cuda.blockIdx.x - 1]

    flat, sums = array(dtype), array(accumulator(dtype))
    return cuda.jit(signature(flat, sums, *["int64"] * 3))(add_offsets)


@functools.cache
def columns_kernel(dtype: np.dtype, total: np.dtype) -> Callable:
    """kernel(x, out, length, inner) over (outer, length, inner): a thread per column, which adds in
    the dtype `total`."""
    A = total.type

    def scan_columns(x, out, length, inner):
        column = cuda.grid(1)
        if column < x.size // length:
            outer = column // inner
            start = outer * length * inner + column % inner
            total = A(0)
            for k in range(length):
                total += A(x[start + k * inner])
                out[start + k * inner] = total

    return cuda.jit(signature(array(dtype), array(dtype), "int64", "int64"))(scan_columns)
