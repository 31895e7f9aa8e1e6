// Convolution of 16-bit elements as a matrix product on tensor cores, summed in float.
//
// needs sm_80: the tiles and fragments are those of mma.cuh, and a pack of 8 elements goes to shared
// memory by one `cp.async`. So that packs exist, images and weights are laid out with their
// channels last and filled up to a multiple of 8 (`channels_last`). Then an element (i, k) of an
// operand lies at edge[i] + terms[k], where one of the two tables counts packs:
//
//   forward          i an output channel or an output position; k (kh, kw, channel) in packs
//   backward-data    i a channel of x in packs, or a position of x; k (tap, output channel)
//   backward-weight  i an output channel or (kh, kw, channel) in packs; k an output position
//
// What a table calls OUTSIDE is 0, or not stored: tables are filled up with it to whole tiles, and
// the loops have no guards.
#include "conv_last.cuh"
#include "mma.cuh"

// A thread's copies of an operand's tile, EDGE x TK. ACROSS: packs lie along the edge, not along k.
template <int EDGE, int TK, bool ACROSS, int THREADS>
struct Copies {
    static constexpr int COLS = ACROSS ? EDGE : TK, PACKS = COLS / 8;
    static constexpr int COUNT = EDGE * TK / 8 / THREADS;
    static_assert(THREADS % PACKS == 0 && EDGE * TK / 8 % THREADS == 0, "whole rows");
    unsigned edges[ACROSS ? 1 : COUNT];

    __device__ __forceinline__ Copies(const unsigned* edge, int edge0, int t) {
        #pragma unroll
        for (int i = 0; i < (ACROSS ? 1 : COUNT); ++i) {
            edges[i] = edge[ACROSS ? edge0 / 8 + t % PACKS : edge0 + t / PACKS + i * (THREADS / PACKS)];
        }
    }

    template <class T>
    __device__ __forceinline__ void start(T* tile, const T* x, const unsigned* terms, int k0, int t) {
        #pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            const int r = t / PACKS + i * (THREADS / PACKS), q = t % PACKS;
            const unsigned along = terms[ACROSS ? k0 + r : k0 / 8 + q], edge = edges[ACROSS ? 0 : i];
            const bool inside = along != OUTSIDE && edge != OUTSIDE;
            copy_async((Pack<T, 8>*)(tile + swizzled<COLS>(r, q)),
                       (const Pack<T, 8>*)(x + (inside ? edge + along : 0)), inside);
        }
    }
};

// A block computes TM x TN results, a warp WM x WN of them, from `span` terms (a multiple of TK).
// blockIdx.z = (split of the terms, group); the `_group`s are the distances between groups. Result
// (i, j) goes to out[out_rows[i] + out_cols[j]]; bias (groups * m) is along i.
template <class T, class U, bool A_ACROSS, bool B_ACROSS, bool BIAS, int TM, int TN, int WM, int WN>
__global__ void __launch_bounds__(TM / WM * (TN / WN) * 32)
conv_mma(const T* a, const T* b, const T* bias, U* out, const unsigned* a_edge,
         const unsigned* a_terms, const unsigned* b_edge, const unsigned* b_terms,
         const unsigned* out_rows, const unsigned* out_cols, int span, int groups, int m,
         long long a_group, long long b_group, long long out_group, long long out_split) {
    constexpr int THREADS = TM / WM * (TN / WN) * 32, TK = 32, STAGES = 3;
    constexpr int COLS_A = A_ACROSS ? TM : TK, COLS_B = B_ACROSS ? TN : TK;
    __shared__ __align__(128) T a_tile[STAGES][TM * TK];
    __shared__ __align__(128) T b_tile[STAGES][TN * TK];
    const int t = threadIdx.x, warp = t / 32, row0 = blockIdx.y * TM, col0 = blockIdx.x * TN;
    const int row_in = warp / (TN / WN) * WM, col_in = warp % (TN / WN) * WN;
    const int split = blockIdx.z / groups, group = blockIdx.z % groups;
    a += group * a_group;
    b += group * b_group;
    Copies<TM, TK, A_ACROSS, THREADS> of_a(a_edge, row0, t);
    Copies<TN, TK, B_ACROSS, THREADS> of_b(b_edge, col0, t);
    const int steps = span / TK;
    auto start = [&](int step) {
        const int k0 = split * span + step * TK, slot = step % STAGES;
        if (step < steps) {
            of_a.start(a_tile[slot], a, a_terms, k0, t);
            of_b.start(b_tile[slot], b, b_terms, k0, t);
        }
        copies_end();  // a group without copies too: the groups count steps
    };
    float sum[WM / 16][WN / 8][4] = {};
    for (int step = 0; step < STAGES - 1; ++step) start(step);
    for (int step = 0; step < steps; ++step) {
        wait_for_copies<STAGES - 2>();
        __syncthreads();  // everyone's copies for this step are there, and the last step is over
        start(step + STAGES - 1);
        multiply_step<TK, COLS_A, A_ACROSS, COLS_B, !B_ACROSS>(
            sum, a_tile[step % STAGES], b_tile[step % STAGES], row_in, col_in);
    }
    const int lane = t % 32, row = row0 + row_in + lane / 4, col = col0 + col_in + lane % 4 * 2;
    out += split * out_split + group * out_group;
    #pragma unroll
    for (int r = 0; r < WM / 16 * 2; ++r) {
        const unsigned to = out_rows[row + r * 8];
        if (to == OUTSIDE) continue;
        const float more = BIAS && split == 0 ? float(bias[group * m + row + r * 8]) : 0.0f;
        #pragma unroll
        for (int q = 0; q < WN / 4; ++q) {
            const unsigned at = out_cols[col + q / 2 * 8 + q % 2];
            if (at != OUTSIDE) out[to + at] = U(sum[r / 2][q / 2][r % 2 * 2 + q % 2] + more);
        }
    }
}
