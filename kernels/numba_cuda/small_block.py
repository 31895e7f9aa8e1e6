"""Sums and maxima over a block of one warp, or of a warp per row, through shared memory.

On the CPU the steps of the tree are vector operations, ten times as fast as shuffles. Where several
rows take each step together, no row waits for the one before it. The last eight elements take no
steps: each would be one more loop for LLVM, which took 1.6 times as long to compile a softmax.
"""

from __future__ import annotations

from kernels.simt import cuda


@cuda.jit(device=True)
def tree_sum(v, partial):
    """The sum over a block of 32 threads, in every thread; `partial` is shared, 32 elements."""
    t = cuda.threadIdx.x
    partial[t] = v
    cuda.syncthreads()
    if t < 16:
        partial[t] += partial[t + 16]
    cuda.syncthreads()
    if t < 8:
        partial[t] += partial[t + 8]
    cuda.syncthreads()
    total = partial[0]
    for i in range(1, 8):
        total += partial[i]
    cuda.syncthreads()
    return total


@cuda.jit(device=True)
def tree_max(v, partial):
    """The maximum over a block of 32 threads, in every thread."""
    t = cuda.threadIdx.x
    partial[t] = v
    cuda.syncthreads()
    if t < 16:
        partial[t] = max(partial[t], partial[t + 16])
    cuda.syncthreads()
    if t < 8:
        partial[t] = max(partial[t], partial[t + 8])
    cuda.syncthreads()
    top = partial[0]
    for i in range(1, 8):
        top = max(top, partial[i])
    cuda.syncthreads()
    return top


@cuda.jit(device=True)
def row_sums(v, partial):
    """The sums over the warps of a block, to partial[warp, 0]; `partial` is shared, (warps, 32)."""
    t, row = cuda.threadIdx.x, cuda.threadIdx.y
    partial[row, t] = v
    cuda.syncthreads()
    if t < 16:
        partial[row, t] += partial[row, t + 16]
    cuda.syncthreads()
    if t < 8:
        partial[row, t] += partial[row, t + 8]
    cuda.syncthreads()
    if row == 0 and t < partial.shape[0]:
        for i in range(1, 8):
            partial[t, 0] += partial[t, i]
    cuda.syncthreads()


@cuda.jit(device=True)
def row_maxima(v, partial):
    """The maxima over the warps of a block, to partial[warp, 0]."""
    t, row = cuda.threadIdx.x, cuda.threadIdx.y
    partial[row, t] = v
    cuda.syncthreads()
    if t < 16:
        partial[row, t] = max(partial[row, t], partial[row, t + 16])
    cuda.syncthreads()
    if t < 8:
        partial[row, t] = max(partial[row, t], partial[row, t + 8])
    cuda.syncthreads()
    if row == 0 and t < partial.shape[0]:
        for i in range(1, 8):
            partial[t, 0] = max(partial[t, 0], partial[t, i])
    cuda.syncthreads()
