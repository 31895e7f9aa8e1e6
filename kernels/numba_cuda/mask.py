"""What a mask chooses: the places where it is True, or the elements of another array there.

How many there are before an element decides where its result goes, so the mask is read twice:
1. count: a block counts those of its part; a running sum of the counts says where each begins
2. choose: a block finds out how many each of its threads has, and each writes its own
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from kernels.launchers.mask import EACH, THREADS
from kernels.numba_cuda.common import array, signature
from kernels.simt import cuda


@functools.cache
def _steps() -> tuple[Callable, Callable]:
    """How many of a thread's elements are True; where the results of thread t of a block begin, of
    which `own` has the numbers of all its threads."""

    @cuda.jit(device=True)
    def true_ones(mask, first):
        found = 0
        for i in range(first, min(first + EACH, mask.size)):
            found += 1 if mask[i] else 0
        return found

    @cuda.jit(device=True)
    def begin(ends, own, t):
        at = ends[cuda.blockIdx.x]
        for other in range(t, THREADS):
            at -= own[other]
        return at

    return true_ones, begin


@functools.cache
def count() -> Callable:
    """kernel(mask, counts)."""
    true_ones, _ = _steps()

    def count_true(mask, counts):
        own = cuda.shared.array(THREADS, np.int32)
        t = cuda.threadIdx.x
        first = (cuda.blockIdx.x * THREADS + t) * EACH
        own[t] = true_ones(mask, first)
        cuda.syncthreads()
        if t == 0:
            total = 0
            for other in range(THREADS):
                total += own[other]
            counts[cuda.blockIdx.x] = total

    return cuda.jit(signature(array(np.dtype(bool)), "int64[::1]"))(count_true)


@functools.cache
def choose(dtype: np.dtype) -> Callable:
    """kernel(mask, ends, x, out)."""
    true_ones, begin = _steps()

    def choose_elements(mask, ends, x, out):
        own = cuda.shared.array(THREADS, np.int32)
        t = cuda.threadIdx.x
        first = (cuda.blockIdx.x * THREADS + t) * EACH
        own[t] = true_ones(mask, first)
        cuda.syncthreads()
        at = begin(ends, own, t)
        for i in range(first, min(first + EACH, mask.size)):
            if mask[i]:
                out[at] = x[i]
                at += 1

    flat = array(dtype)
    return cuda.jit(signature(array(np.dtype(bool)), "int64[::1]", flat, flat))(choose_elements)


@functools.cache
def places(ndim: int, wide: bool) -> Callable:
    """kernel(mask, ends, out, size1, size2, size3): a place along each of `ndim` dimensions, whose
    last sizes are these. `wide` tells the other dialect that a place needs more than 31 bits."""
    D, (true_ones, begin) = ndim, _steps()

    def choose_places(mask, ends, out, size1, size2, size3):
        own = cuda.shared.array(THREADS, np.int32)
        t = cuda.threadIdx.x
        first = (cuda.blockIdx.x * THREADS + t) * EACH
        own[t] = true_ones(mask, first)
        cuda.syncthreads()
        at = begin(ends, own, t)
        above3, x3 = first // size3, first % size3  # divisions here, none in the loop
        above2, x2 = above3 // size2, above3 % size2
        x0, x1 = above2 // size1, above2 % size1
        for i in range(first, min(first + EACH, mask.size)):
            if mask[i]:
                if D == 1:
                    out[at] = i
                elif D == 2:
                    out[at * D], out[at * D + 1] = above3, x3
                elif D == 3:
                    out[at * D], out[at * D + 1], out[at * D + 2] = above2, x2, x3
                else:
                    out[at * D], out[at * D + 1] = x0, x1
                    out[at * D + 2], out[at * D + 3] = x2, x3
                at += 1
            x3 += 1
            if x3 == size3:
                x3 = 0
                above3 += 1
                x2 += 1
                if x2 == size2:
                    x2 = 0
                    above2 += 1
                    x1 += 1
                    if x1 == size1:
                        x1 = 0
                        x0 += 1

    mask = array(np.dtype(bool))
    return cuda.jit(signature(mask, "int64[::1]", "int64[::1]", *["int64"] * 3))(choose_places)
