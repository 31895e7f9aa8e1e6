"""What torch's own namespace has of LU factors and Householder vectors."""

from __future__ import annotations

from typing import Any

import minigrad
from minigrad import linalg
from minigrad._foreign import tensors_only
from minigrad._names import return_type
from minigrad.autograd.mode import autocasts
from minigrad.ops.linalg import matrices
from minigrad.tensor import Tensor

LU_UNPACK = return_type("lu_unpack", "P", "L", "U")


def lu_unpack(
    LU_data: Tensor, LU_pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True
) -> Any:
    """(P, L, U) of what `linalg.lu_factor` gives; empty where they are not asked for."""
    matrices("lu_unpack", LU_data)
    if LU_pivots.dtype != minigrad.int32:
        raise RuntimeError(
            "torch.lu_unpack: LU_pivots is expected to be a contiguous tensor of torch.int32 "
            f"dtype, got {LU_pivots.dtype}"
        )
    m, n = LU_data.shape[-2:]
    k = min(m, n)
    p = lower = upper = LU_data.new_empty(0)
    if unpack_pivots:
        p = linalg._permutation(LU_pivots, m, LU_data)
    if unpack_data:
        one = minigrad.eye(m, k, dtype=LU_data.dtype, device=LU_data.device)
        lower, upper = LU_data[..., :k].tril(-1) + one, LU_data[..., :k, :].triu()
    return LU_UNPACK(p, lower, upper)


def lu(A: Tensor, pivot: bool = True, get_infos: bool = False) -> tuple:
    """(L and U in one matrix, pivots from 1), also of singular matrices; get_infos: with the info
    of `linalg.lu_factor_ex`. torch is going to remove this name."""
    found = linalg.lu_factor_ex(A, pivot=pivot)
    return found if get_infos else tuple(found[:2])


def lu_solve(b: Tensor, LU_data: Tensor, LU_pivots: Tensor) -> Tensor:
    """`linalg.lu_solve` with the right-hand side first."""
    return linalg.lu_solve(LU_data, LU_pivots, b)


def ormqr(
    input: Tensor, tau: Tensor, other: Tensor, left: bool = True, transpose: bool = False
) -> Tensor:
    """Q @ other, or other @ Q with left=False, for the square Q of Householder vectors (as `geqrf`
    gives them); transpose: with Q^H."""
    matrices("ormqr", input)
    (m, k), r = input.shape[-2:], tau.shape[-1]
    if r > min(m, k):
        raise RuntimeError(
            f"ormqr: expected input (..., m, k) with m and k >= tau.shape[-1], got "
            f"{list(input.shape)} and {list(tau.shape)}"
        )
    if other.shape[-2 if left else -1] != m:
        raise RuntimeError(
            f"ormqr: other.shape[{-2 if left else -1}] must be equal to input.shape[-2], got "
            f"{list(other.shape)} and {list(input.shape)}"
        )
    q = linalg.householder_product(minigrad.nn.functional.pad(input[..., :r], (0, m - r)), tau)
    q = q.mH if transpose else q
    return q @ other if left else other @ q


lu = tensors_only(lu, True)
lu_unpack = tensors_only(lu_unpack, True)
lu_solve = tensors_only(lu_solve, True)
ormqr = tensors_only(autocasts(ormqr), True)
