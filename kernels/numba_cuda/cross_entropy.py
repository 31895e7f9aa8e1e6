"""Cross entropy of logits (N, C) against class indices (N,), fused with log-softmax.

loss[r] = -sum_c q[r, c] log_softmax(logits)[r, c], with q = weight[c] * (smoothing / C, plus
1 - smoothing at the target); rows whose target is `ignore_index` have q = 0. About 3 N C operations
and N C exp; at least the logits read once, and in the backward written once.

    warp   a warp per row: lanes along the classes, shuffles; no softmax is stored. On a CPU, and in
           a block of one warp, sums in shared memory, which the CPU does with vectors
    split  long rows: one or several blocks per row write the sums of their parts, which a second
           launch merges
"""

from __future__ import annotations

import functools
import math

from kernels.numba_cuda.small_block import row_maxima, row_sums
from kernels.numba_cuda.softmax import LOWEST, steps, warp_max, warp_sum
from kernels.simt import cuda


@functools.cache
def forward(acc_t, has_weight: bool, smooth: bool, rows: int, trees: bool):
    """Block (32, rows), grid (row tiles,). trees: sums in shared memory instead of shuffles."""

    @cuda.jit
    def cross_entropy_warp(logits, target, weight, ignore, smoothing, losses, lse):
        tops = cuda.shared.array((rows, 32), acc_t)
        totals = cuda.shared.array((rows, 32), acc_t)
        norms = cuda.shared.array(rows, acc_t)
        lane, warp = cuda.threadIdx.x, cuda.threadIdx.y
        row = cuda.blockIdx.x * rows + warp
        inside = row < logits.shape[0]
        if trees:
            row = min(row, logits.shape[0] - 1)  # the last one again, for the barriers
        elif not inside:
            return
        classes = logits.shape[1]
        top = acc_t(LOWEST)
        for c in range(lane, classes, 32):
            top = max(top, acc_t(logits[row, c]))
        if trees:
            row_maxima(top, tops)
            top = tops[warp, 0]
        else:
            top = warp_max(top)
        total = acc_t(0)
        for c in range(lane, classes, 32):
            total += math.exp(acc_t(logits[row, c]) - top)
        if trees:
            row_sums(total, totals)
            if warp == 0 and lane < rows:  # all logarithms at once
                norms[lane] = tops[lane, 0] + math.log(totals[lane, 0])
            cuda.syncthreads()
            norm = norms[warp]
        else:
            norm = top + math.log(warp_sum(total))
        spread = acc_t(0)
        if smooth:
            for c in range(lane, classes, 32):
                share = acc_t(weight[c]) if has_weight else acc_t(1)
                if share != acc_t(0):
                    spread += share * (norm - acc_t(logits[row, c]))
            if trees:
                row_sums(spread, totals)
                spread = totals[warp, 0]
            else:
                spread = warp_sum(spread)
            spread *= smoothing / acc_t(classes)
        if lane == 0 and inside:
            lse[row] = norm
            hit = target[row]
            loss = acc_t(0)
            if hit != ignore and not 0 <= hit < classes:
                loss = acc_t(math.nan)
            elif hit != ignore:
                share = acc_t(1) - smoothing
                if has_weight:
                    share *= acc_t(weight[hit])
                if share != acc_t(0):
                    loss = share * (norm - acc_t(logits[row, hit]))
                loss += spread
            losses[row] = loss

    return cross_entropy_warp


@functools.cache
def backward(acc_t, has_weight: bool, smooth: bool):
    """Block (32, ROWS), grid (row tiles,): d = g (softmax * sum(q) - q)."""

    @cuda.jit
    def cross_entropy_warp_backward(g, logits, lse, target, weight, ignore, smoothing, d):
        lane = cuda.threadIdx.x
        row = cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y
        if row >= logits.shape[0]:
            return
        classes = logits.shape[1]
        hit = target[row]
        keep = hit != ignore and 0 <= hit < classes
        hit = hit if keep else 0
        gv = acc_t(g[row]) if keep else acc_t(0)
        norm = acc_t(lse[row])
        at_hit = acc_t(1) - smoothing
        if has_weight:
            at_hit *= acc_t(weight[hit])
        total = at_hit
        if smooth:
            if has_weight:
                part = acc_t(0)
                for c in range(lane, classes, 32):
                    part += acc_t(weight[c])
                total += warp_sum(part) * smoothing / acc_t(classes)
            else:
                total += smoothing
        for c in range(lane, classes, 32):
            q = acc_t(0)
            if smooth:
                q = smoothing / acc_t(classes)
                if has_weight:
                    q *= acc_t(weight[c])
            if c == hit:
                q += at_hit
            p = math.exp(acc_t(logits[row, c]) - norm)
            d[row, c] = gv * (p * total - q)

    return cross_entropy_warp_backward


