"""Accumulators that fit in the registers: which loops are distributed, and what they compute."""

from __future__ import annotations

import numpy as np
import pytest
from numba import float32
from numba.np.numpy_support import from_dtype

from kernels.simt import cuda
from kernels.support import processor
from tests.simt.plans import plan

AVX2, AVX512 = processor.Registers(16, 8), processor.Registers(32, 16)
X, DEPTH = 32, 24


@pytest.fixture(autouse=True)
def avx2(monkeypatch):
    """Plans are those for a processor with AVX2."""
    monkeypatch.setattr(processor, "vector_registers", lambda: AVX2)


def blocked(rm: int, rn: int, dtype=float32):
    """Each thread computes rm x rn of the products of columns of a by rows of b."""

    def kernel(a, b, out):
        acc = cuda.local.array((rm, rn), dtype)
        tx = cuda.threadIdx.x
        for i in range(rm):
            for j in range(rn):
                acc[i, j] = 0
        for q in range(a.shape[1]):
            factor = b[q, tx]
            for i in range(rm):
                for j in range(rn):
                    acc[i, j] += a[i, q] * factor * (j + 1)
        cuda.syncthreads()
        for i in range(rm):
            for j in range(rn):
                out[i, j, tx] = acc[i, j]

    return kernel


def operands(rm: int, dtype: type = np.float32) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(rm)
    return (rng.random((rm, DEPTH)) - 0.3).astype(dtype), rng.random((DEPTH, X)).astype(dtype)


@pytest.mark.parametrize(
    ("rm", "rn", "dtype", "parts"),
    [
        (2, 2, np.float32, []),
        (4, 4, np.float32, ["0, 2", "2, 4"]),
        (8, 2, np.float32, ["0, 4", "4, 8"]),
        (5, 3, np.float32, ["0, 3", "3, 5"]),
        (8, 2, np.float64, ["0, 3", "3, 6", "6, 8"]),
        (3, 7, np.float64, ["0, 1", "1, 2", "2, 3"]),
    ],
)
def test_more_sums_than_registers(rm, rn, dtype, parts):
    a, b = operands(rm, dtype)
    results = []
    for debug in (False, True):
        kernel = cuda.jit(debug=debug)(blocked(rm, rn, from_dtype(np.dtype(dtype))))
        out = np.zeros((rm, rn, X), dtype)
        kernel[1, X](a, b, out)
        results.append(out)
        text = plan(kernel)
        assert all((f"in range({part}):" in text) != debug for part in parts), text
        assert text.count("for q in") == (1 if debug else max(len(parts), 1))
    expected = np.einsum("iq,qx->ix", a.astype(np.float64), b)
    expected = expected[:, None] * np.arange(1, rn + 1)[:, None]
    np.testing.assert_allclose(results[0], expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(results[0], results[1], rtol=1e-6, atol=1e-6)


def test_with_more_registers_the_loop_stays_whole(monkeypatch):
    monkeypatch.setattr(processor, "vector_registers", lambda: AVX512)
    a, b = operands(4)
    kernel, out = cuda.jit(blocked(4, 4)), np.zeros((4, 4, X), np.float32)
    kernel[1, X](a, b, out)
    assert plan(kernel).count("for q in") == 1


def test_two_arrays_of_sums():
    @cuda.jit
    def both(a, b, out):
        plus, minus = cuda.local.array((4, 2), float32), cuda.local.array(4, float32)
        tx = cuda.threadIdx.x
        for i in range(4):
            minus[i] = 0
            for j in range(2):
                plus[i, j] = 0
        for q in range(a.shape[1]):
            for i in range(4):
                minus[i] -= a[i, q] * b[q, tx]
                for j in range(2):
                    plus[i, j] += a[i, q] * b[q, tx] + minus[i]
        cuda.syncthreads()
        for i in range(4):
            out[i, tx] = plus[i, 0] + plus[i, 1]

    a, b = operands(4)
    out = np.zeros((4, X), np.float32)
    both[1, X](a, b, out)
    products = a[:, :, None].astype(np.float64) * b
    expected = 2 * (products - products.cumsum(1)).sum(1)
    np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-4)


