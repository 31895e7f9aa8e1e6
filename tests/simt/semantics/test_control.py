"""Control flow and barriers: loops, branches, early returns and what threads share across them."""

from __future__ import annotations

import numpy as np
import pytest
from numba import float32, int32, int64

from kernels.simt import cuda
from kernels.simt.emit import module
from kernels.support.errors import CompileError, KernelError

N = 70


def test_shared_reverse(jit):
    @jit
    def kernel(a):
        tile = cuda.shared.array(64, int64)
        i = cuda.threadIdx.x
        tile[i] = a[i]
        cuda.syncthreads()
        a[i] = tile[63 - i]

    a = np.arange(64)
    kernel[1, 64](a)
    np.testing.assert_array_equal(a, np.arange(64)[::-1])


def test_variable_live_across_a_barrier(jit):
    @jit
    def kernel(a, out):
        tile = cuda.shared.array(32, int64)
        i = cuda.threadIdx.x
        mine = a[i] * 3
        tile[i] = mine
        cuda.syncthreads()
        other = tile[(i + 1) % 32]
        cuda.syncthreads()
        tile[i] = mine + other
        cuda.syncthreads()
        out[i] = tile[31 - i] * 1000 + mine

    a = np.arange(32)
    out = np.zeros(32, np.int64)
    kernel[1, 32](a, out)
    pair = a * 3 + np.roll(a * 3, -1)
    np.testing.assert_array_equal(out, pair[::-1] * 1000 + a * 3)


def test_a_shape_is_unpacked(jit):
    @jit
    def kernel(a, out):
        tile = cuda.shared.array((2, 3), int64)
        shape = a.shape
        m, n = shape
        rows, _ = tile.shape
        out[cuda.grid(1)] = m * 1000 + n * 100 + rows * 10 + len(shape)

    out = np.zeros(32)
    kernel[1, 32](np.zeros((5, 7)), out)
    assert (out == 5722).all()


def test_a_shape_of_another_length_is_refused():
    @cuda.jit
    def kernel(a):
        (_n,) = a.shape

    with pytest.raises(CompileError, match="cannot unpack 2 values into 1"):
        kernel[1, 1](np.zeros((2, 2)))


def test_a_loop_that_runs_once_for_the_block_and_may_wait(jit):
    @jit
    def kernel(a, out):
        i = int32(0)
        while True:
            i = int32(i + 1)
            if i > a[0]:
                break
        out[cuda.grid(1)] = i

    out = np.zeros(32)
    kernel[1, 32](np.full(3, 5), out)
    assert (out == 6).all()


def test_view_across_a_barrier(jit):
    @jit
    def kernel(a, out):
        tile = cuda.shared.array((8, 8), float32)
        i, j = cuda.threadIdx.x, cuda.threadIdx.y
        row = a[j]
        cell = tile[j]
        cell[i] = row[i]
        cuda.syncthreads()
        row[i] = tile[i, j] * 2
        cuda.syncthreads()
        out[j, i] = row[7 - i] + cell[i]

    a = np.arange(64, dtype=np.float32).reshape(8, 8)
    expected = (a.T * 2)[:, ::-1] + a
    out = np.zeros((8, 8), np.float32)
    kernel[1, (8, 8)](a.copy(), out)
    np.testing.assert_array_equal(out, expected)


def test_variable_retyped_across_a_barrier(jit):
    @jit
    def kernel(a, out):
        i = cuda.threadIdx.x
        v = a[i] * 2
        out[0, i] = v
        cuda.syncthreads()
        v = v * 0.25
        out[1, i] = v
        cuda.syncthreads()
        v = v > 1
        out[2, i] = v

    a = np.arange(8)
    out = np.zeros((3, 8))
    kernel[1, 8](a, out)
    np.testing.assert_array_equal(out, [a * 2, a * 0.5, a * 0.5 > 1])


def test_loop_with_barrier_and_halving_stride(jit):
    @jit
    def kernel(a, out):
        tile = cuda.shared.array(128, int64)
        i = cuda.threadIdx.x
        tile[i] = a[i]
        stride = 64
        while stride > 0:
            cuda.syncthreads()
            if i < stride:
                tile[i] += tile[i + stride]
            stride //= 2
        if i == 0:
            out[0] = tile[0]

    a = np.arange(128) ** 2
    out = np.zeros(1, np.int64)
    kernel[1, 128](a, out)
    assert out[0] == a.sum()


