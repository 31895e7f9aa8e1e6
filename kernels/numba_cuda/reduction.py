"""The kernels behind `reduction`: the classic ladder, and those that the launcher chooses from.

Every kernel works for every line of `kernels.reduction`: `functions` turns the line's texts into
three device functions, `load` (the map), `combine` and `finish`, and the factories below close over
them. A is the type of the accumulator, START the identity.

The ladder follows M. Harris, "Optimizing parallel reduction in CUDA" (NVIDIA, 2007), and
J. Luitjens, "Faster parallel reductions on Kepler" (2014): each step reduces what one block loads
to one partial result, and is launched again on the partial results until one is left.
"""

from __future__ import annotations

import functools
import linecache
import math
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
from numpy import int32

from kernels.launchers.common import compute_dtype
from kernels.launchers.reduction import THREADS, accumulator_dtype, result_dtype
from kernels.numba_cuda.common import array, scalar_type, signature
from kernels.numba_cuda.pointwise import translate
from kernels.reduction import TABLE
from kernels.simt import cuda

FULL = 0xFFFFFFFF  # every lane of a warp takes part in a shuffle

_START = {"0": 0, "1": 1, "lowest": -math.inf, "highest": math.inf}


def _device(text: str, label: str, space: dict) -> Callable:
    """A device function from generated text, visible to `inspect`."""
    linecache.cache[label] = (len(text), None, text.splitlines(keepends=True), label)
    exec(compile(text, label, "exec"), space)
    return cuda.jit(device=True)(space["function"])


def _text(parameters: str, expression: str, dtype: np.dtype, returns: str) -> str:
    statements, result = translate(expression, dtype)
    lines = [*statements, f"return {returns.format(result)}"]
    return f"def function({parameters}):\n" + "".join(f"    {line}\n" for line in lines)


@functools.cache
def functions(name: str, source: np.dtype, dtype: np.dtype, first: bool, last: bool):
    """load, combine, finish, A and START of a line, for elements of dtype `source`.

    dtype: of the result. first, last: whether this pass sees the elements themselves, and whether
    it writes the final result; passes in between write accumulators.
    """
    line, acc = TABLE[name], accumulator_dtype(name, dtype)
    label = f"{name} {source}{' first' * first}{' last' * last} -> {dtype}"
    space = {"__name__": __name__, "math": math, "libdevice": cuda.libdevice}
    truth = line.result == "bool"
    element = compute_dtype(source) if truth else acc
    space |= {"A": acc.type, "T": element.type}
    start = _START[line.identity]
    if acc.kind == "i" and isinstance(start, float):
        start = np.iinfo(acc).min if start < 0 else np.iinfo(acc).max
    load = _text("x", line.map if first else "x", element, "A({})")
    if not truth or not first:
        load = load.replace("):\n", "):\n    x = A(x)\n", 1)
    combine = _text("a, b", line.combine, acc, "A({})")
    finish = "def function(a, n):\n    return a\n"
    if last and truth:
        finish = "def function(a, n):\n    return a != 0\n"
    elif last:
        finish = _text("a, n", line.finish, acc, "R({})")
        finish = finish.replace("):\n", "):\n    n = A(n)\n", 1)
    result = scalar_type(dtype) if last else acc.type
    return SimpleNamespace(
        load=_device(load, f"<{label}: load>", dict(space)),
        combine=_device(combine, f"<{label}: combine>", dict(space)),
        finish=_device(finish, f"<{label}: finish>", space | {"R": result}),
        accumulator=acc.type,
        start=start,
        source=array(source),
        result=array(result_dtype(name, dtype) if last else acc),
    )


