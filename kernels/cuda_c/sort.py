"""The kernels of sort.cu."""

from __future__ import annotations

import numpy as np

from kernels.cuda_c.common import Kernel, as_passed, family, storage_type
from kernels.launchers.sort import read_as

_kernel = family("sort.cu")


def _types(dtype: np.dtype, descending: bool) -> tuple:
    return storage_type(dtype), storage_type(read_as(dtype)), descending


def bitonic(dtype: np.dtype, descending: bool) -> Kernel:
    """kernel(x, values, positions, size, n, mask, first): one step, a thread per element."""
    return _kernel("sort_bitonic", (), _types(dtype, descending), as_passed)


def shared(dtype: np.dtype, descending: bool, tile: int) -> Kernel:
    """kernel(x, values, positions, n, width, start, stop): a block per row of up to `tile`."""
    return _kernel("sort_shared", (), (*_types(dtype, descending), tile), as_passed)


def merge(dtype: np.dtype, descending: bool, tile: int) -> Kernel:
    """kernel(x, values, positions, rows, n, shift, start, stop): tile / 8 threads for
    tile / 2**shift rows of up to 2**shift elements."""
    return _kernel("sort_merge", (), (*_types(dtype, descending), tile), as_passed)


def search(dtype: np.dtype, right: bool, tile: int) -> Kernel:
    """kernel(sequence, values, out, rows, n, m, span): a block per `span` values of a row, with the
    n <= tile keys of its sequence in shared memory; tile 0: of all rows, in global memory."""
    constants = storage_type(dtype), storage_type(read_as(dtype)), right, tile
    return _kernel("search_sorted", (), constants, as_passed)
