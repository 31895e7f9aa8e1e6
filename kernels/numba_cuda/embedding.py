"""Embedding, gather, scatter and take: copies by index, and their gradients, additions by index.

n elements by index move at least 2 n elements and the index; a gradient adds one read of what it
adds to. There is almost no arithmetic: what matters is that neighbouring threads read and
write neighbouring elements, which an index of rows allows and an index of elements does not.

Additions by index collide where indices repeat. Versions:
1. atomic: a thread per element, collisions resolved by atomic additions; the order of equal
   indices, and so the last bit of a float, depends on timing
2. lines: a thread per line along the indexed axis (for an embedding, per column), which adds in
   order: no two threads add to one element, and results repeat bit by bit. Slow on a GPU where
   lines are few.
3. split: then several threads share a line; each looks at all its indices, and adds in order
   to some of the results: the same, bit by bit

The launcher uses `lines` on the CPU, where it costs nothing, and on a GPU `atomic`, or where
algorithms must be deterministic, `lines` and `split`. `scatter` puts elements without adding:
`lines` leaves the last of equal indices, `elements`, a thread each, any.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from kernels.launchers.embedding import VERSIONS, sum_dtype
from kernels.numba_cuda.common import array, scalar_type, signature
from kernels.simt import cuda


@functools.cache
def checked_index_kernel(index: np.dtype) -> Callable:
    """kernel(index, out, record, low, high, ignore, number)."""

    def checked_index(index, out, record, low, high, ignore, number):
        i = cuda.grid(1)
        if i < index.size:
            value = np.int64(index[i])
            if low <= value < high:
                out[i] = value + high if value < 0 else value
            elif value == ignore:
                out[i] = index[i]
            else:
                out[i] = low + high if low < 0 else low
                if cuda.atomic.compare_and_swap(record, 0, number) == 0:  # the first one alone
                    record[1] = value

    flat, numbers = array(index), ["int64"] * 4
    return cuda.jit(signature(flat, flat, "int64[::1]", *numbers))(checked_index)


@functools.cache
def embedding_kernel(dtype: np.dtype, index: np.dtype) -> Callable:
    """kernel(weight, index, out, width, tiles): a block per tile of rows and columns."""

    def embedding_rows(weight, index, out, width, tiles):
        tile = cuda.blockIdx.x // tiles
        row = tile * cuda.blockDim.y + cuda.threadIdx.y
        j = (cuda.blockIdx.x % tiles) * cuda.blockDim.x + cuda.threadIdx.x
        if row < index.size and j < width:
            start = max(index[row], 0) * width  # checked before: max only shows the compiler
            out[row * width + j] = weight[start + j]

    flat = array(dtype)
    return cuda.jit(signature(flat, array(index), flat, "int64", "int64"))(embedding_rows)


@functools.cache
def embedding_backward_kernel(version: str, dtype: np.dtype, index: np.dtype) -> Callable:
    """kernel(g, index, dw, width, tiles) or (..., span); dw starts as zeros of the sums' dtype."""
    T = scalar_type(sum_dtype(version, dtype))

    def embedding_backward_atomic(g, index, dw, width, tiles):
        tile = cuda.blockIdx.x // tiles
        row = tile * cuda.blockDim.y + cuda.threadIdx.y
        j = (cuda.blockIdx.x % tiles) * cuda.blockDim.x + cuda.threadIdx.x
        if row < index.size and j < width:
            cuda.atomic.add(dw, index[row] * width + j, T(g[row * width + j]))

    def embedding_backward_lines(g, index, dw, width, tiles):
        column = cuda.grid(1)
        for row in range(index.size):
            if column < width:
                start = max(index[row], 0) * width  # as in `embedding_rows`
                dw[start + column] += T(g[row * width + column])

    def embedding_backward_split(g, index, dw, width, tiles, span):
        column = (cuda.blockIdx.x % tiles) * cuda.blockDim.x + cuda.threadIdx.x
        first = cuda.blockIdx.x // tiles * span
        if column < width:
            for row in range(index.size):
                at = np.int64(index[row])
                if first <= at < first + span:
                    dw[at * width + column] += T(g[row * width + column])

    kernels = embedding_backward_atomic, embedding_backward_lines, embedding_backward_split
    kernel = dict(zip(VERSIONS, kernels))[version]
    target = array(sum_dtype(version, dtype))
    numbers = ["int64"] * (3 if version == "split" else 2)
    return cuda.jit(signature(array(dtype), array(index), target, *numbers))(kernel)


