"""Softmax and log-softmax along an axis, with their gradients.

About 4 operations and one exp per element; at least x read and y written once. A row runs along the
axis: contiguous for the last axis, else with a stride of `inner` elements.

1. three_pass   a block per row: maximum, sum of exp(x - max), result; the row is read three times
2. online       maximum and sum in one pass (Milakov and Gimelshein, 2018): read twice
3. one_read     the row is kept in shared memory: read once; up to 4096 elements
4. warp         short rows: a warp per row, elements in registers, shuffles instead of barriers
5. strided      other axes: a thread per row, neighbours along `inner`
6. split        few long rows: several blocks per row write the maximum and the sum of their parts;
                a second launch merges them, and reads the row again for the result

On the CPU a block is a warp that sums in shared memory: the loops of its tree become vector code.
For short rows it has several warps, a row each.
A row of all -inf, or with a NaN or +inf, becomes NaN, as in torch.
"""

from __future__ import annotations

import functools
import math

from kernels.launchers.common import SMALL_BLOCK
from kernels.launchers.softmax import ROW_IN_SHARED, ROWS, SHORT_ROW
from kernels.numba_cuda.small_block import row_maxima, row_sums, tree_max, tree_sum
from kernels.simt import cuda

FULL_WARP = 0xFFFFFFFF
LOWEST = -math.inf


@cuda.jit(device=True)
def warp_sum(v):
    """The sum over the warp, in every lane."""
    for step in (16, 8, 4, 2, 1):
        v += cuda.shfl_xor_sync(FULL_WARP, v, step)
    return v


@cuda.jit(device=True)
def warp_max(v):
    """The maximum over the warp, in every lane."""
    for step in (16, 8, 4, 2, 1):
        v = max(v, cuda.shfl_xor_sync(FULL_WARP, v, step))
    return v


