"""The normal distribution of vectors."""

from __future__ import annotations

import math
from typing import Any

import minigrad
from minigrad._names import missing_attribute
from minigrad.distributions.distribution import (
    LOWER_CHOLESKY,
    REAL_VECTOR,
    SQUARE,
    Distribution,
)
from minigrad.ops.pointwise import broadcast_shape
from minigrad.tensor import Tensor


def cholesky(a: Tensor) -> Tensor:
    """The lower triangular L with L @ L.T = a, for positive definite a (..., n, n), column by
    column. ValueError for others."""
    n, columns = a.shape[-1], []
    for j in range(n):
        rest = a[..., j:, j]
        if columns:
            left = minigrad.stack(columns, -1)  # (..., n, j)
            rest = rest - (left[..., j:, :] * left[..., j : j + 1, :]).sum(-1)
        if not bool((rest[..., :1] > 0).all()):
            raise ValueError("cholesky: expected a positive definite matrix")
        column = rest / rest[..., :1].sqrt()
        above = minigrad.zeros((*column.shape[:-1], j), dtype=a.dtype, device=a.device)
        columns.append(minigrad.cat([above, column], -1))
    return minigrad.stack(columns, -1)


def solve_lower(lower: Tensor, b: Tensor) -> Tensor:
    """x with lower @ x = b, for lower triangular (..., n, n) and b (..., n), row by row."""
    rows: list[Tensor] = []
    for i in range(lower.shape[-1]):
        rest = b[..., i]
        if rows:
            rest = rest - (lower[..., i, :i] * minigrad.stack(rows, -1)).sum(-1)
        rows.append(rest / lower[..., i, i])
    return minigrad.stack(rows, -1)


def inverse_lower(lower: Tensor) -> Tensor:
    """The inverse of a lower triangular matrix (..., n, n)."""
    unit = minigrad.eye(lower.shape[-1], dtype=lower.dtype, device=lower.device)
    return solve_lower(lower.unsqueeze(-3), unit).mT


class MultivariateNormal(Distribution):
    """Mean `loc` (..., n), and the covariance (..., n, n), its inverse, or its Cholesky factor."""

    has_rsample = True
    arg_constraints = {  # noqa: RUF012
        "loc": REAL_VECTOR,
        "covariance_matrix": SQUARE,
        "precision_matrix": SQUARE,
        "scale_tril": LOWER_CHOLESKY,
    }
    support = REAL_VECTOR

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
        given = {
            "covariance_matrix": covariance_matrix,
            "precision_matrix": precision_matrix,
            "scale_tril": scale_tril,
        }
        given = {name: value for name, value in given.items() if value is not None}
        if len(given) != 1:
            raise ValueError(
                "Exactly one of covariance_matrix or precision_matrix or scale_tril may be "
                "specified."
            )
        ((name, matrix),) = given.items()
        if matrix.dim() < 2:
            raise ValueError(
                f"{name} must be at least two-dimensional, with optional leading batch dimensions"
            )
        batch = broadcast_shape(matrix.shape[:-2], loc.shape[:-1])
        matrix = matrix.expand(*batch, *matrix.shape[-2:])
        setattr(self, name, matrix)
        self.loc = loc.expand(*batch, loc.shape[-1])
        super().__init__(batch, loc.shape[-1:], validate_args)
        if name == "scale_tril":
            self._lower = matrix
        elif name == "covariance_matrix":
            self._lower = cholesky(matrix)
        else:
            inverse = inverse_lower(cholesky(matrix))
            self._lower = cholesky(inverse.mT @ inverse)

    def __getattr__(self, name: str) -> Tensor:
        """Reached for the forms of the covariance that were not given."""
        if name not in self.arg_constraints or "_lower" not in self.__dict__:
            raise missing_attribute(self, name)
        if name == "covariance_matrix":
            return self._lower @ self._lower.mT
        if name == "precision_matrix":
            inverse = inverse_lower(self._lower)
            return inverse.mT @ inverse
        return self._lower

    @property
    def mean(self) -> Tensor:
        return self.loc

    mode = mean

    @property
    def variance(self) -> Tensor:
        return (self._lower**2).sum(-1)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        noise = minigrad.randn(shape, dtype=self.loc.dtype, device=self.loc.device)
        return self.loc + (self._lower @ noise.unsqueeze(-1)).squeeze(-1)

    def _half_log_det(self) -> Tensor:
        return self._lower.diagonal(0, -2, -1).log().sum(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        distance = solve_lower(self._lower, value - self.loc)
        constant = self._event_shape[0] * math.log(2 * math.pi)
        return -0.5 * (constant + (distance**2).sum(-1)) - self._half_log_det()

    def entropy(self) -> Tensor:
        constant = self._event_shape[0] * (1 + math.log(2 * math.pi))
        return 0.5 * constant + self._half_log_det()
