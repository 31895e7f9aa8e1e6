// Matrix multiplication with two buffers: while a block multiplies one pair of tiles, the next pair
// is on its way, and one barrier a step is enough. `cp.async` copies a tile as it lies in memory, in
// packs of 16 bytes, past the registers (compute capability 8.0 and later; before it, as an ordinary
// copy). Rows that run along k are stored down the columns of a tile: they wait in registers.
// Operands, launch and a thread's results are those of `warp_tile` in matmul.cu.
#include "matmul.cuh"
#include "async.cuh"

// The next TK x SIZE tile of a stored matrix x, (SIZE, k) where ALONG_K, else (k, SIZE).
template <int TK, int SIZE, int THREADS, bool ALONG_K, class A>
struct Coming {
    static constexpr int W = 16 / sizeof(A), COUNT = TK * SIZE / W / THREADS;
    static constexpr int ROW = (ALONG_K ? TK : SIZE) / W;  // packs in a row
    static_assert(COUNT * W * THREADS == TK * SIZE, "each thread has as many packs");
    Pack<A, W> held[COUNT];

    // Starts the loads of the tile at k0 along k and `at` along the other axis; `packs` says that
    // rows begin at multiples of 16 bytes.
    template <int PITCH>
    __device__ __forceinline__ void begin(A (&tile)[TK][PITCH], const A* x, int k0, int at, int k,
                                          int size, bool packs, int t) {
        const int rows = ALONG_K ? size : k, cols = ALONG_K ? k : size;
        #pragma unroll
        for (int j = 0; j < COUNT; ++j) {
            const int r = (t + j * THREADS) / ROW, q = (t + j * THREADS) % ROW * W;
            const int row = (ALONG_K ? at : k0) + r, col = (ALONG_K ? k0 : at) + q;
            const bool inside = row < rows && col < cols;
            const A* from = x + (inside ? (long long)row * cols + col : 0);
            if (packs) {
                if constexpr (!ALONG_K) {
                    copy_async((Pack<A, W>*)&tile[r][q], (const Pack<A, W>*)from, inside);
                } else {
                    held[j] = inside ? *(const Pack<A, W>*)from : Pack<A, W>{};
                }
                continue;
            }
            #pragma unroll
            for (int w = 0; w < W; ++w) {
                const bool live = inside && col + w < cols;
                if constexpr (!ALONG_K) copy_async(&tile[r][q + w], live ? from + w : x, live);
                else held[j].at[w] = live ? from[w] : A(0);
            }
        }
    }

    // Stores what waits in registers.
    template <int PITCH>
    __device__ __forceinline__ void end(A (&tile)[TK][PITCH], int t) {
        if constexpr (ALONG_K) {
            #pragma unroll
            for (int j = 0; j < COUNT; ++j) {
                const int r = (t + j * THREADS) / ROW, q = (t + j * THREADS) % ROW * W;
                #pragma unroll
                for (int w = 0; w < W; ++w) tile[q + w][r] = held[j].at[w];
            }
        }
    }
};

// Adds to a thread's results the products of the tiles at `start`, `start` + STEP, ... along k, before
// `last`. Each tile is on its way while the one before is multiplied; zeros stand beyond k.
template <bool TA, bool TB, int THREADS, int STEP, class A, int TK, int PITCH_A, int PITCH_B, int RM,
          int RN>
__device__ __forceinline__ void multiply_along(A (&sum)[RM][RN], A (&a_tile)[2][TK][PITCH_A],
                                               A (&b_tile)[2][TK][PITCH_B], const A* a, const A* b,
                                               int row0, int col0, int m, int n, int k, int start,
                                               int last, int row_in, int col_in, int t) {
    constexpr int W = 16 / sizeof(A);
    const bool packs_a = (TA ? m : k) % W == 0 && aligned16(a);
    const bool packs_b = (TB ? k : n) % W == 0 && aligned16(b);
    Coming<TK, PITCH_A - W, THREADS, !TA, A> next_a;
    Coming<TK, PITCH_B - W, THREADS, TB, A> next_b;
    next_a.begin(a_tile[0], a, start, row0, k, m, packs_a, t);
    next_b.begin(b_tile[0], b, start, col0, k, n, packs_b, t);
    next_a.end(a_tile[0], t);
    next_b.end(b_tile[0], t);
    int now = 0;
    for (int k0 = start; k0 < last; k0 += STEP, now ^= 1) {
        copies_end();
        wait_for_copies<0>();
        __syncthreads();  // this step's tiles are there, and nobody reads those of the last
        const bool more = k0 + STEP < last;
        if (more) {
            next_a.begin(a_tile[now ^ 1], a, k0 + STEP, row0, k, m, packs_a, t);
            next_b.begin(b_tile[now ^ 1], b, k0 + STEP, col0, k, n, packs_b, t);
        }
        multiply_tiles<APART_ROWS<A>, APART_COLS<A>>(sum, a_tile[now], b_tile[now], row_in, col_in);
        if (more) {
            next_a.end(a_tile[now ^ 1], t);
            next_b.end(b_tile[now ^ 1], t);
        }
    }
}

