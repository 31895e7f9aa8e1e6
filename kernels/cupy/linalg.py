"""`cupy.linalg`: NumPy's linear algebra on device arrays.

A singular matrix gives NaNs, as CuPy does not ask its solver whether it succeeded; inside of
`cupyx.errstate(linalg="raise")` it raises LinAlgError.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.linalg import LinAlgError

from . import _functions
from ._array import fresh, ndarray, operand
from ._generate import require
from ._module import names_of

__all__ = ["LinAlgError", "cholesky", "inv", "matmul", "solve"]

matmul = _functions.matmul
_FAILURES = ("Singular", "positive definite")


class Reports(threading.local):
    """Whether a failed solver raises: "raise" or "ignore"."""

    linalg = "ignore"


reports = Reports()


def _solved(name: str, function: Callable, *args: Any) -> ndarray:
    """function(*args), or NaNs where the matrix is singular."""
    for arg in args:
        require(name, arg)
    values = [operand(arg) for arg in args]
    try:
        with np.errstate(all="ignore"):
            return fresh(function(*values))
    except LinAlgError as error:
        if reports.linalg == "raise" or not any(text in str(error) for text in _FAILURES):
            raise
        kind = np.result_type(*values, np.float32)
        return fresh(np.full_like(values[-1], np.nan, kind))


def inv(a: ndarray) -> ndarray:
    """The inverse of each matrix. Raises LinAlgError unless the last two sizes are equal."""
    return _solved("inv", np.linalg.inv, a)


def cholesky(a: ndarray) -> ndarray:
    """The lower factor L of a = L L^H."""
    return _solved("cholesky", np.linalg.cholesky, a)


def solve(a: ndarray, b: ndarray) -> ndarray:
    """x with a x = b."""
    return _solved("solve", np.linalg.solve, a, b)


__getattr__, __dir__ = names_of("cupy.linalg", "numpy.linalg", globals())
