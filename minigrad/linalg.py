"""Linear algebra with torch.linalg's names, for matrices (..., m, n), real or complex.

Computed by NumPy's routines, or CuPy's on a GPU; products of real matrices run on minigrad's
kernels. Gradients exist of every order unless a function says otherwise.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import minigrad
from minigrad._foreign import tensors_only
from minigrad._names import namespace, return_type
from minigrad.autograd.mode import autocasts
from minigrad.backends import array_module, scipy_module
from minigrad.ops import matmul as products
from minigrad.ops.eigen import Eig, Eigenvalues, Eigh, SingularValues
from minigrad.ops.eigen import linalg_svd as svd
from minigrad.ops.linalg import (
    LinAlgError,
    Pinv,
    cholesky,
    det,
    householder_product,
    leading_minor,
    matrices,
    matrix_exp,
    matrix_power,
    solve,
    solve_triangular,
    zero_pivot,
)
from minigrad.ops.linalg import _LinAlgError as _LinAlgError  # a pickled error names it
from minigrad.ops.linalg import inverse as inv
from minigrad.ops.linalg import linalg_qr as qr
from minigrad.ops.linalg import linalg_slogdet as slogdet
from minigrad.tensor import Tensor, normalize_dim, wrap

__all__ = [
    "LinAlgError", "cholesky", "cholesky_ex", "cond", "cross", "det", "diagonal", "eig", "eigh",
    "eigvals", "eigvalsh", "householder_product", "inv", "inv_ex", "ldl_factor", "ldl_factor_ex",
    "ldl_solve", "lstsq", "lu", "lu_factor", "lu_factor_ex", "lu_solve", "matmul", "matrix_exp",
    "matrix_norm", "matrix_power", "matrix_rank", "multi_dot", "norm", "pinv", "qr", "slogdet",
    "solve", "solve_ex", "solve_triangular", "svd", "svdvals", "tensorinv", "tensorsolve",
    "vander", "vecdot", "vector_norm",
]  # fmt: skip

CHOLESKY_EX = return_type("linalg_cholesky_ex", "L", "info")
INV_EX = return_type("linalg_inv_ex", "inverse", "info")
EIGH = return_type("linalg_eigh", "eigenvalues", "eigenvectors")
EIG = return_type("linalg_eig", "eigenvalues", "eigenvectors")
LSTSQ = return_type("linalg_lstsq", "solution", "residuals", "rank", "singular_values")
LU = return_type("linalg_lu", "P", "L", "U")
LU_FACTOR = return_type("linalg_lu_factor", "LU", "pivots")
LU_FACTOR_EX = return_type("linalg_lu_factor_ex", "LU", "pivots", "info")
SOLVE_EX = return_type("linalg_solve_ex", "result", "info")
LDL_FACTOR = return_type("linalg_ldl_factor", "LD", "pivots")
LDL_FACTOR_EX = return_type("linalg_ldl_factor_ex", "LD", "pivots", "info")

matmul, multi_dot = products.matmul, products.multi_dot


def _of_each(
    function: Callable[[Tensor], Tensor], A: Tensor, check_errors: bool, place: Callable
) -> tuple[Tensor, Tensor]:
    """(a function of matrices, NaN for those that raise LinAlgError; `place` of those matrices as
    NumPy arrays, where they fail, and 0 for all others)."""
    try:
        found = function(A)
    except LinAlgError:
        if check_errors:
            raise
        many, flat = math.prod(A.shape[:-2]), A.reshape(-1, *A.shape[-2:])
        if many == 1:
            found = minigrad.full_like(A, math.nan)
        else:
            halves = (flat[: many // 2], flat[many // 2 :])
            found = minigrad.cat([_of_each(function, half, False, place)[0] for half in halves])
            found = found.reshape(A.shape)
    failed = found.detach().diagonal(0, -2, -1).isnan().any(-1)
    info = failed.int()
    if A.is_meta:
        return found, info
    for i in failed.reshape(-1).nonzero().reshape(-1).tolist():
        one = A.detach().reshape(-1, *A.shape[-2:])[i].cpu().numpy()
        info.reshape(-1)[i] = place(one) or 1
    return found, info


def cholesky_ex(A: Tensor, *, upper: bool = False, check_errors: bool = False) -> Any:
    """(factor, info): info is 0, or the order of the first leading minor that is not positive for
    a matrix that has no factor (it gives NaN)."""
    return CHOLESKY_EX(*_of_each(lambda a: cholesky(a, upper), A, check_errors, leading_minor))


def inv_ex(A: Tensor, *, check_errors: bool = False) -> Any:
    """(inverse, info): info is 0, or for a singular matrix (it gives NaN) the place of the first
    zero on the diagonal of U of its LU factors, from 1."""
    return INV_EX(*_of_each(inv, A, check_errors, zero_pivot))


def svdvals(A: Tensor, *, driver: str | None = None) -> Tensor:
    """The singular values, descending."""
    matrices("linalg.svdvals", A)
    return SingularValues.apply(A)


def eigh(A: Tensor, UPLO: str = "L") -> Any:
    """(eigenvalues ascending, eigenvectors as columns) of symmetric or Hermitian matrices, of which
    only one triangle is read."""
    matrices("linalg.eigh", A, square=True)
    if UPLO.upper() not in ("L", "U"):
        raise RuntimeError(f"Expected UPLO argument to be 'L' or 'U', but got {UPLO}")
    return EIGH(*Eigh.apply(A, UPLO.upper() == "L"))


def eigvalsh(A: Tensor, UPLO: str = "L") -> Tensor:
    """The eigenvalues of symmetric or Hermitian matrices, ascending."""
    matrices("linalg.eigvalsh", A, square=True)
    if UPLO.upper() not in ("L", "U"):
        raise RuntimeError(f"Expected UPLO argument to be 'L' or 'U', but got {UPLO}")
    return Eigenvalues.apply(A, lower=UPLO.upper() == "L")


def eig(A: Tensor) -> Any:
    """(eigenvalues, eigenvectors of length 1 as columns), complex. A gradient exists for what does
    not depend on the vectors' phases, of matrices whose eigenvalues differ."""
    matrices("linalg.eig", A, square=True)
    return EIG(*Eig.apply(A))


