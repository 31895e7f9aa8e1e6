"""Versions of a loop that no block can need, or that another one already has, are not made."""

from __future__ import annotations

import importlib
import re

import numpy as np
import pytest

from kernels.support import processor

matmul = importlib.import_module("kernels.numba_cuda.matmul")


def compiled(version: str, block: tuple[int, int], shape: tuple[int, int, int], trans_a) -> str:
    """The module of a product's kernel, whose result is compared with NumPy's first."""
    from numba import float32

    m, k, n = shape
    a, b = (np.random.default_rng(0).random(s, np.float32) for s in ((1, m, k), (1, k, n)))
    c, bias = np.empty((1, m, n), np.float32), np.zeros(1, np.float32)
    given = a.swapaxes(1, 2).copy() if trans_a else a
    kernel = getattr(matmul, version)(float32, trans_a, False, False)
    args = given, b, bias, c
    kernel[(-(-n // 32), -(-m // block[1])), block](*args)
    np.testing.assert_allclose(c, a @ b, rtol=1e-5)
    # Not `inspect_cpu`: it also shows what other tests launched this kernel with
    return kernel.specialise((*block, 1), args).text


@pytest.mark.parametrize("shape", [(64, 64, 64), (70, 33, 65), (5, 100, 31)])
def test_a_tile_that_is_only_filled_at_edges_has_no_guard_free_fill(shape):
    text = compiled("tiled", (32, 32), shape, False)
    assert text.count("a_tile[_u(ty), _u(tx)] = _float32(a[") == 1


def test_the_last_tile_of_a_sum_does_without_guards_too():
    """Its loads are clamped; a check that no clamp changes anything would leave it out."""
    text = compiled("tiled", (32, 32), (64, 16, 64), False)
    checks = re.findall(r"if (.*):  # no thread of the block is at an edge", text)
    assert checks == ["(_bx * 32 + 31 < n)"]


def test_rows_that_are_clipped_need_no_version_of_the_block():
    text = compiled("tiled", (32, 32), (64, 64, 64), False)
    stores = text.split("if _is_last and not _in_rows:")
    assert [part.count("c[_u(z), _u(row), _u(col)] = acc") for part in stores][1:] == [2]
    # whole rows, and parts of a row; before that, rows end their own loops


@pytest.mark.parametrize("shape", [(8, 64, 64), (7, 33, 65)])
def test_a_guard_that_always_fails_somewhere_gives_no_version(shape):
    text = compiled("short", (32, 8), shape, True)
    assert "if tx < 8" in text and "31 < 8" not in text


def test_an_elementwise_guard_has_one_version_without_it_and_one_for_the_edge():
    """Also where the value is chosen by a condition, which is no guard."""
    from kernels import cuda

    @cuda.jit
    def relu(x, out):
        i = cuda.grid(1)
        if i < out.size:
            out[i] = x[i] if x[i] > 0 else x[i] * 0

    x = np.random.default_rng(0).standard_normal(600, np.float32)
    out = np.empty_like(x)
    relu[3, 256](x, out)
    np.testing.assert_array_equal(out, np.maximum(x, 0))
    assert relu.inspect_cpu().count("out[_u(i)] =") == 2


@pytest.mark.parametrize("shape", [(64, 64, 64), (70, 150, 65)])
def test_rows_of_doubles_go_together_too(shape):
    """With few registers, parts of rows do: 32 doubles take 8 registers of AVX2, so no two fit."""
    from numba import float64

    from tests.simt.plans import plan

    m, k, n = shape
    a, b = (np.random.default_rng(0).random(s) for s in ((1, m, k), (1, k, n)))
    c, bias = np.empty((1, m, n)), np.zeros(1)
    kernel = matmul.tiled(float64, False, False, False)
    kernel[(-(-n // 32), -(-m // 32)), (32, 32)](a, b, bias, c)
    np.testing.assert_allclose(c, a @ b, rtol=1e-12)
    assert "rows together (unroll-and-jam)" in plan(kernel)


@pytest.mark.parametrize(
    "y, together, left", [(32, 3, 2), (11, 3, 2), (12, 3, 0), (16, 2, 0), (8, 2, 0)]
)
def test_three_rows_go_together_where_a_pair_is_left(y, together, left, monkeypatch):
    """As with AVX2, whatever the processor."""
    from kernels import cuda

    monkeypatch.setattr(processor, "vector_registers", lambda: processor.Registers(16, 8))

    @cuda.jit
    def product(a, b, c):
        tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
        acc = a[ty, 0] * 0
        for k in range(a.shape[1]):
            acc += a[ty, k] * b[k, tx]
        c[ty, tx] = acc

    rng = np.random.default_rng(y)
    a, b = rng.random((y, 40), np.float32), rng.random((40, 32), np.float32)
    c = np.full((y, 32), np.nan, np.float32)
    product[1, (32, y)](a, b, c)
    np.testing.assert_allclose(c, a @ b, rtol=1e-5)
    text = product.inspect_cpu()
    assert f"for _k_row in range({together}):" in text
    assert ("for _k_row in range(2):" in text) == (2 in (together, left))


def test_rows_at_the_edges_are_compiled_in_one_size(monkeypatch):
    monkeypatch.setattr(processor, "vector_registers", lambda: processor.Registers(16, 8))
    text = compiled("tiled", (32, 32), (70, 33, 65), True)
    at_edges = text[text.index("for _w in range(_inside, _tiles):") :]
    assert "in range(2)" in at_edges and "in range(3)" not in at_edges
    assert "in range(3)" in text
