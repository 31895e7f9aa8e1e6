"""`cupyx.linalg`: solvers that NumPy does not have."""

from __future__ import annotations

from typing import Any

from kernels.cupy._array import ndarray
from kernels.cupy.linalg import inv
from kernels.cupyx import _proxy


def invh(a: ndarray) -> ndarray:
    """The inverse of a Hermitian positive definite matrix."""
    return inv(a)


def cho_solve(
    c_and_lower: tuple, b: ndarray, overwrite_b: bool = False, check_finite: bool = True
) -> ndarray:
    """x with a x = b, given the Cholesky factor of a."""
    solve: Any = _proxy._library("scipy.linalg").cho_solve
    return _proxy.results(solve(_proxy.inputs(c_and_lower), _proxy.inputs(b)))