@functools.cache
def ladder(version: str, *key) -> Callable:
    """One step of the teaching ladder: kernel(x, out, n, count), a partial result per block."""
    f = functions(*key)
    load, combine, finish, A, START = f.load, f.combine, f.finish, f.accumulator, f.start

    def interleaved(x, out, n, count):
        """Neighbours first: lane 0 of each pair works, then of each four, ... Warps diverge."""
        shared = cuda.shared.array(THREADS, A)
        tid = cuda.threadIdx.x
        i = cuda.grid(1)
        shared[tid] = load(x[i]) if i < n else A(START)
        cuda.syncthreads()
        stride = 1
        while stride < THREADS:
            if tid % (2 * stride) == 0:
                shared[tid] = combine(shared[tid], shared[tid + stride])
            cuda.syncthreads()
            stride *= 2
        if tid == 0:
            out[cuda.blockIdx.x] = finish(shared[0], count)

    def contiguous_threads(x, out, n, count):
        """The same pairs by the lowest threads: whole warps are active or idle. Bank conflicts."""
        shared = cuda.shared.array(THREADS, A)
        tid = cuda.threadIdx.x
        i = cuda.grid(1)
        shared[tid] = load(x[i]) if i < n else A(START)
        cuda.syncthreads()
        stride = 1
        while stride < THREADS:
            at = 2 * stride * tid
            if at < THREADS:
                shared[at] = combine(shared[at], shared[at + stride])
            cuda.syncthreads()
            stride *= 2
        if tid == 0:
            out[cuda.blockIdx.x] = finish(shared[0], count)

    def sequential(x, out, n, count):
        """The upper half is added to the lower: neighbouring threads access neighbouring banks."""
        shared = cuda.shared.array(THREADS, A)
        tid = cuda.threadIdx.x
        i = cuda.grid(1)
        shared[tid] = load(x[i]) if i < n else A(START)
        cuda.syncthreads()
        stride = THREADS // 2
        while stride > 0:
            if tid < stride:
                shared[tid] = combine(shared[tid], shared[tid + stride])
            cuda.syncthreads()
            stride //= 2
        if tid == 0:
            out[cuda.blockIdx.x] = finish(shared[0], count)

    def first_add(x, out, n, count):
        """Two elements per thread, combined while loading: no thread is idle at the start."""
        shared = cuda.shared.array(THREADS, A)
        tid = cuda.threadIdx.x
        i = cuda.blockIdx.x * (2 * THREADS) + tid
        value = load(x[i]) if i < n else A(START)
        if i + THREADS < n:
            value = combine(value, load(x[i + THREADS]))
        shared[tid] = value
        cuda.syncthreads()
        stride = THREADS // 2
        while stride > 0:
            if tid < stride:
                shared[tid] = combine(shared[tid], shared[tid + stride])
            cuda.syncthreads()
            stride //= 2
        if tid == 0:
            out[cuda.blockIdx.x] = finish(shared[0], count)

    def shuffle(x, out, n, count):
        """The last warp exchanges registers by shuffles: five steps and no barrier."""
        shared = cuda.shared.array(THREADS, A)
        tid = cuda.threadIdx.x
        i = cuda.blockIdx.x * (2 * THREADS) + tid
        value = load(x[i]) if i < n else A(START)
        if i + THREADS < n:
            value = combine(value, load(x[i + THREADS]))
        shared[tid] = value
        cuda.syncthreads()
        stride = THREADS // 2
        while stride >= 32:
            if tid < stride:
                shared[tid] = combine(shared[tid], shared[tid + stride])
            cuda.syncthreads()
            stride //= 2
        if tid < 32:
            value = shared[tid]
            value = combine(value, cuda.shfl_down_sync(FULL, value, 16))
            value = combine(value, cuda.shfl_down_sync(FULL, value, 8))
            value = combine(value, cuda.shfl_down_sync(FULL, value, 4))
            value = combine(value, cuda.shfl_down_sync(FULL, value, 2))
            value = combine(value, cuda.shfl_down_sync(FULL, value, 1))
            if tid == 0:
                out[cuda.blockIdx.x] = finish(value, count)

    steps = (interleaved, contiguous_threads, sequential, first_add, shuffle)
    step = {function.__name__: function for function in steps}[version]
    count = "int64"
    return cuda.jit(signature(f.source, f.result, count, count))(step)


def _warp_reduce(combine: Callable) -> Callable:
    """The device function that combines a warp's 32 values into lane 0."""

    @cuda.jit(device=True)
    def warp_reduce(value):
        value = combine(value, cuda.shfl_down_sync(FULL, value, 16))
        value = combine(value, cuda.shfl_down_sync(FULL, value, 8))
        value = combine(value, cuda.shfl_down_sync(FULL, value, 4))
        value = combine(value, cuda.shfl_down_sync(FULL, value, 2))
        return combine(value, cuda.shfl_down_sync(FULL, value, 1))

    return warp_reduce


