"""Kernels that make rows and columns of a line of threads: `t // 32` and `t % 32`."""

from __future__ import annotations

import numpy as np
import pytest
from numba import float32

from kernels.simt import cuda
from tests.simt.plans import plan


def together(kernel) -> set[str]:
    """How many threads go together, by regions."""
    return {line.split()[1] for line in plan(kernel).splitlines() if "threads in a row" in line}


@pytest.mark.parametrize("block", [8, 32, 40, 64, 96, 256])
@pytest.mark.parametrize("debug", [False, True])
def test_numbers_of_rows_and_columns(block, debug):
    @cuda.jit(debug=debug)
    def numbers(out):
        t, i = cuda.threadIdx.x, cuda.blockIdx.x * 64 + cuda.threadIdx.x
        row = i // 16
        out[0, i] = t % 16
        out[1, i] = t // 16
        out[2, i] = t & 63
        out[3, i] = i >> 4
        out[4, i] = (i + 32) % 32
        out[5, i] = (32 * cuda.blockIdx.x + t) // 32
        out[6, i] = row * 100 + i % 64
        out[7, i] = (t + 5) % 16
        out[8, i] = (t - 16) // 16
        out[9, i] = t % 24
        out[10, i] = (2 * t) % 16
        out[11, i] = (i + 64) // 128 + (48 + t) % 64

    out = np.full((12, 2 * 64 + block), -1)
    numbers[3, block](out)
    for b in range(3):
        t = np.arange(block)
        i = 64 * b + t
        expected = [
            t % 16,
            t // 16,
            t & 63,
            i >> 4,
            (i + 32) % 32,
            (32 * b + t) // 32,
            i // 16 * 100 + i % 64,
            (t + 5) % 16,
            (t - 16) // 16,
            t % 24,
            (2 * t) % 16,
            (i + 64) // 128 + (48 + t) % 64,
        ]
        own = slice(64 * b, 64 * b + min(block, 64 if b < 2 else block))
        np.testing.assert_array_equal(out[:, own], np.array(expected)[:, : own.stop - own.start])
    if not debug:
        assert together(numbers) == ({"16"} if block % 16 == 0 else {str(block)})


