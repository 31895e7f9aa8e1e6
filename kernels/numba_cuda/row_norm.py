"""Layer norm and RMS norm: each row of x (rows, n) by its own statistics, and their gradients.

y = (x - mean) * invstd * weight + bias, invstd = 1 / sqrt(variance + eps); RMS norm has no mean and
no bias. About 8 operations per element forward and 14 backward; at least x read and y written once,
backward g and x read and dx written, and both read once more for the sums over all rows.

1. online     a block per row: mean and squares in one pass (Welford, 1962); x is read twice
2. one_read   the row is kept in shared memory: read once; up to ROW_IN_SHARED elements
3. warp       short rows: a warp per row, elements in registers, shuffles instead of barriers
4. split      few long rows: several blocks per row write the mean and squares of their parts; a
              second launch merges them, and reads x again for the result
   thread     many rows of a few elements on a CPU: a thread per row. x and y lie in transposed
              copies, in which the elements that neighbouring threads read are neighbours
Gradient of x: `split` and `thread` likewise; `block` reads g and x twice, `warp` keeps them in
registers. Those of weight and bias: a column of threads sums some of the rows, and a reduction adds
these sums.
On the CPU a block is a warp that sums in shared memory: the loops of its tree become vector code.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from kernels.launchers.common import SMALL_BLOCK
from kernels.launchers.row_norm import ROW_IN_SHARED
from kernels.numba_cuda.small_block import tree_sum
from kernels.numba_cuda.softmax import block_sum, warp_sum
from kernels.simt import cuda


def _total(block: int):
    """A device function that sums over a block, and the size of the shared array that it needs."""
    return (tree_sum, block) if block == SMALL_BLOCK else (block_sum, block // 32)


ONE, INFINITY = np.float32(1), np.float32(math.inf)  # the result has the type of the argument


@cuda.jit(device=True)
def inverse_root(variance, centred):
    """1 / sqrt(variance). Squares that overflow give NaN in layer norm: with 0, the row would be
    zeros, which look like a result."""
    inv = ONE / math.sqrt(variance)
    return inv * INFINITY if centred and inv == 0 else inv


@functools.cache
def online(acc_t, centred: bool, has_weight: bool, has_bias: bool, block: int):
    """Block `block`, grid (rows,). The threads' means and squares are merged by the method of Chan
    et al. (1979)."""
    total_of, shared = _total(block)

    @cuda.jit
    def row_norm_online(x, weight, bias, mean, invstd, y, eps):
        partial = cuda.shared.array(shared, acc_t)
        t, row, n = cuda.threadIdx.x, cuda.blockIdx.x, x.shape[1]
        count, own, squares = acc_t(0), acc_t(0), acc_t(0)
        for i in range(t, n, block):
            v = acc_t(x[row, i])
            if centred:
                count += acc_t(1)
                d = v - own
                own += d / count
                squares += d * (v - own)
            else:
                squares += v * v
        m = acc_t(0)
        if centred:
            m = total_of(count * own, partial) / acc_t(n)
            squares += count * (own - m) * (own - m)
        inv = inverse_root(total_of(squares, partial) / acc_t(n) + eps, centred)
        if t == 0:
            if centred:
                mean[row] = m
            invstd[row] = inv
        for i in range(t, n, block):
            v = (acc_t(x[row, i]) - m) * inv
            if has_weight:
                v *= acc_t(weight[i])
            y[row, i] = v + acc_t(bias[i]) if has_bias else v

    return row_norm_online


@functools.cache
def one_read(acc_t, centred: bool, has_weight: bool, has_bias: bool, block: int):
    """Block `block`, grid (rows,), n <= ROW_IN_SHARED."""
    total_of, shared = _total(block)

    @cuda.jit
    def row_norm_one_read(x, weight, bias, mean, invstd, y, eps):
        partial = cuda.shared.array(shared, acc_t)
        values = cuda.shared.array(ROW_IN_SHARED, acc_t)
        t, row, n = cuda.threadIdx.x, cuda.blockIdx.x, x.shape[1]
        total = acc_t(0)
        for i in range(t, n, block):
            v = acc_t(x[row, i])
            values[i] = v
            total += v
        m = acc_t(0)
        if centred:
            m = total_of(total, partial) / acc_t(n)
        total = acc_t(0)
        for i in range(t, n, block):
            d = values[i] - m
            total += d * d
        inv = inverse_root(total_of(total, partial) / acc_t(n) + eps, centred)
        if t == 0:
            if centred:
                mean[row] = m
            invstd[row] = inv
        for i in range(t, n, block):
            v = (values[i] - m) * inv
            if has_weight:
                v *= acc_t(weight[i])
            y[row, i] = v + acc_t(bias[i]) if has_bias else v

    return row_norm_one_read


@functools.cache
def warp(acc_t, centred: bool, has_weight: bool, has_bias: bool, held: int):
    """Block (32, rows): a warp per row, `held` elements per lane; n <= 32 * held."""

    @cuda.jit
    def row_norm_warp(x, weight, bias, mean, invstd, y, eps):
        values = cuda.local.array(held, acc_t)
        lane = cuda.threadIdx.x
        row = cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y
        if row >= x.shape[0]:
            return
        n = x.shape[1]
        total = acc_t(0)
        for i in range(held):
            at = i * 32 + lane
            values[i] = acc_t(x[row, at]) if at < n else acc_t(0)
            total += values[i]
        m = acc_t(0)
        if centred:
            m = warp_sum(total) / acc_t(n)
        total = acc_t(0)
        for i in range(held):
            d = values[i] - m if i * 32 + lane < n else acc_t(0)
            total += d * d
        inv = inverse_root(warp_sum(total) / acc_t(n) + eps, centred)
        if lane == 0:
            if centred:
                mean[row] = m
            invstd[row] = inv
        for i in range(held):
            at = i * 32 + lane
            if at < n:
                v = (values[i] - m) * inv
                if has_weight:
                    v *= acc_t(weight[at])
                y[row, at] = v + acc_t(bias[at]) if has_bias else v

    return row_norm_warp


@functools.cache
def thread(acc_t, centred: bool, has_weight: bool, has_bias: bool, n: int):
    """x and y (n, rows): a thread keeps a row of n elements in registers."""

    @cuda.jit
    def row_norm_thread(x, weight, bias, mean, invstd, y, eps):
        values = cuda.local.array(n, acc_t)
        row = cuda.grid(1)
        if row >= x.shape[1]:
            return
        total = acc_t(0)
        for i in range(n):
            values[i] = acc_t(x[i, row])
            total += values[i]
        m = total / acc_t(n) if centred else acc_t(0)
        total = acc_t(0)
        for i in range(n):
            d = values[i] - m
            total += d * d
        inv = inverse_root(total / acc_t(n) + eps, centred)
        if centred:
            mean[row] = m
        invstd[row] = inv
        for i in range(n):
            v = (values[i] - m) * inv
            if has_weight:
                v *= acc_t(weight[i])
            y[i, row] = v + acc_t(bias[i]) if has_bias else v

    return row_norm_thread


@functools.cache
def split_sums(acc_t, centred: bool, block: int):
    """Block `block`, grid (rows * parts,); means and squares (rows, parts): of `span` elements the
    mean and the squares of the distances from it, or of the elements if not `centred`."""
    total_of, shared = _total(block)

    @cuda.jit
    def row_norm_split_sums(x, means, squares, span):
        partial = cuda.shared.array(shared, acc_t)
        parts = means.shape[1]
        t, row, part = cuda.threadIdx.x, cuda.blockIdx.x // parts, cuda.blockIdx.x % parts
        first = part * span
        last = min(first + span, x.shape[1])
        m = acc_t(0)
        if centred:
            total = acc_t(0)
            for i in range(first + t, last, block):
                total += acc_t(x[row, i])
            m = total_of(total, partial) / acc_t(last - first)
        total = acc_t(0)
        for i in range(first + t, last, block):
            d = acc_t(x[row, i]) - m
            total += d * d
        total = total_of(total, partial)
        if t == 0:
            means[row, part] = m
            squares[row, part] = total

    return row_norm_split_sums


@functools.cache
def split(acc_t, centred: bool, has_weight: bool, has_bias: bool, block: int):
    """Block `block`, grid (rows * parts,): statistics and result, by what `split_sums` wrote."""
    total_of, shared = _total(block)

    @cuda.jit
    def row_norm_split(x, weight, bias, means, squares, mean, invstd, y, eps, span):
        partial = cuda.shared.array(shared, acc_t)
        parts, n = means.shape[1], x.shape[1]
        t, row, part = cuda.threadIdx.x, cuda.blockIdx.x // parts, cuda.blockIdx.x % parts
        m = acc_t(0)
        if centred:
            total = acc_t(0)
            for p in range(t, parts, block):
                total += means[row, p] * acc_t(min(span, n - p * span))
            m = total_of(total, partial) / acc_t(n)
        total = acc_t(0)
        for p in range(t, parts, block):
            total += squares[row, p]
            if centred:
                d = means[row, p] - m
                total += d * d * acc_t(min(span, n - p * span))
        inv = inverse_root(total_of(total, partial) / acc_t(n) + eps, centred)
        if t == 0 and part == 0:
            if centred:
                mean[row] = m
            invstd[row] = inv
        last = min((part + 1) * span, n)
        for i in range(part * span + t, last, block):
            v = (acc_t(x[row, i]) - m) * inv
            if has_weight:
                v *= acc_t(weight[i])
            y[row, i] = v + acc_t(bias[i]) if has_bias else v

    return row_norm_split


@functools.cache
def split_sums_backward(acc_t, centred: bool, has_weight: bool, block: int):
    """Block `block`, grid (rows * parts,); plain and scaled (rows, parts): of `span` elements the
    sums of g * weight, and of that times x - mean."""
    total_of, shared = _total(block)

    @cuda.jit
    def row_norm_split_sums_backward(g, x, mean, weight, plain, scaled, span):
        partial = cuda.shared.array(shared, acc_t)
        parts = plain.shape[1]
        t, row, part = cuda.threadIdx.x, cuda.blockIdx.x // parts, cuda.blockIdx.x % parts
        m = acc_t(mean[row]) if centred else acc_t(0)
        last = min((part + 1) * span, g.shape[1])
        own_plain, own_scaled = acc_t(0), acc_t(0)
        for i in range(part * span + t, last, block):
            gv = acc_t(g[row, i])
            if has_weight:
                gv *= acc_t(weight[i])
            own_plain += gv
            own_scaled += gv * (acc_t(x[row, i]) - m)
        own_plain = total_of(own_plain, partial)
        own_scaled = total_of(own_scaled, partial)
        if t == 0:
            plain[row, part] = own_plain
            scaled[row, part] = own_scaled

    return row_norm_split_sums_backward


@functools.cache
def split_backward(acc_t, centred: bool, has_weight: bool, block: int):
    """Block `block`, grid (rows * parts,): dx, by what `split_sums_backward` wrote."""
    total_of, shared = _total(block)

    @cuda.jit
    def row_norm_split_backward(g, x, mean, invstd, weight, plain, scaled, dx, span):
        partial = cuda.shared.array(shared, acc_t)
        parts, n = plain.shape[1], g.shape[1]
        t, row, part = cuda.threadIdx.x, cuda.blockIdx.x // parts, cuda.blockIdx.x % parts
        m = acc_t(mean[row]) if centred else acc_t(0)
        inv = acc_t(invstd[row])
        less, slope = acc_t(0), acc_t(0)
        for p in range(t, parts, block):
            less += plain[row, p]
            slope += scaled[row, p]
        less = total_of(less, partial) / acc_t(n)
        slope = total_of(slope, partial) * inv * inv / acc_t(n)
        last = min((part + 1) * span, n)
        for i in range(part * span + t, last, block):
            gv = acc_t(g[row, i])
            if has_weight:
                gv *= acc_t(weight[i])
            if centred:
                gv -= less
            dx[row, i] = inv * (gv - (acc_t(x[row, i]) - m) * slope)

    return row_norm_split_backward


@functools.cache
def block_backward(acc_t, centred: bool, has_weight: bool, block: int):
    """Block `block`, grid (rows,): dx of a row whose elements are read twice."""
    total_of, shared = _total(block)

    @cuda.jit
    def row_norm_block_backward(g, x, mean, invstd, weight, dx):
        partial = cuda.shared.array(shared, acc_t)
        t, row, n = cuda.threadIdx.x, cuda.blockIdx.x, g.shape[1]
        m = acc_t(mean[row]) if centred else acc_t(0)
        inv = acc_t(invstd[row])
        plain, scaled = acc_t(0), acc_t(0)
        for i in range(t, n, block):
            gv = acc_t(g[row, i])
            if has_weight:
                gv *= acc_t(weight[i])
            plain += gv
            scaled += gv * (acc_t(x[row, i]) - m)
        if centred:
            plain = total_of(plain, partial) / acc_t(n)
        scaled = total_of(scaled, partial) * inv * inv / acc_t(n)
        for i in range(t, n, block):
            gv = acc_t(g[row, i])
            if has_weight:
                gv *= acc_t(weight[i])
            if centred:
                gv -= plain
            dx[row, i] = inv * (gv - (acc_t(x[row, i]) - m) * scaled)

    return row_norm_block_backward


@functools.cache
def warp_backward(acc_t, centred: bool, has_weight: bool, held: int):
    """Block (32, rows): dx of a warp's row, g * weight and xhat in registers; n <= 32 * held."""

    @cuda.jit
    def row_norm_warp_backward(g, x, mean, invstd, weight, dx):
        grads = cuda.local.array(held, acc_t)
        xhat = cuda.local.array(held, acc_t)
        lane = cuda.threadIdx.x
        row = cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y
        if row >= g.shape[0]:
            return
        n = g.shape[1]
        m = acc_t(mean[row]) if centred else acc_t(0)
        inv = acc_t(invstd[row])
        plain, scaled = acc_t(0), acc_t(0)
        for i in range(held):
            at = i * 32 + lane
            gv, xv = acc_t(0), acc_t(0)
            if at < n:
                gv = acc_t(g[row, at])
                xv = (acc_t(x[row, at]) - m) * inv
                if has_weight:
                    gv *= acc_t(weight[at])
            grads[i] = gv
            xhat[i] = xv
            plain += gv
            scaled += gv * xv
        if centred:
            plain = warp_sum(plain) / acc_t(n)
        scaled = warp_sum(scaled) / acc_t(n)
        for i in range(held):
            at = i * 32 + lane
            if at < n:
                gv = grads[i] - plain if centred else grads[i]
                dx[row, at] = inv * (gv - xhat[i] * scaled)

    return row_norm_warp_backward


