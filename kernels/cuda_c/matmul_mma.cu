// Matrix multiplication of 16-bit elements by tensor cores, a level below WMMA, summed in float.
// The operands and the launch are those of matmul.cu.
//
// needs sm_80: STAGES - 1 pairs of tiles are on their way by `cp.async` while one is multiplied.
// The tiles and their fragments are those of mma.cuh.
#include "mma.cuh"

// A block computes TM x TN results, a warp WM x WN of them. Of one pair of matrices with a long k,
// each of the grid's z makes the part of c over `span` terms, a multiple of TK.
template <class T, class U, bool TA, bool TB, bool BIAS, int TM, int TN, int WM, int WN>
__global__ void __launch_bounds__(TM / WM * (TN / WN) * 32)
mma_sync(const T* a, const T* b, const T* bias, U* c, int m, int n, int k, int span,
         long long stride_a, long long stride_b) {
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
    const int first = span < k ? blockIdx.z * span : 0;
    const int steps = (min(k - first, span) + TK - 1) / TK;
    auto start = [&](int step) {
        const int k0 = first + step * TK, slot = step % STAGES;
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
        multiply_step<TK, COLS_A, TA, COLS_B, TB>(sum, a_tile[step % STAGES], b_tile[step % STAGES],
                                                  row_in, col_in);
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
