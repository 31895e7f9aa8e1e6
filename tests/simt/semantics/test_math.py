"""Mathematics in kernels: each function against NumPy or SciPy in float64, within some ulps."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.special as special

from kernels.simt import cuda

# name: (float64 reference, low, high, ulps allowed in float32, ulps allowed in float64)
UNARY = {
    "exp": (np.exp, -80, 80, 2, 2),
    "log": (np.log, 1e-6, 1e6, 2, 2),
    "tanh": (np.tanh, -12, 12, 2, 4),
    "erf": (special.erf, -5, 5, 2, 4),
    "erfc": (special.erfc, -3, 5, 8, 32),
    "sin": (np.sin, -20, 20, 4, 4),
    "cos": (np.cos, -20, 20, 4, 4),
    "tan": (np.tan, -1.5, 1.5, 4, 4),
    "asin": (np.arcsin, -1, 1, 4, 4),
    "acos": (np.arccos, -1, 1, 4, 4),
    "atan": (np.arctan, -50, 50, 4, 4),
    "sinh": (np.sinh, -20, 20, 4, 4),
    "cosh": (np.cosh, -20, 20, 4, 4),
    "asinh": (np.arcsinh, -50, 50, 4, 4),
    "acosh": (np.arccosh, 1, 50, 4, 4),
    "atanh": (np.arctanh, -0.99, 0.99, 4, 4),
    "sqrt": (np.sqrt, 0, 1e6, 1, 1),
    "log2": (np.log2, 1e-6, 1e6, 3, 3),
    "log10": (np.log10, 1e-6, 1e6, 3, 3),
    "log1p": (np.log1p, -0.9, 100, 3, 3),
    "expm1": (np.expm1, -20, 20, 3, 3),
    "lgamma": (special.gammaln, 3, 50, 8, 16),
    "gamma": (special.gamma, 0.5, 20, 16, 32),
    "fabs": (np.abs, -9, 9, 0, 0),
    "radians": (np.radians, -360, 360, 2, 2),
    "degrees": (np.degrees, -7, 7, 2, 2),
}


def ulps(actual: np.ndarray, expected: np.ndarray) -> float:
    """The largest distance in units of the last place of `actual`'s dtype."""
    with np.errstate(over="ignore"):
        spacing = np.spacing(np.abs(expected).astype(actual.dtype)).astype(np.float64)
    return float(np.max(np.abs(actual.astype(np.float64) - expected) / spacing))


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["f32", "f64"])
@pytest.mark.parametrize("name", UNARY)
def test_unary(name, dtype, rng):
    reference, low, high, *allowed = UNARY[name]
    function = getattr(math, name)

    @cuda.jit
    def kernel(x, out):
        i = cuda.grid(1)
        if i < x.size:
            out[i] = function(x[i])

    x = rng.uniform(low, high, 4001).astype(dtype)
    x = np.clip(x, dtype(low), dtype(high))
    out = np.zeros_like(x)
    kernel[16, 256](x, out)
    expected = reference(x.astype(np.float64))
    assert ulps(out, expected) <= allowed[dtype is np.float64] + 0.5


@pytest.mark.parametrize("name", ["exp", "log", "tanh", "erf", "sqrt", "sin", "cos"])
def test_special_values(name):
    function = getattr(math, name)

    @cuda.jit
    def kernel(x, out):
        i = cuda.grid(1)
        if i < x.size:
            out[i] = function(x[i])

    tiny = np.finfo(np.float32).tiny
    x = np.array(
        [0, -0.0, np.inf, -np.inf, np.nan, 1, -1, tiny, tiny / 4, -tiny / 4, 200, -200, 88.7, -103],
        np.float32,
    )
    out = np.zeros_like(x)
    kernel[1, 32](x, out)
    reference = special.erf if name == "erf" else getattr(np, name)
    with np.errstate(all="ignore"):
        expected = reference(x.astype(np.float64)).astype(np.float32)
    np.testing.assert_allclose(out, expected, rtol=1e-6, atol=1e-44)
    zero = expected == 0
    if name in ("tanh", "erf", "sin", "sqrt"):
        np.testing.assert_array_equal(np.signbit(out[zero]), np.signbit(expected[zero]))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["exp", "log", "tanh", "erf"])
def test_every_float32(name):
    """All finite float32 values, within 2 ulp of the float64 function."""
    function = getattr(math, name)

    @cuda.jit
    def kernel(x, out):
        for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
            out[i] = function(x[i])

    reference = special.erf if name == "erf" else getattr(np, name)
    step = 2**24
    for start in range(0, 2**32, step):
        x = np.arange(start, start + step, dtype=np.uint32).view(np.float32)
        x = x[np.isfinite(x)]
        out = np.zeros_like(x)
        kernel[64, 256](x, out)
        with np.errstate(all="ignore"):
            expected = reference(x.astype(np.float64))
            finite = np.isfinite(expected) & (np.abs(expected) < np.finfo(np.float32).max)
        if finite.any():
            assert ulps(out[finite], expected[finite]) <= 2.5, start


