"""The Wishart distribution."""

from __future__ import annotations

import math
import numbers
import warnings
from typing import Any

import minigrad
from minigrad._names import namespace
from minigrad.distributions import constraints
from minigrad.distributions.chi2 import Chi2
from minigrad.distributions.exp_family import ExponentialFamily
from minigrad.distributions.multivariate_normal import OfCovariance, _solve_lower
from minigrad.distributions.utils import _standard_normal
from minigrad.tensor import Size, Tensor

__all__ = ["Wishart"]


class Wishart(OfCovariance, ExponentialFamily):
    """x.T @ x of `df` normal vectors x with the given covariance (..., n, n), its inverse or its
    Cholesky factor; `df` may be any number above n - 1."""

    has_rsample = True
    support = constraints.positive_definite
    _mean_carrier_measure = 0
    _several = AssertionError

    def __init__(
        self,
        df: Any,
        covariance_matrix: Tensor | None = None,
        precision_matrix: Tensor | None = None,
        scale_tril: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        name, matrix = self._given(
            covariance_matrix=covariance_matrix,
            precision_matrix=precision_matrix,
            scale_tril=scale_tril,
        )
        event, n = matrix.shape[-2:], matrix.shape[-1]
        if isinstance(df, numbers.Number):
            df = minigrad.tensor(df, dtype=matrix.dtype, device=matrix.device)
        batch = minigrad.broadcast_shapes(matrix.shape[:-2], df.shape)
        self.df = df.expand(batch)
        if bool((self.df <= n - 1).any()):
            raise ValueError(f"Value of df={df} expected to be greater than ndim - 1 = {n - 1}.")
        if bool((self.df < n).any()):
            warnings.warn(
                "Low df values detected. Singular samples are highly likely to occur for ndim - 1 "
                "< df < ndim.",
                stacklevel=2,
            )
        setattr(self, name, matrix.expand(*batch, *event))
        super().__init__(batch, event, validate_args)
        self._factor(name, matrix)

    @property
    def arg_constraints(self) -> Any:
        return {
            "covariance_matrix": constraints.positive_definite,
            "precision_matrix": constraints.positive_definite,
            "scale_tril": constraints.lower_cholesky,
            "df": constraints.greater_than(self._event_shape[-1] - 1),
        }

    def _of_matrix(self, value: Tensor) -> Tensor:
        return value.unsqueeze(-1).unsqueeze(-1)

    @property
    def mean(self) -> Tensor:
        return self._of_matrix(self.df) * self.covariance_matrix

    @property
    def mode(self) -> Tensor:
        factor = self.df - self._event_shape[0] - 1
        return self._of_matrix(factor.masked_fill(factor <= 0, math.nan)) * self.covariance_matrix

    @property
    def variance(self) -> Tensor:
        covariance = self.covariance_matrix
        diagonal = covariance.diagonal(0, -2, -1)
        outer = diagonal.unsqueeze(-1) * diagonal.unsqueeze(-2)
        return self._of_matrix(self.df) * (covariance**2 + outer)

    def _draw(self, shape: Size) -> Tensor:
        """One sample for each element of `shape` = (..., *batch_shape), by Bartlett's
        decomposition: L @ A with chi numbers on the diagonal of A and normal ones below."""
        n, kind = self._event_shape[0], (self.df.dtype, self.df.device)
        freedom = self.df.unsqueeze(-1) - minigrad.arange(n, dtype=kind[0], device=kind[1])
        more = shape[: len(shape) - len(self._batch_shape)]
        diagonal = Chi2(freedom, validate_args=False).rsample(more).sqrt()
        diagonal = diagonal.clamp(min=minigrad.finfo(kind[0]).eps)
        below = _standard_normal((*shape, n, n), *kind).tril(-1)
        lower = self._unbroadcasted_scale_tril @ (below + diagonal.diag_embed())
        return lower @ lower.mT

    def rsample(self, sample_shape: Any = (), max_try_correction: int | None = None) -> Tensor:
        """Samples; those that are singular in this precision are drawn again, up to 10 times."""
        shape = Size((*sample_shape, *self._batch_shape))
        sample = self._draw(shape)
        tries = 10 if max_try_correction is None else max_try_correction
        for attempt in range(tries):
            singular = minigrad.linalg.cholesky_ex(sample.detach()).info != 0
            if not bool(singular.any()):
                break
            if attempt == 0:
                warnings.warn("Singular sample detected.", stacklevel=2)
            sample = minigrad.where(self._of_matrix(singular), self._draw(shape), sample)
        return sample

    def _half_log_det(self) -> Tensor:
        return self._unbroadcasted_scale_tril.diagonal(0, -2, -1).log().sum(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        nu, n = self.df, self._event_shape[0]
        lower = self._unbroadcasted_scale_tril
        white = _solve_lower(lower, _solve_lower(lower, value).mT)
        trace = white.diagonal(0, -2, -1).sum(-1)
        log_det = minigrad.linalg.slogdet(value)[1]
        constant = nu * (n * math.log(2) / 2 + self._half_log_det()) + (nu / 2).mvlgamma(n)
        return (nu - n - 1) / 2 * log_det - trace / 2 - constant

    def entropy(self) -> Tensor:
        nu, n = self.df, self._event_shape[0]
        steps = minigrad.arange(n, dtype=nu.dtype, device=nu.device) / 2
        digammas = ((nu / 2).unsqueeze(-1) - steps).digamma().sum(-1)
        scale = (n + 1) * (n * math.log(2) / 2 + self._half_log_det())
        return scale + (nu / 2).mvlgamma(n) - (nu - n - 1) / 2 * digammas + nu * n / 2

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return -self.precision_matrix / 2, (self.df - self._event_shape[0] - 1) / 2

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        x, y = natural_params
        n = self._event_shape[0]
        half = y + (n + 1) / 2
        log_det = minigrad.linalg.slogdet(-2 * x)[1]
        return half * (n * math.log(2) - log_det) + half.mvlgamma(n)


__getattr__, __dir__ = namespace(__name__)
