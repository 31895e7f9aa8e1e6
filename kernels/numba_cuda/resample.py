"""Weighted sums of neighbours along a dimension, x (outer, size, inner) -> out (outer, results,
inner): result i adds up count[i] elements from first[i] on, times weights (width, results)."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from kernels.launchers.common import compute_dtype
from kernels.numba_cuda.common import array, scalar_type, signature
from kernels.simt import cuda


def _signature(dtype: np.dtype):
    flat, places = array(dtype), array(np.dtype(np.int32))
    return signature(flat, places, places, array(compute_dtype(dtype)), flat, *["int64"] * 5)


@functools.cache
def rows_kernel(dtype: np.dtype) -> Callable:
    """kernel(x, first, count, weights, out, results, size, inner, tiles, strips): block (32, 8), of
    a tile of 8 results and a strip of 32 columns; of 128 on a CPU."""
    A = scalar_type(dtype)

    def resample_rows(x, first, count, weights, out, results, size, inner, tiles, strips):
        tile = cuda.blockIdx.x // strips
        c = cuda.blockIdx.x % strips * cuda.blockDim.x + cuda.threadIdx.x
        i = tile % tiles * cuda.blockDim.y + cuda.threadIdx.y
        if i < results and c < inner:
            start = (tile // tiles * size + first[i]) * inner + c
            total = A(0)
            for k in range(count[i]):
                total += weights[k * results + i] * A(x[start + k * inner])
            out[(tile // tiles * results + i) * inner + c] = total

    return cuda.jit(_signature(dtype))(resample_rows)


@functools.cache
def last_kernel(dtype: np.dtype) -> Callable:
    """kernel(x, first, count, weights, out, results, size, rows, strips, width): block (32, 8), of
    8 rows and a strip of 32 results, of 128 on a CPU. Every result takes `width` steps, so that a
    CPU takes vectors; some add nothing."""
    A = scalar_type(dtype)

    def resample_last(x, first, count, weights, out, results, size, rows, strips, width):
        i = cuda.blockIdx.x % strips * cuda.blockDim.x + cuda.threadIdx.x
        row = cuda.blockIdx.x // strips * cuda.blockDim.y + cuda.threadIdx.y
        if row < rows and i < results:
            start, taps = row * size + first[i], count[i]
            total = A(0)
            for k in range(width):
                value = A(x[start + max(min(k, taps - 1), 0)])
                total += weights[k * results + i] * value if k < taps else A(0)
            out[row * results + i] = total

    return cuda.jit(_signature(dtype))(resample_last)
