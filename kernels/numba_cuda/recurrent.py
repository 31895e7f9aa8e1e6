"""Recurrent layers (RNN, LSTM, GRU) over a sequence, one direction, and their gradients.

The gates of step t are x[t] + h @ weight.T + bias, where x (T, B, gates * H) has the input's part
for all steps. 2 gates H H floating-point operations per sequence and step, forward and backward;
the weight, gates * H * H elements, is used in every step, after the step before: latency counts
more than memory.

1. gates     per step a product, a kernel for each gate and one for the state
2. cell      per step a product, and one kernel for all gates of all sequences
3. sequence  one launch: a block has some sequences, whose state stays in shared memory from step to
             step; no block waits for another, since sequences do not depend on each other
Backward the same with the last step first; it has no version `gates`.

states (1 or 2, T + 1, B, H) has h, and c for "lstm"; gates (T, B, 4 * H) what the gradients need:
i, f, g, o of "lstm"; r, z, n and the product's part of n for "gru". sizes (T,): how many sequences
have a step t; the others keep their state.
"""

from __future__ import annotations

import functools
import math

from kernels.launchers.recurrent import GATES
from kernels.simt import cuda


@functools.cache
def _advance(acc_t, mode: str):
    """A device function: one unit of one sequence takes a step, from the sums of its gates'
    products (the first ones of p0 .. p3). Returns the new h."""

    @cuda.jit(device=True)
    def sigmoid(v):
        return acc_t(1) / (acc_t(1) + math.exp(-v))

    @cuda.jit(device=True)
    def advance(x, states, gates, t, b, j, p0, p1, p2, p3):
        h = states.shape[3]
        if mode == "lstm":
            i = sigmoid(acc_t(x[t, b, j]) + p0)
            f = sigmoid(acc_t(x[t, b, h + j]) + p1)
            g = math.tanh(acc_t(x[t, b, 2 * h + j]) + p2)
            o = sigmoid(acc_t(x[t, b, 3 * h + j]) + p3)
            c = f * acc_t(states[1, t, b, j]) + i * g
            states[1, t + 1, b, j] = c
            gates[t, b, j] = i
            gates[t, b, h + j] = f
            gates[t, b, 2 * h + j] = g
            gates[t, b, 3 * h + j] = o
            new = o * math.tanh(c)
        elif mode == "gru":
            r = sigmoid(acc_t(x[t, b, j]) + p0)
            z = sigmoid(acc_t(x[t, b, h + j]) + p1)
            n = math.tanh(acc_t(x[t, b, 2 * h + j]) + r * p2)
            gates[t, b, j] = r
            gates[t, b, h + j] = z
            gates[t, b, 2 * h + j] = n
            gates[t, b, 3 * h + j] = p2
            new = (acc_t(1) - z) * n + z * acc_t(states[0, t, b, j])
        elif mode == "relu":
            new = max(acc_t(x[t, b, j]) + p0, acc_t(0))
        else:
            new = math.tanh(acc_t(x[t, b, j]) + p0)
        states[0, t + 1, b, j] = new
        return new

    return advance


@functools.cache
def _retreat(acc_t, mode: str):
    """A device function: the gradients of the gates of one unit from those of its h and c after the
    step. Returns d0 .. d3, of the product's gates, what of dh goes past the product, and dc."""

    @cuda.jit(device=True)
    def retreat(states, gates, dx, t, b, j, dh, dc):
        h, one = states.shape[3], acc_t(1)
        d1, d2, d3, past = acc_t(0), acc_t(0), acc_t(0), acc_t(0)
        if mode == "lstm":
            i, f = acc_t(gates[t, b, j]), acc_t(gates[t, b, h + j])
            g, o = acc_t(gates[t, b, 2 * h + j]), acc_t(gates[t, b, 3 * h + j])
            bounded = math.tanh(acc_t(states[1, t + 1, b, j]))
            dc += dh * o * (one - bounded * bounded)
            d0 = dc * g * i * (one - i)
            d1 = dc * acc_t(states[1, t, b, j]) * f * (one - f)
            d2 = dc * i * (one - g * g)
            d3 = dh * bounded * o * (one - o)
            dc *= f
            dx[t, b, h + j] = d1
            dx[t, b, 2 * h + j] = d2
            dx[t, b, 3 * h + j] = d3
        elif mode == "gru":
            r, z = acc_t(gates[t, b, j]), acc_t(gates[t, b, h + j])
            n, q = acc_t(gates[t, b, 2 * h + j]), acc_t(gates[t, b, 3 * h + j])
            dn = dh * (one - z) * (one - n * n)
            d0 = dn * q * r * (one - r)
            d1 = dh * (acc_t(states[0, t, b, j]) - n) * z * (one - z)
            d2 = dn * r
            past = dh * z
            dx[t, b, h + j] = d1
            dx[t, b, 2 * h + j] = dn
        elif mode == "relu":
            d0 = dh if acc_t(states[0, t + 1, b, j]) > acc_t(0) else acc_t(0)
        else:
            y = acc_t(states[0, t + 1, b, j])
            d0 = dh * (one - y * y)
        dx[t, b, j] = d0
        return d0, d1, d2, d3, past, dc

    return retreat