def test_binary_and_ternary(jit, rng):
    @jit
    def kernel(x, y, out):
        i = cuda.grid(1)
        if i < x.size:
            out[0, i] = math.pow(x[i], y[i])
            out[1, i] = math.atan2(y[i], x[i])
            out[2, i] = math.hypot(x[i], y[i])
            out[3, i] = math.fmod(y[i], x[i])
            out[4, i] = math.copysign(x[i], y[i])
            out[5, i] = cuda.fma(x[i], y[i], x[i])
            out[6, i] = max(x[i], y[i])
            out[7, i] = min(x[i], y[i])

    x, y = rng.uniform(0.5, 5, 100), rng.uniform(-5, 5, 100)
    out = np.zeros((8, 100))
    kernel[1, 128](x, y, out)
    expected = [
        x**y,
        np.arctan2(y, x),
        np.hypot(x, y),
        np.fmod(y, x),
        np.copysign(x, y),
        x * y + x,
        np.maximum(x, y),
        np.minimum(x, y),
    ]
    np.testing.assert_allclose(out, expected, rtol=1e-14, atol=1e-14)


def test_classification_and_decomposition(jit):
    @jit
    def kernel(x, out):
        i = cuda.grid(1)
        if i < x.size:
            out[0, i] = math.isnan(x[i])
            out[1, i] = math.isinf(x[i])
            out[2, i] = math.isfinite(x[i])
            m, e = math.frexp(x[i])
            out[3, i] = m
            out[4, i] = e
            f, w = math.modf(x[i])
            out[5, i] = f
            out[6, i] = w
            out[7, i] = math.ldexp(x[i], 3)

    x = np.array([1.5, -2.25, 0, 100.125, 1e-3])
    special_values = np.array([np.nan, np.inf, -np.inf])
    out = np.zeros((8, 5))
    kernel[1, 8](x, out)
    np.testing.assert_array_equal(out[:3], [[0] * 5, [0] * 5, [1] * 5])
    np.testing.assert_array_equal(out[3:5], np.frexp(x))
    np.testing.assert_array_equal(out[5:7], np.modf(x))
    np.testing.assert_array_equal(out[7], x * 8)
    out = np.zeros((8, 3))
    kernel[1, 8](special_values, out)
    np.testing.assert_array_equal(out[:3], [[1, 0, 0], [0, 1, 1], [0, 0, 0]])


def test_cbrt_and_rsqrt_and_libdevice(jit, rng):
    @jit
    def kernel(x, out):
        i = cuda.grid(1)
        if i < x.size:
            out[0, i] = cuda.cbrt(x[i])
            out[1, i] = cuda.libdevice.rsqrt(x[i])

    x = rng.uniform(0.1, 100, 50)
    out = np.zeros((2, 50))
    kernel[1, 64](x, out)
    np.testing.assert_allclose(out, [np.cbrt(x), 1 / np.sqrt(x)], rtol=1e-14)


def test_numpy_spellings(jit, rng):
    @jit
    def kernel(x, out):
        i = cuda.grid(1)
        if i < x.size:
            out[0, i] = np.exp(x[i])
            out[1, i] = np.sqrt(x[i])
            out[2, i] = np.log(x[i]) + np.sin(x[i])
            out[3, i] = np.arctan2(x[i], np.float64(2)) if False else math.atan2(x[i], 2.0)

    x = rng.uniform(0.1, 5, 40)
    out = np.zeros((4, 40))
    kernel[1, 64](x, out)
    expected = [np.exp(x), np.sqrt(x), np.log(x) + np.sin(x), np.arctan2(x, 2)]
    np.testing.assert_allclose(out, expected, rtol=1e-14, atol=1e-14)


def test_integer_arguments_of_math_functions(jit):
    @jit
    def kernel(a, out):
        i = cuda.grid(1)
        out[0, i] = math.sqrt(a[i])
        out[1, i] = math.floor(a[i])
        out[2, i] = math.exp(a[i])
        out[3, i] = math.gcd(a[i], 6) if a[i] > 0 else 0

    a = np.arange(5)
    out = np.zeros((4, 5))
    kernel[1, 5](a, out)
    expected = [np.sqrt(a), a, np.exp(a), np.where(a > 0, np.gcd(a, 6), 0)]
    np.testing.assert_allclose(out, expected, rtol=1e-14)


def test_math_in_float32_does_not_become_float64():
    @cuda.jit
    def kernel(x, out):
        out[0] = math.exp(x[0]) + x[1]

    out = np.zeros(1)
    kernel[1, 1](np.array([0, 2**24], np.float32), out)
    assert out[0] == 2.0**24  # 1 + 2**24 rounded to float32


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_round_to_decimals(jit, rng, dtype):
    @jit
    def kernel(x, out):
        i = cuda.grid(1)
        if i < x.size:
            out[0, i] = round(x[i], 2)
            out[1, i] = round(x[i], -1)
            out[2, i] = round(x[i])

    x = (100 * rng.standard_normal(50)).astype(dtype)
    out = np.zeros((3, 50), dtype)
    kernel[1, 64](x, out)
    np.testing.assert_allclose(out, [np.round(x, 2), np.round(x, -1), np.round(x)], rtol=1e-6)


def test_ufuncs_write_into_arrays():
    @cuda.jit
    def kernel(x, out):
        i = cuda.grid(1)
        np.sin(x[i], out[0, i])
        np.add(x[i], 1.0, out[1, i])

    x, out = np.arange(12.0).reshape(3, 4), np.zeros((2, 3, 4))
    kernel[1, 3](x, out)
    np.testing.assert_allclose(out, [np.sin(x), x + 1], rtol=1e-14)
