"""`@cuda.reduce`: a reduction of an array from a function of two values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np

from kernels.simt.device.arrays import DeviceNDArray


class Reduce:
    """A callable reduction: `total = cuda.reduce(lambda a, b: a + b)`, then `total(array)`.

    The function must be associative and commutative: a GPU combines in another order. Here it is
    compiled into one loop over the array.
    """

    def __init__(self, functor: Callable[[Any, Any], Any]) -> None:
        combine = numba.njit(functor)

        @numba.njit(nogil=True)
        def fold(values, result):
            for i in range(values.size):
                result[0] = combine(result[0], values[i])

        self._fold = fold

    def __call__(
        self, arr: Any, size: int | None = None, res: Any = None, init: Any = 0, stream: Any = 0
    ) -> Any:
        """Reduce the first `size` elements of a one-dimensional array, starting from `init`.

        Returns a scalar of the array's dtype, or None with `res`, an array whose first element
        receives the result.
        """
        values = arr.memory if isinstance(arr, DeviceNDArray) else np.asarray(arr)
        if values.ndim != 1:
            raise TypeError(f"cuda.reduce: expected one dimension, got {values.ndim}")
        result = np.array([init], values.dtype)
        self._fold(values if size is None else values[:size], result)
        if res is None:
            return result[0]
        res[0] = result[0]
        return None


reduce = Reduce
