"""NumPy dtypes as Numba's types."""

from __future__ import annotations

import functools

import numpy as np
from numba import types
from numba.np.numpy_support import from_dtype

from kernels.launchers.common import BFLOAT16, compute_dtype
from kernels.simt import cuda


@functools.cache
def scalar_type(dtype: np.dtype) -> types.Type:
    """The Numba type of a value of the dtype in registers."""
    return from_dtype(compute_dtype(dtype))


@functools.cache
def storage_type(dtype: np.dtype) -> types.Type:
    """The Numba type of an array element of the dtype."""
    return cuda.bfloat16 if dtype == BFLOAT16 else from_dtype(dtype)