def eigvals(A: Tensor) -> Tensor:
    """The eigenvalues, complex."""
    return eig(A).eigenvalues


def _rtol(A: Tensor, atol: Any, rtol: Any) -> float:
    if rtol is not None:
        return float(rtol)
    if atol is not None and (isinstance(atol, Tensor) or float(atol) > 0):
        return 0.0
    return max(A.shape[-2:]) * float(minigrad.finfo(A.dtype).eps)


@autocasts
def pinv(
    A: Tensor, rcond: Any = None, hermitian: bool = False, *, atol: Any = None, rtol: Any = None
) -> Tensor:
    """The pseudoinverse; singular values up to rtol times the largest count as zero."""
    matrices("linalg.pinv", A)
    if not A.numel():
        return A.mH.clone()
    relative = _rtol(A, atol, rtol if rcond is None else rcond)
    if hermitian:
        values, vectors = eigh(A)
        size = values.detach().abs()
        limit = size.amax(-1, keepdim=True) * relative
        kept = size > (limit if atol is None else limit.clamp(min=float(atol)))
        inverses = minigrad.where(kept, 1 / minigrad.where(kept, values, 1.0), 0.0)
        return (vectors * inverses.unsqueeze(-2)) @ vectors.mH
    if atol is not None:
        largest = float(svdvals(A.detach()).max())
        relative = max(relative, float(atol) / largest if largest else 0.0)
    return Pinv.apply(A, rtol=relative)


def matrix_rank(
    A: Tensor, tol: Any = None, hermitian: bool = False, *, atol: Any = None, rtol: Any = None
) -> Tensor:
    """How many singular values are above max(atol, rtol * the largest)."""
    matrices("linalg.matrix_rank", A)
    s = eigvalsh(A.detach()).abs() if hermitian else svdvals(A.detach())
    if not s.numel():
        return minigrad.zeros(A.shape[:-2], dtype=minigrad.int64, device=A.device)
    absolute = atol if tol is None else tol
    relative = rtol.unsqueeze(-1) if isinstance(rtol, Tensor) else _rtol(A, absolute, rtol)
    limit = s.amax(-1, keepdim=True) * relative
    if isinstance(absolute, Tensor):
        limit = minigrad.maximum(limit, absolute.unsqueeze(-1))
    elif absolute is not None:
        limit = limit.clamp(min=float(absolute))
    return (s > limit).sum(-1)


