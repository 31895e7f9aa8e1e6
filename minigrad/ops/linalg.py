"""Linear algebra of matrices (..., m, n) by NumPy's or CuPy's routines, with gradients.

Each gradient is written in operations on tensors, so higher derivatives exist. The formulas are
those of Giles, "Collected matrix derivative results for forward and reverse mode algorithmic
differentiation" (2008). Eigenvalues and singular values: `minigrad.ops.eigen`.
"""

from __future__ import annotations

import functools
import warnings
from typing import Any

import numpy as np

from minigrad._names import return_type
from minigrad.autograd.function import Function
from minigrad.autograd.mode import autocasts, is_grad_enabled
from minigrad.autograd.node import Op
from minigrad.backends import array_module, every_element, scipy_module
from minigrad.ops.matmul import MatMul
from minigrad.ops.pointwise import broadcast_shape, is_narrow
from minigrad.tensor import Tensor, export, functions, wrap


class _LinAlgError(RuntimeError):  # torch's name of the class, which tracebacks show
    """A matrix that has no such decomposition: singular, or not positive definite."""

    __module__ = "minigrad.linalg"


LinAlgError = _LinAlgError


_DTYPES = (np.float32, np.float64, np.complex64, np.complex128)


def matrices(name: str, x: Tensor, square: bool = False, any_dtype: bool = False) -> None:
    """Errors unless x holds matrices, of single or double precision, square ones if asked for."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{name}(): argument 'A' must be Tensor, not {type(x).__name__}")
    if x._array.ndim < 2:
        raise RuntimeError(f"{name}: The input tensor A must have at least 2 dimensions.")
    if square and x._array.shape[-1] != x._array.shape[-2]:
        raise RuntimeError(
            f"{name}: A must be batches of square matrices, but they are "
            f"{x._array.shape[-2]} by {x._array.shape[-1]} matrices"
        )
    if x._array.dtype not in _DTYPES and not any_dtype:
        narrow, other = "Low precision dtypes not supported", "Expected a floating point or complex"
        wanted = narrow if is_narrow(x._array) else f"{other} tensor as input"
        legacy = x.dtype.legacy_name.removesuffix("Tensor")
        raise NotImplementedError(f"{name}: {wanted} (of 32 or 64 bits a part). Got {legacy}")


def solved(name: str, call: Any, *arrays: Any, why: Any = None) -> Any:
    """The result of a routine; LinAlgError where it finds none. why: the reason for one matrix, or
    None if it has a result."""
    try:
        return call(*arrays)
    except np.linalg.LinAlgError as error:
        matrix = arrays[0]
        asked = why is not None and type(matrix) is np.ndarray
        for i, one in enumerate(matrix.reshape(-1, *matrix.shape[-2:]) if asked else ()):
            reason = why(one)
            if reason is not None:
                where = f"(Batch element {i}): " if matrix.ndim > 2 else ""
                raise LinAlgError(f"{name}: {where}{reason}") from None
        raise LinAlgError(f"{name}: {error}") from None


def zero_pivot(a: np.ndarray) -> int:
    """The place of the first zero on the diagonal of U of A = P L U, from 1; 0 without one."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the matrix is singular
        upper = scipy_module(a, "linalg").lu_factor(a)[0]
    zeros = np.flatnonzero(upper.diagonal() == 0)
    return int(zeros[0]) + 1 if zeros.size else 0


def leading_minor(a: np.ndarray) -> int:
    """The order of the first leading minor that is not positive-definite; 0 without one."""
    for order in range(1, len(a) + 1):
        try:
            if not np.isfinite(np.linalg.cholesky(a[:order, :order])).all():
                return order
        except np.linalg.LinAlgError:
            return order
    return 0


def _why_singular(a: np.ndarray) -> str | None:
    place = zero_pivot(a)
    if not place:
        return None
    return (
        f"The diagonal element {place} is zero, the inversion could not be completed because the "
        "input matrix is singular."
    )


def _why_not_positive(a: np.ndarray) -> str | None:
    order = leading_minor(a)
    if not order:
        return None
    return (
        "The factorization could not be completed because the input is not positive-definite (the "
        f"leading minor of order {order} is not positive-definite)."
    )


def _why_unsolved(a: np.ndarray) -> str | None:
    singular = _why_singular(a) is not None
    return "The solver failed because the input matrix is singular." if singular else None


