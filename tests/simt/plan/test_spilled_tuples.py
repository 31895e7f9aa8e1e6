"""Tuples of numbers that live across barriers: compiled, with spill arrays for their elements."""

from __future__ import annotations

import numpy as np
import pytest

from kernels.simt import cuda

pytestmark = [
    pytest.mark.filterwarnings("error::kernels.simt.api.fallback.InterpretedKernelWarning"),
    pytest.mark.parametrize("debug", [False, True]),
]


@cuda.jit(device=True)
def larger(a, b):
    return a if a[0] > b[0] else b


def where_the_largest_is(x, y):
    s = cuda.shared.array(64, cuda.float32)
    t = cuda.threadIdx.x
    best = (x[t], t)
    s[t] = x[t]
    cuda.syncthreads()
    for i in range(3):
        at = (t + i + 1) % cuda.blockDim.x
        best = larger(best, (s[at], at))
        cuda.syncthreads()
    y[t, 0], y[t, 1] = best


def nested(x, y):
    t = cuda.threadIdx.x
    p = ((x[t], 1.5), t > 3)
    for i in range(4):
        if t % 2 == i % 2:
            p = ((p[0][0] + x[t], p[0][1] * (x[t] + i)), p[1])
        cuda.syncwarp()
    y[t, 0] = p[0][0]
    y[t, 1] = p[0][1] if p[1] else -p[0][1]


def perhaps(x, y):
    t = cuda.threadIdx.x
    if x[t] > 0:
        pair = (x[t], t)
    cuda.syncthreads()
    if x[t] > 0:
        y[t, 0], y[t, 1] = pair


def tiles(a, b, c):
    sa = cuda.shared.array((16, 16), cuda.float32)
    sb = cuda.shared.array((16, 16), cuda.float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    row, col = cuda.blockIdx.y * 16 + ty, cuda.blockIdx.x * 16 + tx
    acc = (cuda.float32(0), cuda.float32(1))
    for k0 in range(0, a.shape[1], 16):
        sa[ty, tx] = a[row, k0 + tx]
        sb[ty, tx] = b[k0 + ty, col]
        cuda.syncthreads()
        for k in range(16):
            v = sa[ty, k] * sb[k, tx]
            acc = (acc[0] + v, max(acc[1], v))
        cuda.syncthreads()
    c[0, row, col], c[1, row, col] = acc


def of_the_grid(x, y):
    g, i = cuda.cg.this_grid(), cuda.grid(1)
    best = (x[i], i)
    y[i, 0] = x[i]
    g.sync()
    best = larger(best, (y[(i + 33) % 64, 0], (i + 33) % 64))
    g.sync()
    y[i, 0], y[i, 1] = best


def like_an_element(x, y):
    t = cuda.threadIdx.x
    p = (x[t], t)
    p_1 = x[63 - t]
    cuda.syncthreads()
    x[t] = 0
    cuda.syncthreads()
    y[t, 0], y[t, 1] = p[0], p[1] + 100 * p_1


def launched(kernel, grid, block, debug, *shape):
    x = np.random.default_rng(5).normal(size=64).astype(np.float32)
    y = np.zeros(shape)
    cuda.jit(kernel, debug=debug, opt=not debug)[grid, block](x, y)
    return x, y


def largest_of(x, *where):
    """The largest of elements, and where it is; of each thread."""
    at = np.array([max(w, key=lambda i: x[i]) for w in zip(*where)])
    return np.stack([x[at], at], 1)


def test_a_number_and_its_place(debug):
    x, y = launched(where_the_largest_is, 1, 64, debug, 64, 2)
    np.testing.assert_array_equal(y, largest_of(x, *(np.arange(i, 64 + i) % 64 for i in range(4))))


def test_tuples_in_tuples(debug):
    x, y = launched(nested, 1, 32, debug, 32, 2)
    t, x = np.arange(32), x[:32].astype(float)
    product = 1.5 * np.where(t % 2, (x + 1) * (x + 3), x * (x + 2))
    np.testing.assert_allclose(y, np.stack([3 * x, np.where(t > 3, product, -product)], 1))


def test_a_tuple_that_some_threads_have(debug):
    x, y = launched(perhaps, 1, 64, debug, 64, 2)
    has = x[:, None] > 0
    np.testing.assert_array_equal(y, has * np.stack([x, np.arange(64)], 1))


def test_a_variable_called_like_an_element(debug):
    x = np.random.default_rng(5).normal(size=64)
    given, y = x.copy(), np.zeros((64, 2))
    cuda.jit(like_an_element, debug=debug, opt=not debug)[1, 64](given, y)
    np.testing.assert_allclose(y, np.stack([x, np.arange(64) + 100 * x[::-1]], 1))


def test_interleaved_blocks(debug):
    a, b = np.random.default_rng(1).random((2, 64, 64)).astype(np.float32) * 2
    c = np.zeros((2, 64, 64), np.float32)
    cuda.jit(tiles, debug=debug, opt=not debug)[(4, 4), (16, 16)](a, b, c)
    largest = np.maximum(1, (a[:, :, None] * b[None]).max(1))
    np.testing.assert_allclose(c, [a @ b, largest], rtol=1e-5)


def test_across_a_barrier_of_the_grid(debug):
    x, y = launched(of_the_grid, 2, 32, debug, 64, 2)
    np.testing.assert_array_equal(y, largest_of(x, np.arange(64), np.arange(33, 97) % 64))
