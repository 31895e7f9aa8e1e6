// Matrix multiplication: c[z] = a[z] @ b[z] + bias, for a (Z, M, K), b (Z, K, N).
//
// 2 Z M N K floating-point operations; at least Z (M K + K N + M N) elements moved. Each version
// does the same operations; what changes is how often an element comes from far away. The ladder
// follows S. Boehm, "How to optimize a CUDA matmul kernel" (2022).
//
// 1. naive          one thread per element; neighbours walk down a column: every load its own sector
// 2. coalesced      neighbours walk along a row: a warp's loads of b are one segment
// 3. tiled          a block copies tiles into shared memory: elements are loaded TILE times less
// 4. register_1d    a thread keeps a column of results: each shared load of b feeds 8 products
// 5. register_2d    a thread keeps RM x RN results: RM + RN shared loads feed RM * RN products
// 6. vectorised     16-byte loads, from far and from shared memory: a tile of a lies transposed, and
//                   a thread's columns are neighbours
// 7. warp_tile      the threads of a warp form a compact tile too, and the packs of one lie apart:
//                   fewer distinct shared addresses, no bank conflicts
// 8. double_buffer  the next tiles are on their way while these are multiplied: matmul_async.cu
// 9. sliced         few results: groups of warps share the sums along k: matmul_async.cu
// 10. tensor_core   16-bit elements, or (tensor_core_tf32) floats rounded: matmul_tensor.cu
// 11. mma_sync      16-bit, the warps' own fragments, swizzled tiles, three stages: matmul_mma.cu
// 12. wgmma         16-bit on Hopper, a producer and two warpgroups: matmul_wgmma.cu
// 13. matvec        few columns: a warp reads a row of a and a column of b, shuffles add up
// 14. matvec_split  few rows: warps of several blocks read parts of one, whose sums are added up
//
// T is the type of the elements, A that of the sums. An operand that is transposed in memory is
// read as it is: TA and TB say so. A batch that shares an operand has a stride of 0 there.
#include "matmul.cuh"

template <class T, class A, bool TA, bool TB, bool BIAS>
__global__ void naive(const T* a, const T* b, const T* bias, T* c, int m, int n, int k,
                      long long stride_a, long long stride_b) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    const int col = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= m || col >= n) return;
    a += blockIdx.z * stride_a;
    b += blockIdx.z * stride_b;
    A sum = BIAS ? A(bias[col]) : A(0);
    for (int i = 0; i < k; ++i) {
        sum += A(a[TA ? (long long)i * m + row : (long long)row * k + i]) *
               A(b[TB ? (long long)col * k + i : (long long)i * n + col]);
    }
    c[(blockIdx.z * (long long)m + row) * n + col] = T(sum);
}

template <class T, class A, bool TA, bool TB, bool BIAS>
__global__ void coalesced(const T* a, const T* b, const T* bias, T* c, int m, int n, int k,
                          long long stride_a, long long stride_b) {
    const int col = blockIdx.x * blockDim.x + threadIdx.x;
    const int row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= m || col >= n) return;
    a += blockIdx.z * stride_a;
    b += blockIdx.z * stride_b;
    A sum = BIAS ? A(bias[col]) : A(0);
    for (int i = 0; i < k; ++i) {
        sum += A(a[TA ? (long long)i * m + row : (long long)row * k + i]) *
               A(b[TB ? (long long)col * k + i : (long long)i * n + col]);
    }
    c[(blockIdx.z * (long long)m + row) * n + col] = T(sum);
}

template <class T, class A, bool TA, bool TB, bool BIAS>
__global__ void tiled(const T* a, const T* b, const T* bias, T* c, int m, int n, int k,
                      long long stride_a, long long stride_b) {
    constexpr int TILE = 16;
    __shared__ A a_tile[TILE][TILE];
    __shared__ A b_tile[TILE][TILE];
    const int tx = threadIdx.x, ty = threadIdx.y;
    const int row = blockIdx.y * TILE + ty, col = blockIdx.x * TILE + tx;
    a += blockIdx.z * stride_a;
    b += blockIdx.z * stride_b;
    A sum = A(0);
    for (int k0 = 0; k0 < k; k0 += TILE) {
        a_tile[ty][tx] = element<A, TA>(a, row, k0 + tx, m, k);
        b_tile[ty][tx] = element<A, TB>(b, k0 + ty, col, k, n);
        __syncthreads();
        for (int i = 0; i < TILE; ++i) sum += a_tile[ty][i] * b_tile[i][tx];
        __syncthreads();
    }
    store<BIAS>(c, bias, sum, row, col, m, n);
}

