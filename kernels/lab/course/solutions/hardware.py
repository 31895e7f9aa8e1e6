"""Solutions of the exercises of `tasks/hardware.py`, in Numba's dialect."""

from __future__ import annotations

import math

import numpy as np

from kernels.lab.course.solutions.basics import FULL, _block_sum
from kernels.simt import cuda

LOWEST = np.float32(-3e38)  # less than every score; unlike -inf, it can be subtracted from itself


@cuda.jit
def conv2d(x, w, out):
    j, i, f = cuda.grid(3)
    if i < out.shape[1] and j < out.shape[2]:
        total = np.float32(0)
        for c in range(w.shape[1]):
            for p in range(w.shape[2]):
                for q in range(w.shape[3]):
                    total += x[c, i + p, j + q] * w[f, c, p, q]
        out[f, i, j] = total


@cuda.jit
def matmul_registers(a, b, out):
    a_tile = cuda.shared.array((32, 8), np.float32)
    b_tile = cuda.shared.array((8, 32), np.float32)
    totals = cuda.local.array((4, 4), np.float32)
    a_part = cuda.local.array(4, np.float32)
    b_part = cuda.local.array(4, np.float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    row, column = cuda.blockIdx.y * 32, cuda.blockIdx.x * 32
    for i in range(4):
        for j in range(4):
            totals[i, j] = 0
    for k in range(0, a.shape[1], 8):
        for i in range(ty, 32, 8):
            inside = row + i < a.shape[0] and k + tx < a.shape[1]
            a_tile[i, tx] = a[row + i, k + tx] if inside else np.float32(0)
        for j in range(tx, 32, 8):
            inside = k + ty < b.shape[0] and column + j < b.shape[1]
            b_tile[ty, j] = b[k + ty, column + j] if inside else np.float32(0)
        cuda.syncthreads()
        for step in range(8):
            for i in range(4):
                a_part[i] = a_tile[ty + 8 * i, step]
                b_part[i] = b_tile[step, tx + 8 * i]
            for i in range(4):
                for j in range(4):
                    totals[i, j] += a_part[i] * b_part[j]
        cuda.syncthreads()
    for i in range(4):
        for j in range(4):
            if row + ty + 8 * i < out.shape[0] and column + tx + 8 * j < out.shape[1]:
                out[row + ty + 8 * i, column + tx + 8 * j] = totals[i, j]


@cuda.jit
def softmax_online(x, out):
    tops = cuda.shared.array(64, np.float32)
    sums = cuda.shared.array(64, np.float32)
    row, t, n = cuda.blockIdx.x, cuda.threadIdx.x, x.shape[1]
    top, total = LOWEST, np.float32(0)
    for j in range(t, n, 64):
        value = x[row, j]
        larger = max(top, value)
        total = total * math.exp(top - larger) + math.exp(value - larger)
        top = larger
    tops[t] = top
    sums[t] = total
    cuda.syncthreads()
    step = 32
    while step > 0:
        if t < step:
            larger = max(tops[t], tops[t + step])
            total = sums[t] * math.exp(tops[t] - larger)
            sums[t] = total + sums[t + step] * math.exp(tops[t + step] - larger)
            tops[t] = larger
        cuda.syncthreads()
        step //= 2
    for j in range(t, n, 64):
        out[row, j] = math.exp(x[row, j] - tops[0]) / sums[0]


@cuda.jit
def layer_norm_backward(g, x, mean, rstd, out):
    tile = cuda.shared.array(64, np.float32)
    row, t, n = cuda.blockIdx.x, cuda.threadIdx.x, x.shape[1]
    centre, scale = mean[row], rstd[row]
    plain, weighted = np.float32(0), np.float32(0)
    for j in range(t, n, 64):
        value = g[row, j]
        plain += value
        weighted += value * (x[row, j] - centre) * scale
    tile[t] = plain
    cuda.syncthreads()
    plain = _block_sum(tile, t) / np.float32(n)
    tile[t] = weighted
    cuda.syncthreads()
    weighted = _block_sum(tile, t) / np.float32(n)
    for j in range(t, n, 64):
        xhat = (x[row, j] - centre) * scale
        out[row, j] = scale * (g[row, j] - plain - xhat * weighted)


@cuda.jit
def attention(q, k, v, out):
    keys = cuda.shared.array((32, 16), np.float32)
    values = cuda.shared.array((32, 16), np.float32)
    query = cuda.local.array(16, np.float32)
    result = cuda.local.array(16, np.float32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    for d in range(16):
        query[d] = q[i, d] if i < q.shape[0] else np.float32(0)
        result[d] = 0
    top, total = LOWEST, np.float32(0)
    for first in range(0, k.shape[0], 32):
        for place in range(t, 512, 64):
            row, d = place // 16, place % 16
            inside = first + row < k.shape[0]
            keys[row, d] = k[first + row, d] if inside else np.float32(0)
            values[row, d] = v[first + row, d] if inside else np.float32(0)
        cuda.syncthreads()
        for row in range(min(32, k.shape[0] - first)):
            score = np.float32(0)
            for d in range(16):
                score += query[d] * keys[row, d]
            score *= np.float32(0.25)
            larger = max(top, score)
            old, new = math.exp(top - larger), math.exp(score - larger)
            total = total * old + new
            for d in range(16):
                result[d] = result[d] * old + new * values[row, d]
            top = larger
        cuda.syncthreads()
    if i < q.shape[0]:
        for d in range(16):
            out[i, d] = result[d] / total


@cuda.jit(device=True)
def _sigmoid(x):
    return np.float32(1) / (np.float32(1) + math.exp(-x))


@cuda.jit
def gru_cell(gx, gh, h, out):
    j, row = cuda.grid(2)
    n = h.shape[1]
    if row < h.shape[0] and j < n:
        r = _sigmoid(gx[row, j] + gh[row, j])
        z = _sigmoid(gx[row, n + j] + gh[row, n + j])
        new = math.tanh(gx[row, 2 * n + j] + r * gh[row, 2 * n + j])
        out[row, j] = (np.float32(1) - z) * new + z * h[row, j]


@cuda.jit
def compact(x, out, counts):
    i, lane = cuda.grid(1), cuda.laneid
    value = x[i] if i < x.size else np.float32(0)
    positive = cuda.ballot_sync(FULL, value > 0)
    count = cuda.popc(positive)
    if value > 0:
        out[i - lane + cuda.popc(positive & ((1 << lane) - 1))] = value
    if lane >= count:
        out[i] = 0
    if lane == 0:
        counts[i // 32] = count


@cuda.jit
def centre(x, partial, out):
    tile = cuda.shared.array(64, np.float32)
    t = cuda.threadIdx.x
    total = np.float32(0)
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        total += x[i]
    tile[t] = total
    cuda.syncthreads()
    total = _block_sum(tile, t)
    if t == 0:
        partial[cuda.blockIdx.x] = total
    cuda.cg.this_grid().sync()
    mean = (partial[0] + partial[1] + partial[2] + partial[3]) / np.float32(x.size)
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        out[i] = x[i] - mean


@cuda.jit
def matmul_double_buffered(a, b, out):
    a_tile = cuda.shared.array((2, 16, 16), np.float32)
    b_tile = cuda.shared.array((2, 16, 16), np.float32)
    column, row = cuda.grid(2)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    inside = row < a.shape[0] and tx < a.shape[1]
    a_tile[0, ty, tx] = a[row, tx] if inside else np.float32(0)
    inside = ty < b.shape[0] and column < b.shape[1]
    b_tile[0, ty, tx] = b[ty, column] if inside else np.float32(0)
    total, now = np.float32(0), 0
    for k in range(16, a.shape[1] + 16, 16):
        cuda.syncthreads()
        if k < a.shape[1]:
            inside = row < a.shape[0] and k + tx < a.shape[1]
            a_tile[1 - now, ty, tx] = a[row, k + tx] if inside else np.float32(0)
            inside = k + ty < b.shape[0] and column < b.shape[1]
            b_tile[1 - now, ty, tx] = b[k + ty, column] if inside else np.float32(0)
        for j in range(16):
            total += a_tile[now, ty, j] * b_tile[now, j, tx]
        now = 1 - now
    if row < out.shape[0] and column < out.shape[1]:
        out[row, column] = total


@cuda.jit
def half_dot(x, y, out):
    tile = cuda.shared.array(64, np.float32)
    row, t = cuda.blockIdx.x, cuda.threadIdx.x
    total = np.float32(0)
    for j in range(t, x.shape[1], 64):
        total += np.float32(x[row, j]) * np.float32(y[row, j])
    tile[t] = total
    cuda.syncthreads()
    total = _block_sum(tile, t)
    if t == 0:
        out[row] = total