def test_nested_loops_with_barriers(jit):
    @jit
    def kernel(a, out):
        tile = cuda.shared.array(16, int64)
        i = cuda.threadIdx.x
        acc = 0
        for outer in range(3):
            for inner in range(2):
                tile[i] = a[i] + outer * 10 + inner
                cuda.syncthreads()
                acc = acc * 3 + tile[(i + inner + 1) % 16]
                cuda.syncthreads()
            acc += outer
        out[i] = acc

    a = np.arange(16)
    out = np.zeros(16, np.int64)
    kernel[1, 16](a, out)
    acc = np.zeros(16, np.int64)
    for outer in range(3):
        for inner in range(2):
            acc = acc * 3 + np.roll(a + outer * 10 + inner, -(inner + 1))
        acc += outer
    np.testing.assert_array_equal(out, acc)


def test_uniform_branch_with_barrier(jit):
    @jit
    def kernel(a, out, flag):
        tile = cuda.shared.array(32, int64)
        i = cuda.threadIdx.x
        b = cuda.blockIdx.x
        tile[i] = a[i] + b
        if b % 2 == flag:
            cuda.syncthreads()
            v = tile[31 - i]
        else:
            tile[i] += 100
            cuda.syncthreads()
            v = tile[(i + 1) % 32]
        cuda.syncthreads()
        out[b, i] = v

    a = np.arange(32)
    out = np.zeros((4, 32), np.int64)
    kernel[4, 32](a, out, 1)
    expected = [(a + b)[::-1] if b % 2 else np.roll(a + b + 100, -1) for b in range(4)]
    np.testing.assert_array_equal(out, expected)


def test_early_return_before_the_barrier_of_whole_blocks(jit):
    @jit
    def kernel(a, out, blocks):
        tile = cuda.shared.array(32, int64)
        if cuda.blockIdx.x >= blocks:
            return
        i = cuda.threadIdx.x
        tile[i] = a[i]
        cuda.syncthreads()
        out[cuda.blockIdx.x, i] = tile[31 - i]

    out = np.zeros((3, 32), np.int64)
    kernel[3, 32](np.arange(32), out, 2)
    np.testing.assert_array_equal(out, [np.arange(32)[::-1]] * 2 + [np.zeros(32)])


@pytest.mark.filterwarnings("ignore")
def test_exited_threads_do_not_hold_up_a_barrier(jit):
    @jit
    def kernel(a, n, out):
        tile = cuda.shared.array(128, int64)
        i = cuda.grid(1)
        if i >= n:
            return
        t = cuda.threadIdx.x
        tile[t] = a[i]
        cuda.syncthreads()
        if t > 0:
            out[i] = tile[t] - tile[t - 1]

    a = np.arange(N) ** 2
    out = np.zeros(N, np.int64)
    kernel[1, 128](a, N, out)
    np.testing.assert_array_equal(out[1:], np.diff(a))


@pytest.mark.filterwarnings("ignore")
def test_return_inside_a_loop_between_barriers(jit):
    @jit
    def kernel(out):
        tile = cuda.shared.array(16, int64)
        i = cuda.threadIdx.x
        tile[i] = i
        cuda.syncthreads()
        for step in range(8):
            if i == 15 - step:
                out[i] = -step
                return
            if i == 0:
                tile[0] += tile[step + 1]
            cuda.syncthreads()
        out[i] = tile[0]

    out = np.zeros(16, np.int64)
    kernel[1, 16](out)
    assert out.tolist() == [36] * 8 + [-7, -6, -5, -4, -3, -2, -1, 0]


def test_break_and_continue_without_barriers(jit):
    @jit
    def kernel(a, out):
        i = cuda.grid(1)
        total = 0
        for k in range(a.size):
            if a[k] % 3 == 0:
                continue
            if a[k] > i * 2:
                break
            for m in range(5):
                if m == k:
                    break
                total += m
            total += a[k]
        out[i] = total

    a = np.arange(1, 40)
    out = np.zeros(24, np.int64)
    kernel[2, 12](a, out)

    def expected(i):
        total = 0
        for k, v in enumerate(a):
            if v % 3 == 0:
                continue
            if v > i * 2:
                break
            total += sum(range(min(k, 5))) + v
        return total

    assert out.tolist() == [expected(i) for i in range(24)]