template <class A, bool TA, bool TB, bool BIAS, int TM, int TN, int RM, int RN, int TK>
__global__ void __launch_bounds__(TM / RM * (TN / RN), 2)
double_buffer(const A* a, const A* b, const A* bias, A* c, int m, int n, int k, long long stride_a,
              long long stride_b) {
    constexpr int THREADS = TM / RM * (TN / RN), W = 16 / sizeof(A), ACROSS = TN / (8 * RN);
    __shared__ __align__(16) A a_tile[2][TK][TM + W];
    __shared__ __align__(16) A b_tile[2][TK][TN + W];
    const int t = threadIdx.x, row0 = blockIdx.y * TM, col0 = blockIdx.x * TN;
    const int row_in = row_in_block<A, RM, ACROSS>(t), col_in = col_in_block<A, RN, ACROSS>(t);
    A sum[RM][RN] = {};
    multiply_along<TA, TB, THREADS, TK>(sum, a_tile, b_tile, a + blockIdx.z * stride_a,
                                        b + blockIdx.z * stride_b, row0, col0, m, n, k, 0, k,
                                        row_in, col_in, t);
    store_results<BIAS, APART_ROWS<A>, APART_COLS<A>>(c, bias, sum, row0 + row_in, col0 + col_in, m,
                                                      n);
}

// As `double_buffer` for few results, which leave a GPU idle: the warps of a block are SLICES groups,
// each with every SLICES-th tile along k and its own sums, which are added up at the end. Of one pair
// of matrices with a long k, each of the grid's z makes the part of c over `span` terms.
template <class A, bool TA, bool TB, bool BIAS, int TM, int TN, int RM, int RN, int TK, int SLICES>
__global__ void __launch_bounds__(TM / RM * (TN / RN) * SLICES)
sliced(const A* a, const A* b, const A* bias, A* c, int m, int n, int k, int span,
       long long stride_a, long long stride_b) {
    constexpr int THREADS = TM / RM * (TN / RN), W = 16 / sizeof(A), ACROSS = TN / (8 * RN);
    constexpr int RESULTS = RM * RN * THREADS;
    __shared__ __align__(16) A a_tiles[SLICES][2][TK][TM + W];
    __shared__ __align__(16) A b_tiles[SLICES][2][TK][TN + W];
    static_assert((SLICES - 1) * RESULTS <= SLICES * 2 * TK * (TM + W), "the sums of the others fit");
    const int slice = threadIdx.x / THREADS, t = threadIdx.x % THREADS;
    const int row0 = blockIdx.y * TM, col0 = blockIdx.x * TN;
    const int row_in = row_in_block<A, RM, ACROSS>(t), col_in = col_in_block<A, RN, ACROSS>(t);
    // All slices take as many steps, for they meet at barriers.
    const int start = span < k ? blockIdx.z * span : 0, last = min(k - start, span) + start;
    const int own = slice * TK;
    A sum[RM][RN] = {};
    multiply_along<TA, TB, THREADS, SLICES * TK>(
        sum, a_tiles[slice], b_tiles[slice], a + blockIdx.z * stride_a, b + blockIdx.z * stride_b,
        row0, col0, m, n, k, start + own, last + own, row_in, col_in, t);
    __syncthreads();  // nobody reads tiles any more: their memory takes the sums
    A* sums = &a_tiles[0][0][0][0];
    if (slice) {
        #pragma unroll
        for (int i = 0; i < RM * RN; ++i) {
            sums[(slice - 1) * RESULTS + i * THREADS + t] = sum[i / RN][i % RN];
        }
    }
    __syncthreads();
    if (slice) return;
    for (int other = 0; other < SLICES - 1; ++other) {
        #pragma unroll
        for (int i = 0; i < RM * RN; ++i) {
            sum[i / RN][i % RN] += sums[other * RESULTS + i * THREADS + t];
        }
    }
    store_results<BIAS, APART_ROWS<A>, APART_COLS<A>>(c, bias, sum, row0 + row_in, col0 + col_in, m,
                                                      n);
}
