"""`cupyx.scipy.sparse`: SciPy's sparse matrices in the formats COO, CSC, CSR and DIA.

Their `data`, `indices`, `indptr`, `row` and `col` are device arrays that share their memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.cupy._array import ndarray
from kernels.cupyx import _proxy
from kernels.cupyx._proxy import Proxy, of_scipy

_FORMATS = ("coo", "csc", "csr", "dia")
_DTYPES = "?fdFD"


class _spbase(Proxy):
    """What all sparse matrices and arrays share."""

    def __init__(self, arg1: Any, *args: Any, **options: Any) -> None:
        if isinstance(arg1, np.ndarray):
            raise TypeError("a sparse matrix is made of device arrays; use cupy.asarray(array)")
        if isinstance(arg1, _scipy.spmatrix | _scipy.sparray):  # the host's: copied to the device
            arg1 = arg1.copy()
        super().__init__(arg1, *args, **options)
        if self._theirs.dtype.char not in _DTYPES:
            raise ValueError(
                "Only bool, float32, float64, complex64 and complex128 are supported, not"
                f" {self._theirs.dtype}"
            )

    @property
    def dtype(self) -> np.dtype:
        return self._theirs.dtype

    def __bool__(self) -> bool:
        return bool(self._theirs)

    def __len__(self) -> int:
        raise TypeError("sparse array length is ambiguous; use shape[0] or nnz")

    def get(self, stream: Any = None) -> Any:
        """A copy as SciPy's."""
        return self._theirs.copy()

    def toarray(self, order: str | None = None, out: ndarray | None = None) -> ndarray:
        """A dense device array."""
        return _proxy.results(self._theirs.toarray(order))

    todense = toarray

    def asformat(self, format: str | None) -> Any:
        """This matrix in another format."""
        if format in (None, self.format):
            return self
        if format not in _FORMATS:
            raise NotImplementedError(f"asformat: CuPy has {', '.join(_FORMATS)}, not {format}")
        return getattr(self, f"to{format}")()

    def tolil(self, copy: bool = False) -> None:
        raise NotImplementedError("CuPy has no such format; use tocsr()")

    tobsr = todok = tolil


class spmatrix(_spbase):
    """Base of the sparse matrices, for which `*` is the matrix product."""


class sparray(_spbase):
    """Base of the sparse arrays, for which `*` is element-wise."""


__getattr__, __dir__ = of_scipy("cupyx.scipy.sparse", globals(), ("csgraph", "linalg"))


def issparse(x: Any) -> bool:
    """Whether x is one of this module's matrices or arrays."""
    return isinstance(x, _spbase)


def isspmatrix(x: Any) -> bool:
    """Whether x is one of this module's matrices."""
    return isinstance(x, spmatrix)


def _is_format(format: str) -> Any:
    return lambda x: isspmatrix(x) and x.format == format


isspmatrix_coo, isspmatrix_csc, isspmatrix_csr, isspmatrix_dia = map(_is_format, _FORMATS)
_scipy = _proxy._library("scipy.sparse")
for _format in _FORMATS:
    for _base, _kind in ((spmatrix, "matrix"), (sparray, "array")):
        _name = f"{_format}_{_kind}"
        globals()[_name] = _proxy.proxy(
            _name, "cupyx.scipy.sparse", getattr(_scipy, _name), (_base,)
        )
