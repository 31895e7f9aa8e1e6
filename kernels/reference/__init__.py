"""The operations in plain NumPy: the oracle of the tests and the `numpy` backend.

One file per family (`kernels.families`); every dialect has functions with these names and
arguments. Clarity first: nothing here knows about threads. Arrays in, new arrays out; a name that
ends in `_` works in place. Integer, float and (through `ml_dtypes`) bfloat16 arrays of any strides;
float16 and bfloat16 are storage types that are computed in float32.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable

from kernels import launchers
from kernels.families import Family, Operation


def _own(family: Family, operation: Operation) -> Callable:
    module = importlib.import_module(f"{__name__}.{family.name}")
    missing = launchers.missing("numpy", family, operation.name)
    return getattr(module, operation.name, missing)


_operations = launchers.exports("numpy", _own)
__all__ = sorted(_operations)
globals().update(_operations)
