"""WMMA fragments, and the inline PTX of tensor-core kernels: cp.async, ldmatrix, mma.sync."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from kernels import raw_kernel, raw_module
from kernels.support.errors import CompileError, KernelError

pytestmark = pytest.mark.usefixtures("order")

WMMA = raw_module(
    r"""
#include <mma.h>
#include <cuda/std/type_traits>
using namespace nvcuda;
using cuda::std::is_same_v;
template <class T, class Acc, int M, int N, int K, class LA, class LB, class P, class Q>
__global__ void gemm(const P* a, const P* b, Q* c, int m, int n, int k, int lda, int ldb,
                     wmma::layout_t layout, float scale) {
    wmma::fragment<wmma::matrix_a, M, N, K, T, LA> fa;
    wmma::fragment<wmma::matrix_b, M, N, K, T, LB> fb;
    wmma::fragment<wmma::accumulator, M, N, K, Acc> acc, old;
    wmma::fill_fragment(acc, (Acc)0);
    int row = blockIdx.y * M, col = blockIdx.x * N;
    const bool ra = is_same_v<LA, wmma::row_major>, rb = is_same_v<LB, wmma::row_major>;
    for (int i = 0; i < k; i += K) {
        wmma::load_matrix_sync(fa, a + (ra ? row * lda + i : i * lda + row), lda);
        wmma::load_matrix_sync(fb, b + (rb ? i * ldb + col : col * ldb + i), ldb);
        if constexpr (is_same_v<T, wmma::precision::tf32>) {
            for (int e = 0; e < fa.num_elements; ++e) fa.x[e] = wmma::__float_to_tf32(fa.x[e]);
            for (int e = 0; e < fb.num_elements; ++e) fb.x[e] = wmma::__float_to_tf32(fb.x[e]);
        }
        wmma::mma_sync(acc, fa, fb, acc);
    }
    int ldc = layout == wmma::mem_row_major ? n : m;
    Q* tile = c + (layout == wmma::mem_row_major ? row * ldc + col : col * ldc + row);
    wmma::load_matrix_sync(old, tile, ldc, layout);
    for (int e = 0; e < acc.num_elements; ++e) acc.x[e] = acc.x[e] + (Acc)scale * old.x[e];
    wmma::store_matrix_sync(tile, acc, ldc, layout);
}
#define R wmma::row_major
#define C wmma::col_major
""",
    name_expressions=(
        "gemm<half, float, 16, 16, 16, R, C, half, float>",
        "gemm<half, half, 32, 8, 16, C, R, half, half>",
        "gemm<__nv_bfloat16, float, 8, 32, 16, R, R, __nv_bfloat16, float>",
        "gemm<wmma::precision::tf32, float, 16, 16, 8, R, C, float, float>",
        "gemm<signed char, int, 16, 16, 16, R, R, signed char, int>",
    ),
)


@pytest.mark.parametrize(
    "name, dtype, out, tile, layouts, column",
    [
        (0, np.float16, np.float32, (16, 16, 16), "RC", False),
        (1, np.float16, np.float16, (32, 8, 16), "CR", True),
        (2, ml_dtypes.bfloat16, np.float32, (8, 32, 16), "RR", False),
        (3, np.float32, np.float32, (16, 16, 8), "RC", True),
        (4, np.int8, np.int32, (16, 16, 16), "RR", False),
    ],
)
def test_fragments(rng, name, dtype, out, tile, layouts, column):
    kernel = WMMA.get_function(WMMA._names[name])
    m, n, k = 64, 32, 48
    a = (rng.integers(-8, 8, (m, k)) / (1 if dtype == np.int8 else 4)).astype(dtype)
    b = (rng.integers(-8, 8, (k, n)) / (1 if dtype == np.int8 else 4)).astype(dtype)
    c = rng.integers(-8, 8, (m, n)).astype(out)
    held_a = np.ascontiguousarray(a if layouts[0] == "R" else a.T)
    held_b = np.ascontiguousarray(b if layouts[1] == "R" else b.T)
    held_c = (c.T if column else c).copy(order="C")
    kernel(
        (n // tile[1], m // tile[0]),
        (32,),
        (held_a, held_b, held_c, m, n, k, held_a.shape[1], held_b.shape[1], int(column), 2.0),
    )
    got = (held_c.T if column else held_c).astype(float)
    expected = a.astype(float) @ b.astype(float) + 2 * c.astype(float)
    np.testing.assert_allclose(got, expected, rtol=2e-3 if out == np.float16 else 0, atol=0)


PTX = raw_module(
    r"""
