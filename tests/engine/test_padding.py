"""Padding by elements of the tensor itself, beside torch."""

from __future__ import annotations

import numpy as np
import pytest

import minigrad as m
from minigrad.nn import functional as F

pytestmark = pytest.mark.usefixtures("reference_backend")

SEED = 20261126
SHAPES = [((2, 3, 7), 1), ((2, 3, 5, 6), 2), ((1, 2, 4, 5, 3), 3), ((3, 7), 1), ((0, 2, 7), 1)]


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
@pytest.mark.parametrize("shape, dims", SHAPES)
def test_values_and_gradients_are_torchs(torch, mode, shape, dims):
    rng = np.random.default_rng(SEED)
    print(f"seed {SEED}")
    compared = 0
    for attempt in range(30):
        pad = rng.integers(-2 if attempt % 2 else 0, 4, 2 * dims).tolist()
        ours = m.tensor(rng.standard_normal(shape), requires_grad=True)
        theirs = torch.tensor(ours.detach().numpy(), requires_grad=True)
        try:
            y = F.pad(ours, pad, mode)
            expected = torch.nn.functional.pad(theirs, pad, mode)
        except RuntimeError:
            continue  # one of them refuses a padding wider than what there is
        np.testing.assert_array_equal(y.detach().numpy(), expected.detach().numpy())
        g = rng.standard_normal(y.shape)
        if y.numel():
            (found,) = m.autograd.grad(y, ours, m.tensor(g))
            (right,) = torch.autograd.grad(expected, theirs, torch.tensor(g))
            np.testing.assert_allclose(found.numpy(), right.numpy(), rtol=1e-12, atol=1e-12)
        compared += 1
    assert compared > 5


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
def test_the_gradient_can_be_differentiated(mode):
    x = m.rand(2, 4, 5, dtype=m.float64, requires_grad=True)
    assert m.autograd.gradcheck(lambda x: F.pad(x * x, (2, 1, 1, 3), mode), (x,))
    assert m.autograd.gradgradcheck(lambda x: F.pad(x * x, (2, 1, 1, 3), mode), (x,))


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
def test_complex_numbers(torch, mode):
    rng = np.random.default_rng(SEED)
    x = (rng.standard_normal((3, 4, 2, 5)) + 1j * rng.standard_normal((3, 4, 2, 5))).T
    ours, theirs = m.tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
    y = F.pad(ours, (2, 1, 1, 2), mode)
    expected = torch.nn.functional.pad(theirs, (2, 1, 1, 2), mode)
    np.testing.assert_array_equal(y.detach().numpy(), expected.detach().numpy())
    (found,) = m.autograd.grad(y, ours, y.detach())
    (right,) = torch.autograd.grad(expected, theirs, expected.detach())
    np.testing.assert_allclose(found.numpy(), right.numpy(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
@pytest.mark.parametrize("shape", [(0, 2, 3, 4), (2, 0, 3, 4)])
def test_no_planes(torch, mode, shape):
    if mode != "circular" and shape[1] == 0:
        for lib in (torch, m):
            with pytest.raises(RuntimeError):
                lib.nn.functional.pad(lib.ones(shape), (1, 2, 2, 1), mode)
        return
    y = F.pad(m.ones(shape), (1, 2, 2, 1), mode)
    assert y.shape == (*shape[:2], 6, 7)


def test_what_a_crop_leaves_may_be_too_little():
    with pytest.raises(RuntimeError, match="Padding size should be less"):
        F.pad(m.ones(1, 1, 3), (3, -2), "circular")
    with pytest.raises(RuntimeError, match="Padding size should be less"):
        F.pad(m.ones(1, 1, 3), (3, 0), "reflect")
