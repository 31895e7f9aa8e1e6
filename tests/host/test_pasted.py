"""Whole files that others wrote: host code, its headers, names, and what is not available."""

from __future__ import annotations

import numpy as np
import pytest

from kernels import raw_kernel, raw_module
from kernels.host.declarations import declarations, is_for_the_host
from kernels.support.errors import CompileError

PASTED = r"""
#include <iostream>
#include <vector>
#include <chrono>
#include <string>
#include <random>
#include <algorithm>
#include <fstream>
#include <thread>
#include <cassert>
#include <cublas_v2.h>
#include "helper_cuda.h"
#include <cub/cub.cuh>
#define CHECK(x) do { cudaError_t e = x; if (e != cudaSuccess) { report(e); exit(1);} } while (0)
struct P { dim3 gridDim; int threadIdx; float f; };
__global__ void two(float* out, P p, int blockDim) {
    extern __shared__ float s[][4];
    s[threadIdx.x][blockDim] = threadIdx.x + p.threadIdx + p.gridDim.y;
    __syncthreads();
    out[threadIdx.x] = s[blockDim * 0 + (threadIdx.x ^ 1)][blockDim];
}
__global__ void named(float* out, int dim3, int gridDim) { out[threadIdx.x] = dim3 * gridDim; }
__global__ void sums(float* x) {
    typedef cub::BlockReduce<float, 128> R;
    __shared__ typename R::TempStorage t;
    cub::DeviceReduce::Sum(x, x[0], x, x, 1);
}
__device__ float helper(float x) { return tex1D<float>(0, x); }
__global__ void textured(float* x) { x[0] = helper(x[1]); }
void init(std::vector<float>& v) { for (auto& x : v) x = rand(); }
int run(int n) {
    float* d; CHECK(cudaMalloc(&d, n));
    dim3 gridDim(2), blockDim(3);
    named<<<gridDim, blockDim>>>(d, 2, 3);
    return 0;
}
int main(int argc, char** argv) {
    std::vector<float> v(5);
    cublasHandle_t h;
    try { run(3); } catch (...) {}
    std::cout << "hi" << std::endl;
}
"""


def test_a_whole_program():
    """One of its kernels with checks, one without."""
    out = np.zeros(8, np.float32)
    sizes = np.array([(1, 2, 3, 4, 5.0)], "u4,u4,u4,i4,f4")[0]
    two = raw_kernel(PASTED, "two")
    two((1,), (8,), (out, sizes, 2), shared_mem=128)
    np.testing.assert_array_equal(out, (np.arange(8) ^ 1) + 6)
    raw_kernel(PASTED, "named", debug=False)((1,), (8,), (out, 2, 3))
    np.testing.assert_array_equal(out, 6)


def test_one_kernel_that_cannot_be_compiled_keeps_no_other_from_running():
    module, x = raw_module(PASTED), np.zeros(8, np.float32)
    for name, message in (
        ("sums", r"line \d+: CUB beyond its collectives of a block and a warp: not"),
        ("textured", r"line \d+: textures: not available on the CPU"),
    ):
        with pytest.raises(CompileError, match=f"(?s)^{name} does not compile:\n{message}"):
            module.get_function(name)((1,), (8,), (x,))
    with pytest.raises(CompileError, match="^textured does not compile"):
        raw_kernel(PASTED, "textured").compile()
    module.get_function("named")((1,), (8,), (x, 2, 5))
    np.testing.assert_array_equal(x, 10)


def test_attributes_of_kernels():
    code = """
    #include <cooperative_groups.h>
    __global__ void __maxnreg__(64) registers(float* x) { x[threadIdx.x] += 1; }
    extern "C" __global__ void __cluster_dims__(2, 1, (1)) __launch_bounds__(32)
    clusters(float* x) { x[0] = 2; }"""
    x = np.zeros(8, np.float32)
    module = raw_module(code)
    module.get_function("registers")((1,), (8,), (x,))
    assert (x == 1).all()
    with pytest.raises(
        CompileError, match=r"line \d+: thread block clusters: not available on the"
    ):
        module.get_function("clusters")((2,), (8,), (x,))


