"""Grid-stride loops prefetch: what they compute stays the same, also next to memory that is not
there, and other loops are left as they are."""

from __future__ import annotations

import ctypes
import mmap
import sys

import numpy as np
import pytest
from numba import float32, njit

from kernels.simt import cuda
from kernels.simt.ir import memory

FETCH = "_fetch("


def total_of(kernel, x: np.ndarray, grid: int, block: int) -> float:
    out = np.zeros(1, x.dtype)
    kernel[grid, block](x, out)
    return out[0]


def summing(debug: bool = False):
    @cuda.jit(debug=debug)
    def sum_all(x, out):
        total = float32(0)
        for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
            total += x[i]
        cuda.atomic.add(out, 0, total)

    return sum_all


@pytest.mark.parametrize("n", [5, 70_000, 1_000_003])
@pytest.mark.parametrize(("grid", "block"), [(64, 256), (3, 512), (40, 96)])
def test_a_sum_is_right_wherever_the_array_ends(n, grid, block):
    x = (np.arange(n) % 3).astype(np.float32)
    kernel = summing()
    assert total_of(kernel, x, grid, block) == x.sum(dtype=np.float64)
    assert FETCH in kernel.inspect_cpu()


@pytest.mark.skipif(sys.platform != "linux", reason="mprotect through the C library")
def test_beyond_the_array_nothing_need_be_there():
    n = 2 * memory.LARGE
    pages = mmap.mmap(-1, n + 64 * mmap.PAGESIZE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mprotect(ctypes.c_void_p(address + n), 64 * mmap.PAGESIZE, 0) == 0
    x = np.frombuffer(pages, np.float32, n // 4)
    x[:] = 1
    assert total_of(summing(), x, 8, 256) == x.size


def test_each_array_that_a_loop_reads_is_prefetched_once():
    @cuda.jit
    def axpy(a, x, y, out):
        for i in range(cuda.grid(1), out.size, cuda.gridsize(1)):
            out[i] = a * x[i] + y[i] * x[i]

    x, y = np.random.default_rng(0).random((2, 300_000), np.float32)
    out = np.empty_like(x)
    axpy[16, 128](np.float32(2), x, y, out)
    np.testing.assert_allclose(out, 2 * x + y * x, rtol=1e-6)
    text = axpy.inspect_cpu()
    assert text.count("_fetch(x,") == text.count("_fetch(y,") == 1
    assert "_fetch(out" not in text


def test_the_checked_mode_does_not_prefetch():
    x = np.ones(1000, np.float32)
    kernel = summing(debug=True)
    assert total_of(kernel, x, 2, 64) == 1000
    assert FETCH not in kernel.inspect_cpu()


def test_loops_that_go_on_by_a_row_of_threads_do_not_prefetch():
    """The processor does that by itself."""

    @cuda.jit
    def sum_by_block(x, out):
        total = float32(0)
        for i in range(cuda.threadIdx.x, x.size, cuda.blockDim.x):
            total += x[i]
        cuda.atomic.add(out, 0, total)

    x = np.ones(1000, np.float32)
    assert total_of(sum_by_block, x, 1, 64) == 1000
    assert FETCH not in sum_by_block.inspect_cpu()


def test_what_only_some_iterations_read_or_threads_read_apart_is_not_prefetched():
    @cuda.jit
    def some(x, y, out):
        total = float32(0)
        for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
            total += x[i] + y[2 * i]
            if i % 3 == 0:
                total += y[i]
        cuda.atomic.add(out, 0, total)

    x, y = np.ones(900, np.float32), np.ones(1800, np.float32)
    out = np.zeros(1, np.float32)
    some[2, 64](x, y, out)
    assert out[0] == 2100
    text = some.inspect_cpu()
    assert "_fetch(x" in text and "_fetch(y" not in text


def test_only_large_arrays_and_long_strides_count_as_far():
    @njit
    def is_far(x, here, there):
        return memory.far(x, here, there)

    large, small = np.empty(memory.LARGE // 4, np.float32), np.empty(5000, np.float32)
    page = memory.PAGE // 4
    assert is_far(large, 7, 7 + page)
    assert not is_far(large, 7, 6 + page)
    assert not is_far(small, 7, 7 + page)