def test_uniform_break_and_continue_with_barriers(jit):
    @jit
    def kernel(a, out):
        tile = cuda.shared.array(16, int64)
        i = cuda.threadIdx.x
        acc = 0
        for k in range(20):
            tile[i] = a[i] * k
            cuda.syncthreads()
            first = tile[0]
            last = tile[15]
            cuda.syncthreads()
            if k % 3 == 1:
                continue
            acc += last - first + i
            if last > 60:
                break
            cuda.syncthreads()
        out[i] = acc

    a = np.arange(16) + 1
    out = np.zeros(16, np.int64)
    kernel[1, 16](a, out)
    i = np.arange(16)
    expected = sum(15 * k + i for k in (0, 2, 3, 5))
    np.testing.assert_array_equal(out, expected)


def test_vote_driven_loop(jit):
    @jit
    def kernel(a, out):
        tile = cuda.shared.array(32, int64)
        i = cuda.threadIdx.x
        tile[i] = a[i]
        cuda.syncthreads()
        rounds = 0
        while cuda.syncthreads_or(int32(tile[i] > 1)):
            v = tile[i]
            if v > 1:
                tile[i] = v // 2 if v % 2 == 0 else 3 * v + 1
            rounds += 1
        out[i] = rounds

    a = np.arange(1, 33)
    out = np.zeros(32, np.int64)
    kernel[1, 32](a, out)

    def collatz(v):
        n = 0
        while v > 1:
            v = v // 2 if v % 2 == 0 else 3 * v + 1
            n += 1
        return n

    np.testing.assert_array_equal(out, np.full(32, max(collatz(v) for v in range(1, 33))))


def test_count_and_or_barriers(jit):
    @jit
    def kernel(a, out):
        i = cuda.threadIdx.x
        out[0, i] = cuda.syncthreads_count(int32(a[i] > 3))
        out[1, i] = cuda.syncthreads_and(int32(a[i] >= 0))
        out[2, i] = cuda.syncthreads_and(int32(a[i] > 0))
        out[3, i] = cuda.syncthreads_or(int32(a[i] > 40))
        out[4, i] = cuda.syncthreads_or(int32(a[i] > 38))

    a = np.arange(40, dtype=np.int32)
    out = np.zeros((5, 40), np.int32)
    kernel[1, 40](a, out)
    np.testing.assert_array_equal(out.astype(bool)[1:], [[1] * 40, [0] * 40, [0] * 40, [1] * 40])
    assert (out[0] == 36).all()


def test_count_barrier_inside_an_expression_keeps_the_order(jit):
    @jit
    def kernel(a, out):
        i = cuda.threadIdx.x
        out[i] = a[i] + 100 * cuda.syncthreads_count(int32(a[i] > 2)) + a[i]

    a = np.arange(8)
    out = np.zeros(8, np.int64)
    kernel[1, 8](a, out)
    np.testing.assert_array_equal(out, 2 * a + 500)


def test_warp_specialised_barriers(jit):
    # Both halves arrive, each at its own syncthreads: hardware counts arrivals.
    @jit
    def kernel(out):
        tile = cuda.shared.array(64, int64)
        i = cuda.threadIdx.x
        if i < 32:
            tile[i] = i
            cuda.syncthreads()
            out[i] = tile[i + 32]
        else:
            tile[i] = i * 10
            cuda.syncthreads()
            out[i] = tile[i - 32]

    out = np.zeros(64, np.int64)
    kernel[1, 64](out)
    assert out.tolist() == [i * 10 for i in range(32, 64)] + list(range(32))


def test_barrier_under_a_thread_dependent_but_always_true_branch(jit):
    @jit
    def kernel(a, out):
        tile = cuda.shared.array(32, int64)
        i = cuda.threadIdx.x
        if a[i] >= 0:  # true for all threads, which nothing can prove
            tile[i] = a[i]
            cuda.syncthreads()
            out[i] = tile[31 - i]

    out = np.zeros(32, np.int64)
    kernel[1, 32](np.arange(32), out)
    assert out.tolist() == list(range(32))[::-1]


def test_thread_dependent_trip_count_with_equal_values(jit):
    @jit
    def kernel(trips, out):
        tile = cuda.shared.array(32, int64)
        i = cuda.threadIdx.x
        tile[i] = i
        acc = 0
        for k in range(trips[i]):
            cuda.syncthreads()
            acc += tile[(i + k) % 32]
            cuda.syncthreads()
            tile[i] += 1
        out[i] = acc

    out = np.zeros(32, np.int64)
    kernel[1, 32](np.full(32, 4), out)
    i = np.arange(32)
    np.testing.assert_array_equal(out, sum((i + k) % 32 + k for k in range(4)))


