// Attention of 16-bit elements on tensor cores, summed in float: the tiled kernels of attention.cu,
// whose operands and launches these are like, with products by `mma.sync`.
//
// needs sm_80: a warp has 16 of a block's own rows, and tiles of the other operand come by through
// `cp.async`, two of each in turn. The idea: what a warp has of 16 x 16 scores as the sum of one
// product is, rounded to 16 bits, its fragment of the first operand of the next. So probabilities
// never leave the registers, and a row's maximum and sum are shuffles among the 4 lanes that share it.
// Dao, "FlashAttention-2: Faster Attention with Better Parallelism and Work Partitioning" (2023).
#include "mma.cuh"
#include "attention.cuh"

constexpr int OWN = 64, WARPS = OWN / 16, THREADS = 32 * WARPS;  // rows and threads of a block
constexpr float LOG2E = 1.44269504f, LN2 = 0.693147181f;  // scores are in powers of 2: `ex2`

// The sum or maximum over the 4 lanes that share a row of a fragment.
__device__ __forceinline__ float quad_sum(float x) {
    x += __shfl_xor_sync(FULL_WARP, x, 1);
    return x + __shfl_xor_sync(FULL_WARP, x, 2);
}

__device__ __forceinline__ float quad_max(float x) {
    x = fmaxf(x, __shfl_xor_sync(FULL_WARP, x, 1));
    return fmaxf(x, __shfl_xor_sync(FULL_WARP, x, 2));
}

template <class T>
__device__ __forceinline__ unsigned rounded(float x, float y, const T*) {
    union {
        Pack<T, 2> pair;
        unsigned bits;
    } both;
    both.pair.at[0] = T(x);
    both.pair.at[1] = T(y);
    return both.bits;
}

// total (16 x D) += p (16 x OTHER) @ tile (OTHER x D), where p is the sum of a product.
template <int D, int COUNT, class T>
__device__ __forceinline__ void accumulate(float (&total)[1][D / 8][4], const float (&p)[1][COUNT][4],
                                           const T* tile) {
    #pragma unroll
    for (int i = 0; i < COUNT; i += 2) {
        const float(&x)[4] = p[0][i], (&y)[4] = p[0][i + 1];
        const unsigned a[4] = {rounded(x[0], x[1], tile), rounded(x[2], x[3], tile),
                               rounded(y[0], y[1], tile), rounded(y[2], y[3], tile)};
        #pragma unroll
        for (int q = 0; q < D / 16; ++q) {
            unsigned b[4];
            load_fragments<D, true, true>(b, tile, q * 16, i * 8);
            multiply(total[0][q * 2], a, b[0], b[1], tile);
            multiply(total[0][q * 2 + 1], a, b[2], b[3], tile);
        }
    }
}

// sum (16 x OTHER) += own (16 x D), as fragments, @ tile (OTHER x D) transposed.
template <int OTHER, int D, class T>
__device__ __forceinline__ void multiply_held(float (&sum)[1][OTHER / 8][4],
                                              const unsigned (&own)[D / 16][4], const T* tile) {
    #pragma unroll
    for (int i = 0; i < D / 16; ++i) {
        #pragma unroll
        for (int q = 0; q < OTHER / 16; ++q) {
            unsigned b[4];
            load_fragments<D, true, false>(b, tile, q * 16, i * 16);
            multiply(sum[0][q * 2], own[i], b[0], b[1], tile);
            multiply(sum[0][q * 2 + 1], own[i], b[2], b[3], tile);
        }
    }
}

// Starts the copy of COUNT rows of x (rows, width) from row0 on.
template <int COUNT, int D, class T>
__device__ __forceinline__ void start_rows(T* tile, const T* x, int row0, int rows, int width) {
    const bool packs = width % 8 == 0 && aligned16(x);
    start_tile<COUNT, D, THREADS>(tile, x, row0, 0, rows, width, packs, threadIdx.x);
}

