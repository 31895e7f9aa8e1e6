"""The kernels that benchmarks/simt.py times: plain CUDA, as a course would write them."""

from __future__ import annotations

import math

from numba import float32

from kernels.simt import cuda

TILE = 32  # as in the matrixMul of NVIDIA's CUDA samples
FULL = 0xFFFFFFFF
LOWEST = float32(-3.4e38)


@cuda.jit
def tiled_with_ifs(a, b, c):
    sa = cuda.shared.array((TILE, TILE), float32)
    sb = cuda.shared.array((TILE, TILE), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    x, y = cuda.grid(2)
    total = float32(0)
    for p in range(0, a.shape[1], TILE):
        sa[ty, tx] = 0
        sb[ty, tx] = 0
        if y < a.shape[0] and p + tx < a.shape[1]:
            sa[ty, tx] = a[y, p + tx]
        if p + ty < b.shape[0] and x < b.shape[1]:
            sb[ty, tx] = b[p + ty, x]
        cuda.syncthreads()
        for q in range(TILE):
            total += sa[ty, q] * sb[q, tx]
        cuda.syncthreads()
    if y < c.shape[0] and x < c.shape[1]:
        c[y, x] = total


@cuda.jit
def tiled_with_expressions(a, b, c):
    sa = cuda.shared.array((TILE, TILE), float32)
    sb = cuda.shared.array((TILE, TILE), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    x, y = cuda.grid(2)
    rows, inner, columns = a.shape[0], a.shape[1], b.shape[1]
    total = float32(0)
    for p in range(0, inner, TILE):
        sa[ty, tx] = a[y, p + tx] if y < rows and p + tx < inner else float32(0)
        sb[ty, tx] = b[p + ty, x] if p + ty < inner and x < columns else float32(0)
        cuda.syncthreads()
        for q in range(TILE):
            total += sa[ty, q] * sb[q, tx]
        cuda.syncthreads()
    if y < rows and x < columns:
        c[y, x] = total


@cuda.jit
def tiled(a, b, c):
    sa = cuda.shared.array((TILE, TILE), float32)
    sb = cuda.shared.array((TILE, TILE), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    x, y = cuda.grid(2)
    total = float32(0)
    for p in range(0, a.shape[1], TILE):
        sa[ty, tx] = a[y, p + tx]
        sb[ty, tx] = b[p + ty, x]
        cuda.syncthreads()
        for q in range(TILE):
            total += sa[ty, q] * sb[q, tx]
        cuda.syncthreads()
    c[y, x] = total


@cuda.jit
def blocked_4x4(a, b, c):
    """64x64 of c by 16x16 threads; each computes four rows and four columns, 16 apart."""
    sa = cuda.shared.array((64, 16), float32)
    sb = cuda.shared.array((16, 64), float32)
    acc = cuda.local.array((4, 4), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    row, col = cuda.blockIdx.y * 64, cuda.blockIdx.x * 64
    for i in range(4):
        for j in range(4):
            acc[i, j] = 0
    for p in range(0, a.shape[1], 16):
        for i in range(4):
            sa[ty + 16 * i, tx] = a[row + ty + 16 * i, p + tx]
            sb[ty, tx + 16 * i] = b[p + ty, col + tx + 16 * i]
        cuda.syncthreads()
        for q in range(16):
            for i in range(4):
                for j in range(4):
                    acc[i, j] += sa[ty * 4 + i, q] * sb[q, tx + 16 * j]
        cuda.syncthreads()
    for i in range(4):
        for j in range(4):
            c[row + ty * 4 + i, col + tx + 16 * j] = acc[i, j]


@cuda.jit
def blocked_8x2(a, b, c):
    """64x32 of c by 16x8 threads; each computes eight rows and two columns, 16 apart."""
    sa = cuda.shared.array((64, 16), float32)
    sb = cuda.shared.array((16, 32), float32)
    acc = cuda.local.array((8, 2), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    row, col = cuda.blockIdx.y * 64, cuda.blockIdx.x * 32
    for i in range(8):
        for j in range(2):
            acc[i, j] = 0
    for p in range(0, a.shape[1], 16):
        for i in range(8):
            sa[ty + 8 * i, tx] = a[row + ty + 8 * i, p + tx]
        for i in range(2):
            sb[ty, tx + 16 * i] = b[p + ty, col + tx + 16 * i]
            sb[ty + 8, tx + 16 * i] = b[p + ty + 8, col + tx + 16 * i]
        cuda.syncthreads()
        for q in range(16):
            for i in range(8):
                for j in range(2):
                    acc[i, j] += sa[ty * 8 + i, q] * sb[q, tx + 16 * j]
        cuda.syncthreads()
    for i in range(8):
        for j in range(2):
            c[row + ty * 8 + i, col + tx + 16 * j] = acc[i, j]


@cuda.jit
def deep_4x4(a, b, c):
    """128x64 of c by 16x32 threads, 32 deep: more work per barrier."""
    sa = cuda.shared.array((128, 32), float32)
    sb = cuda.shared.array((32, 64), float32)
    acc = cuda.local.array((4, 4), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    row, col = cuda.blockIdx.y * 128, cuda.blockIdx.x * 64
    for i in range(4):
        for j in range(4):
            acc[i, j] = 0
    for p in range(0, a.shape[1], 32):
        for i in range(4):
            for j in range(2):
                sa[ty + 32 * i, tx + 16 * j] = a[row + ty + 32 * i, p + tx + 16 * j]
        for j in range(4):
            sb[ty, tx + 16 * j] = b[p + ty, col + tx + 16 * j]
        cuda.syncthreads()
        for q in range(32):
            for i in range(4):
                for j in range(4):
                    acc[i, j] += sa[ty * 4 + i, q] * sb[q, tx + 16 * j]
        cuda.syncthreads()
    for i in range(4):
        for j in range(4):
            c[row + ty * 4 + i, col + tx + 16 * j] = acc[i, j]


@cuda.jit
def only_b_4x4(a, b, c):
    """32x64 of c by 16x8 threads: b goes through shared memory, 64 deep. The threads of a row
    read the same four elements of a, which are in the cache (after Volkov and Demmel, "Benchmarking
    GPUs to tune dense linear algebra", 2008)."""
    sb = cuda.shared.array((64, 64), float32)
    acc = cuda.local.array((4, 4), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    row, col = cuda.blockIdx.y * 32 + ty * 4, cuda.blockIdx.x * 64 + tx
    for i in range(4):
        for j in range(4):
            acc[i, j] = 0
    for p in range(0, a.shape[1], 64):
        for i in range(8):
            for j in range(4):
                sb[ty + 8 * i, tx + 16 * j] = b[p + ty + 8 * i, col + 16 * j]
        cuda.syncthreads()
        for q in range(64):
            for i in range(4):
                for j in range(4):
                    acc[i, j] += a[row + i, p + q] * sb[q, tx + 16 * j]
        cuda.syncthreads()
    for i in range(4):
        for j in range(4):
            c[row + i, col + 16 * j] = acc[i, j]


# name: (kernel, the tile of c per block as (rows, columns), block)
VERSIONS = {
    "tiled": (tiled, (TILE, TILE), (TILE, TILE)),
    "blocked 4x4": (blocked_4x4, (64, 64), (16, 16)),
    "blocked 8x2": (blocked_8x2, (64, 32), (16, 8)),
    "deep 4x4": (deep_4x4, (128, 64), (16, 32)),
    "only b 4x4": (only_b_4x4, (32, 64), (16, 8)),
}


@cuda.jit
def shuffle_sum(a, out):
    partial = cuda.shared.array(32, float32)
    t = cuda.threadIdx.x
    total = float32(0)
    for i in range(cuda.grid(1), a.size, cuda.gridsize(1)):
        total += a[i]
    offset = 16
    while offset > 0:
        total += cuda.shfl_down_sync(FULL, total, offset)
        offset //= 2
    if t % 32 == 0:
        partial[t // 32] = total
    cuda.syncthreads()
    if t < 32:
        total = partial[t] if t < cuda.blockDim.x // 32 else float32(0)
        offset = 16
        while offset > 0:
            total += cuda.shfl_down_sync(FULL, total, offset)
            offset //= 2
        if t == 0:
            cuda.atomic.add(out, 0, total)


@cuda.jit
def saxpy(a, x, y):
    i = cuda.grid(1)
    if i < y.size:
        y[i] = a * x[i] + y[i]


@cuda.jit
def row_softmax(x, out):
    """A block per row; the threads combine partial results in shared memory."""
    s = cuda.shared.array(256, float32)
    row, t = cuda.blockIdx.x, cuda.threadIdx.x
    top = LOWEST
    for j in range(t, x.shape[1], cuda.blockDim.x):
        top = max(top, x[row, j])
    s[t] = top
    cuda.syncthreads()
    k = cuda.blockDim.x // 2
    while k > 0:
        if t < k:
            s[t] = max(s[t], s[t + k])
        cuda.syncthreads()
        k //= 2
    top = s[0]
    cuda.syncthreads()
    total = float32(0)
    for j in range(t, x.shape[1], cuda.blockDim.x):
        e = math.exp(x[row, j] - top)
        out[row, j] = e
        total += e
    s[t] = total
    cuda.syncthreads()
    k = cuda.blockDim.x // 2
    while k > 0:
        if t < k:
            s[t] += s[t + k]
        cuda.syncthreads()
        k //= 2
    scale = float32(1) / s[0]
    for j in range(t, x.shape[1], cuda.blockDim.x):
        out[row, j] *= scale


@cuda.jit
def conv3x3(x, w, out):
    """Direct, padding 1: a thread computes one pixel of one output channel of one image."""
    channels, height, width = x.shape[1], x.shape[2], x.shape[3]
    j = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    i = cuda.blockIdx.y * cuda.blockDim.y + cuda.threadIdx.y
    n = cuda.blockIdx.z // w.shape[0]
    o = cuda.blockIdx.z % w.shape[0]
    if i >= height or j >= width:
        return
    total = float32(0)
    for c in range(channels):
        for p in range(3):
            for q in range(3):
                r, s = i + p - 1, j + q - 1
                if r >= 0 and r < height and s >= 0 and s < width:
                    total += x[n, c, r, s] * w[o, c, p, q]
    out[n, o, i, j] = total


@cuda.jit
def add_one(a):
    i = cuda.grid(1)
    if i < a.size:
        a[i] += 1
