"""Threads are taken along y or z where memory lies that way, and where nobody can tell."""

from __future__ import annotations

import numpy as np
import pytest

from kernels.simt import cuda
from tests.simt.plans import beside_checked

BLOCK = (4, 8)


def exchanged(kernel) -> str:
    """The axes that have changed places, as the kernel's listing says."""
    text = kernel.inspect_passes()["turned blocks"].partition("# block ")[2].split("\n")[0]
    return text.partition("), ")[2].partition(" exchanged")[0]


def run(function, *arrays, grid=(8, 3), block=BLOCK):
    """The kernel, whose results are those of the checked mode, which exchanges nothing."""
    fast, checked = beside_checked(function, (grid, block), *arrays)
    assert not exchanged(checked)
    return fast


def numbers(*shape):
    return np.random.default_rng(5).integers(-9, 10, shape)


def elementwise(a, out):
    i, j = cuda.grid(2)
    if i < a.shape[0] and j < a.shape[1]:
        out[i, j] = a[i, j] * 2 + i


def product(a, out):
    i, j = cuda.grid(2)
    if i >= out.shape[0] or j >= out.shape[1]:
        return
    total = 0
    for k in range(a.shape[1]):
        total += a[i, k] * a[k % a.shape[0], j]
    out[i, j] = total


def numbered_elements(a, out):
    i = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    j = cuda.blockIdx.y * cuda.blockDim.y + cuda.threadIdx.y
    h, w = a.shape
    if i < h and j < w:
        out.reshape(h * w)[i * w + j] = a[i, j] + 1


def tiles(a, out):
    tile = cuda.shared.array(BLOCK, np.int64)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    i, j = cuda.grid(2)
    tile[x, y] = a[i, j] if i < a.shape[0] and j < a.shape[1] else 0
    cuda.syncthreads()
    if i < a.shape[0] and j < a.shape[1]:
        out[i, j] = tile[3 - x, y] + cuda.gridDim.x + 10 * cuda.blockIdx.y


def grid_stride(a, out):
    i0, j0 = cuda.grid(2)
    di, dj = cuda.gridsize(2)
    for i in range(i0, a.shape[0], di):
        j = j0
        while j < a.shape[1]:
            out[i, j] = a[i, j] + i * j
            j += dj


def views(a, out):
    i, j = cuda.grid(2)
    if i < a.shape[0] and j < a.shape[1]:
        row = a[i]
        out[i][j] = row[j] * 2


ALONG_Y = [elementwise, product, numbered_elements, tiles, grid_stride, views]


@pytest.mark.parametrize("function", ALONG_Y)
@pytest.mark.parametrize("shape", [(32, 20), (17, 13), (1, 1), (31, 3)])
def test_rows_along_y(function, shape):
    kernel = run(function, numbers(*shape), np.zeros(shape, np.int64))
    assert exchanged(kernel) == "x and y"


def test_rows_along_z():
    def kernel(a, out):
        i, j, k = cuda.grid(3)
        if i < a.shape[0] and j < a.shape[1] and k < a.shape[2]:
            out[i, j, k] = a[i, j, k] - k

    shape = (9, 7, 11)
    fast = run(kernel, numbers(*shape), np.zeros(shape, np.int64), grid=(3, 2, 2), block=(4, 4, 8))
    assert exchanged(fast) == "x and z"


def rows_along_x(a, out):
    j, i = cuda.grid(2)
    if i < a.shape[0] and j < a.shape[1]:
        out[i, j] = a[i, j]


def transposed(a, out):
    i, j = cuda.grid(2)
    if i < min(a.shape) and j < min(a.shape):
        out[i, j] = a[j, i]


def views_of_rows(a, out):
    j, i = cuda.grid(2)
    if i < a.shape[0] and j < a.shape[1]:
        row, mine = a[i], out[i]
        for k in range(3):
            mine[j] += row[j] * k


def a_shuffle(a, out):
    i, j = cuda.grid(2)
    value = cuda.shfl_down_sync(0xFFFFFFFF, i, 1)
    if i < a.shape[0] and j < a.shape[1]:
        out[i, j] = a[i, j] + value


@cuda.jit(device=True)
def of_its_thread(depth):
    if depth > 0:
        return of_its_thread(depth - 1)
    return cuda.threadIdx.x


def a_function_that_knows_its_thread(a, out):
    i, j = cuda.grid(2)
    if i < a.shape[0] and j < a.shape[1]:
        out[i, j] = a[i, j] + of_its_thread(2)


def messages(a, out):
    i, j = cuda.grid(2)
    if i < a.shape[0] and j < a.shape[1]:
        out[i, j] = a[i, j]
        if a[i, j] > 100:
            print(i, j)


def column_after_column(a, out):
    i, j = cuda.grid(2)
    if i < a.shape[0] and j < a.shape[1]:
        out[i, j] = a[i, j]


STAY = [
    *(rows_along_x, transposed, views_of_rows, a_shuffle),
    *(a_function_that_knows_its_thread, messages),
]


@pytest.mark.parametrize("function", STAY)
def test_blocks_that_stay(function):
    shape = (20, 20)
    assert not exchanged(run(function, numbers(*shape), np.zeros(shape, np.int64)))


def test_arrays_in_fortrans_order_stay():
    a = np.asfortranarray(numbers(20, 20))
    kernel = cuda.jit(column_after_column)
    for order, found in (("F", ""), ("C", "x and y")):
        given, out = np.array(a, order=order), np.zeros(a.shape, np.int64, order=order)
        kernel = cuda.jit(column_after_column)
        kernel[(5, 3), BLOCK](given, out)
        np.testing.assert_array_equal(out, a)
        assert exchanged(kernel) == found


def test_few_threads_along_y_stay():
    def kernel(a, out):
        i, j = cuda.grid(2)
        if i < a.shape[0] and j < a.shape[1]:
            out[i, j] = a[i, j]

    a, out = numbers(20, 20), np.zeros((20, 20), np.int64)
    jitted = cuda.jit(kernel)
    jitted[(3, 5), (8, 4)](a, out)
    np.testing.assert_array_equal(out, a)
    assert "exchanged" not in jitted.inspect_passes()["turned blocks"]


def test_a_part_of_the_grid_of_a_launch_without_proof():
    """A launch that cannot do without checks runs again with them: all blocks of it, once."""

    def kernel(a, where, out):
        i, j = cuda.grid(2)
        if i < a.shape[0] and j < a.shape[1]:
            out[i, j] += a[i, j]
            cuda.atomic.add(out, (i, where[i]), 1)

    shape = (30, 18)
    run(kernel, numbers(*shape), np.arange(30) % 18, np.zeros(shape, np.int64))