template <class T, class A, bool TA, bool TB, bool BIAS>
__global__ void __launch_bounds__(128)
register_1d(const T* a, const T* b, const T* bias, T* c, int m, int n, int k, long long stride_a,
            long long stride_b) {
    constexpr int TILE = 32, ROWS = 8, BY = TILE / ROWS;  // block (TILE, BY)
    __shared__ A a_tile[TILE][TILE];
    __shared__ A b_tile[TILE][TILE];
    const int tx = threadIdx.x, ty = threadIdx.y;
    const int row0 = blockIdx.y * TILE, col = blockIdx.x * TILE + tx;
    a += blockIdx.z * stride_a;
    b += blockIdx.z * stride_b;
    A sum[ROWS] = {};
    for (int k0 = 0; k0 < k; k0 += TILE) {
        for (int r = ty; r < TILE; r += BY) {
            a_tile[r][tx] = element<A, TA>(a, row0 + r, k0 + tx, m, k);
            b_tile[r][tx] = element<A, TB>(b, k0 + r, col, k, n);
        }
        __syncthreads();
        for (int i = 0; i < TILE; ++i) {
            const A bv = b_tile[i][tx];
            #pragma unroll
            for (int r = 0; r < ROWS; ++r) sum[r] += a_tile[r * BY + ty][i] * bv;
        }
        __syncthreads();
    }
    #pragma unroll
    for (int r = 0; r < ROWS; ++r) store<BIAS>(c, bias, sum[r], row0 + r * BY + ty, col, m, n);
}

// A thread keeps RM x RN results, BY rows and BX columns apart: no bank conflicts. Block (BX, BY).
// A tile is read along the axis that is contiguous in memory, whichever that is.
template <class T, class A, bool TA, bool TB, bool BIAS, int BX, int BY, int RM, int RN, int TK>
__global__ void __launch_bounds__(BX * BY)
register_2d(const T* a, const T* b, const T* bias, T* c, int m, int n, int k, long long stride_a,
            long long stride_b) {
    constexpr int TM = BY * RM, TN = BX * RN, THREADS = BX * BY;
    __shared__ A a_tile[TK][TM + 1];
    __shared__ A b_tile[TK][TN + 1];
    const int tx = threadIdx.x, ty = threadIdx.y, t = ty * BX + tx;
    const int row0 = blockIdx.y * TM, col0 = blockIdx.x * TN;
    a += blockIdx.z * stride_a;
    b += blockIdx.z * stride_b;
    A sum[RM][RN] = {};
    for (int k0 = 0; k0 < k; k0 += TK) {
        for (int e = t; e < TM * TK; e += THREADS) {
            const int i = TA ? e / TM : e % TK, r = TA ? e % TM : e / TK;
            a_tile[i][r] = element<A, TA>(a, row0 + r, k0 + i, m, k);
        }
        for (int e = t; e < TN * TK; e += THREADS) {
            const int i = TB ? e % TK : e / TN, q = TB ? e / TK : e % TN;
            b_tile[i][q] = element<A, TB>(b, k0 + i, col0 + q, k, n);
        }
        __syncthreads();
        for (int i = 0; i < TK; ++i) {
            A av[RM];
            #pragma unroll
            for (int r = 0; r < RM; ++r) av[r] = a_tile[i][r * BY + ty];
            #pragma unroll
            for (int q = 0; q < RN; ++q) {
                const A bv = b_tile[i][q * BX + tx];
                #pragma unroll
                for (int r = 0; r < RM; ++r) sum[r][q] += av[r] * bv;
            }
        }
        __syncthreads();
    }
    #pragma unroll
    for (int r = 0; r < RM; ++r) {
        #pragma unroll
        for (int q = 0; q < RN; ++q) {
            store<BIAS>(c, bias, sum[r][q], row0 + r * BY + ty, col0 + q * BX + tx, m, n);
        }
    }
}

// Versions 6 and 7: which of its block's TM x TN results are a thread's, in packs of 16 bytes.
template <int APART_A, int APART_B, class T, class A, bool TA, bool TB, bool BIAS, int TM, int TN,
          int RM, int RN, int TK>
