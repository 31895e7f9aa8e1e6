// Tiles of 16-bit elements in shared memory, and products of them by tensor cores (`mma.sync`,
// compute capability 8.0 and later).
//
// `ldmatrix` hands a warp four 8 x 8 matrices as the fragments of `mma.sync`, transposed on the way
// where an operand does not lie along k (PTX ISA, "Matrix Fragments for mma.m16n8k16"). Tiles have
// no padding: the packs of 16 bytes in a row change places by XOR with the row, so that the 8 rows
// of a matrix are in different banks.
#include "matmul.cuh"
#include "async.cuh"

// Where a pack of 8 elements lies in a tile of COLS columns.
template <int COLS>
__device__ __forceinline__ int swizzled(int row, int pack) {
    constexpr int PACKS = COLS / 8, TURNS = PACKS < 8 ? PACKS : 8;
    return (row * PACKS + (pack ^ row / (8 / TURNS) % TURNS)) * 8;
}

// Starts the copy of the ROWS x COLS corner at (row0, col0) of a stored matrix x (rows, cols);
// `packs` says that its rows begin at multiples of 16 bytes.
template <int ROWS, int COLS, int THREADS, class T>
__device__ __forceinline__ void start_tile(T* tile, const T* x, int row0, int col0, int rows,
                                           int cols, bool packs, int t) {
    for (int e = t; e < ROWS * COLS / 8; e += THREADS) {
        const int r = e / (COLS / 8), q = e % (COLS / 8), row = row0 + r, col = col0 + q * 8;
        Pack<T, 8>* to = (Pack<T, 8>*)(tile + swizzled<COLS>(r, q));
        if (packs) {
            const bool inside = row < rows && col < cols;
            copy_async(to, (const Pack<T, 8>*)(x + (inside ? (long long)row * cols + col : 0)),
                       inside);
        } else {
            Pack<T, 8> pack;
            #pragma unroll
            for (int w = 0; w < 8; ++w) pack.at[w] = element<T, false>(x, row, col + w, rows, cols);
            *to = pack;
        }
    }
}

// The 16 x 16 corner of a tile at `at` along m (or n, for b) and at k, as fragments: of a 16 x 16
// matrix a, or of two 16 x 8 matrices b. ACROSS: k runs down the tile's rows, not along them.
template <int COLS, bool OF_B, bool ACROSS, class T>
__device__ __forceinline__ void load_fragments(unsigned (&x)[4], const T* tile, int at, int k) {
    const int lane = threadIdx.x % 32;  // names the row lane % 8 of matrix lane / 8
    constexpr bool DOWN = OF_B == ACROSS;  // the second matrix is below the first, not beside it
    const int row = (ACROSS ? k : at) + lane % 8 + (DOWN ? lane / 8 % 2 : lane / 16) * 8;
    const int pack = (ACROSS ? at : k) / 8 + (DOWN ? lane / 16 : lane / 8 % 2);
    const unsigned from = (unsigned)__cvta_generic_to_shared(tile + swizzled<COLS>(row, pack));
    if constexpr (ACROSS) {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "r"(from));
    } else {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "r"(from));
    }
}

// sum (16 x 8) += a (16 x 16) @ b (16 x 8). The pointer tells the type of the elements.
__device__ __forceinline__ void multiply(float (&sum)[4], const unsigned (&a)[4], unsigned b0,
                                         unsigned b1, const __half*) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ void multiply(float (&sum)[4], const unsigned (&a)[4], unsigned b0,
                                         unsigned b1, const __nv_bfloat16*) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Adds the product of two tiles, TK along k, to a warp's sums of (16 * R) x (8 * Q) results, which
// begin at (row_in, col_in). TA: k runs down the tile of a; TB: it runs along the rows of b's.
template <int TK, int COLS_A, bool TA, int COLS_B, bool TB, int R, int Q, class T>
__device__ __forceinline__ void multiply_step(float (&sum)[R][Q][4], const T* a_tile,
                                              const T* b_tile, int row_in, int col_in) {
    #pragma unroll
    for (int i = 0; i < TK; i += 16) {
        unsigned av[R][4], bv[Q / 2][4];
        #pragma unroll
        for (int r = 0; r < R; ++r) {
            load_fragments<COLS_A, false, TA>(av[r], a_tile, row_in + r * 16, i);
        }
        #pragma unroll
        for (int q = 0; q < Q / 2; ++q) {
            load_fragments<COLS_B, true, !TB>(bv[q], b_tile, col_in + q * 16, i);
        }
        #pragma unroll
        for (int r = 0; r < R; ++r) {
            #pragma unroll
            for (int q = 0; q < Q; ++q) {
                const unsigned(&two)[4] = bv[q / 2];
                multiply(sum[r][q], av[r], two[q % 2 * 2], two[q % 2 * 2 + 1], a_tile);
            }
        }
    }
}
