"""Grid-stride loops: neighbouring blocks run them together, several iterations at a time. What each
thread computes stays the same to the last bit, and loops that blocks cannot share are left alone.
"""

from __future__ import annotations

import numpy as np
import pytest
from numba import float32, int32, int64

from kernels.simt import cuda
from tests.simt.plans import plan

TOGETHER = "blocks run each iteration"
SIZES = pytest.mark.parametrize("n", [0, 5, 6_000, 70_000, 1_000_003])
GRIDS = pytest.mark.parametrize(
    ("grid", "block"), [(64, 256), (3, 512), (41, 96), (1, 32), ((5, 3), 64), ((40, 2), 128)]
)


def random(n: int, dtype: type = np.float32) -> np.ndarray:
    return (np.random.default_rng(n).random(n) - 0.3).astype(dtype)


def by_threads(x: np.ndarray, threads: int, step: int = 1) -> np.ndarray:
    """The sum of each of `threads` threads that go through x with a grid stride, in its dtype."""
    total = np.zeros(threads, x.dtype)
    for start in range(0, x.size, threads * step):
        part = x[start : start + threads * step : step]
        total[: part.size] += part
    return total


@cuda.jit
def sums(x, out):
    total = x.dtype.type(0)
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        total += x[i]
    out[cuda.blockIdx.y, cuda.grid(1)] = total


@SIZES
@GRIDS
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_each_thread_adds_its_elements_in_their_order(n, grid, block, dtype):
    x = (random(n, np.float64) * 1000).astype(dtype)
    columns, lines = grid if isinstance(grid, tuple) else (grid, 1)
    out = np.full((lines, columns * block), -1, dtype)
    sums[grid, block](x, out)
    for line in out:
        np.testing.assert_array_equal(line, by_threads(x, columns * block))
    assert TOGETHER in plan(sums)


@SIZES
@GRIDS
def test_a_sum_of_the_block_after_the_loop(n, grid, block):
    @cuda.jit
    def sum_of_block(x, out):
        partial = cuda.shared.array(512, float32)
        t, scale = cuda.threadIdx.x, cuda.blockIdx.x + 1  # what the rest needs is computed again
        total = float32(0)
        for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
            total += x[i]
        partial[t] = total
        cuda.syncthreads()
        if t == 0:
            for k in range(1, cuda.blockDim.x):
                total += partial[k]
            out[cuda.blockIdx.y, cuda.blockIdx.x] = total * scale

    x = np.round(random(n) * 64)
    columns, lines = grid if isinstance(grid, tuple) else (grid, 1)
    out = np.full((lines, columns), -1, np.float32)
    sum_of_block[grid, block](x, out)
    expected = by_threads(x, columns * block).reshape(columns, block).sum(1)
    np.testing.assert_array_equal(out, [expected * np.arange(1, columns + 1)] * lines)
    assert TOGETHER in plan(sum_of_block)


@SIZES
@GRIDS
def test_a_loop_that_stores(n, grid, block):
    @cuda.jit
    def axpy(a, x, y, out):
        for i in range(cuda.grid(1), out.size, cuda.gridsize(1)):
            out[i] = a * x[i] + y[i] * cuda.blockIdx.x

    x, y, out = random(n), random(n)[::-1].copy(), np.full(n, np.nan, np.float32)
    axpy[grid, block](np.float32(2), x, y, out)
    columns = grid[0] if isinstance(grid, tuple) else grid
    block_of = np.arange(n) // block % columns
    np.testing.assert_allclose(out, 2 * x + y * block_of, rtol=1e-6, atol=1e-5)
    assert TOGETHER in plan(axpy)


