"""Functions and names: device functions, closures, globals, enums, tuples, signatures, sources."""

from __future__ import annotations

import enum
from enum import IntEnum

import numba
import numpy as np
import pytest
from numba import float32, float64, int64, types, void

from kernels.simt import cuda

OFFSET = 100
PAIR = (3, 4)
NESTED = ((1, 2), (3.5, 4))
SCALE = np.float32(0.5)
ENABLED = True


class Color(IntEnum):
    RED = 1
    BLUE = 4


class Mode(enum.Enum):
    ADD = 1
    SUB = 2


@cuda.jit(device=True)
def twice(x):
    return 2 * x


@cuda.jit(device=True)
def twice_plus(x, y):
    return twice(x) + y


@cuda.jit(device=True)
def fib(n):
    if n < 2:
        return n
    return fib(n - 1) + fib(n - 2)


@cuda.jit(device=True)
def global_index():
    return cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x


@cuda.jit(device=True)
def exchange(tile, v):
    """Every thread's value moves to its mirror; two barriers inside."""
    t = cuda.threadIdx.x
    tile[t] = v
    cuda.syncthreads()
    v = tile[cuda.blockDim.x - 1 - t]
    cuda.syncthreads()
    return v


def test_device_functions_nested(jit):
    @jit
    def kernel(a, out):
        i = global_index()
        out[i] = twice_plus(a[i], twice(1)) + a[i]

    a = np.arange(8)
    out = np.zeros(8, np.int64)
    kernel[2, 4](a, out)
    np.testing.assert_array_equal(out, 3 * a + 2)


def test_device_function_with_barriers(jit):
    @jit
    def kernel(a, out):
        tile = cuda.shared.array(16, int64)
        t = cuda.threadIdx.x
        v = exchange(tile, a[t])
        for k in range(2):
            v = exchange(tile, v + t) + k
        out[t] = v

    a = np.arange(16) ** 2
    out = np.zeros(16, np.int64)
    kernel[1, 16](a, out)
    t = np.arange(16)
    v = a[::-1]
    for k in range(2):
        v = (v + t)[::-1] + k
    np.testing.assert_array_equal(out, v)


def test_device_function_that_allocates_shared_memory(jit):
    @cuda.jit(device=True)
    def block_sum(v):
        s = cuda.shared.array(32, int64)
        t = cuda.threadIdx.x
        s[t] = v
        cuda.syncthreads()
        k = 16
        while k > 0:
            if t < k:
                s[t] += s[t + k]
            cuda.syncthreads()
            k //= 2
        result = s[0]
        cuda.syncthreads()
        return result

    @jit
    def kernel(a, out):
        t = cuda.threadIdx.x
        total = block_sum(a[t])
        out[t] = total + block_sum(a[t] * a[t]) * 1000

    a = np.arange(32)
    out = np.zeros(32, np.int64)
    kernel[1, 32](a, out)
    assert (out == a.sum() + 1000 * (a**2).sum()).all()


def test_device_function_with_early_return(jit):
    @cuda.jit(device=True)
    def clamp(x, low, high):
        if x < low:
            return low
        if x > high:
            return high
        return x

    @jit
    def kernel(a, out):
        i = cuda.grid(1)
        out[i] = clamp(a[i], 2, 5)
        out[i] += clamp(i, 1, 3) if i > 0 else 0

    a = np.arange(8)
    out = np.zeros(8, np.int64)
    kernel[1, 8](a, out)
    np.testing.assert_array_equal(out, np.clip(a, 2, 5) + np.where(a > 0, np.clip(a, 1, 3), 0))


def test_device_function_with_context_and_early_return(jit):
    @cuda.jit(device=True)
    def pick(a):
        for k in range(a.size):
            if a[k] > cuda.threadIdx.x:
                return k
        return -1

    @jit
    def kernel(a, out):
        out[cuda.threadIdx.x] = pick(a) * 10

    a = np.array([0, 2, 2, 5, 9])
    out = np.zeros(12, np.int64)
    kernel[1, 12](a, out)
    assert out.tolist() == [10, 10, 30, 30, 30, 40, 40, 40, 40, -10, -10, -10]


