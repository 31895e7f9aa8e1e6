"""Divergences of all pairs of classes, against torch and against integrals."""

from __future__ import annotations

import math

import numpy as np
import pytest

import minigrad
from minigrad.distributions import kl, kl_divergence
from tests.distributions.cases import NAMES, arguments, make

pytestmark = pytest.mark.usefixtures("reference_backend")


@pytest.mark.parametrize("name", NAMES)
def test_all_pairs_as_torch(name, torch, rng):
    """Also those without a formula: torch has none either."""
    first, others = arguments(rng, (3, 2)), arguments(rng, (3, 2))
    known = 0
    for other in NAMES:
        if name == other == "Wishart":
            continue  # torch adds one parameter over the batch: the next test
        pairs = [
            [make(t, n, given[n], grad=False)[0] for n, given in ((name, first), (other, others))]
            for t in (minigrad, torch)
        ]
        try:
            wanted = torch.distributions.kl_divergence(*pairs[1])
        except NotImplementedError:
            with pytest.raises(NotImplementedError):
                kl_divergence(*pairs[0])
            continue
        mine = kl_divergence(*pairs[0])
        np.testing.assert_allclose(
            mine.numpy(), wanted.expand(mine.shape).numpy(), 1e-7, 1e-7, err_msg=other
        )
        known += 1
    assert known or (name not in [p.__name__ for p, _ in kl._REGISTRY])


@pytest.mark.parametrize("name", ["Bernoulli", "Categorical", "OneHotCategorical"])
def test_probabilities_of_nothing_as_torch(name, torch):
    p, q = np.meshgrid([0.0, 0.3, 1.0], [0.0, 0.6, 1.0])
    found = []
    for t in (minigrad, torch):
        pair = [t.tensor(v) for v in (p, q)]
        given = pair if name == "Bernoulli" else [t.stack([v, 1 - v], -1) for v in pair]
        value = t.distributions.kl_divergence(*(getattr(t.distributions, name)(v) for v in given))
        found.append(value.numpy())
    np.testing.assert_allclose(found[0], found[1], 1e-9, 1e-12)
    assert np.isinf(found[0]).any() and (found[0] == 0).any()


def test_wishart_as_torch_without_a_batch(torch, rng):
    first, second = (arguments(rng, ())["Wishart"] for _ in range(2))
    values = []
    for t in (minigrad, torch):
        p, q = (make(t, "Wishart", given, grad=False)[0] for given in (first, second))
        values.append(t.distributions.kl_divergence(p, q).item())
    assert values[0] == pytest.approx(values[1], rel=1e-9)


@pytest.mark.parametrize(
    ("p", "q", "low", "high"),
    [
        ("Beta(2.0, 3.0)", "Uniform(0.0, 1.0)", 0, 1),
        ("ContinuousBernoulli(0.3)", "Uniform(0.0, 1.0)", 0, 1),  # torch: infinite
        ("Uniform(0.0, 1.0)", "ContinuousBernoulli(0.3)", 0, 1),  # torch: infinite
        ("Uniform(0.2, 0.9)", "Beta(2.0, 3.0)", 0.2, 0.9),
        ("Chi2(3.0)", "Gumbel(0.5, 2.0)", 0, 60),  # a subclass of Gamma
        ("Normal(0.5, 2.0)", "Laplace(-0.3, 1.5)", -15, 15),
        ("Pareto(2.0, 3.0)", "Gamma(1.5, 0.7)", 2, 4000),
    ],
)
def test_as_integrals(p, q, low, high):
    from scipy import integrate

    p, q = (eval(f"d.{text}", {"d": minigrad.distributions}) for text in (p, q))

    def integrand(x):
        x = minigrad.tensor(x, dtype=minigrad.float32)
        log_p = p.log_prob(x)
        return float(log_p.exp() * (log_p - q.log_prob(x)))

    wanted = integrate.quad(integrand, low + 1e-6, high - 1e-6, limit=200)[0]
    assert float(kl_divergence(p, q)) == pytest.approx(wanted, rel=2e-4)


def test_the_most_specific_pair_counts_and_ambiguity_warns():
    d = minigrad.distributions

    class A(d.Normal):
        pass

    class B(d.Normal):
        pass

    before = dict(kl._REGISTRY)
    try:
        kl.register_kl(A, d.Normal)(lambda p, q: 1.0)
        assert kl_divergence(A(0.0, 1.0), B(0.0, 1.0)) == 1.0
        assert float(kl_divergence(B(0.0, 1.0), A(0.0, 1.0))) == 0.0
        kl.register_kl(d.Normal, B)(lambda p, q: 2.0)
        with pytest.warns(RuntimeWarning, match=r"register_kl\(A, B\)"):
            assert kl_divergence(A(0.0, 1.0), B(0.0, 1.0)) == 1.0
    finally:
        kl._REGISTRY.clear()
        kl._REGISTRY.update(before)
    with pytest.raises(TypeError, match="Expected type_q to be a Distribution subclass"):
        kl.register_kl(d.Normal, d.Normal(0.0, 1.0))
    assert math.isinf(float(kl_divergence(d.Normal(0.0, 1.0), d.Exponential(1.0))))
