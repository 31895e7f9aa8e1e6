"""Threads that walk along rows of memory: few of them together where the rows are far apart."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

from kernels.simt import cuda
from tests.simt.plans import beside_checked

BLOCK = 32


def product(a, x, out):
    row = cuda.grid(1)
    if row < a.shape[0]:
        total = 0.0
        for k in range(a.shape[1]):
            total += a[row, k] * x[k]
        out[row, 0] = total


def flat(a, x, out):
    row = cuda.grid(1)
    n = x.size
    if row < out.shape[0]:
        most = x[0]
        for k in range(n):
            most = max(most, a[row, 0] if k > 3 else x[n - 1 - k])
        for k in range(n):
            most += out[row, n - 1 - k]
        out[row, 0] = most


def exponentials(a, x, out):
    """Reads that may be moved to before the call, and one that must not be."""
    row = cuda.grid(1)
    if row < a.shape[0]:
        total = x[0]
        for k in range(a.shape[1]):
            here = a[row, k]
            total += math.exp(a[row, k] - here * x[k]) + math.sin(
                a[row, k + 1] if k + 1 < a.shape[1] else x[k]
            )
        out[row, 0] = total


def scaled(a, x, out):
    row = cuda.grid(1)
    if row < a.shape[0]:
        for k in range(a.shape[1]):
            out[row, k] = a[row, k] * x[k]


def sums_in_place(a, x, out):
    row = cuda.grid(1)
    if row < a.shape[0]:
        for k in range(1, a.shape[1]):
            out[row, k] += out[row, k - 1] + a[row, k]


def of_all_columns(a, x, out):
    row = cuda.grid(1)
    if row < a.shape[0]:
        for j in range(3):
            total = x[j]
            for k in range(a.shape[1]):
                total += a[row, k] * x[(j + k) % x.size]
            out[row, j] = total


def in_a_loop_of_the_block(a, x, out):
    tile = cuda.shared.array(BLOCK, np.float32)
    t, row = cuda.threadIdx.x, cuda.grid(1)
    tile[t] = x[t]
    for _ in range(2):
        cuda.syncthreads()
        total = tile[(t + 1) % BLOCK]
        if row < a.shape[0]:
            for k in range(a.shape[1]):
                total += a[row, k]
        cuda.syncthreads()
        tile[t] = total
    if row < a.shape[0]:
        out[row, 1] = tile[t]


KERNELS = [product, flat, exponentials, scaled, sums_in_place, of_all_columns]
KERNELS.append(in_a_loop_of_the_block)


@pytest.mark.parametrize("columns", [33, 63, 64, 65, 255, 256, 257])
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.__name__)
def test_it_is_as_in_the_checked_mode(kernel, columns):
    rng = np.random.default_rng(columns)
    a, out = (rng.random((BLOCK + 5, columns), np.float32) for _ in range(2))
    beside_checked(kernel, (2, BLOCK), a, rng.random(columns, np.float32), out)


@pytest.mark.parametrize("dtype", [np.float64, np.int32, np.float16])
@pytest.mark.parametrize("kernel", [product, scaled], ids=lambda kernel: kernel.__name__)
def test_other_types_and_views(kernel, dtype):
    rng = np.random.default_rng(1)
    whole = rng.integers(-4, 5, (2, 300, 300)).astype(dtype)
    x = rng.integers(0, 3, 300).astype(dtype)
    columns, backwards, turned = whole[:, :, ::2], whole[:, ::-1], whole.transpose(0, 2, 1)
    for a, out in (columns, backwards, turned, whole[:, :7]):
        beside_checked(kernel, (10, BLOCK), a, x[: a.shape[1]], out)


def text_of(kernel, columns=300):
    a = np.zeros((BLOCK, columns), np.float32)
    fast = cuda.jit(kernel, debug=False)
    fast[1, BLOCK](a, np.zeros(columns, np.float32), a.copy())
    return fast.inspect_cpu()


def test_eight_go_together_where_rows_that_they_read_are_far_apart():
    far, near = (
        text_of(product).split("if a.strides[0] >= 1024:")[1].split("            else:\n", 1)
    )
    assert "range(0, 32, 8)" in far
    assert "range(0, 32, 8)" not in near


def test_each_goes_alone_where_it_writes_a_row():
    far = text_of(scaled).split("out.strides[0] >= 256")[1].split("            else:\n", 1)[0]
    assert far.index("for _tx in range(32)") < far.index("for k in")


def test_what_is_read_for_a_function_is_read_in_a_loop_of_its_own():
    far = text_of(exponentials).split("if a.strides[0] >= 1024:")[1]
    assert "read = a[_u(row), _u(k)]" in far
    assert not re.search(r"read\w* = a\[.*k \+ 1", far)  # which the last iteration does not read


def test_the_distance_may_be_a_number_of_the_launch():
    def kernel(a, x, out):
        row = cuda.grid(1)
        total = x[0]
        for k in range(x.size):
            total += a[0, row * x.size + k]
        out[0, row] = total

    text = text_of(kernel)
    assert "x.size >= 256:" in text


def test_short_loops_have_one_version():
    def kernel(a, x, out):
        row = cuda.grid(1)
        for c in range(3):
            out[row, c] = a[row, c] * x[c]

    assert "strides" not in text_of(kernel)


def test_a_result_after_each_inner_loop_is_no_walk_of_its_own():
    def kernel(a, x, out):
        row = cuda.grid(1)
        for j in range(out.shape[1]):
            total = x[j]
            for k in range(a.shape[1]):
                total += a[row, k] * x[k]
            out[row, j] = total

    text = text_of(kernel)
    assert "out.strides" not in text and "range(0, 32, 8)" in text