@functools.cache
def split_sums(acc_t, has_weight: bool, smooth: bool, block: int):
    """Block `block`, grid (rows * parts,); parts (4, rows, parts): of `span` logits the maximum,
    the sum of exp(x - maximum), and if `smooth`, the sums of weight * (maximum - x) and of the
    weights. A part that is all -inf counts 0 for its maximum in the differences. hits (rows,): the
    logits of the targets."""
    sum_of, max_of, shared = steps(block)

    @cuda.jit
    def cross_entropy_split_sums(logits, target, weight, parts, hits, span):
        partial = cuda.shared.array(shared, acc_t)
        count = parts.shape[2]
        t, row, part = cuda.threadIdx.x, cuda.blockIdx.x // count, cuda.blockIdx.x % count
        first = part * span
        last = min(first + span, logits.shape[1])
        top = acc_t(LOWEST)
        for c in range(first + t, last, block):
            top = max(top, acc_t(logits[row, c]))
        top = max_of(top, partial)
        base = acc_t(0) if top == acc_t(LOWEST) else top
        total, spread, shares = acc_t(0), acc_t(0), acc_t(0)
        for c in range(first + t, last, block):
            v = acc_t(logits[row, c])
            total += math.exp(v - base)
            if smooth:
                share = acc_t(weight[c]) if has_weight else acc_t(1)
                if share != acc_t(0):
                    spread += share * (base - v)
                shares += share
        total = sum_of(total, partial)
        if smooth:
            spread = sum_of(spread, partial)
            shares = sum_of(shares, partial)
        if t == 0:
            hit = target[row]
            if first <= hit < last:
                hits[row] = acc_t(logits[row, hit])
            parts[0, row, part] = top
            parts[1, row, part] = total
            if smooth:
                parts[2, row, part] = spread
                parts[3, row, part] = shares

    return cross_entropy_split_sums


@functools.cache
def split(acc_t, has_weight: bool, smooth: bool):
    """Block 32, grid (rows,): losses and lse, by what `split_sums` wrote."""

    @cuda.jit
    def cross_entropy_split(target, weight, ignore, smoothing, parts, hits, losses, lse, classes):
        lane, row, count = cuda.threadIdx.x, cuda.blockIdx.x, parts.shape[2]
        top = acc_t(LOWEST)
        for p in range(lane, count, 32):
            top = max(top, parts[0, row, p])
        top = warp_max(top)
        total = acc_t(0)
        for p in range(lane, count, 32):
            total += parts[1, row, p] * math.exp(parts[0, row, p] - top)
        norm = top + math.log(warp_sum(total))
        spread = acc_t(0)
        if smooth:
            for p in range(lane, count, 32):
                own = parts[0, row, p]
                base = acc_t(0) if own == acc_t(LOWEST) else own
                spread += parts[2, row, p]
                if parts[3, row, p] != acc_t(0):
                    spread += parts[3, row, p] * (norm - base)
            spread = warp_sum(spread) * smoothing / acc_t(classes)
        if lane == 0:
            lse[row] = norm
            hit = target[row]
            loss = acc_t(0)
            if hit != ignore and not 0 <= hit < classes:
                loss = acc_t(math.nan)
            elif hit != ignore:
                share = acc_t(1) - smoothing
                if has_weight:
                    share *= acc_t(weight[hit])
                if share != acc_t(0):
                    loss = share * (norm - hits[row])
                loss += spread
            losses[row] = loss

    return cross_entropy_split


@functools.cache
def split_backward(acc_t, has_weight: bool, smooth: bool):
    """Grid (rows * parts,): d of `span` classes; weights (1,) is the sum of all weights."""

    @cuda.jit
    def cross_entropy_split_backward(
        g, logits, lse, target, weight, weights, ignore, smoothing, d, span, parts
    ):
        row, part = cuda.blockIdx.x // parts, cuda.blockIdx.x % parts
        classes = logits.shape[1]
        hit = target[row]
        keep = hit != ignore and 0 <= hit < classes
        hit = hit if keep else 0
        gv = acc_t(g[row]) if keep else acc_t(0)
        norm = acc_t(lse[row])
        at_hit = acc_t(1) - smoothing
        if has_weight:
            at_hit *= acc_t(weight[hit])
        total = at_hit
        if smooth:
            total += weights[0] * smoothing / acc_t(classes) if has_weight else smoothing
        last = min((part + 1) * span, classes)
        for c in range(part * span + cuda.threadIdx.x, last, cuda.blockDim.x):
            q = acc_t(0)
            if smooth:
                q = smoothing / acc_t(classes)
                if has_weight:
                    q *= acc_t(weight[c])
            if c == hit:
                q += at_hit
            p = math.exp(acc_t(logits[row, c]) - norm)
            d[row, c] = gv * (p * total - q)

    return cross_entropy_split_backward
