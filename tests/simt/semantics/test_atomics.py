"""Atomics: every operation, the value it returns, on global and shared arrays, across blocks."""

from __future__ import annotations

import numpy as np
import pytest
from numba import float32, int32, int64

from kernels.simt import cuda

INTEGERS = [np.int32, np.uint32, np.int64, np.uint64]
NUMBERS = [*INTEGERS, np.float32, np.float64]


@pytest.mark.parametrize("dtype", NUMBERS)
def test_add_and_sub(dtype):
    @cuda.jit
    def kernel(a, v):
        i = cuda.grid(1)
        if i < v.size:
            cuda.atomic.add(a, i % 7, v[i])
            cuda.atomic.sub(a, 7 + i % 3, v[i])

    v = (np.arange(1000) % 13).astype(dtype)
    a = np.full(10, 5000).astype(dtype)
    kernel[8, 128](a, v)
    i = np.arange(1000)
    expected = [5000 + int(v[i % 7 == k].sum()) for k in range(7)]
    expected += [5000 - int(v[i % 3 == k].sum()) for k in range(3)]
    assert a.tolist() == expected


@pytest.mark.parametrize("dtype", NUMBERS)
def test_max_and_min(dtype):
    @cuda.jit
    def kernel(a, v):
        i = cuda.grid(1)
        if i < v.size:
            cuda.atomic.max(a, (i % 2, 0), v[i])
            cuda.atomic.min(a, (i % 2, 1), v[i])

    v = ((np.arange(300) * 37) % 301).astype(dtype)
    a = np.full((2, 2), 150).astype(dtype)
    kernel[3, 128](a, v)
    assert a.tolist() == [[v[k::2].max(), v[k::2].min()] for k in range(2)]


@pytest.mark.parametrize("dtype", INTEGERS)
def test_bitwise(dtype):
    @cuda.jit
    def kernel(a, v):
        i = cuda.grid(1)
        cuda.atomic.or_(a, 0, v[i])
        cuda.atomic.and_(a, 1, ~v[i])
        cuda.atomic.xor(a, 2, v[i])

    v = (1 << (np.arange(64) % 11)).astype(dtype)
    a = np.array([0, 0xFFFF, 0], dtype)
    kernel[2, 32](a, v)
    parity = np.bitwise_xor.reduce(v)
    assert a.tolist() == [2047, 0xFFFF & ~2047, parity]


@pytest.mark.parametrize("dtype", [np.uint32, np.uint64])
def test_inc_and_dec_wrap(dtype):
    @cuda.jit
    def kernel(a, limit):
        cuda.atomic.inc(a, 0, limit[0])
        cuda.atomic.dec(a, 1, limit[0])

    a = np.array([3, 3], dtype)
    kernel[1, 32](a, np.array([9], dtype))
    assert a.tolist() == [(3 + 32) % 10, (3 - 32) % 10]


@pytest.mark.parametrize("dtype", [np.uint32, np.uint64])
def test_dec_above_the_limit_returns_to_it(dtype):
    @cuda.jit
    def kernel(a, limit):
        cuda.atomic.dec(a, 0, limit[0])
        cuda.atomic.inc(a, 1, limit[0])

    a = np.array([100, 100], dtype)
    kernel[1, 1](a, np.array([9], dtype))
    assert a.tolist() == [9, 0]


@pytest.mark.parametrize("dtype", INTEGERS)
def test_exch_and_cas(dtype):
    @cuda.jit
    def kernel(a, old, swapped):
        i = cuda.grid(1)
        old[i] = cuda.atomic.exch(a, i, i + 1)
        swapped[i] = cuda.atomic.cas(a, i, 3, 99)

    a = (np.arange(6) * 10).astype(dtype)
    old, swapped = np.zeros(6, dtype), np.zeros(6, dtype)
    kernel[1, 6](a, old, swapped)
    assert old.tolist() == [0, 10, 20, 30, 40, 50]
    assert swapped.tolist() == [1, 2, 3, 4, 5, 6]
    assert a.tolist() == [1, 2, 99, 4, 5, 6]


