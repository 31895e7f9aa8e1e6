"""Running sums, products and extrema (inclusive scans) along any axis.

Every kernel works for any line of `kernels.reduction`: `combine` and the identity START are those
of the line, A is the type of the accumulator. n elements take n - 1 combinations and 2 n elements
of memory traffic; the parallel versions do more combinations, so that more threads work at once.

Versions, which differ in how a block scans a tile of 256 elements:
1. hillis_steele: log2(256) steps, in each of which every element adds the one `stride` before it
   (Hillis and Steele, 1986): short, but n log n combinations
2. blelloch: a tree of sums upward and back down (Blelloch, 1990): 2 n combinations, a barrier per
   step
3. shuffle: each warp scans in registers, then all add the sums of the warps before: two barriers

A block loops over the tiles of its segment of a row and carries the total. Rows longer than one
segment take three launches: reduce the segments, scan their totals, scan the segments.
Along other axes than the last, neighbouring threads take neighbouring columns.

Extrema carry two numbers, a value and its place, of which the later one stays where values are
equal; a NaN beats all that is before it. They are there as `shuffle` and by columns.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from kernels.launchers.reduction import accumulator_dtype
from kernels.launchers.scan import THREADS
from kernels.numba_cuda.common import array, signature
from kernels.numba_cuda.reduction import functions
from kernels.simt import cuda

WARPS = THREADS // 32
FULL = 0xFFFFFFFF


@functools.cache
def rows_kernel(line: str, version: str, dtype: np.dtype) -> Callable:
    """kernel(x, out, earlier, length, segment, segments): a block per segment of a row.

    line: of `kernels.reduction`. earlier (rows, segments): what segments and those before them
    combine to.
    """
    f = functions(line, dtype, dtype, True, False)
    load, combine, A, START = f.load, f.combine, f.accumulator, f.start

    def scan_hillis_steele(x, out, earlier, length, segment, segments):
        tile = cuda.shared.array(THREADS, A)
        tid = cuda.threadIdx.x
        row = cuda.blockIdx.x // segments
        first = (cuda.blockIdx.x % segments) * segment
        last = min(first + segment, length)
        carry = earlier[cuda.blockIdx.x - 1] if first > 0 else A(START)
        for base in range(row * length + first, row * length + last, THREADS):
            i = base + tid
            value = load(x[i]) if i < row * length + last else A(START)
            tile[tid] = value
            cuda.syncthreads()
            stride = 1
            while stride < THREADS:
                before = tile[tid - stride] if tid >= stride else A(START)
                cuda.syncthreads()
                tile[tid] = combine(before, tile[tid])
                cuda.syncthreads()
                stride *= 2
            if i < row * length + last:
                out[i] = combine(carry, tile[tid])
            carry = combine(carry, tile[THREADS - 1])
            cuda.syncthreads()

    def scan_blelloch(x, out, earlier, length, segment, segments):
        tile = cuda.shared.array(THREADS, A)
        tid = cuda.threadIdx.x
        row = cuda.blockIdx.x // segments
        first = (cuda.blockIdx.x % segments) * segment
        last = min(first + segment, length)
        carry = earlier[cuda.blockIdx.x - 1] if first > 0 else A(START)
        for base in range(row * length + first, row * length + last, THREADS):
            i = base + tid
            value = load(x[i]) if i < row * length + last else A(START)
            tile[tid] = value
            cuda.syncthreads()
            stride = 1
            while stride < THREADS:  # up: the right end of each pair receives the sum of the pair
                right = 2 * stride * (tid + 1) - 1
                if right < THREADS:
                    tile[right] = combine(tile[right - stride], tile[right])
                cuda.syncthreads()
                stride *= 2
            stride = THREADS // 4
            while stride > 0:  # down: each right end is added to the middle of the next pair
                middle = 2 * stride * (tid + 1) + stride - 1
                if middle < THREADS:
                    tile[middle] = combine(tile[middle - stride], tile[middle])
                cuda.syncthreads()
                stride //= 2
            if i < row * length + last:
                out[i] = combine(carry, tile[tid])
            carry = combine(carry, tile[THREADS - 1])
            cuda.syncthreads()

    def scan_shuffle(x, out, earlier, length, segment, segments):
        sums = cuda.shared.array(WARPS, A)
        tid = cuda.threadIdx.x
        lane, warp = tid % 32, tid // 32
        row = cuda.blockIdx.x // segments
        first = (cuda.blockIdx.x % segments) * segment
        last = min(first + segment, length)
        carry = earlier[cuda.blockIdx.x - 1] if first > 0 else A(START)
        for base in range(row * length + first, row * length + last, THREADS):
            i = base + tid
            value = load(x[i]) if i < row * length + last else A(START)
            stride = 1
            while stride < 32:
                before = cuda.shfl_up_sync(FULL, value, stride)
                if lane >= stride:
                    value = combine(before, value)
                stride *= 2
            if lane == 31:
                sums[warp] = value
            cuda.syncthreads()
            before = A(START)
            total = A(START)
            for w in range(WARPS):
                if w < warp:
                    before = combine(before, sums[w])
                total = combine(total, sums[w])
            if i < row * length + last:
                out[i] = combine(combine(carry, before), value)
            carry = combine(carry, total)
            cuda.syncthreads()

    kernels = dict(hillis_steele=scan_hillis_steele, blelloch=scan_blelloch, shuffle=scan_shuffle)
    earlier = array(f.accumulator)
    return cuda.jit(signature(f.source, f.source, earlier, *["int64"] * 3))(kernels[version])


@functools.cache
def columns_kernel(line: str, dtype: np.dtype, total: np.dtype, tiled: bool) -> Callable:
    """kernel(x, out, length, inner, tiles) over (outer, length, inner): a thread per column, which
    combines in the dtype `total`. tiled: `tiles` blocks for each of outer, so that neighbouring
    threads always have neighbouring columns, which a CPU takes as vectors."""
    f = functions(line, dtype, total, True, False)
    load, combine, A, START = f.load, f.combine, f.accumulator, f.start
    TILED = tiled

    def scan_columns(x, out, length, inner, tiles):
        if TILED:
            column = cuda.blockIdx.x % tiles * THREADS + cuda.threadIdx.x
            live = column < inner
            start = cuda.blockIdx.x // tiles * length * inner + column
        else:
            column = cuda.grid(1)
            live = column < x.size // length
            start = column // inner * length * inner + column % inner
        if live:
            total = A(START)
            for k in range(length):
                total = combine(total, load(x[start + k * inner]))
                out[start + k * inner] = total

    return cuda.jit(signature(f.source, f.source, *["int64"] * 3))(scan_columns)


def _takes(line: str) -> Callable:
    """The device function that says whether b, which comes later, takes the place of a: if it wins
    or is equal, or is a NaN."""

    @cuda.jit(device=True)
    def takes_the_maximum(a, b):
        return (b >= a) | (b != b)

    @cuda.jit(device=True)
    def takes_the_minimum(a, b):
        return (b <= a) | (b != b)

    return {"argmax": takes_the_maximum, "argmin": takes_the_minimum}[line]


@functools.cache
def extrema_rows_kernel(line: str, dtype: np.dtype, first: bool) -> Callable:
    """kernel(x, positions, values, places, best, found, length, segment, segments): a block per
    segment of a row.

    first: x holds elements, whose position counts; else the winners of segments, with `positions`.
    Writes the running winners to `values` and `places`, and those of each segment to `best` and
    `found`, (rows, segments).
    """
    f = functions(line, dtype, dtype, True, False)
    load, takes, A, START, FIRST = f.load, _takes(line), f.accumulator, f.start, first

    def scan_extrema(x, positions, values, places, best, found, length, segment, segments):
        tops = cuda.shared.array(WARPS, A)
        spots = cuda.shared.array(WARPS, np.int64)
        tid = cuda.threadIdx.x
        lane, warp = tid % 32, tid // 32
        start = cuda.blockIdx.x // segments * length
        begin = (cuda.blockIdx.x % segments) * segment
        last = min(begin + segment, length)
        carry = A(START)
        carried = np.int64(0)
        for base in range(begin, last, THREADS):
            i = base + tid
            value = A(START)
            place = np.int64(0)
            if i < last:
                value = load(x[start + i])
                place = i if FIRST else positions[start + i]
            stride = 1
            while stride < 32:
                before = cuda.shfl_up_sync(FULL, value, stride)
                there = cuda.shfl_up_sync(FULL, place, stride)
                stays = (lane >= stride) & (not takes(before, value))
                value = before if stays else value
                place = there if stays else place
                stride *= 2
            if lane == 31:
                tops[warp] = value
                spots[warp] = place
            cuda.syncthreads()
            before = carry
            there = carried
            for w in range(WARPS):
                if w == warp:  # so far the winner before this warp
                    stays = not takes(before, value)
                    value = before if stays else value
                    place = there if stays else place
                later = takes(before, tops[w])
                before = tops[w] if later else before
                there = spots[w] if later else there
            if i < last:
                values[start + i] = value
                places[start + i] = place
            carry = before
            carried = there
            cuda.syncthreads()
        if tid == 0:
            best[cuda.blockIdx.x] = carry
            found[cuda.blockIdx.x] = carried

    indices, winners = array(np.int64), array(f.accumulator)
    kinds = f.source, indices, f.source, indices, winners, indices
    return cuda.jit(signature(*kinds, *["int64"] * 3))(scan_extrema)


@functools.cache
def extrema_offsets_kernel(line: str, dtype: np.dtype) -> Callable:
    """kernel(values, places, best, found, length, segment, segments): put into each segment the
    winner of those before it, as far as it stays."""
    f = functions(line, dtype, dtype, True, False)
    load, takes = f.load, _takes(line)

    def spread_extrema(values, places, best, found, length, segment, segments):
        row = cuda.blockIdx.x // segments
        part = cuda.blockIdx.x % segments
        if part > 0:
            first = row * length + part * segment
            last = min(first + segment, (row + 1) * length)
            for i in range(first + cuda.threadIdx.x, last, THREADS):
                if not takes(best[cuda.blockIdx.x - 1], load(values[i])):
                    values[i] = best[cuda.blockIdx.x - 1]
                    places[i] = found[cuda.blockIdx.x - 1]

    indices = array(np.int64)
    kinds = f.source, indices, array(f.accumulator), indices
    return cuda.jit(signature(*kinds, *["int64"] * 3))(spread_extrema)


def _rank(line: str, dtype: np.dtype) -> Callable:
    """The device function that makes of an element an integer, which is larger if it wins.

    A CPU compares and chooses integers in two cycles, floats in ten.
    """
    A = accumulator_dtype(line, dtype).type
    K = np.int32 if np.dtype(A).itemsize < 8 and A is not np.uint32 else np.int64
    TOP, FLIP = np.iinfo(K).max, K(-1 if line == "argmin" else 0)
    SIGN = K(np.iinfo(K).bits - 1)
    bits = cuda.libdevice.double_as_longlong if A is np.float64 else cuda.libdevice.float_as_int

    @cuda.jit(device=True)
    def rank_of_float(x):
        found = bits(x + A(0))  # -0 becomes 0
        found = found ^ ((found >> SIGN) & K(TOP)) ^ FLIP
        return K(TOP) if x != x else found

    @cuda.jit(device=True)
    def rank_of_integer(x):
        return K(x) ^ FLIP

    return rank_of_float if np.dtype(A).kind == "f" else rank_of_integer


@functools.cache
def extrema_columns_kernel(line: str, dtype: np.dtype) -> Callable:
    """kernel(x, values, places, length, inner) over (outer, length, inner): a thread per column."""
    f = functions(line, dtype, dtype, True, False)
    load, takes, A, START, rank = f.load, _takes(line), f.accumulator, f.start, _rank(line, dtype)

    def scan_extrema_columns(x, values, places, length, inner):
        column = cuda.grid(1)
        if column < x.size // length:
            outer = column // inner
            start = outer * length * inner + column % inner
            best = A(START)
            highest = rank(best)
            place = np.int64(0)
            for k in range(length):
                value = load(x[start + k * inner])
                if inner == 1:  # a row: elements wait for those before, with no other column
                    ranked = rank(value)
                    later = ranked >= highest
                    highest = ranked if later else highest
                else:
                    later = takes(best, value)
                best = value if later else best
                place = k if later else place
                values[start + k * inner] = best
                places[start + k * inner] = place

    indices = array(np.int64)
    return cuda.jit(signature(f.source, f.source, indices, "int64", "int64"))(scan_extrema_columns)
