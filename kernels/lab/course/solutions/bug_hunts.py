"""Solutions of the bug hunts, in Numba's dialect."""

from __future__ import annotations

import math

import numpy as np

from kernels.lab.course.solutions.basics import FULL
from kernels.simt import cuda


@cuda.jit
def fix_barrier(x, out):
    tile = cuda.shared.array(64, np.float32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    tile[t] = x[i]
    cuda.syncthreads()
    s = tile[t] + tile[(t + 1) % 64]
    cuda.syncthreads()
    tile[t] = s
    cuda.syncthreads()
    out[i] = s - tile[(t + 63) % 64]


@cuda.jit
def fix_guard(x, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = x[i + 1] - x[i]


@cuda.jit
def fix_histogram(x, counts):
    tile = cuda.shared.array(10, np.int64)
    i, t = cuda.grid(1), cuda.threadIdx.x
    if t < 10:
        tile[t] = 0
    cuda.syncthreads()
    if i < x.size:
        cuda.atomic.add(tile, x[i], 1)
    cuda.syncthreads()
    if t < 10:
        cuda.atomic.add(counts, t, tile[t])


@cuda.jit
def fix_stride(x, rows, columns, out):
    j = cuda.grid(1)
    if j < columns:
        total = np.float32(0)
        for i in range(rows):
            total += x[i * columns + j]
        out[j] = total


@cuda.jit
def fix_divergence(x, out):
    tile = cuda.shared.array(64, np.float32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    tile[t] = x[i] if i < x.size else np.float32(0)
    cuda.syncthreads()
    step = 32
    while step > 0:
        if t < step:
            tile[t] += tile[t + step]
        cuda.syncthreads()
        step //= 2
    if t == 0:
        out[cuda.blockIdx.x] = tile[0]


@cuda.jit
def fix_uninitialised(x, out):
    tile = cuda.shared.array(64, np.float32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    tile[t] = x[i] if i < x.size else np.float32(-math.inf)
    cuda.syncthreads()
    step = 32
    while step > 0:
        if t < step:
            tile[t] = max(tile[t], tile[t + step])
        cuda.syncthreads()
        step //= 2
    if t == 0:
        out[cuda.blockIdx.x] = tile[0]


@cuda.jit
def fix_banks(x, out):
    tile = cuda.shared.array((64, 33), np.float32)
    t, first = cuda.threadIdx.x, cuda.blockIdx.x * 64
    for row in range(t // 32, 64, 2):
        tile[row, t % 32] = x[first + row, t % 32]
    cuda.syncthreads()
    total = np.float32(0)
    for j in range(32):
        total += tile[t, j]
    out[first + t] = total


@cuda.jit
def fix_mask(x, out):
    i = cuda.grid(1)
    value = x[i]
    for step in (16, 8, 4, 2, 1):
        value = max(value, cuda.shfl_down_sync(FULL, value, step))
    if cuda.laneid == 0:
        out[i // 32] = value


@cuda.jit
def fix_overflow(x, out):
    tile = cuda.shared.array(64, np.int64)
    i, t = cuda.grid(1), cuda.threadIdx.x
    tile[t] = x[i] if i < x.size else 0
    cuda.syncthreads()
    step = 32
    while step > 0:
        if t < step:
            tile[t] += tile[t + step]
        cuda.syncthreads()
        step //= 2
    if t == 0:
        out[cuda.blockIdx.x] = tile[0]


@cuda.jit
def fix_half(x, out):
    j = cuda.grid(1)
    if j < x.shape[1]:
        total = np.float32(0)
        for i in range(x.shape[0]):
            total += np.float32(x[i, j])
        out[j] = total / np.float32(x.shape[0])
