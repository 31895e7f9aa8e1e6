"""One distribution of each family, with random parameters: arguments by name, as arrays."""

from __future__ import annotations

from typing import Any

import numpy as np


def arguments(rng: np.random.Generator, shape: tuple) -> dict[str, dict[str, Any]]:
    """By the name of the class; the batch shape is `shape`."""

    def positive(more: float = 0.0, *event: int) -> np.ndarray:
        return np.exp(0.7 * rng.standard_normal((*shape, *event))) + more

    def real(*event: int) -> np.ndarray:
        return rng.standard_normal((*shape, *event))

    def unit() -> np.ndarray:
        return rng.random(shape) * 0.9 + 0.05

    def weights() -> np.ndarray:
        return rng.random((*shape, 4)) + 0.1

    def matrix() -> np.ndarray:
        factor = real(3, 3)
        return factor @ factor.swapaxes(-1, -2) + np.eye(3)

    low, temperature = real(), np.array(0.7)
    return {
        "Bernoulli": {"probs": unit()},
        "Beta": {"concentration1": positive(), "concentration0": positive()},
        "Binomial": {"total_count": 7, "logits": real()},
        "Categorical": {"probs": weights()},
        "Cauchy": {"loc": real(), "scale": positive()},
        "Chi2": {"df": positive(1)},
        "ContinuousBernoulli": {"probs": unit()},
        "Dirichlet": {"concentration": positive(0, 4)},
        "Exponential": {"rate": positive()},
        "FisherSnedecor": {"df1": positive(2), "df2": positive(4)},
        "Gamma": {"concentration": positive(), "rate": positive()},
        "Geometric": {"probs": unit()},
        "Gumbel": {"loc": real(), "scale": positive()},
        "HalfCauchy": {"scale": positive()},
        "HalfNormal": {"scale": positive()},
        "InverseGamma": {"concentration": positive(2), "rate": positive()},
        "Kumaraswamy": {"concentration1": positive(1), "concentration0": positive(1)},
        "LKJCholesky": {"dim": 3, "concentration": positive()},
        "Laplace": {"loc": real(), "scale": positive()},
        "LogNormal": {"loc": real(), "scale": positive()},
        "LogisticNormal": {"loc": real(4), "scale": positive(0, 4)},
        "LowRankMultivariateNormal": {
            "loc": real(3),
            "cov_factor": real(3, 2),
            "cov_diag": positive(0, 3),
        },
        "Multinomial": {"total_count": 5, "probs": weights()},
        "MultivariateNormal": {"loc": real(3), "precision_matrix": matrix()},
        "NegativeBinomial": {"total_count": 4 * positive(), "probs": unit()},
        "Normal": {"loc": real(), "scale": positive()},
        "OneHotCategorical": {"probs": weights()},
        "OneHotCategoricalStraightThrough": {"logits": real(4)},
        "Pareto": {"scale": positive(), "alpha": positive(1)},
        "Poisson": {"rate": 3 * positive()},
        "RelaxedBernoulli": {"temperature": temperature, "probs": unit()},
        "RelaxedOneHotCategorical": {"temperature": temperature, "probs": weights()},
        "StudentT": {"df": positive(2), "loc": real(), "scale": positive()},
        "Uniform": {"low": low, "high": low + positive()},
        "VonMises": {"loc": real(), "concentration": positive()},
        "Weibull": {"scale": positive(), "concentration": positive(1)},
        "Wishart": {"df": np.full(shape, 5.3), "covariance_matrix": matrix()},
    }


NAMES = sorted(arguments(np.random.default_rng(0), ()))


def make(t: Any, name: str, given: dict[str, Any], grad: bool = True) -> tuple[Any, list]:
    """The distribution in a namespace (minigrad or torch), and its tensors."""
    values = {
        key: t.tensor(value, requires_grad=grad) if isinstance(value, np.ndarray) else value
        for key, value in given.items()
    }
    leaves = [v for v in values.values() if hasattr(v, "grad")]
    return getattr(t.distributions, name)(**values), leaves