class Inverse(Op):
    """The inverses of square matrices."""

    saves = ()
    saves_outputs = (0,)
    grad_name = "LinalgInvExBackward0"

    @staticmethod
    def forward(a: Any) -> Any:
        return solved("linalg.inv", array_module(a).linalg.inv, a, why=_why_singular)

    @staticmethod
    def vjp(ctx: Any, g: Tensor) -> tuple:
        (y,) = ctx.tensors()
        return (-(y.mH @ g @ y.mH),)


class Solve(Op):
    """X of A X = B, for matrices B."""

    saves = (0,)
    saves_outputs = (0,)
    grad_name = "LinalgSolveExBackward0"

    @staticmethod
    def forward(a: Any, b: Any) -> Any:
        return solved("linalg.solve", array_module(a).linalg.solve, a, b, why=_why_unsolved)

    @staticmethod
    def vjp(ctx: Any, g: Tensor) -> tuple:
        a, x = ctx.tensors()
        gb = Solve.apply(a.mH, g)
        return -(gb @ x.mH) if ctx.needs[0] else None, gb if ctx.needs[1] else None


class SolveTriangular(Op):
    """X of A X = B, for matrices B and one triangle of A; unit: with ones on its diagonal."""

    saves = (0,)
    saves_outputs = (0,)
    grad_name = "LinalgSolveTriangularBackward0"

    @staticmethod
    def forward(a: Any, b: Any, upper: bool, unit: bool) -> Any:
        if type(a) is np.ndarray and type(b) is np.ndarray:
            return _substituted(a, b, upper, unit)
        xp, name = array_module(a), "linalg.solve_triangular"
        triangle = (xp.triu if upper else xp.tril)(a)
        if unit:
            triangle = xp.where(xp.eye(a.shape[-1], dtype=bool), xp.ones((), a.dtype), triangle)
        return solved(name, functools.partial(_by_halves, upper=upper), triangle, b)

    @staticmethod
    def vjp(ctx: Any, g: Tensor, upper: bool, unit: bool) -> tuple:
        a, x = ctx.tensors()
        gb = SolveTriangular.apply(a.mH, g, upper=not upper, unit=unit)
        if not ctx.needs[0]:
            return None, gb
        ga = -(gb @ x.mH)
        ga = ga.triu(int(unit)) if upper else ga.tril(-int(unit))
        return ga, gb if ctx.needs[1] else None


_SOLVED_WHOLE = 32  # unknowns, for which a general routine takes about as long as two halves
_MANY = 4  # times as many matrices as unknowns: calls for each take longer than steps in all


