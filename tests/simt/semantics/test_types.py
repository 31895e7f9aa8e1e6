"""Types and arithmetic: what an expression means follows Numba's CUDA target.

The expected types were read from numba-cuda's own type inference. Where NumPy (and so Numba's
simulator) would answer otherwise, the test says so.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from numba import float32, float64, int8, int32, uint8, uint32, uint64

from kernels.simt import cuda

BIG = 16777216.0  # 2**24: adding 1 is lost in float32 and kept in float64


def test_float32_times_python_float_is_float64(jit):
    # NumPy 2 would keep float32 here; Numba does not.
    @jit
    def kernel(x, out):
        out[0] = x[0] + 1.0
        out[1] = x[0] + x[1]
        out[2] = x[0] + float32(1.0)
        out[3] = x[0] + 1

    out = np.zeros(4)
    kernel[1, 1](np.array([BIG, 1], np.float32), out)
    # An int64 operand promotes a float32 to float64 as well.
    np.testing.assert_array_equal(out, [BIG + 1, BIG, BIG, BIG + 1])


def test_small_integers_widen_to_64_bits(jit):
    @jit
    def kernel(i, u, w, out):
        out[0] = i[0] + i[0]
        out[1] = i[0] * i[0]
        out[2] = u[0] + u[1]
        out[3] = w[0] - w[1] > 0  # unsigned 64-bit: wraps to a large number
        out[4] = -u[0]
        out[5] = 1 << 40
        out[6] = i[1] >> 1

    out = np.zeros(7, np.int64)
    i = np.array([2**31 - 1, -5], np.int32)
    kernel[1, 1](i, np.array([200, 100], np.uint8), np.array([1, 2], np.uint32), out)
    big = 2**31 - 1
    # A negation happens in the operand's type and is widened after it: 256 - 200.
    assert out.tolist() == [2 * big, big * big, 300, 1, 56, 2**40, -3]


def test_int64_with_uint64_is_float64(jit):
    @jit
    def kernel(i, u, out):
        out[0] = i[0] - u[0]

    out = np.zeros(1)
    kernel[1, 1](np.array([1], np.int64), np.array([3], np.uint64), out)
    assert out[0] == -2.0


def test_division_and_modulo(jit):
    @jit
    def kernel(i, f, out):
        out[0] = i[0] / i[1]
        out[1] = i[0] // i[1]
        out[2] = i[0] % i[1]
        out[3] = f[0] // f[1]
        out[4] = f[0] % f[1]
        out[5] = f[0] / f[1]
        q, r = divmod(i[0], i[1])
        out[6] = q * 100 + r

    out = np.zeros(7)
    kernel[1, 1](np.array([-7, 2], np.int32), np.array([-7.5, 2], np.float64), out)
    assert out.tolist() == [-3.5, -4, 1, -4, 0.5, -3.75, -399]


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64, np.uint32, np.uint64])
def test_quotients_of_integers_are_rounded_down(dtype):
    @cuda.jit
    def kernel(a, b, out):
        i = cuda.grid(1)
        if i < a.size:
            out[0, i] = a[i] // b[i]
            out[1, i] = a[i] % b[i]
            out[2, i] = a[i] // dtype(7)
            out[3, i] = a[i] % dtype(7)

    ends = np.iinfo(dtype)
    values = [0, 1, 2, 3, 7, 8, ends.max - 1, ends.max]
    values += [-1, -2, -7, -8, ends.min, ends.min + 1] * (ends.min < 0)
    pairs = [(x, y) for x in values for y in values if (x, y) != (ends.min, -1)]
    a, b = np.array(pairs, dtype).T.copy()
    out = np.zeros((4, a.size), dtype)
    kernel[1, 256](a, b, out)
    assert out[0].tolist() == [x // y if y else 0 for x, y in pairs]
    assert out[1].tolist() == [x % y if y else 0 for x, y in pairs]
    assert out[2].tolist() == [x // 7 for x, _ in pairs]
    assert out[3].tolist() == [x % 7 for x, _ in pairs]


def test_the_quotient_of_narrow_numbers_has_the_width_of_its_type():
    """The lowest int32 divided by -1, which is no int32, in an int64; in int64 it wraps."""

    @cuda.jit
    def kernel(a, b, c, d, out):
        out[0], out[1] = a[0] // b[0], a[0] % b[0]
        out[2], out[3] = c[0] // d[0], c[0] % d[0]

    out = np.ones(4, np.int64)
    minus = -1
    numbers = [np.array([x], t) for t in (np.int32, np.int64) for x in (np.iinfo(t).min, minus)]
    kernel[1, 1](*numbers, out)
    assert out.tolist() == [2**31, 0, -(2**63), 0]


def test_division_by_zero_is_infinite():
    @cuda.jit
    def kernel(x, out):
        i = cuda.grid(1)
        out[i] = x[i] / x[3]

    out = np.zeros(4, np.float32)
    kernel[1, 4](np.array([1, -1, 0, 0], np.float32), out)
    np.testing.assert_array_equal(out, [np.inf, -np.inf, np.nan, np.nan])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_floor_ceil_trunc_keep_the_float_type(jit, dtype):
    # On the CPU Numba's math.floor gives int64, which 1e20, inf and nan do not survive.
    @jit
    def kernel(x, out):
        i = cuda.grid(1)
        if i < x.size:
            out[0, i] = math.floor(x[i])
            out[1, i] = math.ceil(x[i])
            out[2, i] = math.trunc(x[i])

    x = np.array([-2.5, 2.5, -0.5, 1e20, -1e20, np.inf, -np.inf, np.nan, 0, 7], dtype)
    out = np.zeros((3, x.size), dtype)
    kernel[1, 32](x, out)
    np.testing.assert_array_equal(out, [np.floor(x), np.ceil(x), np.trunc(x)])


def test_floor_of_float32_stays_float32_in_what_follows(jit):
    @jit
    def kernel(x, out):
        out[0] = math.floor(x[0]) + x[1]

    out = np.zeros(1)
    kernel[1, 1](np.array([BIG, 1], np.float32), out)
    assert out[0] == BIG


def test_int_float_and_bool_conversions(jit):
    @jit
    def kernel(x, i, out):
        out[0] = int(x[0])
        out[1] = int(x[1])
        out[2] = round(x[0])
        out[3] = float(i[0]) / 2
        out[4] = bool(i[0])
        out[5] = not i[1]
        out[6] = (i[0] > 2) + (i[0] > 1)

    out = np.zeros(7)
    kernel[1, 1](np.array([2.7, -2.7], np.float32), np.array([3, 0], np.int32), out)
    assert out.tolist() == [2, -2, 3, 1.5, 1, 1, 2]


def test_constructor_casts_wrap(jit):
    @jit
    def kernel(i, out):
        out[0] = np.uint8(i[0])
        out[1] = np.int8(i[0])
        out[2] = int32(i[1])
        out[3] = uint32(i[2])
        out[4] = int8(i[3])
        out[5] = uint8(i[2])

    out = np.zeros(6, np.int64)
    kernel[1, 1](np.array([300, 2**31, -1, 200], np.int64), out)
    assert out.tolist() == [44, 44, -(2**31), 2**32 - 1, -56, 255]


@pytest.mark.parametrize(
    "dtype", [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64]
)
def test_stores_convert_like_c(dtype):
    @cuda.jit
    def kernel(f, i, out):
        k = cuda.grid(1)
        if k < i.size:
            out[k] = i[k]
            out[k + i.size] = f[k]

    i = np.array([0, 1, 127, 128, 255, 256, 300, 65535, 65536, 2**32 + 5], np.int64)
    f = np.array([0.9, 1.1, 2.5, 3.99, 100.5, 7, 8, 9, 10, 11], np.float32)
    out = np.zeros(2 * i.size, dtype)
    kernel[1, 32](f, i, out)
    np.testing.assert_array_equal(out[: i.size], i.astype(dtype))
    np.testing.assert_array_equal(out[i.size :], f.astype(dtype))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_float_arrays(jit, rng, dtype):
    @jit
    def kernel(x, y, out):
        i = cuda.grid(1)
        if i < out.size:
            out[i] = x[i] * y[i] + x[i]

    x = rng.standard_normal(33).astype(dtype)
    y = rng.standard_normal(33).astype(dtype)
    out = np.zeros(33, dtype)
    kernel[2, 32](x, y, out)
    wide = x.astype(np.float64) * y.astype(np.float64) + x.astype(np.float64)
    tolerance = 4 * np.finfo(dtype).eps
    np.testing.assert_allclose(out, wide, rtol=tolerance, atol=tolerance)


def test_bool_arrays(jit):
    @jit
    def kernel(x, flags, count):
        i = cuda.grid(1)
        if i < x.size:
            flags[i] = x[i] > 0
            if flags[i] and not x[i] > 10:
                cuda.atomic.add(count, 0, 1)

    x = np.array([-1, 0, 1, 5, 11, 12], np.float32)
    flags, count = np.zeros(6, np.bool_), np.zeros(1, np.int32)
    kernel[1, 8](x, flags, count)
    assert flags.tolist() == [False, False, True, True, True, True]
    assert count[0] == 2


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_complex(jit, rng, dtype):
    @jit
    def kernel(x, y, out, parts):
        i = cuda.grid(1)
        if i < x.size:
            z = x[i] * y[i] - x[i].conjugate()
            out[i] = z / 2
            parts[0, i] = z.real
            parts[1, i] = z.imag
            parts[2, i] = abs(x[i])

    x = (rng.standard_normal(9) + 1j * rng.standard_normal(9)).astype(dtype)
    y = (rng.standard_normal(9) + 1j * rng.standard_normal(9)).astype(dtype)
    out, parts = np.zeros(9, dtype), np.zeros((3, 9))
    kernel[1, 16](x, y, out, parts)
    z = x.astype(np.complex128) * y - x.conj()
    rtol = 20 * np.finfo(dtype).eps
    np.testing.assert_allclose(out, z / 2, rtol=rtol, atol=rtol)
    np.testing.assert_allclose(parts, [z.real, z.imag, np.abs(x)], rtol=rtol, atol=rtol)


def test_fma_is_fused(jit):
    @jit
    def kernel(x, out):
        out[0] = cuda.fma(x[0], x[0], x[1])
        out[1] = x[0] * x[0] + x[1]

    a = np.float32(1 + 2.0**-12)
    c = np.float32(-(1 + 2.0**-11))
    out = np.zeros(2, np.float32)
    kernel[1, 1](np.array([a, c], np.float32), out)
    assert out[0] == np.float32(2.0**-24)  # rounded once
    assert out[1] in (np.float32(2.0**-24), np.float32(0))  # CUDA may contract, and may not


def test_nan_in_a_guard_is_negated_not_flipped(jit):
    @jit
    def kernel(s, lim, out):
        i = cuda.grid(1)
        if i >= s.size or s[i] > lim:
            return
        out[i] += 1
        if not s[i] < lim:
            out[i] += 10
        if s[i] < lim:
            out[i] += 100
        else:
            out[i] += 1000

    s = np.array([1, 3, np.nan, 2, np.nan], np.float32)
    out = np.zeros(5, np.int32)
    kernel[1, 8](s, 2.0, out)
    assert out.tolist() == [101, 0, 1011, 1011, 1011]


def test_nan_in_a_loop_condition(jit):
    @jit
    def kernel(s, out):
        i = cuda.grid(1)
        v = s[i]
        while not v >= 3:
            v += 1
            out[i] += 1
            if out[i] > 4:
                break

    out = np.zeros(3, np.int32)
    kernel[1, 3](np.array([0, 5, np.nan], np.float32), out)
    assert out.tolist() == [3, 0, 5]


def test_conditional_expression_does_not_evaluate_the_other_side(jit):
    # In the checked mode reading x[i] for i >= n would be an error.
    @jit
    def kernel(x, n, out):
        i = cuda.grid(1)
        out[i] = x[i] if i < n else float32(-1)
        out[i] += 1 if i < n and x[i] > 1 else 0

    out = np.zeros(8, np.float32)
    kernel[1, 8](np.arange(5, dtype=np.float32), 5, out)
    assert out.tolist() == [0, 1, 3, 4, 5, -1, -1, -1]


def test_branches_unify_their_types(jit):
    @jit
    def kernel(out):
        i = cuda.grid(1)
        if i % 2:
            v = 1
        else:
            v = 0.5
        out[i] = v

    out = np.zeros(4)
    kernel[1, 4](out)
    assert out.tolist() == [0.5, 1, 0.5, 1]


def test_powers_and_abs(jit):
    @jit
    def kernel(x, i, out):
        out[0] = x[0] ** 2
        out[1] = x[0] ** -1
        out[2] = x[0] ** 0.5
        out[3] = i[0] ** 3
        out[4] = abs(i[0])
        out[5] = abs(-x[0])
        out[6] = max(i[0], 2) + min(x[0], 1.0, 9)

    out = np.zeros(7)
    kernel[1, 1](np.array([4], np.float32), np.array([-3], np.int32), out)
    np.testing.assert_allclose(out, [16, 0.25, 2, -27, 3, 4, 3])


def test_chained_comparisons_and_boolean_operators(jit):
    @jit
    def kernel(out):
        i = cuda.grid(1)
        out[i] = 1 if 1 < i <= 3 < 7 else 0
        if i == 0 or (i > 3 and not (i == 5 or i == 6)):
            out[i] += 10

    out = np.zeros(8, np.int32)
    kernel[1, 8](out)
    assert out.tolist() == [10, 0, 1, 1, 10, 0, 0, 10]


def test_negative_indices_and_wraparound(jit):
    @jit
    def kernel(a, out):
        i = cuda.threadIdx.x
        out[i] = a[i - 1] + 100 * a[-1]

    a = np.arange(1, 6, dtype=np.int64)
    out = np.zeros(5, np.int64)
    kernel[1, 5](a, out)
    assert out.tolist() == [505, 501, 502, 503, 504]


def test_an_index_that_is_one_of_two_numbers(jit):
    """`n or q` of numbers is no truth value: it may be negative."""

    @jit
    def kernel(a, n, q):
        a[n or q] = 5
        i = q or n
        a[i] += 1

    a = np.zeros(16)
    kernel[1, 1](a[4:8], 0, -1)
    assert a.tolist() == [0] * 7 + [6] + [0] * 8


def test_uint64_values_above_the_signed_range(jit):
    @jit
    def kernel(x, out):
        i = cuda.grid(1)
        out[i] = (x[i] >> uint64(1)) ^ (x[i] * uint64(6364136223846793005))

    x = np.array([2**64 - 1, 2**63, 5], np.uint64)
    out = np.zeros(3, np.uint64)
    kernel[1, 3](x, out)
    with np.errstate(over="ignore"):
        expected = (x >> np.uint64(1)) ^ (x * np.uint64(6364136223846793005))
    np.testing.assert_array_equal(out, expected)


def test_uint32_hash_wraps_when_cast(jit):
    @jit
    def kernel(x, out):
        i = cuda.grid(1)
        h = uint32(x[i] * uint32(2654435761))
        h = uint32(h ^ (h >> 15))
        out[i] = uint32(h << 3)

    x = np.array([0, 1, 12345, 2**32 - 1], np.uint32)
    out = np.zeros(4, np.uint32)
    kernel[1, 4](x, out)
    h = (x.astype(np.uint64) * 2654435761) % 2**32
    h ^= h >> np.uint64(15)
    np.testing.assert_array_equal(out, (h << np.uint64(3)) % 2**32)


def test_scalar_arguments_keep_their_types(jit):
    @jit
    def kernel(a, b, c, d, out):
        out[0] = a + out[4]
        out[1] = b
        out[2] = c * 2
        out[3] = d

    out = np.zeros(5)
    kernel[1, 1](np.float32(0.1), True, np.int8(-100), 2**40, out)
    assert out.tolist() == [float(np.float32(0.1)), 1, -200, 2**40, 0]


def test_swap_and_augmented_assignment(jit):
    @jit
    def kernel(a):
        i = cuda.grid(1)
        x, y = a[i, 0], a[i, 1]
        x, y = y, x
        a[i, 0], a[i, 1] = x, y
        a[i, 0] += 1
        a[i, 1] *= 2
        a[i, 0] -= 3
        a[i, 1] //= 3

    a = np.arange(8, dtype=np.int64).reshape(4, 2)
    b = a.copy()
    kernel[1, 4](a)
    np.testing.assert_array_equal(a, np.stack([b[:, 1] - 2, b[:, 0] * 2 // 3], 1))


def test_for_else_while_else_and_reversed_ranges(jit):
    @jit
    def kernel(out):
        i = cuda.grid(1)
        total = 0
        for k in range(10, 0, -3):
            if k == i:
                break
            total += k
        else:
            total += 1000
        while total % 7:
            total += 1
        else:
            total += 5
        out[i] = total

    out = np.zeros(12, np.int64)
    kernel[1, 12](out)

    def expected(i):
        total = 0
        for k in range(10, 0, -3):
            if k == i:
                break
            total += k
        else:
            total += 1000
        return -(-total // 7) * 7 + 5

    assert out.tolist() == [expected(i) for i in range(12)]


def test_loop_variable_survives_the_loop(jit):
    @jit
    def kernel(out):
        i = cuda.grid(1)
        for k in range(i + 1):  # noqa: B007 - its value after the loop is what is tested
            pass
        k = k * 10  # the last value, not the bound
        for k2 in range(3):
            k += k2
            k2 = 100
        out[i] = k + k2

    out = np.zeros(4, np.int64)
    kernel[1, 4](out)
    assert out.tolist() == [103, 113, 123, 133]


def test_mixed_width_float_arithmetic(jit):
    @jit
    def kernel(a, b, c, out):
        out[0] = a[0] + b[0]
        out[1] = a[0] * c[0]
        out[2] = float64(a[0]) + c[1]

    out = np.zeros(3)
    a, b = np.array([BIG], np.float32), np.array([1.0])
    kernel[1, 1](a, b, np.array([3, 1], np.int32), out)
    assert out.tolist() == [BIG + 1, 3 * BIG, BIG + 1]
