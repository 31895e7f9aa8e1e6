"""Polynomials and Bessel functions of `minigrad.special`: SciPy's values, and torch's dtypes."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special

import kernels
import minigrad
from minigrad import backends
from minigrad.autograd import gradcheck

DEGREES = np.array([-1, 0, 1, 2, 3, 6])
POLYNOMIALS = {
    "chebyshev_polynomial_t": special.eval_chebyt,
    "chebyshev_polynomial_u": special.eval_chebyu,
    "chebyshev_polynomial_v": lambda n, x: (
        special.eval_chebyu(n, x) - special.eval_chebyu(n - 1, x)
    ),
    "chebyshev_polynomial_w": lambda n, x: (
        special.eval_chebyu(n, x) + special.eval_chebyu(n - 1, x)
    ),
    "hermite_polynomial_h": special.eval_hermite,
    "hermite_polynomial_he": special.eval_hermitenorm,
    "laguerre_polynomial_l": special.eval_laguerre,
    "legendre_polynomial_p": special.eval_legendre,
}
POLYNOMIALS |= {
    f"shifted_{name}": lambda n, x, f=function: f(n, 2 * x - 1)
    for name, function in POLYNOMIALS.items()
    if name.startswith("chebyshev")
}
FUNCTIONS = {
    "airy_ai": lambda x: special.airy(x)[0],
    "bessel_j1": special.j1,
    "modified_bessel_i0": special.i0,
    "modified_bessel_i1": special.i1,
    "modified_bessel_k0": special.k0,
    "modified_bessel_k1": special.k1,
    "scaled_modified_bessel_k0": special.k0e,
    "scaled_modified_bessel_k1": special.k1e,
    "spherical_bessel_j0": lambda x: special.spherical_jn(0, x),
}


@pytest.fixture(autouse=True)
def _numpy():
    with backends.use("numpy"):
        yield


@pytest.mark.parametrize("name", POLYNOMIALS)
def test_polynomials(name, rng):
    x = rng.uniform(-2, 2, (4, 6))
    function = getattr(minigrad.special, name)
    expected = np.where(DEGREES < 0, 0, POLYNOMIALS[name](DEGREES.clip(0), x))
    found = function(minigrad.tensor(x), minigrad.tensor(DEGREES))
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(function(minigrad.tensor(x), 3.9), POLYNOMIALS[name](3, x))
    leaf = minigrad.tensor(x, requires_grad=True)
    assert gradcheck(lambda x: function(x, minigrad.tensor(DEGREES)), leaf)
    assert function(leaf[:, :0], minigrad.tensor([], dtype=minigrad.int64)).shape == (4, 0)
    out = minigrad.empty(4, 6, dtype=minigrad.float64)
    assert function(minigrad.tensor(x), 2, out=out) is out
    np.testing.assert_allclose(out, POLYNOMIALS[name](2, x), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_bessel_functions(name, rng):
    x = rng.uniform(0, 8, 20)
    found = getattr(minigrad.special, name)(minigrad.tensor(x))
    np.testing.assert_allclose(found, FUNCTIONS[name](x), rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("name", [*POLYNOMIALS, *FUNCTIONS])
def test_dtypes_as_torch(name, torch):
    def outcomes(m):
        function = getattr(m.special, name)
        extra = (2,) if name in POLYNOMIALS else ()
        inputs = [m.tensor([1, 2]), m.tensor([True]), m.tensor([0.5]), m.tensor([0.5]).double()]
        calls = [lambda x=x: function(x, *extra) for x in inputs]
        if extra:
            calls += [lambda: function(0.5, m.tensor([1, 2])), lambda: function(1, 2)]
            calls += [lambda: function(m.tensor([0.5]), m.tensor([2.0]).double())]
        for call in calls:
            try:
                found = call()
                yield str(found.dtype).rpartition(".")[2], found.tolist()
            except TypeError as error:
                yield type(error), []

    for (ours, values), (theirs, others) in zip(outcomes(minigrad), outcomes(torch), strict=True):
        assert ours == theirs
        np.testing.assert_allclose(values, others, rtol=1e-5)


@pytest.mark.parametrize("dtype", (np.float32, np.float64))
@pytest.mark.parametrize("backend", ("numba", "numpy"))
def test_erfinv_is_one_kernel_precise_to_the_ends(backend, dtype, rng):
    tails = 1 - np.geomspace(np.finfo(dtype).eps, 0.2, 40)
    x = np.concatenate([rng.uniform(-1, 1, 200), tails, -tails, [1e-30, -0.0, 0.85, -0.85]])
    x = np.concatenate([x, [1, -1, 1.5, -2, np.nan]]).astype(dtype)
    with backends.use(backend), kernels.trace() as trace:
        found = minigrad.from_numpy(x).erfinv().numpy()
    assert [name for name, _ in trace.rows] == [
        "pointwise.erfinv" if backend == "numba" else "pointwise"
    ]
    expected = special.erfinv(x.astype(np.float64)).astype(dtype)
    np.testing.assert_allclose(found, expected, rtol=4 * np.finfo(dtype).eps)
    assert np.array_equal(np.signbit(found[:-3]), np.signbit(x[:-3]))


@pytest.mark.parametrize("n", [2, 3, 6])
def test_further_derivatives_of_digamma(n, rng):
    x = rng.uniform(0.1, 20, 50)
    found = minigrad.polygamma(n, minigrad.tensor(x)).numpy()
    np.testing.assert_allclose(found, special.polygamma(n, x), rtol=1e-13)


@pytest.mark.parametrize("dtype, tolerance", [("float32", 2e-6), ("float64", 1e-13)])
def test_the_derivative_of_digamma(dtype, tolerance, rng):
    ends = np.array([0.0, -1, -4, np.inf, np.nan, 1e-12, 0.5, 1e9], dtype)
    x = np.concatenate([ends, rng.uniform(-9.9, 40, 500).astype(dtype)])
    found, expected = minigrad.polygamma(1, minigrad.tensor(x)), special.polygamma(1, x.astype("d"))
    np.testing.assert_allclose(found.numpy(), expected, rtol=tolerance)
    assert found.numpy().dtype == dtype
