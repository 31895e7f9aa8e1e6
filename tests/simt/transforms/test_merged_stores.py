"""A store of a constant, and another one to the same element under a guard, are one store."""

from __future__ import annotations

import re

import numpy as np
import pytest

from kernels.simt import cuda

N = 32


def shifted_back(dtype, constant):
    """A kernel with a tile of positive numbers, or the constant, that neighbours read."""

    @cuda.jit
    def kernel(x, y):
        tile = cuda.shared.array(N, dtype)
        t, i = cuda.threadIdx.x, cuda.grid(1)
        tile[t] = constant
        if i < x.size and x[i] > 0:
            tile[t] = x[i]
        cuda.syncthreads()
        if i < y.size:
            y[i] = tile[(t + 1) % N]

    return kernel


@cuda.jit
def not_a_pair(x, y):
    """The second store needs the first, or goes elsewhere, or there is another branch."""
    tile = cuda.shared.array((6, N), np.float32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    tile[0, t] = np.float32(2)
    if i < x.size:
        tile[0, t] = tile[0, t] + x[i]
    tile[1, t] = np.float32(3)
    if tile[1, t] > 2 and i < x.size:
        tile[1, t] = x[i]
    tile[2, t] = np.float32(4)
    if i < x.size:
        tile[3, t] = x[i]
    tile[4, t] = np.float32(5)
    if i < x.size:
        tile[4, t] = x[i]
    else:
        tile[3, t] = np.float32(6)
    tile[5, t] = np.float32(i)
    if i < x.size:
        tile[5, t] = x[i]
    cuda.syncthreads()
    if i < y.shape[1]:
        for k in range(6):
            y[k, i] = tile[k, (t + 1) % N]


@cuda.jit(debug=False)  # a view's indices are not proven, and would be checked
def seen_by_another_name(x, y):
    tile = cuda.shared.array(N, np.float32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    bits = tile.view(np.int32)
    tile[t] = np.float32(-1)
    if i < x.size:
        tile[t] = x[i] + np.float32(bits[t])
    cuda.syncthreads()
    if i < y.size:
        y[i] = tile[(t + 1) % N]


def neighbours(values: np.ndarray) -> np.ndarray:
    """What the next thread of each block has."""
    return np.roll(values.reshape(-1, N), -1, axis=1).ravel()


@pytest.mark.parametrize("n", [0, 1, 31, 32, 33, 100])
def test_values(n):
    rng = np.random.default_rng(n)
    padded = -(-(n + 1) // N) * N
    x = rng.standard_normal(n).astype(np.float32)
    whole = np.full(padded, -1, np.float32)
    whole[:n] = np.where(x > 0, x, -1)
    y = np.empty_like(whole)
    shifted_back(np.float32, np.float32(-1))[padded // N, N](x, y)
    np.testing.assert_array_equal(y, neighbours(whole))

    # integers above 2**53 next to a constant of another type
    big = 2**53 + 1 + rng.integers(0, 100, n)
    whole, y = np.zeros(padded, np.int64), np.empty(padded, np.int64)
    whole[:n] = big
    shifted_back(np.int64, 0.5)[padded // N, N](big, y)
    np.testing.assert_array_equal(y, neighbours(whole))

    rows = np.repeat(np.array([[2], [3], [4], [6], [5], [0]], np.float32), padded, 1)
    rows[5] = np.arange(padded)
    rows[0, :n] += x
    rows[1, :n] = rows[3, :n] = rows[4, :n] = rows[5, :n] = x
    y = np.empty_like(rows)
    not_a_pair[padded // N, N](x, y)
    np.testing.assert_array_equal(y, [neighbours(row) for row in rows])


def test_an_array_with_another_name_keeps_both():
    x, y = np.arange(40, dtype=np.float32), np.empty(64, np.float32)
    seen_by_another_name[2, N](x, y)
    expected = np.full(64, -1, np.float32)
    expected[:40] = x + np.float32(np.float32(-1).view(np.int32))
    np.testing.assert_array_equal(y, neighbours(expected))


def stores_of_the_constant(kernel) -> int:
    return len(re.findall(r"^ +tile\[.*?\] = \w+\(-1.0\)$", kernel.inspect_cpu(), re.MULTILINE))


def test_one_store_is_left_and_a_checked_kernel_keeps_both():
    x = np.ones(40, np.float32)
    for debug in (False, True):
        kernel = cuda.jit(debug=debug)(shifted_back(np.float32, np.float32(-1)).py_func)
        kernel[2, N](x, np.empty(64, np.float32))
        assert bool(stores_of_the_constant(kernel)) == debug
