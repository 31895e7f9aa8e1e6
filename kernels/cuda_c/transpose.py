"""The kernels of transpose.cu."""

from __future__ import annotations

import numpy as np

from kernels.cuda_c.common import Kernel, as_passed, family, storage_type
from kernels.launchers.transpose import TILE

_kernel = family("transpose.cu")


def kernel(version: str, dtype: np.dtype) -> Kernel:
    """kernel(x, out, rows, columns) of a version of the ladder."""
    element = storage_type(dtype)
    if version == "naive":
        return _kernel("transpose_naive", (), (element,), as_passed)
    return _kernel("transpose_tile", (), (element, TILE + (version == "padded")), as_passed)


def few_rows_kernel(dtype: np.dtype, count: int) -> Kernel:
    """kernel(x, out, lines, length, times, phases)."""
    return _kernel("few_rows", (), (storage_type(dtype), count), as_passed)


def few_columns_kernel(dtype: np.dtype, count: int) -> Kernel:
    """kernel(x, out, lines, length)."""
    return _kernel("few_columns", (), (storage_type(dtype), count), as_passed)


def concat_kernel(dtype: np.dtype) -> Kernel:
    """kernel(x, out, rows, width, total, start)."""
    return _kernel("concat_rows", (), (storage_type(dtype),), as_passed)