def _by_halves(a: Any, b: Any, upper: bool) -> Any:
    """X of A X = B by halves: that of the one half, and its share taken away, that of the other. So
    nearly all of the work are products, and none is the factorisation that a general routine makes
    of its matrix."""
    n = a.shape[-1]
    if n <= _SOLVED_WHOLE:
        return array_module(a).linalg.solve(a, b)
    halves = slice(n // 2), slice(n // 2, n)
    one, other = reversed(halves) if upper else halves
    x = _by_halves(a[..., one, one], b[..., one, :], upper)
    rest = b[..., other, :] - a[..., other, one] @ x
    y = _by_halves(a[..., other, other], rest, upper)
    return array_module(a).concatenate((y, x) if upper else (x, y), -2)


def _substituted(a: np.ndarray, b: np.ndarray, upper: bool, unit: bool) -> np.ndarray:
    """X of A X = B by substitution: by BLAS, which gives infinities and NaN for singular matrices,
    or for many small ones in all at once."""
    out, (n, k) = np.empty(b.shape, b.dtype), b.shape[-2:]
    if not b.size:
        return out
    if n <= _SOLVED_WHOLE and b.size > _MANY * n * n * k:
        return _by_rows(a, b, upper, unit)
    from scipy.linalg import get_blas_funcs

    trsm = get_blas_funcs("trsm", (a,))
    matrices, right = a.reshape(-1, n, n), b.reshape(-1, n, k)
    for i, x in enumerate(out.reshape(-1, n, k)):
        # In BLAS's order, by columns, these are the transposes: X^T A^T = B^T
        x[:] = trsm(1, matrices[i].T, right[i].T, side=1, lower=upper, diag=unit).T
    return out


def _by_rows(a: np.ndarray, b: np.ndarray, upper: bool, unit: bool) -> np.ndarray:
    """X of A X = B by substitution, in all matrices at once, which lie along the last dimension."""
    n, k = b.shape[-2:]
    a = np.ascontiguousarray(np.moveaxis(a.reshape(-1, n, n), 0, -1))
    x = np.moveaxis(b.reshape(-1, n, k), 0, -1).copy()
    with np.errstate(divide="ignore", invalid="ignore"):
        for i in reversed(range(n)) if upper else range(n):
            if not unit:
                x[i] /= a[i, i]
            left = slice(i) if upper else slice(i + 1, n)
            x[left] -= a[left, i, None] * x[i]
    return np.ascontiguousarray(np.moveaxis(x, -1, 0)).reshape(b.shape)


class SignLogAbsDet(Function):
    """(det A / |det A|, which has no gradient where it is real, log |det A|)."""

    grad_name = "LinalgSlogdetBackward0"
    generate_vmap_rule = True

    @staticmethod
    def forward(ctx: Any, a: Tensor) -> tuple:
        xp, array = array_module(a._array), a._array
        sign, size = xp.linalg.slogdet(array)
        found = wrap(xp.asarray(sign, array.dtype)), wrap(xp.asarray(size, array.real.dtype))
        ctx.save_for_backward(a, found[0])
        return found

    @staticmethod
    def backward(ctx: Any, g_sign: Tensor, g: Tensor) -> Tensor:
        a, sign = ctx.saved_tensors
        if a.is_complex():
            g = functions.complex(g, -functions.imag(functions.conj(g_sign) * sign))
        return Inverse.apply(a).mH * g[..., None, None]


class Det(Op):
    """The determinants of square matrices."""

    saves_outputs = (0,)
    grad_name = "LinalgDetBackward0"

    @staticmethod
    def forward(a: Any) -> Any:
        xp = array_module(a)
        return xp.asarray(xp.linalg.det(a), a.dtype)

    @staticmethod
    def vjp(ctx: Any, g: Tensor) -> tuple:
        a, y = ctx.tensors()
        if not every_element(y._array).all():
            return (_cofactors(a.detach()) * g[..., None, None],)
        return (Inverse.apply(a).mH * (g * functions.conj(y))[..., None, None],)


def _cofactors(a: Tensor) -> Tensor:
    """The conjugates of the derivatives of determinants, also of singular matrices, by the SVD."""
    xp = array_module(a._array)
    u, s, vh = xp.linalg.svd(a._array)
    n = s.shape[-1]
    kept = xp.where(xp.eye(n, dtype=bool), 1, s[..., None, :])
    sign = xp.conj(xp.linalg.det(u) * xp.linalg.det(vh))
    return wrap((u * (kept.prod(-1) * sign[..., None])[..., None, :]) @ vh)


class Cholesky(Op):
    """L of A = L L^H."""

    saves = ()
    saves_outputs = (0,)
    grad_name = "LinalgCholeskyExBackward0"

    @staticmethod
    def forward(a: Any) -> Any:
        xp = array_module(a)
        if xp is not np:  # which reads one triangle
            a = xp.tril(a) + xp.swapaxes(xp.tril(a, -1), -1, -2).conj()
        factor = solved("linalg.cholesky", xp.linalg.cholesky, a, why=_why_not_positive)
        last = factor[..., -1:, -1:]  # NaN where there is any
        if xp is np and (last != last).any():  # LAPACK goes on with NaN
            raise LinAlgError("linalg.cholesky: the input has NaN, so it is not positive-definite")
        return factor

    @staticmethod
    def vjp(ctx: Any, g: Tensor) -> tuple:
        (lower,) = ctx.tensors()
        solve = functools.partial(SolveTriangular.apply, upper=True, unit=False)
        inner = solve(lower.mH, _hermitian(lower.mH @ g))
        return (solve(lower.mH, inner.mH).mH * 0.5,)


def _hermitian(m: Tensor) -> Tensor:
    """The matrix that is equal to its conjugate transpose and has the lower triangle of m."""
    below = m.tril(-1)
    return below + below.mH + functions.diag_embed(functions.real(m.diagonal(0, -2, -1)))


class Pinv(Op):
    """Pseudoinverses; singular values up to rtol times the largest count as zero."""

    saves_outputs = (0,)
    grad_name = "LinalgPinvBackward0"

    @staticmethod
    def forward(a: Any, rtol: float) -> Any:
        return solved("linalg.pinv", array_module(a).linalg.pinv, a, rtol)

    @staticmethod
    def vjp(ctx: Any, g: Tensor, rtol: float) -> tuple:
        a, p = ctx.tensors()
        gt, pt = g.mH, p.mH
        rest = gt @ p @ pt - a @ (p @ gt @ p @ pt)
        rest = rest + pt @ p @ gt - (pt @ p @ gt @ p) @ a
        return (rest - pt @ g @ pt,)


class MatrixExp(Op):
    """Exponentials of square matrices."""

    grad_name = "LinalgMatrixExpBackward0"

    @staticmethod
    def forward(a: Any) -> Any:
        expm = scipy_module(a, "linalg").expm
        if array_module(a).__name__ != "numpy":
            flat = a.reshape(-1, *a.shape[-2:])
            found = array_module(a).stack([expm(m) for m in flat]) if len(flat) else flat
            return found.reshape(a.shape)
        return expm(a).astype(a.dtype, copy=False) if a.size else a.copy()

    @staticmethod
    def vjp(ctx: Any, g: Tensor) -> tuple:
        (a,) = ctx.tensors()
        n = a._array.shape[-1]
        top = functions.cat([a.mH, g], -1)
        below = functions.cat([functions.zeros_like(a), a.mH], -1)
        return (MatrixExp.apply(functions.cat([top, below], -2))[..., :n, n:],)


class Qr(Function):
    """(Q, R) of A (m, n) with m >= n, Q (m, n)."""

    grad_name = "LinalgQrBackward0"
    generate_vmap_rule = True

    @staticmethod
    def forward(ctx: Any, a: Tensor) -> tuple:
        q, r = map(wrap, array_module(a._array).linalg.qr(a._array))
        ctx.save_for_backward(q, r)
        return q, r

    @staticmethod
    def backward(ctx: Any, gq: Tensor, gr: Tensor) -> Tensor:
        q, r = ctx.saved_tensors
        symmetric = _hermitian(r @ gr.mH - gq.mH @ q)
        return SolveTriangular.apply(r, (gq + q @ symmetric).mH, upper=True, unit=False).mH


class CompleteQr(Function):
    """(Q, R) of A (m, n) with m > n, Q (m, m)."""

    grad_name = "LinalgQrBackward0"
    generate_vmap_rule = True

    @staticmethod
    def forward(ctx: Any, a: Tensor) -> tuple:
        q, r = array_module(a._array).linalg.qr(a._array, "complete")
        return wrap(q), wrap(r)

    @staticmethod
    def backward(ctx: Any, gq: Tensor, gr: Tensor) -> Tensor:
        raise RuntimeError(
            "linalg.qr: the gradient of mode='complete' does not exist for matrices with more "
            "rows than columns; use mode='reduced'"
        )


def batches(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Both with the batch dimensions that theirs broadcast to."""
    if a._array.shape[:-2] == b._array.shape[:-2]:
        return a, b
    shape = broadcast_shape(a._array.shape[:-2], b._array.shape[:-2])
    return a.expand(*shape, *a._array.shape[-2:]), b.expand(*shape, *b._array.shape[-2:])


@export()
@autocasts
def inverse(input: Tensor) -> Tensor:
    """The inverse of square matrices; RuntimeError for a singular one."""
    matrices("linalg.inv", input, square=True)
    return Inverse.apply(input)


@export()
def det(input: Tensor) -> Tensor:
    """The determinant of square matrices."""
    matrices("linalg.det", input, square=True)
    return Det.apply(input)


TRIANGULAR = return_type("triangular_solve", "solution", "cloned_coefficient")
LEGACY_SLOGDET = return_type("slogdet", "sign", "logabsdet")
SLOGDET = return_type("linalg_slogdet", "sign", "logabsdet")


def linalg_slogdet(A: Tensor) -> Any:
    """(sign, logarithm of the absolute value) of the determinant of square matrices."""
    matrices("linalg.slogdet", A, square=True)
    return SLOGDET(*SignLogAbsDet.apply(A))


@export()
def slogdet(input: Tensor) -> Any:
    """`linalg.slogdet`."""
    return LEGACY_SLOGDET(*linalg_slogdet(input))


@export()
def logdet(input: Tensor) -> Tensor:
    """The logarithm of the determinant: NaN where that is negative."""
    matrices("linalg.det", input, square=True)
    sign, size = SignLogAbsDet.apply(input)
    if sign.is_complex():
        return size + sign.log()
    return functions.where(sign < 0, float("nan"), size)


@export()
@autocasts
def cholesky(input: Tensor, upper: bool = False) -> Tensor:
    """The lower (or upper) triangle whose product with its conjugate transpose is `input`."""
    matrices("linalg.cholesky", input, square=True)
    lower = Cholesky.apply(input)
    return lower.mH if upper else lower


@export()
@autocasts
def cholesky_solve(input: Tensor, input2: Tensor, upper: bool = False) -> Tensor:
    """X of A X = input, from the Cholesky factor `input2` of A, of which one triangle is read."""
    matrices("cholesky_solve", input2, square=True)
    if input2.dtype != input.dtype:
        raise RuntimeError(
            f"cholesky_solve: Expected b and A to have the same dtype, but found b of type "
            f"{input.dtype} and A of type {input2.dtype} instead"
        )
    lower = input2.mH if upper else input2
    return solve_triangular(lower.mH, solve_triangular(lower, input, upper=False), upper=True)


@export()
@autocasts
def cholesky_inverse(input: Tensor, upper: bool = False) -> Tensor:
    """The inverse of A, from its Cholesky factor, of which one triangle is read."""
    matrices("cholesky_inverse", input, square=True)
    eye = functions.eye(input.shape[-1], dtype=input.dtype, device=input.device)
    return cholesky_solve(eye, input, upper)


@export()
@autocasts
def qr(input: Tensor, some: bool = True) -> Any:
    """(Q, R) with `input` = Q R; see `minigrad.linalg.qr`."""
    return linalg_qr(input, "reduced" if some else "complete")


@export()
@autocasts
def pinverse(input: Tensor, rcond: float = 1e-15) -> Tensor:
    """The pseudoinverse."""
    matrices("linalg.pinv", input)
    return Pinv.apply(input, rtol=rcond)


@export()
def matrix_exp(input: Tensor) -> Tensor:
    """The exponential of square matrices."""
    matrices("linalg.matrix_exp", input, square=True)
    return MatrixExp.apply(input)


@export()
def matrix_power(input: Tensor, n: int) -> Tensor:
    """Square matrices to an integer power; a negative one inverts."""
    any_dtype = n >= 0 and (input._array.dtype.kind in "biu" or is_narrow(input._array))
    matrices("linalg.matrix_power", input, square=True, any_dtype=any_dtype)
    if n < 0:
        return matrix_power(Inverse.apply(input), -n)
    result = None
    while n:
        if n % 2:
            result = input if result is None else MatMul.apply(result, input)
        n //= 2
        input = MatMul.apply(input, input) if n else input
    if result is not None:
        return result
    size = input._array.shape[-1]
    eye = functions.eye(size, dtype=input.dtype, device=input.device)
    return (eye + input * 0).to(input.dtype)


@export()
@autocasts
def triangular_solve(
    input: Tensor, A: Tensor, upper: bool = True, transpose: bool = False, unitriangular=False
) -> Any:
    """(X of A X = input, A) for a triangular A."""
    if input.dtype != A.dtype:
        raise RuntimeError(
            f"triangular_solve: Expected b and A to have the same dtype, but found b of type "
            f"{input.dtype} and A of type {A.dtype} instead."
        )
    x = solve_triangular(
        A.mT if transpose else A, input, upper=upper != transpose, unitriangular=unitriangular
    )
    return TRIANGULAR(x, A)


QR = return_type("linalg_qr", "Q", "R")


def solve(A: Tensor, B: Tensor, *, left: bool = True) -> Tensor:
    """X of A X = B (with left=False of X A = B); B may be a vector, or one per matrix."""
    matrices("linalg.solve", A, square=True)
    if A.dtype != B.dtype:
        raise RuntimeError(
            f"linalg.solve: Expected A and B to have the same dtype, but found A of type {A.dtype} "
            f"and B of type {B.dtype} instead"
        )
    vector = B.ndim == 1 or (B.ndim == A.ndim - 1 and B.shape == A.shape[:-1])
    if vector and not left:
        raise RuntimeError(
            "linalg.solve: Vector broadcasting of the left hand side is not supported for "
            "left=False"
        )
    right = B.unsqueeze(-1) if vector else B
    if not left:
        return solve(A.mT, right.mT).mT
    if right.ndim < 2 or right.shape[-2] != A.shape[-1]:
        raise RuntimeError(
            f"linalg.solve: Incompatible shapes of A and B for the equation AX = B "
            f"({A.shape[-2]}x{A.shape[-1]} and {'x'.join(map(str, B.shape))})"
        )
    found = Solve.apply(*batches(A, right))
    return found.squeeze(-1) if vector else found


def solve_triangular(
    A: Tensor, B: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Tensor:
    """X of A X = B in A's dtype, reading the upper or lower triangle of A alone."""
    matrices("linalg.solve_triangular", A, square=True)
    B = B if B._array.dtype == A._array.dtype else B.to(A.dtype)
    if B.ndim < 2 or B.shape[-2 if left else -1] != A.shape[-1]:
        raise RuntimeError(
            f"linalg.solve_triangular: Incompatible shapes of A and B for the equation "
            f"{'AX' if left else 'XA'} = B ({'x'.join(map(str, A.shape[-2:]))} and "
            f"{'x'.join(map(str, B.shape[-2:]))})"
        )
    unit = bool(unitriangular)
    if left:
        return SolveTriangular.apply(*batches(A, B), upper=bool(upper), unit=unit)
    return SolveTriangular.apply(*batches(A.mT, B.mT), upper=not upper, unit=unit).mT


def linalg_qr(A: Tensor, mode: str = "reduced") -> Any:
    """(Q, R) with A = Q R, Q with orthonormal columns. mode: "reduced", "complete" (Q square), or
    "r" (Q empty). "complete" has a gradient for square and wide A only."""
    matrices("linalg.qr", A)
    if mode not in ("reduced", "complete", "r"):
        raise RuntimeError(
            f"qr received unrecognized mode '{mode}' but expected one of 'reduced' (default), "
            "'r', or 'complete'"
        )
    m, n = A.shape[-2:]
    if mode == "r":
        if A.requires_grad and is_grad_enabled():
            return QR(A.new_empty(0), linalg_qr(A)[1])
        return QR(A.new_empty(0), wrap(array_module(A._array).linalg.qr(A._array, "r")))
    if mode == "complete" and m > n:
        return QR(*CompleteQr.apply(A))
    if m >= n:
        return QR(*Qr.apply(A))
    q, square = Qr.apply(A[..., :m])
    return QR(q, functions.cat([square, q.mH @ A[..., m:]], -1))


GEQRF = return_type("geqrf", "a", "tau")


@export()
@autocasts
def geqrf(input: Tensor) -> Any:
    """(a, tau): R in the upper triangle of a, below it the Householder vectors v of Q, whose first
    element 1 is left out: Q is the product of I - tau v v^H. No gradient; see `linalg.qr`."""
    matrices("geqrf", input)
    a, tau = array_module(input._array).linalg.qr(input._array, "raw")
    return GEQRF(wrap(a.swapaxes(-1, -2).copy()), wrap(tau))


def householder_product(input: Tensor, tau: Tensor) -> Tensor:
    """The first k columns of the product of I - tau[i] v v^H, v the i-th of r Householder vectors.

    input (..., m, k): below its diagonal the vectors, as `geqrf` gives them; tau (..., r), r <= k.
    The product is I - V T V^H with T = (I + D S)^-1 D, where D = diag(tau) and S is the part of
    V^H V above the diagonal (Joffrain et al., "Accumulating Householder transformations", 2006).
    """
    matrices("linalg.householder_product", input)
    if tau.dtype != input.dtype:
        raise RuntimeError(
            f"linalg.householder_product: tau dtype {tau.dtype} does not match input dtype "
            f"{input.dtype}"
        )
    (m, k), r = input._array.shape[-2:], tau._array.shape[-1]
    if k > m or r > k:
        raise RuntimeError(
            "linalg.householder_product: expected input (..., m, k) with k <= m and tau (..., r) "
            f"with r <= k, got {list(input.shape)} and {list(tau.shape)}"
        )
    one = functions.eye(m, k, dtype=input.dtype, device=input.device)
    V, D = input[..., :r].tril(-1) + one[:, :r], tau.unsqueeze(-1)
    T = Solve.apply(*batches(one[:r, :r] + D * (V.mH @ V).triu(1), D * one[:r, :r]))
    return one - V @ (T @ V[..., :k, :].mH)


@export()
@autocasts
def orgqr(input: Tensor, input2: Tensor) -> Tensor:
    """`linalg.householder_product`: Q of the vectors and factors that `geqrf` gives."""
    return householder_product(input, input2)
