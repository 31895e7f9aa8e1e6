// Matrix multiplication by tensor cores, summed in float: of 16-bit elements, or of floats that are
// rounded to TF32 (10 bits of mantissa; compute capability 8.0 and later).
//
// The operands and the launch are those of matmul.cu. A warp's 32 lanes together multiply 16 x 16
// fragments (WMMA, the CUDA C++ Programming Guide, 10.24): 4 warps of a block keep 2 x 2 of them
// each, over tiles in shared memory whose rows are padded against bank conflicts.
#include <mma.h>
#include "matmul.cuh"

using namespace nvcuda;

// How elements of a type become fragments: as what type, how many along k, and with what rounding.
template <class T>
struct Fragments {
    using type = T;
    static constexpr int K = 16;
    template <class F>
    static __device__ __forceinline__ void round(F&) {}
};
#if __CUDA_ARCH__ >= 800
template <>
struct Fragments<float> {
    using type = wmma::precision::tf32;
    static constexpr int K = 8;
    template <class F>
    static __device__ __forceinline__ void round(F& fragment) {
        #pragma unroll
        for (int e = 0; e < fragment.num_elements; ++e) {
            fragment.x[e] = wmma::__float_to_tf32(fragment.x[e]);
        }
    }
};
#endif

template <class T, bool TA, bool TB, bool BIAS>
__global__ void __launch_bounds__(128)
tensor_core(const T* a, const T* b, const T* bias, T* c, int m, int n, int k, long long stride_a,
            long long stride_b) {
    using Element = typename Fragments<T>::type;
    constexpr int TM = 64, TN = 64, TK = 32, THREADS = 128, F = 16, K = Fragments<T>::K;
    constexpr int PITCH_A = TK + 8, PITCH_B = TN + 8, PITCH_C = TN + 4;
    __shared__ __align__(32) T a_tile[TM][PITCH_A];
    __shared__ __align__(32) T b_tile[TK][PITCH_B];
    __shared__ __align__(32) float c_tile[TM][PITCH_C];
    const int t = threadIdx.x, warp = t / 32;
    const int row0 = blockIdx.y * TM, col0 = blockIdx.x * TN;
    const int row_in = warp / 2 * 32, col_in = warp % 2 * 32;
    a += blockIdx.z * stride_a;
    b += blockIdx.z * stride_b;
    wmma::fragment<wmma::accumulator, F, F, K, float> sum[2][2];
    #pragma unroll
    for (int i = 0; i < 4; ++i) wmma::fill_fragment(sum[i / 2][i % 2], 0.0f);
    for (int k0 = 0; k0 < k; k0 += TK) {
        if (TA) load_tile<TK, TM, THREADS, true>(a_tile, a, k0, row0, k, m, t);
        else load_tile<TM, TK, THREADS, false>(a_tile, a, row0, k0, m, k, t);
        if (TB) load_tile<TN, TK, THREADS, true>(b_tile, b, col0, k0, n, k, t);
        else load_tile<TK, TN, THREADS, false>(b_tile, b, k0, col0, k, n, t);
        __syncthreads();
        #pragma unroll
        for (int i = 0; i < TK; i += K) {
            wmma::fragment<wmma::matrix_a, F, F, K, Element, wmma::row_major> av[2];
            wmma::fragment<wmma::matrix_b, F, F, K, Element, wmma::row_major> bv[2];
            #pragma unroll
            for (int f = 0; f < 2; ++f) {
                wmma::load_matrix_sync(av[f], &a_tile[row_in + f * F][i], PITCH_A);
                wmma::load_matrix_sync(bv[f], &b_tile[i][col_in + f * F], PITCH_B);
                Fragments<T>::round(av[f]);
                Fragments<T>::round(bv[f]);
            }
            #pragma unroll
            for (int f = 0; f < 4; ++f) {
                wmma::mma_sync(sum[f / 2][f % 2], av[f / 2], bv[f % 2], sum[f / 2][f % 2]);
            }
        }
        __syncthreads();
    }
    #pragma unroll
    for (int f = 0; f < 4; ++f) {
        float* corner = &c_tile[row_in + f / 2 * F][col_in + f % 2 * F];
        wmma::store_matrix_sync(corner, sum[f / 2][f % 2], PITCH_C, wmma::mem_row_major);
    }
    __syncthreads();
    for (int e = t; e < TM * TN; e += THREADS) {
        store<BIAS>(c, bias, c_tile[e / TN][e % TN], row0 + e / TN, col0 + e % TN, m, n);
    }
}