@functools.cache
def rows_by_block(threads: int, *key) -> Callable:
    """kernel(x, out, length, segment, segments, count): a block of `threads` per segment of a row.

    Rows of `length` elements are cut into `segments` of `segment`; out has (rows, segments).
    """
    f = functions(*key)
    load, combine, finish, A, START = f.load, f.combine, f.finish, f.accumulator, f.start
    warp_reduce = _warp_reduce(combine)
    BLOCK, WARPS = threads, threads // 32

    def reduce_rows_by_block(x, out, length, segment, segments, count):
        shared = cuda.shared.array(WARPS, A)
        tid = cuda.threadIdx.x
        row = cuda.blockIdx.x // segments
        first = (cuda.blockIdx.x % segments) * segment
        last = min(first + segment, length)
        start = row * length
        value = A(START)
        for i in range(start + first + tid, start + last, BLOCK):
            value = combine(value, load(x[i]))
        value = warp_reduce(value)
        if tid % 32 == 0:
            shared[tid // 32] = value
        cuda.syncthreads()
        if tid == 0:
            for warp in range(1, WARPS):
                value = combine(value, shared[warp])
            out[cuda.blockIdx.x] = finish(value, count)

    numbers = ["int64"] * 4
    return cuda.jit(signature(f.source, f.result, *numbers))(reduce_rows_by_block)


@functools.cache
def rows_by_warp(*key) -> Callable:
    """kernel(x, out, rows, length, count): a warp per row, WARPS rows per block."""
    f = functions(*key)
    load, combine, finish, A, START = f.load, f.combine, f.finish, f.accumulator, f.start
    warp_reduce = _warp_reduce(combine)

    def reduce_rows_by_warp(x, out, rows, length, count):
        lane = cuda.threadIdx.x
        row = cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y
        last = min(row + 1, rows) * length  # no elements beyond the last row, and no branch
        value = A(START)
        for i in range(row * length + lane, last, 32):
            value = combine(value, load(x[i]))
        value = warp_reduce(value)
        if lane == 0 and row < rows:
            out[row] = finish(value, count)

    numbers = ["int64"] * 3
    return cuda.jit(signature(f.source, f.result, *numbers))(reduce_rows_by_warp)


@functools.cache
def columns_by_tile(width: int, height: int, *key) -> Callable:
    """kernel(x, out, length, inner, segment, segments, tiles, count) over x (outer, length, inner).

    A block of (width, height) threads takes `width` neighbouring columns: a row of threads reads a
    row of memory. out has (outer, segments, inner); tiles is the number of blocks per segment.
    """
    f = functions(*key)
    load, combine, finish, A, START = f.load, f.combine, f.finish, f.accumulator, f.start
    WIDTH, HEIGHT = width, height

    def reduce_columns(x, out, length, inner, segment, segments, tiles, count):
        shared = cuda.shared.array((HEIGHT, WIDTH), A)
        tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
        part = cuda.blockIdx.x // tiles  # outer * segments + segment
        column = (cuda.blockIdx.x % tiles) * WIDTH + tx
        outer = part // segments
        first = (part % segments) * segment
        last = min(first + segment, length)
        start = outer * length * inner
        value = A(START)
        if column < inner:
            for i in range(first + ty, last, HEIGHT):
                value = combine(value, load(x[start + i * inner + column]))
        shared[ty, tx] = value
        cuda.syncthreads()
        stride = HEIGHT // 2
        while stride > 0:
            if ty < stride:
                shared[ty, tx] = combine(shared[ty, tx], shared[ty + stride, tx])
            cuda.syncthreads()
            stride //= 2
        if ty == 0 and column < inner:
            out[part * inner + column] = finish(shared[0, tx], count)

    numbers = ["int64"] * 6
    return cuda.jit(signature(f.source, f.result, *numbers))(reduce_columns)


@functools.cache
def few_columns(inner: int, side_by_side: int, *key) -> Callable:
    """kernel(x, out, length, segment, segments, count) over x (outer, length, inner).

    A thread for each element of `side_by_side` rows takes those of its column so many rows apart:
    a row of threads, which lies in memory, is long though rows are short. out has (outer, segments,
    inner).
    """
    f = functions(*key)
    load, combine, finish, A, START = f.load, f.combine, f.finish, f.accumulator, f.start
    INNER, BLOCK = inner, inner * side_by_side

    def reduce_few_columns(x, out, length, segment, segments, count):
        shared = cuda.shared.array(BLOCK, A)
        tid = cuda.threadIdx.x
        part = cuda.blockIdx.x  # outer * segments + segment
        start = part // segments * length * INNER
        first = start + part % segments * segment * INNER
        last = min(first + segment * INNER, start + length * INNER)
        value = A(START)
        for i in range(first + tid, last, BLOCK):
            value = combine(value, load(x[i]))
        shared[tid] = value
        cuda.syncthreads()
        if tid < INNER:
            for i in range(tid + INNER, BLOCK, INNER):
                value = combine(value, shared[i])
            out[part * INNER + tid] = finish(value, count)

    numbers = ["int64"] * 4
    return cuda.jit(signature(f.source, f.result, *numbers))(reduce_few_columns)


@functools.cache
def by_thread(rows: bool, *key) -> Callable:
    """kernel(x, out, length, inner, count) over x (outer, length, inner): a thread per result.

    rows: inner is 1, and need not be divided by.
    """
    f = functions(*key)
    load, combine, finish, A, START = f.load, f.combine, f.finish, f.accumulator, f.start
    ROWS = rows

    def reduce_by_thread(x, out, length, inner, count):
        k = cuda.grid(1)
        if k < out.size:
            start = k * length
            if not ROWS:
                start = k // inner * length * inner + k % inner
            value = A(START)
            for i in range(length):
                value = combine(value, load(x[start + i * inner]))
            out[k] = finish(value, count)

    numbers = ["int64"] * 3
    return cuda.jit(signature(f.source, f.result, *numbers))(reduce_by_thread)


def _wins(combine: Callable) -> Callable:
    """The device function that says whether b beats a; a NaN beats numbers, equal values do not."""

    @cuda.jit(device=True)
    def wins(a, b):
        return (a == a) & (combine(a, b) != a)

    return wins


@functools.cache
def arg_by_thread(rows: bool, name: str, source: np.dtype) -> Callable:
    """kernel(x, out, length, inner) over x (outer, length, inner): a thread per result.

    rows: inner is 1, and need not be divided by.
    """
    f = functions(name, source, source, True, False)
    load, wins = f.load, _wins(f.combine)
    ROWS = rows

    def arg_reduce_by_thread(x, out, length, inner):
        k = cuda.grid(1)
        if k < out.size:
            start = k * length
            if not ROWS:
                start = k // inner * length * inner + k % inner
            best = load(x[start])
            at = 0
            for i in range(1, length):
                value = load(x[start + i * inner])
                better = wins(best, value)
                best = value if better else best
                at = i if better else at
            out[k] = at

    numbers = ["int64"] * 2
    result = array(np.int64)
    return cuda.jit(signature(f.source, result, *numbers))(arg_reduce_by_thread)


@functools.cache
def arg_few_columns(inner: int, side_by_side: int, name: str, source: np.dtype) -> Callable:
    """kernel(x, out, length) over x (outer, length, inner): a block per matrix, as `few_columns`.

    A thread begins with the identity at its first row, as a lane of `arg_by_warp`.
    """
    f = functions(name, source, source, True, False)
    load, wins, A, START = f.load, _wins(f.combine), f.accumulator, f.start
    INNER, ROWS, BLOCK = inner, side_by_side, inner * side_by_side

    def arg_reduce_few_columns(x, out, length):
        values = cuda.shared.array(BLOCK, A)
        places = cuda.shared.array(BLOCK, int32)
        tid, outer = cuda.threadIdx.x, cuda.blockIdx.x
        start = outer * length * INNER
        value = A(START)
        place = int32(0)
        row = int32(0)
        for i in range(start + tid, start + length * INNER, BLOCK):
            candidate = load(x[i])
            better = wins(value, candidate)
            value = candidate if better else value
            place = row if better else place
            row += int32(ROWS)
        values[tid] = value
        places[tid] = place + tid // INNER
        cuda.syncthreads()
        if tid < INNER:
            place = places[tid]
            for i in range(tid + INNER, BLOCK, INNER):
                other, there = values[i], places[i]
                better = wins(value, other) | ((there < place) & (not wins(other, value)))
                value = other if better else value
                place = there if better else place
            out[outer * INNER + tid] = place

    return cuda.jit(signature(f.source, array(np.int64), "int64"))(arg_reduce_few_columns)


@functools.cache
def arg_by_warp(name: str, source: np.dtype) -> Callable:
    """kernel(x, out, rows, length): a warp per row, WARPS rows per block.

    A lane begins with the identity at the place of its first element, which no element equal to the
    identity need replace; lanes without elements are at later places, which lose every tie.
    """
    f = functions(name, source, source, True, False)
    load, wins, A, START = f.load, _wins(f.combine), f.accumulator, f.start

    @cuda.jit(device=True)
    def fold(value, place, distance):
        other = cuda.shfl_down_sync(FULL, value, distance)
        there = cuda.shfl_down_sync(FULL, place, distance)
        better = wins(value, other) | ((there < place) & (not wins(other, value)))
        return other if better else value, there if better else place

    def arg_reduce_by_warp(x, out, rows, length):
        lane = cuda.threadIdx.x
        row = cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y
        start = row * length
        last = min(row + 1, rows) * length  # no elements beyond the last row, and no branch
        value = A(START)
        place = int32(lane)
        for i in range(start + lane, last, 32):
            candidate = load(x[i])
            better = wins(value, candidate)
            value = candidate if better else value
            place = int32(i - start) if better else place
        value, place = fold(value, place, 16)
        value, place = fold(value, place, 8)
        value, place = fold(value, place, 4)
        value, place = fold(value, place, 2)
        value, place = fold(value, place, 1)
        if lane == 0 and row < rows:
            out[row] = place

    numbers = ["int64"] * 2
    return cuda.jit(signature(f.source, array(np.int64), *numbers))(arg_reduce_by_warp)


@functools.cache
def arg_by_block(threads: int, name: str, source: np.dtype, first: bool) -> Callable:
    """kernel(x, positions, best, out, length, segment, segments): a block per segment of a row.

    first: x holds elements, whose position counts; else partial winners, with `positions`.
    Writes the winners to `best` and their positions to `out`, (rows, segments) each.
    """
    f = functions(name, source, source, True, False)
    load, wins, A, START, FIRST = f.load, _wins(f.combine), f.accumulator, f.start, first
    BLOCK = threads

    def arg_reduce_by_block(x, positions, best, out, length, segment, segments):
        values = cuda.shared.array(BLOCK, A)
        places = cuda.shared.array(BLOCK, np.int64)
        tid = cuda.threadIdx.x
        row = cuda.blockIdx.x // segments
        begin = (cuda.blockIdx.x % segments) * segment
        end = min(begin + segment, length)
        start = row * length
        value = A(START)
        place = np.int64(-1)
        for i in range(begin + tid, end, BLOCK):
            candidate = load(x[start + i])
            better = (place < 0) | wins(value, candidate)
            value = candidate if better else value
            if FIRST:
                place = i if better else place
            elif better:
                place = positions[start + i]
        values[tid] = value
        places[tid] = place
        cuda.syncthreads()
        stride = BLOCK // 2
        while stride > 0:
            if tid < stride:
                other = places[tid + stride]
                mine = places[tid]
                a = values[tid]
                b = values[tid + stride]
                tie = not wins(a, b) and not wins(b, a)
                if other >= 0 and (mine < 0 or wins(a, b) or (tie and other < mine)):
                    values[tid] = b
                    places[tid] = other
            cuda.syncthreads()
            stride //= 2
        if tid == 0:
            best[cuda.blockIdx.x] = values[0]
            out[cuda.blockIdx.x] = places[0]

    accumulators, indices = array(f.accumulator), array(np.int64)
    kinds = [f.source, indices, accumulators, indices, *["int64"] * 3]
    return cuda.jit(signature(*kinds))(arg_reduce_by_block)
