"""What is asked of LLVM, and what compiling leaves behind."""

from __future__ import annotations

import gc
import os
import re
import weakref

import numpy as np
import pytest
from numba.core.runtime import _nrt_python as allocations
from numba.core.runtime import rtsys

from kernels.simt import cuda
from kernels.simt.backend import codegen

SEED = 20261128
VECTOR_SUM = r"= fadd .*<\d+ x float>"  # in LLVM's code, of any processor's width


@pytest.fixture(autouse=True)
def compile_anew(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("MINIGRAD_CACHE_DIR", str(tmp_path))


@pytest.fixture
def optimised(monkeypatch) -> list[str]:
    """The LLVM code of what is compiled meanwhile, once it is optimised."""
    texts, optimise = [], codegen.KernelLibrary._optimise

    def remember(library, module) -> None:
        optimise(library, module)
        texts.append(str(module))

    monkeypatch.setattr(codegen.KernelLibrary, "_optimise", remember)
    return texts


def test_threads_are_taken_to_be_independent(optimised):
    """Arrays may overlap, but not what two threads do between two barriers."""

    @cuda.jit
    def increase(a, b):
        i = cuda.grid(1)
        a[i] += b[i + 1]

    a = np.zeros(65, np.float32)
    increase[1, 64](a[:64], a)
    assert re.search(VECTOR_SUM, optimised[0])
    assert "vector.memcheck" not in optimised[0]


def test_threads_of_every_loop_are_taken_to_be_independent(optimised):
    """Of blocks at an edge, too, whose threads are in other loops than those of a full one."""

    @cuda.jit
    def increase(a, b):
        i = cuda.grid(1)
        if i < a.size:
            a[i] += b[i]

    a, b = np.arange(100, dtype=np.float32), np.ones(100, np.float32)
    increase[2, 64](a, b)
    np.testing.assert_array_equal(a, np.arange(1, 101))
    assert len(re.findall(VECTOR_SUM, optimised[0])) > 1
    assert "vector.memcheck" not in optimised[0]


def test_sums_at_loaded_places_are_added_one_by_one(optimised):
    """The loop over k goes around the threads of a row, each of which has a column of its own."""

    @cuda.jit(debug=False)
    def add_at(x, index, out, rows, length, inner):
        line = cuda.grid(1)
        if line < index.size // length:
            outer, column = line // inner, line % inner
            for k in range(length):
                i = outer * length * inner + column + k * inner
                out[(outer * rows + index[i]) * inner + column] += x[i]

    rng = np.random.default_rng(SEED)
    index, x = rng.integers(0, 5, (7, 96)), rng.random((7, 96), np.float32)
    out, expected = np.zeros((2, 5, 96), np.float32)
    add_at[1, 256](x.reshape(-1), index.reshape(-1), out.reshape(-1), 5, 7, 96)
    np.add.at(expected, (index, np.arange(96)), x)
    np.testing.assert_allclose(out, expected, rtol=1e-6)
    assert not re.search(f"masked.scatter|{VECTOR_SUM}", "".join(optimised))


def test_small_integers_are_divided_as_vectors(optimised):
    @cuda.jit
    def divide(a, b, out):
        i = cuda.grid(1)
        if i < a.size:
            out[i] = a[i] // b[i]

    a = np.arange(-500, 500, dtype=np.int32)
    b, out = a % 13 - 6, np.zeros_like(a)
    divide[4, 256](a, b, out)
    np.testing.assert_array_equal(out, np.where(b == 0, 0, a // np.where(b == 0, 1, b)))
    assert re.search(r"= fdiv .*<\d+ x double>", optimised[0])


def test_rows_with_branches_are_not_copied(optimised, monkeypatch):
    def sums():
        @cuda.jit
        def sum_rows(x, out):
            tx, row = cuda.threadIdx.x, cuda.blockIdx.x * 8 + cuda.threadIdx.y
            if row < x.shape[0]:
                value = x[row, tx]
                for item in range(5):
                    value += cuda.shfl_xor_sync(-1, value, (16, 8, 4, 2, 1)[item])
                if tx == 0:
                    out[row] = value

        return sum_rows

    x, lines = np.random.default_rng(0).random((13, 32), np.float32), []
    for most in codegen._STRAIGHT, 1000:  # as it is, and as if no loop had branches
        monkeypatch.setattr(codegen, "_STRAIGHT", most)
        monkeypatch.setenv("MINIGRAD_CACHE_DIR", f"{os.environ['MINIGRAD_CACHE_DIR']}{most}")
        out = np.zeros(13, np.float32)
        sums()[2, (32, 8)](x, out)
        np.testing.assert_allclose(out, x.sum(1), rtol=1e-6)
        lines.append(optimised[0].count("\n"))
        optimised.clear()
    assert lines[0] < 0.7 * lines[1]


def test_the_checked_mode_compiles_quickly(optimised):
    @cuda.jit(debug=True)
    def increase(a):
        a[cuda.grid(1)] += 1

    a = np.zeros(64, np.float32)
    increase[1, 64](a)
    assert a.all()
    assert not re.search(VECTOR_SUM, optimised[0])


def test_what_compiling_made_is_let_go(monkeypatch):
    made = []
    init = codegen.ThreadLoopLower.init

    def remember(lowering) -> None:
        made.append(weakref.ref(lowering))
        init(lowering)

    monkeypatch.setattr(codegen.ThreadLoopLower, "init", remember)

    @cuda.jit
    def halve(a):
        a[cuda.grid(1)] /= 2

    a = np.ones(32)
    halve[1, 32](a)
    gc.collect()
    assert [reference() for reference in made] == [None]


def test_what_lives_across_grid_barriers_is_released():
    @cuda.jit
    def shift(a):
        i = cuda.grid(1)
        value = a[(i + 1) % a.size]
        cuda.cg.this_grid().sync()
        a[i] = value

    a = np.arange(64)
    shift[2, 32](a)
    allocations.memsys_enable_stats()
    before = rtsys.get_allocation_stats()
    shift[2, 32](a)
    after = rtsys.get_allocation_stats()
    allocations.memsys_disable_stats()
    assert after.alloc - before.alloc == after.free - before.free > 0
    np.testing.assert_array_equal(a, (np.arange(64) + 2) % 64)


def test_rows_at_a_loaded_place_are_vectors(optimised):
    """Where all threads of a block have the place, it is loaded before the loop over them."""

    @cuda.jit(debug=False)
    def add_rows(counts, index, weights, x):
        i, count = cuda.threadIdx.x, counts[cuda.blockIdx.x]
        for t in range(1, count):
            cuda.syncthreads()
            x[count - t, i] = x[count - t + 1, i] + weights[index[i]] * weights[i]

    x, index = np.ones((6, 64), np.float32), np.arange(64)[::-1].copy()
    add_rows[1, 64](np.array([5]), index, np.ones(64, np.float32), x)
    assert x[:, 0].tolist() == [1, 5, 4, 3, 2, 1]
    assert re.search(VECTOR_SUM, optimised[0])
    assert "vector.memcheck" not in optimised[0]


@pytest.mark.parametrize("factor", [None, 2])
def test_copies_by_index_are_not_gathered_where_that_is_slow(optimised, monkeypatch, factor):
    """Only where elements are computed with, vectors are worth what a gather costs on a Zen 4."""
    monkeypatch.setattr(codegen, "_SLOW_GATHERS", True)

    @cuda.jit
    def select(x, index, out):
        i = cuda.grid(1)
        if i < out.size:
            value = x[max(index[i], 0)]
            out[i] = value if factor is None else value * factor

    x, index = np.arange(100, dtype=np.float32), np.arange(99, -1, -1)
    out = np.empty_like(x)
    select[1, 128](x, index, out)
    assert (out == x[::-1] * (factor or 1)).all()
    assert ("+prefer-no-gather" in optimised[0]) == (factor is None)
    if factor is None:
        assert "masked.gather" not in optimised[0]


@pytest.mark.parametrize("factor", [None, 2])
def test_results_that_each_thread_puts_to_its_own_place(optimised, monkeypatch, factor):
    """As a tile of results that is stored where tables say: computed with before, then copied."""
    monkeypatch.setattr(codegen, "_SLOW_GATHERS", True)

    @cuda.jit
    def turned(x, places, out):
        tile = cuda.shared.array((32, 32), np.float32)
        tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
        tile[ty, tx] = 3 * x[ty, tx]
        cuda.syncthreads()
        value = tile[tx, ty]
        out[places[tx] + ty] = value if factor is None else value * factor

    x, places = np.arange(1024, dtype=np.float32).reshape(32, 32), 32 * np.arange(31, -1, -1)
    out = np.empty(1024, np.float32)
    turned[1, (32, 32)](x, places, out)
    assert (out.reshape(32, 32) == 3 * (factor or 1) * x[::-1]).all()
    assert ("+prefer-no-scatter" in optimised[0]) == (factor is None)


def test_a_choice_between_elements_is_no_copy(optimised, monkeypatch):
    monkeypatch.setattr(codegen, "_SLOW_GATHERS", True)

    @cuda.jit
    def choose(first, x, y, out):
        i = cuda.grid(1)
        if i < out.size:
            out[i] = x[i] if first[i] else y[i]

    x = np.arange(100, dtype=np.float32)
    out = np.empty_like(x)
    choose[1, 128](x > 50, x, -x, out)
    assert (out == np.where(x > 50, x, -x)).all()
    assert "prefer-no-gather" not in optimised[0]
