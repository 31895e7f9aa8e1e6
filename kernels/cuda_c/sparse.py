"""The kernels of sparse.cu."""

from __future__ import annotations

import numpy as np

from kernels.cuda_c.common import Kernel, as_passed, family, scalar_type, storage_type

_kernel = family("sparse.cu")


def _types(dtype: np.dtype, sums: np.dtype, index: np.dtype) -> tuple[str, str, str, str]:
    return storage_type(dtype), storage_type(sums), scalar_type(dtype), storage_type(index)


def thread_kernel(dtype: np.dtype, sums: np.dtype, index: np.dtype) -> Kernel:
    """kernel(crow, col, values, dense, out, rows, width)."""
    return _kernel("spmm_thread", (), _types(dtype, sums, index), as_passed)


def warp_kernel(dtype: np.dtype, sums: np.dtype, index: np.dtype, columns: int) -> Kernel:
    """kernel(crow, col, values, dense, out, rows, width)."""
    return _kernel("spmm_warp", (), (*_types(dtype, sums, index), columns), as_passed)


def merge_kernel(dtype: np.dtype, sums: np.dtype, index: np.dtype, items: int) -> Kernel:
    """kernel(crow, col, values, dense, out, carry_row, carry, width, parts, tiles)."""

    def arguments(crow, col, values, *others):
        return crow, col, values, *others, crow.size - 1, values.size

    return _kernel("spmm_merge", (), (*_types(dtype, sums, index), items), arguments)


def carry_kernel(sums: np.dtype, index: np.dtype) -> Kernel:
    """kernel(carry_row, carry, out, width, parts, rows)."""
    return _kernel("spmm_carry", (), (storage_type(sums), storage_type(index)), as_passed)


def sddmm_kernel(version: str, dtype: np.dtype, index: np.dtype) -> Kernel:
    """kernel(row, col, a, b, out, width)."""
    types = storage_type(dtype), scalar_type(dtype), storage_type(index)

    def arguments(row, *others):
        return row, *others, row.size

    return _kernel(f"sddmm_{version}", (), types, arguments)
