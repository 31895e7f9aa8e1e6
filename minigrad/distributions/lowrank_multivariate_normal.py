"""Normal distributions of vectors whose covariance is diagonal plus low rank."""

from __future__ import annotations

from typing import Any

import minigrad
from minigrad._names import namespace
from minigrad.distributions import constraints
from minigrad.distributions.multivariate_normal import Gaussian, _batch_mv, _solve_lower
from minigrad.distributions.utils import _standard_normal, lazy_property
from minigrad.tensor import Tensor

__all__ = ["LowRankMultivariateNormal"]


class LowRankMultivariateNormal(Gaussian):
    """The covariance W @ W.T + diag(D) of `cov_factor` W (..., n, m) and `cov_diag` D (..., n).

    Its inverse and determinant come from the m by m matrix C = 1 + W.T @ diag(1 / D) @ W, by the
    Woodbury identity and the matrix determinant lemma.
    """

    arg_constraints = {
        "loc": constraints.real_vector,
        "cov_factor": constraints.independent(constraints.real, 2),
        "cov_diag": constraints.independent(constraints.positive, 1),
    }

    def __init__(
        self, loc: Tensor, cov_factor: Tensor, cov_diag: Tensor, validate_args: bool | None = None
    ) -> None:
        if loc.dim() < 1:
            raise ValueError("loc must be at least one-dimensional.")
        event = loc.shape[-1:]
        if cov_factor.dim() < 2:
            raise ValueError(
                "cov_factor must be at least two-dimensional, with optional leading batch "
                "dimensions"
            )
        if tuple(cov_factor.shape[-2:-1]) != tuple(event):
            raise ValueError(f"cov_factor must be a batch of matrices with shape {event[0]} x m")
        if tuple(cov_diag.shape[-1:]) != tuple(event):
            raise ValueError(f"cov_diag must be a batch of vectors with shape {event}")
        shapes = loc.shape[:-1], cov_factor.shape[:-2], cov_diag.shape[:-1]
        try:
            batch = minigrad.broadcast_shapes(*shapes)
        except RuntimeError as error:
            raise ValueError(
                f"Incompatible batch shapes: loc {loc.shape}, cov_factor {cov_factor.shape}, "
                f"cov_diag {cov_diag.shape}"
            ) from error
        self.loc = loc.expand(*batch, *event)
        self.cov_factor = cov_factor.expand(*batch, *cov_factor.shape[-2:])
        self.cov_diag = cov_diag.expand(*batch, *event)
        self._unbroadcasted_cov_factor, self._unbroadcasted_cov_diag = cov_factor, cov_diag
        scaled = cov_factor.mT / cov_diag.unsqueeze(-2)  # (..., m, n)
        unit = minigrad.eye(cov_factor.shape[-1], dtype=loc.dtype, device=loc.device)
        self._capacitance_tril = minigrad.linalg.cholesky(scaled @ cov_factor + unit)
        super().__init__(batch, event, validate_args)

    @property
    def variance(self) -> Tensor:
        return (self.cov_factor**2).sum(-1) + self.cov_diag

    @lazy_property
    def covariance_matrix(self) -> Tensor:
        return self.cov_factor @ self.cov_factor.mT + self.cov_diag.diag_embed()

    @lazy_property
    def scale_tril(self) -> Tensor:
        root = self.cov_diag.sqrt().unsqueeze(-1)
        scaled = self.cov_factor / root
        unit = minigrad.eye(self._event_shape[0], dtype=self.loc.dtype, device=self.loc.device)
        return root * minigrad.linalg.cholesky(scaled @ scaled.mT + unit)

    def _whitened(self) -> Tensor:
        """inverse(L) @ W.T @ diag(1 / D), for the Cholesky factor L of C."""
        scaled = self._unbroadcasted_cov_factor.mT / self._unbroadcasted_cov_diag.unsqueeze(-2)
        return _solve_lower(self._capacitance_tril, scaled)

    @lazy_property
    def precision_matrix(self) -> Tensor:
        white = self._whitened()
        precision = (1 / self._unbroadcasted_cov_diag).diag_embed() - white.mT @ white
        return precision.expand(*self._batch_shape, *precision.shape[-2:])

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        kind = self.loc.dtype, self.loc.device
        common = _standard_normal((*shape[:-1], self.cov_factor.shape[-1]), *kind)
        noise = self._unbroadcasted_cov_diag.sqrt() * _standard_normal(shape, *kind)
        return self.loc + _batch_mv(self._unbroadcasted_cov_factor, common) + noise

    def _squared_norm(self, matrix: Tensor) -> Tensor:
        scaled = matrix**2 / self._unbroadcasted_cov_diag.unsqueeze(-1)
        return scaled.sum((-2, -1)) - ((self._whitened() @ matrix) ** 2).sum((-2, -1))

    def _log_det(self) -> Tensor:
        of_c = 2 * self._capacitance_tril.diagonal(0, -2, -1).log().sum(-1)
        return of_c + self._unbroadcasted_cov_diag.log().sum(-1)

    def _roots(self) -> list[Tensor]:
        return [self._unbroadcasted_cov_factor, self._unbroadcasted_cov_diag.sqrt().diag_embed()]


__getattr__, __dir__ = namespace(__name__)
