"""Running products, extrema and logarithms of sums, beside torch."""

from __future__ import annotations

import numpy as np
import pytest

import minigrad as m

pytestmark = pytest.mark.usefixtures("reference_backend")

SEED = 20261126
SHAPES = [((5, 7, 3), 1), ((4, 6), -1), ((4, 6), 0), ((9,), 0), ((0, 3), 0), ((3, 0), 1), ((), 0)]
TOLERANCE = {"float32": 1e-5, "float64": 1e-12, "float16": 2e-3, "int64": 0, "complex64": 1e-4}
TOLERANCE |= {"bool": 0, "uint8": 0}


def values(rng, shape, dtype, zeros):
    x = np.asarray(rng.standard_normal(shape) * 2)
    if dtype.startswith("complex"):
        x = x + 1j * rng.standard_normal(shape)
    return np.where(rng.random(shape) < zeros, 0, x).astype(dtype)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("name", ["cumprod", "cummax", "cummin", "logcumsumexp"])
@pytest.mark.parametrize("shape, dim", SHAPES)
def test_values_are_torchs(torch, name, dtype, shape, dim):
    if dtype.startswith("complex") and name != "cumprod":
        pytest.skip("of real numbers")
    if dtype in ("int64", "bool", "uint8") and name == "logcumsumexp":
        pytest.skip("of floats")
    rng = np.random.default_rng(SEED)
    print(f"seed {SEED}")
    x = values(rng, shape, dtype.replace("uint8", "int8"), 0.2).astype(dtype)
    ours, expected = getattr(m.tensor(x), name)(dim), getattr(torch.tensor(x), name)(dim)
    if name in ("cummax", "cummin"):
        np.testing.assert_array_equal(ours.indices.numpy(), expected.indices.numpy())
        ours, expected = ours.values, expected.values
    tolerance = TOLERANCE[dtype]
    np.testing.assert_allclose(ours.numpy(), expected.numpy(), rtol=tolerance, atol=tolerance)
    assert ours.numpy().dtype == expected.numpy().dtype


@pytest.mark.parametrize("zeros", [0, 0.2, 0.6])
@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("shape, dim", [case for case in SHAPES if 0 not in case[0]])
def test_gradients_of_running_products(torch, shape, dim, zeros, create_graph):
    rng = np.random.default_rng(SEED)
    print(f"seed {SEED}")
    x, g = (values(rng, shape, "float64", share) for share in (zeros, 0))
    found = []
    for lib in (m, torch):
        t = lib.tensor(x, requires_grad=True)
        (first,) = lib.autograd.grad(t.cumprod(dim), t, lib.tensor(g), create_graph=create_graph)
        second = lib.zeros(())
        if create_graph and first.requires_grad:
            (second,) = lib.autograd.grad((first * first).sum(), t)
        found.append((first.detach().numpy(), second.numpy()))
    for ours, right in zip(*found, strict=True):
        np.testing.assert_allclose(ours, right, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["cummax", "cummin"])
@pytest.mark.parametrize("shape, dim", SHAPES)
def test_running_extrema_with_ties_and_nan(torch, name, shape, dim):
    """A NaN wins and stays; of equal elements, and of NaN, the last one has the gradient."""
    rng = np.random.default_rng(SEED)
    print(f"seed {SEED}")
    x = np.asarray(np.round(values(rng, shape, "float64", 0)))
    x = np.where(rng.random(shape) < 0.1, np.nan, x)
    g = values(rng, shape, "float64", 0)
    found = []
    for lib in (m, torch):
        t = lib.tensor(x, requires_grad=True)
        pair = getattr(t, name)(dim)
        (grad,) = lib.autograd.grad(pair.values, t, lib.tensor(g))
        assert not pair.indices.requires_grad
        if shape:
            assert type(pair.values.grad_fn).__name__ == f"{name.capitalize()}Backward0"
        results = pair.values, pair.indices, grad
        found.append([result.detach().numpy() for result in results])
    for ours, right in zip(*found, strict=True):
        np.testing.assert_allclose(ours, right, rtol=1e-12)


@pytest.mark.parametrize("name", ["cummax", "cummin"])
@pytest.mark.parametrize("dtype", ["uint16", "uint64", "complex64"])
def test_running_extrema_refuse_what_torch_does(torch, name, dtype):
    for lib in (m, torch):
        x = lib.ones(3).to(getattr(lib, dtype))
        with pytest.raises(NotImplementedError, match=f'"{name}_cpu" not implemented'):
            getattr(x, name)(0)


def test_derivatives_of_logcumsumexp_in_a_direction(rng):
    """Forward over reverse: the vjp is linear in the cotangent, at zero too."""
    x, v, w = (m.tensor(rng.standard_normal((3, 5))) for _ in range(3))
    step = 1e-6

    def loss(x):
        return (x.logcumsumexp(1) * w).sin().sum()

    def slope(function):
        return (function(x + step * v) - function(x - step * v)) / (2 * step)

    _, tangent = m.func.jvp(lambda x: x.logcumsumexp(1), (x,), (v,))
    np.testing.assert_allclose(tangent, slope(lambda x: x.logcumsumexp(1)), rtol=1e-6, atol=1e-8)
    _, change = m.func.jvp(m.func.grad(loss), (x,), (v,))
    np.testing.assert_allclose(change, slope(m.func.grad(loss)), rtol=1e-6, atol=1e-8)
    assert m.autograd.gradgradcheck(lambda x: x.logcumsumexp(0), (x.clone().requires_grad_(),))
