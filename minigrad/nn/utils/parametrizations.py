"""Parametrisations of weights: orthogonal, or with a norm of 1 or of their own."""

from __future__ import annotations

from typing import Any

import minigrad
from minigrad import linalg
from minigrad._names import namespace
from minigrad.nn.functional import normalize
from minigrad.nn.modules.module import Module
from minigrad.nn.utils.parametrize import register_parametrization
from minigrad.nn.utils.spectral_norm import as_matrix, largest_singular_value, output_dim
from minigrad.nn.utils.weight_norm import _weight_norm, norm_except_dim
from minigrad.tensor import Tensor, normalize_dim

__all__ = ["orthogonal", "spectral_norm", "weight_norm"]

__getattr__, __dir__ = namespace(__name__)

_MAPS = ("matrix_exp", "cayley", "householder")


class _Orthogonal(Module):
    """Q with orthonormal columns (rows, if there are fewer) from a matrix of the same shape.

    base: with trivialisation (Lezcano-Casado 2019) the Q at the last assignment, which the map's
    result multiplies.
    """

    def __init__(self, weight: Tensor, orthogonal_map: str, use_trivialization: bool) -> None:
        super().__init__()
        self.shape, self.orthogonal_map = weight.shape, orthogonal_map
        if use_trivialization:
            self.register_buffer("base", None)

    def forward(self, X: Tensor) -> Tensor:
        wide = X.shape[-2] < X.shape[-1]
        tall = X.mT if wide else X
        Q = self._reflections(tall) if self.orthogonal_map == "householder" else self._group(tall)
        if hasattr(self, "base"):
            Q = self.base @ Q
        return Q.mT if wide else Q

    @staticmethod
    def _reflections(X: Tensor) -> Tensor:
        """The product of the reflections below the diagonal; it holds the signs of the columns."""
        A = X.tril(-1)
        Q = linalg.householder_product(A, 2 / (1 + (A * A).sum(-2)))
        return Q * X.detach().diagonal(dim1=-2, dim2=-1).trunc().unsqueeze(-2)

    def _group(self, X: Tensor) -> Tensor:
        """The map of the skew-symmetric matrix below the diagonal."""
        n, k = X.shape[-2:]
        X = X.tril()
        if n != k:
            X = minigrad.cat([X, X.new_zeros((*X.shape[:-1], n - k))], -1)
        A = X - X.mT
        if self.orthogonal_map == "matrix_exp":
            return minigrad.matrix_exp(A)[..., :k]
        one = minigrad.eye(n, dtype=A.dtype, device=A.device)
        return linalg.solve(one - A / 2, one + A / 2)[..., :k]

    @minigrad.no_grad()
    def right_inverse(self, Q: Tensor) -> Tensor:
        """What gives Q, or the orthogonal matrix of its QR decomposition."""
        if Q.shape != self.shape:
            raise ValueError(
                f"Expected a matrix or batch of matrices of shape {self.shape}. "
                f"Got a tensor of shape {Q.shape}."
            )
        wide = Q.shape[-2] < Q.shape[-1]
        tall = Q.mT if wide else Q
        if hasattr(self, "base"):
            self.base = _completed(tall)
            unit = minigrad.eye(*Q.shape[-2:], dtype=Q.dtype, device=Q.device)
            return (-unit).expand(Q.shape).clone()  # minus: the sign of no reflection
        if self.orthogonal_map != "householder":
            raise NotImplementedError(
                "It is not possible to assign to the matrix exponential or the Cayley "
                "parametrizations when use_trivialization=False."
            )
        A, tau = minigrad.geqrf(tall)
        signs = A.diagonal(dim1=-2, dim2=-1).sign()
        signs = signs.where(tau != 0, -signs)  # LAPACK leaves such a column as it is
        A.diagonal(dim1=-2, dim2=-1).copy_(signs)
        return A.mT if wide else A


def _completed(Q: Tensor) -> Tensor:
    """A square orthogonal matrix whose first columns are those of Q, orthogonalised if needed."""
    n, k = Q.shape[-2:]
    if n == k:
        one = minigrad.eye(k, dtype=Q.dtype, device=Q.device)
        if (Q.mT @ Q).allclose(one.expand(Q.shape), atol=10 * n * minigrad.finfo(Q.dtype).eps):
            return Q.clone()
    else:
        Q = minigrad.cat([Q, Q.new_empty((*Q.shape[:-1], n - k)).normal_()], -1)
    found, R = linalg.qr(Q)
    return found * R.diagonal(dim1=-2, dim2=-1).sgn().unsqueeze(-2)


def _weight(module: Module, name: str) -> Tensor:
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    return weight