@SIZES
@GRIDS
def test_elements_two_apart_and_values_of_several_types(n, grid, block):
    @cuda.jit
    def extremes(x, out, places):
        least, best, where, found = float32(9), (float32(-9), int32(0)), int64(-1), False
        for i in range(2 * cuda.grid(1), x.size, 2 * cuda.gridsize(1)):
            here = x[i]
            least = min(least, here)
            best = (max(best[0], here), best[1] + int32(1))
            where = i if here < float32(-0.29) else where
            found = found or here > float32(0.69)
        t = cuda.grid(1)
        cuda.syncthreads()
        out[t] = least + best[0] + best[1]
        places[t] = where * 2 + found

    x = random(n)
    columns = grid[0] if isinstance(grid, tuple) else grid
    threads = columns * block
    out, places = np.zeros(threads, np.float32), np.zeros(threads, np.int64)
    extremes[grid, block](x, out, places)
    for t in (0, 1, block - 1, threads // 2, threads - 1):
        mine = x[2 * t :: 2 * threads]
        below = np.flatnonzero(mine < np.float32(-0.29))
        where = 2 * t + 2 * threads * below[-1] if below.size else -1
        assert places[t] == 2 * where + (mine > np.float32(0.69)).any()
        low, high = min(mine, default=np.float32(9)), max(mine, default=np.float32(-9))
        assert out[t] == np.float32(np.float32(low + high) + mine.size)


@pytest.mark.parametrize("n", [100, 128, 5000])
def test_what_follows_the_loop_is_guarded(n):
    @cuda.jit
    def guarded(x, out):
        total = float32(0)
        for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
            total += x[i]
        if cuda.grid(1) < out.size:
            out[cuda.grid(1)] = total

    x, out = random(70_000), np.full(n, np.nan, np.float32)
    guarded[40, 128](x, out)
    np.testing.assert_array_equal(out, by_threads(x, 40 * 128)[:n])
    assert TOGETHER in plan(guarded)


@pytest.mark.parametrize("threads", [8, 64, 128])
@pytest.mark.parametrize("rows", [0, 1, 7, 100])
def test_blocks_that_take_row_after_row(rows, threads):
    @cuda.jit
    def row_by_row(x, out):
        row = cuda.blockIdx.x
        while row < x.shape[0]:
            out[row, cuda.threadIdx.x] = x[row, cuda.threadIdx.x] * row
            row += cuda.gridDim.x

    @cuda.jit
    def other_steps(x, out):
        """What the blocks do is not the same up to some iteration."""
        row = cuda.blockIdx.x
        while row % 16 < 11:
            out[row, cuda.threadIdx.x] = x[row, cuda.threadIdx.x] * row
            row += cuda.gridDim.x

    @cuda.jit
    def up_to_a_limit(x, limits, out):
        row = cuda.blockIdx.x
        while row < limits[0]:
            out[row, cuda.threadIdx.x] = x[row, cuda.threadIdx.x] * row
            row += cuda.gridDim.x

    x = random(rows * threads).reshape(rows, threads)
    expected = (x * np.arange(rows)[:, None]).astype(np.float32)
    reached = np.array([all(k % 16 < 11 for k in range(r % 6, r + 1, 6)) for r in range(rows)])
    limits = np.array([rows])
    cases = {
        row_by_row: ((), np.ones(rows, bool)),
        up_to_a_limit: ((limits,), np.ones(rows, bool)),
    }
    if rows == 100:  # by then all blocks have come to their ends
        cases[other_steps] = (), reached
    for kernel, (more, mask) in cases.items():
        out = np.full(x.shape, -7, np.float32)
        kernel[6, threads](x, *more, out)
        np.testing.assert_array_equal(out, np.where(mask[:, None], expected, np.float32(-7)))
        shared = kernel is row_by_row and threads <= 64  # larger blocks run such loops in parts
        assert (TOGETHER in plan(kernel)) == shared, plan(kernel)


def test_calls_without_effects_count_as_reading():
    @cuda.jit
    def largest(x, out):
        most = float32(0)
        for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
            most = max(most, abs(x[i]))
        cuda.atomic.max(out, 0, most)

    x, out = random(100_000), np.zeros(1, np.float32)
    largest[8, 128](x, out)
    assert out[0] == np.abs(x).max()
    assert "base + 3 *" in largest.inspect_cpu()  # four iterations at once


def test_loops_that_store_run_one_iteration_at_a_time():
    @cuda.jit
    def running(x):
        """Each thread adds up along its elements, through memory."""
        for i in range(cuda.grid(1) + cuda.gridsize(1), x.size, cuda.gridsize(1)):
            x[i] += x[i - cuda.gridsize(1)]

    x = np.round(random(70_000) * 8)
    rows = np.append(x, np.zeros(-x.size % (16 * 64), np.float32)).reshape(-1, 16 * 64)
    running[16, 64](x)
    np.testing.assert_array_equal(x, rows.cumsum(0, dtype=np.float32).ravel()[: x.size])
    assert "base + 3 *" not in running.inspect_cpu()


def test_the_checked_mode_runs_blocks_one_after_the_other():
    x = random(1000)
    out = np.zeros((1, 128), np.float32)
    checked = cuda.jit(debug=True)(sums.py_func)
    checked[2, 64](x, out)
    np.testing.assert_array_equal(out[0], by_threads(x, 128))
    assert TOGETHER not in plan(checked)


def test_loops_that_depend_on_the_block_or_need_its_memory_are_left_alone():
    @cuda.jit
    def own_part(x, out):
        """Where a block ends depends on the block."""
        end = min(x.size, (cuda.blockIdx.x + 1) * 3000)
        total = float32(0)
        for i in range(cuda.grid(1), end, cuda.gridsize(1)):
            total += x[i]
        cuda.atomic.add(out, 0, total)

    @cuda.jit
    def scaled(x, out):
        scale = float32(cuda.blockIdx.x % 3)
        total = float32(0)
        for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
            total += x[i] * scale
        cuda.atomic.add(out, 0, total)

    @cuda.jit
    def in_shared_memory(x, out):
        totals = cuda.shared.array(64, float32)
        t = cuda.threadIdx.x
        totals[t] = 0
        for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
            totals[t] += x[i]
        cuda.atomic.add(out, 0, totals[t])

    x = np.round(random(20_000) * 64)
    block_of = np.arange(x.size) // 64 % 16
    ends = (block_of + 1) * 3000
    expected = {
        own_part: x[np.arange(x.size) < ends].sum(),
        scaled: (x * (block_of % 3)).sum(),
        in_shared_memory: x.sum(),
    }
    for kernel, total in expected.items():
        out = np.zeros(1, np.float32)
        kernel[16, 64](x, out)
        assert out[0] == total and TOGETHER not in plan(kernel), kernel
