"""cdist and pdist beside torch: values, gradients of both orders."""

from __future__ import annotations

import numpy as np
import pytest

import minigrad as m

SEED = 20261127
ORDERS = [0, 1, 2, 3, float("inf")]
EXACT = "donot_use_mm_for_euclid_dist"
SHAPES = [
    ((20, 5), (7, 5)),
    ((2, 3, 4, 5), (3, 7, 5)),
    ((1, 2, 3), (4, 5, 3)),
    ((40, 33), (37, 33)),
]


def gradients(lib, function, arrays, g) -> list:
    """The result and its gradients."""
    inputs = [lib.tensor(a, requires_grad=True) for a in arrays]
    out = function(lib, *inputs)
    grads = lib.autograd.grad(out, inputs, lib.tensor(g))
    return [t.detach().numpy() for t in (out, *grads)]


def compared(torch, function, *arrays) -> None:
    shape = function(torch, *map(torch.tensor, arrays)).shape
    g = np.random.default_rng(SEED).standard_normal(tuple(shape))
    ours, right = (gradients(lib, function, arrays, g) for lib in (m, torch))
    for a, b in zip(ours, right, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("p", ORDERS)
@pytest.mark.parametrize("first, second", SHAPES)
def test_cdist(torch, first, second, p):
    rng = np.random.default_rng(SEED)
    print(f"seed {SEED}")
    a, b = rng.standard_normal(first), rng.standard_normal(second)
    b[..., 1, :] = a.reshape(-1, a.shape[-1])[0]  # a distance of 0
    compared(torch, lambda lib, a, b: lib.cdist(a, b, p=p, compute_mode=EXACT), a, b)


@pytest.mark.parametrize("p", ORDERS)
@pytest.mark.parametrize("shape", [(2, 3), (33, 5), (70, 33)])
def test_pdist(torch, shape, p):
    rng = np.random.default_rng(SEED)
    print(f"seed {SEED}")
    x = rng.standard_normal(shape)
    x[1] = x[0]
    compared(torch, lambda lib, x: lib.nn.functional.pdist(x, p), x)


@pytest.mark.parametrize("shapes", [((0, 3), (2, 3)), ((5, 0), (4, 0)), ((0, 5, 3), (0, 2, 3))])
@pytest.mark.parametrize("p", [1, 2])
def test_no_rows_or_no_columns(torch, shapes, p):
    ours, right = (lib.cdist(*map(lib.ones, shapes), p=p) for lib in (m, torch))
    np.testing.assert_array_equal(ours.numpy(), right.numpy())


@pytest.mark.parametrize("p", [1.0, 2.0, float("inf")])
def test_second_order(p, reference_backend):
    rng = np.random.default_rng(SEED)
    a, b = (m.tensor(rng.standard_normal((2, n, 4)), requires_grad=True) for n in (3, 5))
    x = a[0].detach().requires_grad_()
    for check in (m.autograd.gradcheck, m.autograd.gradgradcheck):
        assert check(lambda a, b: m.cdist(a, b, p=p), (a, b))
        assert check(lambda x: m.nn.functional.pdist(x, p), (x,))


@pytest.mark.parametrize("lead", [((), ()), ((2,), ()), ((2, 1), (3,))])
def test_distances_by_a_product(lead):
    rng = np.random.default_rng(SEED)
    a, b = rng.standard_normal((*lead[0], 27, 3)), rng.standard_normal((*lead[1], 2, 3))
    b[..., 1, :] = a.reshape(-1, 3)[0]  # a distance of 0
    found = m.cdist(m.tensor(a), m.tensor(b)).numpy()
    expected = np.sqrt(((a[..., :, None, :] - b[..., None, :, :]) ** 2).sum(-1))
    np.testing.assert_allclose(found, expected, atol=1e-7)
    b[..., 1, :] += 1
    inputs = [m.tensor(x, requires_grad=True) for x in (a, b)]
    for check in (m.autograd.gradcheck, m.autograd.gradgradcheck) if not lead[1] else ():
        assert check(m.cdist, inputs)
    g = rng.standard_normal(expected.shape)
    ours = m.autograd.grad(m.cdist(*inputs), inputs, m.tensor(g))
    exact = m.autograd.grad(m.cdist(*inputs, compute_mode=EXACT), inputs, m.tensor(g))
    for x, y in zip(ours, exact, strict=True):
        np.testing.assert_allclose(x.numpy(), y.numpy(), rtol=1e-9, atol=1e-9)
