"""The normal distribution of vectors."""

from __future__ import annotations

import math
from typing import Any

import minigrad
from minigrad._names import namespace
from minigrad.distributions import constraints
from minigrad.distributions.distribution import Distribution
from minigrad.distributions.utils import _standard_normal, lazy_property
from minigrad.ops.pointwise import broadcast_shape
from minigrad.tensor import Tensor

__all__ = ["MultivariateNormal"]


def _batch_mv(matrix: Tensor, vector: Tensor) -> Tensor:
    """matrix (..., m, n) @ vector (..., n), whose batch dimensions broadcast."""
    return (matrix @ vector.unsqueeze(-1)).squeeze(-1)


def _solve_lower(lower: Tensor, right: Tensor) -> Tensor:
    """x with lower @ x = right, for lower triangular (..., n, n) and right (..., n, k)."""
    batch = broadcast_shape(lower.shape[:-2], right.shape[:-2])
    lower, right = (v.expand(*batch, *v.shape[-2:]) for v in (lower, right))
    return minigrad.linalg.solve_triangular(lower, right, upper=False)


def _precision_to_scale_tril(precision: Tensor) -> Tensor:
    """The lower triangular factor of the inverse of a positive definite matrix (..., n, n): the
    inverse of its upper triangular factor, which is the Cholesky factor from the other end."""
    upper = minigrad.linalg.cholesky(precision.flip((-2, -1))).flip((-2, -1))
    unit = minigrad.eye(precision.shape[-1], dtype=precision.dtype, device=precision.device)
    return _solve_lower(upper.mT, unit)


class OfCovariance:
    """For distributions with a positive definite matrix (..., n, n): `covariance_matrix`, its
    inverse `precision_matrix` or its Cholesky factor `scale_tril`, of which one is given."""

    _several: type[Exception] = ValueError  # for more than one, or none
    _batch_shape: Any
    _unbroadcasted_scale_tril: Tensor

    def _given(self, **matrices: Tensor | None) -> tuple[str, Tensor]:
        """The name of the matrix that is given, and the matrix."""
        given = [(name, matrix) for name, matrix in matrices.items() if matrix is not None]
        if len(given) != 1:
            raise self._several(
                "Exactly one of covariance_matrix or precision_matrix or scale_tril may be "
                "specified."
            )
        name, matrix = given[0]
        if matrix.dim() < 2:
            raise ValueError(
                f"{name} must be at least two-dimensional, with optional leading batch dimensions"
            )
        return name, matrix

    def _factor(self, name: str, matrix: Tensor) -> None:
        """Keep the Cholesky factor of the covariance."""
        if name == "covariance_matrix":
            matrix = minigrad.linalg.cholesky(matrix)
        elif name == "precision_matrix":
            matrix = _precision_to_scale_tril(matrix)
        self._unbroadcasted_scale_tril = matrix

    @lazy_property
    def scale_tril(self) -> Tensor:
        lower = self._unbroadcasted_scale_tril
        return lower.expand(*self._batch_shape, *lower.shape[-2:])

    @lazy_property
    def covariance_matrix(self) -> Tensor:
        return self.scale_tril @ self.scale_tril.mT

    @lazy_property
    def precision_matrix(self) -> Tensor:
        lower = self.scale_tril
        unit = minigrad.eye(lower.shape[-1], dtype=lower.dtype, device=lower.device)
        inverse = _solve_lower(lower, unit)
        return inverse.mT @ inverse


class Gaussian(Distribution):
    """Normal distributions of vectors, with the mean `loc` (..., n); subclasses say how their
    covariance is stored."""

    has_rsample = True
    support = constraints.real_vector
    loc: Tensor

    def _squared_norm(self, matrix: Tensor) -> Tensor:
        """The sum over the columns m of a matrix (..., n, k) of m.T @ inverse(covariance) @ m."""
        raise NotImplementedError

    def _log_det(self) -> Tensor:
        """The logarithm of the determinant of the covariance."""
        raise NotImplementedError

    def _roots(self) -> list[Tensor]:
        """Matrices r (..., n, k) such that the covariance is the sum of their r @ r.T."""
        raise NotImplementedError

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        distance = self._squared_norm((value - self.loc).unsqueeze(-1))
        constant = self._event_shape[0] * math.log(2 * math.pi)
        return -0.5 * (constant + self._log_det() + distance)

    def entropy(self) -> Tensor:
        constant = self._event_shape[0] * (1 + math.log(2 * math.pi))
        return (0.5 * (constant + self._log_det())).expand(self._batch_shape)


class MultivariateNormal(OfCovariance, Gaussian):
    """Mean `loc` (..., n), and the covariance (..., n, n), its inverse, or its Cholesky factor."""

    arg_constraints = {
        "loc": constraints.real_vector,
        "covariance_matrix": constraints.positive_definite,
        "precision_matrix": constraints.positive_definite,
        "scale_tril": constraints.lower_cholesky,
    }

    def __init__(
        self,
        loc: Tensor,
        covariance_matrix: Tensor | None = None,
        precision_matrix: Tensor | None = None,
        scale_tril: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        if loc.dim() < 1:
            raise ValueError("loc must be at least one-dimensional.")
        name, matrix = self._given(
            covariance_matrix=covariance_matrix,
            precision_matrix=precision_matrix,
            scale_tril=scale_tril,
        )
        batch = broadcast_shape(matrix.shape[:-2], loc.shape[:-1])
        setattr(self, name, matrix.expand(*batch, *matrix.shape[-2:]))
        self.loc = loc.expand(*batch, loc.shape[-1])
        super().__init__(batch, loc.shape[-1:], validate_args)
        self._factor(name, matrix)

    @property
    def variance(self) -> Tensor:
        variance = (self._unbroadcasted_scale_tril**2).sum(-1)
        return variance.expand(self._batch_shape + self._event_shape)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        noise = _standard_normal(shape, self.loc.dtype, self.loc.device)
        return self.loc + _batch_mv(self._unbroadcasted_scale_tril, noise)

    def _squared_norm(self, matrix: Tensor) -> Tensor:
        return (_solve_lower(self._unbroadcasted_scale_tril, matrix) ** 2).sum((-2, -1))

    def _log_det(self) -> Tensor:
        return 2 * self._unbroadcasted_scale_tril.diagonal(0, -2, -1).log().sum(-1)

    def _roots(self) -> list[Tensor]:
        return [self._unbroadcasted_scale_tril]


__getattr__, __dir__ = namespace(__name__)
