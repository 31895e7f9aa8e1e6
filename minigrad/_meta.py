"""Arrays of the device "meta": shape and dtype without data.

They are for building a model without memory, and for asking what it would need and which shapes
its results have. Creation, views, initialisation (which does nothing) and `empty_like` on another
device work, and operations that launch kernels (`minigrad._meta_results`); others raise by name.
This module has NumPy's names, as far as tensors are made with them.
"""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any, NoReturn

import numpy as np


class MetaArray:
    """A shape and a dtype; views are contiguous."""

    base = None
    flags = SimpleNamespace(c_contiguous=True, f_contiguous=False, writeable=True)

    def __init__(self, shape: tuple[int, ...], dtype: Any) -> None:
        self.shape, self.dtype = tuple(shape), np.dtype(dtype)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    @property
    def strides(self) -> tuple[int, ...]:
        steps, step = [], self.dtype.itemsize
        for n in reversed(self.shape):
            steps.append(step)
            step *= n
        return tuple(reversed(steps))

    def _like(self) -> np.ndarray:
        """An array of this shape, of one element in memory."""
        return np.broadcast_to(np.zeros((), self.dtype), self.shape)

    def reshape(self, *shape: Any) -> MetaArray:
        given = tuple(shape[0]) if len(shape) == 1 and not isinstance(shape[0], int) else shape
        if -1 in given:
            known = -math.prod(given)
            given = tuple(self.size // known if n == -1 else n for n in given)
        return MetaArray(given, self.dtype)

    def transpose(self, *dims: Any) -> MetaArray:
        return MetaArray(self._like().transpose(*dims).shape, self.dtype)

    def swapaxes(self, a: int, b: int) -> MetaArray:
        return MetaArray(self._like().swapaxes(a, b).shape, self.dtype)

    def astype(self, dtype: Any, copy: bool = True) -> MetaArray:
        return MetaArray(self.shape, dtype)

    def copy(self) -> MetaArray:
        return MetaArray(self.shape, self.dtype)

    conj = copy

    @property
    def real(self) -> MetaArray:
        return MetaArray(self.shape, np.empty(0, self.dtype).real.dtype)

    imag = real

    def diagonal(self, *places: int) -> MetaArray:
        return MetaArray(self._like().diagonal(*places).shape, self.dtype)

    def __getitem__(self, key: Any) -> MetaArray:
        return MetaArray(self._like()[key].shape, self.dtype)

    def __add__(self, other: Any) -> MetaArray:
        shape = np.broadcast_shapes(self.shape, getattr(other, "shape", ()))
        return MetaArray(shape, self.dtype)

    __radd__ = __mul__ = __rmul__ = __add__  # of positions

    def __setitem__(self, key: Any, value: Any) -> None:
        """Nothing: there is no data to change."""

    def item(self) -> NoReturn:
        raise RuntimeError("Tensor.item() cannot be called on meta tensors: they have no data")

    def tolist(self) -> NoReturn:
        raise NotImplementedError("Cannot copy out of meta tensor; no data!")

    get = tolist

    def __getattr__(self, name: str) -> NoReturn:
        raise NoData(name)


class NoData(NotImplementedError, AttributeError):
    """What an operation that needs the elements, or has no rule for shapes, raises."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name}: not implemented for tensors on the device meta, which have no data; make "
            'them on "cpu" or "cuda"'
        )


def __getattr__(name: str) -> NoReturn:  # NumPy's functions that this module lacks
    raise NoData(name)


def empty(shape: Any, dtype: Any = np.float32) -> MetaArray:
    return MetaArray((shape,) if isinstance(shape, int) else shape, dtype)


def full(shape: Any, value: Any, dtype: Any = np.float32) -> MetaArray:
    return empty(shape, dtype)


zeros = ones = empty


def asarray(array: Any, dtype: Any = None) -> MetaArray:
    found = array if hasattr(array, "dtype") else np.asarray(array)
    return MetaArray(found.shape, dtype or found.dtype)


ascontiguousarray = zeros_like = ones_like = asarray


def eye(n: int, m: int | None = None, dtype: Any = np.float32) -> MetaArray:
    return MetaArray((n, n if m is None else m), dtype)


def arange(count: int, dtype: Any = np.int64) -> MetaArray:
    return MetaArray((count,), dtype)


def reshape(array: MetaArray, shape: Any) -> MetaArray:
    return array.reshape(shape)


def broadcast_to(array: MetaArray, shape: Any) -> MetaArray:
    return MetaArray(shape, array.dtype)


def swapaxes(array: MetaArray, a: int, b: int) -> MetaArray:
    return array.swapaxes(a, b)


def tril(array: MetaArray, k: int = 0) -> MetaArray:
    return array.copy()


def may_share_memory(a: Any, b: Any) -> bool:
    return True


def _as_strided(array: MetaArray, shape: tuple, strides: tuple) -> MetaArray:
    return MetaArray(shape, array.dtype)


lib = SimpleNamespace(stride_tricks=SimpleNamespace(as_strided=_as_strided))

# --- decompositions of matrices ---


def _solve(a: MetaArray, b: MetaArray) -> MetaArray:
    return MetaArray((*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), *b.shape[-2:]), b.dtype)


def _svd(a: MetaArray, full_matrices: bool = True, compute_uv: bool = True) -> Any:
    *batch, m, n = a.shape
    k = min(m, n)
    rows, columns = (m, n) if full_matrices else (k, k)
    values = empty((*batch, k), a.dtype).real
    if not compute_uv:
        return values
    return empty((*batch, m, rows), a.dtype), values, empty((*batch, columns, n), a.dtype)


def _eigvalsh(a: MetaArray, triangle: str = "L") -> MetaArray:
    return a.real[..., 0]


def _eig(a: MetaArray) -> tuple:
    complex_ = a.astype(np.result_type(a.dtype, np.complex64))
    return complex_[..., 0], complex_


def _qr(a: MetaArray, mode: str = "reduced") -> Any:
    if mode == "raw":
        raise NoData("linalg.qr")
    *batch, m, n = a.shape
    k = m if mode == "complete" else min(m, n)
    r = empty((*batch, k, n), a.dtype)
    return r if mode == "r" else (empty((*batch, m, k), a.dtype), r)


linalg = SimpleNamespace(
    inv=MetaArray.copy,
    cholesky=MetaArray.copy,
    solve=_solve,
    det=lambda a: a[..., 0, 0],
    slogdet=lambda a: (a[..., 0, 0], a.real[..., 0, 0]),
    svd=_svd,
    eigvalsh=_eigvalsh,
    eigh=lambda a, triangle: (_eigvalsh(a), a.copy()),
    eig=_eig,
    qr=_qr,
    pinv=lambda a, rtol: a.swapaxes(-1, -2),
)