def test_while_true_with_barrier_and_uniform_break(jit):
    @jit
    def kernel(a, out):
        tile = cuda.shared.array(32, int64)
        i = cuda.threadIdx.x
        tile[i] = a[i]
        steps = 0
        while True:
            cuda.syncthreads()
            left = tile[(i + 31) % 32]
            cuda.syncthreads()
            tile[i] = max(tile[i], left)
            steps += 1
            if steps == 5:
                break
        cuda.syncthreads()
        out[i] = tile[i]

    a = (np.arange(32) * 7) % 32
    out = np.zeros(32, np.int64)
    kernel[1, 32](a, out)
    expected = np.max([np.roll(a, k) for k in range(6)], axis=0)
    np.testing.assert_array_equal(out, expected)


def test_grid_stride_loop(jit):
    @jit
    def kernel(a, out):
        for i in range(cuda.grid(1), a.size, cuda.gridsize(1)):
            out[i] = a[i] * 2

    for n in (0, 1, 31, 64, 1025):
        a = np.arange(n)
        out = np.zeros(n, np.int64)
        kernel[3, 32](a, out)
        np.testing.assert_array_equal(out, a * 2)


def test_three_dimensional_grid_and_block(jit):
    @jit
    def kernel(out, ids):
        x, y, z = cuda.grid(3)
        if x < out.shape[2] and y < out.shape[1] and z < out.shape[0]:
            t = cuda.threadIdx
            out[z, y, x] = t.x + 10 * t.y + 100 * t.z
            gx, gy, gz = cuda.gridsize(3)
            ids[z, y, x] = (
                cuda.blockIdx.x
                + cuda.gridDim.x * (cuda.blockIdx.y + cuda.gridDim.y * cuda.blockIdx.z)
            ) * 1000 + gx * gy * gz

    shape = (5, 7, 9)
    out, ids = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    kernel[(3, 4, 2), (4, 2, 3)](out, ids)
    z, y, x = np.indices(shape)
    np.testing.assert_array_equal(out, x % 4 + 10 * (y % 2) + 100 * (z % 3))
    block = x // 4 + 3 * (y // 2 + 4 * (z // 3))
    np.testing.assert_array_equal(ids, block * 1000 + 12 * 8 * 6)


def test_two_dimensional_barrier(jit):
    @jit
    def kernel(a, out):
        tile = cuda.shared.array((6, 8), int64)
        x, y = cuda.threadIdx.x, cuda.threadIdx.y
        gx, gy = cuda.grid(2)
        tile[y, x] = a[gy, gx]
        cuda.syncthreads()
        out[gy, gx] = tile[5 - y, 7 - x]

    a = np.arange(12 * 16).reshape(12, 16)
    out = np.zeros_like(a)
    kernel[(2, 2), (8, 6)](a, out)
    expected = a.reshape(2, 6, 2, 8)[:, ::-1, :, ::-1].reshape(12, 16)
    np.testing.assert_array_equal(out, expected)


def test_order_of_evaluation_with_a_collective(jit):
    # f(a[i]) + count(): the read happens before the barrier, the write after it.
    @jit
    def kernel(a, out):
        i = cuda.threadIdx.x
        out[i] = a[(i + 1) % 8] * 10 + cuda.syncthreads_count(int32(i < 5))
        cuda.syncthreads()
        a[i] = out[i]

    a = np.arange(8)
    out = np.zeros(8, np.int64)
    kernel[1, 8](a, out)
    np.testing.assert_array_equal(out, np.roll(np.arange(8), -1) * 10 + 5)
    np.testing.assert_array_equal(a, out)


def test_short_circuit_with_barrier_on_the_right(jit):
    @jit
    def kernel(out, flag):
        i = cuda.threadIdx.x
        if flag > 0 and cuda.syncthreads_or(int32(i == 7)):
            out[i] = 1
        else:
            out[i] = 2

    for flag, value in ((0, 2), (1, 1)):
        out = np.zeros(8, np.int64)
        kernel[1, 8](out, flag)
        assert (out == value).all()