def test_recursive_device_function(jit):
    @jit
    def kernel(out):
        i = cuda.grid(1)
        out[i] = fib(i)

    out = np.zeros(12, np.int64)
    kernel[1, 12](out)
    assert out.tolist() == [0, 1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89]


def test_device_function_returning_a_tuple_and_filling_an_array(jit):
    @cuda.jit(device=True)
    def minmax(a, b):
        return (a, b) if a < b else (b, a)

    @cuda.jit(device=True)
    def fill(row, v):
        for k in range(row.size):
            row[k] += v

    @jit
    def kernel(a, out):
        i = cuda.grid(1)
        lo, hi = minmax(a[i, 0], a[i, 1])
        out[i, 0] = lo
        out[i, 1] = hi
        fill(out[i], minmax(i, 2)[1])

    a = np.array([[3, 1], [2, 5], [7, 7], [9, 8]])
    out = np.zeros_like(a)
    kernel[1, 4](a, out)
    np.testing.assert_array_equal(out, np.sort(a, 1) + np.maximum(np.arange(4), 2)[:, None])


def test_device_function_with_local_array(jit):
    @cuda.jit(device=True)
    def polynomial(x):
        c = cuda.local.array(4, float64)
        for k in range(4):
            c[k] = k + 1
        total = 0.0
        for k in range(3, -1, -1):
            total = total * x + c[k]
        return total

    @jit
    def kernel(out):
        i = cuda.grid(1)
        out[i] = polynomial(i * 0.5)

    out = np.zeros(10)
    kernel[1, 10](out)
    x = np.arange(10) * 0.5
    np.testing.assert_allclose(out, 1 + 2 * x + 3 * x**2 + 4 * x**3, rtol=1e-14)


def test_device_function_with_atomics_and_default_arguments(jit):
    @cuda.jit(device=True)
    def bump(counter, by=2, times=1):
        for _ in range(times):
            cuda.atomic.add(counter, 0, by)

    @jit
    def kernel(counter):
        bump(counter)
        bump(counter, 5)
        bump(counter, times=3)

    counter = np.zeros(1, np.int64)
    kernel[2, 4](counter)
    assert counter[0] == 8 * (2 + 5 + 6)


def test_device_function_at_two_types(jit):
    @jit
    def kernel(out):
        out[0] = twice(3) / 4
        out[1] = twice(1.25)

    out = np.zeros(2)
    kernel[1, 1](out)
    assert out.tolist() == [1.5, 2.5]


def test_argument_names_do_not_leak_between_inlined_functions(jit):
    @cuda.jit(device=True)
    def f(i, x):
        t = cuda.threadIdx.x
        i = i + t
        x = x * i
        return x

    @jit
    def kernel(out):
        i = cuda.threadIdx.x
        x = 5
        t = 7
        y = f(x, i) + f(t, f(i, 2))
        out[i] = y * 1000 + i * 100 + x * 10 + t

    out = np.zeros(6, np.int64)
    kernel[1, 6](out)

    def expected(i):
        def g(a, x):
            return x * (a + i)

        return (g(5, i) + g(7, g(i, 2))) * 1000 + i * 100 + 57

    assert out.tolist() == [expected(i) for i in range(6)]


def test_plain_python_function_is_not_silently_wrong(jit):
    # numba-cuda rejects calling an undecorated function; numba.njit ones are accepted.
    @numba.njit
    def add_one(x):
        return x + 1

    @jit
    def kernel(out):
        i = cuda.grid(1)
        out[i] = add_one(i)

    out = np.zeros(4, np.int64)
    kernel[1, 4](out)
    assert out.tolist() == [1, 2, 3, 4]


def test_function_passed_through_a_closure(jit):
    def make(op):
        @jit
        def kernel(a, out):
            i = cuda.grid(1)
            out[i] = op(a[i], 10)

        return kernel

    @cuda.jit(device=True)
    def add(x, y):
        return x + y

    @cuda.jit(device=True)
    def mul(x, y):
        return x * y

    a = np.arange(4)
    for op, expected in ((add, a + 10), (mul, a * 10)):
        out = np.zeros(4, np.int64)
        make(op)[1, 4](a, out)
        np.testing.assert_array_equal(out, expected)


