"""Connectionist temporal classification (Graves et al. 2006): a block per sequence, a thread per
state. About 5 exp and log for each state and step.

The states of n labels are 2 n + 1 symbols: a blank before, between and after. A path begins in one
of the first two states and ends in one of the last two; from step to step it stays, moves on, or
leaps over a symbol between two that differ. Rows of states have two places more, which no path
reaches, so that no state asks whether it has neighbours.

    prefixes  the logarithm of the probability of the paths to each state, and the losses
    links     the symbols; for each label the one before of its class, the last one of each class
    shares    the same from the other end: the part of the paths that pass each state
    collect   a thread per element of the gradient adds the shares of its class, without atomics
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np

from kernels.numba_cuda.common import scalar_type
from kernels.simt import cuda


@functools.cache
def _log_sum(dtype: np.dtype) -> Callable:
    """log(exp(a) + exp(b) + exp(c)), also of -inf."""
    A = scalar_type(dtype)

    @cuda.jit(device=True)
    def log_sum(a, b, c):
        top = max(max(a, b), c)
        top = top if top > A(-math.inf) else A(0)
        return top + math.log(math.exp(a - top) + math.exp(b - top) + math.exp(c - top))

    return log_sum


@functools.cache
def prefixes(dtype: np.dtype) -> Callable:
    """kernel(log_probs, targets, times, lengths, blank, symbols, rows, losses): log_probs
    (T, N, C), targets (N, S), symbols (N, 2 S + 3), rows (N, T, 2 S + 3)."""
    A, log_sum = scalar_type(dtype), _log_sum(dtype)

    @cuda.jit
    def ctc_prefixes(log_probs, targets, times, lengths, blank, symbols, rows, losses):
        n, thread, width = cuda.blockIdx.x, cuda.threadIdx.x, cuda.blockDim.x
        steps, states = times[n], 2 * lengths[n] + 1
        for s in range(thread, states, width):
            symbol = blank if s % 2 == 0 else targets[n, s // 2]
            symbols[n, s + 2] = symbol
            if steps > 0:
                rows[n, 0, s + 2] = A(log_probs[0, n, symbol]) if s < 2 else A(-math.inf)
        if thread < 2:
            symbols[n, thread] = blank
        for t in range(rows.shape[1]):  # what no path reaches
            if thread < 2:
                rows[n, t, thread] = A(-math.inf)
            first = states if t < steps else 0
            for s in range(first + thread, rows.shape[2] - 2, width):
                rows[n, t, s + 2] = A(-math.inf)
        for t in range(1, steps):
            cuda.syncthreads()
            for s in range(thread, states, width):
                symbol = symbols[n, s + 2]
                leap = rows[n, t - 1, s] if symbol != symbols[n, s] else A(-math.inf)
                before = log_sum(rows[n, t - 1, s + 2], rows[n, t - 1, s + 1], leap)
                rows[n, t, s + 2] = before + A(log_probs[t, n, symbol])
        cuda.syncthreads()
        if thread == 0:
            if steps > 0:
                last, other = rows[n, steps - 1, states + 1], rows[n, steps - 1, states]
                losses[n] = -log_sum(last, other, A(-math.inf))
            else:
                losses[n] = A(0) if states == 1 else A(math.inf)

    return ctc_prefixes


@functools.cache
def links() -> Callable:
    """kernel(targets, lengths, blank, symbols, before, heads): targets (N, S), symbols
    (N, 2 S + 3); before (N, S) and heads (N, C) are places in `targets`, or -1."""

    @cuda.jit
    def ctc_links(targets, lengths, blank, symbols, before, heads):
        n, thread, width = cuda.blockIdx.x, cuda.threadIdx.x, cuda.blockDim.x
        length = lengths[n]
        for s in range(thread, 2 * length + 1, width):
            symbols[n, s + 2] = blank if s % 2 == 0 else targets[n, s // 2]
        for c in range(thread, heads.shape[1], width):
            heads[n, c] = -1
        cuda.syncthreads()
        for i in range(thread, length, width):
            label, nearest, last = targets[n, i], -1, True
            for j in range(length):
                if targets[n, j] == label:
                    if j < i:
                        nearest = j
                    elif j > i:
                        last = False
            before[n, i] = nearest
            if last:
                heads[n, label] = i

    return ctc_links


@functools.cache
def shares(dtype: np.dtype) -> Callable:
    """kernel(log_probs, times, lengths, symbols, rows, losses, suffixes, parts): as `prefixes`;
    suffixes (N, 2, 2 S + 3), of this step and the one after, parts as rows."""
    A, log_sum = scalar_type(dtype), _log_sum(dtype)

    @cuda.jit
    def ctc_shares(log_probs, times, lengths, symbols, rows, losses, suffixes, parts):
        n, thread, width = cuda.blockIdx.x, cuda.threadIdx.x, cuda.blockDim.x
        steps, states, loss = times[n], 2 * lengths[n] + 1, losses[n]
        if thread < 2:
            for half in range(2):
                suffixes[n, half, states + thread] = A(-math.inf)
        for back in range(steps):
            t, own, other = steps - 1 - back, back % 2, (back + 1) % 2
            cuda.syncthreads()
            for s in range(thread, states, width):
                symbol = symbols[n, s + 2]
                after = A(0) if s >= states - 2 else A(-math.inf)
                if back > 0:
                    leap = suffixes[n, other, s + 2]
                    if s + 2 >= states or symbol == symbols[n, s + 4]:
                        leap = A(-math.inf)
                    after = log_sum(suffixes[n, other, s], suffixes[n, other, s + 1], leap)
                suffixes[n, own, s] = after + A(log_probs[t, n, symbol])
                parts[n, t, s] = math.exp(rows[n, t, s + 2] + after + loss)

    return ctc_shares


@functools.cache
def collect(dtype: np.dtype) -> Callable:
    """kernel(g, log_probs, times, lengths, blank, before, heads, losses, parts, spared, d): d like
    log_probs. spared: whether a sequence that has no path has no gradient, either."""
    A = scalar_type(dtype)

    @cuda.jit
    def ctc_collect(g, log_probs, times, lengths, blank, before, heads, losses, parts, spared, d):
        c = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
        n, t = cuda.blockIdx.y, cuda.blockIdx.z
        if c < d.shape[2]:
            value = A(0)
            if losses[n] == A(math.inf):
                if not spared and t < times[n]:
                    value = A(math.nan)
            elif t < times[n]:
                value = math.exp(A(log_probs[t, n, c]))
                if c == blank:
                    for i in range(lengths[n] + 1):
                        value -= parts[n, t, 2 * i]
                i = heads[n, c]
                while i >= 0:
                    value -= parts[n, t, 2 * i + 1]
                    i = before[n, i]
                value *= A(g[n])
            d[t, n, c] = value

    return ctc_collect
