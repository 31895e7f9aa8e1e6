"""Statements under different guards run one after the other for all threads of a row, where no
thread can tell; what only a guarded statement needs is computed under its guard."""

from __future__ import annotations

import re

import numpy as np
import pytest

from kernels.simt import cuda

X, Y = 16, 8
HALO = (Y + 2, X + 2)


@cuda.jit
def heat(a, out):
    tile = cuda.shared.array(HALO, np.float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    x, y = cuda.grid(2)
    h, w = a.shape
    if x < w and y < h:
        tile[ty + 1, tx + 1] = a[y, x]
        if tx == 0 and x > 0:
            tile[ty + 1, 0] = a[y, x - 1]
        if tx == X - 1 and x < w - 1:
            tile[ty + 1, X + 1] = a[y, x + 1]
        if ty == 0 and y > 0:
            tile[0, tx + 1] = a[y - 1, x]
        if ty == Y - 1 and y < h - 1:
            tile[Y + 1, tx + 1] = a[y + 1, x]
    cuda.syncthreads()
    if 0 < x < w - 1 and 0 < y < h - 1:
        across = tile[ty + 1, tx] + tile[ty + 1, tx + 2]
        out[y, x] = tile[ty + 1, tx + 1] + across + tile[ty, tx + 1] + tile[ty + 2, tx + 1]


def fills(kernel) -> int:
    """How many statements of the compiled kernel store to the tile."""
    return len(re.findall(r"^ +tile\[.*\] = ", kernel.inspect_cpu(), re.MULTILINE))


def guards_inside(kernel) -> list[str]:
    """The conditions that each thread of some row decides for itself."""
    found, depth = [], None
    for line in kernel.inspect_cpu().splitlines():
        indentation = len(line) - len(line.lstrip())
        if depth is not None and line.strip() and indentation <= depth:
            depth = None
        if depth is not None and line.lstrip().startswith("if "):
            found.append(line.strip())
        if line.lstrip().startswith("for _tx in "):
            depth = indentation
    return found


@pytest.mark.parametrize("shape", [(1, 1), (8, 16), (9, 17), (40, 31), (33, 100), (0, 5)])
def test_a_tile_with_a_halo(shape):
    a, out = np.random.default_rng(1).random(shape, np.float32), np.zeros(shape, np.float32)
    grid = max(1, -(-shape[1] // X)), max(1, -(-shape[0] // Y))
    heat[grid, (X, Y)](a, out)
    expected = np.zeros(shape)
    inner = a[1:-1, :-2] + a[1:-1, 2:] + a[:-2, 1:-1] + a[2:, 1:-1] + a[1:-1, 1:-1].astype(float)
    expected[1:-1, 1:-1] = inner
    np.testing.assert_allclose(out, expected, rtol=1e-6)
    assert not guards_inside(heat)
    # In a block at an edge, each of three loops has a copy for rows that are whole
    assert fills(heat) == 5 + 8


def run(kernel, width=X, **arrays):
    """The arrays after a launch of one block, compared with those of the checked mode."""
    results = []
    for debug in (False, True):
        given = {name: value.copy() for name, value in arrays.items()}
        cuda.jit(kernel, debug=debug, opt=not debug)[1, (width, 2)](*given.values())
        results.append(given)
    for name in arrays:
        np.testing.assert_array_equal(results[0][name], results[1][name])
    return results[0]


def compiled(kernel, width=X, **arrays):
    kernel = cuda.jit(kernel)
    kernel[1, (width, 2)](*arrays.values())
    return kernel


def test_a_thread_keeps_its_order():
    def kernel(out):
        t, row = cuda.threadIdx.x, cuda.threadIdx.y
        out[row, t] = 1
        if t < 5:
            out[row, t] = out[row, t] + 10
        if t == 2:
            out[row, t] = out[row, t] * 3
        out[row, t] = out[row, t] + 100

    found = run(kernel, out=np.zeros((2, X), np.int64))["out"]
    assert found[1].tolist() == [111, 111, 133, 111, 111] + [101] * 11
    assert not guards_inside(compiled(kernel, out=np.zeros((2, X), np.int64)))


def test_what_a_guard_computes_for_another_part_keeps_them_together():
    def kernel(x, out):
        t, row = cuda.threadIdx.x, cuda.threadIdx.y
        value = x[t]
        if t < 5:
            value = value * 2
            out[row, t] = -value
        if t < 9:
            out[row, t] = out[row, t] + value

    arrays = {"x": np.arange(X), "out": np.zeros((2, X), np.int64)}
    found = run(kernel, **arrays)["out"]
    assert found[0].tolist() == [0] * 5 + [5, 6, 7, 8] + [0] * 7
    assert guards_inside(compiled(kernel, **arrays))


def test_rows_that_pass_different_guards_have_loops_of_their_own():
    def kernel(out):
        t, row = cuda.threadIdx.x, cuda.threadIdx.y
        out[row, t] = t
        if row == 0:
            out[row, t] = out[row, t] + 10
        if row == 1:
            out[row, t] = out[row, t] + 20

    found = run(kernel, out=np.zeros((2, X), np.int64))["out"]
    assert found.tolist() == [list(range(10, 10 + X)), list(range(20, 20 + X))]
    assert not guards_inside(compiled(kernel, out=np.zeros((2, X), np.int64)))


@pytest.mark.parametrize("width", [X, 256])
def test_no_row_is_whole_where_some_thread_never_passes(width):
    def first(x, out):
        t, row = cuda.threadIdx.x, cuda.threadIdx.y
        if t == 0:
            out[row] = x[row, t]

    def few(x, out):
        t, row = cuda.threadIdx.x, cuda.threadIdx.y
        if t < 5 and t < x.shape[1]:
            x[row, t] = -x[row, t] - out[0]

    x, out = np.ones((2, width), np.int64), np.zeros(2, np.int64)
    assert run(first, width, x=x, out=out)["out"].tolist() == [1, 1]
    assert run(few, width, x=x, out=out)["x"].sum(1).tolist() == [width - 10] * 2
    for kernel in (first, few) if width == X else (first,):
        assert compiled(kernel, width, x=x, out=out).inspect_cpu().count("for _tx in") == 1


def test_no_warp_is_whole_where_one_lane_stores():
    @cuda.jit
    def kernel(x, sums):
        t = cuda.threadIdx.x
        value = x[t]
        value += cuda.shfl_down_sync(0xFFFFFFFF, value, 16)
        value += cuda.shfl_down_sync(0xFFFFFFFF, value, 8)
        if t % 32 == 0:
            sums[t // 32] = value

    x, sums = np.arange(128), np.zeros(4, np.int64)
    kernel[1, 128](x, sums)
    np.testing.assert_array_equal(sums, x.reshape(4, 4, 8)[:, :, 0].sum(1))
    code = kernel.inspect_cpu()
    assert "_lo = _max(_x0" in code and "_hi == _x0" not in code


def test_a_loop_that_waits_keeps_the_order_of_threads():
    def kernel(flag, out):
        t, row = cuda.threadIdx.x, cuda.threadIdx.y
        if t > 0:
            tries = 0
            while flag[row] == 0:
                tries += 1
            out[row, t] = min(tries, t)
        if t == 0:
            flag[row] = 1

    found = run(kernel, flag=np.zeros(2, np.int64), out=np.zeros((2, X), np.int64))
    assert found["flag"].tolist() == [1, 1]


def test_prints_keep_the_order_of_threads(capfd):
    def kernel(x):
        t, row = cuda.threadIdx.x, cuda.threadIdx.y
        if t < 3:
            print(x[row], t)
        if t == 1:
            print(x[row], -t)

    cuda.jit(kernel)[1, (X, 2)](np.array([7, 8]))
    assert capfd.readouterr().out.splitlines() == [
        "7 0",
        "7 1",
        "7 -1",
        "7 2",
        "8 0",
        "8 1",
        "8 -1",
        "8 2",
    ]


def test_a_test_with_an_effect_comes_after_what_is_computed_before_it():
    def kernel(x, out):
        t, row = cuda.threadIdx.x, cuda.threadIdx.y
        if t < X - 1:
            value = x[row, t] * 2
            if cuda.atomic.add(x, (row, t), 1) >= 0:
                out[row, t] = value

    x = np.arange(2 * X).reshape(2, X)
    found = run(kernel, x=x, out=np.zeros((2, X), np.int64))["out"]
    np.testing.assert_array_equal(found[:, :-1], 2 * x[:, :-1])


def test_a_guard_that_reads_memory_is_read_once():
    def kernel(out, second):
        t, row = cuda.threadIdx.x, cuda.threadIdx.y
        if out[row, t] == 0:
            out[row, t] = 1
            if t < 5:
                second[row, t] = 2

    arrays = {"out": np.zeros((2, X), np.int64), "second": np.zeros((2, X), np.int64)}
    assert run(kernel, **arrays)["second"][0].tolist() == [2] * 5 + [0] * 11


def test_a_guard_that_reads_memory_is_read_in_its_place():
    def kernel(out):
        t, row = cuda.threadIdx.x, cuda.threadIdx.y
        if t < 4:
            out[row, t] = 1
        if out[row, t] == 0:
            out[row, t] = 2
        if t >= 12:
            out[row, t] = out[row, t] + 5

    found = run(kernel, out=np.zeros((2, X), np.int64))["out"]
    assert found[1].tolist() == [1] * 4 + [2] * 8 + [7] * 4


def test_private_arrays_stay_with_their_thread():
    def kernel(out):
        mine = cuda.local.array(2, np.int64)
        t, row = cuda.threadIdx.x, cuda.threadIdx.y
        mine[0] = t
        mine[1] = 0
        if t < 3:
            mine[1] = mine[0] * 2
        if t >= 2:
            mine[0] = mine[0] + mine[1]
        out[row, t] = mine[0]

    assert run(kernel, out=np.zeros((2, X), np.int64))["out"][0].tolist() == [
        *(0, 1, 6),
        *range(3, X),
    ]


def test_a_sum_for_a_guarded_store_is_computed_under_the_guard():
    def kernel(x, weights, out):
        tile = cuda.shared.array((2, X), np.float32)
        t, row = cuda.threadIdx.x, cuda.threadIdx.y
        tile[row, t] = x[row, t]
        cuda.syncthreads()
        if t < X - 2:
            total = np.float32(0)
            for k in range(3):
                total += tile[row, t + k] * weights[k]
            if t < out.shape[1]:
                out[row, t] = total

    rng = np.random.default_rng(2)
    x, weights = rng.random((2, X), np.float32), rng.random(3, np.float32)
    for width in (0, 1, 9, 14, 20):
        arrays = {"x": x, "weights": weights, "out": np.zeros((2, width), np.float32)}
        found, count = run(kernel, **arrays)["out"], min(width, X - 2)
        expected = [np.convolve(row.astype(float), weights[::-1], "valid")[:count] for row in x]
        np.testing.assert_allclose(found[:, :count], expected, rtol=1e-6)
        assert not found[:, count:].any()
    assert not guards_inside(compiled(kernel, **arrays))


def test_what_others_need_too_is_computed_in_its_place():
    def kernel(x, out, sums):
        t, row = cuda.threadIdx.x, cuda.threadIdx.y
        total = 0
        if t < X - 1:
            total = x[row, t] + x[row, t + 1]
            if t < 6:
                out[row, t] = total
        cuda.syncthreads()
        sums[row, t] = total

    x = np.arange(2 * X).reshape(2, X)
    found = run(kernel, x=x, out=np.zeros((2, X), np.int64), sums=np.zeros((2, X), np.int64))
    both = x[:, :-1] + x[:, 1:]
    np.testing.assert_array_equal(found["out"][:, :6], both[:, :6])
    np.testing.assert_array_equal(found["sums"][:, :-1], both)
    assert not found["out"][:, 6:].any() and not found["sums"][:, -1].any()


def test_what_a_test_reads_is_computed_before_it():
    def kernel(x, out):
        t, row = cuda.threadIdx.x, cuda.threadIdx.y
        if t < X - 1:
            total = x[row, t] + x[row, t + 1]
            if total > 10:
                out[row, t] = total

    x = np.arange(2 * X).reshape(2, X) % 9
    both = x[:, :-1] + x[:, 1:]
    found = run(kernel, x=x, out=np.zeros((2, X), np.int64))["out"]
    np.testing.assert_array_equal(found[:, :-1], np.where(both > 10, both, 0))
