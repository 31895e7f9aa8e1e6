"""`svd_lowrank` and `pca_lowrank`: the largest singular values of a matrix by random projections
(Halko, Martinsson & Tropp 2011, algorithms 4.4 and 5.1)."""

from __future__ import annotations

from collections.abc import Callable

import minigrad
from minigrad.ops.sparse_tensor import SparseTensor
from minigrad.tensor import Tensor


def svd_lowrank(
    A: Tensor, q: int | None = 6, niter: int | None = 2, M: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """(U, S, V) with ``A - M`` about ``U @ diag(S) @ V.mT``, of rank q.

    Shapes: A, M (..., m, n), U (..., m, q), S (..., q), V (..., n, q).  A matrix may be sparse.
    niter: how often the basis is improved, each time by a product with A and one with A.mT.
    """

    def times(x: Tensor) -> Tensor:
        return A @ x if M is None else A @ x - M @ x

    def transposed_times(x: Tensor) -> Tensor:
        product = A.t() @ x if isinstance(A, SparseTensor) else A.mT @ x
        return product if M is None else product - M.mT @ x

    q, niter = (6 if q is None else q), (2 if niter is None else niter)
    m, n = A.shape[-2:]
    return _svd(times, transposed_times, m, n, q, niter, A)


def _svd(
    times: Callable[[Tensor], Tensor],
    transposed_times: Callable[[Tensor], Tensor],
    m: int,
    n: int,
    q: int,
    niter: int,
    like: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """The decomposition of an (m, n) matrix that is given by its products."""
    if m < n:
        V, S, U = _svd(transposed_times, times, n, m, q, niter, like)
        return U, S, V
    basis = times(minigrad.randn(n, q, dtype=like.dtype, device=like.device))
    basis = minigrad.linalg.qr(basis).Q
    for _ in range(niter):
        other = minigrad.linalg.qr(transposed_times(basis)).Q
        basis = minigrad.linalg.qr(times(other)).Q
    V, S, Wh = minigrad.linalg.svd(transposed_times(basis), full_matrices=False)
    return basis @ Wh.mT, S, V


def pca_lowrank(
    A: Tensor, q: int | None = None, center: bool = True, niter: int = 2
) -> tuple[Tensor, Tensor, Tensor]:
    """(U, S, V) of the rows of A (..., m, n), from which their mean is subtracted if `center`: the
    columns of V are the principal directions, ``S ** 2 / (m - 1)`` the variances along them.

    q: how many; min(6, m, n) by default.
    """
    m, n = A.shape[-2:]
    if q is None:
        q = min(6, m, n)
    elif not 0 <= q <= min(m, n):
        raise ValueError(
            f"q(={q}) must be non-negative integer and not greater than min(m, n)={min(m, n)}"
        )
    if niter < 0:
        raise ValueError(f"niter(={niter}) must be non-negative integer")
    if not center:
        return svd_lowrank(A, q, niter)
    if not isinstance(A, SparseTensor):
        return svd_lowrank(A - A.mean(-2, keepdim=True), q, niter)
    if A.ndim != 2:
        raise ValueError("pca_lowrank input is expected to be 2-dimensional tensor")
    mean = minigrad.sparse.sum(A, 0).to_dense() / m
    return svd_lowrank(A, q, niter, mean.expand(m, n))