def test_compare_and_swap(jit):
    @jit
    def kernel(a, out):
        i = cuda.grid(1)
        out[i] = cuda.atomic.compare_and_swap(a[i:], -1, i * 10)

    a = np.array([-1, 5, -1, 6], np.int32)
    out = np.zeros(4, np.int32)
    kernel[1, 4](a, out)
    assert out.tolist() == [-1, 5, -1, 6]
    assert a.tolist() == [0, 5, 20, 6]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_nan_handling_of_max_and_min(dtype):
    @cuda.jit
    def kernel(a, v):
        i = cuda.grid(1)
        cuda.atomic.nanmax(a, 0, v[i])
        cuda.atomic.nanmin(a, 1, v[i])

    v = np.array([np.nan, 3, np.nan, -7, 5, np.nan], dtype)
    a = np.array([0, 0], dtype)
    kernel[1, 6](a, v)
    assert a.tolist() == [5, -7]
    a = np.array([np.nan, np.nan], dtype)
    kernel[1, 6](a, v)
    assert a.tolist() == [5, -7]


def test_returned_values_are_the_old_ones(jit):
    @jit
    def kernel(counter, slots):
        i = cuda.grid(1)
        mine = cuda.atomic.add(counter, 0, 1)
        slots[mine] = i

    counter, slots = np.zeros(1, np.int32), np.full(200, -1, np.int32)
    kernel[4, 50](counter, slots)
    assert counter[0] == 200
    assert sorted(slots.tolist()) == list(range(200))


def test_shared_atomics(jit):
    @jit
    def kernel(v, out):
        box = cuda.shared.array(4, int32)
        t = cuda.threadIdx.x
        if t < 4:
            box[t] = 0 if t != 2 else 1000
        cuda.syncthreads()
        x = v[cuda.grid(1)]
        cuda.atomic.add(box, 0, x)
        cuda.atomic.max(box, 1, x)
        cuda.atomic.min(box, 2, x)
        cuda.atomic.xor(box, 3, x)
        cuda.syncthreads()
        if t < 4:
            out[cuda.blockIdx.x, t] = box[t]

    v = ((np.arange(128) * 29) % 127).astype(np.int32)
    out = np.zeros((2, 4), np.int32)
    kernel[2, 64](v, out)
    rows = v.reshape(2, 64)
    expected = [[r.sum(), r.max(), r.min(), np.bitwise_xor.reduce(r)] for r in rows]
    np.testing.assert_array_equal(out, expected)


def test_shared_float_atomic_add_returns_old(jit):
    @jit
    def kernel(out):
        total = cuda.shared.array(1, float32)
        t = cuda.threadIdx.x
        if t == 0:
            total[0] = 0
        cuda.syncthreads()
        old = cuda.atomic.add(total, 0, float32(0.5))
        out[int32(old * 2)] += 1
        cuda.syncthreads()
        if t == 0:
            out[32] = total[0]

    out = np.zeros(33, np.float32)
    kernel[1, 32](out)
    assert out.tolist() == [1] * 32 + [16]


def test_two_dimensional_index_and_negative_index(jit):
    @jit
    def kernel(a):
        i = cuda.grid(1)
        cuda.atomic.add(a, (i % 3, i % 4), i)
        cuda.atomic.add(a, (-1, -1), 1)

    a = np.zeros((3, 4), np.int64)
    kernel[1, 60](a)
    expected = np.zeros((3, 4), np.int64)
    i = np.arange(60)
    np.add.at(expected, (i % 3, i % 4), i)
    expected[-1, -1] += 60
    np.testing.assert_array_equal(a, expected)


def test_atomics_across_blocks_and_os_threads(jit):
    @jit
    def kernel(a):
        cuda.atomic.add(a, cuda.threadIdx.x % 3, 1)

    a = np.zeros(3, np.int32)
    kernel[500, 96](a)
    assert a.tolist() == [16000] * 3


def before_a_guard(out, total):
    i = cuda.grid(1)
    cuda.atomic.add(total, 0, 1)
    if i < out.size:
        out[i] = 1


def ticket_before_a_guard(out, total):
    i = cuda.grid(1)
    ticket = cuda.atomic.add(total, 0, 1)
    if i < out.size:
        out[i] = ticket - ticket + 1


def before_a_return(out, total):
    i = cuda.grid(1)
    ticket = cuda.atomic.add(total, 0, 1)
    if i >= out.size:
        return
    out[i] = min(ticket + 1, 1)


def in_a_loop(out, total):
    i = cuda.grid(1)
    for k in range(out.size):
        ticket = cuda.atomic.add(total, 0, 1)
        if i < out.size:
            out[i] = min(ticket + 1, 1) + 0 * k