def orthogonal(
    module: Module,
    name: str = "weight",
    orthogonal_map: str | None = None,
    *,
    use_trivialization: bool = True,
) -> Module:
    """Keep the matrix ``module.weight`` (or a batch of them) orthogonal; returns the module.

    Its columns are orthonormal, or its rows if there are fewer of them.
    orthogonal_map: "matrix_exp" (default for square ones), "cayley", or "householder" (default for
    others). use_trivialization: start from the present weight, orthogonalised if it needs to be.

    Example::

        layer = nn.utils.parametrizations.orthogonal(nn.Linear(20, 40))
        (layer.weight.T @ layer.weight).allclose(minigrad.eye(20), atol=1e-5)  # True
    """
    weight = _weight(module, name)
    if weight.ndim < 2:
        raise ValueError(
            f"Expected a matrix or batch of matrices. Got a tensor of {weight.ndim} dimensions."
        )
    square = weight.shape[-2] == weight.shape[-1]
    chosen = orthogonal_map or ("matrix_exp" if square else "householder")
    if chosen not in _MAPS:
        raise ValueError(
            'orthogonal_map has to be one of "matrix_exp", "cayley", "householder". '
            f"Got: {orthogonal_map}"
        )
    parametrization = _Orthogonal(weight, chosen, use_trivialization)
    return register_parametrization(module, name, parametrization, unsafe=True)


class _WeightNorm(Module):
    """The weight of its norms (original0) and directions (original1)."""

    def __init__(self, dim: int | None = 0) -> None:
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, weight_g: Tensor, weight_v: Tensor) -> Tensor:
        return _weight_norm(weight_v, weight_g, self.dim)

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        return norm_except_dim(weight, 2, self.dim), weight


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Train the norms and the directions of ``module.weight`` apart (Salimans & Kingma 2016).

    ``parametrizations.weight.original0`` are the norms of its slices along `dim` (one norm of all
    for None), ``original1`` the directions. Files of `nn.utils.weight_norm` can be loaded.
    Returns the module.
    """
    register_parametrization(module, name, _WeightNorm(dim), unsafe=True)

    def rename(module: Any, state: dict[str, Any], prefix: str, *others: Any) -> None:
        old = [f"{prefix}{name}_{part}" for part in "gv"]
        if all(key in state for key in old):
            for i, key in enumerate(old):
                state[f"{prefix}parametrizations.{name}.original{i}"] = state.pop(key)

    module.register_load_state_dict_pre_hook(rename)
    return module


class _SpectralNorm(Module):
    """A weight divided by its largest singular value; _u and _v estimate the singular vectors."""

    def __init__(self, weight: Tensor, n_power_iterations: int, dim: int, eps: float) -> None:
        super().__init__()
        if n_power_iterations <= 0:
            raise ValueError(
                "Expected n_power_iterations to be positive, but got "
                f"n_power_iterations={n_power_iterations}"
            )
        self.dim, self.eps = normalize_dim(dim, weight.ndim), eps
        self.n_power_iterations = n_power_iterations
        if weight.ndim > 1:
            matrix = as_matrix(weight.detach(), self.dim)
            for part, size in zip(("_u", "_v"), matrix.shape, strict=True):
                start = matrix.new_empty(size).normal_()
                self.register_buffer(part, normalize(start, dim=0, eps=eps))
            self._iterate(matrix, 15)

    @minigrad.no_grad()
    def _iterate(self, matrix: Tensor, count: int) -> None:
        for _ in range(count):
            self._u.copy_(normalize(matrix.mv(self._v), dim=0, eps=self.eps))
            self._v.copy_(normalize(matrix.T.mv(self._u), dim=0, eps=self.eps))

    def forward(self, weight: Tensor) -> Tensor:
        if weight.ndim == 1:
            return normalize(weight, dim=0, eps=self.eps)
        matrix = as_matrix(weight, self.dim)
        if self.training:
            self._iterate(matrix, self.n_power_iterations)
        return weight / largest_singular_value(matrix, self._u, self._v)

    def right_inverse(self, value: Tensor) -> Tensor:
        return value


def spectral_norm(
    module: Module,
    name: str = "weight",
    n_power_iterations: int = 1,
    eps: float = 1e-12,
    dim: int | None = None,
) -> Module:
    """Divide ``module.weight`` by its largest singular value (Miyato et al. 2018).

    The value is estimated by `n_power_iterations` power iterations each time the weight is read in
    training mode. dim: that of the outputs (default: 0; 1 for transposed convolutions); the
    others are flattened. Returns the module.

    Example::

        layer = nn.utils.parametrizations.spectral_norm(nn.Linear(20, 40))
        minigrad.linalg.matrix_norm(layer.weight, 2)  # about 1
    """
    parametrization = _SpectralNorm(
        _weight(module, name), n_power_iterations, output_dim(module, dim), eps
    )
    return register_parametrization(module, name, parametrization)