// Writes a warp's rows from row0 on of out (rows, width), each times its factor.
template <int D, class U>
__device__ __forceinline__ void store_rows(U* out, const float (&total)[1][D / 8][4], int row0,
                                           int rows, int width, float first, float second) {
    const int row = row0 + threadIdx.x % 32 / 4, col = threadIdx.x % 4 * 2;
    #pragma unroll
    for (int q = 0; q < D / 8; ++q) {
        const float(&x)[4] = total[0][q];
        store_pair<false>(out, out, x[0] * first, x[1] * first, row, col + q * 8, rows, width);
        store_pair<false>(out, out, x[2] * second, x[3] * second, row + 8, col + q * 8, rows, width);
    }
}

// Grid (Z * tiles of L, splits): a tile of queries and its weighted sum over `span` keys, a multiple
// of OTHER; out (splits, Z, L, F) and lse (splits, Z, L). Where there are several splits, a row that
// sees no key of its split has the log-sum-exp -inf, for `merge`.
template <class T, class M, class U, int KIND, int OTHER, int D>
__global__ void __launch_bounds__(THREADS)
attention_mma(const T* q, const T* k, const T* v, const M* mask, U* out, float* lse, float scale,
              int causal, int div, int mod, int step, int span, int group, int queries, int keys,
              int width, int width_v) {
    __shared__ __align__(128) T query_tile[OWN * D], key_tile[2][OTHER * D], value_tile[2][OTHER * D];
    const int t = threadIdx.x, tiles = (queries + OWN - 1) / OWN;
    const int z = blockIdx.x / tiles, row0 = blockIdx.x % tiles * OWN;
    const int mine = row0 + t / 32 * 16 + t % 32 / 4;  // this thread's first row; the other, 8 below
    const Mask<M> seen(mask, z, div, mod, step, queries, keys);
    k += (long long)(z / group) * keys * width;
    v += (long long)(z / group) * keys * width_v;
    const int first = blockIdx.y * span, seen_by_any = causal && row0 + OWN < keys ? row0 + OWN : keys;
    const int end = seen_by_any - first < span ? seen_by_any : first + span;
    auto start = [&](int c0, int slot) {
        if (c0 < end) {
            start_rows<OTHER, D>(key_tile[slot], k, c0, keys, width);
            start_rows<OTHER, D>(value_tile[slot], v, c0, keys, width_v);
        }
        copies_end();
    };
    start_rows<OWN, D>(query_tile, q + (long long)z * queries * width, row0, queries, width);
    start(first, 0);
    wait_for_copies<0>();
    __syncthreads();
    unsigned query[D / 16][4];
    #pragma unroll
    for (int i = 0; i < D / 16; ++i) {
        load_fragments<D, false, false>(query[i], query_tile, t / 32 * 16, i * 16);
    }
    const float unit = KIND == NONE ? scale * LOG2E : scale;
    float acc[1][D / 8][4] = {}, top[2] = {-infinity(), -infinity()}, total[2] = {};
    for (int c0 = first, slot = 0; c0 < end; c0 += OTHER, slot ^= 1) {
        start(c0 + OTHER, slot ^ 1);
        wait_for_copies<1>();
        __syncthreads();
        float s[1][OTHER / 8][4] = {}, most[2] = {top[0], top[1]};
        multiply_held<OTHER, D>(s, query, key_tile[slot]);
        const bool whole = KIND == NONE && c0 + OTHER <= keys && (!causal || c0 + OTHER <= row0 + 1);
        #pragma unroll
        for (int i = 0; i < OTHER / 8; ++i) {
            #pragma unroll
            for (int e = 0; e < 4; ++e) {
                const int c = c0 + i * 8 + t % 4 * 2 + e % 2, r = mine + e / 2 * 8;
                float& x = s[0][i][e];
                x *= unit;
                if (!whole) {
                    const bool live = c < keys && r < queries && (!causal || c <= r);
                    x = live ? seen.template of<KIND>(x, r, c) : -infinity();
                    if (KIND != NONE) x *= LOG2E;
                }
                most[e / 2] = fmaxf(most[e / 2], x);
            }
        }
        float base[2], shrink[2];
        #pragma unroll
        for (int h = 0; h < 2; ++h) {
            most[h] = quad_max(most[h]);
            base[h] = most[h] == -infinity() ? 0.0f : most[h];
            shrink[h] = exp2f(top[h] - base[h]);
            top[h] = most[h];
            total[h] *= shrink[h];
        }
        #pragma unroll
        for (int i = 0; i < OTHER / 8; ++i) {
            #pragma unroll
            for (int e = 0; e < 4; ++e) {
                s[0][i][e] = exp2f(s[0][i][e] - base[e / 2]);
                total[e / 2] += s[0][i][e];
            }
        }
        #pragma unroll
        for (int q8 = 0; q8 < D / 8; ++q8) {
            #pragma unroll
            for (int e = 0; e < 4; ++e) acc[0][q8][e] *= shrink[e / 2];
        }
        accumulate<D>(acc, s, value_tile[slot]);
        __syncthreads();  // before the copies of the next but one tile
    }
    float part[2];
    lse += (long long)blockIdx.y * (gridDim.x / tiles) * queries;
    #pragma unroll
    for (int h = 0; h < 2; ++h) {
        total[h] = quad_sum(total[h]);
        part[h] = total[h] == 0.0f ? 0.0f : 1.0f / total[h];
        const int row = mine + h * 8;
        if (t % 4 == 0 && row < queries) {
            const float none = gridDim.y == 1 ? infinity() : -infinity();
            lse[(long long)z * queries + row] = total[h] == 0.0f ? none : top[h] * LN2 + log_of(total[h]);
        }
    }
    out += ((long long)blockIdx.y * (gridDim.x / tiles) + z) * queries * width_v;
    store_rows<D>(out, acc, row0 + t / 32 * 16, queries, width_v, part[0], part[1]);
}

