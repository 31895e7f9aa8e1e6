"""Eigenvalues and singular values of matrices, by NumPy's or CuPy's routines, with gradients.

Those of vectors of equal values don't exist: the formulas divide by differences of values. Where
only values have a gradient, these terms are left out, and the gradient exists. The formulas are
those of Giles (see `minigrad.ops.linalg`) and Townsend, "Differentiating the singular value
decomposition" (2016).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minigrad import dtypes
from minigrad._names import return_type
from minigrad.autograd.function import Function
from minigrad.autograd.mode import autocasts
from minigrad.autograd.node import Op
from minigrad.backends import array_module
from minigrad.ops.linalg import Solve, matrices, solved
from minigrad.ops.reduce import NORMS
from minigrad.tensor import Tensor, export, functions, normalize_dim, wrap

LEGACY_SVD = return_type("svd", "U", "S", "V")
SVD = return_type("linalg_svd", "U", "S", "Vh")


class Eigh(Function):
    """(eigenvalues ascending, eigenvectors) of symmetric or Hermitian matrices."""

    grad_name = "LinalgEighBackward0"
    generate_vmap_rule = True

    @staticmethod
    def forward(ctx: Any, a: Tensor, lower: bool) -> tuple:
        xp = array_module(a._array)
        call = lambda x: xp.linalg.eigh(x, "L" if lower else "U")  # noqa: E731
        values, vectors = map(wrap, solved("linalg.eigh", call, a._array))
        ctx.save_for_backward(values, vectors)
        ctx.set_materialize_grads(False)
        return values, vectors

    @staticmethod
    def backward(ctx: Any, g_values: Tensor | None, g_vectors: Tensor | None) -> tuple:
        values, v = ctx.saved_tensors
        inner = _diagonal(g_values, values)
        if g_vectors is not None:
            turn = v.mH @ g_vectors  # V stays orthonormal: the skew-Hermitian part counts
            inner = inner + (turn - turn.mH) / (2 * _gaps(values))
        return v @ inner @ v.mH, None


def _diagonal(gradient: Tensor | None, values: Tensor) -> Tensor:
    """Matrices with the gradient of `values` on the diagonal; zeros if there is none."""
    return functions.diag_embed(functions.zeros_like(values) if gradient is None else gradient)


def _gaps(values: Tensor) -> Tensor:
    """E[i, j] = values[j] - values[i], infinite on the diagonal."""
    gaps = values.unsqueeze(-2) - values.unsqueeze(-1)
    eye = functions.eye(values._array.shape[-1], device=values.device).to(dtypes.bool_)
    return gaps.masked_fill(eye, float("inf"))


class Svd(Function):
    """(U, S, V^H) of A = U diag(S) V^H, without the columns that S has no value for."""

    grad_name = "LinalgSvdBackward0"
    generate_vmap_rule = True

    @staticmethod
    def forward(ctx: Any, a: Tensor) -> tuple:
        xp = array_module(a._array)
        call = lambda x: xp.linalg.svd(x, full_matrices=False)  # noqa: E731
        u, s, vh = map(wrap, solved("linalg.svd", call, a._array))
        ctx.save_for_backward(u, s, vh)
        ctx.set_materialize_grads(False)
        return u, s, vh

    @staticmethod
    def backward(ctx: Any, gu: Tensor | None, gs: Tensor | None, gvh: Tensor | None) -> Tensor:
        u, s, vh = ctx.saved_tensors
        inner = _diagonal(gs, s).to(u.dtype)
        if gu is None and gvh is None:
            return u @ inner @ vh
        gu = functions.zeros_like(u) if gu is None else gu
        v, gv = vh.mH, functions.zeros_like(vh.mH) if gvh is None else gvh.mH
        squares = _gaps(s * s)
        row, column = s.unsqueeze(-2), s.unsqueeze(-1)
        of_u, of_v = u.mH @ gu, v.mH @ gv
        of_u, of_v = of_u - of_u.mH, of_v - of_v.mH
        inner = inner + of_u / squares * row + column * (of_v / squares)
        if u.is_complex():
            inner = inner + functions.diag_embed(of_u.diagonal(0, -2, -1) / (2 * s))
        found = u @ inner @ vh
        m, n = u._array.shape[-2], v._array.shape[-2]
        k = s._array.shape[-1]
        if m > k:
            outside = gu / row
            found = found + (outside - u @ (u.mH @ outside)) @ vh
        if n > k:
            outside = (gv / row).mH
            found = found + u @ (outside - outside @ v @ vh)
        return found


class SingularValues(Op):
    """S of `Svd`; its gradient exists where values are equal, too."""

    grad_name = "LinalgSvdBackward0"

    @staticmethod
    def forward(a: Any) -> Any:
        call = lambda x: array_module(a).linalg.svd(x, compute_uv=False)  # noqa: E731
        return solved("linalg.svd", call, a)

    @staticmethod
    def vjp(ctx: Any, g: Tensor) -> tuple:
        (a,) = ctx.tensors()
        u, _, vh = Svd.apply(a)
        return ((u * g.unsqueeze(-2)) @ vh,)


class Eigenvalues(Op):
    """The eigenvalues of `Eigh`; their gradient exists where values are equal, too."""

    grad_name = "LinalgEighBackward0"

    @staticmethod
    def forward(a: Any, lower: bool) -> Any:
        call = lambda x: array_module(a).linalg.eigvalsh(x, "L" if lower else "U")  # noqa: E731
        return solved("linalg.eigh", call, a)

    @staticmethod
    def vjp(ctx: Any, g: Tensor, lower: bool) -> tuple:
        (a,) = ctx.tensors()
        _, v = Eigh.apply(a, lower)
        return ((v * g.unsqueeze(-2)) @ v.mH,)


class Eig(Function):
    """(eigenvalues, eigenvectors of length 1) of square matrices, complex."""

    grad_name = "LinalgEigBackward0"
    generate_vmap_rule = True

    @staticmethod
    def forward(ctx: Any, a: Tensor) -> tuple:
        xp = array_module(a._array)
        target = np.result_type(a._array.dtype, np.complex64)
        found = solved("linalg.eig", xp.linalg.eig, a._array)
        values, vectors = (wrap(part.astype(target, copy=False)) for part in found)
        ctx.save_for_backward(values, vectors)
        ctx.real = not a.is_complex()
        ctx.set_materialize_grads(False)
        return values, vectors

    @staticmethod
    def backward(ctx: Any, g_values: Tensor | None, g_vectors: Tensor | None) -> Tensor:
        values, v = ctx.saved_tensors
        inner = _diagonal(g_values, values)
        if g_vectors is not None:
            of_v = v.mH @ g_vectors
            lengths = functions.real(of_v.diagonal(0, -2, -1))  # which a change of a vector keeps
            off = of_v - v.mH @ (v * lengths.unsqueeze(-2))
            inner = inner + off / _gaps(functions.conj(values))
        found = Solve.apply(v.mH, inner @ v.mH)
        return functions.real(found) if ctx.real else found


@export()
@autocasts
def svd(input: Tensor, some: bool = True, compute_uv: bool = True) -> Any:
    """(U, S, V) with `input` = U diag(S) V^H; `minigrad.linalg.svd` gives V^H."""
    u, s, vh = linalg_svd(input, full_matrices=not some)
    return LEGACY_SVD(u, s, vh.mH)


def linalg_svd(A: Tensor, full_matrices: bool = True, *, driver: str | None = None) -> Any:
    """(U, S, V^H) with A = U diag(S) V^H, S descending. With full_matrices U and V are square (then
    the columns that S has no value for get no gradient)."""
    matrices("linalg.svd", A)
    u, s, vh = Svd.apply(A)
    m, n = A.shape[-2:]
    if full_matrices and m != n:
        whole_u, _, whole_vh = map(wrap, array_module(A._array).linalg.svd(A._array))
        k = min(m, n)
        u = functions.cat([u, whole_u[..., k:]], -1) if m > k else u
        vh = functions.cat([vh, whole_vh[..., k:, :]], -2) if n > k else vh
    return SVD(u, s, vh)


def nuclear(x: Tensor, dim: Any, keepdim: bool) -> Tensor:
    """The sums of the singular values of matrices along two dimensions."""
    places = (-2, -1) if dim is None else tuple(dim)
    row, column = (normalize_dim(d, x._array.ndim) for d in places)
    found = SingularValues.apply(x.movedim((row, column), (-2, -1))).sum(-1)
    if not keepdim:
        return found
    for d in sorted((row, column)):
        found = found.unsqueeze(d)
    return found


NORMS["nuc"] = nuclear
