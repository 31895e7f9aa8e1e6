"""Rows of threads that go through a loop together compute what each would by itself.

The numbers are small integers, so that float32 is exact and any difference is an error.
"""

from __future__ import annotations

import numpy as np
import pytest
from numba import float32

from kernels.simt import cuda
from tests.simt.plans import plan

BLOCKS = [(16, 16), (8, 6), (32, 5), (16, 4, 2), (3, 9)]
TOGETHER = "rows together"


def integers(rng, *shape: int) -> np.ndarray:
    return rng.integers(-4, 5, shape).astype(np.float32)


def cdiv(a: int, b: int) -> int:
    return -(-a // b)


@pytest.mark.parametrize("block", BLOCKS)
def test_accumulators_in_the_loop(rng, block):
    @cuda.jit
    def matmul(a, b, c):
        x, y = cuda.grid(2)
        if cuda.threadIdx.z == 0 and y < c.shape[0] and x < c.shape[1]:
            total = float32(0)
            for k in range(a.shape[1]):
                total += a[y, k] * b[k, x]
            c[y, x] = total

    for shape in [(33, 40), (64, 64), (5, 3)]:
        a, b = integers(rng, shape[0], 19), integers(rng, 19, shape[1])
        c = np.full(shape, np.nan, np.float32)
        grid = cdiv(shape[1], block[0]), cdiv(shape[0], block[1])
        matmul[grid, block](a, b, c)
        np.testing.assert_array_equal(c, a @ b)


@pytest.mark.parametrize("block", [(16, 16), (32, 4), (16, 3)])
def test_accumulators_across_barriers(rng, block):
    """In 16 columns, as many rows as the block has: two outputs per thread, in a local array."""
    width, height = block
    rows = 2 * height

    def matmul(a, b, c):
        sa = cuda.shared.array((rows, 16), float32)
        sb = cuda.shared.array((16, width), float32)
        acc = cuda.local.array(2, float32)
        tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
        row, column = 2 * height * cuda.blockIdx.y, width * cuda.blockIdx.x
        acc[0] = 0
        acc[1] = 0
        for p in range(0, a.shape[1], 16):
            if tx < 16:
                sa[ty, tx] = a[row + ty, p + tx]
                sa[ty + height, tx] = a[row + ty + height, p + tx]
            for q in range(ty, 16, height):
                sb[q, tx] = b[p + q, column + tx]
            cuda.syncthreads()
            for q in range(16):
                for i in range(2):
                    acc[i] += sa[ty + i * height, q] * sb[q, tx]
            cuda.syncthreads()
        for i in range(2):
            c[row + ty + i * height, column + tx] = acc[i]

    kernel = cuda.jit(matmul)
    a, b = integers(rng, 4 * height, 48), integers(rng, 48, 2 * width)
    c = np.full((4 * height, 2 * width), np.nan, np.float32)
    kernel[(2, 2), block](a, b, c)
    np.testing.assert_array_equal(c, a @ b)


def test_rows_that_share_what_they_read_go_together(rng):
    @cuda.jit
    def matmul(a, b, c):
        x, y = cuda.grid(2)
        total = float32(0)
        for k in range(a.shape[1]):
            total += a[y, k] * b[k, x]
        c[y, x] = total

    a, b, c = integers(rng, 32, 20), integers(rng, 20, 32), np.zeros((32, 32), np.float32)
    matmul[(2, 2), (16, 16)](a, b, c)
    np.testing.assert_array_equal(c, a @ b)
    assert TOGETHER in plan(matmul)


def test_loops_of_different_lengths_stay_with_their_rows(rng):
    @cuda.jit
    def triangle(a, b, c):
        x, y = cuda.grid(2)
        total = float32(0)
        for k in range(y):
            total += a[y, k] * b[k, x]
        c[y, x] = total

    a, b, c = integers(rng, 32, 32), integers(rng, 32, 32), np.zeros((32, 32), np.float32)
    triangle[(2, 2), (16, 16)](a, b, c)
    np.testing.assert_array_equal(c, np.tril(a, -1) @ b)
    assert TOGETHER not in plan(triangle)


@pytest.mark.parametrize("grid", [(1,), (7, 3), (8, 2), (9, 4, 2), (19, 1, 3)])
def test_blocks_in_panels_all_take_their_turn(grid):
    """Blocks that go through memory tile by tile do not run in the order of their numbers."""

    @cuda.jit
    def visits(out, steps):
        tile = cuda.shared.array(8, float32)
        t = cuda.threadIdx.x
        for step in range(steps):
            tile[t] = step
            cuda.syncthreads()
            out[cuda.blockIdx.z, cuda.blockIdx.y, cuda.blockIdx.x, t] += tile[7 - t]
            cuda.syncthreads()

    x, y, z = (*grid, 1, 1)[:3]
    out = np.zeros((z, y, x, 8), np.float32)
    visits[grid, 8](out, 4)
    assert "run in panels" in plan(visits)
    np.testing.assert_array_equal(out, np.full_like(out, 6))


def test_a_guard_around_loops_has_a_version_for_whole_rows_and_one_for_others(rng):
    """No third for blocks that are nowhere at an edge: it would be the first again."""

    @cuda.jit
    def columns(x, out):
        i = cuda.grid(1)
        if i < x.shape[1]:
            total = float32(0)
            for k in range(x.shape[0]):
                total += x[k, i]
            out[i] = total

    for width in (1, 256, 300, 600):
        x = integers(rng, 7, width)
        out = np.full(width, np.nan, np.float32)
        columns[cdiv(width, 256), 256](x, out)
        np.testing.assert_array_equal(out, x.sum(0))
    assert columns.inspect_cpu().count("for k in ") == 2


def test_the_rest_of_a_strided_loop_runs_where_there_is_one(rng):
    """Rows of whole runs of threads do not compute a rest; others a shorter loop, without masks."""

    @cuda.jit
    def halves_and_sums(x, y, sums):
        shared = cuda.shared.array(32, float32)
        t, row = cuda.threadIdx.x, cuda.blockIdx.x
        total = float32(0)
        for i in range(t, x.shape[1], 32):
            total += x[row, i]
            y[row, i] = x[row, i] / 2
        shared[t] = total
        cuda.syncthreads()
        if t == 0:
            total = float32(0)
            for i in range(32):
                total += shared[i]
            sums[row] = total

    for n in (0, 1, 31, 32, 33, 64, 100):
        x, y, sums = integers(rng, 3, n), np.zeros((3, n), np.float32), np.zeros(3, np.float32)
        halves_and_sums[3, 32](x, y, sums)
        np.testing.assert_array_equal(y, x / 2)
        np.testing.assert_array_equal(sums, x.sum(1))
    text = halves_and_sums.inspect_cpu()
    rest = text.index("if base < x.shape[1]:")
    assert text.index("while base + 31 < x.shape[1]:") < rest < text.index("range(_lo, _hi)")
    assert "if i <" not in text


@pytest.mark.parametrize("first, last", [(0, 100), (3, 70), (64, 65), (5, 5), (70, 3), (0, 128)])
def test_threads_that_pass_a_guard_go_through_its_loops_together(rng, first, last):
    """In a row some of whose threads fail it: what those had stays, also after loops in loops."""

    @cuda.jit
    def sums(a, first, last, out, more):
        i = cuda.grid(1)
        total, seen = float32(7), float32(0)
        if i >= first and i < last:
            seen = a[0, i]
            for j in range(a.shape[0]):
                scaled = a[j, i] * float32(2)
                for _ in range(2):
                    total += scaled
                seen += scaled
        out[i] = total
        more[i] = seen

    a = integers(rng, 9, 128)
    out, more = (np.full(128, np.nan, np.float32) for _ in range(2))
    sums[1, 128](a, first, last, out, more)
    inside = (np.arange(128) >= first) & (np.arange(128) < last)
    np.testing.assert_array_equal(out, np.where(inside, 7 + 4 * a.sum(0), 7))
    np.testing.assert_array_equal(more, np.where(inside, a[0] + 2 * a.sum(0), 0))
    text = sums.inspect_cpu()
    otherwise = text[text.index("_lo = ") :]
    loop, threads = otherwise.index("for j in range("), otherwise.index("in range(_lo, _hi):")
    assert loop < otherwise.index("in range(_lo, _hi):", threads + 1)  # threads inside of the loop


def test_guards_in_guarded_loops_are_kept(rng):
    @cuda.jit
    def sums(a, width, height, out):
        i = cuda.grid(1)
        total = float32(0)
        if i < width:
            for j in range(a.shape[0]):
                if i < height[j]:
                    total += a[j, i]
        out[i] = total

    a, height = integers(rng, 9, 128), rng.integers(0, 128, 9)
    for width in (128, 77, 1, 0):
        out = np.full(128, np.nan, np.float32)
        sums[1, 128](a, width, height, out)
        columns = np.arange(128)
        inside = (columns < width) & (columns < height[:, None])
        np.testing.assert_array_equal(out, np.where(inside, a, 0).sum(0))
