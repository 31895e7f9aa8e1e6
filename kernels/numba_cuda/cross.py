"""Cross products of vectors of three elements: a thread per vector. 9 operations on 6 elements,
which are read once."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from kernels.numba_cuda.common import scalar_type
from kernels.simt import cuda


@functools.cache
def kernel(dtype: np.dtype) -> Callable:
    """kernel(a, b, out, inner): flat arrays, seen as (outer, 3, inner)."""
    A = scalar_type(dtype)

    @cuda.jit
    def cross(a, b, out, inner):
        v = cuda.grid(1)
        if v < out.size // 3:
            at = 3 * v if inner == 1 else v // inner * 3 * inner + v % inner
            a0, a1, a2 = A(a[at]), A(a[at + inner]), A(a[at + 2 * inner])
            b0, b1, b2 = A(b[at]), A(b[at + inner]), A(b[at + 2 * inner])
            out[at] = a1 * b2 - a2 * b1
            out[at + inner] = a2 * b0 - a0 * b2
            out[at + 2 * inner] = a0 * b1 - a1 * b0

    return cross
