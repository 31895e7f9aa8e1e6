// Convolution of float as a matrix product in which `cp.async` copies the tiles of the next steps
// while these are multiplied. Operands, tables and layout are those of conv_mma.cu, with packs of 4.
//
// A tile lies in shared memory as its operand in memory: k by k where packs lie across k (ACROSS),
// else row by row, each 16 bytes longer than it must be. A thread reads packs of 16 bytes, and its
// rows (and columns) are those of every LANES-th pack or row: in both layouts the threads of a warp
// read from different banks.
#include "async.cuh"
#include "common.cuh"
#include "conv_last.cuh"

template <class A, int EDGE, int TK, bool ACROSS>
struct Tile {
    static constexpr int W = 16 / sizeof(A), ROWS = ACROSS ? TK : EDGE;
    static constexpr int COLS = ACROSS ? EDGE : TK, PITCH = ACROSS ? EDGE : TK + W;
    A at[ROWS][PITCH];

    // The place of a lane's item `r` in the edge.
    template <int LANES>
    static __device__ __forceinline__ int place(int lane, int r) {
        return ACROSS ? (r / W * LANES + lane) * W + r % W : r * LANES + lane;
    }

    // The terms from `i` to i + W of a lane's R items, those of the tile from `first` on.
    template <int LANES, int R>
    __device__ __forceinline__ void read(A (&to)[R][W], int first, int lane, int i) const {
        #pragma unroll
        for (int v = 0; v < W; ++v) {
            #pragma unroll
            for (int r = 0; r < R / W; ++r) {  // R packs in both cases
                if constexpr (ACROSS) {
                    const auto pack = *(const Pack<A, W>*)&at[i + v][first + (r * LANES + lane) * W];
                    #pragma unroll
                    for (int w = 0; w < W; ++w) to[r * W + w][v] = pack.at[w];
                } else {
                    const int own = v * (R / W) + r;
                    const auto pack = *(const Pack<A, W>*)&at[first + own * LANES + lane][i];
                    #pragma unroll
                    for (int w = 0; w < W; ++w) to[own][w] = pack.at[w];
                }
            }
        }
    }
};

// A thread's copies of an operand's tile.
template <class A, int EDGE, int TK, bool ACROSS, int THREADS>
struct Copies {
    using T = Tile<A, EDGE, TK, ACROSS>;
    static constexpr int W = T::W, PACKS = T::COLS / W, STEP = THREADS / PACKS;
    static constexpr int COUNT = (T::ROWS + STEP - 1) / STEP;
    static_assert(THREADS % PACKS == 0, "whole rows");
    unsigned edges[ACROSS ? 1 : COUNT];

    __device__ __forceinline__ Copies(const unsigned* edge, int edge0, int t) {
        #pragma unroll
        for (int i = 0; i < (ACROSS ? 1 : COUNT); ++i) {
            const int r = t / PACKS + i * STEP;
            if (ACROSS) edges[i] = edge[edge0 / W + t % PACKS];
            else edges[i] = T::ROWS % STEP == 0 || r < T::ROWS ? edge[edge0 + r] : OUTSIDE;
        }
    }

    __device__ __forceinline__ void start(T& tile, const A* x, const unsigned* terms, int k0,
                                          int t) const {
        #pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            const int r = t / PACKS + i * STEP, q = t % PACKS;
            if (T::ROWS % STEP && r >= T::ROWS) continue;
            const unsigned along = terms[ACROSS ? k0 + r : k0 / W + q], edge = edges[ACROSS ? 0 : i];
            const bool inside = along != OUTSIDE && edge != OUTSIDE;
            copy_async((Pack<A, W>*)&tile.at[r][q * W],
                       (const Pack<A, W>*)(x + (inside ? edge + along : 0)), inside);
        }
    }
};