def after_a_barrier(out, total):
    i = cuda.grid(1)
    tile = cuda.shared.array(8, int64)
    tile[cuda.threadIdx.x] = min(i, 0) + 1
    cuda.syncthreads()
    ticket = cuda.atomic.add(total, 0, 1)
    if i < out.size:
        out[i] = tile[7 - cuda.threadIdx.x] + 0 * ticket


@pytest.mark.parametrize(
    ("kernel", "each"),
    [
        (before_a_guard, 1),
        (ticket_before_a_guard, 1),
        (before_a_return, 1),
        (in_a_loop, 10),
        (after_a_barrier, 1),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_an_atomic_in_front_of_a_guard_is_for_all_threads(jit, kernel, each):
    """The bounds of a guard are those of a loop; what is in front of it is not inside."""
    out, total = np.zeros(10, np.int64), np.zeros(1, np.int64)
    jit(kernel)[4, 8](out, total)
    assert out.tolist() == [1] * 10 and total[0] == 32 * each


def test_spin_free_lock_with_cas(jit):
    # Each thread takes the lock once; a thread never waits for a later one.
    @jit
    def kernel(lock, value):
        taken = False
        while not taken:
            if cuda.atomic.cas(lock, 0, 0, 1) == 0:
                value[0] += 1
                cuda.threadfence()
                cuda.atomic.exch(lock, 0, 0)
                taken = True

    lock, value = np.zeros(1, np.int32), np.zeros(1, np.int64)
    kernel[1, 40](lock, value)
    assert (lock[0], value[0]) == (0, 40)


def test_last_block_done(jit):
    # The threadfence reduction: the last block to finish adds the others' sums.
    @jit
    def kernel(a, partial, ticket, out):
        s = cuda.shared.array(32, int64)
        last = cuda.shared.array(1, int32)
        t = cuda.threadIdx.x
        s[t] = a[cuda.grid(1)]
        cuda.syncthreads()
        k = 16
        while k:
            if t < k:
                s[t] += s[t + k]
            cuda.syncthreads()
            k >>= 1
        if t == 0:
            partial[cuda.blockIdx.x] = s[0]
            cuda.threadfence()
            last[0] = cuda.atomic.inc(ticket, 0, cuda.gridDim.x - 1) == cuda.gridDim.x - 1
        cuda.syncthreads()
        if last[0] and t == 0:
            total = 0
            for b in range(cuda.gridDim.x):
                total += partial[b]
            out[0] = total

    a = np.arange(32 * 9)
    ticket, out = np.zeros(1, np.uint32), np.zeros(1, np.int64)
    kernel[9, 32](a, np.zeros(9, np.int64), ticket, out)
    assert (out[0], ticket[0]) == (a.sum(), 0)


def test_atomic_operation_passed_as_an_argument():
    def accumulate(op):
        @cuda.jit
        def kernel(a, v):
            i = cuda.grid(1)
            op(a, 0, v[i])

        return kernel

    v = np.array([3, 9, 4, 1], np.int64)
    for op, expected in ((cuda.atomic.add, 17), (cuda.atomic.max, 9)):
        a = np.zeros(1, np.int64)
        accumulate(op)[1, 4](a, v)
        assert a[0] == expected


def test_atomic_operation_as_a_device_function_parameter(jit):
    @cuda.jit(device=True)
    def apply(op, a, v):
        op(a, 0, v)

    @jit
    def kernel(a, v):
        i = cuda.grid(1)
        apply(cuda.atomic.add, a, v[i])

    a = np.zeros(1, np.int64)
    kernel[1, 4](a, np.array([3, 9, 4, 1]))
    assert a[0] == 17


def test_histogram_with_privatisation(jit, rng):
    @jit
    def kernel(data, out):
        bins = cuda.shared.array(16, int64)
        t = cuda.threadIdx.x
        if t < 16:
            bins[t] = 0
        cuda.syncthreads()
        for i in range(cuda.grid(1), data.size, cuda.gridsize(1)):
            cuda.atomic.add(bins, data[i], 1)
        cuda.syncthreads()
        if t < 16:
            cuda.atomic.add(out, t, bins[t])

    data = rng.integers(0, 16, 2000)
    out = np.zeros(16, np.int64)
    kernel[3, 64](data, out)
    np.testing.assert_array_equal(out, np.bincount(data, minlength=16))