@autocasts
def lstsq(A: Tensor, B: Tensor, rcond: Any = None, *, driver: str | None = None) -> Any:
    """(X with the least |A X - B|, residuals, rank, singular values); the last two as far as the
    driver gives them ("gelsy" the rank, "gelsd" and "gelss" both)."""
    matrices("linalg.lstsq", A)
    vector = B.ndim == A.ndim - 1
    right = B.unsqueeze(-1) if vector else B
    m, n = A.shape[-2:]
    if right.ndim != A.ndim or right.shape[-2] != m:
        raise RuntimeError(
            f"linalg.lstsq: input.size(-2) should match other.size(-2), got {list(A.shape)} and "
            f"{list(B.shape)}"
        )
    driver, found = driver or "gelsy", None
    if driver == "gelsy" and not (
        minigrad.is_grad_enabled() and (A.requires_grad or B.requires_grad)
    ):
        found = _by_gelsy(A._array, right._array, _rtol(A, None, rcond))
    x, rank = found or (pinv(A, rcond=rcond) @ right, matrix_rank(A, rtol=rcond))
    residuals = x.real.reshape(-1)[:0]
    if m > n and driver != "gelsy" and bool((rank == n).all()):
        residuals = ((A @ x - right).abs() ** 2).sum(-2)
    return LSTSQ(
        x.squeeze(-1) if vector else x,
        residuals,
        rank if driver != "gels" else minigrad.empty(0, dtype=minigrad.int64),
        svdvals(A.detach()) if driver in ("gelsd", "gelss") else A.real.new_empty(0),
    )


def _by_gelsy(a: Any, b: Any, rcond: float) -> tuple[Tensor, Tensor] | None:
    """Least squares by LAPACK's routine, a tenth of the work of a pseudoinverse, and the ranks;
    None for what it does not take."""
    known = type(a) is type(b) is np.ndarray and a.dtype == b.dtype
    if not (known and a.shape[:-2] == b.shape[:-2] and a.size and b.size):
        return None
    by, (m, n), columns = scipy_module(a, "linalg"), a.shape[-2:], b.shape[-1]
    solve, size = by.get_lapack_funcs(("gelsy", "gelsy_lwork"), (a,))
    lwork = int(size(m, n, columns, rcond)[0].real)
    x = np.empty((math.prod(a.shape[:-2]), n, columns), a.dtype)
    ranks = np.empty(len(x), np.int64)
    padded = np.zeros((max(m, n), columns), a.dtype)
    for i, (left, right) in enumerate(zip(a.reshape(-1, m, n), b.reshape(-1, m, columns))):
        padded[:m], pivots = right, np.zeros(n, np.int32)
        _, found, _, ranks[i], _ = solve(left, padded, pivots, rcond, lwork)
        x[i] = found[:n]
    return wrap(x.reshape(*a.shape[:-2], n, columns)), wrap(ranks.reshape(a.shape[:-2]))


def _factored(A: Tensor) -> tuple:
    """(LU in one matrix, pivots from 1) of each matrix, by SciPy's routine or CuPy's."""
    array = A._array
    xp = array_module(array)
    rows = min(array.shape[-2:])
    if not array.size:
        pivots = xp.zeros((*array.shape[:-2], rows), np.int32)
        return A.detach().clone(), wrap(pivots + xp.arange(1, rows + 1, dtype=np.int32))
    by, matrices = scipy_module(array, "linalg"), array.reshape(-1, *array.shape[-2:])
    packed, pivots = (
        xp.empty(matrices.shape, array.dtype),
        xp.empty((len(matrices), rows), np.int32),
    )
    with warnings.catch_warnings():  # of singular matrices, which have factors as well
        warnings.simplefilter("ignore")
        # LAPACK's own function: SciPy's takes ten times as long for a small matrix.
        factor = by.get_lapack_funcs("getrf", (array,)) if xp is np else by.lu_factor
        for i, matrix in enumerate(matrices):
            packed[i], pivots[i] = factor(matrix)[:2]
    pivots += 1
    return wrap(packed.reshape(array.shape)), wrap(pivots.reshape(*array.shape[:-2], rows))


