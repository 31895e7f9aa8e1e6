"""Batch normalisation of x (N, C, ...) per channel, with its gradient, and that of group norm.

y = (x - mean) * invstd * weight + bias. About 8 operations per element forward and 12 backward; at
least x read twice and y written once (the statistics must be complete before the first result).

    statistics  mean and 1 / sqrt(variance + eps) of a channel: two passes (the second sums squares
                of differences from the mean, which does not cancel)
    apply       one thread per element
    sums        backward: sum(g) and sum(g * xhat) of a channel
    gradient    backward: one thread per element

`planes`: a block per channel, threads along the plane of one image, for x (N, C, S) with S > 1.
`columns`: threads along the channels, for x (N, C), where a channel is a column.
`groups`: the gradient of group norm, a block per group of an image and a warp per channel: each
channel's sums are those that its parameters need, and weighted they are the group's.
`split`: few channels leave a GPU idle, so each is shared by several blocks. For the statistics they
write the means and squares of their parts, which are merged by the method of Chan et al. (1979).
"""

from __future__ import annotations

import functools
import math

from kernels.launchers.norm import COLUMN_BLOCK
from kernels.numba_cuda.small_block import tree_sum
from kernels.numba_cuda.softmax import block_sum, warp_sum
from kernels.simt import cuda

OF_PLANES = 1  # elements of a plane that a thread of `apply_planes` and `gradient_planes` takes


@cuda.jit(device=True)
def column_sum(v, partial):
    """The sum over a column of threads, in each of them; `partial` is shared, like the block."""
    tx = cuda.threadIdx.x
    partial[cuda.threadIdx.y, tx] = v
    cuda.syncthreads()
    total = partial[0, tx]
    for i in range(1, partial.shape[0]):
        total += partial[i, tx]
    cuda.syncthreads()
    return total


@functools.cache
def statistics_planes(acc_t, block: int):
    """Block `block`, grid (C,); x (N, C, S), mean and invstd (C,)."""
    warps = block // 32

    @cuda.jit
    def batch_norm_statistics(x, mean, invstd, eps):
        partial = cuda.shared.array(warps, acc_t)
        t, c = cuda.threadIdx.x, cuda.blockIdx.x
        count = acc_t(x.shape[0] * x.shape[2])
        total = acc_t(0)
        for n in range(x.shape[0]):
            for i in range(t, x.shape[2], block):
                total += acc_t(x[n, c, i])
        m = block_sum(total, partial) / count
        total = acc_t(0)
        for n in range(x.shape[0]):
            for i in range(t, x.shape[2], block):
                d = acc_t(x[n, c, i]) - m
                total += d * d
        var = block_sum(total, partial) / count
        if t == 0:
            mean[c] = m
            invstd[c] = acc_t(1) / math.sqrt(var + eps)

    return batch_norm_statistics


@functools.cache
def statistics_columns(acc_t):
    """Block COLUMN_BLOCK, grid (tiles of C,); x (N, C): rows of threads share the images."""
    bx, by = COLUMN_BLOCK

    @cuda.jit
    def batch_norm_statistics_columns(x, mean, invstd, eps):
        partial = cuda.shared.array((by, bx), acc_t)
        tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
        c = cuda.blockIdx.x * bx + tx
        live = c < x.shape[1]
        count = acc_t(x.shape[0])
        total = acc_t(0)
        if live:
            for n in range(ty, x.shape[0], by):
                total += acc_t(x[n, c])
        partial[ty, tx] = total
        cuda.syncthreads()
        total = partial[0, tx]
        for i in range(1, by):
            total += partial[i, tx]
        cuda.syncthreads()
        m = total / count
        total = acc_t(0)
        if live:
            for n in range(ty, x.shape[0], by):
                d = acc_t(x[n, c]) - m
                total += d * d
        partial[ty, tx] = total
        cuda.syncthreads()
        if ty == 0 and live:
            total = partial[0, tx]
            for i in range(1, by):
                total += partial[i, tx]
            mean[c] = m
            invstd[c] = acc_t(1) / math.sqrt(total / count + eps)

    return batch_norm_statistics_columns


