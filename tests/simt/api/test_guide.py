"""What Numba's guide to CUDA shows, in other words: its examples run here as described."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numba import int32, int64, types

from kernels.simt import cuda
from kernels.simt.api import xoroshiro as random


def test_laplace_by_two_buffers():
    """Heat in a rod whose ends are held: buffers are exchanged after each step."""
    n, steps = 101, 400
    ends = np.zeros(n)
    ends[0], ends[-1] = 100.0, 20.0

    @cuda.jit
    def diffuse(now, before, k, timesteps):
        i = cuda.grid(1)
        g = cuda.cg.this_grid()
        for step in range(timesteps):
            if step % 2 == 0:
                data, then = now, before
            else:
                data, then = before, now
            if i < data.size:
                here = data[i]
                if i == 0 or i == data.size - 1:
                    then[i] = here
                else:
                    then[i] = here + k * (data[i - 1] - 2 * here + data[i + 1])
            g.sync()

    a, b = cuda.to_device(ends), cuda.to_device(ends)
    diffuse[1, 128](a, b, 0.25, steps)
    expected = ends.copy()
    for _ in range(steps):
        expected[1:-1] += 0.25 * (expected[:-2] - 2 * expected[1:-1] + expected[2:])
    np.testing.assert_allclose(a.copy_to_host(), expected)


def test_a_grid_that_waits_for_itself():
    @cuda.jit("void(int32[:, ::1])")
    def rows(m):
        column = cuda.grid(1)
        g = cuda.cg.this_grid()
        for row in range(1, m.shape[0]):
            m[row, column] = m[row - 1, m.shape[1] - column - 1] + 1
            g.sync()

    overload = rows.overloads[(int32[:, ::1],)]  # before any launch: it has a signature
    most = overload.max_cooperative_grid_blocks(32)
    assert most == 32 * cuda.get_current_device().MULTIPROCESSOR_COUNT
    assert overload.max_cooperative_grid_blocks((32, 32)) < most
    m = np.zeros((20, 256), np.int32)
    rows[8, 32](m)
    assert (m == np.arange(20)[:, None]).all()


def test_monte_carlo():
    @cuda.jit
    def inside(states, draws, out):
        i = cuda.grid(1)
        count = 0
        for _ in range(draws):
            x = random.xoroshiro128p_uniform_float32(states, i)
            y = random.xoroshiro128p_uniform_float32(states, i)
            if x**2 + y**2 <= 1.0:
                count += 1
        out[i] = 4.0 * count / draws

    states = random.create_xoroshiro128p_states(64 * 24, seed=1)
    out = np.zeros(64 * 24, np.float32)
    inside[24, 64](states, 1000, out)
    assert abs(out.mean() - math.pi) < 5 * 1.64 / math.sqrt(64 * 24 * 1000)


def test_the_sum_of_a_block_in_shared_memory(rng):
    @cuda.jit
    def total(values):
        i = cuda.threadIdx.x
        shared = cuda.shared.array(256, int64)
        shared[i] = values[i]
        cuda.syncthreads()
        width = 1
        while width < cuda.blockDim.x:
            if i % (2 * width) == 0:
                shared[i] += shared[i + width]
            width *= 2
            cuda.syncthreads()
        if i == 0:
            values[0] = shared[0]

    numbers = rng.integers(0, 100, 256)
    device = cuda.to_device(numbers)
    total[1, 256](device)
    assert device[0] == numbers.sum()


def test_sessions_of_visits(rng):
    """Visits of a user less than a timeout apart are one session, found by its first visit."""

    @cuda.jit
    def sessionize(users, times, timeout, results):
        i = cuda.grid(1)
        g = cuda.cg.this_grid()
        if i < len(users):
            first = i == 0 or users[i] != users[i - 1] or times[i] - times[i - 1] > timeout
            results[i] = i if first else -1
        g.sync()
        if i < len(users) and results[i] == i:
            j = i + 1
            while j < len(users) and results[j] == -1:
                results[j] = i
                j += 1

    users = np.sort(rng.integers(0, 6, 200))
    times = np.concatenate([np.sort(rng.integers(0, 4000, (users == u).sum())) for u in range(6)])
    results = cuda.device_array(200, np.int64)
    sessionize[4, 64](cuda.to_device(users), cuda.to_device(times), 60, results)
    expected = [0]
    for i in range(1, 200):
        same = users[i] == users[i - 1] and times[i] - times[i - 1] <= 60
        expected.append(expected[-1] if same else i)
    assert results.copy_to_host().tolist() == expected


def test_matrix_products_with_a_border(rng):
    size = 16

    @cuda.jit
    def product(a, b, c):
        sa = cuda.shared.array((size, size), types.float32)
        sb = cuda.shared.array((size, size), types.float32)
        x, y = cuda.grid(2)
        tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
        total = types.float32(0)
        for tile in range((a.shape[1] + size - 1) // size):
            sa[ty, tx] = 0
            sb[ty, tx] = 0
            if y < a.shape[0] and tx + tile * size < a.shape[1]:
                sa[ty, tx] = a[y, tx + tile * size]
            if x < b.shape[1] and ty + tile * size < b.shape[0]:
                sb[ty, tx] = b[ty + tile * size, x]
            cuda.syncthreads()
            for j in range(size):
                total += sa[ty, j] * sb[j, tx]
            cuda.syncthreads()
        if y < c.shape[0] and x < c.shape[1]:
            c[y, x] = total

    a, b = rng.random((23, 37), dtype=np.float32), rng.random((37, 41), dtype=np.float32)
    c = np.zeros((23, 41), np.float32)
    product[(3, 2), (size, size)](a, b, c)
    np.testing.assert_allclose(c, a @ b, rtol=1e-5)


def test_generalised_ufuncs_and_device_functions(rng):
    x = rng.random((2, 10), dtype=np.float32)
    with pytest.raises(TypeError, match="writable_args are not supported"):  # as in numba-cuda
        cuda.guvectorize("void(float32[:])", "(t)", writable_args=("v",), target="cuda")(abs)

    @cuda.guvectorize("void(float32[:], float32[:])", "(t)->(t)", target="cuda")
    def sums(values, out):
        total = 0.0
        for i in range(values.shape[0]):
            total += values[i]
            out[i] = total

    np.testing.assert_allclose(sums(x), x.cumsum(1), rtol=1e-6)

    @cuda.jit(device=True)
    def polynomial(v):
        return 3 * v**2 + 1

    @cuda.vectorize("float64(float64)", target="cuda")
    def apply(v):
        return polynomial(v) / 2

    np.testing.assert_allclose(apply(x.astype(float)), (3 * x.astype(float) ** 2 + 1) / 2)


def test_a_library_function_for_kernels():
    from kernels.simt.api.extending import overload

    def clamp(value, low, high):
        raise NotImplementedError

    @overload(clamp, target="cuda")
    def compiled(value, low, high):
        return lambda value, low, high: min(max(value, low), high)

    @cuda.jit
    def use(x):
        i = cuda.grid(1)
        if i < x.size:
            x[i] = clamp(x[i], 2.0, 5.0)

    x = np.arange(8.0)
    use[1, 32](x)
    assert x.tolist() == [2, 2, 2, 3, 4, 5, 5, 5]


def test_memory_of_the_host(rng):
    """Pinned, mapped and managed arrays, events around work of a stream."""
    pinned, managed = cuda.pinned_array(32, np.float32), cuda.managed_array(32, np.float32)
    pinned[:] = rng.random(32)

    @cuda.jit
    def double(x, y):
        y[cuda.grid(1)] = 2 * x[cuda.grid(1)]

    stream = cuda.stream()
    before, after = cuda.event(), cuda.event()
    before.record(stream)
    double[1, 32, stream](cuda.to_device(pinned, stream=stream), managed)
    after.record(stream)
    after.synchronize()
    assert cuda.event_elapsed_time(before, after) >= 0
    np.testing.assert_array_equal(managed, 2 * pinned)
    mapped = cuda.mapped_array(32, np.float32)
    double[1, 32](managed, mapped)
    np.testing.assert_array_equal(mapped, 4 * pinned)
    with pytest.raises(IndexError, match="device 1"):
        cuda.gpus[1]