@cuda.jit(device=True)
def block_sum(v, partial):
    """The sum over the block, in every thread; `partial` is shared, one element per warp."""
    v = warp_sum(v)
    if cuda.threadIdx.x % 32 == 0:
        partial[cuda.threadIdx.x // 32] = v
    cuda.syncthreads()
    total = partial[0]
    for w in range(1, partial.shape[0]):
        total += partial[w]
    cuda.syncthreads()
    return total


@cuda.jit(device=True)
def block_max(v, partial):
    """The maximum over the block, in every thread."""
    v = warp_max(v)
    if cuda.threadIdx.x % 32 == 0:
        partial[cuda.threadIdx.x // 32] = v
    cuda.syncthreads()
    top = partial[0]
    for w in range(1, partial.shape[0]):
        top = max(top, partial[w])
    cuda.syncthreads()
    return top


def steps(block: int):
    """Device functions for the sum and the maximum over a block, and the size of their array."""
    if block == SMALL_BLOCK:
        return tree_sum, tree_max, block
    return block_sum, block_max, block // 32


@functools.cache
def three_pass(acc_t, log: bool, block: int):
    """Block `block`, grid (rows,); x and y (rows, n)."""
    sum_of, max_of, shared = steps(block)

    @cuda.jit
    def softmax_three_pass(x, y):
        partial = cuda.shared.array(shared, acc_t)
        t, row, n = cuda.threadIdx.x, cuda.blockIdx.x, x.shape[1]
        top = acc_t(LOWEST)
        for i in range(t, n, block):
            top = max(top, acc_t(x[row, i]))
        top = max_of(top, partial)
        total = acc_t(0)
        for i in range(t, n, block):
            total += math.exp(acc_t(x[row, i]) - top)
        total = sum_of(total, partial)
        if log:
            lse = math.log(total)
            for i in range(t, n, block):
                y[row, i] = (acc_t(x[row, i]) - top) - lse
        else:
            scale = acc_t(1) / total
            for i in range(t, n, block):
                y[row, i] = math.exp(acc_t(x[row, i]) - top) * scale

    return softmax_three_pass


@functools.cache
def online(acc_t, log: bool, block: int):
    """Block `block`, grid (rows,). A thread rescales its sum when its maximum grows."""
    sum_of, max_of, shared = steps(block)

    @cuda.jit
    def softmax_online(x, y):
        partial = cuda.shared.array(shared, acc_t)
        t, row, n = cuda.threadIdx.x, cuda.blockIdx.x, x.shape[1]
        own_top, own = acc_t(LOWEST), acc_t(0)
        for i in range(t, n, block):
            v = acc_t(x[row, i])
            if v > own_top:
                own = own * math.exp(own_top - v) + acc_t(1)
                own_top = v
            elif v != acc_t(LOWEST):
                own += math.exp(v - own_top)
        top = max_of(own_top, partial)
        if own_top > acc_t(LOWEST):
            own *= math.exp(own_top - top)
        total = sum_of(own, partial)
        if log:
            lse = math.log(total)
            for i in range(t, n, block):
                y[row, i] = (acc_t(x[row, i]) - top) - lse
        else:
            scale = acc_t(1) / total
            for i in range(t, n, block):
                y[row, i] = math.exp(acc_t(x[row, i]) - top) * scale

    return softmax_online


@functools.cache
def one_read(acc_t, log: bool, block: int):
    """Block `block`, grid (rows,), n <= ROW_IN_SHARED."""
    sum_of, max_of, shared = steps(block)

    @cuda.jit
    def softmax_one_read(x, y):
        partial = cuda.shared.array(shared, acc_t)
        values = cuda.shared.array(ROW_IN_SHARED, acc_t)
        t, row, n = cuda.threadIdx.x, cuda.blockIdx.x, x.shape[1]
        top = acc_t(LOWEST)
        for i in range(t, n, block):
            v = acc_t(x[row, i])
            values[i] = v
            top = max(top, v)
        top = max_of(top, partial)
        total = acc_t(0)
        for i in range(t, n, block):
            if log:
                total += math.exp(values[i] - top)
            else:
                e = math.exp(values[i] - top)
                values[i] = e
                total += e
        total = sum_of(total, partial)
        if log:
            lse = math.log(total)
            for i in range(t, n, block):
                y[row, i] = (values[i] - top) - lse
        else:
            scale = acc_t(1) / total
            for i in range(t, n, block):
                y[row, i] = values[i] * scale

    return softmax_one_read


@functools.cache
def warp(acc_t, log: bool, held: int):
    """Block (32, 8): a warp per row, `held` elements per lane; n <= 32 * held."""

    @cuda.jit
    def softmax_warp(x, y):
        values = cuda.local.array(held, acc_t)
        lane = cuda.threadIdx.x
        row = cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y
        if row >= x.shape[0]:
            return
        n = x.shape[1]
        top = acc_t(LOWEST)
        for i in range(held):
            at = i * 32 + lane
            values[i] = acc_t(x[row, at]) if at < n else acc_t(LOWEST)
            top = max(top, values[i])
        top = warp_max(top)
        total = acc_t(0)
        for i in range(held):
            e = math.exp(values[i] - top) if i * 32 + lane < n else acc_t(0)
            total += e
            if not log:
                values[i] = e
        total = warp_sum(total)
        lse = math.log(total)
        scale = acc_t(1) / total
        for i in range(held):
            at = i * 32 + lane
            if at < n:
                y[row, at] = (values[i] - top) - lse if log else values[i] * scale

    return softmax_warp


@functools.cache
def several_rows(acc_t, log: bool):
    """Block (32, ROWS), n <= SHORT_ROW: as `one_read`, a warp per row. One of them takes all
    logarithms."""

    @cuda.jit
    def softmax_several_rows(x, y):
        values = cuda.shared.array((ROWS, SHORT_ROW), acc_t)
        tops = cuda.shared.array((ROWS, 32), acc_t)
        totals = cuda.shared.array((ROWS, 32), acc_t)
        logs = cuda.shared.array(ROWS, acc_t)
        lane, warp = cuda.threadIdx.x, cuda.threadIdx.y
        row = min(cuda.blockIdx.x * ROWS + warp, x.shape[0] - 1)  # the last one again
        n = x.shape[1]
        top = acc_t(LOWEST)
        for i in range(lane, n, 32):
            v = acc_t(x[row, i])
            values[warp, i] = v
            top = max(top, v)
        row_maxima(top, tops)
        top = tops[warp, 0]
        total = acc_t(0)
        for i in range(lane, n, 32):
            e = math.exp(values[warp, i] - top)
            total += e
            if not log:
                values[warp, i] = e
        row_sums(total, totals)
        if log:
            if warp == 0 and lane < ROWS:
                logs[lane] = math.log(totals[lane, 0])
            cuda.syncthreads()
            lse = logs[warp]
            for i in range(lane, n, 32):
                y[row, i] = (values[warp, i] - tops[warp, 0]) - lse
        else:
            scale = acc_t(1) / totals[warp, 0]
            for i in range(lane, n, 32):
                y[row, i] = values[warp, i] * scale

    return softmax_several_rows


@functools.cache
def strided(acc_t, log: bool):
    """A thread per row; x and y (outer, n, inner), grid (outer, tiles of inner)."""

    @cuda.jit
    def softmax_strided(x, y):
        o = cuda.blockIdx.x
        c = cuda.blockIdx.y * cuda.blockDim.x + cuda.threadIdx.x
        if c < x.shape[2]:
            top = acc_t(LOWEST)
            for i in range(x.shape[1]):
                top = max(top, acc_t(x[o, i, c]))
            total = acc_t(0)
            for i in range(x.shape[1]):
                total += math.exp(acc_t(x[o, i, c]) - top)
            if log:
                lse = math.log(total)
                for i in range(x.shape[1]):
                    y[o, i, c] = (acc_t(x[o, i, c]) - top) - lse
            else:
                scale = acc_t(1) / total
                for i in range(x.shape[1]):
                    y[o, i, c] = math.exp(acc_t(x[o, i, c]) - top) * scale

    return softmax_strided


@functools.cache
def split_sums(acc_t, block: int):
    """Block `block`, grid (rows * parts,); x (rows, n); tops and totals (rows, parts): of `span`
    elements the maximum, and the sum of exp(x - maximum)."""
    sum_of, max_of, shared = steps(block)

    @cuda.jit
    def softmax_split_sums(x, tops, totals, span):
        partial = cuda.shared.array(shared, acc_t)
        parts = tops.shape[1]
        t, row, part = cuda.threadIdx.x, cuda.blockIdx.x // parts, cuda.blockIdx.x % parts
        last = min((part + 1) * span, x.shape[1])
        own_top, own = acc_t(LOWEST), acc_t(0)
        for i in range(part * span + t, last, block):
            v = acc_t(x[row, i])
            if v > own_top:
                own = own * math.exp(own_top - v) + acc_t(1)
                own_top = v
            elif v != acc_t(LOWEST):
                own += math.exp(v - own_top)
        top = max_of(own_top, partial)
        if own_top > acc_t(LOWEST):
            own *= math.exp(own_top - top)
        total = sum_of(own, partial)
        if t == 0:
            tops[row, part] = top
            totals[row, part] = total

    return softmax_split_sums


@functools.cache
def split(acc_t, log: bool, block: int):
    """Block `block`, grid (rows * parts,): the result, by what `split_sums` wrote."""
    sum_of, max_of, shared = steps(block)

    @cuda.jit
    def softmax_split(x, tops, totals, y, span):
        partial = cuda.shared.array(shared, acc_t)
        parts = tops.shape[1]
        t, row, part = cuda.threadIdx.x, cuda.blockIdx.x // parts, cuda.blockIdx.x % parts
        last = min((part + 1) * span, x.shape[1])
        top = acc_t(LOWEST)
        for p in range(t, parts, block):
            top = max(top, tops[row, p])
        top = max_of(top, partial)
        total = acc_t(0)
        for p in range(t, parts, block):
            total += totals[row, p] * math.exp(tops[row, p] - top)
        total = sum_of(total, partial)
        if log:
            lse = math.log(total)
            for i in range(part * span + t, last, block):
                y[row, i] = (acc_t(x[row, i]) - top) - lse
        else:
            scale = acc_t(1) / total
            for i in range(part * span + t, last, block):
                y[row, i] = math.exp(acc_t(x[row, i]) - top) * scale

    return softmax_split


@functools.cache
def block_backward(acc_t, log: bool, block: int):
    """Block `block`, grid (rows,): dx = y (g - sum(g y)), for the logarithm g - exp(y) sum(g)."""
    sum_of, _, shared = steps(block)

    @cuda.jit
    def softmax_block_backward(g, y, dx):
        partial = cuda.shared.array(shared, acc_t)
        t, row, n = cuda.threadIdx.x, cuda.blockIdx.x, g.shape[1]
        total = acc_t(0)
        for i in range(t, n, block):
            total += acc_t(g[row, i]) if log else acc_t(g[row, i]) * acc_t(y[row, i])
        total = sum_of(total, partial)
        for i in range(t, n, block):
            gv, yv = acc_t(g[row, i]), acc_t(y[row, i])
            dx[row, i] = gv - math.exp(yv) * total if log else yv * (gv - total)

    return softmax_block_backward


@functools.cache
def warp_backward(acc_t, log: bool):
    """Block (32, 8): a warp per row."""

    @cuda.jit
    def softmax_warp_backward(g, y, dx):
        lane, n = cuda.threadIdx.x, g.shape[1]
        row = cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y
        if row >= g.shape[0]:
            return
        total = acc_t(0)
        for i in range(lane, n, 32):
            total += acc_t(g[row, i]) if log else acc_t(g[row, i]) * acc_t(y[row, i])
        total = warp_sum(total)
        for i in range(lane, n, 32):
            gv, yv = acc_t(g[row, i]), acc_t(y[row, i])
            dx[row, i] = gv - math.exp(yv) * total if log else yv * (gv - total)

    return softmax_warp_backward


@functools.cache
def strided_backward(acc_t, log: bool):
    """A thread per row; arrays (outer, n, inner), grid (outer, tiles of inner)."""

    @cuda.jit
    def softmax_strided_backward(g, y, dx):
        o = cuda.blockIdx.x
        c = cuda.blockIdx.y * cuda.blockDim.x + cuda.threadIdx.x
        if c < g.shape[2]:
            total = acc_t(0)
            for i in range(g.shape[1]):
                gv = acc_t(g[o, i, c])
                total += gv if log else gv * acc_t(y[o, i, c])
            for i in range(g.shape[1]):
                gv, yv = acc_t(g[o, i, c]), acc_t(y[o, i, c])
                dx[o, i, c] = gv - math.exp(yv) * total if log else yv * (gv - total)

    return softmax_strided_backward


@functools.cache
def split_sums_backward(acc_t, log: bool, block: int):
    """Block `block`, grid (rows * parts,); sums (rows, parts): of g y, for the logarithm of g, over
    `span` elements."""
    sum_of, _, shared = steps(block)

    @cuda.jit
    def softmax_split_sums_backward(g, y, sums, span):
        partial = cuda.shared.array(shared, acc_t)
        parts = sums.shape[1]
        t, row, part = cuda.threadIdx.x, cuda.blockIdx.x // parts, cuda.blockIdx.x % parts
        last = min((part + 1) * span, g.shape[1])
        total = acc_t(0)
        for i in range(part * span + t, last, block):
            total += acc_t(g[row, i]) if log else acc_t(g[row, i]) * acc_t(y[row, i])
        total = sum_of(total, partial)
        if t == 0:
            sums[row, part] = total

    return softmax_split_sums_backward


@functools.cache
def split_backward(acc_t, log: bool, block: int):
    """Block `block`, grid (rows * parts,): dx, by what `split_sums_backward` wrote."""
    sum_of, _, shared = steps(block)

    @cuda.jit
    def softmax_split_backward(g, y, sums, dx, span):
        partial = cuda.shared.array(shared, acc_t)
        parts = sums.shape[1]
        t, row, part = cuda.threadIdx.x, cuda.blockIdx.x // parts, cuda.blockIdx.x % parts
        last = min((part + 1) * span, g.shape[1])
        total = acc_t(0)
        for p in range(t, parts, block):
            total += sums[row, p]
        total = sum_of(total, partial)
        for i in range(part * span + t, last, block):
            gv, yv = acc_t(g[row, i]), acc_t(y[row, i])
            dx[row, i] = gv - math.exp(yv) * total if log else yv * (gv - total)

    return softmax_split_backward


def shuffles_pay(gpu: bool) -> bool:
    """Whether the versions with shuffles are faster for short rows: not on CPUs, where the trees in
    shared memory become vector code."""
    return gpu
