"""cupyx.jit: kernels in Python with CuPy's names."""

from __future__ import annotations

import numpy as np
import pytest

import kernels.cupy as cp
from kernels.cupyx import jit


@jit.rawkernel(device=True)
def squared(x):
    return x * x


@jit.rawkernel()
def copy_squares(x, y, size):
    tid = jit.blockIdx.x * jit.blockDim.x + jit.threadIdx.x
    ntid = jit.gridDim.x * jit.blockDim.x
    for i in jit.range(tid, size, ntid):
        y[i] = squared(x[i])


@jit.rawkernel()
def reversed_in_blocks(x, y):
    tile = jit.shared_memory(cp.float32, 64)
    i = jit.grid(1)
    t = jit.threadIdx.x
    tile[t] = x[i]
    jit.syncthreads()
    y[i] = tile[63 - t]


@jit.rawkernel()
def warp_sums(x, out):
    value = x[jit.grid(1)]
    offset = 16
    while offset > 0:
        value += jit.shfl_down_sync(0xFFFFFFFF, value, offset)
        offset //= 2
    if jit.laneid() == 0:
        jit.atomic_add(out, 0, value)


def test_kernels(rng):
    x = cp.asarray(rng.random(256, dtype=np.float32))
    y = cp.zeros_like(x)
    copy_squares((2,), (64,), (x, y, 200))
    np.testing.assert_array_equal(y[:200].get(), x[:200].get() ** 2)
    assert not y[200:].any()
    reversed_in_blocks[4, 64](x, y)
    np.testing.assert_array_equal(y.get(), x.get().reshape(4, 64)[:, ::-1].ravel())
    total = cp.zeros(1, np.float32)
    warp_sums[8, 32](x, total)
    np.testing.assert_allclose(total.get(), x.get().sum(), rtol=1e-5)


def test_a_kernel_sees_the_variables_around_it():
    factor = 3.0

    @jit.rawkernel()
    def scale(x):
        x[jit.threadIdx.x] *= factor

    x = cp.ones(4)
    scale[1, 4](x)
    assert x.tolist() == [3, 3, 3, 3]


def test_what_is_refused():
    with pytest.raises(RuntimeError, match="in a kernel"):
        jit.shared_memory(cp.float32, 4)
    with pytest.raises(AttributeError, match="cub is not on the CPU; CUB's collectives"):
        jit.cub.BlockReduce(0, 0)
    with pytest.raises(ValueError, match="mode"):
        jit.rawkernel(mode="fast")
    with pytest.raises(RuntimeError, match="device function"):
        squared((1,), (1,), (1,))
