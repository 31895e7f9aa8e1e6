"""Memory: shared, dynamic, local and constant arrays, views, strides, half-precision storage."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from numba import float32, float64, int32, int64, uint8

from kernels.simt import cuda

TABLE = np.array([3.0, 1.0, 4.0, 1.0, 5.0], np.float32)
SIDE = 8


def test_shared_shape_from_a_local_constant(jit):
    @jit
    def kernel(out):
        n, half = 16, 8
        tile = cuda.shared.array(n, int64)
        pair = cuda.shared.array((half, 2), int64)
        i = cuda.threadIdx.x
        tile[i] = i
        pair[i // 2, i % 2] = i * i
        cuda.syncthreads()
        j = n - 1 - i
        out[i] = tile[j] + pair[j // 2, j % 2]

    out = np.zeros(16, np.int64)
    kernel[1, 16](out)
    assert out.tolist() == [j + j * j for j in range(15, -1, -1)]


def test_shared_shape_from_globals_and_closures(jit):
    width = 5

    @jit
    def kernel(out):
        tile = cuda.shared.array((SIDE, width), dtype=float32)
        x, y = cuda.threadIdx.x, cuda.threadIdx.y
        tile[y, x] = y * width + x
        cuda.syncthreads()
        out[y, x] = tile[SIDE - 1 - y, width - 1 - x]

    out = np.zeros((SIDE, width), np.float32)
    kernel[1, (width, SIDE)](out)
    np.testing.assert_array_equal(out.ravel(), np.arange(SIDE * width)[::-1])


def test_two_shared_arrays_on_one_line_do_not_alias(jit):
    # Numba's simulator identifies an allocation by its line and aliases these two.
    @jit
    def kernel(out):
        i = cuda.threadIdx.x
        a = cuda.shared.array(8, int64); b = cuda.shared.array(8, int64)  # noqa: E702  # fmt: skip
        a[i] = i
        b[i] = 10 * i
        cuda.syncthreads()
        out[i] = a[7 - i] + b[7 - i]

    out = np.zeros(8, np.int64)
    kernel[1, 8](out)
    assert out.tolist() == [11 * i for i in range(7, -1, -1)]


def test_dynamic_shared_arrays_alias(jit):
    @jit
    def kernel(out):
        a = cuda.shared.array(0, int32)
        b = cuda.shared.array(0, int32)
        i = cuda.threadIdx.x
        a[i] = i + 1
        cuda.syncthreads()
        out[i] = b[7 - i]

    out = np.zeros(8, np.int32)
    kernel[1, 8, 0, 32](out)
    assert out.tolist() == list(range(8, 0, -1))


def test_dynamic_shared_arrays_alias_across_types(jit):
    @jit
    def kernel(out):
        f = cuda.shared.array(0, float32)
        u = cuda.shared.array(0, uint8)
        i = cuda.threadIdx.x
        if i == 0:
            f[0] = 1.0
            f[1] = -2.0
        cuda.syncthreads()
        out[i] = u[i]

    out = np.zeros(8, np.uint8)
    kernel[1, 8, 0, 8](out)
    np.testing.assert_array_equal(out, np.array([1.0, -2.0], np.float32).view(np.uint8))


def test_dynamic_shared_array_split_by_slices(jit):
    @jit
    def kernel(a, out):
        pool = cuda.shared.array(0, float32)
        n = cuda.blockDim.x
        left = pool[:n]
        right = pool[n : 2 * n]
        i = cuda.threadIdx.x
        left[i] = a[i]
        right[i] = a[i] * a[i]
        cuda.syncthreads()
        out[i] = left[n - 1 - i] + right[(i + 1) % n]

    a = np.arange(16, dtype=np.float32)
    out = np.zeros(16, np.float32)
    kernel[1, 16, 0, 16 * 2 * 4](a, out)
    np.testing.assert_array_equal(out, a[::-1] + np.roll(a * a, -1))


def test_dynamic_shared_size_differs_by_launch(jit):
    @jit
    def kernel(out):
        pool = cuda.shared.array(0, int64)
        i = cuda.threadIdx.x
        pool[i] = i
        cuda.syncthreads()
        out[i] = pool[cuda.blockDim.x - 1 - i] + 1000 * pool.size

    for n in (4, 32, 256):
        out = np.zeros(n, np.int64)
        kernel[1, n, 0, n * 8](out)
        np.testing.assert_array_equal(out, np.arange(n)[::-1] + 1000 * n)


def test_shared_memory_belongs_to_a_block(jit):
    @jit
    def kernel(out):
        count = cuda.shared.array(1, int32)
        if cuda.threadIdx.x == 0:
            count[0] = 0
        cuda.syncthreads()
        cuda.atomic.add(count, 0, 1)
        cuda.syncthreads()
        if cuda.threadIdx.x == 0:
            out[cuda.blockIdx.x] = count[0]

    out = np.zeros(5, np.int32)
    kernel[5, 33](out)
    assert (out == 33).all()


def test_local_arrays_are_private_and_survive_barriers(jit):
    @jit
    def kernel(a, out):
        mine = cuda.local.array(4, float64)
        i = cuda.threadIdx.x
        for k in range(4):
            mine[k] = a[i] * (k + 1)
        cuda.syncthreads()
        a[(i + 1) % 16] = 0
        cuda.syncthreads()
        total = 0.0
        for k in range(4):
            total += mine[k] * (10**k)
        out[i] = total

    a = np.arange(16, dtype=np.float64)
    b = a.copy()
    out = np.zeros(16)
    kernel[1, 16](a, out)
    np.testing.assert_array_equal(out, b * 4321)


def test_a_view_of_a_local_array_across_a_barrier(jit):
    @cuda.jit(device=True)
    def fill(part, first):
        for j in range(part.size):
            part[j] = first + j

    @jit
    def kernel(out):
        own = cuda.local.array(6, float32)
        i = cuda.threadIdx.x
        fill(own[:3], i)
        fill(own[3:], 10 * i)
        middle = own[1:5]
        inner = middle[1:3]
        cuda.syncthreads()
        out[i] = middle[0] + 100 * inner[1]

    out = np.zeros(4)
    kernel[1, 4](out)
    assert out.tolist() == [i + 1 + 1000 * i for i in range(4)]


def test_local_arrays_named_by_one_assignment(jit):
    # Each loop over the threads needs views of its own of both.
    @jit
    def kernel(x, out):
        tile = cuda.shared.array((32, 5), float32)
        mine, total = cuda.local.array(4, float32), cuda.local.array(4, float32)
        t = cuda.threadIdx.x
        for e in range(4):
            tile[t, e] = x[t, e]
        cuda.syncthreads()
        for e in range(4):
            mine[e] = tile[t, e] * 0.5
            total[e] = 0
        for c in range(32):
            for e in range(4):
                total[e] += mine[e] * tile[c, e]
        other = cuda.shfl_xor_sync(0xFFFFFFFF, mine[1], 1)
        if cuda.syncthreads_count(int32(mine[0] > 0)) >= 0:
            for e in range(4):
                out[t, e] = total[e] + other

    x = np.random.default_rng(0).standard_normal((32, 4)).astype(np.float32)
    out = np.zeros_like(x)
    kernel[1, 32](x, out)
    other = 0.5 * x[np.arange(32) ^ 1, 1]
    np.testing.assert_allclose(out, 0.5 * x * x.sum(axis=0) + other[:, None], rtol=1e-4)


def test_two_dimensional_local_array(jit):
    @jit
    def kernel(out):
        m = cuda.local.array((3, 2), int32)
        i = cuda.grid(1)
        for r in range(3):
            for c in range(2):
                m[r, c] = i + r * 10 + c
        cuda.syncthreads()
        s = 0
        for r in range(3):
            s += m[r, 1] - m[r, 0] * 2
        out[i] = s

    out = np.zeros(40, np.int64)
    kernel[2, 20](out)
    i = np.arange(40)
    np.testing.assert_array_equal(out, sum(i + r * 10 + 1 - 2 * (i + r * 10) for r in range(3)))


def test_constant_memory(jit):
    @jit
    def kernel(out):
        table = cuda.const.array_like(TABLE)
        i = cuda.grid(1)
        out[i] = table[i % 5]

    out = np.zeros(12, np.float32)
    kernel[1, 12](out)
    np.testing.assert_array_equal(out, np.resize(TABLE, 12))


def test_global_array_as_a_constant(jit):
    @jit
    def kernel(out):
        i = cuda.grid(1)
        out[i] = TABLE[i % 5] * 2

    out = np.zeros(7, np.float32)
    kernel[1, 7](out)
    np.testing.assert_array_equal(out, np.resize(TABLE, 7) * 2)


@pytest.mark.parametrize("layout", ["C", "F", "strided", "reversed", "transposed"])
def test_layouts(jit, rng, layout):
    @jit
    def kernel(a, out):
        x, y = cuda.grid(2)
        if y < a.shape[0] and x < a.shape[1]:
            out[y, x] = a[y, x] + a[y, 0] * a.shape[1]

    base = rng.integers(0, 100, (14, 18))
    a = {
        "C": base,
        "F": np.asfortranarray(base),
        "strided": base[::2, 1::3],
        "reversed": base[::-1, ::-2],
        "transposed": base.T,
    }[layout]
    out = np.zeros_like(a)
    kernel[(3, 3), (8, 8)](a, out)
    np.testing.assert_array_equal(out, a + a[:, :1] * a.shape[1])


def test_writes_through_a_strided_view(jit):
    @jit
    def kernel(a):
        i = cuda.grid(1)
        if i < a.shape[0]:
            a[i] = i + 1

    base = np.zeros(20, np.int64)
    kernel[1, 32](base[1::3])
    assert base[1::3].tolist() == list(range(1, 8))
    assert base.sum() == 28


def test_views_and_slices_inside_a_kernel(jit):
    @jit
    def kernel(a, out):
        i = cuda.threadIdx.x
        row = a[i]
        part = row[2:6]
        column = a[:, i]
        part[0] += 100
        cuda.syncthreads()
        total = 0
        for k in range(part.shape[0]):
            total += part[k]
        out[i] = total + column[0] * 1000 + len(row)

    a = np.arange(64).reshape(8, 8)
    b = a.copy()
    b[:, 2] += 100
    out = np.zeros(8, np.int64)
    kernel[1, 8](a, out)
    np.testing.assert_array_equal(out, b[:, 2:6].sum(1) + b[0] * 1000 + 8)


def test_view_reassigned_in_a_loop_with_barriers(jit):
    @jit
    def kernel(a, out):
        i = cuda.threadIdx.x
        total = 0
        for r in range(a.shape[0]):
            row = a[r]
            total += row[i]
            cuda.syncthreads()
            row[(i + 1) % 8] += 1
            cuda.syncthreads()
            total += row[i] * 10
        out[i] = total

    a = np.arange(24).reshape(3, 8)
    b = a.copy()
    out = np.zeros(8, np.int64)
    kernel[1, 8](a, out)
    np.testing.assert_array_equal(out, b.sum(0) + 10 * (b + 1).sum(0))


def test_ping_pong_between_two_arrays(jit):
    # Swapping arrays is done with an index in CUDA; here with a 3-D buffer.
    @jit
    def kernel(a):
        buffer = cuda.shared.array((2, 32), int64)
        i = cuda.threadIdx.x
        src = 0
        buffer[src, i] = a[i]
        cuda.syncthreads()
        for _ in range(3):
            dst = 1 - src
            buffer[dst, i] = buffer[src, i] + buffer[src, (i + 1) % 32]
            src = dst
            cuda.syncthreads()
        a[i] = buffer[src, i]

    a = np.arange(32)
    b = a.copy()
    for _ in range(3):
        b = b + np.roll(b, -1)
    kernel[1, 32](a)
    np.testing.assert_array_equal(a, b)


def test_tuple_indexing_and_grid_tuple(jit):
    @jit
    def kernel(a, out):
        pos = cuda.grid(2)
        if pos[0] < a.shape[0] and pos[1] < a.shape[1]:
            out[pos] = a[pos] * 2

    a = np.arange(35).reshape(5, 7)
    out = np.zeros_like(a)
    kernel[(2, 2), (4, 4)](a, out)
    np.testing.assert_array_equal(out, a * 2)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16], ids=["float16", "bfloat16"])
def test_half_storage_converts_on_load_and_store(jit, rng, dtype):
    @jit
    def kernel(x, out):
        tile = cuda.shared.array(64, float32)
        i = cuda.grid(1)
        t = cuda.threadIdx.x
        tile[t] = float32(x[i]) if i < x.size else float32(0)
        cuda.syncthreads()
        if i < x.size:
            out[i] = tile[t] * float32(3) + float32(0.125)

    x = (rng.standard_normal(100) * 10).astype(dtype)
    out = np.zeros(100, dtype)
    kernel[2, 64](x, out)
    expected = (x.astype(np.float32) * np.float32(3) + np.float32(0.125)).astype(dtype)
    np.testing.assert_array_equal(out.view(np.uint16), expected.view(np.uint16))


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16], ids=["float16", "bfloat16"])
def test_half_storage_takes_integer_literals(jit, dtype):
    @jit
    def kernel(x):
        i = cuda.grid(1)
        x[i] = 0
        if i > 2:
            x[i] = -3

    x = np.full(8, 7, dtype)
    kernel[1, 8](x)
    assert x.astype(float).tolist() == [0, 0, 0, -3, -3, -3, -3, -3]


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16], ids=["float16", "bfloat16"])
def test_half_rounding_is_to_nearest_even(jit, dtype):
    @jit
    def kernel(x, out):
        i = cuda.grid(1)
        if i < x.size:
            out[i] = x[i]

    bits = np.arange(0x3F7F0000, 0x3F820000, 0x1000, dtype=np.uint32)  # ties of both types
    special = np.array(
        [0, -0.0, np.inf, -np.inf, np.nan, 65504, 65520, 65519, 1e-8, 6e-8, 6.1e-5, 3e38, 1e-40],
        np.float32,
    )
    x = np.concatenate([bits.view(np.float32), special, -special])
    out = np.zeros(x.size, dtype)
    kernel[1, 128](x, out)
    with np.errstate(over="ignore"):
        expected = x.astype(dtype)
    nan = np.isnan(x)
    np.testing.assert_array_equal(out.view(np.uint16)[~nan], expected.view(np.uint16)[~nan])
    assert np.isnan(out.astype(np.float32))[nan].all()


def test_float16_exact_values_load(jit):
    @jit
    def kernel(x, out):
        i = cuda.grid(1)
        if i < x.size:
            out[i] = x[i]

    x = np.arange(2**16, dtype=np.uint16).view(np.float16)
    out = np.zeros(x.size, np.float32)
    kernel[256, 256](x, out)
    np.testing.assert_array_equal(out, x.astype(np.float32))


def test_structured_arrays(jit):
    particle = np.dtype([("pos", np.float32, (2,)), ("mass", np.float64), ("id", np.int32)])

    @jit
    def kernel(p, out):
        i = cuda.grid(1)
        if i < p.size:
            p[i].mass *= 2
            p[i]["id"] = i * 10
            out[i] = p[i].mass + p[i].pos[0] - p[i]["pos"][1]

    p = np.zeros(5, particle)
    p["pos"] = np.arange(10).reshape(5, 2)
    p["mass"] = np.arange(5) + 0.5
    out = np.zeros(5)
    kernel[1, 8](p, out)
    np.testing.assert_array_equal(p["id"], np.arange(5) * 10)
    np.testing.assert_array_equal(p["mass"], np.arange(5) * 2 + 1)
    np.testing.assert_array_equal(out, np.arange(5) * 2 + 1 - 1)


def test_record_argument(jit):
    settings = np.dtype([("scale", np.float32), ("shift", np.int64)])

    @jit
    def kernel(s, out):
        i = cuda.grid(1)
        out[i] = i * s.scale + s.shift

    record = np.array([(2.5, 7)], settings)[0]
    out = np.zeros(4)
    kernel[1, 4](record, out)
    assert out.tolist() == [7, 9.5, 12, 14.5]


def test_shared_array_of_records(jit):
    pair = np.dtype([("key", np.int32), ("value", np.float32)])

    @jit
    def kernel(out):
        tile = cuda.shared.array(16, pair_type)
        i = cuda.threadIdx.x
        tile[i].key = 15 - i
        tile[i].value = i * 0.5
        cuda.syncthreads()
        out[tile[i].key] = tile[tile[i].key].value

    import numba

    pair_type = numba.from_dtype(pair)
    out = np.zeros(16)
    kernel[1, 16](out)
    np.testing.assert_array_equal(out, np.arange(16) * 0.5)


def test_array_attributes(jit):
    @jit
    def kernel(a, out):
        out[0] = a.size
        out[1] = a.ndim
        out[2] = a.shape[0] * 100 + a.shape[1]
        out[3] = len(a)
        n, m = a.shape
        out[4] = n - m

    out = np.zeros(5, np.int64)
    kernel[1, 1](np.zeros((3, 5)), out)
    assert out.tolist() == [15, 2, 305, 3, -2]


def test_three_dimensional_arrays_and_zero_dimensional(jit):
    @jit
    def kernel(a, s, out):
        x, y, z = cuda.grid(3)
        if z < a.shape[0] and y < a.shape[1] and x < a.shape[2]:
            out[z, y, x] = a[z, y, x] * s[()]

    a = np.arange(2 * 3 * 5).reshape(2, 3, 5)
    out = np.zeros_like(a)
    kernel[(2, 1, 1), (4, 4, 4)](a, np.array(3), out)
    np.testing.assert_array_equal(out, a * 3)


def test_one_array_passed_twice_aliases(jit):
    @jit
    def kernel(a, b):
        i = cuda.threadIdx.x
        v = a[i]
        cuda.syncthreads()
        b[(i + 1) % 16] = v + 1
        cuda.syncthreads()
        a[i] += b[i]

    device = cuda.to_device(np.arange(16))
    kernel[1, 16](device, device)
    a = device.copy_to_host()
    np.testing.assert_array_equal(a, 2 * (np.roll(np.arange(16), 1) + 1))