def test_device_function_passed_to_a_device_function(jit):
    @cuda.jit(device=True)
    def square(x):
        return x * x

    @cuda.jit(device=True)
    def apply_twice(f, x):
        return f(f(x))

    @jit
    def kernel(out):
        i = cuda.grid(1)
        out[i] = apply_twice(square, i)

    out = np.zeros(5, np.int64)
    kernel[1, 5](out)
    assert out.tolist() == [i**4 for i in range(5)]


def test_closures_specialise_each_kernel(jit):
    def make(k, dtype):
        @jit
        def kernel(out):
            tile = cuda.shared.array(k, dtype)
            i = cuda.threadIdx.x
            if i < k:
                tile[i] = i / 2
            cuda.syncthreads()
            out[i] = tile[k - 1]

        return kernel

    for k, dtype, value in ((4, float64, 1.5), (8, float64, 3.5), (4, int64, 1)):
        out = np.zeros(8)
        make(k, dtype)[1, 8](out)
        assert (out == value).all(), (k, dtype)


def test_globals_tuples_enums_and_constants(jit):
    @jit
    def kernel(out):
        out[0] = OFFSET + PAIR[0] * PAIR[1] + len(PAIR)
        out[1] = NESTED[1][0] + NESTED[0][1]
        out[2] = Color.BLUE + Color.RED
        out[3] = SCALE * float32(3)
        out[4] = 1 if ENABLED else 0
        a, b = PAIR
        out[5] = a - b
        total = 0
        for v in PAIR:
            total += v
        out[6] = total
        out[7] = np.pi

    out = np.zeros(8)
    kernel[1, 1](out)
    assert out.tolist() == [114, 5.5, 5, 1.5, 1, -1, 7, np.pi]


def test_enum_comparison(jit):
    def make(mode):
        @jit
        def kernel(out):
            i = cuda.grid(1)
            if mode == Mode.ADD:
                out[i] += i
            else:
                out[i] -= i
            if out[i] == Color.BLUE:
                out[i] = -100

        return kernel

    for mode, expected in ((Mode.ADD, [0, 1, 2, 3, -100]), (Mode.SUB, [0, -1, -2, -3, -4])):
        out = np.zeros(5, np.int64)
        make(mode)[1, 5](out)
        assert out.tolist() == expected


@pytest.mark.parametrize("colour", [Color.RED, Color.BLUE])
@pytest.mark.parametrize("mode", list(Mode))
def test_enum_members_as_arguments(jit, mode, colour):
    @jit
    def kernel(out, mode, colour):
        if mode is Mode.ADD:
            out[0] = 10
        elif mode == Mode.SUB:
            out[0] = 20
        out[1] = mode.value
        out[2] = 1 if colour == Color.BLUE else 0

    out = np.zeros(3, np.int64)
    kernel[1, 1](out, mode, colour)
    assert out.tolist() == [10 * mode.value, mode.value, int(colour is Color.BLUE)]


def test_tuple_arguments(jit):
    @jit
    def kernel(pair, arrays, out):
        i = cuda.grid(1)
        out[i] = arrays[0][i] * pair[0] + arrays[1][i] * pair[1]

    a, b = np.arange(4), np.arange(4) * 10.0
    out = np.zeros(4)
    kernel[1, 4]((2, 0.5), (a, b), out)
    np.testing.assert_array_equal(out, a * 2 + b * 0.5)


def test_explicit_signatures_convert_arguments():
    @cuda.jit(void(float32[:], float32, int64))
    def kernel(out, x, n):
        i = cuda.grid(1)
        if i < n:
            out[i] = x * float32(3)

    out = np.zeros(8, np.float32)
    kernel[1, 8](out, 0.1, 5)
    np.testing.assert_array_equal(out, [np.float32(0.1) * np.float32(3)] * 5 + [0] * 3)


def test_string_signature_and_list_of_signatures():
    @cuda.jit("void(float32[::1], float32)")
    def one(out, x):
        out[cuda.grid(1)] = x

    @cuda.jit([(types.float32[:], types.float32), (types.int64[:], types.int64)])
    def many(out, x):
        out[cuda.grid(1)] = x + 1

    a, b = np.zeros(3, np.float32), np.zeros(3, np.int64)
    one[1, 3](a, 2)
    many[1, 3](a, 2)
    many[1, 3](b, 4)
    assert a.tolist() == [3] * 3
    assert b.tolist() == [5] * 3