def test_uniform_scalar_that_changes_in_a_loop(jit):
    @jit
    def kernel(out, n):
        tile = cuda.shared.array(1, int64)
        i = cuda.threadIdx.x
        width = 1
        while width < n:
            if i == 0:
                tile[0] = width
            cuda.syncthreads()
            out[i] += tile[0]
            cuda.syncthreads()
            width *= 2

    out = np.zeros(8, np.int64)
    kernel[1, 8](out, 20)
    assert (out == 31).all()


def test_shared_value_written_by_one_thread_is_seen_by_all(jit):
    @jit
    def kernel(out):
        box = cuda.shared.array(2, int32)
        if cuda.threadIdx.x == 31:
            box[0] = cuda.blockIdx.x + 5
            box[1] = 7
        cuda.syncthreads()
        out[cuda.grid(1)] = box[0] * box[1]

    out = np.zeros(64, np.int32)
    kernel[2, 32](out)
    assert out.tolist() == [35] * 32 + [42] * 32


def test_statements_between_barriers_see_a_whole_phase(jit):
    # Each phase reads the neighbour's value of the phase before, never a mixture.
    @jit
    def kernel(a):
        i = cuda.threadIdx.x
        for _ in range(5):
            v = a[(i + 1) % 64]
            cuda.syncthreads()
            a[i] = v
            cuda.syncthreads()

    a = np.arange(64)
    kernel[1, 64](a)
    np.testing.assert_array_equal(a, np.roll(np.arange(64), -5))


def test_pass_kernels_and_empty_arrays(jit):
    @jit
    def nothing(a):
        pass

    @jit
    def guarded(a):
        i = cuda.grid(1)
        if i < a.size:
            a[i] = 1

    nothing[1, 1](np.zeros(1))
    empty = np.zeros(0)
    guarded[1, 32](empty)
    guarded[2, 32](np.zeros((0,), np.float32))
    assert empty.size == 0


def test_threads_that_never_meet_a_barrier_again(jit):
    @jit
    def kernel(out):
        i = cuda.threadIdx.x
        count = 0
        cuda.syncthreads()
        while count < i:
            count += 1
            if count == 10:
                out[i] = -1
                return
        out[i] = count

    out = np.zeros(16, np.int64)
    kernel[1, 16](out)
    assert out.tolist() == [*range(10), *[-1] * 6]


def test_fence_and_syncwarp_are_accepted(jit):
    @jit
    def kernel(out):
        tile = cuda.shared.array(32, int64)
        i = cuda.threadIdx.x
        tile[i] = i
        cuda.threadfence_block()
        cuda.syncwarp()
        out[i] = tile[31 - i]
        cuda.threadfence()
        cuda.threadfence_system()
        cuda.syncwarp(0xFFFFFFFF)

    out = np.zeros(32, np.int64)
    kernel[1, 32](out)
    assert out.tolist() == list(range(32))[::-1]


@pytest.mark.usefixtures("few_iterations")
def test_a_loop_that_only_another_thread_could_end_is_an_error():
    @cuda.jit
    def wait(flag, out):
        n = 0
        value = flag[0]
        while value == 0:
            value = flag[0]
            n += 1
        out[0] = n

    with pytest.raises(KernelError, match="seems to wait for memory"):
        wait[1, 1](np.zeros(1), np.zeros(1))


@pytest.mark.usefixtures("few_iterations")
def test_a_long_loop_that_goes_on_does_not_wait():
    """It reads memory to know where to end, but changes what it looks at."""

    @cuda.jit
    def search(x, out):
        j = 0
        while x[j] != 7:
            j += 1
        out[0] = j

    @cuda.jit
    def count(x, out):
        while x[0] < 3000:
            x[0] += 1
        out[0] = x[0]

    @cuda.jit
    def approach(x, out):
        value, step = 0, x[0]
        while True:
            value += step
            if value > x[1]:
                break
        out[0] = value

    for kernel, x, expected in [
        (search, np.arange(5000) // 4000 * 7, 4000),
        (count, np.zeros(1), 3000),
        (approach, np.array([1, 3000]), 3001),
    ]:
        out = np.zeros(1)
        kernel[1, 1](x, out)
        assert out[0] == expected


@pytest.fixture
def few_iterations(monkeypatch, tmp_path):
    monkeypatch.setattr(module, "SPIN_LIMIT", 1000)
    monkeypatch.setenv("MINIGRAD_CACHE_DIR", str(tmp_path))
