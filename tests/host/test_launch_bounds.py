"""`__launch_bounds__`: blocks of more threads are refused, as by the driver."""

from __future__ import annotations

import numpy as np
import pytest

from kernels import cupy, lab, raw_module
from kernels.support.errors import LaunchError

MODULE = raw_module(
    r"""
#define THREADS 64
template <class T, int N> struct Traits { static constexpr int n = N * 2; };
extern "C" __global__ void __launch_bounds__(THREADS, 2) plain(float* x) { x[threadIdx.x] = 1; }
__global__ __launch_bounds__(32 + 32) void before(float* x) { x[threadIdx.x] = 1; }
namespace in {
template <class T, int N>
__global__ void __launch_bounds__(Traits<T, N>::n, 1) made(T* x) { x[threadIdx.x] = 1; }
}
template <int N> __global__ void __launch_bounds__(N > 16 ? 4 * N : 32) both(float* x) {
    x[threadIdx.x] = 1;
}
template <class T, int N = 32> __global__ void __launch_bounds__(N) late(T* x);
template <class T, int N> __global__ void __launch_bounds__(N) late(T* x) { x[threadIdx.x] = 1; }
__global__ void free_one(float* x) { x[threadIdx.x] = 1; }
#define KERNEL(name, n) __global__ void __launch_bounds__(n) name##_kernel(float* x) { \
    x[threadIdx.x] = 1; }
KERNEL(written, 64)
""",
    name_expressions=("in::made<float, 32>", "both<32>", "both<8>", "late<float>"),
)
BOUNDS = {
    "plain": 64, "before": 64, "in::made<float, 32>": 64, "both<32>": 128, "both<8>": 32,
}  # fmt: skip


@pytest.mark.parametrize("name", BOUNDS)
def test_blocks_of_too_many_threads_are_refused(name):
    kernel, most = MODULE.get_function(name), BOUNDS[name]
    x = np.zeros(2 * most, np.float32)
    kernel((1,), (most // 2, 2), (x,))
    assert x.tolist() == [1] * (most // 2) + [0] * (most + most // 2)
    match = rf"{most + 1} threads per block, but its __launch_bounds__ allows {most}"
    with pytest.raises(LaunchError, match=match):
        kernel((1,), (most + 1,), (x,))
    with pytest.raises(LaunchError, match=match):
        lab.profile(kernel, 1, most + 1, x)


@pytest.mark.parametrize("name", ["free_one", "late<float>", "written_kernel"])
def test_kernels_without_bounds_or_whose_bounds_are_not_known(name):
    x = np.zeros(256, np.float32)
    MODULE.get_function(name)((1,), (256,), (x,))
    assert x.all()


def test_cupy_says_how_many_threads_and_refuses_more():
    module = cupy.RawModule(code=MODULE.code, name_expressions=["both<32>"])
    kernel = module.get_function("both<32>")
    assert kernel.max_threads_per_block == kernel.attributes["max_threads_per_block"] == 128
    with pytest.raises(cupy.cuda.driver.CUDADriverError, match="__launch_bounds__ allows 128"):
        kernel((1,), (129,), (cupy.zeros(129, cupy.float32),))
