"""NumPy dtypes as types in kernels, and in signatures: the texts that `cuda.jit` reads.

Neither needs Numba, which takes longer to import than a step of a small network: a process that
finds its kernels compiled never imports it.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from kernels.launchers.common import BFLOAT16, compute_dtype
from kernels.simt import cuda


def scalar_type(dtype: np.dtype) -> type[np.generic]:
    """The type of a value of the dtype in registers."""
    return compute_dtype(dtype).type


def storage_type(dtype: np.dtype) -> Any:
    """The type of an array element of the dtype."""
    return cuda.bfloat16 if dtype == BFLOAT16 else np.dtype(dtype).type


def number(dtype: np.dtype) -> str:
    """A value of the dtype, in a signature."""
    return _name(compute_dtype(dtype))


@functools.cache
def array(dtype: np.dtype) -> str:
    """A contiguous array of one dimension, in a signature."""
    return f"{_name(np.dtype(dtype))}[::1]"


def _name(dtype: np.dtype) -> str:
    return "boolean" if dtype == np.bool_ else dtype.name


def signature(*parameters: str) -> str:
    """The signature of a kernel with these parameters."""
    return f"void({', '.join(parameters)})"
