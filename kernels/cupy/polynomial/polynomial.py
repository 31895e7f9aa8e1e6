"""`cupy.polynomial.polynomial`: NumPy's functions on device arrays."""

from __future__ import annotations

from .._module import names_of

__getattr__, __dir__ = names_of(
    "cupy.polynomial.polynomial", "numpy.polynomial.polynomial", globals()
)
