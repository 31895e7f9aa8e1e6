"""Copies that transpose go through registers, a square of threads at a time."""

from __future__ import annotations

import functools
import importlib

import numpy as np
import pytest
from numba import float32, float64, int32

from kernels.simt import cuda
from kernels.simt.interpreter import interpreter

matmul = importlib.import_module("kernels.numba_cuda.matmul")
SQUARE = "_copy_square("


@functools.cache
def transpose(dtype, rows: int):
    """out[j, i] = x[i, j] for blocks (32, rows), by a tile that is read down its columns."""

    @cuda.jit
    def through_a_tile(x, out):
        tile = cuda.shared.array((32, 33), dtype)
        tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
        i0, j0 = cuda.blockIdx.y * 32, cuda.blockIdx.x * 32
        for r in range(0, 32, rows):
            if i0 + ty + r < x.shape[0] and j0 + tx < x.shape[1]:
                tile[ty + r, tx] = x[i0 + ty + r, j0 + tx]
        cuda.syncthreads()
        for r in range(0, 32, rows):
            if j0 + ty + r < x.shape[1] and i0 + tx < x.shape[0]:
                out[j0 + ty + r, i0 + tx] = tile[tx, ty + r]

    return through_a_tile


def transposed(kernel, x: np.ndarray, rows: int) -> np.ndarray:
    out = np.full(x.shape[::-1], 7, x.dtype)
    kernel[(-(-x.shape[1] // 32), -(-x.shape[0] // 32)), (32, rows)](x, out)
    return out


@pytest.mark.parametrize("shape", [(32, 32), (96, 64), (70, 33), (5, 100), (31, 31)])
@pytest.mark.parametrize("rows", [8, 32])
@pytest.mark.parametrize("dtype", [float32, int32])
def test_a_transpose_leaves_its_tile_in_squares(shape, rows, dtype):
    kernel = transpose(dtype, rows)
    x = np.random.default_rng(0).integers(-1000, 1000, shape).astype(str(dtype))
    np.testing.assert_array_equal(transposed(kernel, x, rows), x.T)
    assert SQUARE in kernel.inspect_cpu()
    assert "a square, copied in registers" in kernel.inspect_passes()["plan"]


@pytest.mark.parametrize("version, rows", [("tiled", 32), ("short", 8)])
@pytest.mark.parametrize("shape", [(64, 64, 64), (70, 33, 65), (5, 100, 31), (33, 129, 96)])
def test_a_product_fills_its_tile_of_a_transposed_operand_in_squares(version, rows, shape):
    m, k, n = shape
    rng = np.random.default_rng(0)
    a, b, bias = (rng.random(s, np.float32) for s in ((1, m, k), (1, n, k), n))
    c = np.empty((1, m, n), np.float32)
    kernel = getattr(matmul, version)(float32, False, True, True)
    kernel[(-(-n // 32), -(-m // rows)), (32, rows)](a, b, bias, c)
    np.testing.assert_allclose(c, a @ b.swapaxes(1, 2) + bias, rtol=1e-5)
    assert kernel.specialise((32, rows, 1), (a, b, bias, c)).text.count(SQUARE) == 1


@cuda.jit
def twice(x, out):
    out[cuda.threadIdx.y, cuda.threadIdx.x] = x[cuda.threadIdx.x, cuda.threadIdx.y] * 2


@cuda.jit
def truncated(x, out):
    out[cuda.threadIdx.y, cuda.threadIdx.x] = float32(int32(x[cuda.threadIdx.x, cuda.threadIdx.y]))


@cuda.jit
def of_views(x, out):
    own = x[cuda.threadIdx.x]
    out[cuda.threadIdx.y, cuda.threadIdx.x] = own[cuda.threadIdx.x, cuda.threadIdx.y]


def test_what_is_no_such_copy_is_not_done_in_squares():
    x = np.random.default_rng(0).standard_normal((40, 72))
    wide = transpose(float64, 8)  # elements of 8 bytes
    np.testing.assert_array_equal(transposed(wide, x, 8), x.T)
    narrow = transpose(float32, 4)  # too few rows of threads
    np.testing.assert_array_equal(
        transposed(narrow, x.astype(np.float32), 4), x.T.astype(np.float32)
    )
    view = np.asfortranarray(x.astype(np.float32))  # rows that are not contiguous
    along = transpose(float32, 8)
    np.testing.assert_array_equal(transposed(along, view, 8), view.T)
    out, square = np.empty((32, 32), np.float32), np.ones((32, 32), np.float32)
    twice[1, (32, 32)](square, out)
    assert (out == 2).all()
    truncated[1, (32, 32)](square * 1.5, out)
    assert (out == 1).all()
    cube = np.random.default_rng(0).random((32, 32, 32), np.float32)
    of_views[1, (32, 32)](cube, out)
    np.testing.assert_array_equal(out, np.einsum("iij->ji", cube))
    for kernel in (wide, narrow, twice, truncated, of_views):
        assert SQUARE not in kernel.inspect_cpu()


def test_the_checked_mode_checks_each_element():
    kernel = cuda.jit(transpose(float32, 8).py_func, debug=True)
    x = np.random.default_rng(0).random((40, 72), np.float32)
    np.testing.assert_array_equal(transposed(kernel, x, 8), x.T)
    assert SQUARE not in kernel.inspect_cpu()


def test_squares_agree_with_the_interpreter():
    kernel = transpose(float32, 8)
    x = np.random.default_rng(0).random((40, 72), np.float32)
    out = np.empty((72, 40), np.float32)
    interpreter.run(kernel.py_func, (3, 2), (32, 8), (x, out))
    np.testing.assert_array_equal(out, transposed(kernel, x, 8))
