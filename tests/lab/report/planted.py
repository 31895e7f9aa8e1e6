"""Kernels with one mistake each. The lines that take part in it end in `# <-`.

PLANTED lists (kernel, grid, block, arguments, shared bytes, kind of finding, part of the hint).
"""

from __future__ import annotations

import numpy as np
from numba import float32, int32

from kernels.simt import cuda

N = 64
MORE, HALF = N + 1, N // 2
PLANTED = []


def planted(kind: str, hint: str, args, grid=1, block=N, shared=0):
    def keep(function):
        PLANTED.append((cuda.jit(function), grid, block, args, shared, kind, hint))
        return function

    return keep


def x(count: int = N) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(count).astype(np.float32)


def zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


# Shared memory


@planted("race", "cuda.syncthreads() between", lambda: (x(), zeros(N)))
def no_barrier(x, out):
    s = cuda.shared.array(N, float32)
    t = cuda.threadIdx.x
    s[t] = x[t]  # <-
    out[t] = s[N - 1 - t]  # <-


@planted("race", "cuda.syncthreads() between", lambda: (x(), zeros(N)))
def barrier_too_early(x, out):
    s = cuda.shared.array(N, float32)
    t = cuda.threadIdx.x
    cuda.syncthreads()
    s[t] = x[t]  # <-
    out[t] = s[(t + 40) % N]  # <-


@planted("race", "one more cuda.syncthreads() after", lambda: (x(4 * N), zeros(N)))
def no_second_barrier(x, out):
    s = cuda.shared.array(N, float32)
    t = cuda.threadIdx.x
    total = float32(0)
    for k in range(4):
        s[t] = x[k * N + t]  # <-
        cuda.syncthreads()
        for j in range(N):
            total += s[j]  # <-
    out[t] = total