#include <cuda_fp16.h>
#include <cuda_bf16.h>
#include <cuda_pipeline.h>
#include <cuda/std/type_traits>
#define CP_ASYNC(dst, src, bytes)                                                    \
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;\n"                       \
                 :: "r"(dst), "l"(src), "n"(bytes))
__device__ __forceinline__ unsigned smem(const void* p) {
    return static_cast<unsigned>(__cvta_generic_to_shared(p));
}
__device__ void ldmatrix_x4(unsigned (&r)[4], const void* p) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(smem(p)));
}
// A (16 x 16) and B (16 x 8) through shared memory, as the libraries of fast kernels do it.
template <class T> __global__ void tile(const T* a, const T* b, float* c) {
    __shared__ alignas(16) T sa[16][24], sb[16][8];
    int lane = threadIdx.x;
    CP_ASYNC(smem(&sa[lane / 2][lane % 2 * 8]), a + lane * 8, 16);
    if (lane < 16) CP_ASYNC(smem(&sb[lane][0]), b + lane * 8, 16);
    asm volatile("cp.async.commit_group;");
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    __syncwarp();
    unsigned ra[4], rb[2];
    ldmatrix_x4(ra, &sa[lane % 16][lane / 16 * 8]);
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];\n"
                 : "=r"(rb[0]), "=r"(rb[1]) : "r"(smem(&sb[lane % 16][0])));
    float d[4] = {1, 1, 1, 1};
    if constexpr (cuda::std::is_same_v<T, half>)
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                     : "r"(ra[0]), "r"(ra[1]), "r"(ra[2]), "r"(ra[3]), "r"(rb[0]), "r"(rb[1]));
    else
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
                     : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
                     : "r"(ra[0]), "r"(ra[1]), "r"(ra[2]), "r"(ra[3]), "r"(rb[0]), "r"(rb[1]),
                       "f"(1.f), "f"(1.f), "f"(1.f), "f"(1.f));
    for (int r = 0; r < 4; ++r) c[(lane / 4 + r / 2 * 8) * 8 + lane % 4 * 2 + r % 2] = d[r];
}
// The PTX manual's layouts, straight from global memory.
__global__ void tf32(const float* a, const float* b, float* c) {
    int g = threadIdx.x / 4, t = threadIdx.x % 4;
    unsigned ra[4], rb[2];
    for (int i = 0; i < 4; ++i)
        asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(ra[i]) : "f"(a[(g + i % 2 * 8) * 8 + t + i / 2 * 4]));
    for (int i = 0; i < 2; ++i)
        asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rb[i]) : "f"(b[(t + i * 4) * 8 + g]));
    float d[4];
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, "
                 "{%4,%5,%6,%7}, {%8,%9}, {%10,%11,%12,%13};"
                 : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
                 : "r"(ra[0]), "r"(ra[1]), "r"(ra[2]), "r"(ra[3]), "r"(rb[0]), "r"(rb[1]),
                   "f"(0.f), "f"(0.f), "f"(0.f), "f"(0.f));
    for (int r = 0; r < 4; ++r) c[(g + r / 2 * 8) * 8 + t * 2 + r % 2] = d[r];
}
__global__ void stages(const float* x, float* out) {
    __shared__ float s[4][32];
    int t = threadIdx.x;
    for (int i = 0; i < 3; ++i) {
        __pipeline_memcpy_async(&s[i][t], x + i * 32 + t, 4, i == 2 ? 4 : 0);
        __pipeline_commit();
    }
    out[t] = s[0][t];
    __pipeline_wait_prior(2);
    out[32 + t] = s[0][t];
    out[64 + t] = s[1][t];
    asm volatile("cp.async.wait_all;\n" ::);
    out[96 + t] = s[1][t];
    out[128 + t] = s[2][t];
    asm volatile("{\n .reg .pred p;\n .reg .u32 u;  // scopes, predicates\n"
                 "  setp.gt.s32 p, %1, 5;\n  mov.u32 u, %%laneid;\n"
                 "  @p st.global.f32 [%0], %2;\n @!p st.global.u32 [%0+0], u;\n}\n"
                 :: "l"(out + 160 + t), "r"(t), "f"(0.5f));
    float4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(x));
    out[192 + t] = v.x + v.w;
}
__global__ void misaligned(const half* x) {
    __shared__ half s[64];
    CP_ASYNC(smem(s + 4 * threadIdx.x), x, 16);
}
__global__ void divergent(unsigned* x) {
    __shared__ alignas(16) half s[64];
    if (threadIdx.x < 16)
        asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];"
                     : "=r"(x[threadIdx.x]) : "r"(smem(s)));
}
""",
    name_expressions=("tile<half>", "tile<__nv_bfloat16>"),
)


@pytest.mark.parametrize(
    "name, dtype", [("tile<half>", np.float16), ("tile<__nv_bfloat16>", ml_dtypes.bfloat16)]
)
def test_mma_sync(rng, name, dtype):
    a = (rng.integers(-9, 9, (16, 16)) / 4).astype(dtype)
    b = (rng.integers(-9, 9, (16, 8)) / 4).astype(dtype)
    c = np.full((16, 8), np.nan, np.float32)
    PTX.get_function(name)((1,), (32,), (a, b, c))
    np.testing.assert_array_equal(c, a.astype(float) @ b.astype(float) + 1)


def test_mma_sync_tf32(rng):
    a, b = (rng.standard_normal((n, 8), dtype=np.float32) for n in (16, 8))
    c = np.full((16, 8), np.nan, np.float32)
    PTX.get_function("tf32")((1,), (32,), (a, b, c))

    def rounded(x: np.ndarray) -> np.ndarray:
        return ((x.view(np.uint32) + 0x1000) & 0xFFFFE000).view(np.float32).astype(float)

    np.testing.assert_allclose(c, rounded(a) @ rounded(b), rtol=1e-5, atol=1e-6)
    assert not np.allclose(c, a.astype(float) @ b, rtol=1e-6, atol=1e-7)


def test_copies_are_poison_until_waited_for(rng):
    x = rng.standard_normal(96, dtype=np.float32)
    out = np.zeros((7, 32), np.float32)
    PTX.get_function("stages")((1,), (32,), (x, out))
    assert np.isnan(out[0]).all() and np.isnan(out[2]).all()
    np.testing.assert_array_equal(out[1], x[:32])
    np.testing.assert_array_equal(out[3], x[32:64])
    np.testing.assert_array_equal(out[4], 0)  # asked to fill up with zeros
    lanes = np.arange(32, dtype=np.uint32)
    np.testing.assert_array_equal(out[5], np.where(lanes > 5, np.float32(0.5), lanes.view("f4")))
    np.testing.assert_array_equal(out[6], x[0] + x[3])


def test_misuse_is_an_error():
    x = np.zeros(64, np.float16)
    with pytest.raises(KernelError, match=r"line 84: thread .* copies 16 bytes .*no multiple of"):
        PTX.get_function("misaligned")((1,), (4,), (x,))
    with pytest.raises(KernelError, match="deadlock|ldmatrix: not all lanes"):
        PTX.get_function("divergent")((1,), (32,), (x.view(np.uint32),))


def test_what_is_not_here_names_the_instruction_and_the_line():
    code = """
    __device__ void unused() { asm volatile("wgmma.fence.sync.aligned;"); }
    __global__ void fine(int* x) { *x = 1; }
    __global__ void hopper() {
        asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(0));
    }
    __global__ void odd(int* x) {
        asm("vabsdiff4.u32.u32.u32 %0, %0, %0, %0;" : "+r"(*x));
    }
    """
    x = np.zeros(1, np.int32)
    raw_kernel(code, "fine")((1,), (1,), (x,))
    assert x[0] == 1
    with pytest.raises(CompileError, match="^hopper: line 5: inline PTX: wgmma.*needs a GPU"):
        raw_kernel(code, "hopper").compile()
    with pytest.raises(
        CompileError, match="^odd: line 8: inline PTX: vabsdiff4.* is not available"
    ):
        raw_kernel(code, "odd").compile()
    with pytest.raises(CompileError, match="no tensor core has this shape"):
        raw_kernel(
            """#include <mma.h>
            __global__ void k(half* x) {
                using namespace nvcuda::wmma;
                fragment<matrix_a, 16, 8, 16, half, row_major> a;
                fragment<matrix_b, 16, 8, 16, half, row_major> b;
                fragment<accumulator, 16, 8, 16, float> c;
                mma_sync(c, a, b, c);
            }""",
            "k",
        ).compile()