__device__ __forceinline__ void packed_product(const T* a, const T* b, const T* bias, T* c, int m,
                                               int n, int k, int row_in, int col_in) {
    constexpr int THREADS = TM / RM * (TN / RN), W = 16 / sizeof(A);
    constexpr int PITCH_A = TM + W, PITCH_B = TN + W;
    __shared__ __align__(16) A a_tile[TK][PITCH_A];
    __shared__ __align__(16) A b_tile[TK][PITCH_B];
    const int t = threadIdx.x, row0 = blockIdx.y * TM, col0 = blockIdx.x * TN;
    A sum[RM][RN] = {};
    for (int k0 = 0; k0 < k; k0 += TK) {
        if (TA) load_tile<TK, TM, THREADS, false>(a_tile, a, k0, row0, k, m, t);
        else load_tile<TM, TK, THREADS, true>(a_tile, a, row0, k0, m, k, t);
        if (TB) load_tile<TN, TK, THREADS, true>(b_tile, b, col0, k0, n, k, t);
        else load_tile<TK, TN, THREADS, false>(b_tile, b, k0, col0, k, n, t);
        __syncthreads();
        multiply_tiles<APART_A, APART_B>(sum, a_tile, b_tile, row_in, col_in);
        __syncthreads();
    }
    store_results<BIAS, APART_A, APART_B>(c, bias, sum, row0 + row_in, col0 + col_in, m, n);
}

template <class T, class A, bool TA, bool TB, bool BIAS, int TM, int TN, int RM, int RN, int TK>
__global__ void __launch_bounds__(TM / RM * (TN / RN))
vectorised(const T* a, const T* b, const T* bias, T* c, int m, int n, int k, long long stride_a,
           long long stride_b) {
    constexpr int W = 16 / sizeof(A);  // a thread's results are neighbours
    const int row_in = threadIdx.x / (TN / RN) * RM, col_in = threadIdx.x % (TN / RN) * RN;
    packed_product<W, W, T, A, TA, TB, BIAS, TM, TN, RM, RN, TK>(
        a + blockIdx.z * stride_a, b + blockIdx.z * stride_b, bias, c, m, n, k, row_in, col_in);
}

template <class T, class A, bool TA, bool TB, bool BIAS, int TM, int TN, int RM, int RN, int TK>
__global__ void __launch_bounds__(TM / RM * (TN / RN))
warp_tile(const T* a, const T* b, const T* bias, T* c, int m, int n, int k, long long stride_a,
          long long stride_b) {
    constexpr int ACROSS = TN / (8 * RN);
    const int row_in = row_in_block<A, RM, ACROSS>(threadIdx.x);
    const int col_in = col_in_block<A, RN, ACROSS>(threadIdx.x);
    packed_product<APART_ROWS<A>, APART_COLS<A>, T, A, TA, TB, BIAS, TM, TN, RM, RN, TK>(
        a + blockIdx.z * stride_a, b + blockIdx.z * stride_b, bias, c, m, n, k, row_in, col_in);
}

// Block (32, rows), a column for each y of the grid.
template <class T, class A, bool TA, bool TB, bool BIAS>
__global__ void matvec(const T* a, const T* b, const T* bias, T* c, int m, int n, int k,
                       long long stride_a, long long stride_b) {
    const int row = blockIdx.x * blockDim.y + threadIdx.y, col = blockIdx.y;
    if (row >= m) return;
    a += blockIdx.z * stride_a;
    b += blockIdx.z * stride_b;
    A sum = A(0);
    for (int i = threadIdx.x; i < k; i += 32) {
        sum += A(a[TA ? (long long)i * m + row : (long long)row * k + i]) *
               A(b[TB ? (long long)col * k + i : (long long)i * n + col]);
    }
    sum = warp_sum(sum);
    if (threadIdx.x == 0) store<BIAS>(c, bias, sum, row, col, m, n);
}

// Block (32, rows), grid (tiles of M, 1, parts): c (parts, M), each over `span` of K.
template <class T, class U, class A, bool TA>
__global__ void matvec_split(const T* a, const T* b, U* c, int span, int m, int k) {
    const int row = blockIdx.x * blockDim.y + threadIdx.y, first = blockIdx.z * span;
    if (row >= m) return;
    const int last = k - first < span ? k : first + span;
    A sum = A(0);
    for (int i = first + threadIdx.x; i < last; i += 32) {
        sum += A(a[TA ? (long long)i * m + row : (long long)row * k + i]) * A(b[i]);
    }
    sum = warp_sum(sum);
    if (threadIdx.x == 0) c[blockIdx.z * (long long)m + row] = U(sum);
}