@planted("race", "one more", lambda: (x(), zeros(1)))
def reduction_without_barriers(x, out):
    s = cuda.shared.array(N, float32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    cuda.syncthreads()
    step = N // 2
    while step:
        if t < step:
            s[t] += s[t + step]  # <-
        step //= 2
    cuda.syncthreads()
    if t == 0:
        out[0] = s[0]


@planted("race", "read into a variable", lambda: (x(), zeros(N)))
def scan_in_place(x, out):
    s = cuda.shared.array(N, float32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    cuda.syncthreads()
    step = 1
    while step < N:
        if t >= step:
            s[t] += s[t - step]  # <-
        cuda.syncthreads()
        step *= 2
    out[t] = s[t]


@planted("race", "let one thread write", lambda: (x(), zeros(N)))
def all_write_one(x, out):
    s = cuda.shared.array(1, float32)
    t = cuda.threadIdx.x
    s[0] = x[t]  # <-
    cuda.syncthreads()
    out[t] = s[0]


@planted("race", "read into a variable", lambda: (x(), zeros(1)))
def last_warp_without_syncwarp(x, out):
    s = cuda.shared.array(N, float32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    cuda.syncthreads()
    if t < 32:
        for step in (32, 16, 8):
            s[t] += s[t + step]  # <-
    if t == 0:
        out[0] = s[0]


@planted("race", "between", lambda: (x(), zeros(N)))
def halo_from_a_neighbour(x, out):
    s = cuda.shared.array(MORE, float32)
    t = cuda.threadIdx.x
    if t == 0:
        s[N] = 0
    cuda.syncthreads()
    s[t] = x[t]  # <-
    out[t] = s[t + 1] - s[t]  # <-


@planted("race", "between", lambda: (np.zeros(N, np.int32),))
def atomic_then_plain_read(out):
    s = cuda.shared.array(1, int32)
    t = cuda.threadIdx.x
    if t == 0:
        s[0] = 0
    cuda.syncthreads()
    cuda.atomic.add(s, 0, 1)  # <-
    out[t] = s[0]  # <-


@planted("race", "", lambda: (x(4 * N), zeros(N)))
def double_buffer_that_is_one(x, out):
    s = cuda.shared.array((2, N), float32)
    t = cuda.threadIdx.x
    s[0, t] = x[t]
    cuda.syncthreads()
    total = float32(0)
    for k in range(1, 4):
        s[0, t] = x[k * N + t]  # <-
        total += s[0, (t + 33) % N]  # <-
        cuda.syncthreads()
    out[t] = total


@planted("race", "", lambda: (zeros(N),), shared=4 * N)
def dynamic_arrays_overlap(out):
    a = cuda.shared.array(0, float32)
    b = cuda.shared.array(0, int32)
    t = cuda.threadIdx.x
    a[t] = t  # <-
    b[N - 1 - t] = t  # <-
    cuda.syncthreads()
    out[t] = a[t]


@planted("race", "", lambda: (x(), zeros(N)))
def race_in_a_device_function(x, out):
    s = cuda.shared.array(N, float32)
    _publish(s, x)
    out[cuda.threadIdx.x] = s[(cuda.threadIdx.x + 32) % N]  # <-


@cuda.jit(device=True)
def _publish(s, x):
    s[cuda.threadIdx.x] = x[cuda.threadIdx.x]


# Global memory


@planted("race", "cuda.atomic.add", lambda: (x(4 * N), zeros(1)), grid=4)
def sum_without_atomics(x, out):
    out[0] += x[cuda.grid(1)]  # <-


@planted("race", "cuda.atomic.add", lambda: (np.arange(4 * N) % 5, np.zeros(5, np.int64)), grid=4)
def histogram_without_atomics(x, out):
    out[x[cuda.grid(1)]] += 1  # <-


@planted("race", "two launches", lambda: (x(4 * N + 1),), grid=4)
def stencil_in_place(x):
    i = cuda.grid(1)
    right = x[i + 1]  # <-
    x[i] = right * float32(0.5)  # <-


@planted("race", "two launches", lambda: (x(4 * N), zeros(4), zeros(1)), grid=4)
def last_block_reads_the_others(x, part, out):
    if cuda.threadIdx.x == 0:
        part[cuda.blockIdx.x] = x[cuda.grid(1)]  # <-
    if cuda.grid(1) == cuda.gridsize(1) - 1:
        out[0] = part[0]  # <-


@planted("race", "cuda.syncthreads() between", lambda: (x(), zeros(N)))
def neighbours_in_global_memory(x, out):
    t = cuda.threadIdx.x
    x[t] = t  # <-
    out[t] = x[N - 1 - t]  # <-


@planted("race", "one thread", lambda: (x(4 * N), zeros(N)), grid=4)
def blocks_write_the_same(x, out):
    out[cuda.threadIdx.x] = x[cuda.grid(1)]  # <-


def _shifted():
    a = x(2 * N + 1)
    return a[:-1], a[1:]


@planted("race", "", _shifted, grid=2)
def arguments_overlap(a, b):
    i = cuda.grid(1)
    b[i] = a[i] + float32(1)  # <-


# Barriers


@planted("barrier", "out of the condition", lambda: (x(), zeros(N)))
def barrier_in_a_branch(x, out):
    s = cuda.shared.array(N, float32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    if t < N // 2:
        cuda.syncthreads()  # <-
    out[t] = s[t]


@planted("barrier", "out of the condition", lambda: (x(),))
def barrier_that_half_the_block_skips(x):
    t = cuda.threadIdx.x
    if t < 40:
        x[t] = 1
        cuda.syncthreads()  # <-


@planted("barrier", "out of the condition", lambda: (zeros(N),))
def barrier_in_an_uneven_loop(out):
    t = cuda.threadIdx.x
    for k in range(t % 3):
        out[t] += k
        cuda.syncthreads()  # <-
    out[t] += 1


@planted("returned", "not the thread", lambda: (x(40), zeros(40)))
def return_before_a_barrier(x, out):
    s = cuda.shared.array(N, float32)
    t = cuda.threadIdx.x
    if t >= x.size:
        return
    s[t] = x[t]
    cuda.syncthreads()  # <-
    out[t] = s[x.size - 1 - t]


# Bounds


@planted("bounds", "if i < x.shape[0]", lambda: (x(100), zeros(128)), grid=2)
def no_guard(x, out):
    i = cuda.grid(1)
    out[i] = x[i]  # <-


@planted("bounds", "out.shape[0]", lambda: (x(101), zeros(100)), grid=2)
def off_by_one(x, out):
    i = cuda.grid(1)
    if i <= out.size:
        out[i] = x[i]  # <-


@planted("bounds", "a.shape[0]", lambda: (zeros(8, 16),), block=(16, 8))
def x_and_y_swapped(a):
    i, j = cuda.grid(2)
    a[i, j] = 1  # <-


@planted("bounds", "s.shape[0]", lambda: (x(), zeros(N)))
def shared_too_small(x, out):
    s = cuda.shared.array(HALF, float32)
    t = cuda.threadIdx.x
    s[t] = x[t]  # <-


@planted("bounds", "s.shape[0]", lambda: (x(),), shared=4 * 32)
def dynamic_shared_too_small(x):
    s = cuda.shared.array(0, float32)
    s[cuda.threadIdx.x] = x[cuda.threadIdx.x]  # <-


@planted("bounds", "out.shape[0]", lambda: (np.arange(N), np.zeros(60, np.int32)))
def atomic_outside(x, out):
    cuda.atomic.add(out, x[cuda.grid(1)], 1)  # <-


@planted("bounds", "guard", lambda: (zeros(N),))
def local_too_small(out):
    keep = cuda.local.array(4, float32)
    for i in range(5):
        keep[i] = i  # <-
    out[cuda.threadIdx.x] = keep[3]


@planted("wraps", "guard", lambda: (x(), zeros(N)))
def index_below_zero(x, out):
    t = cuda.threadIdx.x
    out[t] = x[t] - x[t - 1]  # <-


# Uninitialised shared memory


@planted("uninitialised", "write every element", lambda: (x(40), zeros(N)))
def tile_is_not_filled(x, out):
    s = cuda.shared.array(N, float32)
    t = cuda.threadIdx.x
    if t < x.size:
        s[t] = x[t]
    cuda.syncthreads()
    out[t] = s[t]  # <-


@planted("uninitialised", "write every element", lambda: (np.arange(N) % 8, np.zeros(8, np.int32)))
def histogram_is_not_zeroed(x, out):
    s = cuda.shared.array(8, int32)
    t = cuda.threadIdx.x
    cuda.atomic.add(s, x[t], 1)  # <-
    cuda.syncthreads()
    if t < 8:
        cuda.atomic.add(out, t, s[t])


@planted("uninitialised", "write every element", lambda: (zeros(2 * N),), grid=2)
def what_an_earlier_block_left(out):
    s = cuda.shared.array(N, float32)
    t = cuda.threadIdx.x
    if cuda.blockIdx.x == 0:
        s[t] = t
    cuda.syncthreads()
    out[cuda.grid(1)] = s[t]  # <-


# Warps


@planted("shuffle", "take it out of the condition", lambda: (x(100), zeros(4)), block=128)
def shuffle_in_a_branch(x, out):
    i = cuda.grid(1)
    if i < x.size:
        value = x[i]
        for step in (16, 8, 4, 2, 1):
            value += cuda.shfl_down_sync(0xFFFFFFFF, value, step)  # <-
        if i % 32 == 0:
            out[i // 32] = value


@planted("shuffle", "not the thread with `return`", lambda: (x(40), zeros(40)))
def shuffle_after_a_return(x, out):
    i = cuda.grid(1)
    if i >= x.size:
        return
    value = cuda.shfl_xor_sync(0xFFFFFFFF, x[i], 16)  # <-
    out[i] = value


@planted("shuffle", "take it out of the condition", lambda: (x(),))
def shuffle_in_the_last_statement(x):
    i = cuda.grid(1)
    if i % 2 == 0:
        x[i] = cuda.shfl_sync(0xFFFFFFFF, x[i], 3)  # <-


@planted("shuffle", "cuda.ballot_sync before the branch", lambda: (x(),))
def vote_in_a_branch(x):
    i = cuda.grid(1)
    if i % 32 < 20:
        x[i] = cuda.ballot_sync(0xFFFFFFFF, x[i] > 0)  # <-
    x[i] += 1


# Loops


@planted("endless", "change `k` in the loop's body", lambda: (x(),))
def loop_without_increment(x):
    k = 0
    while k < x.size:  # <-
        x[cuda.grid(1)] += 1


@planted("endless", "`True` is always true", lambda: (x(),))
def loop_without_a_break(x):
    k = 0
    while True:  # <-
        k += 1
        if k < 0:
            break
    x[cuda.grid(1)] = k


@planted("endless", "`k != 0` was still true", lambda: (x(),))
def loop_that_misses_its_end(x):
    k = 1
    while k != 0:  # <-
        x[cuda.grid(1)] += 1
        k += 2


# Races without harm


@planted("harmless", "give each its own element", lambda: (x(4 * N), zeros(4 * N)), grid=4)
def all_write_all(x, out):
    for i in range(x.size):
        out[i] = x[i]  # <-