def test_what_a_kernel_needs_is_not_left_out():
    """Another overload would be called in silence."""
    code = """
    __device__ double half(double x) { return x / 2; }
    __device__ float half(float x) { return unknown(x); }
    template <class T> struct Wrong { T value; unknown_type more; };
    #define HALF(x) half(x)
    __global__ void uses(float* x) { x[0] = HALF(x[0]); }
    __global__ void does_not(float* x) { x[0] = 3; }
    """
    x = np.zeros(1, np.float32)
    with pytest.raises(CompileError, match="uses.cu:3:.*unknown"):
        raw_kernel(code, "uses")((1,), (1,), (x,))
    raw_kernel(code, "does_not")((1,), (1,), (x,))
    assert x[0] == 3


def test_a_static_assertion_is_not_left_out():
    code = 'static_assert(sizeof(int) == 8, "no"); __global__ void k() {}'
    with pytest.raises(CompileError, match="k.cu:1:.*no"):
        raw_kernel(code, "k").compile()


def test_what_was_left_out_is_left_out_again_from_the_cache(monkeypatch):
    code = "#include <opencv2/core.hpp>\n__global__ void k(int* x) { *x = 7; }"
    raw_kernel(code, "k").compile()
    from kernels.host import compiler

    monkeypatch.setattr(compiler, "_call", None)  # nothing is compiled
    x = np.zeros(1, np.int32)
    raw_kernel(code, "k")((1,), (1,), (x,))
    assert x[0] == 7


@pytest.mark.parametrize("name", ["threadIdx", "blockIdx", "blockDim", "gridDim", "dim3"])
def test_names_of_built_in_variables_are_free(order, name):
    code = f"""
    struct Sizes {{ int {name}, n; float values[2]; }};
    __device__ int twice(int {name}) {{ return 2 * {name}; }}
    __global__ void parameter(int* x, int {name}, Sizes sizes) {{
        x[0] = {name} + sizes.{name} + sizes.n + twice(100);
    }}
    __global__ void variable(int* x, Sizes sizes) {{
        {{
            int {name} = 5;
            for (int i = 0; i < 2; ++i) x[i] = {name} + (&sizes)->{name};
        }}
        x[2 + threadIdx.x + blockIdx.x] = blockDim.x + gridDim.x;
    }}
    """
    x, sizes = np.zeros(8, np.int32), np.array([(3, 4, 0, 0)], "i4,i4,f4,f4")[0]
    raw_kernel(code, "parameter")((1,), (1,), (x, 10, sizes))
    assert x[0] == 217
    raw_kernel(code, "variable")((2,), (3,), (x, sizes))
    assert x.tolist() == [8, 8, 5, 5, 5, 5, 0, 0]


@pytest.mark.parametrize("outside", [False, True])
def test_dynamic_shared_memory_of_rows(order, outside):
    declared = "extern __shared__ float s[][4];\nextern __shared__ __align__(16) int t[][2][3];"
    code = f"""
    {declared if outside else ""}
    template <class T> __global__ void rows(T* out, int* sizes) {{
        {"" if outside else declared}
        int i = threadIdx.x;
        s[i / 4][i % 4] = i;
        __syncthreads();
        out[i] = s[1 - i / 4][i % 4];
        if (i == 0) {{ sizes[0] = sizeof(s[0]); sizes[1] = sizeof(t[0]); }}
    }}
    """
    out, sizes = np.zeros(8, np.float32), np.zeros(2, np.int32)
    raw_kernel(code, "rows<float>")((1,), (8,), (out, sizes), shared_mem=32)
    assert out.tolist() == [4, 5, 6, 7, 0, 1, 2, 3] and sizes.tolist() == [16, 24]


def test_declarations():
    code = """
    // int comment() {}
    #define MACRO(x) { x }
    template <int N = 3, class T = float>
    __global__ void __launch_bounds__(N * 2) k(T* x) { if (x) { x[0] = 1; } }
    namespace a { namespace b {
        struct S { int f() { return 1; } };
        __device__ int v[2] = {1, 2};
    } }
    extern "C" { void host() { k<3><<<1, 2>>>(0); } int g(int x); }
    using namespace a; using F = float; typedef int I; enum E { A, B };
    const int n = g(1), m = 2; auto f = [](int x) { return x; };
    int main(int, char**) { return 0; }
    """
    found = declarations(code)
    names = ["k", "S", "v", "host", "g", "", "F", "I", "E", "n", "f", "main"]
    assert [one.name for one in found if one.text.strip() != ";"] == names
    assert [one.name for one in found if is_for_the_host(one)] == ["host", "main"]
