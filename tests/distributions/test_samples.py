"""Samples by the Kolmogorov-Smirnov test and their moments; gradients of samples against finite
differences of SciPy's inverse distribution functions, and against torch's."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special, stats

import minigrad
from minigrad import backends
from minigrad import distributions as d
from tests.distributions.cases import arguments, make


@pytest.fixture(autouse=True)
def reference(seed):
    with backends.use("numpy"):
        minigrad.manual_seed(seed)
        yield


CONTINUOUS = {
    "Beta": (d.Beta(0.4, 1.7), stats.beta(0.4, 1.7)),
    "Cauchy": (d.Cauchy(0.5, 2.0), stats.cauchy(0.5, 2.0)),
    "Chi2": (d.Chi2(2.3), stats.chi2(2.3)),
    "Exponential": (d.Exponential(0.3), stats.expon(scale=1 / 0.3)),
    "FisherSnedecor": (d.FisherSnedecor(3.0, 5.0), stats.f(3, 5)),
    "Gamma, small shape": (d.Gamma(0.2, 3.0), stats.gamma(0.2, scale=1 / 3)),
    "Gamma, large shape": (d.Gamma(300.0, 2.0), stats.gamma(300, scale=1 / 2)),
    "GeneralizedPareto": (d.GeneralizedPareto(1.0, 2.0, 0.3), stats.genpareto(0.3, 1, 2)),
    "Gumbel": (d.Gumbel(1.0, 2.0), stats.gumbel_r(1, 2)),
    "HalfCauchy": (d.HalfCauchy(2.0), stats.halfcauchy(scale=2)),
    "HalfNormal": (d.HalfNormal(2.0), stats.halfnorm(scale=2)),
    "InverseGamma": (d.InverseGamma(2.5, 1.5), stats.invgamma(2.5, scale=1.5)),
    "Laplace": (d.Laplace(1.0, 2.0), stats.laplace(1, 2)),
    "LogNormal": (d.LogNormal(0.3, 0.8), stats.lognorm(0.8, scale=np.exp(0.3))),
    "Normal": (d.Normal(0.3, 0.8), stats.norm(0.3, 0.8)),
    "Pareto": (d.Pareto(2.0, 1.5), stats.pareto(1.5, scale=2)),
    "StudentT": (d.StudentT(3.0, 1.0, 2.0), stats.t(3, 1, 2)),
    "Uniform": (d.Uniform(-1.0, 2.0), stats.uniform(-1, 3)),
    "VonMises": (d.VonMises(0.0, 2.5), stats.vonmises(2.5)),
    "Weibull": (d.Weibull(2.0, 1.5), stats.weibull_min(1.5, scale=2)),
}


@pytest.mark.parametrize("name", CONTINUOUS)
def test_continuous(name):
    mine, theirs = CONTINUOUS[name]
    sample = mine.sample((5000,)).numpy()
    assert stats.kstest(sample, theirs.cdf).pvalue > 1e-4


@pytest.mark.parametrize("name", ["ContinuousBernoulli", "Kumaraswamy"])
def test_continuous_by_the_own_distribution_function(name, rng):
    distribution, _ = make(minigrad, name, arguments(rng, ())[name], grad=False)
    levels = distribution.cdf(distribution.sample((5000,))).numpy()
    assert stats.kstest(levels, "uniform").pvalue > 1e-4


DISCRETE = {
    "Binomial, small": (d.Binomial(20, 0.1), stats.binom(20, 0.1)),
    "Binomial, mirrored": (d.Binomial(200, 0.98), stats.binom(200, 0.98)),
    "Binomial, large": (d.Binomial(300, 0.4), stats.binom(300, 0.4)),
    "Geometric": (d.Geometric(0.3), stats.geom(0.3, -1)),
    "NegativeBinomial": (d.NegativeBinomial(2.5, 0.6), stats.nbinom(2.5, 0.4)),
    "Poisson, small": (d.Poisson(0.7), stats.poisson(0.7)),
    "Poisson, below the limit": (d.Poisson(9.9), stats.poisson(9.9)),
    "Poisson, large": (d.Poisson(40.0), stats.poisson(40)),
}


def check_counts(sample, theirs, size):
    """A chi-squared test on the values that are expected five times and more."""
    values = np.arange(int(sample.max()) + 1)
    expected = theirs.pmf(values) * size
    common = expected >= 5
    found = np.array([(sample == v).sum() for v in values])
    found = np.append(found[common], size - found[common].sum())
    expected = np.append(expected[common], size - expected[common].sum())
    assert stats.chisquare(found, expected).pvalue > 1e-4


@pytest.mark.parametrize("name", DISCRETE)
def test_discrete(name):
    mine, theirs = DISCRETE[name]
    check_counts(mine.sample((20000,)).numpy(), theirs, 20000)


LARGE = {
    "Binomial, many trials": (d.Binomial, (1e16, 1e-12), 1e4, 1e4),
    "Binomial, large mean": (d.Binomial, (1e12, 0.7), 7e11, 2.1e11),
    "Poisson, large mean": (d.Poisson, (3e10,), 3e10, 3e10),
}


@pytest.mark.parametrize("name", LARGE)
def test_counts_of_large_numbers(name):
    kind, numbers, mean, variance = LARGE[name]
    parameters = [minigrad.tensor(v, dtype=minigrad.float64) for v in numbers]
    sample = kind(*parameters).sample((4000,)).numpy()
    assert stats.kstest((sample - mean) / np.sqrt(variance), "norm").pvalue > 1e-4


def test_parameters_without_a_limit():
    inf, nan, double = np.inf, np.nan, {"dtype": minigrad.float64}
    rates = minigrad.tensor([2.0, 1e20, 1e300, inf], **double)
    np.testing.assert_allclose(minigrad.poisson(rates)[1:], rates[1:], rtol=1e-8)
    count = minigrad.tensor([inf, inf, inf, inf, 1e300], **double)
    prob = minigrad.tensor([0.0, 0.3, 0.9, 1.0, 0.5], **double)
    assert minigrad.binomial(count, prob).tolist()[:4] == [0, inf, inf, inf]
    shapes = minigrad.tensor([inf, nan, 0.0], **double)
    tiny = minigrad.finfo(minigrad.float64).tiny
    np.testing.assert_equal(minigrad._standard_gamma(shapes).numpy(), [inf, nan, tiny])
    for concentration in (1e33, 1e200, inf):
        angles = d.VonMises(minigrad.tensor(0.5, **double), concentration).sample((3,))
        np.testing.assert_allclose(angles, [0.5] * 3, rtol=1e-12)
    assert d.VonMises(0.0, nan, validate_args=False).sample().isnan()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sixteen_bits(dtype):
    kind = getattr(minigrad, dtype)
    for sample in (
        minigrad._standard_gamma(minigrad.full((2000,), 2.0, dtype=kind)) - 1.678,
        minigrad._sample_dirichlet(minigrad.ones(2000, 2, dtype=kind))[:, 0] - 0.5,
        minigrad.empty(2000, dtype=kind).cauchy_(),
    ):
        assert sample.dtype == kind and sample.isfinite().all()
        assert abs((sample > 0).float().mean() - 0.5) < 0.06


VECTORS = (
    "Dirichlet LKJCholesky LogisticNormal Multinomial OneHotCategorical LowRankMultivariateNormal "
    "MultivariateNormal Wishart"
)


@pytest.mark.parametrize("name", VECTORS.split())
def test_vectors_by_their_moments(name, rng):
    distribution, _ = make(minigrad, name, arguments(rng, (2,))[name], grad=False)
    sample, n = distribution.sample((4000,)), 4000
    if name == "LogisticNormal":
        sample = minigrad.distributions.StickBreakingTransform().inv(sample)
        mean, variance = distribution.loc, distribution.scale**2
    elif name == "LKJCholesky":  # correlations are beta variates on (-1, 1)
        correlation = (sample @ sample.mT)[..., 1, 0]
        shape = distribution.concentration + 0.5
        for k in range(2):
            law = stats.beta(*[float(shape[k])] * 2, loc=-1, scale=2)
            assert stats.kstest(correlation[:, k].numpy(), law.cdf).pvalue > 1e-4
        return
    else:
        mean, variance = distribution.mean, distribution.variance
    found = (sample.mean(0) - mean).abs() / (variance / n).sqrt()
    assert bool((found < 5).all())
    ratio = sample.var(0) / variance
    assert bool(((ratio - 1).abs() < 0.35).all())


def test_relaxed_samples_are_softened_ones(rng):
    """A relaxed sample is beyond 1/2 as often as the sharp one is 1."""
    probs = minigrad.tensor([0.2, 0.7])
    sample = d.RelaxedBernoulli(minigrad.tensor(0.5), probs).sample((8000,))
    assert bool((((sample > 0.5).float().mean(0) - probs).abs() < 0.025).all())
    weights = minigrad.tensor([0.2, 0.5, 0.3])
    sample = d.RelaxedOneHotCategorical(minigrad.tensor(0.5), weights).sample((8000,))
    shares = minigrad.nn.functional.one_hot(sample.argmax(-1), 3).float().mean(0)
    assert bool(((shares - weights).abs() < 0.025).all())


# --- gradients of samples ---


def finite_difference(function, a, step=1e-5):
    return (function(a * (1 + step)) - function(a * (1 - step))) / (2 * step * a)


def test_gamma_gradients(torch, rng):
    a = np.exp(rng.uniform(np.log(0.05), np.log(500), 200))
    shape = minigrad.tensor(a, requires_grad=True)
    sample = minigrad._standard_gamma(shape)
    sample.sum().backward()
    z, found = sample.detach().numpy(), shape.grad.numpy()
    theirs = torch._standard_gamma_grad(torch.tensor(a), torch.tensor(z)).numpy()
    np.testing.assert_allclose(found, theirs, 2e-3)  # torch's is a fit
    level = special.gammainc(a, z)
    inside = (level > 1e-3) & (level < 0.999)
    wanted = finite_difference(lambda a: special.gammaincinv(a, level), a)
    np.testing.assert_allclose(found[inside], wanted[inside], 1e-5)


def test_beta_gradients(torch, rng):
    a, b = np.exp(rng.uniform(np.log(0.1), np.log(100), (2, 200)))
    leaves = [minigrad.tensor(v, requires_grad=True) for v in (a, b)]
    sample = d.Beta(*leaves).rsample()
    sample.sum().backward()
    x = sample.detach().numpy()
    level = special.betainc(a, b, x)
    inside = (level > 1e-3) & (level < 0.999) & (x < 0.999) & (x > 1e-6)
    for found, wanted in (
        (leaves[0].grad, finite_difference(lambda a: special.betaincinv(a, b, level), a)),
        (leaves[1].grad, finite_difference(lambda b: special.betaincinv(a, b, level), b)),
    ):
        np.testing.assert_allclose(found.numpy()[inside], wanted[inside], 2e-5)


def test_dirichlet_gradients_as_torch(torch, rng):
    concentration, weight = np.exp(rng.standard_normal((100, 4))), rng.standard_normal((100, 4))
    leaf = minigrad.tensor(concentration, requires_grad=True)
    sample = minigrad._sample_dirichlet(leaf)
    (sample * minigrad.tensor(weight)).sum().backward()
    a, x, g = (torch.tensor(v) for v in (concentration, sample.detach().numpy(), weight))
    slope = torch._dirichlet_grad(x, a, a.sum(-1, True).expand_as(a))
    wanted = slope * (g - (x * g).sum(-1, True))
    np.testing.assert_allclose(leaf.grad.numpy(), wanted.numpy(), 2e-3, 2e-3)


def test_gradients_of_means_by_samples():
    """The gradient of a mean is the mean of the samples' gradients."""
    for make_one, parameter, wanted in (
        (lambda v: d.Gamma(v, 2.0), 0.7, 0.5),
        (lambda v: d.StudentT(30.0, v, 1.0), 0.3, 1.0),
        (lambda v: d.Weibull(v, 2.0), 1.5, float(d.Weibull(1.0, 2.0).mean)),
        (lambda v: d.InverseGamma(8.0, v), 2.0, 1 / 7),
    ):
        leaf = minigrad.tensor(parameter, dtype=minigrad.float64, requires_grad=True)
        make_one(leaf).rsample((20000,)).mean().backward()
        assert float(leaf.grad) == pytest.approx(wanted, rel=0.05)


