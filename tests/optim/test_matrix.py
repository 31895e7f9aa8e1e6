"""Muon: its iterations by the formula, the rest step by step beside torch."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

import minigrad
from minigrad import optim
from minigrad.optim import matrix
from tests.optim.helpers import assert_equal

pytestmark = pytest.mark.usefixtures("reference_backend")

SHAPES = [(3, 4), (9, 2), (1, 31)]


@pytest.mark.parametrize("shape", [(3, 4), (33, 7), (16, 16)])
def test_newton_schulz(shape, rng):
    a, b, c = coefficients = (3.4445, -4.775, 2.0315)
    grad = rng.normal(size=shape).astype(np.float32)
    got = matrix._orthogonalised(minigrad.tensor(grad), coefficients, 5, 1e-7)
    assert got.dtype == minigrad.bfloat16 and tuple(got.shape) == shape
    u, s, v = np.linalg.svd(grad.astype(np.float64), full_matrices=False)
    s /= np.linalg.norm(s)
    for _ in range(5):
        s = a * s + b * s**3 + c * s**5
    assert 0.6 < s.min() and s.max() < 1.3
    # Each iteration rounds to 8 bits and multiplies the error of small singular values by up to a.
    np.testing.assert_allclose(got.float().numpy(), u @ np.diag(s) @ v, atol=0.08)


@pytest.mark.parametrize("shape", [(3, 4), (9, 2), (33, 17)])
def test_newton_schulz_rounds_as_torch(shape, rng, torch):
    theirs = importlib.import_module("torch.optim._muon")._zeropower_via_newtonschulz
    grad = rng.normal(size=shape).astype(np.float32)
    options = (3.4445, -4.775, 2.0315), 5, 1e-7
    got = matrix._orthogonalised(minigrad.tensor(grad), *options).float().numpy()
    wanted = theirs(torch.tensor(grad), *options).float().numpy()
    np.testing.assert_allclose(got, wanted, atol=0.02)  # a sum at a tie rounds either way


@pytest.mark.parametrize(
    "options",
    [
        {"lr": 0.05},
        {"lr": 0.05, "nesterov": False, "momentum": 0.8, "weight_decay": 0.3},
        {"lr": 0.05, "adjust_lr_fn": "match_rms_adamw", "weight_decay": 0},
    ],
)
def test_muon_steps_as_torch(options, seed, torch, monkeypatch):
    """Without the iterations."""
    theirs = importlib.import_module("torch.optim._muon")
    monkeypatch.setattr(theirs, "_zeropower_via_newtonschulz", lambda grad, *options: grad)
    monkeypatch.setattr(matrix, "_orthogonalised", lambda grad, *options: grad)
    found = []
    for t in (minigrad, torch):
        rng = np.random.default_rng(seed)
        params = [t.nn.Parameter(t.tensor(rng.normal(size=s))) for s in SHAPES]
        optimizer = t.optim.Muon(params, **options)
        for _ in range(20):
            for p in params:
                p.grad = t.tensor(rng.normal(size=tuple(p.shape)))
            optimizer.step()
        found.append((params, optimizer))
    (mine, a), (wanted, b) = found
    assert_equal(mine, wanted, 1e-12)
    assert repr(a) == repr(b)
    state, wanted_state = a.state_dict()["state"], b.state_dict()["state"]
    assert_equal([s["momentum_buffer"] for s in state.values()],
                 [s["momentum_buffer"] for s in wanted_state.values()], 1e-12)  # fmt: skip
    assert set(state[0]) == set(wanted_state[0])


def test_muon_learns(rng):
    x = minigrad.tensor(rng.normal(size=(64, 8))).float()
    y = x @ minigrad.tensor(rng.normal(size=(8, 3))).float()
    layer = minigrad.nn.Linear(8, 3, bias=False)
    optimizer = optim.Muon(layer.parameters(), lr=0.1, weight_decay=0)
    losses = []
    for _ in range(80):
        loss = (layer(x) - y).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.2 * losses[0]
