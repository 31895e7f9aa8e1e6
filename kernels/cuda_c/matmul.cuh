// Elements and tiles of matrices of any size, and where results go.
#include "common.cuh"

// An element of a stored matrix (rows, columns), transposed or not; 0 outside.
template <class A, bool TRANSPOSED, class T>
__device__ __forceinline__ A element(const T* x, int row, int col, int rows, int cols) {
    if (row >= rows || col >= cols) return A(0);
    return A(x[TRANSPOSED ? (long long)col * rows + row : (long long)row * cols + col]);
}

// Writes a result where it is inside.
template <bool BIAS, class U, class T, class A>
__device__ __forceinline__ void store(U* c, const T* bias, A sum, int row, int col, int m, int n) {
    if (row >= m || col >= n) return;
    c[(blockIdx.z * (long long)m + row) * n + col] = U(BIAS ? sum + A(bias[col]) : sum);
}

// Writes two neighbouring results of a row, the first in an even column.
template <bool BIAS, class U, class T>
__device__ __forceinline__ void store_pair(U* c, const T* bias, float x, float y, int row, int col,
                                           int m, int n) {
    if (n % 2) {
        store<BIAS>(c, bias, x, row, col, m, n);
        store<BIAS>(c, bias, y, row, col + 1, m, n);
    } else if (row < m && col < n) {
        Pack<U, 2> pair;
        pair.at[0] = U(BIAS ? x + float(bias[col]) : x);
        pair.at[1] = U(BIAS ? y + float(bias[col + 1]) : y);
        *(Pack<U, 2>*)(c + (blockIdx.z * (long long)m + row) * n + col) = pair;
    }
}

#ifdef MINIGRAD_ON_CPU
#include "matmul_cpu.cuh"
#else
// Copies the ROWS x COLS corner at (row0, col0) of a stored matrix x (rows, cols) to shared memory,
// transposed or not, in packs of 16 bytes; zeros where x ends.
template <int ROWS, int COLS, int THREADS, bool TRANSPOSED, int PITCH, class T, class A>
__device__ __forceinline__ void load_tile(A (*tile)[PITCH], const T* x, int row0, int col0,
                                          int rows, int cols, int t) {
    constexpr int W = 16 / sizeof(T);
    static_assert(COLS % W == 0, "a row of a tile is a number of packs");
    const bool packs = cols % W == 0 && aligned16(x);
    for (int e = t; e < ROWS * COLS / W; e += THREADS) {
        const int r = e / (COLS / W), q = e % (COLS / W) * W;
        const int row = row0 + r, col = col0 + q;
        Pack<T, W> pack;
        if (packs && row < rows && col < cols) {
            pack = *(const Pack<T, W>*)(x + (long long)row * cols + col);
        } else {
            #pragma unroll
            for (int w = 0; w < W; ++w) pack.at[w] = T(element<A, false>(x, row, col + w, rows, cols));
        }
        #pragma unroll
        for (int w = 0; w < W; ++w) {
            if (TRANSPOSED) tile[q + w][r] = A(pack.at[w]);
            else tile[r][q + w] = A(pack.at[w]);
        }
    }
}

// Adds the products of two tiles, a's transposed, to a thread's RM x RN results. It reads packs of
// 16 bytes, APART_A rows and APART_B columns from one to the next.
template <int APART_A, int APART_B, class A, int TK, int PITCH_A, int PITCH_B, int RM, int RN>
__device__ __forceinline__ void multiply_tiles(A (&sum)[RM][RN], A (&a_tile)[TK][PITCH_A],
                                               A (&b_tile)[TK][PITCH_B], int row_in, int col_in) {
    constexpr int W = 16 / sizeof(A);
    // Packs of the next steps are read while those of this are multiplied.
    #pragma unroll 8
    for (int i = 0; i < TK; ++i) {
        Pack<A, W> av[RM / W], bv[RN / W];
        #pragma unroll
        for (int r = 0; r < RM / W; ++r) av[r] = *(Pack<A, W>*)&a_tile[i][row_in + r * APART_A];
        #pragma unroll
        for (int q = 0; q < RN / W; ++q) bv[q] = *(Pack<A, W>*)&b_tile[i][col_in + q * APART_B];
        #pragma unroll
        for (int r = 0; r < RM; ++r) {
            #pragma unroll
            for (int q = 0; q < RN; ++q) {
                sum[r][q] += av[r / W].at[r % W] * bv[q / W].at[q % W];
            }
        }
    }
}

// Writes a thread's results, which lie in packs as `multiply_tiles` read them.
template <bool BIAS, int APART_A, int APART_B, class U, class T, class A, int RM, int RN>
__device__ __forceinline__ void store_results(U* c, const T* bias, const A (&sum)[RM][RN], int row0,
                                              int col0, int m, int n) {
    constexpr int W = 16 / sizeof(A);
    #pragma unroll
    for (int r = 0; r < RM; ++r) {
        const int row = row0 + r / W * APART_A + r % W;
        #pragma unroll
        for (int q = 0; q < RN; ++q) {
            store<BIAS>(c, bias, sum[r][q], row, col0 + q / W * APART_B + q % W, m, n);
        }
    }
}
#endif

// A warp's 32 threads are 4 x 8: its tile is 4 RM x 8 RN, and the warps of a block lie side by side,
// ACROSS of them. The packs of neighbouring threads are neighbours, which no two banks of shared
// memory conflict over, and so those of one thread lie apart.
template <class A>
constexpr int APART_ROWS = 4 * (16 / sizeof(A));
template <class A>
constexpr int APART_COLS = 8 * (16 / sizeof(A));

template <class A, int RM, int ACROSS>
__device__ __forceinline__ int row_in_block(int t) {
    return t / 32 / ACROSS * 4 * RM + t % 32 / 8 * (16 / (int)sizeof(A));
}

template <class A, int RN, int ACROSS>
__device__ __forceinline__ int col_in_block(int t) {
    return t / 32 % ACROSS * 8 * RN + t % 8 * (16 / (int)sizeof(A));
}