def test_second_derivatives_are_refused():
    leaf = minigrad.tensor(2.0, requires_grad=True)
    (first,) = minigrad.autograd.grad(minigrad._standard_gamma(leaf), leaf, create_graph=True)
    with pytest.raises(NotImplementedError, match="second derivative"):
        first.backward()


# --- functions and methods ---


def test_the_seed_counts():
    def draw():
        minigrad.manual_seed(5)
        rates = minigrad.full((40,), 30.0)
        halves = minigrad.full((40,), 0.5)
        return [
            minigrad.poisson(rates), minigrad.binomial(rates, halves),
            minigrad._standard_gamma(rates), minigrad.empty(40).cauchy_(),
            minigrad.empty(40).geometric_(0.3), minigrad.empty(40).log_normal_(),
        ]  # fmt: skip

    for first, second in zip(draw(), draw()):
        assert bool((first == second).all()) and first.std() > 0
    generator = minigrad.Generator().manual_seed(7)
    first = minigrad.poisson(minigrad.full((9,), 30.0), generator)
    again = minigrad.poisson(minigrad.full((9,), 30.0), generator.manual_seed(7))
    assert bool((first == again).all())


def test_edges_of_poisson_binomial_and_gamma():
    assert minigrad.poisson(minigrad.zeros(3)).tolist() == [0, 0, 0]
    n, p = minigrad.tensor([0.0, 7.0, 7.0, 1e6]), minigrad.tensor([0.5, 0.0, 1.0, 1.0])
    assert minigrad.binomial(n, p).tolist() == [0, 0, 7, 1e6]
    tiny = minigrad._standard_gamma(minigrad.full((100,), 1e-3))
    assert bool((tiny > 0).all())
    rows = minigrad._sample_dirichlet(minigrad.full((50, 3), 1e-3, dtype=minigrad.float64))
    assert bool(((rows.sum(-1) - 1).abs() < 1e-9).all()) and bool((rows > 0.99).any(-1).all())
    assert minigrad._standard_gamma(minigrad.tensor([-1.0, float("nan")])).isnan().all()


