"""Kernels from expressions, random numbers and fused functions of kernels.cupy."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats

import kernels.cupy as cp


def test_cupy_elementwise_kernels(rng):
    x, y = rng.random((3, 5), dtype=np.float32), rng.random(5, dtype=np.float32)
    squared = cp.ElementwiseKernel("T x, T y", "T z", "z = (x - y) * (x - y)", "squared")
    np.testing.assert_array_equal(squared(cp.asarray(x), cp.asarray(y)).get(), (x - y) ** 2)
    np.testing.assert_array_equal(squared(cp.asarray(x).T, 2).get(), (x.T - np.float32(2)) ** 2)
    out = cp.zeros((5, 3), np.float32)
    assert squared(cp.asarray(x).T, 2, out) is out and out[1, 1] == (x[1, 1] - np.float32(2)) ** 2
    with pytest.raises(TypeError, match="mismatched"):
        squared(cp.asarray(x), cp.ones(5))
    with pytest.raises(TypeError, match="Unsupported type"):
        squared(x, y)
    with pytest.raises(TypeError, match="Wrong number of arguments"):
        squared(cp.asarray(x))
    reverse = cp.ElementwiseKernel(
        "T x, raw T y", "T z", "z = x + y[_ind.size() - i - 1]", "reverse"
    )
    values = np.arange(6.0)
    np.testing.assert_array_equal(
        reverse(cp.asarray(values), cp.asarray(values)[::-1]).get(), 2 * values
    )
    split = cp.ElementwiseKernel(
        "T x", "T whole, T rest", "whole = floor(x); rest = x - whole", "s"
    )
    whole, rest = split(cp.asarray(values + 0.25))
    assert whole[3] == 3 and rest[3] == 0.25
    corner = cp.ElementwiseKernel("raw T x, int32 w", "raw T y", "y[i] = x[i * w]", "corner")
    y2 = cp.zeros(3)
    corner(cp.asarray(values), 2, y2, size=3)
    assert y2.tolist() == [0, 2, 4]


def test_cupy_reduction_kernels(rng):
    x = rng.standard_normal((40, 700))
    norm = cp.ReductionKernel("T x", "T y", "x * x", "a + b", "y = sqrt(a)", "0", "norm")
    a = cp.asarray(x)
    np.testing.assert_allclose(norm(a).get(), np.linalg.norm(x))
    np.testing.assert_allclose(norm(a, axis=1).get(), np.linalg.norm(x, axis=1))
    kept = norm(a, axis=0, keepdims=True)
    np.testing.assert_allclose(kept.get(), np.linalg.norm(x, axis=0, keepdims=True))
    largest = cp.ReductionKernel("T x, T y", "T z", "x * y", "max(a, b)", "z = a", "-1e300", "m")
    np.testing.assert_allclose(largest(a, a[0]).get(), (x * x[0]).max())


@pytest.mark.parametrize(
    "name, args, cdf",
    [
        ("rand", (4000,), scipy.stats.uniform().cdf),
        ("randn", (4000,), scipy.stats.norm().cdf),
        ("normal", (2.0, 3.0, 4000), scipy.stats.norm(2, 3).cdf),
        ("exponential", (2.0, 4000), scipy.stats.expon(scale=2).cdf),
        ("gamma", (2.0, 1.5, 4000), scipy.stats.gamma(2, scale=1.5).cdf),
        ("beta", (2.0, 5.0, 4000), scipy.stats.beta(2, 5).cdf),
        ("laplace", (0.0, 1.0, 4000), scipy.stats.laplace().cdf),
    ],
)
def test_random_numbers_have_their_distribution(name, args, cdf, seed):
    cp.random.seed(seed)
    drawn = getattr(cp.random, name)(*args)
    assert isinstance(drawn, cp.ndarray) and drawn.dtype == np.float64
    assert scipy.stats.kstest(drawn.get(), cdf).pvalue > 1e-4
    cp.random.seed(seed)
    assert cp.array_equal(drawn, getattr(cp.random, name)(*args))


def test_random_numbers_of_other_kinds(seed):
    state = cp.random.RandomState(seed)
    assert state.rand(3, dtype=cp.float32).dtype == np.float32
    assert cp.random.randint(0, 5, 100).max() < 5
    assert sorted(cp.random.permutation(5).tolist()) == [0, 1, 2, 3, 4]
    generator = cp.random.default_rng(seed)
    assert generator.random((2, 3), dtype=np.float32).shape == (2, 3)
    assert generator.integers(0, 3, 50).max() < 3
    with pytest.raises(TypeError, match="float32 or float64"):
        cp.random.rand(3, dtype=int)
    a = cp.arange(5)
    cp.random.shuffle(a)
    assert a.sum() == 10
    assert set(cp.random.choice(cp.asarray([2, 4]), 20).tolist()) <= {2, 4}


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_kernels_of_complex_numbers(dtype, rng):
    x, y = ((rng.normal(size=(3, 7)) + 1j * rng.normal(size=(3, 7))).astype(dtype) for _ in "xy")
    a, b = cp.asarray(x), cp.asarray(y)
    rtol = 2e-5 if dtype is np.complex64 else 1e-12
    k = cp.ElementwiseKernel("T x, T y", "T z", "z = exp(x) * conj(y) / (x + T(2)) - pow(x, y)")
    np.testing.assert_allclose(k(a, b).get(), np.exp(x) * y.conj() / (x + 2) - x**y, rtol=rtol)
    size = cp.ElementwiseKernel("complex64 z", "float32 r", "r = abs(z) + z.real() * arg(z)")
    if dtype is np.complex64:
        expected = abs(x) + x.real * np.angle(x)
        np.testing.assert_allclose(size(a.T).get(), expected.T, rtol=1e-5, atol=1e-6)
    else:
        with pytest.raises(TypeError, match="z is complex128, not complex64"):
            size(a)
    norm = cp.ReductionKernel("T x, T y", "T z", "x * conj(y)", "a + b", "z = sqrt(a)", "0")
    np.testing.assert_allclose(norm(a, b, axis=0).get(), np.sqrt((x * y.conj()).sum(0)), rtol=rtol)
    product = cp.ReductionKernel("T x", "T y", "x", "a * b", "y = a", None, "product")
    np.testing.assert_allclose(product(a, axis=1).get(), x.prod(1), rtol=rtol)


def test_raw_kernels_of_complex_numbers(rng):
    x = rng.normal(size=20) + 1j * rng.normal(size=20)
    code = """
        #include <cupy/complex.cuh>
        template <typename T> __global__ void twist(const T* x, T* y, T by) {
            y[threadIdx.x] = x[threadIdx.x] * by + thrust::polar(1.0, arg(x[threadIdx.x]));
        }
    """
    name = "twist<complex<double>>"
    twist = cp.RawModule(code=code, name_expressions=[name]).get_function(name)
    y = cp.empty(20, complex)
    twist((1,), (20,), (cp.asarray(x), y, 2 + 1j))
    np.testing.assert_allclose(y.get(), x * (2 + 1j) + x / abs(x))
    code = """
        #include <cuComplex.h>
        extern "C" __global__ void f(const cuFloatComplex* x, cuFloatComplex* y) {
            const cuFloatComplex v = x[threadIdx.x];
            y[threadIdx.x] = cuCdivf(cuCmulf(v, cuConjf(v)), make_cuFloatComplex(1.0f, 2.0f));
        }
    """
    f, narrow = cp.RawKernel(code, "f", translate_cucomplex=True), cp.empty(20, np.complex64)
    f((1,), (20,), (cp.asarray(x, np.complex64), narrow))
    np.testing.assert_allclose(narrow.get(), abs(x) ** 2 / (1 + 2j), rtol=1e-5)


LAYOUTS = {
    "transposed": lambda a: a.T,
    "every second": lambda a: a[::2, 1::2],
    "backwards": lambda a: a[::-1, ::-1],
    "one row": lambda a: a[2:3],
    "one element": lambda a: a[1, 1, ...],
    "empty": lambda a: a[:0],
    "3d": lambda a: a.reshape(5, 1, 34)[:, :, ::-3],
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_expressions_and_layouts(name, rng):
    """Arrays of any strides, broadcast, in and out."""
    x, row = rng.random((17, 10)), rng.random(40)
    view = LAYOUTS[name]
    axpy = cp.ElementwiseKernel("T x, T y, T a", "T z", "z = a * x + y + n + i", "axpy")
    add = cp.ReductionKernel("T x", "T y", "x", "a + b", "y = a", "0", "add")
    v, a = view(x), view(cp.asarray(x))
    index = np.arange(v.size).reshape(v.shape)
    np.testing.assert_allclose(axpy(a, a, 2.0).get(), 3 * v + v.size + index)
    out = cp.zeros((17, 10))
    target = view(out)
    assert axpy(a, 1.0, 2.0, target) is target
    expected = np.zeros((17, 10))
    view(expected)[...] = 2 * v + 1 + v.size + index
    np.testing.assert_allclose(out.get(), expected)
    last = v.shape[-1] if v.ndim else 10
    both = np.broadcast_to(row[:last], np.broadcast_shapes(v.shape, (last,)))
    count = np.arange(both.size).reshape(both.shape)
    got = axpy(a, cp.asarray(row[:last]), 1.0).get()
    np.testing.assert_allclose(got, v + both + both.size + count)
    for axis in (None, *range(v.ndim), *([(0, 1)] if v.ndim > 1 else [])):
        np.testing.assert_allclose(add(a, axis=axis).get(), v.sum(axis), atol=1e-12)


def test_expressions_refuse_what_cupy_refuses():
    same = cp.ElementwiseKernel("T x, float32 y", "T z", "z = x")
    for args, text in (
        ((cp.ones(3), cp.ones(3)), "y is float64, not float32"),
        ((cp.ones(3), cp.ones(3, np.float32), cp.ones(3, np.float32)), "z is float32, but T"),
    ):
        with pytest.raises(TypeError, match=text):
            same(*args)
    with pytest.raises(ValueError, match="Out shape is mismatched"):
        same(cp.ones(3), 1, cp.ones(1))
    with pytest.raises(ValueError, match="Loop size is undecided"):
        same(1.0, 2.0)
    with pytest.raises(ValueError, match="zero-size array"):
        cp.ReductionKernel("T x", "T y", "x", "max(a, b)", "y = a", None)(cp.ones(0))
    with pytest.raises(np.exceptions.AxisError):
        cp.ReductionKernel("T x", "T y", "x", "max(a, b)", "y = a", None)(cp.ones(3), axis=1)


def test_raw_kernels_take_addresses_of_memory():
    """What `array.data.ptr`, or `data_ptr()` of another library, gives; 0 is a null pointer."""
    kernel = cp.RawKernel(
        """extern "C" __global__ void k(float* x, const float* add) {
            x[threadIdx.x] += add ? add[threadIdx.x] : 100;
        }""",
        "k",
    )
    x, add = cp.arange(4, dtype=cp.float32), cp.full(4, 10, cp.float32)
    kernel((1,), (4,), (x.data.ptr, add.data.ptr))
    kernel((1,), (2,), (x[2:].data.ptr, 0))
    kernel((1,), (1,), (np.uint64(x.data.ptr), None))
    assert x.get().tolist() == [110, 11, 112, 113]
    with pytest.raises(TypeError, match=r"\(add\) is a pointer: pass an array or its address"):
        kernel((1,), (4,), (x, 1000))