// A block computes TM x TN results, a thread RM x RN of them, a warp's threads lie 4 x 8. The rest
// is as in conv_mma.cu.
template <class A, bool A_ACROSS, bool B_ACROSS, bool BIAS, int TM, int TN, int RM, int RN, int TK,
          int STAGES, int BLOCKS>
__global__ void __launch_bounds__(TM / RM * (TN / RN), BLOCKS)
conv_async(const A* a, const A* b, const A* bias, A* out, const unsigned* a_edge,
           const unsigned* a_terms, const unsigned* b_edge, const unsigned* b_terms,
           const unsigned* out_rows, const unsigned* out_cols, int span, int groups, int m,
           long long a_group, long long b_group, long long out_group, long long out_split) {
    constexpr int THREADS = TM / RM * (TN / RN), W = 16 / sizeof(A), LR = 4, LC = 8;
    static_assert(TM % (LR * RM) == 0 && TN % (LC * RN) == 0, "warps fill the tile");
    using TileA = Tile<A, TM, TK, A_ACROSS>;
    using TileB = Tile<A, TN, TK, B_ACROSS>;
    __shared__ __align__(16) TileA a_tile[STAGES];
    __shared__ __align__(16) TileB b_tile[STAGES];
    const int t = threadIdx.x, row0 = blockIdx.y * TM, col0 = blockIdx.x * TN;
    const int warp = t / 32, lane_r = t % 32 / LC, lane_c = t % LC;
    const int row_in = warp / (TN / (LC * RN)) * LR * RM, col_in = warp % (TN / (LC * RN)) * LC * RN;
    const int split = blockIdx.z / groups, group = blockIdx.z % groups;
    a += group * a_group;
    b += group * b_group;
    const Copies<A, TM, TK, A_ACROSS, THREADS> of_a(a_edge, row0, t);
    const Copies<A, TN, TK, B_ACROSS, THREADS> of_b(b_edge, col0, t);
    const int steps = span / TK;
    auto start = [&](int step, int slot) {
        const int k0 = split * span + step * TK;
        if (step < steps) {
            of_a.start(a_tile[slot], a, a_terms, k0, t);
            of_b.start(b_tile[slot], b, b_terms, k0, t);
        }
        copies_end();  // a group without copies too: the groups count steps
    };
    A sum[RM][RN] = {};
    for (int step = 0; step < STAGES - 1; ++step) start(step, step);
    int slot = 0, next = STAGES - 1;
    for (int step = 0; step < steps; ++step) {
        wait_for_copies<STAGES - 2>();
        __syncthreads();  // everyone's copies for this step are there, and the last step is over
        start(step + STAGES - 1, next);
        #pragma unroll
        for (int i = 0; i < TK; i += W) {
            A av[RM][W], bv[RN][W];
            a_tile[slot].template read<LR>(av, row_in, lane_r, i);
            b_tile[slot].template read<LC>(bv, col_in, lane_c, i);
            #pragma unroll
            for (int v = 0; v < W; ++v) {
                #pragma unroll
                for (int r = 0; r < RM; ++r) {
                    #pragma unroll
                    for (int q = 0; q < RN; ++q) sum[r][q] += av[r][v] * bv[q][v];
                }
            }
        }
        slot = slot + 1 == STAGES ? 0 : slot + 1;
        next = next + 1 == STAGES ? 0 : next + 1;
    }
    out += split * out_split + group * out_group;
    #pragma unroll
    for (int r = 0; r < RM; ++r) {
        const int row = row0 + row_in + TileA::template place<LR>(lane_r, r);
        const unsigned to = out_rows[row];
        if (to == OUTSIDE) continue;
        const A more = BIAS && split == 0 ? bias[group * m + row] : A(0);
        #pragma unroll
        for (int q = 0; q < RN; ++q) {
            const unsigned at = out_cols[col0 + col_in + TileB::template place<LC>(lane_c, q)];
            if (at != OUTSIDE) out[to + at] = sum[r][q] + more;
        }
    }
}
