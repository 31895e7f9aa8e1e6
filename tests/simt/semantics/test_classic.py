"""The classic CUDA programs, each against NumPy at odd sizes, plain and checked."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numba import float32, int32, int64

from kernels.simt import cuda

FULL = 0xFFFFFFFF
TILE = 16
EPS = float(np.finfo(np.float32).eps)


def close(actual: np.ndarray, expected: np.ndarray, terms: int) -> None:
    """Equal to a float64 result up to the rounding of `terms` float32 additions."""
    scale = float(np.max(np.abs(expected), initial=1.0))
    np.testing.assert_allclose(actual, expected, rtol=0, atol=2 * EPS * math.sqrt(terms) * scale)


def cdiv(a: int, b: int) -> int:
    return -(-a // b)


@pytest.mark.parametrize("n", [1, 31, 32, 33, 255, 257, 1023, 1025])
def test_saxpy(jit, rng, n):
    @jit
    def saxpy(a, x, y):
        i = cuda.grid(1)
        if i < y.size:
            y[i] = a * x[i] + y[i]

    x, y = rng.standard_normal((2, n)).astype(np.float32)
    expected = 2.5 * x.astype(np.float64) + y
    saxpy[cdiv(n, 128), 128](np.float32(2.5), x, y)
    np.testing.assert_allclose(y, expected, rtol=4 * EPS, atol=4 * EPS)


SIZES = [(1, 1, 1), (16, 16, 16), (17, 33, 31), (40, 7, 65)]


def matrices(rng, m, k, n):
    a = rng.standard_normal((m, k)).astype(np.float32)
    b = rng.standard_normal((k, n)).astype(np.float32)
    return a, b, np.full((m, n), np.nan, np.float32), a.astype(np.float64) @ b.astype(np.float64)


@pytest.mark.parametrize(("m", "k", "n"), SIZES)
def test_naive_matmul(jit, rng, m, k, n):
    @jit
    def matmul(a, b, c):
        x, y = cuda.grid(2)
        if y < c.shape[0] and x < c.shape[1]:
            total = float32(0)
            for p in range(a.shape[1]):
                total += a[y, p] * b[p, x]
            c[y, x] = total

    a, b, c, expected = matrices(rng, m, k, n)
    matmul[(cdiv(n, 16), cdiv(m, 16)), (16, 16)](a, b, c)
    close(c, expected, k)


@pytest.mark.parametrize("guard", ["if", "expression"])
@pytest.mark.parametrize(("m", "k", "n"), SIZES)
def test_tiled_matmul(jit, rng, m, k, n, guard):
    def with_ifs(a, b, c):
        sa = cuda.shared.array((TILE, TILE), float32)
        sb = cuda.shared.array((TILE, TILE), float32)
        tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
        x, y = cuda.grid(2)
        total = float32(0)
        for p in range((a.shape[1] + TILE - 1) // TILE):
            sa[ty, tx] = 0
            sb[ty, tx] = 0
            if y < a.shape[0] and p * TILE + tx < a.shape[1]:
                sa[ty, tx] = a[y, p * TILE + tx]
            if p * TILE + ty < b.shape[0] and x < b.shape[1]:
                sb[ty, tx] = b[p * TILE + ty, x]
            cuda.syncthreads()
            for q in range(TILE):
                total += sa[ty, q] * sb[q, tx]
            cuda.syncthreads()
        if y < c.shape[0] and x < c.shape[1]:
            c[y, x] = total

    def with_expressions(a, b, c):
        sa = cuda.shared.array((TILE, TILE), float32)
        sb = cuda.shared.array((TILE, TILE), float32)
        tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
        x, y = cuda.grid(2)
        rows, inner, columns = a.shape[0], a.shape[1], b.shape[1]
        total = float32(0)
        for p in range(0, inner, TILE):
            sa[ty, tx] = a[y, p + tx] if y < rows and p + tx < inner else float32(0)
            sb[ty, tx] = b[p + ty, x] if p + ty < inner and x < columns else float32(0)
            cuda.syncthreads()
            for q in range(TILE):
                total += sa[ty, q] * sb[q, tx]
            cuda.syncthreads()
        if y < rows and x < columns:
            c[y, x] = total

    a, b, c, expected = matrices(rng, m, k, n)
    kernel = jit(with_ifs if guard == "if" else with_expressions)
    kernel[(cdiv(n, TILE), cdiv(m, TILE)), (TILE, TILE)](a, b, c)
    close(c, expected, k)


@pytest.mark.parametrize(("m", "k", "n"), SIZES)
def test_register_blocked_matmul(jit, rng, m, k, n):
    bm, bn, bk, tm, tn = 32, 32, 8, 4, 4

    @jit
    def matmul(a, b, c):
        sa = cuda.shared.array((bk, bm), float32)
        sb = cuda.shared.array((bk, bn), float32)
        acc = cuda.local.array((tm, tn), float32)
        ra = cuda.local.array(tm, float32)
        rb = cuda.local.array(tn, float32)
        tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
        t = ty * cuda.blockDim.x + tx
        row0, col0 = cuda.blockIdx.y * bm, cuda.blockIdx.x * bn
        for i in range(tm):
            for j in range(tn):
                acc[i, j] = 0
        for p in range(0, a.shape[1], bk):
            for e in range(t, bm * bk, 64):
                r, q = e // bk, e % bk
                sa[q, r] = (
                    a[row0 + r, p + q]
                    if row0 + r < a.shape[0] and p + q < a.shape[1]
                    else float32(0)
                )
            for e in range(t, bn * bk, 64):
                q, s = e // bn, e % bn
                sb[q, s] = (
                    b[p + q, col0 + s]
                    if p + q < b.shape[0] and col0 + s < b.shape[1]
                    else float32(0)
                )
            cuda.syncthreads()
            for q in range(bk):
                for i in range(tm):
                    ra[i] = sa[q, ty * tm + i]
                for j in range(tn):
                    rb[j] = sb[q, tx + j * 8]
                for i in range(tm):
                    for j in range(tn):
                        acc[i, j] += ra[i] * rb[j]
            cuda.syncthreads()
        for i in range(tm):
            for j in range(tn):
                r, s = row0 + ty * tm + i, col0 + tx + j * 8
                if r < c.shape[0] and s < c.shape[1]:
                    c[r, s] = acc[i, j]

    a, b, c, expected = matrices(rng, m, k, n)
    matmul[(cdiv(n, bn), cdiv(m, bm)), (8, 8)](a, b, c)
    close(c, expected, k)


@pytest.mark.parametrize("n", [1, 33, 257, 1025])
def test_tree_reduction(jit, rng, n):
    @jit
    def reduce_sum(a, out):
        s = cuda.shared.array(128, float32)
        t = cuda.threadIdx.x
        total = float32(0)
        for i in range(cuda.grid(1), a.size, cuda.gridsize(1)):
            total += a[i]
        s[t] = total
        cuda.syncthreads()
        k = cuda.blockDim.x // 2
        while k > 0:
            if t < k:
                s[t] += s[t + k]
            cuda.syncthreads()
            k //= 2
        if t == 0:
            out[cuda.blockIdx.x] = s[0]

    a = rng.standard_normal(n).astype(np.float32)
    out = np.zeros(3, np.float32)
    reduce_sum[3, 128](a, out)
    close(out.sum(), np.array(a.sum(dtype=np.float64)), n)


@pytest.mark.parametrize("n", [1, 33, 257, 1025])
def test_shuffle_reduction(jit, rng, n):
    @jit
    def reduce_sum(a, out):
        partial = cuda.shared.array(32, float32)
        t = cuda.threadIdx.x
        total = float32(0)
        for i in range(cuda.grid(1), a.size, cuda.gridsize(1)):
            total += a[i]
        offset = 16
        while offset > 0:
            total += cuda.shfl_down_sync(FULL, total, offset)
            offset //= 2
        if t % 32 == 0:
            partial[t // 32] = total
        cuda.syncthreads()
        if t < 32:
            total = partial[t] if t < cuda.blockDim.x // 32 else float32(0)
            offset = 16
            while offset > 0:
                total += cuda.shfl_down_sync(FULL, total, offset)
                offset //= 2
            if t == 0:
                cuda.atomic.add(out, 0, total)

    a = rng.standard_normal(n).astype(np.float32)
    out = np.zeros(1, np.float32)
    reduce_sum[3, 128](a, out)
    close(out[0], np.array(a.sum(dtype=np.float64)), n)


@pytest.mark.parametrize("n", [1, 32, 100, 128])
def test_hillis_steele_scan(jit, n):
    @jit
    def scan(a, out):
        buffer = cuda.shared.array((2, 128), int64)
        t = cuda.threadIdx.x
        side = 0
        buffer[0, t] = a[t] if t < a.size else 0
        cuda.syncthreads()
        d = 1
        while d < cuda.blockDim.x:
            v = buffer[side, t]
            if t >= d:
                v += buffer[side, t - d]
            side = 1 - side
            buffer[side, t] = v
            cuda.syncthreads()
            d *= 2
        if t < out.size:
            out[t] = buffer[side, t]

    a = np.arange(n) * 7 % 11
    out = np.zeros(n, np.int64)
    scan[1, 128](a, out)
    np.testing.assert_array_equal(out, a.cumsum())


def test_blelloch_scan(jit):
    @jit
    def scan(a):
        s = cuda.shared.array(256, int64)
        t = cuda.threadIdx.x
        s[2 * t] = a[2 * t]
        s[2 * t + 1] = a[2 * t + 1]
        offset = 1
        d = 128
        while d > 0:
            cuda.syncthreads()
            if t < d:
                s[offset * (2 * t + 2) - 1] += s[offset * (2 * t + 1) - 1]
            offset *= 2
            d //= 2
        if t == 0:
            s[255] = 0
        d = 1
        while d < 256:
            offset //= 2
            cuda.syncthreads()
            if t < d:
                low, high = offset * (2 * t + 1) - 1, offset * (2 * t + 2) - 1
                carry = s[low]
                s[low] = s[high]
                s[high] += carry
            d *= 2
        cuda.syncthreads()
        a[2 * t] = s[2 * t]
        a[2 * t + 1] = s[2 * t + 1]

    a = np.arange(256) * 5 % 17
    expected = np.concatenate([[0], a.cumsum()[:-1]])
    scan[1, 128](a)
    np.testing.assert_array_equal(a, expected)


@pytest.mark.parametrize("shared", [False, True])
def test_histogram(jit, rng, shared):
    def with_global(data, bins):
        for i in range(cuda.grid(1), data.size, cuda.gridsize(1)):
            cuda.atomic.add(bins, data[i], 1)

    def with_shared(data, bins):
        mine = cuda.shared.array(64, int32)
        t = cuda.threadIdx.x
        for k in range(t, 64, cuda.blockDim.x):
            mine[k] = 0
        cuda.syncthreads()
        for i in range(cuda.grid(1), data.size, cuda.gridsize(1)):
            cuda.atomic.add(mine, data[i], 1)
        cuda.syncthreads()
        for k in range(t, 64, cuda.blockDim.x):
            cuda.atomic.add(bins, k, mine[k])

    data = rng.integers(0, 64, 1025).astype(np.uint8)
    bins = np.zeros(64, np.int32)
    jit(with_shared if shared else with_global)[4, 48](data, bins)
    np.testing.assert_array_equal(bins, np.bincount(data, minlength=64))


@pytest.mark.parametrize("shape", [(1, 1), (32, 32), (33, 65), (70, 31)])
def test_padded_transpose(jit, rng, shape):
    @jit
    def transpose(a, out):
        tile = cuda.shared.array((32, 33), float32)
        tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
        x, y = cuda.blockIdx.x * 32 + tx, cuda.blockIdx.y * 32 + ty
        for j in range(0, 32, 8):
            if x < a.shape[1] and y + j < a.shape[0]:
                tile[ty + j, tx] = a[y + j, x]
        cuda.syncthreads()
        x, y = cuda.blockIdx.y * 32 + tx, cuda.blockIdx.x * 32 + ty
        for j in range(0, 32, 8):
            if x < a.shape[0] and y + j < a.shape[1]:
                out[y + j, x] = tile[tx, ty + j]

    a = rng.standard_normal(shape).astype(np.float32)
    out = np.zeros(shape[::-1], np.float32)
    transpose[(cdiv(shape[1], 32), cdiv(shape[0], 32)), (32, 8)](a, out)
    np.testing.assert_array_equal(out, a.T)


@pytest.mark.parametrize("n", [1, 5, 31, 64, 129])
def test_halo_convolution(jit, rng, n):
    radius, block = 3, 32
    size = block + 2 * radius

    @jit
    def convolve(a, w, out):
        s = cuda.shared.array(size, float32)
        t = cuda.threadIdx.x
        i = cuda.grid(1)
        s[t + radius] = a[i] if i < a.size else float32(0)
        if t < radius:
            left, right = i - radius, i + block
            s[t] = a[left] if left >= 0 and left < a.size else float32(0)
            s[t + block + radius] = a[right] if right < a.size else float32(0)
        cuda.syncthreads()
        if i < a.size:
            total = float32(0)
            for k in range(2 * radius + 1):
                total += w[k] * s[t + k]
            out[i] = total

    a = rng.standard_normal(n).astype(np.float32)
    w = rng.standard_normal(7).astype(np.float32)
    out = np.zeros(n, np.float32)
    convolve[cdiv(n, block), block](a, w, out)
    padded = np.pad(a.astype(np.float64), radius)
    close(out, np.array([padded[i : i + 7] @ w for i in range(n)]), 7)


def test_convolution_2d(jit, rng):
    @jit
    def convolve(a, w, out):
        x, y = cuda.grid(2)
        if y < out.shape[0] and x < out.shape[1]:
            total = float32(0)
            for i in range(w.shape[0]):
                for j in range(w.shape[1]):
                    r, c = y + i - 1, x + j - 1
                    if 0 <= r < a.shape[0] and 0 <= c < a.shape[1]:
                        total += a[r, c] * w[i, j]
            out[y, x] = total

    a = rng.standard_normal((37, 29)).astype(np.float32)
    w = rng.standard_normal((3, 3)).astype(np.float32)
    out = np.zeros_like(a)
    convolve[(4, 5), (8, 8)](a, w, out)
    p = np.pad(a.astype(np.float64), 1)
    expected = sum(w[i, j] * p[i : i + 37, j : j + 29] for i in range(3) for j in range(3))
    close(out, expected, 9)


@pytest.mark.parametrize("shape", [(1, 1), (5, 31), (7, 100), (3, 257)])
def test_row_softmax(jit, rng, shape):
    @jit
    def softmax(x, out):
        s = cuda.shared.array(64, float32)
        row, t = cuda.blockIdx.x, cuda.threadIdx.x
        top = float32(-np.inf)
        for j in range(t, x.shape[1], cuda.blockDim.x):
            top = max(top, x[row, j])
        s[t] = top
        cuda.syncthreads()
        k = 32
        while k > 0:
            if t < k:
                s[t] = max(s[t], s[t + k])
            cuda.syncthreads()
            k >>= 1
        top = s[0]
        cuda.syncthreads()
        total = float32(0)
        for j in range(t, x.shape[1], cuda.blockDim.x):
            e = math.exp(x[row, j] - top)
            out[row, j] = e
            total += e
        s[t] = total
        cuda.syncthreads()
        k = 32
        while k > 0:
            if t < k:
                s[t] += s[t + k]
            cuda.syncthreads()
            k >>= 1
        for j in range(t, x.shape[1], cuda.blockDim.x):
            out[row, j] /= s[0]

    x = (rng.standard_normal(shape) * 5).astype(np.float32)
    out = np.zeros_like(x)
    softmax[shape[0], 64](x, out)
    e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    np.testing.assert_allclose(out, e / e.sum(1, keepdims=True), rtol=40 * EPS, atol=EPS)


def test_bitonic_sort(jit, rng):
    @jit
    def sort(a):
        s = cuda.shared.array(128, float32)
        t = cuda.threadIdx.x
        s[t] = a[cuda.grid(1)]
        cuda.syncthreads()
        k = 2
        while k <= 128:
            j = k // 2
            while j > 0:
                other = t ^ j
                if other > t:
                    up = (t & k) == 0
                    if (s[t] > s[other]) == up:
                        s[t], s[other] = s[other], s[t]
                cuda.syncthreads()
                j //= 2
            k *= 2
        a[cuda.grid(1)] = s[t]

    a = rng.standard_normal(384).astype(np.float32)
    expected = np.sort(a.reshape(3, 128), axis=1).ravel()
    sort[3, 128](a)
    np.testing.assert_array_equal(a, expected)


def test_mandelbrot(jit):
    @cuda.jit(device=True)
    def escape(x, y, limit):
        c = complex(x, y)
        z = 0.0j
        for i in range(limit):
            z = z * z + c
            if z.real * z.real + z.imag * z.imag >= 4:
                return i
        return limit

    @jit
    def mandelbrot(image, limit):
        height, width = image.shape
        start_x, start_y = cuda.grid(2)
        step_x, step_y = cuda.gridsize(2)
        for x in range(start_x, width, step_x):
            for y in range(start_y, height, step_y):
                image[y, x] = escape(-2 + x * 0.0625, -1 + y * 0.0625, limit)

    image = np.zeros((33, 49), np.uint8)
    mandelbrot[(2, 3), (8, 4)](image, 30)

    y, x = np.indices(image.shape)
    c = (-2 + x * 0.0625) + 1j * (-1 + y * 0.0625)
    z, expected = np.zeros_like(c), np.full(image.shape, 30)
    for i in range(30):
        inside = expected == 30
        z[inside] = z[inside] ** 2 + c[inside]
        # The escape test is decided by exact arithmetic except where |z| is within rounding of 2.
        expected[inside & (z.real**2 + z.imag**2 >= 4)] = i
    assert (image != expected).mean() < 0.01
    assert len(np.unique(image)) > 8


def test_n_body(jit, rng):
    @jit
    def forces(pos, mass, acc):
        px = cuda.shared.array(32, float32)
        py = cuda.shared.array(32, float32)
        pm = cuda.shared.array(32, float32)
        i, t = cuda.grid(1), cuda.threadIdx.x
        n = mass.size
        x = pos[i, 0] if i < n else float32(0)
        y = pos[i, 1] if i < n else float32(0)
        ax = ay = float32(0)
        for tile in range(0, n, 32):
            j = tile + t
            px[t] = pos[j, 0] if j < n else float32(0)
            py[t] = pos[j, 1] if j < n else float32(0)
            pm[t] = mass[j] if j < n else float32(0)
            cuda.syncthreads()
            for k in range(32):
                dx, dy = px[k] - x, py[k] - y
                r2 = dx * dx + dy * dy + float32(0.01)
                f = pm[k] / (r2 * math.sqrt(r2))
                ax += dx * f
                ay += dy * f
            cuda.syncthreads()
        if i < n:
            acc[i, 0] = ax
            acc[i, 1] = ay

    n = 75
    pos, mass = rng.standard_normal((n, 2)).astype(np.float32), rng.random(n).astype(np.float32)
    acc = np.zeros((n, 2), np.float32)
    forces[3, 32](pos, mass, acc)
    d = pos[None].astype(np.float64) - pos[:, None]
    r2 = (d**2).sum(-1) + 0.01
    expected = (d * (mass / r2**1.5)[..., None]).sum(1)
    close(acc, expected, n * 8)


def test_game_of_life(jit, rng):
    @jit
    def step(cells, out):
        x, y = cuda.grid(2)
        h, w = cells.shape
        if x >= w or y >= h:
            return
        alive = 0
        for dy in range(-1, 2):
            for dx in range(-1, 2):
                if dx != 0 or dy != 0:
                    alive += cells[(y + dy) % h, (x + dx) % w]
        out[y, x] = 1 if alive == 3 or (alive == 2 and cells[y, x] == 1) else 0

    cells = rng.integers(0, 2, (29, 37)).astype(np.int8)
    expected = cells.copy()
    a, b = cuda.to_device(cells), cuda.to_device(np.zeros_like(cells))
    for _ in range(5):
        step[(5, 4), (8, 8)](a, b)
        a, b = b, a
        near = (
            sum(np.roll(expected, (dy, dx), (0, 1)) for dy in (-1, 0, 1) for dx in (-1, 0, 1))
            - expected
        )
        expected = ((near == 3) | ((near == 2) & (expected == 1))).astype(np.int8)
    np.testing.assert_array_equal(a.copy_to_host(), expected)


@pytest.mark.parametrize("n", [1, 100, 1025])
def test_grid_sync_reduction(jit, rng, n):
    @jit
    def reduce_sum(a, partial, out):
        s = cuda.shared.array(32, float32)
        g = cuda.cg.this_grid()
        t, b = cuda.threadIdx.x, cuda.blockIdx.x
        total = float32(0)
        for i in range(cuda.grid(1), a.size, cuda.gridsize(1)):
            total += a[i]
        s[t] = total
        cuda.syncthreads()
        k = 16
        while k > 0:
            if t < k:
                s[t] += s[t + k]
            cuda.syncthreads()
            k //= 2
        if t == 0:
            partial[b] = s[0]
        g.sync()
        if b == 0 and t == 0:
            total = float32(0)
            for j in range(cuda.gridDim.x):
                total += partial[j]
            out[0] = total

    a = rng.standard_normal(n).astype(np.float32)
    out = np.zeros(1, np.float32)
    reduce_sum[4, 32](a, np.zeros(4, np.float32), out)
    close(out[0], np.array(a.sum(dtype=np.float64)), n)


def test_jacobi_iterations_with_grid_sync(jit):
    @jit
    def jacobi(a, b, steps):
        g = cuda.cg.this_grid()
        i = cuda.grid(1)
        n = a.size
        for step in range(steps):
            src, dst = (a, b) if step % 2 == 0 else (b, a)
            if 0 < i < n - 1:
                dst[i] = (src[i - 1] + src[i + 1]) // 2
            g.sync()

    a = np.zeros(50, np.int64)
    a[0], a[-1] = 1000, -500
    b = a.copy()
    expected = a.copy()
    jacobi[2, 32](a, b, 20)
    for _ in range(20):
        expected[1:-1] = (expected[:-2] + expected[2:]) // 2
    np.testing.assert_array_equal(a, expected)
