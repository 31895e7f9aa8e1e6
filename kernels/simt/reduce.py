"""`@cuda.reduce`: a reduction of a device array from a function of two values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kernels.simt.hostapi import DeviceNDArray
from kernels.simt.launch import jit
from kernels.simt.stubs import blockDim, grid, gridsize, shared, syncthreads, threadIdx

_THREADS = 256
_BLOCKS = 64


def _kernel(combine: Any, dtype: Any) -> Any:
    """Each block folds a strided share of `values`, then its threads' results as a tree."""

    @jit
    def fold(values, partial):
        tile = shared.array(_THREADS, dtype)
        index = grid(1)
        if index < values.size:
            total = values[index]
            for other in range(index + gridsize(1), values.size, gridsize(1)):
                total = combine(total, values[other])
            tile[threadIdx.x] = total
        syncthreads()
        count = min(values.size - (index - threadIdx.x), blockDim.x)
        stride = _THREADS // 2
        while stride > 0:
            if threadIdx.x < stride and threadIdx.x + stride < count:
                tile[threadIdx.x] = combine(tile[threadIdx.x], tile[threadIdx.x + stride])
            syncthreads()
            stride //= 2
        if threadIdx.x == 0:
            partial[index // blockDim.x] = tile[0]

    return fold


class Reduce:
    """Callable reduction: `total = cuda.reduce(lambda a, b: a + b)(array)`.

    The function must be associative and commutative; the order of combination is not the array's.
    """

    def __init__(self, functor: Callable[[Any, Any], Any]) -> None:
        self._combine = jit(device=True)(functor)
        self._kernels: dict[np.dtype, Any] = {}

    def __call__(
        self, arr: Any, size: int | None = None, res: Any = None, init: Any = 0, stream: Any = 0
    ) -> Any:
        """Reduce the first `size` elements of a one-dimensional array, starting from `init`.

        Returns a scalar of the array's dtype, or None with `res`, a device array whose first
        element receives the result.
        """
        values = arr.memory if isinstance(arr, DeviceNDArray) else np.asarray(arr)
        if values.ndim != 1:
            raise TypeError(f"cuda.reduce: expected one dimension, got {values.ndim}")
        values = values if size is None else values[:size]
        result = values.dtype.type(init)
        if values.size:
            result = self._combine.py_func(result, self._fold(values, stream))
        if res is None:
            return values.dtype.type(result)
        res[0] = result
        return None

    def _fold(self, values: np.ndarray, stream: Any) -> Any:
        if values.dtype not in self._kernels:
            from numba import from_dtype

            self._kernels[values.dtype] = _kernel(self._combine, from_dtype(values.dtype))
        kernel = self._kernels[values.dtype]
        while values.size > 1:
            blocks = min(_BLOCKS, -(-values.size // _THREADS))
            partial = np.empty(blocks, values.dtype)
            kernel[blocks, _THREADS, stream](values, partial)
            values = partial
        return values[0]


reduce = Reduce
