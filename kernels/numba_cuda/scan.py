"""Running sums (inclusive scans) along any axis.

n elements take n - 1 additions and 2 n elements of memory traffic; the parallel versions add more
often, to have more threads add at once.

Versions, which differ in how a block scans a tile of 256 elements:
1. hillis_steele: log2(256) steps, in each of which every element adds the one `stride` before it
   (Hillis and Steele, 1986): short, but n log n additions
2. blelloch: a tree of sums upward and back down (Blelloch, 1990): 2 n additions, a barrier a step
3. shuffle: each warp scans in registers, then the first warp scans the warps' sums: two barriers

A block walks its segment of a row tile by tile and carries the sum along. Rows longer than one
segment take three launches: scan the segments, scan their sums, add those to the segments.
Along other axes than the last, neighbouring threads take neighbouring columns and add downwards.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np
from numba import types
from numba.np.numpy_support import from_dtype

from kernels.numba_cuda.common import (
    ceil_div,
    check_version,
    compute_dtype,
    contiguous,
    empty,
    launcher,
    storage_type,
)
from kernels.numba_cuda.transpose import cast
from kernels.simt import cuda

VERSIONS = ("hillis_steele", "blelloch", "shuffle")
CATALOG = [
    ("cumsum", "hillis_steele", "every element adds the one `stride` before it, stride doubling"),
    ("cumsum", "blelloch", "sums up a tree and back down: work of order n"),
    ("cumsum", "shuffle", "warps scan in registers, one warp scans the warps' sums"),
    ("cumsum", "columns", "a thread per column, for an axis that is not the last"),
]

THREADS = 256
WARPS = THREADS // 32
SEGMENT = 16384
FULL = 0xFFFFFFFF


def _accumulator(dtype: np.dtype) -> np.dtype:
    return dtype if dtype.kind == "f" else np.dtype(np.int64)


@functools.cache
def _rows_kernel(version: str, dtype: np.dtype) -> Callable:
    """kernel(x, out, totals, length, segment, segments): a block per segment of a row.

    totals (rows, segments) receives each segment's sum.
    """
    A = from_dtype(_accumulator(dtype))

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
            while stride < THREADS:  # up: each pair's right end takes the pair's sum
                right = 2 * stride * (tid + 1) - 1
                if right < THREADS:
                    tile[right] += tile[right - stride]
                cuda.syncthreads()
                stride *= 2
            stride = THREADS // 4
            while stride > 0:  # down: right ends give their sum to the middle of the next pair
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
    flat, sums = types.Array(storage_type(dtype), 1, "C"), types.Array(A, 1, "C")
    return cuda.jit(types.void(flat, flat, sums, *[types.int64] * 3))(kernels[version])


@functools.cache
def _offsets_kernel(dtype: np.dtype) -> Callable:
    """kernel(out, sums, length, segment, segments): add to each segment the sum of those before."""
    A = from_dtype(_accumulator(dtype))

    def add_offsets(out, sums, length, segment, segments):
        row = cuda.blockIdx.x // segments
        part = cuda.blockIdx.x % segments
        if part > 0:
            first = row * length + part * segment
            last = min(first + segment, (row + 1) * length)
            for i in range(first + cuda.threadIdx.x, last, THREADS):
                out[i] = A(out[i]) + sums[cuda.blockIdx.x - 1]

    flat, sums = types.Array(storage_type(dtype), 1, "C"), types.Array(A, 1, "C")
    return cuda.jit(types.void(flat, sums, *[types.int64] * 3))(add_offsets)


@functools.cache
def _columns_kernel(dtype: np.dtype) -> Callable:
    """kernel(x, out, length, inner) over (outer, length, inner): a thread per column."""
    A = from_dtype(_accumulator(dtype))

    def scan_columns(x, out, length, inner):
        column = cuda.grid(1)
        if column < x.size // length:
            outer = column // inner
            start = outer * length * inner + column % inner
            total = A(0)
            for k in range(length):
                total += A(x[start + k * inner])
                out[start + k * inner] = total

    flat = types.Array(storage_type(dtype), 1, "C")
    return cuda.jit(types.void(flat, flat, types.int64, types.int64))(scan_columns)


@functools.lru_cache(maxsize=1024)
def _launch(version: str, factory: Callable, key: tuple, grid: int) -> Callable:
    return launcher("cumsum", version, factory(*key), grid, THREADS)


def cumsum(x: np.ndarray, axis: int = -1, version: str | None = None) -> np.ndarray:
    """Inclusive running sum along `axis`, in x's dtype; 16-bit floats are added in float32.

    version: a rung of the ladder for the last axis (default "shuffle"). Raises IndexError for an
    axis that is not there, ValueError for a version that does not fit.
    """
    check_version("cumsum", version, VERSIONS)
    if not -max(x.ndim, 1) <= axis < max(x.ndim, 1):
        raise IndexError(f"cumsum: axis {axis} is out of range for {x.ndim} dimensions")
    compute = compute_dtype(x.dtype)
    if compute != x.dtype:
        return cast(cumsum(cast(x, compute), axis, version), x.dtype)
    axis %= max(x.ndim, 1)
    length = x.shape[axis] if x.ndim else 1
    inner = math.prod(x.shape[axis + 1 :])
    out = empty(x.shape, x.dtype, x)
    if x.size == 0:
        return out
    flat = contiguous(x).ravel()
    if inner == 1:
        _scan_rows(flat, out.ravel(), length, version or "shuffle")
    elif version is not None:
        raise ValueError(f"cumsum: version {version!r} scans along the last axis, not {axis}")
    else:
        grid = ceil_div(x.size // length, THREADS)
        _launch("columns", _columns_kernel, (x.dtype,), grid)(flat, out.ravel(), length, inner)
    return out


def _scan_rows(x, out, length: int, version: str) -> None:
    """Scan each row of flat x (rows, length) into out."""
    segments = ceil_div(length, SEGMENT)
    blocks = x.size // length * segments
    totals = empty((blocks,), _accumulator(x.dtype), x)
    scan = _launch(version, _rows_kernel, (version, x.dtype), blocks)
    scan(x, out, totals, length, SEGMENT, segments)
    if segments > 1:
        sums = empty((blocks,), totals.dtype, x)
        _scan_rows(totals, sums, segments, version)
        add = _launch(version, _offsets_kernel, (x.dtype,), blocks)
        add(out, sums, length, SEGMENT, segments)
