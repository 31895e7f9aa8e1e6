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


def test_fused_functions():
    @cp.fuse()
    def f(x, y):
        return cp.sqrt(x * x + y * y)

    assert f(cp.asarray(3.0), cp.asarray(4.0)) == 5
    with pytest.raises(TypeError, match="Invalid argument type"):
        f(np.ones(3), cp.ones(3))


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
