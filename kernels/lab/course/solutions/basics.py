"""Solutions of the first exercises, in Numba's dialect."""

from __future__ import annotations

import math

import numpy as np

from kernels.simt import cuda

FULL = 0xFFFFFFFF


@cuda.jit
def add_ten(x, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = x[i] + np.float32(10)


@cuda.jit
def saxpy(a, x, y, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = a * x[i] + y[i]


@cuda.jit
def reverse(x, out):
    i = cuda.grid(1)
    if i < x.size:
        out[x.size - 1 - i] = x[i]


@cuda.jit
def multiply_2d(a, b, out):
    column, row = cuda.grid(2)
    if row < out.shape[0] and column < out.shape[1]:
        out[row, column] = a[row, column] * b[row, column]


@cuda.jit
def outer_sum(row, column, out):
    j, i = cuda.grid(2)
    if i < out.shape[0] and j < out.shape[1]:
        out[i, j] = column[i] + row[j]


@cuda.jit
def square_strided(x, out):
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        out[i] = x[i] * x[i]


@cuda.jit
def split_points(points, out):
    i = cuda.grid(1)
    if i < points.shape[0]:
        for axis in range(3):
            out[axis, i] = points[i, axis]


@cuda.jit
def gather(x, index, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = x[index[i]]


@cuda.jit
def histogram(x, counts):
    i = cuda.grid(1)
    if i < x.size:
        cuda.atomic.add(counts, x[i], 1)


@cuda.jit
def reverse_blocks(x, out):
    tile = cuda.shared.array(64, np.float32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    tile[t] = x[i]
    cuda.syncthreads()
    out[i] = tile[63 - t]


@cuda.jit
def stencil(x, out):
    tile = cuda.shared.array(66, np.float32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    tile[t + 1] = x[i] if i < x.size else np.float32(0)
    if t == 0:
        tile[0] = x[i - 1] if i > 0 else np.float32(0)
    if t == 63:
        tile[65] = x[i + 1] if i + 1 < x.size else np.float32(0)
    cuda.syncthreads()
    if i < x.size:
        out[i] = tile[t] + tile[t + 1] + tile[t + 2]


@cuda.jit
def transpose(x, out):
    tile = cuda.shared.array((32, 33), np.float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    row, column = cuda.blockIdx.y * 32, cuda.blockIdx.x * 32
    if row + ty < x.shape[0] and column + tx < x.shape[1]:
        tile[ty, tx] = x[row + ty, column + tx]
    cuda.syncthreads()
    if column + ty < x.shape[1] and row + tx < x.shape[0]:
        out[column + ty, row + tx] = tile[tx, ty]


@cuda.jit
def block_sum(x, out):
    tile = cuda.shared.array(128, np.float32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    tile[t] = x[i] if i < x.size else np.float32(0)
    cuda.syncthreads()
    step = 64
    while step > 0:
        if t < step:
            tile[t] += tile[t + step]
        cuda.syncthreads()
        step //= 2
    if t == 0:
        out[cuda.blockIdx.x] = tile[0]


@cuda.jit
def warp_sum(x, out):
    i = cuda.grid(1)
    value = x[i] if i < x.size else np.float32(0)
    for step in (16, 8, 4, 2, 1):
        value += cuda.shfl_down_sync(FULL, value, step)
    if cuda.threadIdx.x % 32 == 0:
        cuda.atomic.add(out, 0, value)


@cuda.jit
def scan(x, out):
    tile = cuda.shared.array(128, np.float32)
    t = cuda.threadIdx.x
    tile[t] = x[t] if t < x.size else np.float32(0)
    cuda.syncthreads()
    step = 1
    while step < 128:
        value = tile[t]
        if t >= step:
            value += tile[t - step]
        cuda.syncthreads()
        tile[t] = value
        cuda.syncthreads()
        step *= 2
    if t < x.size:
        out[t] = tile[t]


@cuda.jit
def matmul(a, b, out):
    column, row = cuda.grid(2)
    if row < out.shape[0] and column < out.shape[1]:
        total = np.float32(0)
        for k in range(a.shape[1]):
            total += a[row, k] * b[k, column]
        out[row, column] = total


@cuda.jit
def matmul_tiled(a, b, out):
    a_tile = cuda.shared.array((16, 16), np.float32)
    b_tile = cuda.shared.array((16, 16), np.float32)
    column, row = cuda.grid(2)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    total = np.float32(0)
    for k in range(0, a.shape[1], 16):
        inside = row < a.shape[0] and k + tx < a.shape[1]
        a_tile[ty, tx] = a[row, k + tx] if inside else np.float32(0)
        inside = k + ty < b.shape[0] and column < b.shape[1]
        b_tile[ty, tx] = b[k + ty, column] if inside else np.float32(0)
        cuda.syncthreads()
        for j in range(16):
            total += a_tile[ty, j] * b_tile[j, tx]
        cuda.syncthreads()
    if row < out.shape[0] and column < out.shape[1]:
        out[row, column] = total


@cuda.jit
def relu(x, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = max(x[i], np.float32(0))


@cuda.jit
def relu_backward(g, y, out):
    i = cuda.grid(1)
    if i < g.size:
        out[i] = g[i] if y[i] > 0 else np.float32(0)


@cuda.jit(device=True)
def _block_maximum(tile, t):
    step = 32
    while step > 0:
        if t < step:
            tile[t] = max(tile[t], tile[t + step])
        cuda.syncthreads()
        step //= 2
    result = tile[0]
    cuda.syncthreads()  # before anyone writes to the tile again
    return result


@cuda.jit(device=True)
def _block_sum(tile, t):
    step = 32
    while step > 0:
        if t < step:
            tile[t] += tile[t + step]
        cuda.syncthreads()
        step //= 2
    result = tile[0]
    cuda.syncthreads()
    return result


@cuda.jit
def softmax(x, out):
    tile = cuda.shared.array(64, np.float32)
    row, t, n = cuda.blockIdx.x, cuda.threadIdx.x, x.shape[1]
    top = np.float32(-math.inf)
    for j in range(t, n, 64):
        top = max(top, x[row, j])
    tile[t] = top
    cuda.syncthreads()
    top = _block_maximum(tile, t)
    total = np.float32(0)
    for j in range(t, n, 64):
        total += math.exp(x[row, j] - top)
    tile[t] = total
    cuda.syncthreads()
    total = _block_sum(tile, t)
    for j in range(t, n, 64):
        out[row, j] = math.exp(x[row, j] - top) / total


@cuda.jit
def layer_norm(x, out):
    tile = cuda.shared.array(64, np.float32)
    row, t, n = cuda.blockIdx.x, cuda.threadIdx.x, x.shape[1]
    total = np.float32(0)
    for j in range(t, n, 64):
        total += x[row, j]
    tile[t] = total
    cuda.syncthreads()
    mean = _block_sum(tile, t) / np.float32(n)
    total = np.float32(0)
    for j in range(t, n, 64):
        total += (x[row, j] - mean) * (x[row, j] - mean)
    tile[t] = total
    cuda.syncthreads()
    scale = np.float32(1) / math.sqrt(_block_sum(tile, t) / np.float32(n) + np.float32(1e-5))
    for j in range(t, n, 64):
        out[row, j] = (x[row, j] - mean) * scale


@cuda.jit
def cross_entropy(logits, target, out):
    i = cuda.grid(1)
    if i < logits.shape[0]:
        top = logits[i, 0]
        for j in range(1, logits.shape[1]):
            top = max(top, logits[i, j])
        total = np.float32(0)
        for j in range(logits.shape[1]):
            total += math.exp(logits[i, j] - top)
        out[i] = math.log(total) + top - logits[i, target[i]]


@cuda.jit
def linear_backward(x, g, out):
    column, row = cuda.grid(2)
    if row < out.shape[0] and column < out.shape[1]:
        total = np.float32(0)
        for k in range(x.shape[0]):
            total += g[k, row] * x[k, column]
        out[row, column] = total


@cuda.jit
def sgd(g, lr, momentum, velocity, p):
    i = cuda.grid(1)
    if i < p.size:
        v = momentum * velocity[i] + g[i]
        velocity[i] = v
        p[i] -= lr * v


@cuda.jit
def embedding_backward(g, index, table):
    column, row = cuda.grid(2)
    if row < g.shape[0] and column < g.shape[1]:
        cuda.atomic.add(table, (index[row], column), g[row, column])
