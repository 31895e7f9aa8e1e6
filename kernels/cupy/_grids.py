"""Objects that are indexed to make arrays, and iterators: `cupy.r_`, `cupy.mgrid`, `broadcast`."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._array import fresh, ndarray, view, wrap
from ._creation import asarray
from ._generate import inputs


class CClass:
    """`c_[...]`: arrays as columns."""

    _theirs: Any = np.c_

    def __getitem__(self, key: Any) -> ndarray:
        return fresh(self._theirs[inputs(key)])

    def __len__(self) -> int:
        return 0


class RClass(CClass):
    """`r_[...]`: arrays and ranges one after the other."""

    _theirs = np.r_


class nd_grid:
    """`mgrid[...]` and, sparse, `ogrid[...]`: the coordinates of a grid."""

    def __init__(self, sparse: bool = False) -> None:
        self.sparse = sparse
        self._theirs = np.ogrid if sparse else np.mgrid

    def __getitem__(self, key: Any) -> Any:
        found = self._theirs[key]
        return [fresh(part) for part in found] if isinstance(found, tuple | list) else fresh(found)


c_, r_, mgrid, ogrid = CClass(), RClass(), nd_grid(), nd_grid(sparse=True)
s_, index_exp = np.s_, np.index_exp


class broadcast:
    """Arrays broadcast together: `shape`, `size`, `nd` and the arrays as `values`."""

    def __init__(self, *arrays: Any) -> None:
        shown = np.broadcast(*map(inputs, arrays))
        self.shape, self.size, self.nd = shown.shape, shown.size, shown.nd
        self.values = tuple(
            view(a, np.broadcast_to(a._array, self.shape)) if isinstance(a, ndarray) else a
            for a in arrays
        )


class poly1d:
    """A polynomial of one variable with coefficients on the device, highest power first."""

    __hash__ = None

    def __init__(self, c_or_r: Any, r: bool = False, variable: str | None = None) -> None:
        given = c_or_r.coeffs if isinstance(c_or_r, poly1d) else asarray(c_or_r)
        self._poly = np.poly1d(given._array, r, variable)

    coeffs = c = coef = coefficients = property(lambda self: fresh(self._poly.coeffs))
    order = o = property(lambda self: self._poly.order)
    roots = r = property(lambda self: fresh(self._poly.roots))
    variable = property(lambda self: self._poly.variable)

    def __call__(self, val: Any) -> Any:
        return _of(self._poly(_poly(val)))

    def __getitem__(self, power: int) -> ndarray:
        return fresh(self._poly[power])

    def __len__(self) -> int:
        return self.order

    def __repr__(self) -> str:
        return repr(self._poly)

    def __str__(self) -> str:
        return str(self._poly)

    def get(self, stream: Any = None, out: Any = None) -> np.poly1d:
        """The polynomial as NumPy's."""
        return self._poly

    def deriv(self, m: int = 1) -> poly1d:
        """The derivative."""
        return _of(self._poly.deriv(m))

    def integ(self, m: int = 1, k: Any = 0) -> poly1d:
        """The integral."""
        return _of(self._poly.integ(m, inputs(k)))


def _poly(value: Any) -> Any:
    return value._poly if isinstance(value, poly1d) else inputs(value)


def _of(value: Any) -> Any:
    if not isinstance(value, np.poly1d):
        return wrap(value)
    made = poly1d.__new__(poly1d)
    made._poly = value
    return made


def _operator(name: str) -> None:
    def compute(self: poly1d, *other: Any) -> Any:
        return _of(getattr(self._poly, name)(*map(_poly, other)))

    setattr(poly1d, name, compute)


for _name in "add radd sub rsub mul rmul pow truediv rtruediv neg pos eq ne".split():
    _operator(f"__{_name}__")