// Grid (Z or ZK, times tiles of rows). OF_KEYS: own_a, own_b are k and v, other_a and other_b q and
// g, and the gradients da, db those of k and v. Otherwise own and other change places, and only da,
// the gradient of q, is written. SPLIT: grid (..., parts), over `span` of the other rows each, a
// multiple of OTHER; da and db have (parts, Z or ZK, rows, width).
template <class T, class M, class U, int KIND, bool OF_KEYS, bool SPLIT, int OTHER, int D>
__global__ void __launch_bounds__(THREADS, 2)
attention_mma_backward(const T* own_a, const T* own_b, const T* other_a, const T* other_b,
                       const M* mask, const float* lse, const float* delta, U* da, U* db,
                       float scale, int causal, int div, int mod, int step, int span, int group,
                       int rows, int others, int width, int width_v) {
    __shared__ __align__(128) T own_tile_a[OWN * D], own_tile_b[OWN * D];
    __shared__ __align__(128) T tiles_a[2][OTHER * D], tiles_b[2][OTHER * D];
    const int t = threadIdx.x, tiles = (rows + OWN - 1) / OWN, warp_row = t / 32 * 16;
    const int z = blockIdx.x / tiles, row0 = blockIdx.x % tiles * OWN;
    const int mine = row0 + warp_row + t % 32 / 4;
    const int queries = OF_KEYS ? others : rows, keys = OF_KEYS ? rows : others;
    int first = OF_KEYS && causal ? row0 / OTHER * OTHER : 0;
    int end = !OF_KEYS && causal && row0 + OWN < others ? row0 + OWN : others;
    if (SPLIT) {
        const int from = blockIdx.y * span;
        if (end - from > span) end = from + span;
        if (first < from) first = from;
    }
    const int per_head = end > first ? (end - first + OTHER - 1) / OTHER : 0;
    const int steps = per_head * (OF_KEYS ? group : 1);
    auto start = [&](int i) {
        if (i < steps) {
            const long long zo = OF_KEYS ? z * group + i / per_head : z / group;
            const int c0 = first + i % per_head * OTHER;
            const T *from_a = other_a + zo * others * width, *from_b = other_b + zo * others * width_v;
            start_rows<OTHER, D>(tiles_a[i % 2], from_a, c0, others, width);
            start_rows<OTHER, D>(tiles_b[i % 2], from_b, c0, others, width_v);
        }
        copies_end();
    };
    // Of the queries in a thread's part of a fragment: its two rows, or two columns in 8.
    constexpr int PAIRS = OF_KEYS ? OTHER / 8 : 1, STEP = OF_KEYS ? 1 : 8;
    float lses[PAIRS][2], deltas[PAIRS][2];
    auto load_rows = [&](int query, long long zq) {
        #pragma unroll
        for (int j = 0; j < PAIRS * 2; ++j) {
            const int at = query + j / 2 * 8 + j % 2 * STEP;
            lses[j / 2][j % 2] = at < queries ? lse[zq * queries + at] : 0.0f;
            deltas[j / 2][j % 2] = at < queries ? delta[zq * queries + at] : 0.0f;
        }
    };
    if (!OF_KEYS) load_rows(mine, z);
    start_rows<OWN, D>(own_tile_a, own_a + (long long)z * rows * width, row0, rows, width);
    start_rows<OWN, D>(own_tile_b, own_b + (long long)z * rows * width_v, row0, rows, width_v);
    start(0);
    float acc_a[1][D / 8][4] = {}, acc_b[1][D / 8][4] = {};
    for (int i = 0; i < steps; ++i) {
        start(i + 1);
        wait_for_copies<1>();
        __syncthreads();
        const T *tile_a = tiles_a[i % 2], *tile_b = tiles_b[i % 2];
        const int zq = OF_KEYS ? z * group + i / per_head : z, c0 = first + i % per_head * OTHER;
        const Mask<M> seen(mask, zq, div, mod, step, queries, keys);
        if (OF_KEYS) load_rows(c0 + t % 4 * 2, zq);
        float s[1][OTHER / 8][4] = {}, ds[1][OTHER / 8][4] = {};
        multiply_step<D, D, false, D, true>(s, own_tile_a, tile_a, warp_row, 0);
        multiply_step<D, D, false, D, true>(ds, own_tile_b, tile_b, warp_row, 0);
        #pragma unroll
        for (int j = 0; j < OTHER / 8; ++j) {
            #pragma unroll
            for (int e = 0; e < 4; ++e) {
                const int c = c0 + j * 8 + t % 4 * 2 + e % 2, r = mine + e / 2 * 8;
                const int query = OF_KEYS ? c : r, key = OF_KEYS ? r : c;
                const float row_lse = OF_KEYS ? lses[j % PAIRS][e % 2] : lses[0][e / 2];
                const float row_delta = OF_KEYS ? deltas[j % PAIRS][e % 2] : deltas[0][e / 2];
                const bool live = c < others && r < rows && (!causal || key <= query);
                float x = s[0][j][e] * scale;
                if (KIND != NONE && live) x = seen.template of<KIND>(x, query, key);
                const float p = live ? exp2f((x - row_lse) * LOG2E) : 0.0f;
                s[0][j][e] = p;
                ds[0][j][e] = p * (ds[0][j][e] - row_delta);
            }
        }
        accumulate<D>(acc_a, ds, tile_a);
        if (OF_KEYS) accumulate<D>(acc_b, s, tile_b);
        __syncthreads();  // before the copies of the next but one tile
    }
    wait_for_copies<0>();
    const long long zd = SPLIT ? (long long)blockIdx.y * (gridDim.x / tiles) + z : z;
    da += zd * rows * width;
    store_rows<D>(da, acc_a, row0 + warp_row, rows, width, scale, scale);
    if (OF_KEYS) {
        db += zd * rows * width_v;
        store_rows<D>(db, acc_b, row0 + warp_row, rows, width_v, 1.0f, 1.0f);
    }
}
