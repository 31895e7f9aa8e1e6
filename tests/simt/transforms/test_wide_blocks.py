"""Neighbouring blocks that are narrow in x run as one: the same threads, whatever the grid. Kernels
that would not do the same in a wide block are left alone."""

from __future__ import annotations

import math

import numpy as np
import pytest

from kernels.simt import cuda
from kernels.simt.ir.safety import Safety

WIDE = "neighbours in x as one"
SHAPES = pytest.mark.parametrize(
    ("height", "width"), [(1, 1), (7, 15), (16, 256), (33, 257), (40, 1000), (5, 4099), (3, 0)]
)
BLOCKS = pytest.mark.parametrize("block", [(8, 8), (16, 16), (32, 4), (64, 1), (2, 3)])


def grid_for(height: int, width: int, block: tuple[int, int]) -> tuple[int, int]:
    return max(1, -(-width // block[0])), max(1, -(-height // block[1]))


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).random(shape, np.float32)


def is_wide(kernel, block=None) -> bool:
    return WIDE in kernel.inspect_passes(block)["wide blocks"]


@SHAPES
@BLOCKS
def test_the_same_with_a_guard(height, width, block):
    @cuda.jit
    def add(a, b, out):
        x, y = cuda.grid(2)
        if x < out.shape[1] and y < out.shape[0]:
            out[y, x] = a[y, x] + b[y, x]

    a, b, out = random(height, width), random(height, width), np.zeros((height, width), np.float32)
    add[grid_for(height, width, block), block](a, b, out)
    np.testing.assert_array_equal(out, a + b)
    assert is_wide(add)


def test_a_block_further_on():
    @cuda.jit
    def shifted(x, out):
        i = (cuda.blockIdx.x + 2) * cuda.blockDim.x + cuda.threadIdx.x
        if i < x.size:
            out[i] = x[i]

    x, out = random(333), np.zeros(333, np.float32)
    shifted[20, 16](x, out)
    np.testing.assert_array_equal(out, np.where(np.arange(333) < 32, 0, x))
    assert is_wide(shifted)


@SHAPES
@BLOCKS
def test_a_stencil_beside_the_edges(height, width, block):
    @cuda.jit
    def heat(a, out):
        tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
        i = tx + cuda.blockDim.x * cuda.blockIdx.x
        j = cuda.blockIdx.y * cuda.blockDim.y + ty
        if i < 1 or j < 1 or i >= a.shape[1] - 1 or j >= a.shape[0] - 1:
            return
        out[j, i] = a[j - 1, i] + a[j + 1, i] + a[j, i - 1] + a[j, i + 1]

    a, out = random(height, width), np.full((height, width), -1, np.float32)
    heat[grid_for(height, width, block), block](a, out)
    expected = np.full_like(out, -1)
    expected[1:-1, 1:-1] = a[:-2, 1:-1] + a[2:, 1:-1] + a[1:-1, :-2] + a[1:-1, 2:]
    np.testing.assert_array_equal(out, expected)
    assert is_wide(heat)


@pytest.mark.parametrize("grid", [(1, 1, 1), (3, 2, 1), (16, 3, 2), (37, 5, 3), (64, 1, 1)])
@pytest.mark.parametrize("block", [(16, 2, 2), (32, 1, 3), (4, 4, 1)])
def test_every_thread_of_the_grid_runs_once(grid, block):
    """Without a guard, and no other: proven for the launch, not checked in each thread."""

    @cuda.jit
    def count(out):
        x, y, z = cuda.grid(3)
        out[z, y, x] += x * cuda.gridDim.x + cuda.blockDim.x + cuda.gridDim.y * y + z

    shape = [g * b for g, b in zip(grid, block)]
    out = np.zeros(shape[::-1], np.int64)
    count[grid, block](out)
    z, y, x = np.indices(out.shape)
    np.testing.assert_array_equal(out, x * grid[0] + block[0] + grid[1] * y + z)
    assert is_wide(count)
    assert {one.safety for one in count._specialised.values()} == {Safety.PROVEN}


def test_blocks_from_any_to_any_other():
    """OS threads share the blocks of a grid: a wide block begins and ends where a part does."""

    @cuda.jit
    def count(out):
        x, y = cuda.grid(2)
        out[y, x] += 1

    grid, block = (21, 3), (16, 4)
    out = np.zeros((12, 336), np.int64)
    count[grid, block](out)
    (compiled,) = count._specialised.values()
    for first in range(0, 63, 5):
        for last in range(first, 63, 7):
            out[...] = 0
            compiled.run((*grid, 1), first, last, 0, (out,))
            ran = out.reshape(3, 4, 21, 16).swapaxes(1, 2).reshape(63, 64)
            expected = (first <= np.arange(63)) & (np.arange(63) < last)
            np.testing.assert_array_equal(ran, np.broadcast_to(expected[:, None], ran.shape))


@pytest.mark.parametrize("n", [1, 31, 32, 33, 255, 1025, 5000])
def test_lines_of_small_blocks(n):
    @cuda.jit(debug=False)
    def scaled(a, x, out, total):
        i = cuda.grid(1)
        if i < n:
            value = a * x[i]
            if value > 1:
                cuda.atomic.add(total, 0, 1)
            else:
                value = value - i
            out[i] = value

    x, out, total = random(n), np.zeros(n + 5, np.float32), np.zeros(1, np.int64)
    scaled[-(-n // 32), 32](np.float32(2), x, out, total)
    twice = 2 * x
    np.testing.assert_allclose(out[:n], np.where(twice > 1, twice, twice - np.arange(n)), 1e-6)
    assert total[0] == (twice > 1).sum() and not out[n:].any()
    assert is_wide(scaled)


@cuda.jit
def of_thread(x, out):
    i, j = cuda.grid(2)
    out[j, i] = x[j, i] + cuda.threadIdx.x


@cuda.jit
def of_block(x, out):
    i, j = cuda.grid(2)
    out[j, i] = x[j, i] + cuda.blockIdx.x


@cuda.jit
def of_other_places(x, out):
    """Blocks overlap: the next one begins 15 threads further."""
    i = cuda.blockIdx.x * 15 + cuda.threadIdx.x
    out[cuda.blockIdx.y * 4 + cuda.threadIdx.y, i] = x[0, i]


@cuda.jit
def backwards(x, out):
    i = cuda.blockIdx.x * 16 - cuda.threadIdx.x + 15
    out[cuda.blockIdx.y * 4 + cuda.threadIdx.y, i] = x[0, i]


@cuda.jit
def twice_the_thread(x, out):
    t = cuda.threadIdx.x
    i = cuda.blockIdx.x * 16 + t
    out[cuda.blockIdx.y * 4 + cuda.threadIdx.y, i] = x[0, i] + (i + t)


@cuda.jit
def of_the_first_thread(x, out):
    i, j = cuda.grid(2)
    out[j, i] = x[j, i - cuda.threadIdx.x]


@cuda.jit
def every_second(x, out):
    t = cuda.threadIdx.x
    i = cuda.blockIdx.x * 16 + (t + t)
    if i < 64:
        out[cuda.blockIdx.y * 4 + cuda.threadIdx.y, i] = x[0, i]


@cuda.jit
def lanes(x, out):
    i, j = cuda.grid(2)
    out[j, i] = x[j, i] + cuda.laneid


@cuda.jit
def columns(x, out):
    """Square blocks serve a transpose better."""
    i, j = cuda.grid(2)
    out[j, i] = x[i % 64, j]


@cuda.jit
def loops(x, out):
    i, j = cuda.grid(2)
    total = np.float32(0)
    for k in range(out.shape[1]):
        total += x[j, k]
    out[j, i] = total


@cuda.jit
def shared(x, out):
    tile = cuda.shared.array((4, 16), np.float32)
    i, j = cuda.grid(2)
    tile[cuda.threadIdx.y, cuda.threadIdx.x] = x[j, i]
    cuda.syncthreads()
    out[j, i] = tile[3 - cuda.threadIdx.y, cuda.threadIdx.x]


@cuda.jit
def changed(x, out):
    t = cuda.threadIdx.x
    i = cuda.blockIdx.x * 16 + t
    if x[0, i] > 0.5:
        t = 3
    out[cuda.blockIdx.y * 4 + cuda.threadIdx.y, i] = t


X = random(64, 64)
T = np.arange(64) % 16
NOT_WIDE = {
    of_thread: X + T,
    of_block: X + np.arange(64) // 16,
    of_other_places: np.pad(np.tile(X[0, :61], (64, 1)), ((0, 0), (0, 3))),
    backwards: np.tile(X[0], (64, 1)),
    twice_the_thread: np.tile(X[0] + np.arange(64) + T, (64, 1)),
    of_the_first_thread: X[:, np.arange(64) // 16 * 16],
    every_second: np.tile(np.where(np.arange(64) % 2, 0, X[0]), (64, 1)),
    lanes: X + T + np.arange(64)[:, None] % 2 * 16,
    columns: X.T,
    loops: np.tile(X.sum(1, keepdims=True), (1, 64)),
    shared: X.reshape(16, 4, 64)[:, ::-1].reshape(64, 64),
    changed: np.tile(np.where(X[0] > 0.5, 3, T), (64, 1)),
}


@pytest.mark.parametrize("kernel", NOT_WIDE, ids=lambda kernel: kernel.__name__)
def test_kernels_that_need_their_blocks(kernel):
    out = np.zeros((64, 64), np.float32)
    kernel[(4, 16), (16, 4)](X, out)
    np.testing.assert_allclose(out, NOT_WIDE[kernel], rtol=1e-5)
    assert not is_wide(kernel)


def test_threads_that_are_not_there_do_nothing():
    @cuda.jit(debug=False)
    def counted(x, out, total):
        i = cuda.grid(1)
        before = cuda.atomic.add(total, 0, 1)
        value = x[i]
        out[i] = value + min(before, 0)

    x, out, total = random(42), np.zeros(42, np.float32), np.zeros(1, np.int64)
    counted[3, 14](x, out, total)
    assert not is_wide(counted)  # no whole number of them fills a wide block
    counted[21, 2](x, out, total)
    np.testing.assert_array_equal(out, x)
    assert total[0] == 84 and is_wide(counted, 2)
    text = counted.inspect_passes(2)["wide blocks"]
    guard, load = text.index("if threadIdx.x < _span:"), text.index("value = x[i]")
    assert 0 < guard < load and "        value" in text


@cuda.jit(device=True)
def factorial(n):
    return 1 if n < 2 else n * factorial(n - 1)


def test_functions_of_their_own():
    @cuda.jit
    def factorials(out):
        i = cuda.grid(1)
        if i < out.size:
            out[i] = factorial(i)

    out = np.zeros(10, np.int64)
    factorials[5, 2](out)
    np.testing.assert_array_equal(out, [math.factorial(n) for n in range(10)])
    assert is_wide(factorials)


def test_checked_kernels_keep_their_blocks():
    @cuda.jit(debug=True)
    def add(a, out):
        x, y = cuda.grid(2)
        if x < out.shape[1]:
            out[y, x] = a[y, x] + 1

    out = np.zeros((8, 40), np.float32)
    add[(3, 2), (16, 4)](random(8, 40), out)
    assert not is_wide(add) and out.all()
    with pytest.raises(IndexError, match=r"block \(0, 2, 0\)"):
        add[(3, 3), (16, 4)](random(8, 40), out)