def _permutation(pivots: Tensor, m: int, like: Tensor) -> Tensor:
    """P (..., m, m), the rows' order that pivots from 1 lead to."""
    *lead, rows = pivots.shape
    found = np.zeros((math.prod(lead), m, m), like._array.dtype)
    for matrix, swaps in zip(found, pivots.cpu().numpy().reshape(len(found), rows).tolist()):
        order = list(range(m))
        for i, j in enumerate(swaps):
            order[i], order[j - 1] = order[j - 1], order[i]
        matrix[order, range(m)] = 1
    return minigrad.as_tensor(found.reshape(*lead, m, m), device=like.device)


def _parts(A: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(P, L, U, pivots) with A = P L U; L and U connected to the graph of A."""
    packed, pivots = _factored(A.detach())
    m, n = A.shape[-2:]
    k = min(m, n)
    p = _permutation(pivots, m, A)
    lower = packed[..., :k].tril(-1) + minigrad.eye(m, k, dtype=A.dtype, device=A.device)
    upper = packed[..., :k, :].triu()
    if not (A.requires_grad and minigrad.is_grad_enabled()):
        return p, lower, upper, pivots
    if not A.numel():
        nothing = A.sum() * 0
        return p, lower + nothing, upper + nothing, pivots
    # Newton steps, which leave the values: L^-1 (P^T A) U^-1 is the identity. The first gives the
    # first derivatives, the second those up to the third.
    rows, eye = p.mT @ A, minigrad.eye(k, dtype=A.dtype, device=A.device)
    low, up = lower[..., :k, :], upper[..., :k]
    for _ in range(2):
        inner = solve(low, solve(up.mT, rows[..., :k, :k].mT).mT) - eye
        low, up = low @ (eye + inner.tril(-1)), (eye + inner.triu()) @ up
    below, beside = rows[..., k:, :k], rows[..., :k, k:]
    lower = minigrad.cat([low, solve(up.mT, below.mT).mT], -2) if m > k else low
    upper = minigrad.cat([up, solve(low, beside)], -1) if n > k else up
    return p, lower, upper, pivots


def lu_factor(A: Tensor, *, pivot: bool = True) -> Any:
    """(L and U in one matrix, pivots from 1); derivatives up to the third. RuntimeError for a
    singular matrix."""
    return LU_FACTOR(*lu_factor_ex(A, pivot=pivot, check_errors=True)[:2])


def _first_zero(diagonal: Tensor) -> Tensor:
    """The place of the first zero of each vector, from 1, as int32; 0 if it has none."""
    array = diagonal._array
    zero, xp = array == 0, array_module(array)
    first = zero.argmax(-1) + 1 if array.shape[-1] else 0
    return wrap(xp.asarray(zero.any(-1) * first, np.int32))


def lu_factor_ex(A: Tensor, *, pivot: bool = True, check_errors: bool = False) -> Any:
    """(L and U in one matrix, pivots from 1, info): info is the place of the first zero on the
    diagonal of U, from 1, or 0. With check_errors that is a RuntimeError."""
    packed, pivots = _packed("linalg.lu_factor_ex", A, pivot)
    info = _first_zero(packed.diagonal(0, -2, -1))
    if check_errors and bool(info.any()):
        raise RuntimeError(
            f"linalg.lu_factor: U[{int(info.max())},{int(info.max())}] is zero and using it on "
            "lu_solve would result in a division by zero."
        )
    return LU_FACTOR_EX(packed, pivots, info)


def solve_ex(A: Tensor, B: Tensor, *, left: bool = True, check_errors: bool = False) -> Any:
    """(X of A X = B, info): info as of `lu_factor_ex`; X is NaN for a matrix that is singular."""
    info = _first_zero(_packed("linalg.solve_ex", A.detach(), True)[0].diagonal(0, -2, -1))
    if not bool(info.any()) or check_errors:
        return SOLVE_EX(solve(A, B, left=left), info)
    one = minigrad.eye(A.shape[-1], dtype=A.dtype, device=A.device)
    singular = (info != 0)[..., None, None]
    found = solve(minigrad.where(singular, one, A), B, left=left)
    nothing = (info != 0).reshape(*info.shape, *[1] * (found.ndim - info.ndim))
    return SOLVE_EX(minigrad.where(nothing, math.nan, found), info)


def _lapack(name: str, A: Tensor) -> Any:
    """A LAPACK routine for matrices of this dtype."""
    if A.is_cuda:
        raise NotImplementedError(f"linalg.ldl: minigrad has {name} on a CPU only; use A.cpu()")
    from scipy.linalg import get_lapack_funcs

    return get_lapack_funcs((name,), (A._array,))[0]


def _ldl_routine(name: str, A: Tensor, hermitian: bool) -> str:
    """LAPACK's routine for symmetric matrices, or Hermitian ones, which differ if complex."""
    return ("he" if hermitian and A.is_complex() else "sy") + name


def ldl_factor_ex(A: Tensor, *, hermitian: bool = False, check_errors: bool = False) -> Any:
    """(L and D of A = L D L^T in one matrix, LAPACK's pivots, info) of symmetric matrices, of which
    the lower triangle is read; D has blocks of 1 or 2 rows. hermitian: of complex matrices that
    equal their conjugate transpose, A = L D L^H. info is the place of the first zero of D, from 1,
    or 0. No gradient."""
    matrices("linalg.ldl_factor_ex", A, square=True)
    if A.requires_grad and minigrad.is_grad_enabled():
        raise NotImplementedError("linalg.ldl_factor_ex: there is no gradient of it; use detach()")
    factor, n = _lapack(_ldl_routine("trf", A, hermitian), A), A.shape[-1]
    found = [factor(m, lower=1) for m in A._array.reshape(-1, n, n)] if A.numel() else []
    packed = np.reshape([np.tril(f[0]) for f in found], A.shape).astype(A._array.dtype)
    pivots = np.reshape([f[1] for f in found], A.shape[:-1]).astype(np.int32)
    info = wrap(np.resize([f[2] for f in found], A.shape[:-2]).astype(np.int32))
    if check_errors and bool(info.any()):
        raise RuntimeError(
            f"linalg.ldl_factor: The factorization could not be completed because the input is "
            f"singular: D[{int(info.max())},{int(info.max())}] is zero"
        )
    return LDL_FACTOR_EX(wrap(packed), wrap(pivots), info)


def ldl_factor(A: Tensor, *, hermitian: bool = False) -> Any:
    """(LD, pivots) of `ldl_factor_ex`; RuntimeError for a singular matrix."""
    return LDL_FACTOR(*ldl_factor_ex(A, hermitian=hermitian, check_errors=True)[:2])


def ldl_solve(LD: Tensor, pivots: Tensor, B: Tensor, *, hermitian: bool = False) -> Tensor:
    """X of A X = B, for matrices B, from what `ldl_factor` gives of A; no gradient."""
    matrices("linalg.ldl_solve", LD, square=True)
    matrices("linalg.ldl_solve", B)
    if B.shape[-2] != LD.shape[-1]:
        raise RuntimeError(
            f"linalg.ldl_solve: Incompatible matrix sizes: B has {B.shape[-2]} rows, but LD is "
            f"{LD.shape[-1]} by {LD.shape[-1]}"
        )
    if (LD.requires_grad or B.requires_grad) and minigrad.is_grad_enabled():
        raise NotImplementedError("linalg.ldl_solve: there is no gradient of it; use detach()")
    finish, (n, k) = _lapack(_ldl_routine("trs", LD, hermitian), LD), B.shape[-2:]
    lead = np.broadcast_shapes(LD.shape[:-2], B.shape[:-2])
    if not B.numel():
        return B.expand(*lead, n, k).clone()
    factors, right = LD.expand(*lead, n, n)._array, B.expand(*lead, n, k)._array
    places = pivots.expand(*lead, n)._array.reshape(-1, n)
    each = zip(factors.reshape(-1, n, n), places, right.reshape(-1, n, k), strict=True)
    found = [finish(f, p, b, lower=1)[0] for f, p, b in each]
    return wrap(np.reshape(found, (*lead, n, k)).astype(B._array.dtype))


def _packed(name: str, A: Tensor, pivot: bool) -> tuple[Tensor, Tensor]:
    _check_lu(name, A, pivot)
    if not (A.requires_grad and minigrad.is_grad_enabled()):
        return _factored(A)
    _, lower, upper, pivots = _parts(A)
    m, n = A.shape[-2:]
    low = lower.tril(-1)
    if n > m:
        low = minigrad.cat([low, low.new_zeros((*low.shape[:-1], n - m))], -1)
    elif m > n:
        upper = minigrad.cat([upper, upper.new_zeros((*upper.shape[:-2], m - n, n))], -2)
    return low + upper, pivots


def _check_lu(name: str, A: Tensor, pivot: bool) -> None:
    matrices(name, A)
    if not pivot:
        raise NotImplementedError(f"{name}: minigrad has no pivot=False")


def lu(A: Tensor, *, pivot: bool = True) -> Any:
    """(P, L, U) with A = P L U, L with ones on the diagonal; derivatives up to the third."""
    _check_lu("linalg.lu", A, pivot)
    return LU(*_parts(A)[:3])


def lu_solve(
    LU: Tensor, pivots: Tensor, B: Tensor, *, left: bool = True, adjoint: bool = False
) -> Tensor:
    """X of A X = B, from what `lu_factor` gives of A."""
    matrices("linalg.lu_solve", LU, square=True)
    n = LU.shape[-1]
    eye = minigrad.eye(n, dtype=LU.dtype, device=LU.device)
    a = _permutation(pivots, n, LU) @ (LU.tril(-1) + eye) @ LU.triu()
    return solve(a.mH if adjoint else a, B, left=left)


def vector_norm(
    x: Tensor, ord: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Tensor:
    """(sum of |x| ** ord) ** (1 / ord) over `dim` (all elements for None)."""
    if not isinstance(ord, int | float):
        raise TypeError(f"linalg.vector_norm: expected a number for ord, got {ord!r}")
    if dim is None and keepdim is False and x.ndim != 1:
        x = x.reshape(-1)
    return x.norm(ord, dim, keepdim, dtype=dtype)


def matrix_norm(
    A: Tensor,
    ord: Any = "fro",
    dim: Sequence[int] = (-2, -1),
    keepdim: bool = False,
    *,
    dtype: Any = None,
) -> Tensor:
    """A norm of matrices: "fro", "nuc", inf and -inf (sums of rows), 1 and -1 (of columns), 2 and
    -2 (largest and smallest singular value)."""
    A = A if dtype is None else A.to(dtype)
    if A.ndim < 2:
        raise RuntimeError(
            "linalg.matrix_norm: The input tensor A must have at least 2 dimensions."
        )
    if len(dim) != 2:
        raise RuntimeError(f"linalg.matrix_norm: dim must be a 2-tuple. Got {dim}")
    row, column = (normalize_dim(d, A.ndim) for d in dim)
    if row == column:
        raise RuntimeError(f"linalg.matrix_norm: dims must be different. Got ({row}, {column})")
    if not (A.is_floating_point() or A.is_complex()):
        raise RuntimeError(
            "linalg.matrix_norm: Expected a floating point or complex tensor as input. Got "
            f"{A.dtype}"
        )
    needed: dict[Any, tuple[int, ...]] = {2: (row, column), -2: (row, column)}
    needed |= {1: (column,), -1: (column,), math.inf: (row,), -math.inf: (row,)}
    if any(not A.shape[d] for d in needed.get(ord, ())):
        if ord < 0:
            raise IndexError(f"linalg.matrix_norm: an empty matrix has no norm of order {ord}")
        return A.abs().sum((row, column), keepdim)
    if ord == "fro":
        return A.norm(2, (row, column), keepdim)
    if ord in (math.inf, -math.inf, 1, -1):
        summed, kept = (column, row) if abs(ord) == math.inf else (row, column)
        sums = A.abs().sum(summed, keepdim=True)
        found = sums.amax(kept, keepdim=True) if ord > 0 else sums.amin(kept, keepdim=True)
    elif ord in (2, -2, "nuc"):
        s = svdvals(A.movedim((row, column), (-2, -1)))
        found = s.sum(-1) if ord == "nuc" else s.amax(-1) if ord == 2 else s.amin(-1)
        for d in sorted((row, column)):
            found = found.unsqueeze(d)
    else:
        raise RuntimeError(f"linalg.matrix_norm: Order {ord} not supported.")
    if keepdim:
        return found
    return found.squeeze((row, column))


def norm(
    A: Tensor, ord: Any = None, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Tensor:
    """`vector_norm`, or `matrix_norm` for a matrix, two dimensions or a name."""
    if ord is None:
        return vector_norm(A, 2, dim, keepdim, dtype=dtype)
    two = isinstance(dim, list | tuple) and len(dim) == 2
    if isinstance(ord, str) or two or (dim is None and A.ndim == 2):
        if dim is None and A.ndim != 2:
            raise RuntimeError(
                f"linalg.norm: If dim is not specified but ord is, the input must be 1D or 2D. Got "
                f"{A.ndim}D."
            )
        return matrix_norm(A, ord, dim or (-2, -1), keepdim, dtype=dtype)
    return vector_norm(A, ord, dim, keepdim, dtype=dtype)


def cond(A: Tensor, p: Any = None) -> Tensor:
    """The condition number: a norm times that of the inverse; by default of singular values."""
    matrices("linalg.cond", A)
    if p in (None, 2, -2):
        s = svdvals(A)
        large, small = s[..., 0], s[..., -1]
        return small / large if p == -2 else large / small
    return matrix_norm(A, p) * matrix_norm(inv(A), p)


def cross(input: Tensor, other: Tensor, *, dim: int = -1) -> Tensor:
    """The cross product of vectors of three elements along `dim`."""
    if input.ndim != other.ndim:
        raise RuntimeError("linalg.cross: inputs must have the same number of dimensions.")
    if input.shape[dim] != 3 or other.shape[dim] != 3:
        raise RuntimeError(
            f"linalg.cross: inputs dimension {dim} must have length 3. Got {input.shape[dim]} and "
            f"{other.shape[dim]}"
        )
    if input.shape != other.shape:
        input, other = minigrad.broadcast_tensors(input, other)
    return products.cross(input, other, dim)


def vecdot(x: Tensor, y: Tensor, *, dim: int = -1) -> Tensor:
    """The scalar products of vectors along `dim`."""
    if not (x.is_floating_point() or x.is_complex()):
        raise RuntimeError(
            f"linalg.vecdot: Expected a floating point or complex tensor as input. Got {x.dtype}"
        )
    return (minigrad.conj(x) * y).sum(dim)


def diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """The diagonals of matrices."""
    return A.diagonal(offset, dim1, dim2)


def vander(x: Tensor, *, N: int | None = None) -> Tensor:
    """Powers 0 to N - 1 of each element, as a new last dimension."""
    if x.dtype in (minigrad.bool, minigrad.float16, minigrad.bfloat16):
        raise RuntimeError(
            f"linalg.vander supports floating, complex and integer tensors, but got {x.dtype}"
        )
    x = x if x.ndim else x.unsqueeze(0)
    count = x.shape[-1] if N is None else N
    ones = minigrad.ones_like(x).unsqueeze(-1)
    if count < 2:
        return ones[..., :count]
    powers = x.unsqueeze(-1).expand(*x.shape, count - 1)
    return minigrad.cat([ones, powers.cumprod(-1)], -1)


def tensorinv(A: Tensor, ind: int = 2) -> Tensor:
    """The inverse of the map from the last dimensions to the first `ind`."""
    if ind <= 0:
        raise RuntimeError("Expected a strictly positive integer for 'ind'")
    rows, columns = A.shape[:ind], A.shape[ind:]
    if math.prod(rows) != math.prod(columns):
        raise RuntimeError(
            "Expected self to satisfy the requirement prod(self.shape[ind:]) == "
            f"prod(self.shape[:ind]), but got {math.prod(columns)} != {math.prod(rows)}"
        )
    return inv(A.reshape(math.prod(rows), -1)).reshape(*columns, *rows)


def tensorsolve(A: Tensor, B: Tensor, dims: Sequence[int] | None = None) -> Tensor:
    """X with tensordot(A, X, X.ndim) = B."""
    if dims is not None:
        A = A.movedim(tuple(dims), tuple(range(A.ndim - len(dims), A.ndim)))
    shape = A.shape[B.ndim :]
    if math.prod(shape) != B.numel():
        raise RuntimeError(
            "Expected self to satisfy the requirement prod(self.shape[other.ndim:]) == "
            f"prod(self.shape[:other.ndim]), but got {math.prod(shape)} != {B.numel()}"
        )
    return solve(A.reshape(B.numel(), -1), B.reshape(-1)).reshape(shape)


_OF_PRODUCTS = {"matmul", "matrix_power", "multi_dot"}  # whose parts `autocast` casts
for _name in filter(str.islower, __all__):
    _function = globals()[_name]
    _function = _function if _name in _OF_PRODUCTS else autocasts(_function)
    globals()[_name] = tensors_only(_function, True, f"{__name__}.{_name}")

__getattr__, __dir__ = namespace(__name__)
