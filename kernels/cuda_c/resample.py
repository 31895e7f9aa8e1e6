"""The kernels of resample.cu."""

from __future__ import annotations

import numpy as np

from kernels.cuda_c.common import Kernel, as_passed, family, scalar_type, storage_type

_kernel = family("resample.cu")


def rows_kernel(dtype: np.dtype) -> Kernel:
    """kernel(x, first, count, weights, out, results, size, inner, tiles, strips), block (32, 8)."""
    types = (storage_type(dtype), scalar_type(dtype))
    return _kernel("resample_rows", (), types, as_passed)


def last_kernel(dtype: np.dtype) -> Kernel:
    """kernel(x, first, count, weights, out, results, size, rows, strips, width), block (32, 8): the
    width is of no use here, where a thread ends after its own taps."""
    types = (storage_type(dtype), scalar_type(dtype))
    return _kernel("resample_last", (), types, lambda *args: args[:-1])
