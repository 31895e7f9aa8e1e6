// Matrix multiplication of 16-bit elements by tensor cores, a level below WMMA, summed in float.
// The operands and the launch are those of matmul.cu.
//
// needs sm_80: STAGES - 1 pairs of tiles are on their way by `cp.async` while one is multiplied.
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

// A block computes TM x TN results, a warp WM x WN of them.
template <class T, bool TA, bool TB, bool BIAS, int TM, int TN, int WM, int WN>
__global__ void __launch_bounds__(TM / WM * (TN / WN) * 32)
mma_sync(const T* a, const T* b, const T* bias, T* c, int m, int n, int k, long long stride_a,
         long long stride_b) {
    constexpr int THREADS = TM / WM * (TN / WN) * 32, TK = 32, STAGES = 3;
    constexpr int COLS_A = TA ? TM : TK, COLS_B = TB ? TK : TN;
    __shared__ __align__(128) T a_tile[STAGES][TM * TK];
    __shared__ __align__(128) T b_tile[STAGES][TN * TK];
    const int t = threadIdx.x, warp = t / 32, row0 = blockIdx.y * TM, col0 = blockIdx.x * TN;
    const int row_in = warp / (TN / WN) * WM, col_in = warp % (TN / WN) * WN;
    a += blockIdx.z * stride_a;
    b += blockIdx.z * stride_b;
    const bool packs_a = (TA ? m : k) % 8 == 0 && aligned16(a);
    const bool packs_b = (TB ? k : n) % 8 == 0 && aligned16(b);
    const int steps = (k + TK - 1) / TK;
    auto start = [&](int step) {
        const int k0 = step * TK, slot = step % STAGES;
        if (step < steps) {
            if (TA) start_tile<TK, TM, THREADS>(a_tile[slot], a, k0, row0, k, m, packs_a, t);
            else start_tile<TM, TK, THREADS>(a_tile[slot], a, row0, k0, m, k, packs_a, t);
            if (TB) start_tile<TN, TK, THREADS>(b_tile[slot], b, col0, k0, n, k, packs_b, t);
            else start_tile<TK, TN, THREADS>(b_tile[slot], b, k0, col0, k, n, packs_b, t);
        }
        copies_end();  // a group without copies too: the groups count steps
    };
    float sum[WM / 16][WN / 8][4] = {};
    for (int step = 0; step < STAGES - 1; ++step) start(step);
    for (int step = 0; step < steps; ++step) {
        wait_for_copies<STAGES - 2>();
        __syncthreads();  // everyone's copies for this step are there, and the last step is over
        start(step + STAGES - 1);
        #pragma unroll
        for (int i = 0; i < TK; i += 16) {
            unsigned av[WM / 16][4], bv[WN / 16][4];
            #pragma unroll
            for (int r = 0; r < WM / 16; ++r) {
                load_fragments<COLS_A, false, TA>(av[r], a_tile[step % STAGES], row_in + r * 16, i);
            }
            #pragma unroll
            for (int q = 0; q < WN / 16; ++q) {
                load_fragments<COLS_B, true, !TB>(bv[q], b_tile[step % STAGES], col_in + q * 16, i);
            }
            #pragma unroll
            for (int r = 0; r < WM / 16; ++r) {
                #pragma unroll
                for (int q = 0; q < WN / 8; ++q) {
                    const unsigned(&two)[4] = bv[q / 2];
                    multiply(sum[r][q], av[r], two[q % 2 * 2], two[q % 2 * 2 + 1], a);
                }
            }
        }
    }
    const int lane = t % 32, row = row0 + row_in + lane / 4, col = col0 + col_in + lane % 4 * 2;
    #pragma unroll
    for (int r = 0; r < WM / 16; ++r) {
        #pragma unroll
        for (int q = 0; q < WN / 8; ++q) {
            const float(&s)[4] = sum[r][q];
            store_pair<BIAS>(c, bias, s[0], s[1], row + r * 16, col + q * 8, m, n);
            store_pair<BIAS>(c, bias, s[2], s[3], row + r * 16 + 8, col + q * 8, m, n);
        }
    }
}
