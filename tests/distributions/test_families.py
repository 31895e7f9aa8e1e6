"""Every family against torch: values, gradients, expanded batches, text."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import minigrad
from minigrad import backends, distributions
from tests.distributions.cases import NAMES, arguments, make

# torch's Bessel functions are polynomials with an error of 1e-7, its log(n!) is in float32
TOLERANCE = {"VonMises": 1e-6, "Multinomial": 1e-7}


@pytest.fixture(autouse=True)
def reference():
    """Formulas do not depend on kernels: nothing to compile."""
    with backends.use("numpy"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's, on singular samples and on its own code
        yield


def result(function, *args):
    """A value, or the type of the error."""
    try:
        return function(*args)
    except Exception as error:
        return type(error)


def same(what, mine, theirs, tolerance):
    if isinstance(theirs, type) or isinstance(mine, type):
        assert mine is theirs, what
        return
    a, b = mine.detach().numpy(), theirs.detach().numpy()
    assert a.shape == b.shape and a.dtype == b.dtype, what
    np.testing.assert_allclose(a, b, tolerance, tolerance, err_msg=what)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", [(2,), (3, 2)], ids=str)
def test_values_and_gradients_as_torch(name, shape, torch, rng):
    given, tolerance = arguments(rng, shape)[name], TOLERANCE.get(name, 1e-8)
    mine, leaves = make(minigrad, name, given)
    theirs, their_leaves = make(torch, name, given)
    for attribute in ("batch_shape", "event_shape"):
        assert tuple(getattr(mine, attribute)) == tuple(getattr(theirs, attribute))
    for attribute in ("has_rsample", "has_enumerate_support"):
        assert getattr(mine, attribute) == getattr(theirs, attribute)
    assert repr(mine).replace("minigrad", "torch") == repr(theirs)
    sample = theirs.sample((4,))
    values = minigrad.from_numpy(sample.numpy())
    levels = rng.random((4, *shape))
    for attribute in ("mean", "mode", "variance", "stddev"):
        a, b = (result(getattr, d, attribute) for d in (mine, theirs))
        same(attribute, a, b, tolerance)
    for method in ("log_prob", "cdf"):
        a = result(lambda m: getattr(mine, m)(values), method)
        b = result(lambda m: getattr(theirs, m)(sample), method)
        same(method, a, b, tolerance)
    a, b = result(mine.icdf, minigrad.tensor(levels)), result(theirs.icdf, torch.tensor(levels))
    same("icdf", a, b, tolerance)
    same("entropy", result(mine.entropy), result(theirs.entropy), tolerance)
    for expand in (True, False):
        a, b = (result(d.enumerate_support, expand) for d in (mine, theirs))
        same("enumerate_support", a, b, tolerance)
    mine.log_prob(values).sum().backward()
    theirs.log_prob(sample).sum().backward()
    for a, b in zip(leaves, their_leaves):
        assert (a.grad is None) == (b.grad is None)
        if b.grad is not None:
            same("gradient", a.grad, b.grad, 10 * tolerance)


@pytest.mark.parametrize("name", NAMES)
def test_expanded_as_torch(name, torch, rng):
    given = arguments(rng, (2,))[name]
    mine, _ = make(minigrad, name, given)
    theirs, _ = make(torch, name, given)
    mine, theirs = mine.expand((3, 2)), theirs.expand((3, 2))
    assert repr(mine).replace("minigrad", "torch") == repr(theirs)
    assert tuple(mine.batch_shape) == (3, 2) and mine.event_shape == theirs.event_shape
    sample = theirs.sample()
    log_prob = mine.log_prob(minigrad.from_numpy(sample.numpy()))
    same("log_prob", log_prob, theirs.log_prob(sample), TOLERANCE.get(name, 1e-8))
    same("mean", result(getattr, mine, "mean"), result(getattr, theirs, "mean"), 1e-8)
    assert mine.sample((5,)).shape == theirs.sample((5,)).shape


@pytest.mark.parametrize("name", ["LowRankMultivariateNormal", "MultivariateNormal", "Wishart"])
def test_matrices_that_were_computed_before_it_is_expanded(name, torch, rng):
    given = arguments(rng, (2,))[name]
    mine, theirs = (make(t, name, given)[0] for t in (minigrad, torch))
    for matrix in ("covariance_matrix", "precision_matrix", "scale_tril"):
        assert getattr(mine, matrix).shape == (2, 3, 3)
        both = getattr(mine.expand((4, 2)), matrix), getattr(theirs.expand((4, 2)), matrix)
        same(matrix, *both, 1e-8)


@pytest.mark.parametrize("name", NAMES)
def test_own_samples_are_in_the_support(name, rng, seed):
    minigrad.manual_seed(seed)
    distribution, leaves = make(minigrad, name, arguments(rng, (2,))[name])
    sample = distribution.sample((50,))
    assert not sample.requires_grad
    assert bool(distribution.log_prob(sample).isfinite().all())
    if distribution.has_rsample:
        distribution.rsample((3,)).sum().backward()
        assert all(leaf.grad is not None for leaf in leaves if leaf.dim() or len(leaves) == 1)


def test_generalized_pareto_as_torch(torch, rng):
    """In float32, as torch's does not take float64; with the exponential distribution at 0."""
    value = rng.random(4).astype(np.float32) + 0.1

    def program(t):
        c = t.tensor([0.3, 0.0, -0.4, 0.7])
        d = t.distributions.GeneralizedPareto(t.zeros(4), t.full((4,), 2.0), c)
        v = t.tensor(value)
        return [
            d.log_prob(v), d.cdf(v), d.icdf(v / 2), d.entropy(), d.mean, d.variance, d.mode,
            d.support.upper_bound,
        ]  # fmt: skip

    for mine, theirs in zip(program(minigrad), program(torch)):
        same("GeneralizedPareto", mine, theirs, 1e-5)


