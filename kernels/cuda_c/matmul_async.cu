// Matrix multiplication with two buffers: while a block multiplies one pair of tiles, `cp.async`
// copies the next pair to shared memory, past the registers and without waiting (compute capability
// 8.0 and later; before it, as an ordinary copy). Operands and launch are those of matmul.cu.
#include "matmul.cuh"
#include "async.cuh"

// The TK x SIZE corner at (k0, at) of a stored matrix, whose rows run along k where ALONG_K.
template <int TK, int SIZE, int THREADS, bool ALONG_K, int PITCH, class A>
__device__ __forceinline__ void start_tile(A (&tile)[TK][PITCH], const A* x, int k0, int at, int k,
                                           int size, int t) {
    for (int e = t; e < TK * SIZE; e += THREADS) {
        const int i = ALONG_K ? e % TK : e / SIZE, r = ALONG_K ? e / TK : e % SIZE;
        const bool inside = k0 + i < k && at + r < size;
        const long long from = ALONG_K ? (long long)(at + r) * k + k0 + i
                                       : (long long)(k0 + i) * size + at + r;
        copy_async(&tile[i][r], x + (inside ? from : 0), inside);
    }
}

template <class A, bool TA, bool TB, bool BIAS, int TM, int TN, int RM, int RN, int TK>
__global__ void __launch_bounds__(TM / RM * (TN / RN))
double_buffer(const A* a, const A* b, const A* bias, A* c, int m, int n, int k, long long stride_a,
              long long stride_b) {
    constexpr int THREADS = TM / RM * (TN / RN), W = 16 / sizeof(A);
    __shared__ __align__(16) A a_tile[2][TK][TM + W];
    __shared__ __align__(16) A b_tile[2][TK][TN + W];
    const int t = threadIdx.x, row0 = blockIdx.y * TM, col0 = blockIdx.x * TN;
    const int row_in = t / (TN / RN) * RM, col_in = t % (TN / RN) * RN;
    a += blockIdx.z * stride_a;
    b += blockIdx.z * stride_b;
    A sum[RM][RN] = {};
    start_tile<TK, TM, THREADS, !TA>(a_tile[0], a, 0, row0, k, m, t);
    start_tile<TK, TN, THREADS, TB>(b_tile[0], b, 0, col0, k, n, t);
    copies_end();
    int now = 0;
    for (int k0 = 0; k0 < k; k0 += TK, now ^= 1) {
        if (k0 + TK < k) {
            start_tile<TK, TM, THREADS, !TA>(a_tile[now ^ 1], a, k0 + TK, row0, k, m, t);
            start_tile<TK, TN, THREADS, TB>(b_tile[now ^ 1], b, k0 + TK, col0, k, n, t);
            copies_end();
            wait_for_copies<1>();
        } else {
            wait_for_copies<0>();
        }
        __syncthreads();  // every thread's copies are there
        multiply_tiles(sum, a_tile[now], b_tile[now], row_in, col_in);
        __syncthreads();  // before the next step overwrites them
    }
    #pragma unroll
    for (int r = 0; r < RM; ++r) {
        #pragma unroll
        for (int q = 0; q < RN; ++q) {
            store<BIAS>(c, bias, sum[r][q], row0 + row_in + r, col0 + col_in + q, m, n);
        }
    }
}