@functools.cache
def cell(acc_t, mode: str):
    """Block (threads along H,), grid (blocks along H, B): the gates of step t from their products
    (B, gates * H)."""
    advance, parts = _advance(acc_t, mode), GATES[mode]

    @cuda.jit
    def recurrent_cell(x, product, sizes, states, gates, t):
        j, b, h = cuda.grid(2)[0], cuda.blockIdx.y, states.shape[3]
        size = sizes[t]
        if j >= h:
            return
        if b < size:
            p0 = acc_t(product[b, j])
            p1 = acc_t(product[b, h + j]) if parts > 1 else acc_t(0)
            p2 = acc_t(product[b, 2 * h + j]) if parts > 2 else acc_t(0)
            p3 = acc_t(product[b, 3 * h + j]) if parts > 3 else acc_t(0)
            advance(x, states, gates, t, b, j, p0, p1, p2, p3)
        else:
            states[0, t + 1, b, j] = states[0, t, b, j]
            if mode == "lstm":
                states[1, t + 1, b, j] = states[1, t, b, j]

    return recurrent_cell


@functools.cache
def gate(acc_t, mode: str, part: int):
    """Block and grid of `cell`: gate `part` of step t of "lstm" or "gru"."""
    bounded = part == 2

    @cuda.jit
    def recurrent_gate(x, product, sizes, gates, t):
        j, b, h = cuda.grid(2)[0], cuda.blockIdx.y, gates.shape[2] // 4
        size = sizes[t]
        if j >= h or b >= size:
            return
        v = acc_t(product[b, part * h + j])
        if mode == "gru" and bounded:
            gates[t, b, 3 * h + j] = v
            v *= acc_t(gates[t, b, j])
        v += acc_t(x[t, b, part * h + j])
        gates[t, b, part * h + j] = (
            math.tanh(v) if bounded else acc_t(1) / (acc_t(1) + math.exp(-v))
        )

    return recurrent_gate


@functools.cache
def update(acc_t, mode: str):
    """Block and grid of `cell`: the states after step t from its gates."""

    @cuda.jit
    def recurrent_update(sizes, states, gates, t):
        j, b, h = cuda.grid(2)[0], cuda.blockIdx.y, states.shape[3]
        size = sizes[t]
        if j >= h:
            return
        new = acc_t(states[0, t, b, j])
        if b < size:
            if mode == "lstm":
                i, f = acc_t(gates[t, b, j]), acc_t(gates[t, b, h + j])
                c = f * acc_t(states[1, t, b, j]) + i * acc_t(gates[t, b, 2 * h + j])
                states[1, t + 1, b, j] = c
                new = acc_t(gates[t, b, 3 * h + j]) * math.tanh(c)
            else:
                z, n = acc_t(gates[t, b, h + j]), acc_t(gates[t, b, 2 * h + j])
                new = (acc_t(1) - z) * n + z * new
        elif mode == "lstm":
            states[1, t + 1, b, j] = states[1, t, b, j]
        states[0, t + 1, b, j] = new

    return recurrent_update


@functools.cache
def sequence(acc_t, mode: str, rows: int, width: int, has_bias: bool):
    """Block (width,) with H <= width, grid (blocks of `rows` sequences,); weight (H, gates * H)."""
    advance, parts = _advance(acc_t, mode), GATES[mode]

    @cuda.jit
    def recurrent_sequence(x, weight, bias, sizes, states, gates):
        near = cuda.shared.array((rows, width), acc_t)
        acc = cuda.local.array((rows, 4), acc_t)
        j, first = cuda.threadIdx.x, cuda.blockIdx.x * rows
        steps, batch, h = x.shape[0], x.shape[1], states.shape[3]
        for r in range(rows):
            inside = j < h and first + r < batch
            near[r, j] = acc_t(states[0, 0, first + r, j]) if inside else acc_t(0)
        cuda.syncthreads()
        for t in range(steps):
            for r in range(rows):
                for p in range(4):
                    acc[r, p] = acc_t(0)
            if j < h:
                for k in range(h):
                    for p in range(parts):
                        w = acc_t(weight[k, p * h + j])
                        for r in range(rows):
                            acc[r, p] += near[r, k] * w
                if has_bias:
                    for p in range(parts):
                        for r in range(rows):
                            acc[r, p] += acc_t(bias[p * h + j])
            cuda.syncthreads()
            for r in range(rows):
                b = first + r
                if j < h and b < batch:
                    if b < sizes[t]:
                        near[r, j] = advance(
                            x, states, gates, t, b, j, acc[r, 0], acc[r, 1], acc[r, 2], acc[r, 3]
                        )
                    else:
                        states[0, t + 1, b, j] = near[r, j]
                        if mode == "lstm":
                            states[1, t + 1, b, j] = states[1, t, b, j]
            cuda.syncthreads()

    return recurrent_sequence


