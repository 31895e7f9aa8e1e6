"""Distributions against torch: log-probabilities, moments, divergences, gradients, errors; samples
by their moments."""

from __future__ import annotations

import pytest

import minigrad
from minigrad import distributions
from tests.nn.helpers import close

pytestmark = pytest.mark.usefixtures("reference_backend")


def makers(rng):
    """Per distribution, functions of a namespace that make it, each with other parameters."""
    loc, wide, scale = rng.standard_normal((3, 3, 2))
    scale, probs = abs(scale) + 0.3, rng.random((4, 3, 5)) + 0.1
    factor = rng.standard_normal((2, 3, 3))
    spd = factor @ factor.transpose(0, 2, 1) + 2 * minigrad.eye(3).numpy().astype(float)
    means = rng.standard_normal((2, 3))

    def leaf(t, value):
        return t.tensor(value, requires_grad=True)

    return {
        "Normal": [
            lambda t: t.distributions.Normal(leaf(t, loc), leaf(t, scale)),
            lambda t: t.distributions.Normal(leaf(t, wide[0]), 2.0),
        ],
        "Uniform": [
            lambda t: t.distributions.Uniform(leaf(t, loc), leaf(t, loc + scale)),
            lambda t: t.distributions.Uniform(leaf(t, loc - 1), leaf(t, loc + 9)),
        ],
        "Bernoulli": [
            lambda t: t.distributions.Bernoulli(leaf(t, probs[0] / 2)),
            lambda t: t.distributions.Bernoulli(logits=leaf(t, probs[1] - 0.5)),
        ],
        "Categorical": [
            lambda t: t.distributions.Categorical(leaf(t, probs[2])),
            lambda t: t.distributions.Categorical(logits=leaf(t, probs[3])),
        ],
        "MultivariateNormal": [
            lambda t: t.distributions.MultivariateNormal(leaf(t, means), leaf(t, spd)),
            lambda t: t.distributions.MultivariateNormal(
                leaf(t, means[0]), precision_matrix=leaf(t, spd[0])
            ),
        ],
        "Independent": [
            lambda t: t.distributions.Independent(
                t.distributions.Normal(leaf(t, loc), leaf(t, scale)), 1
            ),
            lambda t: t.distributions.Independent(
                t.distributions.Normal(leaf(t, wide), leaf(t, scale)), 1
            ),
        ],
    }


NAMES = ["Normal", "Uniform", "Bernoulli", "Categorical", "MultivariateNormal", "Independent"]


@pytest.mark.parametrize("name", NAMES)
def test_values_and_gradients_as_torch(name, torch, rng):
    for make in makers(rng)[name]:
        mine, theirs = make(minigrad), make(torch)
        assert tuple(mine.batch_shape) == tuple(theirs.batch_shape)
        assert tuple(mine.event_shape) == tuple(theirs.event_shape)
        sample = theirs.sample((4,))
        own = minigrad.from_numpy(sample.numpy())
        pairs = [(mine.log_prob(own), theirs.log_prob(sample)), (mine.entropy(), theirs.entropy())]
        if name != "Categorical":  # its mean is NaN
            pairs += [(mine.mean, theirs.mean), (mine.variance, theirs.variance)]
            pairs += [(mine.stddev, theirs.stddev)]
        if name in ("Normal", "Uniform"):
            pairs.append((mine.cdf(own), theirs.cdf(sample)))
        for a, b in pairs:
            close(a, b, 1e-8)
        for x, y in zip(leaves(mine), leaves(theirs)):
            x.grad = y.grad = None
        mine.log_prob(own).sum().backward()
        theirs.log_prob(sample).sum().backward()


def leaves(distribution):
    base = getattr(distribution, "base_dist", distribution)
    return [v for v in vars(base).values() if getattr(v, "is_leaf", False) and v.requires_grad]


def test_gradients_of_log_probabilities_as_torch(torch, rng):
    values = abs(rng.standard_normal((3, 4))) + 0.2
    actions = rng.integers(0, 4, 3)
    for program in (
        lambda t, x: t.distributions.Categorical(x).log_prob(t.tensor(actions)),
        lambda t, x: t.distributions.Categorical(logits=x).entropy(),
        lambda t, x: t.distributions.Normal(x, x).log_prob(t.tensor(0.3, dtype=t.float64)),
        lambda t, x: t.distributions.Bernoulli(logits=x).entropy(),
        lambda t, x: t.distributions.MultivariateNormal(
            x[0], x.T @ x + 0.1 * t.eye(4, dtype=t.float64)
        ).log_prob(x[1]),
    ):
        mine = minigrad.tensor(values, requires_grad=True)
        theirs = torch.tensor(values, requires_grad=True)
        a, b = program(minigrad, mine), program(torch, theirs)
        close(a, b, 1e-8)
        a.sum().backward(), b.sum().backward()
        close(mine.grad, theirs.grad, 1e-7)