@functools.cache
def thread_backward(acc_t, centred: bool, has_weight: bool, affine: bool, n: int):
    """As `thread`: dx, and if `affine` the terms (n, rows) of which dweight is the sum."""

    @cuda.jit
    def row_norm_thread_backward(g, x, mean, invstd, weight, dx, terms):
        grads = cuda.local.array(n, acc_t)
        xhat = cuda.local.array(n, acc_t)
        row = cuda.grid(1)
        if row >= g.shape[1]:
            return
        m = acc_t(mean[row]) if centred else acc_t(0)
        inv = acc_t(invstd[row])
        plain, scaled = acc_t(0), acc_t(0)
        for i in range(n):
            gv = acc_t(g[i, row])
            xhat[i] = (acc_t(x[i, row]) - m) * inv
            if affine:
                terms[i, row] = gv * xhat[i]
            if has_weight:
                gv *= acc_t(weight[i])
            grads[i] = gv
            plain += gv
            scaled += gv * xhat[i]
        plain = plain / acc_t(n) if centred else acc_t(0)
        scaled /= acc_t(n)
        for i in range(n):
            dx[i, row] = inv * (grads[i] - plain - xhat[i] * scaled)

    return row_norm_thread_backward


@functools.cache
def parameter_sums(acc_t, centred: bool, shape: tuple[int, int]):
    """Block `shape`, grid (tiles of n, parts): dweight and dbias (parts, n), each of some rows."""
    bx, by = shape

    @cuda.jit
    def row_norm_parameter_sums(g, x, mean, invstd, dweight, dbias):
        weight_part = cuda.shared.array((by, bx), acc_t)
        bias_part = cuda.shared.array((by, bx), acc_t)
        tx, ty, part = cuda.threadIdx.x, cuda.threadIdx.y, cuda.blockIdx.y
        c = cuda.blockIdx.x * bx + tx
        rows = -(-g.shape[0] // cuda.gridDim.y)
        last = min(g.shape[0], (part + 1) * rows)
        live = c < g.shape[1]
        plain, scaled = acc_t(0), acc_t(0)
        if live:
            for row in range(part * rows + ty, last, by):
                gv = acc_t(g[row, c])
                xv = acc_t(x[row, c])
                if centred:
                    plain += gv
                    xv -= acc_t(mean[row])
                scaled += gv * xv * acc_t(invstd[row])
        weight_part[ty, tx] = scaled
        bias_part[ty, tx] = plain
        cuda.syncthreads()
        if ty == 0 and live:
            for i in range(1, by):
                scaled += weight_part[i, tx]
                plain += bias_part[i, tx]
            dweight[part, c] = scaled
            if centred:
                dbias[part, c] = plain

    return row_norm_parameter_sums