@functools.cache
def cell_backward(acc_t, mode: str):
    """Block and grid of `cell`: the gradients of step t's gates. On entry, dh is the sum of
    `product` and `past` (B, H), on return that of `past` and the product with the gates' gradients.
    Those of the product's gates are in dr for "gru", else they are dx. after: t + 1, which is not
    negative; with 0, `past` and dc become the gradients of the first states."""
    retreat, parts = _retreat(acc_t, mode), GATES[mode]

    @cuda.jit
    def recurrent_cell_backward(g, product, sizes, states, gates, past, dc, dx, dr, after):
        j, b, h = cuda.grid(2)[0], cuda.blockIdx.y, states.shape[3]
        t = after - 1
        has_step = t >= 0 and b < sizes[t]
        if j >= h:
            return
        dh = acc_t(g[0, after, b, j]) + acc_t(product[b, j]) + acc_t(past[b, j])
        dcell = acc_t(0)
        if mode == "lstm":
            dcell = acc_t(g[1, after, b, j]) + acc_t(dc[b, j])
        if has_step:
            d0, d1, d2, _, kept, dcell = retreat(states, gates, dx, t, b, j, dh, dcell)
            past[b, j] = kept
            if mode == "gru":
                dr[t, b, j] = d0
                dr[t, b, h + j] = d1
                dr[t, b, 2 * h + j] = d2
        else:
            past[b, j] = dh
            if t >= 0:
                for p in range(parts):
                    dx[t, b, p * h + j] = acc_t(0)
                    if mode == "gru":
                        dr[t, b, p * h + j] = acc_t(0)
        if mode == "lstm":
            dc[b, j] = dcell

    return recurrent_cell_backward


@functools.cache
def sequence_backward(acc_t, mode: str, rows: int, width: int):
    """Block and grid of `sequence`; weight (gates * H, H). dh and dc (B, H) become the gradients of
    the first states."""
    retreat, parts = _retreat(acc_t, mode), GATES[mode]
    shape = (rows, parts * width)

    @cuda.jit
    def recurrent_sequence_backward(g, weight, sizes, states, gates, dh, dc, dx, dr):
        near = cuda.shared.array(shape, acc_t)
        acc = cuda.local.array(rows, acc_t)
        cells = cuda.local.array(rows, acc_t)
        j, first = cuda.threadIdx.x, cuda.blockIdx.x * rows
        steps, batch, h = dx.shape[0], dx.shape[1], states.shape[3]
        for r in range(rows):
            acc[r] = acc_t(0)
            cells[r] = acc_t(0)
            if j < h and first + r >= batch:  # read below with the other rows
                for p in range(parts):
                    near[r, p * h + j] = acc_t(0)
        for s in range(steps):
            t = steps - 1 - s
            for r in range(rows):
                b = first + r
                if j < h and b < batch:
                    dnew = acc[r] + acc_t(g[0, t + 1, b, j])
                    if mode == "lstm":
                        cells[r] += acc_t(g[1, t + 1, b, j])
                    d0, d1, d2, d3 = acc_t(0), acc_t(0), acc_t(0), acc_t(0)
                    if b < sizes[t]:
                        d0, d1, d2, d3, kept, dcell = retreat(
                            states, gates, dx, t, b, j, dnew, cells[r]
                        )
                        acc[r] = kept
                        cells[r] = dcell
                    else:
                        acc[r] = dnew
                        for p in range(parts):
                            dx[t, b, p * h + j] = acc_t(0)
                    near[r, j] = d0
                    if parts > 1:
                        near[r, h + j] = d1
                        near[r, 2 * h + j] = d2
                    if parts > 3:
                        near[r, 3 * h + j] = d3
                    if mode == "gru":
                        dr[t, b, j] = d0
                        dr[t, b, h + j] = d1
                        dr[t, b, 2 * h + j] = d2
            cuda.syncthreads()
            if j < h:
                for k in range(parts * h):
                    w = acc_t(weight[k, j])
                    for r in range(rows):
                        acc[r] += near[r, k] * w
            cuda.syncthreads()
        for r in range(rows):
            b = first + r
            if j < h and b < batch:
                dh[b, j] = acc[r] + acc_t(g[0, 0, b, j])
                if mode == "lstm":
                    dc[b, j] = cells[r] + acc_t(g[1, 0, b, j])

    return recurrent_sequence_backward