@pytest.mark.parametrize("name", NAMES)
def test_divergences_as_torch(name, torch, rng):
    first, second = makers(rng)[name]
    if name == "Bernoulli":

        def second(t):
            return t.distributions.Bernoulli(logits=t.zeros(3, 5, dtype=t.float64))

    for p, q in ((first, second), (first, first)):
        mine = distributions.kl_divergence(p(minigrad), q(minigrad))
        close(mine, torch.distributions.kl_divergence(p(torch), q(torch)), 1e-8)


@pytest.mark.parametrize("name", NAMES)
def test_samples_by_their_moments(name, rng, seed):
    minigrad.manual_seed(seed)
    distribution = makers(rng)[name][0](minigrad)
    n = 4000
    sample = distribution.sample((n,))
    shape = (*distribution.batch_shape, *distribution.event_shape)
    assert tuple(sample.shape) == (n, *shape) and not sample.requires_grad
    if name == "Categorical":
        found = minigrad.stack([(sample == k).double().mean(0) for k in range(5)], -1)
        wanted, variance = distribution.probs, distribution.probs * (1 - distribution.probs)
    else:
        found, wanted, variance = sample.mean(0), distribution.mean, distribution.variance
    assert bool(((found - wanted).abs() < 5 * (variance / n).sqrt()).all())
    if distribution.has_rsample:
        assert distribution.rsample((2,)).requires_grad


def test_text_as_torch(torch):
    for program in (
        lambda t: t.distributions.Normal(0.0, 1.0),
        lambda t: t.distributions.Normal(t.zeros(3), 1.0),
        lambda t: t.distributions.Categorical(t.ones(3)),
        lambda t: t.distributions.Bernoulli(logits=t.ones(3)),
        lambda t: t.distributions.Independent(t.distributions.Normal(t.zeros(3), 1.0), 1),
    ):
        assert repr(program(minigrad)) == repr(program(torch)).replace("torch", "minigrad")


@pytest.mark.parametrize(
    "program",
    [
        lambda t: t.distributions.Categorical(),
        lambda t: t.distributions.Categorical(t.tensor(1.0)),
        lambda t: t.distributions.Bernoulli(t.ones(2), t.ones(2)),
        lambda t: t.distributions.Normal(t.zeros(2), t.tensor([1.0, -1.0])),
        lambda t: t.distributions.Bernoulli(t.tensor([0.5, 2.0])),
        lambda t: t.distributions.Categorical(t.ones(3)).log_prob(t.tensor(3)),
        lambda t: t.distributions.Bernoulli(t.tensor(0.5)).log_prob(t.tensor(0.3)),
        lambda t: t.distributions.Normal(t.zeros(2), 1.0).log_prob(t.zeros(3)),
        lambda t: t.distributions.Normal(0.0, 1.0).log_prob(0.5),
        lambda t: t.distributions.MultivariateNormal(t.zeros(2)),
        lambda t: t.distributions.kl_divergence(
            t.distributions.Normal(0.0, 1.0), t.distributions.Categorical(t.ones(3))
        ),
        lambda t: t.distributions.Independent(t.distributions.Normal(0.0, 1.0), 1),
    ],
    ids=range(12),
)
def test_errors_as_torch(program, same_error):
    same_error(program)


def test_without_checks():
    distribution = distributions.Normal(0.0, -1.0, validate_args=False)
    assert distribution.stddev.item() == -1
    with pytest.raises(ValueError, match=r"PositiveDefinite\(\)"):
        distributions.MultivariateNormal(minigrad.zeros(2), -minigrad.eye(2))
    with pytest.raises(ValueError, match="Expected parameter low"):
        distributions.Uniform(1.0, 0.0)


def test_parameters_of_the_full_shape_stay_themselves():
    """They are leaves that an optimiser can take from the distribution."""
    loc, scale = minigrad.zeros(3, requires_grad=True), minigrad.ones(3, requires_grad=True)
    normal = distributions.Normal(loc, scale)
    assert normal.loc is loc and normal.scale is scale
    wide = distributions.Normal(loc, minigrad.ones(2, 3))
    assert wide.loc.shape == (2, 3)
    optimizer = minigrad.optim.SGD([normal.loc], lr=1.0)
    normal.log_prob(minigrad.ones(3)).sum().neg().backward()
    optimizer.step()
    assert loc.tolist() == [1, 1, 1]