@pytest.mark.parametrize("block", [64, 96, 512, 1024])
def test_long_rows_and_rows_that_begin_anywhere(block):
    @cuda.jit
    def long(out):
        t, i = cuda.threadIdx.x, cuda.grid(1)
        out[0, i] = t % 512
        out[1, i] = t // 256
        out[2, i] = (t + 64) & 127

    @cuda.jit
    def anywhere(out):
        t = cuda.threadIdx.x
        i = cuda.blockIdx.x * 24 + t
        out[0, cuda.grid(1)] = i % 16
        out[1, cuda.grid(1)] = i // 16
        out[2, cuda.grid(1)] = t % 24 + (t & 23)

    b, t = np.divmod(np.arange(3 * block), block)
    i = b * 24 + t
    expected = {
        long: [t % 512, t // 256, (t + 64) & 127],
        anywhere: [i % 16, i // 16, t % 24 + (t & 23)],
    }
    for kernel, values in expected.items():
        out = np.full((3, 3 * block), -1)
        kernel[3, block](out)
        np.testing.assert_array_equal(out, values)
    assert together(long) == {"64" if block % 64 == 0 else str(block)}
    assert together(anywhere) == {str(block)}


@pytest.mark.parametrize("block", [32, 64, 256])
@pytest.mark.parametrize("shape", [(1, 1), (7, 31), (16, 64), (33, 1000)])
def test_a_warp_for_each_row(block, shape):
    @cuda.jit
    def by_warp(x, out):
        row = cuda.grid(1) // 32
        total = float32(0)
        if row < x.shape[0]:
            for j in range(cuda.laneid, x.shape[1], 32):
                total += x[row, j]
        for d in (16, 8, 4, 2, 1):
            total += cuda.shfl_down_sync(0xFFFFFFFF, total, d)
        if cuda.laneid == 0 and row < x.shape[0]:
            out[row] = total

    @cuda.jit
    def softmax(x, out):
        warp, lane = cuda.threadIdx.x >> 5, cuda.threadIdx.x & 31
        row = cuda.blockIdx.x * (cuda.blockDim.x // 32) + warp
        if row >= x.shape[0]:
            return
        most = float32(-1e30)
        for j in range(lane, x.shape[1], 32):
            most = max(most, x[row, j])
        for d in (16, 8, 4, 2, 1):
            most = max(most, cuda.shfl_xor_sync(0xFFFFFFFF, most, d))
        for j in range(lane, x.shape[1], 32):
            out[row, j] = x[row, j] - most

    x = np.round(np.random.default_rng(shape[0]).standard_normal(shape).astype(np.float32) * 64)
    out, shifted = np.full(shape[0], np.nan, np.float32), np.full(shape, np.nan, np.float32)
    grid = -(-shape[0] * 32 // block)
    by_warp[grid, block](x, out)
    softmax[grid, block](x, shifted)
    np.testing.assert_array_equal(out, x.sum(1))
    np.testing.assert_array_equal(shifted, x - x.max(1, keepdims=True))
    assert "32" in together(by_warp) & together(softmax)


@pytest.mark.parametrize("block", [32, 64])
def test_sums_of_a_warp_by_its_first_lanes(block):
    @cuda.jit
    def sums(x, nothing, out):
        t = cuda.threadIdx.x
        total = x[cuda.grid(1)] + nothing * (t % 8)
        total += cuda.shfl_down_sync(0xFFFFFFFF, total, 16) + nothing * (t % 8)
        total += cuda.shfl_down_sync(0xFFFFFFFF, total, 8) + nothing * (t % 8)
        total += cuda.shfl_down_sync(0xFFFFFFFF, total, 4) + nothing * (t % 8)
        total += cuda.shfl_down_sync(0xFFFFFFFF, total, 2) + nothing * (t % 8)
        total += cuda.shfl_down_sync(0xFFFFFFFF, total, 1) + nothing * (t % 8)
        if t % 32 == 0:
            cuda.atomic.add(out, cuda.grid(1) // 32, total)

    x = np.arange(4 * block, dtype=np.float32)
    out = np.zeros(x.size // 32, np.float32)
    sums[4, block](x, np.float32(0), out)
    np.testing.assert_array_equal(out, x.reshape(-1, 32).sum(1))


@pytest.mark.parametrize("width", [8, 16])
def test_a_tile_of_a_line_of_threads(width):
    @cuda.jit
    def product(a, b, c):
        sa = cuda.shared.array((width, width), float32)
        sb = cuda.shared.array((width, width), float32)
        column, row = cuda.threadIdx.x % width, cuda.threadIdx.x // width
        x, y = cuda.blockIdx.x * width + column, cuda.blockIdx.y * width + row
        total = float32(0)
        for p in range(0, a.shape[1], width):
            sa[row, column] = sb[row, column] = 0
            if y < a.shape[0] and p + column < a.shape[1]:
                sa[row, column] = a[y, p + column]
            if p + row < b.shape[0] and x < b.shape[1]:
                sb[row, column] = b[p + row, x]
            cuda.syncthreads()
            for q in range(width):
                total += sa[row, q] * sb[q, column]
            cuda.syncthreads()
        if y < c.shape[0] and x < c.shape[1]:
            c[y, x] = total

    rng = np.random.default_rng(width)
    for m, k, n in ((1, 1, 1), (width, width, width), (33, 17, 40), (50, 65, 31)):
        a, b = (rng.integers(-3, 4, shape).astype(np.float32) for shape in ((m, k), (k, n)))
        c = np.full((m, n), np.nan, np.float32)
        product[(-(-n // width), -(-m // width)), width * width](a, b, c)
        np.testing.assert_array_equal(c, a @ b)
    assert "a[_u(y), _u(p + column)]" in product.inspect_cpu()  # no index counts from the end
    assert together(product) == {str(width), str(width * width)}  # the latter where sums begin


def test_numbers_that_are_no_integers():
    @cuda.jit
    def shifted(by, out):
        t = cuda.threadIdx.x
        out[0, t] = (32 * by + t) // 32
        out[1, t] = (32 * by + t) % 32

    out, t = np.zeros((2, 64)), np.arange(64)
    shifted[1, 64](0.5, out)
    np.testing.assert_array_equal(out, [(16 + t) // 32, (16 + t) % 32])
    assert together(shifted) == {"64"}


def test_what_a_number_is_computed_from_may_change():
    @cuda.jit
    def steps(out):
        t, k = cuda.threadIdx.x, 0
        while k < 3:
            i = k * 32 + t
            k += 1
            out[k - 1, t] = i // 32

    @cuda.jit
    def through_another(out):
        t, k = cuda.threadIdx.x, 0
        while k < 3:
            start = k * 32
            i = start + t
            k += 1
            out[k - 1, t] = i // 32 + i % 32

    k, t = np.arange(3)[:, None], np.arange(64)
    for kernel, values in ((steps, k + t // 32), (through_another, k + t // 32 + t % 32)):
        out = np.full((3, 64), -1)
        kernel[1, 64](out)
        np.testing.assert_array_equal(out, values)


def test_numbers_that_change_and_short_rows_are_left_alone():
    @cuda.jit
    def changes(out):
        lane = cuda.threadIdx.x
        for _ in range(cuda.blockIdx.x):
            lane = lane + 3
        out[0, cuda.grid(1)] = lane % 32
        out[1, cuda.grid(1)] = cuda.threadIdx.x % 4

    @cuda.jit
    def goes_on(out):
        place = cuda.threadIdx.x
        for _ in range(3):
            out[0, cuda.grid(1)] += place % 32
            place = place + cuda.threadIdx.x
            cuda.syncthreads()

    @cuda.jit
    def begins_elsewhere(out):
        place = cuda.threadIdx.x + 7
        for _ in range(3):
            out[1, cuda.grid(1)] += place % 32
            place = cuda.threadIdx.x
            cuda.syncthreads()

    @cuda.jit
    def short(out):
        out[0, cuda.grid(1)] = cuda.threadIdx.x % 4

    out = np.zeros((2, 128), np.int64)
    t = np.arange(64)
    goes_on[2, 64](out)
    np.testing.assert_array_equal(out[0], np.tile(t % 32 + 2 * t % 32 + 3 * t % 32, 2))
    begins_elsewhere[2, 64](out)
    np.testing.assert_array_equal(out[1], np.tile((t + 7) % 32 + 2 * (t % 32), 2))
    short[2, 64](out)
    np.testing.assert_array_equal(out[0], np.tile(t % 4, 2))
    assert together(goes_on) == together(short) == {"64"}
    changes[2, 64](out)
    np.testing.assert_array_equal(out[0], np.concatenate([t % 32, (t + 3) % 32]))
    np.testing.assert_array_equal(out[1], np.tile(t % 4, 2))
    assert together(changes) == {"64"}
