"""The kernels of scan.cu."""

from __future__ import annotations

import numpy as np

from kernels.cuda_c.common import Kernel, as_passed, family, storage_type
from kernels.launchers.scan import accumulator

_kernel = family("scan.cu")
_VERSIONS = {"hillis_steele": "HillisSteele", "blelloch": "Blelloch", "shuffle": "Shuffle"}


def _types(dtype: np.dtype) -> tuple[str, str]:
    return storage_type(dtype), storage_type(accumulator(dtype))


def rows_kernel(version: str, dtype: np.dtype) -> Kernel:
    """kernel(x, out, totals, length, segment, segments): a block per segment of a row."""
    return _kernel("scan_rows", (), (*_types(dtype), _VERSIONS[version]), as_passed)


def offsets_kernel(dtype: np.dtype) -> Kernel:
    """kernel(out, sums, length, segment, segments): add to each segment the sum of those before."""
    return _kernel("add_offsets", (), _types(dtype), as_passed)


def columns_kernel(dtype: np.dtype, total: np.dtype) -> Kernel:
    """kernel(x, out, length, inner) over (outer, length, inner): a thread per column, which adds in
    the dtype `total`."""

    def arguments(x, out, length, inner):
        return x, out, x.size // length, length, inner

    types = storage_type(dtype), storage_type(total)
    return _kernel("scan_columns", (), types, arguments)
