"""Programs with a fault that a GPU has and a CPU does not: test_planted.py runs them, and each must
fail on the software GPU. The test at the end has none."""

from __future__ import annotations

import numpy as np
import pytest

from kernels.simt import cuda

pytestmark = pytest.mark.gpu


def test_a_missing_synchronisation():
    import cupy

    x = cupy.zeros(64, np.float32)
    cupy.cuda.Device().synchronize()
    with cupy.cuda.Stream(non_blocking=True):
        add = kernel_add.bind_on_gpu(2, 32, x)
        add(x)
    assert x.get().tolist() == [1] * 64  # nothing waited for the stream


def test_a_missing_barrier_between_streams():
    import cupy

    x, y = cupy.zeros(64, np.float32), cupy.zeros(64, np.float32)
    cupy.cuda.Device().synchronize()
    first, second = (cupy.cuda.Stream(non_blocking=True) for _ in range(2))
    with first:
        kernel_add.bind_on_gpu(2, 32, x)(x)
    with second:  # without second.wait_event(first.record())
        kernel_copy.bind_on_gpu(2, 32, x, y)(x, y)
    second.synchronize()
    assert y.get().tolist() == [1] * 64


def test_a_misaligned_load():
    import cupy

    from kernels import raw_kernel

    code = """
    __global__ void wide(const float* x, float4* out) { *out = *(const float4*)x; }
    """
    x, out = cupy.ones(9, np.float32), cupy.zeros(4, np.float32)
    raw_kernel(code, "wide")((1,), (1,), (x[1:], out))
    assert out.get().tolist() == [1] * 4


def test_a_mask_that_names_one_lane():
    import cupy

    x = cupy.ones(32, np.float32)
    sum_pairs.bind_on_gpu(1, 32, x)(x)
    assert x.get().tolist() == [2] * 32


def test_a_plan_whose_key_lacks_the_device():
    import cupy

    import kernels
    from kernels.launchers import plans

    place, plans.place = plans.place, lambda a: True
    softmax = __import__("kernels.launchers.softmax", fromlist=["place"])
    softmax.place = plans.place
    try:
        x = np.ones((3, 5), np.float32)
        kernels.softmax(x)
        assert kernels.softmax(cupy.asarray(x)).get().sum() == 3
    finally:
        plans.place = softmax.place = place


def test_a_grid_that_is_too_tall():
    import cupy

    x = cupy.ones(32, np.float32)
    kernel_add.bind_on_gpu((1, 65_536), 32, x)(x)
    x.get()


def test_memory_that_nothing_wrote():
    import cupy

    x, y = cupy.empty(64, np.float32), cupy.zeros(64, np.float32)
    kernel_copy.bind_on_gpu(2, 32, x, y)(x, y)
    assert np.isfinite(y.get()).all()


def test_that_has_no_fault():
    import cupy

    x, y = cupy.zeros(64, np.float32), cupy.zeros(64, np.float32)
    first, second = (cupy.cuda.Stream(non_blocking=True) for _ in range(2))
    with first:
        kernel_add.bind_on_gpu(2, 32, x)(x)
        done = first.record()
    second.wait_event(done)
    with second:
        kernel_copy.bind_on_gpu(2, 32, x, y)(x, y)
    second.synchronize()
    assert y.get().tolist() == [1] * 64


@cuda.jit
def kernel_add(x):
    i = cuda.grid(1)
    if i < x.size:
        x[i] += 1


@cuda.jit
def kernel_copy(x, y):
    i = cuda.grid(1)
    if i < x.size:
        y[i] = x[i]


@cuda.jit
def sum_pairs(x):
    i = cuda.grid(1)
    x[i] += cuda.shfl_xor_sync(1, x[i], 1)
