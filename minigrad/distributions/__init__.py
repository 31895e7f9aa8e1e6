"""Probability distributions, with torch.distributions' names and arguments."""

from minigrad._names import namespace
from minigrad.distributions.bernoulli import Bernoulli
from minigrad.distributions.categorical import Categorical
from minigrad.distributions.distribution import Distribution
from minigrad.distributions.independent import Independent
from minigrad.distributions.kl import kl_divergence, register_kl
from minigrad.distributions.multivariate_normal import MultivariateNormal
from minigrad.distributions.normal import Normal
from minigrad.distributions.uniform import Uniform

__all__ = [
    "Bernoulli",
    "Categorical",
    "Distribution",
    "Independent",
    "MultivariateNormal",
    "Normal",
    "Uniform",
    "kl_divergence",
    "register_kl",
]

__getattr__, __dir__ = namespace(__name__)