def test_mixture_as_torch(torch, rng):
    locs, scales, weights = (
        rng.standard_normal((2, 5, 3)),
        rng.random((2, 5, 3)) + 0.1,
        rng.random(5),
    )
    value = rng.standard_normal((4, 2, 3))

    def program(t):
        normal = t.distributions.Normal(t.tensor(locs), t.tensor(scales))
        mixture = t.distributions.Categorical(t.tensor(weights).expand(2, 5))
        vectors = t.distributions.MixtureSameFamily(mixture, t.distributions.Independent(normal, 1))
        numbers = t.distributions.MixtureSameFamily(
            t.distributions.Categorical(t.tensor(weights)),
            t.distributions.Normal(t.tensor(locs[0, :, 0]), t.tensor(scales[0, :, 0])),
        )
        v = t.tensor(value)
        wide = numbers.expand((2,))
        found = [vectors.log_prob(v), vectors.mean, vectors.variance]
        found += [numbers.cdf(v[..., 0, 0]), numbers.log_prob(v), wide.log_prob(v[..., 0])]
        return found, repr(vectors), repr(vectors.support), vectors.sample((6,)).shape

    (mine, *texts, shape), (theirs, *expected, wanted) = program(minigrad), program(torch)
    for a, b in zip(mine, theirs):
        same("mixture", a, b, 1e-9)
    assert [text.replace("minigrad", "torch") for text in texts] == expected and shape == wanted


def test_density_of_singular_matrices_as_torch(torch):
    def program(t):
        scale = t.tensor([[2.0, 0.0], [1.0, 1.5]], dtype=t.float64)
        d = t.distributions.Wishart(
            t.tensor(4.0, dtype=t.float64), scale_tril=scale, validate_args=False
        )
        return [
            d.log_prob(t.tensor(m, dtype=t.float64)) for m in ([[1.0, 1], [1, 1]], [[3, 1], [1, 2]])
        ]

    for mine, theirs in zip(program(minigrad), program(torch)):
        same("Wishart", mine, theirs, 1e-9)


def test_entropy_of_exponential_families_by_their_normalisers(rng):
    """The general formula, on those that also have one of their own."""
    for name in ("Bernoulli", "Normal", "Exponential", "Gamma", "Wishart", "ContinuousBernoulli"):
        distribution, _ = make(minigrad, name, arguments(rng, (2,))[name], grad=False)
        general = distributions.ExponentialFamily.entropy(distribution)
        np.testing.assert_allclose(
            general.detach().numpy(), distribution.entropy().numpy(), 1e-8, 1e-8
        )


@pytest.mark.parametrize(
    "program",
    [
        lambda t: t.distributions.Gamma(t.ones(2), -t.ones(2)),
        lambda t: t.distributions.Gamma(1.0, 1.0).log_prob(t.tensor(-1.0)),
        lambda t: t.distributions.Dirichlet(t.tensor(1.0)),
        lambda t: t.distributions.Dirichlet(t.ones(3)).log_prob(t.ones(3)),
        lambda t: t.distributions.Dirichlet(t.ones(3)).log_prob(t.ones(2) / 2),
        lambda t: t.distributions.Beta("a", 1.0),
        lambda t: t.distributions.Geometric(t.tensor([0.0, 0.5])),
        lambda t: t.distributions.Binomial(t.tensor([3.0, 4.0]), 0.5 * t.ones(2)).entropy(),
        lambda t: t.distributions.Binomial(3, t.tensor(0.5)).log_prob(t.tensor(4.0)),
        lambda t: t.distributions.Multinomial(t.ones(2), t.ones(3)),
        lambda t: t.distributions.Uniform(1.0, 0.0),
        lambda t: t.distributions.Uniform(0.0, 1.0).log_prob(t.tensor(2.0)),
        lambda t: t.distributions.LKJCholesky(1),
        lambda t: t.distributions.Wishart(1.0, t.eye(3)),
        lambda t: t.distributions.MultivariateNormal(t.zeros(2), -t.eye(2)),
        lambda t: t.distributions.LowRankMultivariateNormal(t.zeros(2), t.ones(3, 1), t.ones(2)),
        lambda t: t.distributions.MixtureSameFamily(
            t.distributions.Categorical(t.ones(3)), t.distributions.Normal(t.zeros(2), 1.0)
        ),
        lambda t: t.distributions.TransformedDistribution(t.distributions.Normal(0.0, 1.0), 3),
        lambda t: t.distributions.TransformedDistribution(
            t.distributions.Normal(0.0, 1.0), t.distributions.StickBreakingTransform()
        ),
        lambda t: t.distributions.NegativeBinomial(-1.0, t.tensor(0.5)),
        lambda t: t.distributions.Distribution.set_default_validate_args(3),
        lambda t: t.distributions.Poisson(1.0).cdf(t.tensor(1.0)),
    ],
    ids=range(22),
)
def test_errors_as_torch(program, same_error):
    same_error(program)


def test_the_package_is_imported_at_its_first_use():
    import subprocess
    import sys

    program = (
        "import sys, minigrad; assert not [n for n in sys.modules if 'distributions' in n or "
        "'variates' in n]; minigrad.distributions.Gamma(1.0, 1.0).sample()"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
