"""The kernels of scan.cu for a line of the reduction table."""

from __future__ import annotations

import functools

import numpy as np

from kernels.cuda_c.common import Kernel, as_passed, source
from kernels.cuda_c.reduction import line_text

_VERSIONS = {"hillis_steele": "HillisSteele", "blelloch": "Blelloch", "shuffle": "Shuffle"}


@functools.cache
def _text(line: str, dtype: np.dtype, total: np.dtype | None = None) -> str:
    return line_text(line, dtype, total or dtype, True, False) + source("scan.cu")


def rows_kernel(line: str, version: str, dtype: np.dtype) -> Kernel:
    """kernel(x, out, before, length, segment, segments): a block per segment of a row."""
    return Kernel(_text(line, dtype), "scan_rows", (), (_VERSIONS[version],), as_passed)


def columns_kernel(line: str, dtype: np.dtype, total: np.dtype, tiled: bool) -> Kernel:
    """kernel(x, out, length, inner, tiles) over (outer, length, inner): a thread per column, which
    combines in the dtype `total`. `tiled` and `tiles` are for the other dialect."""

    def arguments(x, out, length, inner, tiles):
        return x, out, x.size // length, length, inner

    return Kernel(_text(line, dtype, total), "scan_columns", (), (), arguments)


def extrema_rows_kernel(line: str, dtype: np.dtype, first: bool) -> Kernel:
    """kernel(x, positions, values, places, best, found, length, segment, segments)."""
    return Kernel(_text(line, dtype), "scan_extrema", (), (first,), as_passed)


def extrema_offsets_kernel(line: str, dtype: np.dtype) -> Kernel:
    """kernel(values, places, best, found, length, segment, segments)."""
    return Kernel(_text(line, dtype), "spread_extrema", (), (), as_passed)


def extrema_columns_kernel(line: str, dtype: np.dtype) -> Kernel:
    """kernel(x, values, places, length, inner) over (outer, length, inner): a thread per column."""

    def arguments(x, values, places, length, inner):
        return x, values, places, x.size // length, length, inner

    return Kernel(_text(line, dtype), "scan_extrema_columns", (), (), arguments)