def test_iterations_that_need_each_other_stay_together():
    @cuda.jit
    def neighbours(a, b, out):
        """Each result needs the one before it."""
        acc = cuda.local.array(16, float32)
        tx = cuda.threadIdx.x
        for i in range(16):
            acc[i] = b[0, tx]
        for _q in range(a.shape[1]):
            for i in range(1, 16):
                acc[i] += acc[i - 1] * float32(0.125)
        cuda.syncthreads()
        for i in range(4):
            out[i, tx] = acc[12 + i]

    @cuda.jit
    def halved(a, b, out):
        """All add to one element, in their order."""
        acc = cuda.local.array(16, float32)
        tx = cuda.threadIdx.x
        for i in range(16):
            acc[i] = 0
        for q in range(a.shape[1]):
            for i in range(16):
                acc[0] = acc[0] * float32(0.5) + a[i, q] * b[q, tx]
        cuda.syncthreads()
        for i in range(4):
            out[i, tx] = acc[0]

    @cuda.jit
    def turned(a, b, out):
        """Results and those across the diagonal."""
        acc = cuda.local.array((4, 4), float32)
        tx = cuda.threadIdx.x
        for i in range(4):
            for j in range(4):
                acc[i, j] = b[i, tx] * (j + 1)
        for q in range(a.shape[1]):
            for i in range(4):
                for j in range(4):
                    acc[i, j] = acc[i, j] * float32(0.5) + acc[j, i] * float32(0.25) + a[i, q]
        cuda.syncthreads()
        for i in range(4):
            out[i, tx] = acc[i, 3]

    @cuda.jit
    def viewed(a, b, out):
        """All need the first row, which changes, by a name of its own."""
        acc = cuda.local.array((4, 4), float32)
        tx = cuda.threadIdx.x
        for i in range(4):
            for j in range(4):
                acc[i, j] = b[i, tx] * (j + 1)
        first = acc[0]
        for q in range(a.shape[1]):
            for i in range(4):
                for j in range(4):
                    acc[i, j] = acc[i, j] * float32(0.5) + first[j] * a[i, q]
        cuda.syncthreads()
        for i in range(4):
            out[i, tx] = acc[i, 3]

    @cuda.jit
    def counted(a, b, out):
        """A variable counts through all iterations."""
        acc = cuda.local.array(16, float32)
        tx = cuda.threadIdx.x
        count = float32(0)
        for i in range(16):
            acc[i] = 0
        for q in range(a.shape[1]):
            for i in range(16):
                count += b[q, tx]
                acc[i] += count
        cuda.syncthreads()
        for i in range(4):
            out[i, tx] = acc[i]

    @cuda.jit
    def stored(a, b, out):
        """Each iteration reads what others have stored in memory."""
        acc = cuda.local.array(16, float32)
        tx = cuda.threadIdx.x
        for i in range(16):
            acc[i] = 0
        for q in range(a.shape[1]):
            for i in range(16):
                acc[i] += b[q, tx]
                out[i % 4, tx] += acc[i]
        cuda.syncthreads()

    a, b = operands(16)
    wide = b.astype(np.float64)
    acc = np.repeat(wide[:1], 16, 0)
    for _ in range(DEPTH):
        for i in range(1, 16):
            acc[i] += acc[i - 1] / 8
    steps = np.repeat(wide, 16, 0).cumsum(0).reshape(DEPTH, 16, X)
    rising = wide.cumsum(0).sum(0)
    half, square = np.zeros(X), wide[:4, None] * np.arange(1, 5)[:, None]
    for q in range(DEPTH):
        for i in range(16):
            half = half / 2 + a[i, q] * wide[q]
        for i in range(4):
            for j in range(4):
                square[i, j] = square[i, j] / 2 + square[j, i] / 4 + a[i, q]
    rows = wide[:4] * 4
    for q in range(DEPTH):
        for i in range(4):
            rows[i] = rows[i] / 2 + rows[0] * a[i, q]
    expected = {
        neighbours: acc[12:],
        viewed: rows,
        halved: np.repeat(half[None], 4, 0),
        turned: square[:, 3],
        counted: steps.sum(0)[:4],
        stored: np.repeat(4 * rising[None], 4, 0),
    }
    for kernel, values in expected.items():
        out = np.zeros((4, X), np.float32)
        kernel[1, X](a, b, out)
        np.testing.assert_allclose(out, values, rtol=1e-4)
        text = plan(kernel)
        assert text.count("for q in") + text.count("for _q in") == 1, text
