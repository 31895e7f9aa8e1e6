"""Rows of a tile ask the cache for what the rows after them read."""

from __future__ import annotations

import functools
import re

import numpy as np
import pytest
from numba import float32, float64, njit

from kernels.simt import cuda
from kernels.simt.ir.memory import prefetch
from tests.simt.plans import plan

ASKED = re.compile(r"ask for the line of (.*) in the rows that come next")
TILES = "iterations at a time"  # several tiles for each group of rows
ROW = "blockIdx.y * 32 + threadIdx.y"


@functools.cache
def product(dtype, how: str):
    """c = a @ b, where `how` says what the rows of a block read of a."""

    @cuda.jit
    def tiled(a, b, c, n):
        a_tile = cuda.shared.array((32, 32), dtype)
        b_tile = cuda.shared.array((32, 32), dtype)
        tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
        col, row = cuda.grid(2)
        total = dtype(0)
        for k0 in range(0, n, 32):
            if how == "rows":
                a_tile[ty, tx] = a[row, k0 + tx]
            elif how == "one dimension":
                a_tile[ty, tx] = a[row * n + k0 + tx]
            else:
                a_tile[ty, tx] = a[k0 + tx, row]
            b_tile[ty, tx] = b[k0 + ty, col]
            cuda.syncthreads()
            for k in range(32):
                total += a_tile[ty, k] * b_tile[k, tx]
            cuda.syncthreads()
        c[row, col] = total

    return tiled


EXPECTED = {"rows": lambda a: a, "columns": lambda a: a.T, "one dimension": lambda a: a}


@pytest.mark.parametrize("n", [32, 96, 256, 544])
@pytest.mark.parametrize("how", EXPECTED)
@pytest.mark.parametrize("dtype", [float32, float64])
def test_what_is_asked_for(dtype, how, n):
    a, b = np.random.default_rng(0).random((2, n, n)).astype(str(dtype))
    c = np.zeros_like(a)
    kernel = product(dtype, how)
    kernel[(n // 32, n // 32), (32, 32)](a.ravel() if how == "one dimension" else a, b, c, n)
    np.testing.assert_allclose(c, EXPECTED[how](a) @ b, rtol=1e-5)
    lines = range(0, 32, 64 // a.itemsize)
    wanted = {
        "rows": [f"a[{ROW}, k0 + {k}]" for k in lines],
        "one dimension": [f"a[({ROW}) * n + k0 + {k}]" for k in lines],
    }
    assert TILES in plan(kernel) and ASKED.findall(plan(kernel)) == wanted.get(how, [])


@cuda.jit
def by_own_numbers(a, b, c, n):
    """What a row reads of a depends on what its threads compute in the loop."""
    tile = cuda.shared.array((32, 32), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    col, row = cuda.grid(2)
    total = float32(0)
    for k0 in range(0, n, 32):
        tile[ty, tx] = b[k0 + ty, col]
        cuda.syncthreads()
        for k in range(32):
            first = k0 + n - 96
            total += a[row, first + k] * tile[k, tx]
        cuda.syncthreads()
    c[row, col] = total


def test_what_rows_compute_is_not_asked_for():
    a, b = np.random.default_rng(0).random((2, 96, 96), np.float32)
    c = np.zeros_like(a)
    by_own_numbers[(3, 3), (32, 32)](a, b, c, 96)
    np.testing.assert_allclose(c, a @ b, rtol=1e-5)
    assert TILES in plan(by_own_numbers) and not ASKED.findall(plan(by_own_numbers))


@cuda.jit
def windows(a, b, c, n):
    """Each thread of a row begins at another element of it."""
    tile = cuda.shared.array((32, 32), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    col, row = cuda.grid(2)
    total = float32(0)
    for k0 in range(0, n, 32):
        tile[ty, tx] = b[k0 + ty, col]
        cuda.syncthreads()
        for k in range(32):
            total += a[row, k0 + tx + k] * tile[k, tx]
        cuda.syncthreads()
    c[row, col] = total


def test_windows_are_not_asked_for():
    rng = np.random.default_rng(0)
    a, b = rng.random((64, 96), np.float32), rng.random((64, 64), np.float32)
    c = np.zeros_like(b)
    windows[(2, 2), (32, 32)](a, b, c, 64)
    for col in range(64):
        np.testing.assert_allclose(c[:, col], a[:, col % 32 :][:, :64] @ b[:, col], rtol=1e-5)
    assert TILES in plan(windows) and not ASKED.findall(plan(windows))


@cuda.jit
def of_records(a, b, c, n):
    tile = cuda.shared.array((32, 32), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    col, row = cuda.grid(2)
    total = float32(0)
    for k0 in range(0, n, 32):
        tile[ty, tx] = b[k0 + ty, col]
        cuda.syncthreads()
        for k in range(32):
            total += a[row, k0 + k].weight * tile[k, tx]
        cuda.syncthreads()
    c[row, col] = total


def test_rows_of_many_lines_are_not_asked_for():
    a = np.zeros((64, 64), [("weight", np.float32), ("rest", np.float32, 31)])
    a["weight"], b = np.random.default_rng(0).random((2, 64, 64), np.float32)
    c = np.zeros_like(b)
    of_records[(2, 2), (32, 32)](a, b, c, 64)
    np.testing.assert_allclose(c, a["weight"] @ b, rtol=1e-5)
    assert TILES in plan(of_records) and not ASKED.findall(plan(of_records))


def test_an_element_outside_of_an_array_may_be_asked_for():
    @njit
    def ask(x, i):
        prefetch(x, (i, i))
        return x[0, 0]

    x = np.ones((2, 3))
    assert [ask(x, i) for i in (0, 5, -(10**6), 10**15)] == [1, 1, 1, 1]


def test_what_is_asked_for_comes_before_the_rows_that_read_it():
    """In the generated code: each group of rows asks for the next group, and reads its own."""
    kernel = product(float32, "rows")
    a = np.ones((64, 64), np.float32)
    kernel[(2, 2), (32, 32)](a, a, a.copy(), 64)
    text = kernel.inspect_cpu()
    together = re.findall(r"_ty = _y0 \+ (\d+) \+ _k_row\n *_prefetch\(a, .*\n", text)
    loops = re.findall(r"for _y0 in range\(\d+, \d+, (\d+)\)", text)
    assert together and set(loops) <= set(together)