def test_methods_that_fill():
    size = 5000
    filled = {
        "cauchy_": (stats.cauchy(1, 2), {"median": 1.0, "sigma": 2.0}),
        "log_normal_": (stats.lognorm(0.5, scale=np.e), {"mean": 1.0, "std": 0.5}),
        "exponential_": (stats.expon(scale=1 / 3), {"lambd": 3.0}),
    }
    for name, (law, options) in filled.items():
        x = minigrad.empty(size)
        assert getattr(x, name)(**options) is x
        assert stats.kstest(x.numpy(), law.cdf).pvalue > 1e-4
    with pytest.raises(RuntimeError, match="continuous probability distribution"):
        minigrad.empty(2, dtype=minigrad.int64).cauchy_()
    for dtype in (minigrad.float32, minigrad.int64):
        check_counts(
            minigrad.empty(size, dtype=dtype).geometric_(0.3).numpy(), stats.geom(0.3), size
        )


@pytest.mark.parametrize(
    "program",
    [
        lambda t: t.poisson(-t.ones(2)),
        lambda t: t.poisson(t.ones(2, dtype=t.int64)),
        lambda t: t.binomial(t.ones(2), t.ones(2, dtype=t.float64)),
        lambda t: t.empty(2).cauchy_(0.0, -1.0),
        lambda t: t.empty(2).log_normal_(0.0, -1.0),
        lambda t: t.empty(2).geometric_(1.5),
        lambda t: t.empty(2, dtype=t.int64).log_normal_(),
        lambda t: t.empty(2, dtype=t.bool).geometric_(0.3),
    ],
    ids=range(8),
)
def test_errors_as_torch(program, same_error):
    same_error(program)
