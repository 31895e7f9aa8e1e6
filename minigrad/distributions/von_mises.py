"""The von Mises distribution."""

from __future__ import annotations

import math
from typing import Any

import minigrad
from minigrad._names import namespace
from minigrad.distributions import constraints
from minigrad.distributions.distribution import Distribution
from minigrad.distributions.utils import broadcast_all
from minigrad.tensor import Tensor

__all__ = ["VonMises"]


class VonMises(Distribution):
    """Angles in [-pi, pi), with a density proportional to exp(concentration * cos(x - loc))."""

    arg_constraints = {"loc": constraints.real, "concentration": constraints.positive}
    support = constraints.real

    def __init__(self, loc: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self.loc, self.concentration = broadcast_all(loc, concentration)
        super().__init__(self.loc.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        """The circular mean."""
        return self.loc

    mode = mean

    @property
    def variance(self) -> Tensor:
        """The circular variance."""
        k = self.concentration
        return 1 - minigrad.special.i1e(k) / minigrad.special.i0e(k)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        k = self.concentration
        log_i0 = minigrad.special.i0e(k).log() + k
        return k * (value - self.loc).cos() - math.log(2 * math.pi) - log_i0

    @minigrad.no_grad()
    def sample(self, sample_shape: Any = ()) -> Tensor:
        """By rejection from a wrapped Cauchy distribution (Best and Fisher: Efficient simulation of
        the von Mises distribution, 1979), in float64; what was rejected is drawn again."""
        k = self.concentration.double().expand(self._extended_shape(sample_shape)).flatten()
        tau = 1 + (1 + 4 * k**2).sqrt()
        rho = (tau - (2 * tau).sqrt()) / (2 * k)
        r = minigrad.where(k < 1e-5, 1 / k + k, (1 + rho**2) / (2 * rho))
        angle = k.masked_fill(~k.isnan(), 0.0)
        pending = (r > 1).nonzero().squeeze(-1)  # of larger concentrations, all angles are 0
        while pending.numel():
            u = minigrad.rand(3, pending.numel(), dtype=k.dtype, device=k.device)
            z = (math.pi * u[0]).cos()
            cosine = (1 + r[pending] * z) / (r[pending] + z)
            c = k[pending] * (r[pending] - cosine)
            found = (c / (1 - u[1])).log() + 1 - c >= 0
            angle[pending[found]] = ((u[2] - 0.5).sign() * cosine.acos())[found]
            pending = pending[~found]
        angle = angle.reshape(self._extended_shape(sample_shape)) + self.loc
        return ((angle + math.pi) % (2 * math.pi) - math.pi).to(self.loc.dtype)


__getattr__, __dir__ = namespace(__name__)