@functools.cache
def gather_kernel(dtype: np.dtype, index: np.dtype, single: bool) -> Callable:
    """kernel(x, index, out, size, length, inner): x (outer, size, inner), the others
    (outer, length, inner). single: length and inner are 1, so that no element needs a division."""
    SINGLE = single

    def gather_elements(x, index, out, size, length, inner):
        i = cuda.grid(1)
        if i < index.size:
            if SINGLE:
                out[i] = x[i * size + max(index[i], 0)]  # as in `embedding_rows`
            else:
                outer = i // (length * inner)
                out[i] = x[(outer * size + index[i]) * inner + i % inner]

    flat = array(dtype)
    numbers = ["int64"] * 3
    return cuda.jit(signature(flat, array(index), flat, *numbers))(gather_elements)


@functools.cache
def gather_rows_kernel(dtype: np.dtype, index: np.dtype, last: bool) -> Callable:
    """kernel(x, index, out, width, per, jump, shared, tiles): as gather_kernel, a block per tile of
    rows and columns, so that no element needs a division.

    out (rows, width); a row of index serves `shared` rows, of which `per` share a part of x, `jump`
    elements further than that before. last: the indexed axis is the last one, so that no element
    needs a multiplication of 64 bits either; otherwise the part is (size, width).
    """
    LAST = last

    def gather_rows(x, index, out, width, per, jump, shared, tiles):
        row = cuda.blockIdx.x // tiles * cuda.blockDim.y + cuda.threadIdx.y
        j = (cuda.blockIdx.x % tiles) * cuda.blockDim.x + cuda.threadIdx.x
        if row * width < out.size and j < width:
            at = max(index[row // shared * width + j], 0)  # checked: max only shows the compiler
            if LAST:
                out[row * width + j] = x[row // per * jump + at]
            else:
                out[row * width + j] = x[row // per * jump + at * width + j]

    flat = array(dtype)
    numbers = ["int64"] * 5
    return cuda.jit(signature(flat, array(index), flat, *numbers))(gather_rows)


@functools.cache
def scatter_kernel(version: str, dtype: np.dtype, index: np.dtype, rows: bool) -> Callable:
    """kernel(src, index, out, size, length, inner) or (..., span): out (outer, size, inner) of
    the sums' dtype, the others (outer, length, inner).

    rows: inner is 1, and a line is a row. "lines" takes a third of the time on a CPU then, with a
    loop that neither divides nor strides.
    """
    T = scalar_type(sum_dtype(version, dtype))
    ROWS = rows

    def scatter_add_atomic(src, index, out, size, length, inner):
        i = cuda.grid(1)
        if i < index.size:
            outer = i // (length * inner)
            cuda.atomic.add(out, (outer * size + index[i]) * inner + i % inner, T(src[i]))

    def scatter_add_lines(src, index, out, size, length, inner):
        line = cuda.grid(1)
        if line < index.size // length:
            if ROWS:
                for i in range(line * length, (line + 1) * length):
                    out[line * size + index[i]] += T(src[i])
            else:
                outer = line // inner
                column = line % inner
                first = outer * length * inner + column
                for k in range(length):
                    i = first + k * inner
                    out[(outer * size + index[i]) * inner + column] += T(src[i])

    def scatter_add_split(src, index, out, size, length, inner, span):
        k = cuda.grid(1)
        lines = index.size // length
        line = k % lines
        outer = line // inner
        column = line % inner
        low = k // lines * span
        first = outer * length * inner + column
        if low < size:
            for n in range(length):
                i = first + n * inner
                at = np.int64(index[i])
                if low <= at < low + span:
                    out[(outer * size + at) * inner + column] += T(src[i])

    kernel = dict(zip(VERSIONS, (scatter_add_atomic, scatter_add_lines, scatter_add_split)))[
        version
    ]
    target = array(sum_dtype(version, dtype))
    numbers = ["int64"] * (4 if version == "split" else 3)
    return cuda.jit(signature(array(dtype), array(index), target, *numbers))(kernel)


@functools.cache
def put_kernel(version: str, dtype: np.dtype, index: np.dtype, rows: bool) -> Callable:
    """kernel(src, index, out, size, length, inner): as `scatter_kernel`, out of src's dtype."""
    ROWS = rows

    def put_elements(src, index, out, size, length, inner):
        i = cuda.grid(1)
        if i < index.size:
            outer = i // (length * inner)
            out[(outer * size + index[i]) * inner + i % inner] = src[i]

    def put_lines(src, index, out, size, length, inner):
        line = cuda.grid(1)
        if line < index.size // length:
            if ROWS:
                for i in range(line * length, (line + 1) * length):
                    out[line * size + index[i]] = src[i]
            else:
                outer = line // inner
                column = line % inner
                first = outer * length * inner + column
                for k in range(length):
                    i = first + k * inner
                    out[(outer * size + index[i]) * inner + column] = src[i]

    kernel, flat = put_elements if version == "elements" else put_lines, array(dtype)
    return cuda.jit(signature(flat, array(index), flat, *["int64"] * 3))(kernel)