def test_the_signature_of_the_fewest_conversions_is_taken():
    """2**-25 is lost beside 1 in a float32."""
    for first, second in (("float32", "float64"), ("float64", "float32")):

        @cuda.jit([f"void(float64[:], {kind}, {kind})" for kind in (first, second)])
        def add(out, x, y):
            out[0] = x + y

        out = np.zeros(1)
        add[1, 1](out, np.float32(1), np.float32(2**-25))
        assert out[0] == 1
        add[1, 1](out, 1, 2**-25)
        assert out[0] == 1 + 2**-25


def test_signature_that_does_not_match_is_rejected():
    @cuda.jit("void(float32[:])")
    def kernel(out):
        out[cuda.grid(1)] = 1

    with pytest.raises(TypeError):
        kernel[1, 1](np.zeros(3, np.complex64))


def test_forall(jit):
    @jit
    def kernel(a):
        i = cuda.grid(1)
        if i < a.size:
            a[i] += 1

    for n in (1, 31, 1000):
        a = np.zeros(n)
        kernel.forall(n)(a)
        assert (a == 1).all()
    empty = np.zeros(0)
    kernel.forall(0)(empty)


def test_one_kernel_many_types_and_launches(jit):
    @jit
    def kernel(a, k):
        i = cuda.grid(1)
        if i < a.size:
            a[i] = a[i] * k

    for dtype in (np.int32, np.float32, np.float64, np.int64):
        for n, block in ((5, 32), (100, 32), (100, 7)):
            a = np.arange(n).astype(dtype)
            kernel[-(-n // block), block](a, 3)
            np.testing.assert_array_equal(a, (np.arange(n) * 3).astype(dtype))


def test_configured_kernel_is_reusable(jit):
    @jit
    def kernel(a):
        cuda.atomic.add(a, 0, 1)

    a = np.zeros(1, np.int64)
    small, large = kernel[1, 8], kernel[4, 16]
    small(a)
    large(a)
    small(a)
    assert a[0] == 80


def test_fastmath_and_cache_options_are_accepted():
    @cuda.jit(fastmath=True)
    def fast(x, out):
        i = cuda.grid(1)
        out[i] = x[i] * x[i] / float32(3)

    x = np.arange(8, dtype=np.float32)
    out = np.zeros(8, np.float32)
    fast[1, 8](x, out)
    np.testing.assert_allclose(out, x * x / 3, rtol=1e-6)


def test_py_func_and_name(jit):
    @jit
    def kernel(a):
        """Doc."""
        a[0] = 1

    assert kernel.py_func.__name__ == "kernel"
    assert kernel.__name__ == "kernel"
    assert kernel.__doc__ == "Doc."


def test_grid_synchronisation(jit):
    @jit
    def kernel(a, out):
        g = cuda.cg.this_grid()
        i = cuda.grid(1)
        n = cuda.gridsize(1)
        mine = a[i] * 2
        a[i] = mine
        g.sync()
        out[i] = a[n - 1 - i] + mine
        g.sync()
        a[i] = out[(i + 1) % n]

    a = np.arange(64)
    out = np.zeros(64, np.int64)
    kernel[4, 16](a, out)
    i = np.arange(64)
    assert (out == 126).all()
    np.testing.assert_array_equal(a, np.roll(2 * (63 - i) + 2 * i, -1))


def test_grid_synchronisation_in_a_loop_with_shared_memory(jit):
    @jit
    def kernel(a, steps):
        tile = cuda.shared.array(8, int64)
        g = cuda.cg.this_grid()
        i, t = cuda.grid(1), cuda.threadIdx.x
        n = cuda.gridsize(1)
        for _ in range(steps):
            tile[t] = a[i] + a[(i + 1) % n]
            cuda.syncthreads()
            v = tile[7 - t]
            g.sync()
            a[i] = v % 1000
            g.sync()

    a = np.arange(24)
    b = a.copy()
    kernel[3, 8](a, 6)
    for _ in range(6):
        b = ((b + np.roll(b, -1)).reshape(3, 8)[:, ::-1].ravel()) % 1000
    np.testing.assert_array_equal(a, b)
