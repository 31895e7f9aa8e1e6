"""The kernels of transpose.cu."""

from __future__ import annotations

import numpy as np

from kernels.cuda_c.common import Kernel, as_passed, family, scalar_type, storage_type
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


def sides_kernel(dtype: np.dtype) -> Kernel:
    """kernel(out, rows, width, before, after, step, left, right)."""
    return _kernel("pad_sides", (), (storage_type(dtype),), as_passed)


def strided_kernel(dtype: np.dtype, width: int, each: int, ndim: int) -> Kernel:
    """kernel(x, out, layout): packs of `width` elements, `each` of them a thread."""
    return _kernel("copy_strided", (), (storage_type(dtype), width, each, ndim), as_passed)


def tiled_kernel(dtype: np.dtype, ndim: int) -> Kernel:
    """kernel(x, out, layout)."""
    return _kernel("copy_tiled", (), (storage_type(dtype), ndim), as_passed)


def parts_kernel(dtype: np.dtype, width: int, each: int) -> Kernel:
    """kernel(a, b, c, d, out, columns)."""
    return _kernel("concat_parts", (), (storage_type(dtype), width, each), as_passed)


def pad_kernel(dtype: np.dtype, width: int, each: int, ndim: int, mode: int) -> Kernel:
    """kernel(x, out, value, sides)."""
    types = (storage_type(dtype), scalar_type(dtype))
    return _kernel("pad", (), (*types, width, each, ndim, mode), as_passed)


def triangle_kernel(dtype: np.dtype, width: int, each: int, lower: bool) -> Kernel:
    """kernel(x, out, sizes)."""
    return _kernel("triangle", (), (storage_type(dtype), width, each, lower), as_passed)