@functools.cache
def split_planes(acc_t, block: int):
    """Block `block`, grid (C, parts); x (N, C, S), the elements of each part in sizes (parts,);
    means and sums of squares about them (parts, C)."""
    warps = block // 32

    @cuda.jit
    def batch_norm_split(x, sizes, means, squares, pieces, span):
        partial = cuda.shared.array(warps, acc_t)
        t, c, part = cuda.threadIdx.x, cuda.blockIdx.x, cuda.blockIdx.y
        first = part % pieces * span
        last = min(first + span, x.shape[2])
        step = cuda.gridDim.y // pieces
        total = acc_t(0)
        for n in range(part // pieces, x.shape[0], step):
            for i in range(first + t, last, block):
                total += acc_t(x[n, c, i])
        m = block_sum(total, partial) / sizes[part]
        total = acc_t(0)
        for n in range(part // pieces, x.shape[0], step):
            for i in range(first + t, last, block):
                d = acc_t(x[n, c, i]) - m
                total += d * d
        total = block_sum(total, partial)
        if t == 0:
            means[part, c] = m
            squares[part, c] = total

    return batch_norm_split


@functools.cache
def split_columns(acc_t):
    """Block COLUMN_BLOCK, grid (tiles of C, parts); x (N, C), the others as in `split_planes`."""
    bx, by = COLUMN_BLOCK

    @cuda.jit
    def batch_norm_split_columns(x, sizes, means, squares, pieces, span):
        partial = cuda.shared.array((by, bx), acc_t)
        tx, ty, part = cuda.threadIdx.x, cuda.threadIdx.y, cuda.blockIdx.y
        c = cuda.blockIdx.x * bx + tx
        live = c < x.shape[1]
        first = part * span
        last = min(first + span, x.shape[0])
        total = acc_t(0)
        if live:
            for n in range(first + ty, last, by):
                total += acc_t(x[n, c])
        m = column_sum(total, partial) / sizes[part]
        total = acc_t(0)
        if live:
            for n in range(first + ty, last, by):
                d = acc_t(x[n, c]) - m
                total += d * d
        total = column_sum(total, partial)
        if ty == 0 and live:
            means[part, c] = m
            squares[part, c] = total

    return batch_norm_split_columns


@functools.cache
def merge(acc_t):
    """Block COLUMN_BLOCK, grid (tiles of C,): mean and invstd (C,) of what `split_*` write."""
    bx, by = COLUMN_BLOCK

    @cuda.jit
    def batch_norm_merge(means, squares, sizes, mean, invstd, eps):
        partial = cuda.shared.array((by, bx), acc_t)
        tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
        c = cuda.blockIdx.x * bx + tx
        live = c < means.shape[1]
        count, total = acc_t(0), acc_t(0)
        for p in range(means.shape[0]):
            count += sizes[p]
        if live:
            for p in range(ty, means.shape[0], by):
                total += sizes[p] * means[p, c]
        m = column_sum(total, partial) / count
        total = acc_t(0)
        if live:
            for p in range(ty, means.shape[0], by):
                d = means[p, c] - m
                total += squares[p, c] + sizes[p] * d * d
        total = column_sum(total, partial)
        if ty == 0 and live:
            mean[c] = m
            invstd[c] = acc_t(1) / math.sqrt(total / count + eps)

    return batch_norm_merge


@functools.cache
def apply_planes(acc_t, has_weight: bool, has_bias: bool):
    """Grid (N * C * tiles of S,); x and y (N * C, S)."""

    @cuda.jit
    def batch_norm_apply(x, mean, invstd, weight, bias, y):
        tiles = (x.shape[1] + cuda.blockDim.x - 1) // cuda.blockDim.x
        p = cuda.blockIdx.x // tiles
        i = cuda.blockIdx.x % tiles * cuda.blockDim.x + cuda.threadIdx.x
        if i < x.shape[1]:
            c = p % mean.shape[0]
            scale = acc_t(invstd[c])
            if has_weight:
                scale *= acc_t(weight[c])
            shift = acc_t(bias[c]) if has_bias else acc_t(0)
            y[p, i] = (acc_t(x[p, i]) - acc_t(mean[c])) * scale + shift

    return batch_norm_apply


@functools.cache
def apply_columns(acc_t, has_weight: bool, has_bias: bool):
    """Block COLUMN_BLOCK, grid (tiles of N, tiles of C); x and y (N, C)."""

    @cuda.jit
    def batch_norm_apply_columns(x, mean, invstd, weight, bias, y):
        c = cuda.blockIdx.y * cuda.blockDim.x + cuda.threadIdx.x
        n = cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y
        if n < x.shape[0] and c < x.shape[1]:
            scale = acc_t(invstd[c])
            if has_weight:
                scale *= acc_t(weight[c])
            shift = acc_t(bias[c]) if has_bias else acc_t(0)
            y[n, c] = (acc_t(x[n, c]) - acc_t(mean[c])) * scale + shift

    return batch_norm_apply_columns


@functools.cache
def sums_planes(acc_t, block: int):
    """Block `block`, grid (C,); g and x (N, C, S), dweight and dbias (C,)."""
    warps = block // 32

    @cuda.jit
    def batch_norm_sums(g, x, mean, invstd, dweight, dbias):
        partial = cuda.shared.array(warps, acc_t)
        t, c = cuda.threadIdx.x, cuda.blockIdx.x
        m = acc_t(mean[c])
        plain, scaled = acc_t(0), acc_t(0)
        for n in range(x.shape[0]):
            for i in range(t, x.shape[2], block):
                gv = acc_t(g[n, c, i])
                plain += gv
                scaled += gv * (acc_t(x[n, c, i]) - m)
        plain = block_sum(plain, partial)
        scaled = block_sum(scaled, partial)
        if t == 0:
            dbias[c] = plain
            dweight[c] = scaled * acc_t(invstd[c])

    return batch_norm_sums


@functools.cache
def sums_columns(acc_t):
    """Block COLUMN_BLOCK, grid (tiles of C,); g and x (N, C)."""
    bx, by = COLUMN_BLOCK

    @cuda.jit
    def batch_norm_sums_columns(g, x, mean, invstd, dweight, dbias):
        plain_part = cuda.shared.array((by, bx), acc_t)
        scaled_part = cuda.shared.array((by, bx), acc_t)
        tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
        c = cuda.blockIdx.x * bx + tx
        live = c < x.shape[1]
        plain, scaled = acc_t(0), acc_t(0)
        if live:
            m = acc_t(mean[c])
            for n in range(ty, x.shape[0], by):
                gv = acc_t(g[n, c])
                plain += gv
                scaled += gv * (acc_t(x[n, c]) - m)
        plain_part[ty, tx] = plain
        scaled_part[ty, tx] = scaled
        cuda.syncthreads()
        if ty == 0 and live:
            for i in range(1, by):
                plain += plain_part[i, tx]
                scaled += scaled_part[i, tx]
            dbias[c] = plain
            dweight[c] = scaled * acc_t(invstd[c])

    return batch_norm_sums_columns


@functools.cache
def split_sums_planes(acc_t, block: int):
    """Block `block`, grid (C, parts); g and x (N, C, S), dweight and dbias (parts, C)."""
    warps = block // 32

    @cuda.jit
    def batch_norm_split_sums(g, x, mean, invstd, dweight, dbias, pieces, span):
        partial = cuda.shared.array(warps, acc_t)
        t, c, part = cuda.threadIdx.x, cuda.blockIdx.x, cuda.blockIdx.y
        first = part % pieces * span
        last = min(first + span, x.shape[2])
        step = cuda.gridDim.y // pieces
        m = acc_t(mean[c])
        plain, scaled = acc_t(0), acc_t(0)
        for n in range(part // pieces, x.shape[0], step):
            for i in range(first + t, last, block):
                gv = acc_t(g[n, c, i])
                plain += gv
                scaled += gv * (acc_t(x[n, c, i]) - m)
        plain = block_sum(plain, partial)
        scaled = block_sum(scaled, partial)
        if t == 0:
            dbias[part, c] = plain
            dweight[part, c] = scaled * acc_t(invstd[c])

    return batch_norm_split_sums


@functools.cache
def split_sums_columns(acc_t):
    """Block COLUMN_BLOCK, grid (tiles of C, parts); g and x (N, C), the others (parts, C)."""
    bx, by = COLUMN_BLOCK

    @cuda.jit
    def batch_norm_split_sums_columns(g, x, mean, invstd, dweight, dbias, pieces, span):
        partial = cuda.shared.array((by, bx), acc_t)
        tx, ty, part = cuda.threadIdx.x, cuda.threadIdx.y, cuda.blockIdx.y
        c = cuda.blockIdx.x * bx + tx
        live = c < x.shape[1]
        first = part * span
        last = min(first + span, x.shape[0])
        plain, scaled = acc_t(0), acc_t(0)
        if live:
            m = acc_t(mean[c])
            for n in range(first + ty, last, by):
                gv = acc_t(g[n, c])
                plain += gv
                scaled += gv * (acc_t(x[n, c]) - m)
        plain = column_sum(plain, partial)
        scaled = column_sum(scaled, partial)
        if ty == 0 and live:
            dbias[part, c] = plain
            dweight[part, c] = scaled * acc_t(invstd[c])

    return batch_norm_split_sums_columns


@functools.cache
def gradient_planes(acc_t, has_weight: bool):
    """Grid (N * C * tiles of S,); g, x and dx (N * C, S); count = N * S."""

    @cuda.jit
    def batch_norm_gradient(g, x, mean, invstd, weight, dweight, dbias, count, dx):
        tiles = (x.shape[1] + cuda.blockDim.x - 1) // cuda.blockDim.x
        p = cuda.blockIdx.x // tiles
        i = cuda.blockIdx.x % tiles * cuda.blockDim.x + cuda.threadIdx.x
        if i < x.shape[1]:
            c = p % mean.shape[0]
            inv = acc_t(invstd[c])
            scale = inv * acc_t(weight[c]) if has_weight else inv
            xhat = (acc_t(x[p, i]) - acc_t(mean[c])) * inv
            dx[p, i] = scale * (acc_t(g[p, i]) - (dbias[c] + xhat * dweight[c]) / count)

    return batch_norm_gradient


@functools.cache
def gradient_columns(acc_t, has_weight: bool):
    """Block COLUMN_BLOCK, grid (tiles of N, tiles of C); g, x and dx (N, C); count = N."""

    @cuda.jit
    def batch_norm_gradient_columns(g, x, mean, invstd, weight, dweight, dbias, count, dx):
        c = cuda.blockIdx.y * cuda.blockDim.x + cuda.threadIdx.x
        n = cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y
        if n < x.shape[0] and c < x.shape[1]:
            inv = acc_t(invstd[c])
            scale = inv * acc_t(weight[c]) if has_weight else inv
            xhat = (acc_t(x[n, c]) - acc_t(mean[c])) * inv
            dx[n, c] = scale * (acc_t(g[n, c]) - (dbias[c] + xhat * dweight[c]) / count)

    return batch_norm_gradient_columns


@functools.cache
def group_gradient(acc_t, has_weight: bool, warps: int):
    """Block (32, warps), grid (N * G,); g, x and dx (N * G, D, S) for D channels of a group, mean
    and invstd (N * G,), weight (G, D), dweight and dbias (N * G, D)."""

    @cuda.jit
    def group_norm_gradient(g, x, mean, invstd, weight, dweight, dbias, dx):
        plain_part = cuda.shared.array(warps, acc_t)
        scaled_part = cuda.shared.array(warps, acc_t)
        tree = cuda.shared.array(32, acc_t)
        lane, row = cuda.threadIdx.x, cuda.blockIdx.x
        warp = cuda.threadIdx.y if warps > 1 else 0
        channels, size = x.shape[1], x.shape[2]
        m, inv = acc_t(mean[row]), acc_t(invstd[row])
        plain, scaled = acc_t(0), acc_t(0)
        for d in range(warp, channels, warps):
            own_plain, own_scaled = acc_t(0), acc_t(0)
            for i in range(lane, size, 32):
                gv = acc_t(g[row, d, i])
                own_plain += gv
                own_scaled += gv * (acc_t(x[row, d, i]) - m)
            own_plain = tree_sum(own_plain, tree) if warps == 1 else warp_sum(own_plain)
            own_scaled = tree_sum(own_scaled, tree) if warps == 1 else warp_sum(own_scaled)
            own_scaled *= inv
            if lane == 0:
                dbias[row, d] = own_plain
                dweight[row, d] = own_scaled
            factor = acc_t(weight[row % weight.shape[0], d]) if has_weight else acc_t(1)
            plain += factor * own_plain
            scaled += factor * own_scaled
        if lane == 0:
            plain_part[warp] = plain
            scaled_part[warp] = scaled
        cuda.syncthreads()
        plain, scaled = plain_part[0], scaled_part[0]
        for w in range(1, warps):
            plain += plain_part[w]
            scaled += scaled_part[w]
        count = acc_t(channels * size)
        plain /= count
        scaled /= count
        for d in range(warp, channels, warps):
            factor = acc_t(weight[row % weight.shape[0], d]) if has_weight else acc_t(1)
            for i in range(lane, size, 32):
                xhat = (acc_t(x[row, d, i]) - m) * inv
                dx[row, d, i] = inv * (factor * acc_t(g[row, d, i]) - plain - xhat * scaled)

    return group_norm_gradient
