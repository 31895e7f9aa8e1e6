"""Sorting rows: of each row the elements in order, and their positions.

An element's key is an unsigned integer of 32 or 64 bits in the order of the elements: NaN is the
largest, -0 equals 0, and `descending` reverses the order. Of equal keys the one at the smaller
position is first, so the sort is stable. A row of n elements takes n log2(n) comparisons or more;
the networks make n log2(n)^2 / 4 of them, always the same ones, so that threads need not agree.

Versions:
1. bitonic: a launch per step of a bitonic network (Batcher, 1968) on elements and positions in
   global memory, a thread per pair
2. shared: a block sorts a row, all steps of the network in shared memory
3. merge: a thread sorts 8 elements in registers; then two runs become one until there is one per
   row, where each thread finds by a search which elements of both make its own 8 (Green, McColl and
   Bader, 2012: merge path), so that log2(n / 8) passes through shared memory do

Places in sorted rows are found by a thread per value, in global memory, or in shared memory, where
threads that read all over a row do not wait for lines of the cache.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np

from kernels.launchers.sort import ITEMS, read_as
from kernels.numba_cuda.common import array, signature
from kernels.simt import cuda


@functools.cache
def _order(dtype: np.dtype, descending: bool) -> SimpleNamespace:
    """The type of a key, the largest one, and the device function that makes it of an element."""
    read = read_as(dtype)
    C, K = read.type, np.dtype(f"u{read.itemsize}").type
    ALL = K(np.iinfo(K).max)
    HIGH, FLIP = K(1 << (np.iinfo(K).bits - 1)), ALL if descending else K(0)
    SIGN = np.iinfo(K).bits - 1
    bits = cuda.libdevice.double_as_longlong if C is np.float64 else cuda.libdevice.float_as_int

    @cuda.jit(device=True)
    def key_of_float(x):
        value = C(x)
        found = bits(value + C(0))  # -0 becomes 0
        key = K(found) ^ (K(found >> SIGN) | HIGH)
        return (ALL if value != value else key) ^ FLIP

    @cuda.jit(device=True)
    def key_of_signed(x):
        return K(C(x)) ^ HIGH ^ FLIP

    @cuda.jit(device=True)
    def key_of_unsigned(x):
        return K(x) ^ FLIP

    kinds = {"f": key_of_float, "i": key_of_signed, "u": key_of_unsigned}
    return SimpleNamespace(K=K, ALL=ALL, key_of=kinds[read.kind])


def _signature(dtype: np.dtype, integers: int) -> str:
    return signature(array(dtype), array(dtype), array(np.int64), *["int64"] * integers)


@functools.cache
def bitonic(dtype: np.dtype, descending: bool) -> Callable:
    """kernel(x, values, positions, size, n, mask, first): one step on all pairs (i, i ^ mask) of
    positions in rows of n, of which the first becomes the smaller. first: the elements are still in
    x."""
    key_of = _order(dtype, descending).key_of

    def sort_bitonic(x, values, positions, size, n, mask, first):
        i = cuda.grid(1)
        if i < size:
            place = i % n
            other = place ^ mask
            j = i - place + other
            if other > place:
                a = x[i] if first else values[i]
                at_a = place if first else positions[i]
                if other < n:
                    b = x[j] if first else values[j]
                    at_b = other if first else positions[j]
                    key_a, key_b = key_of(a), key_of(b)
                    swap = (key_b < key_a) | ((key_b == key_a) & (at_b < at_a))
                    values[i] = b if swap else a
                    values[j] = a if swap else b
                    positions[i] = at_b if swap else at_a
                    positions[j] = at_a if swap else at_b
                elif first:  # behind the end of a row all is larger
                    values[i] = a
                    positions[i] = at_a

    return cuda.jit(_signature(dtype, 4))(sort_bitonic)


@functools.cache
def shared(dtype: np.dtype, descending: bool, tile: int) -> Callable:
    """kernel(x, values, positions, n, width, start, stop): a block per row of n <= width <= tile
    elements, width a power of 2."""
    order = _order(dtype, descending)
    K, ALL, key_of, TILE = order.K, order.ALL, order.key_of, tile

    def sort_shared(x, values, positions, n, width, start, stop):
        keys = cuda.shared.array(TILE, K)
        places = cuda.shared.array(TILE, np.uint16)
        row = cuda.blockIdx.x * n
        for j in range(cuda.threadIdx.x, width, cuda.blockDim.x):
            keys[j] = key_of(x[row + j]) if j < n else ALL
            places[j] = j
        size = 2
        while size <= width:
            half = size // 2
            while half > 0:
                mask = size - 1 if half == size // 2 else half  # mirrored, then shifted
                cuda.syncthreads()
                for p in range(cuda.threadIdx.x, width // 2, cuda.blockDim.x):
                    i = 2 * p - (p & (half - 1))
                    j = i ^ mask
                    a, b = keys[i], keys[j]
                    at_a, at_b = places[i], places[j]
                    if (b < a) | ((b == a) & (at_b < at_a)):
                        keys[i] = b
                        keys[j] = a
                        places[i] = at_b
                        places[j] = at_a
                half //= 2
            size *= 2
        cuda.syncthreads()
        out = cuda.blockIdx.x * (stop - start) - start
        for j in range(start + cuda.threadIdx.x, stop, cuda.blockDim.x):
            positions[out + j] = places[j]
            values[out + j] = x[row + places[j]]

    return cuda.jit(_signature(dtype, 4))(sort_shared)


@functools.cache
def merge(dtype: np.dtype, descending: bool, tile: int) -> Callable:
    """kernel(x, values, positions, rows, n, shift, start, stop): tile / ITEMS threads for
    tile / 2**shift rows of n <= 2**shift elements."""
    order = _order(dtype, descending)
    K, ALL, key_of, TILE, STEPS = order.K, order.ALL, order.key_of, tile, tile // ITEMS

    def sort_merge(x, values, positions, rows, n, shift, start, stop):
        keys = cuda.shared.array(TILE, K)
        places = cuda.shared.array(TILE, np.uint16)
        key = cuda.local.array(ITEMS, K)
        place = cuda.local.array(ITEMS, np.uint16)
        mine = cuda.threadIdx.x * ITEMS
        width = 1 << shift
        first_row = cuda.blockIdx.x * (TILE >> shift)
        for j in range(cuda.threadIdx.x, TILE, STEPS):
            row = first_row + (j >> shift)
            column = j & (width - 1)
            inside = (row < rows) & (column < n)
            keys[j] = key_of(x[row * n + column]) if inside else ALL
        cuda.syncthreads()
        for i in range(ITEMS):
            key[i] = keys[mine + i]
            place[i] = (mine + i) & (width - 1)
        for step in range(ITEMS):  # neighbours change places: stable
            for i in range(step % 2, ITEMS - 1, 2):
                a, b = key[i], key[i + 1]
                at_a, at_b = place[i], place[i + 1]
                key[i] = b if b < a else a
                key[i + 1] = a if b < a else b
                place[i] = at_b if b < a else at_a
                place[i + 1] = at_a if b < a else at_b
        for i in range(ITEMS):
            keys[mine + i] = key[i]
            places[mine + i] = place[i]
        run = ITEMS
        while run < width:
            cuda.syncthreads()
            skipped = mine & (2 * run - 1)  # elements of the merged run before the own ones
            last = 2 * run == width
            wanted = (skipped < stop) & ((not last) | (skipped + ITEMS > start))
            if wanted:
                begin = mine - skipped
                middle = begin + run
                end = middle + run
                low = max(skipped - run, 0)  # how many of them the first run has
                high = min(skipped, run)
                while low < high:
                    half = (low + high) >> 1
                    if keys[middle + skipped - 1 - half] < keys[begin + half]:
                        high = half
                    else:
                        low = half + 1
                i = begin + low
                j = middle + skipped - low
                a, b = keys[i], keys[j & (TILE - 1)]  # behind the last element nothing is used
                for t in range(ITEMS):
                    from_first = (j >= end) | ((i < middle) & (not b < a))
                    at = i if from_first else j
                    key[t] = a if from_first else b
                    place[t] = places[at]
                    following = keys[(at + 1) & (TILE - 1)]
                    if from_first:
                        a = following
                        i += 1
                    else:
                        b = following
                        j += 1
            cuda.syncthreads()
            if wanted:
                for i in range(ITEMS):
                    keys[mine + i] = key[i]
                    places[mine + i] = place[i]
            run *= 2
        cuda.syncthreads()
        for j in range(cuda.threadIdx.x, TILE, STEPS):
            row = first_row + (j >> shift)
            column = j & (width - 1)
            if (row < rows) & (column >= start) & (column < stop):
                out = row * (stop - start) + column - start
                positions[out] = places[j]
                values[out] = x[row * n + places[j]]

    return cuda.jit(_signature(dtype, 5))(sort_merge)


@functools.cache
def search(dtype: np.dtype, right: bool, tile: int) -> Callable:
    """kernel(sequence, values, out, rows, n, m, span): a block per `span` values of a row, with the
    n <= tile keys of its sequence in shared memory; tile 0: of all rows, in global memory."""
    order = _order(dtype, False)
    K, key_of, TILE, RIGHT = order.K, order.key_of, tile, right

    @cuda.jit(device=True)
    def comes_before(other, key):
        return (other <= key) if RIGHT else (other < key)

    def search_shared(sequence, values, out, rows, n, m, span):
        keys = cuda.shared.array(TILE, K)
        spans = (m + span - 1) // span
        row = cuda.blockIdx.x // spans
        begin = (cuda.blockIdx.x % spans) * span
        for j in range(cuda.threadIdx.x, n, cuda.blockDim.x):
            keys[j] = key_of(sequence[row * n + j])
        cuda.syncthreads()
        for i in range(begin + cuda.threadIdx.x, min(begin + span, m), cuda.blockDim.x):
            key = key_of(values[row * m + i])
            low, high = 0, n
            while low < high:
                half = (low + high) >> 1
                if comes_before(keys[half], key):
                    low = half + 1
                else:
                    high = half
            out[row * m + i] = low

    def search_global(sequence, values, out, rows, n, m, span):
        begin = cuda.blockIdx.x * span
        for i in range(begin + cuda.threadIdx.x, min(begin + span, rows * m), cuda.blockDim.x):
            key = key_of(values[i])
            start = i // m * n
            low, high = 0, n
            while low < high:
                half = (low + high) >> 1
                if comes_before(key_of(sequence[start + half]), key):
                    low = half + 1
                else:
                    high = half
            out[i] = low

    return cuda.jit(_signature(dtype, 4))(search_shared if tile else search_global)
