"""`cupy.typing`: NumPy's names for annotations, with device arrays."""

from __future__ import annotations

from typing import Any

from numpy.typing import DTypeLike, NBitBase

from ._array import ndarray

__all__ = ["ArrayLike", "DTypeLike", "NBitBase", "NDArray"]

ArrayLike = Any
NDArray = ndarray
