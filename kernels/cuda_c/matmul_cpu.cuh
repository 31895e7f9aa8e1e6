// What matmul.cuh has for a GPU, for a CPU: it computes with vectors, and few large threads cost it
// less than many small ones.

// Copies the ROWS x COLS corner at (row0, col0) of a stored matrix x (rows, cols) to shared memory,
// transposed or not, whole rows by a thread; zeros where x ends.
template <int ROWS, int COLS, int THREADS, bool TRANSPOSED, int PITCH, class T, class A>
__device__ __forceinline__ void load_tile(A (*tile)[PITCH], const T* x, int row0, int col0,
                                          int rows, int cols, int t) {
    for (int r = t; r < ROWS; r += THREADS) {
        const int live = row0 + r < rows ? cols - col0 : 0;
        const T* from = x + (long long)(row0 + r) * cols + col0;
        if (live >= COLS) {
            for (int q = 0; q < COLS; ++q) (TRANSPOSED ? tile[q][r] : tile[r][q]) = A(from[q]);
        } else {
            for (int q = 0; q < COLS; ++q) {
                (TRANSPOSED ? tile[q][r] : tile[r][q]) = q < live ? A(from[q]) : A(0);
            }
        }
    }
}

// Adds the products of two tiles, a's transposed, to a thread's RM x RN results: 8 rows and one
// vector of columns at a time, which the registers of any CPU can hold. g++ and clang++ made no such
// loop of scalars: they kept the sums in memory.
template <int APART_A, int APART_B, class A, int TK, int PITCH_A, int PITCH_B, int RM, int RN>
__device__ __forceinline__ void multiply_tiles(A (&sum)[RM][RN], A (&a_tile)[TK][PITCH_A],
                                               A (&b_tile)[TK][PITCH_B], int row_in, int col_in) {
    constexpr int W = 16 / sizeof(A), NEIGHBOURS = APART_B == W ? RN : W;
    constexpr int WIDEST = MINIGRAD_ON_CPU / sizeof(A);
    constexpr int N = WIDEST < NEIGHBOURS ? WIDEST : NEIGHBOURS, R = RM < 8 ? RM : 8;
    typedef A Vector __attribute__((vector_size(N * sizeof(A)), aligned(sizeof(A))));
    for (int q0 = 0; q0 < RN; q0 += N) {
        for (int r0 = 0; r0 < RM; r0 += R) {
            const A* a = &a_tile[0][row_in + r0 / W * APART_A];
            const A* b = &b_tile[0][col_in + q0 / W * APART_B + q0 % W];
            Vector part[R];
            #pragma unroll
            for (int r = 0; r < R; ++r) part[r] = *(Vector*)&sum[r0 + r][q0];
            for (int i = 0; i < TK; ++i, a += PITCH_A, b += PITCH_B) {
                const Vector bv = *(const Vector*)b;
                #pragma unroll
                for (int r = 0; r < R; ++r) part[r] += a[r / W * APART_A + r % W] * bv;
            }
            #pragma unroll
            for (int r = 0; r < R; ++r) *(Vector*)&sum[r0 + r][q0] = part[r];
        }
    }
}

// Writes a thread's results, which lie in packs as `multiply_tiles` read them.
template <bool BIAS, int APART_A, int APART_B, class U, class T, class A, int RM, int RN>
__device__ __forceinline__ void store_results(U* c, const T* bias, const A (&sum)[RM][RN], int row0,
                                              int col0, int m, int n) {
    constexpr int W = 16 / sizeof(A);
    for (int r = 0; r < RM; ++r) {
        const int row = row0 + r / W * APART_A + r % W;
        for (int q = 0; q < RN; ++q) {
            store<BIAS>(c, bias, sum[r][q], row, col0 + q / W * APART_B + q % W, m, n);
        }
    }
}
