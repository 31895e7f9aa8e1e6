"""Samples and their gradients on a GPU: those of the CPU for the same seed."""

from __future__ import annotations

import numpy as np
import pytest

import minigrad

pytestmark = pytest.mark.gpu


def drawn(where: str) -> list:
    minigrad.manual_seed(3)
    a = minigrad.tensor([0.3, 1.0, 20.0, 400.0], device=where, requires_grad=True)
    gamma, dirichlet = minigrad._standard_gamma(a), minigrad._sample_dirichlet(a)
    (gamma.log().sum() + dirichlet[0]).backward()
    rates = a.detach()
    return [
        gamma.detach(), dirichlet.detach(), a.grad, minigrad.poisson(rates),
        minigrad.binomial(rates.ceil(), minigrad.full_like(rates, 0.7)),
        minigrad.distributions.VonMises(rates, rates).sample((3,)),
        minigrad.empty(5, device=where).cauchy_(), minigrad.empty(5, device=where).geometric_(0.2),
    ]  # fmt: skip


def test_samples_and_gradients():
    for mine, wanted in zip(drawn("cuda"), drawn("cpu")):
        assert mine.device.type == "cuda"
        np.testing.assert_allclose(mine.cpu().numpy(), wanted.numpy(), 1e-4)


def test_values():
    d, where = minigrad.distributions, "cuda"
    loc, scale = minigrad.zeros(3, device=where), minigrad.ones(3, device=where)
    assert float(d.kl_divergence(d.Normal(loc, scale), d.Laplace(loc, scale))[0]) > 0
    for one in (d.Gumbel(loc, scale), d.StudentT(scale * 3), d.Weibull(scale, scale)):
        sample = one.sample((4,))
        assert sample.device.type == "cuda" and bool(one.log_prob(sample).isfinite().all())
    y = d.StickBreakingTransform()(loc)
    assert bool(((y - 0.25).abs() < 1e-6).all())
    assert (
        bool(d.constraints.simplex.check(y)) and d.transform_to(d.constraints.positive)(loc).is_cuda
    )
