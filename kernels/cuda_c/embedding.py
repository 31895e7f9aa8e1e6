"""The kernels of embedding.cu."""

from __future__ import annotations

import numpy as np

from kernels.cuda_c.common import Kernel, as_passed, family, scalar_type, storage_type
from kernels.launchers.embedding import sum_dtype

_MODES = {"take": 0, "put": 1, "add": 2}

_kernel = family("embedding.cu")


def _sized_by_index(x, index, out, *numbers):
    return x, index, out, *numbers, index.size


def _sized_by_out(x, index, out, *numbers):
    return x, index, out, *numbers, out.size


def _types(dtype: np.dtype, index: np.dtype) -> tuple[str, str]:
    return storage_type(dtype), storage_type(index)


def _sum(version: str, dtype: np.dtype) -> str:
    return scalar_type(sum_dtype(version, dtype))


def checked_index_kernel(index: np.dtype) -> Kernel:
    """kernel(index, out, record, low, high, ignore, number)."""
    return _kernel("checked_index", (), (storage_type(index),), _sized)


def _sized(index, *rest):
    return index, *rest, index.size


def embedding_kernel(dtype: np.dtype, index: np.dtype) -> Kernel:
    """kernel(weight, index, out, width, tiles)."""
    return _kernel("embedding", (), _types(dtype, index), _sized_by_index)


def embedding_backward_kernel(version: str, dtype: np.dtype, index: np.dtype) -> Kernel:
    """kernel(g, index, dw, width, tiles), or (..., span) for "split"."""
    types = (*_types(dtype, index), _sum(version, dtype))
    return _kernel(f"embedding_backward_{version}", (), types, _sized_by_index)


def gather_kernel(dtype: np.dtype, index: np.dtype, single: bool) -> Kernel:
    """kernel(x, index, out, size, length, inner). `single` tells the other dialect that the last
    two are 1; this kernel is the same for any."""
    return _kernel("gather", (), _types(dtype, index), _sized_by_index)


def gather_rows_kernel(dtype: np.dtype, index: np.dtype, last: bool) -> Kernel:
    """kernel(x, index, out, width, per, jump, shared, tiles)."""
    types = (*_types(dtype, index), "true" if last else "false")
    return _kernel("gather_rows", (), types, _sized_by_out)


def scatter_kernel(version: str, dtype: np.dtype, index: np.dtype, rows: bool) -> Kernel:
    """kernel(src, index, out, size, length, inner), or (..., span) for "split". `rows` tells the
    other dialect that inner is 1; these kernels are the same for any."""
    types = (*_types(dtype, index), _sum(version, dtype))
    return _kernel(f"scatter_add_{version}", (), types, _sized_by_index)


def put_kernel(version: str, dtype: np.dtype, index: np.dtype, rows: bool) -> Kernel:
    """kernel(src, index, out, size, length, inner)."""
    return _kernel(f"put_{version}", (), _types(dtype, index), _sized_by_index)


def along_kernel(
    mode: str, dtype: np.dtype, index: np.dtype, wide: bool, inner: bool, shared: bool
) -> Kernel:
    """kernel(in, index, out, record, number, low, size, length, inner, shared, n) on a GPU.

    mode: "take", "put" or "add". wide: some position needs more than 31 bits."""
    constants = (*_moving(mode, dtype, index, wide), _flag(inner), _flag(shared))
    return _kernel("along", (), constants, as_passed)


def across_kernel(mode: str, dtype: np.dtype, index: np.dtype, wide: bool) -> Kernel:
    """kernel(in, index, out, record, number, low, size, length, inner, tiles, stripes) on a GPU."""
    return _kernel("across", (), _moving(mode, dtype, index, wide), as_passed)


def rows_kernel(mode: str, dtype: np.dtype, index: np.dtype, wide: bool, pack: int) -> Kernel:
    """kernel(in, index, out, record, number, low, size, width, n) on a GPU.

    pack: elements that move together; width, of a row, and n are in packs."""
    return _kernel("rows", (), (*_moving(mode, dtype, index, wide), pack), as_passed)


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _moving(mode: str, dtype: np.dtype, index: np.dtype, wide: bool) -> tuple:
    """The first constants of such a kernel."""
    moved, number = storage_type(dtype), "unsigned long long" if wide else "unsigned"
    written = _sum("atomic", dtype) if mode == "add" else moved
    return (_MODES[mode], moved, written, storage_type(index), number)
