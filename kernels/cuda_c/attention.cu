// Scaled dot product attention of q (Z, L, E) to k (ZK, S, E) and v (ZK, S, F), with its gradients.
//
// out = softmax(q @ k.T * scale + mask) @ v; head z of q attends to head z / (Z / ZK) of k and v.
// 4 Z L S E floating-point operations forward, 10 backward; at least q, k, v read and out written.
//
// 1. three_step  scores, softmax and weighted sum, one kernel each: Z L S scores go to memory and back
// 2. tiled       a block keeps a tile of queries; keys and values come by in tiles, and a row's sum
//                is corrected as larger scores come (online softmax): no score leaves the chip
// 3. split       tiled, where queries are few: blocks share the keys, and a second launch merges their
//                results by their log-sum-exp (flash decoding)
// All keep the log-sum-exp of each row, from which the gradients compute the probabilities again:
//     three_step  in memory, like the forward scores
//     tiled       a block keeps a tile of keys while queries come by (dk, dv), then the reverse (dq):
//                 nothing is added up by atomics, so results repeat bit by bit
//     split       likewise, and a reduction adds up the gradients of the blocks that share rows
// Dao, "FlashAttention-2: Faster Attention with Better Parallelism and Work Partitioning" (2023).
//
// A row that sees no key has the result 0 and the log-sum-exp inf, so that its probabilities are 0.
#include "attention.cuh"

constexpr int BX = 16, BY = 16, THREADS = BX * BY;  // the block of the tiled kernels

// A block of one warp per row: the scores s (Z, L, S) of a row become its probabilities.
template <class M, class A, int KIND>
__global__ void softmax_rows(A* s, const M* mask, A* lse, A scale, int causal, int div, int mod,
                             int step, int queries, int keys) {
    const int z = blockIdx.x / queries, row = blockIdx.x % queries;
    const Mask<M> seen(mask, z, div, mod, step, queries, keys);
    const int end = causal && row + 1 < keys ? row + 1 : keys;
    s += blockIdx.x * (long long)keys;
    A top = A(-infinity());
    for (int c = threadIdx.x; c < end; c += 32) {
        s[c] = seen.template of<KIND>(s[c] * scale, row, c);
        top = s[c] > top ? s[c] : top;
    }
    top = warp_max(top);
    if (top == A(-infinity())) top = A(0);
    A total = A(0);
    for (int c = threadIdx.x; c < end; c += 32) total += s[c] = exp_of(s[c] - top);
    total = warp_sum(total);
    const A part = total == A(0) ? A(0) : A(1) / total;
    for (int c = threadIdx.x; c < keys; c += 32) s[c] = c < end ? s[c] * part : A(0);
    if (threadIdx.x == 0) lse[blockIdx.x] = total == A(0) ? A(infinity()) : top + log_of(total);
}

// A block of one warp per row: out (rows, n) and its log-sum-exp from those of splits of the keys,
// parts (splits, rows, n) and of_part (splits, rows), -inf where a row sees no key of a split.
template <class T, class A>
__global__ void merge(const A* parts, const A* of_part, T* out, A* lse, int splits, int rows, int n) {
    const int row = blockIdx.x;
    A top = A(-infinity()), total = A(0);
    for (int s = 0; s < splits; ++s) {
        const A other = of_part[(long long)s * rows + row];
        top = other > top ? other : top;
    }
    const A base = top == A(-infinity()) ? A(0) : top;
    for (int s = 0; s < splits; ++s) total += exp_of(of_part[(long long)s * rows + row] - base);
    for (int c = threadIdx.x; c < n; c += 32) {
        A sum = A(0);
        for (int s = 0; s < splits; ++s) {
            const long long at = (long long)s * rows + row;
            sum += exp_of(of_part[at] - base) * parts[at * n + c];
        }
        out[(long long)row * n + c] = T(total == A(0) ? A(0) : sum / total);
    }
    if (threadIdx.x == 0) lse[row] = total == A(0) ? A(infinity()) : base + log_of(total);
}

// A block of one warp per row: delta (Z, L), the sum of g * out over a row.
template <class T, class A>
__global__ void row_products(const T* g, const T* out, A* delta, int n) {
    const long long row = blockIdx.x * (long long)n;
    A total = A(0);
    for (int c = threadIdx.x; c < n; c += 32) total += A(g[row + c]) * A(out[row + c]);
    total = warp_sum(total);
    if (threadIdx.x == 0) delta[blockIdx.x] = total;
}

// A block of one warp per row: scores s and products ds = g @ v.T (Z, L, S) become probabilities and
// the gradients of q @ k.T.
template <class M, class A, int KIND>
__global__ void score_gradients(A* s, A* ds, const M* mask, const A* lse, const A* delta, A scale,
                                int causal, int div, int mod, int step, int queries, int keys) {
    const int z = blockIdx.x / queries, row = blockIdx.x % queries;
    const Mask<M> seen(mask, z, div, mod, step, queries, keys);
    const int end = causal && row + 1 < keys ? row + 1 : keys;
    s += blockIdx.x * (long long)keys;
    ds += blockIdx.x * (long long)keys;
    for (int c = threadIdx.x; c < keys; c += 32) {
        const A score = seen.template of<KIND>(s[c] * scale, row, c);
        s[c] = c < end ? exp_of(score - lse[blockIdx.x]) : A(0);
        ds[c] = s[c] * (ds[c] - delta[blockIdx.x]) * scale;
    }
}

// Copies `COUNT` rows of x (rows, width) from row0 on to shared memory, transposed or not; zeros
// where x ends.
template <bool TRANSPOSED, int COUNT, int D, int PITCH, class T, class A>
__device__ __forceinline__ void load(A (*to)[PITCH], const T* x, int row0, int rows, int width) {
    for (int at = threadIdx.y * BX + threadIdx.x; at < COUNT * D; at += THREADS) {
        const int r = at / D, e = at % D;
        const bool inside = row0 + r < rows && e < width;
        const A v = inside ? A(x[(long long)(row0 + r) * width + e]) : A(0);
        if (TRANSPOSED) to[e][r] = v;
        else to[r][e] = v;
    }
}

// The products of the `other` rows with the `own` rows: a thread's are BY and BX apart.
template <int D, int OTHER_Y, int OWN_X, int PITCH, int PITCH_OWN, class A>
__device__ __forceinline__ void products(A (&s)[OTHER_Y][OWN_X], A (*other)[PITCH],
                                         A (*own)[PITCH_OWN]) {
    #pragma unroll
    for (int i = 0; i < OTHER_Y; ++i) {
        #pragma unroll
        for (int j = 0; j < OWN_X; ++j) s[i][j] = A(0);
    }
    #pragma unroll 4
    for (int e = 0; e < D; ++e) {
        A mine[OWN_X];
        #pragma unroll
        for (int j = 0; j < OWN_X; ++j) mine[j] = own[e][j * BX + threadIdx.x];
        #pragma unroll
        for (int i = 0; i < OTHER_Y; ++i) {
            const A v = other[i * BY + threadIdx.y][e];
            #pragma unroll
            for (int j = 0; j < OWN_X; ++j) s[i][j] += v * mine[j];
        }
    }
}

// Adds p.T @ other to the totals of a thread's own rows.
template <int OTHER, int OWN_Y, int D_X, int OWN, int PITCH, class A>
__device__ __forceinline__ void accumulate(A (&total)[OWN_Y][D_X], A (*p)[OWN], A (*other)[PITCH]) {
    #pragma unroll 4
    for (int c = 0; c < OTHER; ++c) {
        A theirs[D_X];
        #pragma unroll
        for (int j = 0; j < D_X; ++j) theirs[j] = other[c][j * BX + threadIdx.x];
        #pragma unroll
        for (int i = 0; i < OWN_Y; ++i) {
            const A v = p[c][i * BY + threadIdx.y];
            #pragma unroll
            for (int j = 0; j < D_X; ++j) total[i][j] += v * theirs[j];
        }
    }
}

// Grid (Z * tiles of L,): a tile of queries and its weighted sum. Neighbouring rows of a tile lie in
// different banks. SPLIT: grid (Z * tiles of L, parts), over `span` keys: out (parts, Z, L, F), and
// lse (parts, Z, L), which is -inf for a row that sees no key of its part, for `merge`.
template <class T, class M, class U, class A, int KIND, bool SPLIT, int OWN, int OTHER, int D>
__global__ void __launch_bounds__(THREADS)
tiled(const T* q, const T* k, const T* v, const M* mask, U* out, A* lse, A scale, int causal, int div,
      int mod, int step, int span, int group, int queries, int keys, int width, int width_v) {
    constexpr int OWN_X = OWN / BX, OWN_Y = OWN / BY, OTHER_Y = OTHER / BY, D_X = D / BX;
    __shared__ A query_tile[D][OWN + 1], key_tile[OTHER][D + 1], value_tile[OTHER][D + 1];
    __shared__ A probs[OTHER][OWN], top[OWN], base[OWN], shrink[OWN], total[OWN];
    const int tx = threadIdx.x, ty = threadIdx.y, t = ty * BX + tx;
    const int tiles = (queries + OWN - 1) / OWN;
    const int z = blockIdx.x / tiles, row0 = blockIdx.x % tiles * OWN;
    const Mask<M> seen(mask, z, div, mod, step, queries, keys);
    k += (long long)(z / group) * keys * width;
    v += (long long)(z / group) * keys * width_v;
    load<true, OWN, D>(query_tile, q + (long long)z * queries * width, row0, queries, width);
    if (t < OWN) top[t] = A(-infinity()), total[t] = A(0);
    A s[OTHER_Y][OWN_X], acc[OWN_Y][D_X] = {};
    const int first = SPLIT ? blockIdx.y * span : 0;
    int end = causal && row0 + OWN < keys ? row0 + OWN : keys;
    if (SPLIT) {
        end = end - first > span ? first + span : end;
        __syncthreads();  // the loop may have no iteration, and so no barrier
    }
    for (int c0 = first; c0 < end; c0 += OTHER) {
        load<false, OTHER, D>(key_tile, k, c0, keys, width);
        load<false, OTHER, D>(value_tile, v, c0, keys, width_v);
        __syncthreads();
        products<D>(s, key_tile, query_tile);
        #pragma unroll
        for (int i = 0; i < OTHER_Y; ++i) {
            #pragma unroll
            for (int j = 0; j < OWN_X; ++j) {
                const int c = c0 + i * BY + ty, r = row0 + j * BX + tx;
                const bool live = c < keys && r < queries && (!causal || c <= r);
                s[i][j] = live ? seen.template of<KIND>(s[i][j] * scale, r, c) : A(-infinity());
                probs[i * BY + ty][j * BX + tx] = s[i][j];
            }
        }
        __syncthreads();
        if (t < OWN) {
            A m = top[t];
            for (int c = 0; c < OTHER; ++c) m = probs[c][t] > m ? probs[c][t] : m;
            base[t] = m == A(-infinity()) ? A(0) : m;
            shrink[t] = exp_of(top[t] - base[t]);
            top[t] = m;
        }
        __syncthreads();
        #pragma unroll
        for (int i = 0; i < OTHER_Y; ++i) {
            #pragma unroll
            for (int j = 0; j < OWN_X; ++j) {
                probs[i * BY + ty][j * BX + tx] = exp_of(s[i][j] - base[j * BX + tx]);
            }
        }
        __syncthreads();
        if (t < OWN) {
            A sum = total[t] * shrink[t];
            for (int c = 0; c < OTHER; ++c) sum += probs[c][t];
            total[t] = sum;
        }
        #pragma unroll
        for (int i = 0; i < OWN_Y; ++i) {
            #pragma unroll
            for (int j = 0; j < D_X; ++j) acc[i][j] *= shrink[i * BY + ty];
        }
        accumulate<OTHER>(acc, probs, value_tile);
        __syncthreads();
    }
    const long long zo = SPLIT ? (long long)blockIdx.y * (gridDim.x / tiles) + z : z;
    #pragma unroll
    for (int i = 0; i < OWN_Y; ++i) {
        const int r = i * BY + ty;
        const A part = total[r] == A(0) ? A(0) : A(1) / total[r];
        if (row0 + r >= queries) continue;
        #pragma unroll
        for (int j = 0; j < D_X; ++j) {
            const int e = j * BX + tx;
            if (e < width_v) {
                out[(zo * queries + row0 + r) * width_v + e] = U(acc[i][j] * part);
            }
        }
    }
    if (t < OWN && row0 + t < queries) {
        const A none = SPLIT ? A(-infinity()) : A(infinity());
        lse[zo * queries + row0 + t] = total[t] == A(0) ? none : top[t] + log_of(total[t]);
    }
}

// Grid (Z or ZK, times tiles of rows). OF_KEYS: own_a, own_b are k and v, other_a and other_b q and
// g, and the gradients da, db those of k and v. Otherwise own and other change places, and only da,
// the gradient of q, is written. SPLIT: grid (..., parts), over `span` of the other rows; da and db
// have (parts, Z or ZK, rows, width).
template <class T, class M, class U, class A, int KIND, bool OF_KEYS, bool SPLIT, int OWN, int OTHER,
          int D>
__global__ void __launch_bounds__(THREADS, 2)
tiled_backward(const T* own_a, const T* own_b, const T* other_a, const T* other_b, const M* mask,
               const A* lse, const A* delta, U* da, U* db, A scale, int causal, int div, int mod,
               int step, int span, int group, int rows, int others, int width, int width_v) {
    constexpr int OWN_X = OWN / BX, OWN_Y = OWN / BY, OTHER_Y = OTHER / BY, D_X = D / BX;
    __shared__ A own_tile_a[D][OWN + 1], own_tile_b[D][OWN + 1];
    __shared__ A tile_a[OTHER][D + 1], tile_b[OTHER][D + 1], probs[OTHER][OWN], grads[OTHER][OWN];
    const int tx = threadIdx.x, ty = threadIdx.y, tiles = (rows + OWN - 1) / OWN;
    const int z = blockIdx.x / tiles, row0 = blockIdx.x % tiles * OWN;
    const int queries = OF_KEYS ? others : rows, keys = OF_KEYS ? rows : others;
    load<true, OWN, D>(own_tile_a, own_a + (long long)z * rows * width, row0, rows, width);
    load<true, OWN, D>(own_tile_b, own_b + (long long)z * rows * width_v, row0, rows, width_v);
    A s[OTHER_Y][OWN_X], ds[OTHER_Y][OWN_X], acc_a[OWN_Y][D_X] = {}, acc_b[OWN_Y][D_X] = {};
    int first = OF_KEYS && causal ? row0 / OTHER * OTHER : 0;
    int end = !OF_KEYS && causal && row0 + OWN < others ? row0 + OWN : others;
    if (SPLIT) {
        const int from = blockIdx.y * span;
        if (end - from > span) end = from + span;
        if (first < from) first = from;
    }
    for (int h = 0; h < (OF_KEYS ? group : 1); ++h) {
        const long long zo = OF_KEYS ? z * group + h : z / group, zq = OF_KEYS ? zo : z;
        const Mask<M> seen(mask, zq, div, mod, step, queries, keys);
        for (int c0 = first; c0 < end; c0 += OTHER) {
            load<false, OTHER, D>(tile_a, other_a + zo * others * width, c0, others, width);
            load<false, OTHER, D>(tile_b, other_b + zo * others * width_v, c0, others, width_v);
            __syncthreads();
            products<D>(s, tile_a, own_tile_a);
            products<D>(ds, tile_b, own_tile_b);
            #pragma unroll
            for (int i = 0; i < OTHER_Y; ++i) {
                #pragma unroll
                for (int j = 0; j < OWN_X; ++j) {
                    const int c = c0 + i * BY + ty, r = row0 + j * BX + tx;
                    const int query = OF_KEYS ? c : r, key = OF_KEYS ? r : c;
                    A p = A(0), grad = A(0);
                    if (c < others && r < rows && (!causal || key <= query)) {
                        const long long row = zq * queries + query;
                        p = exp_of(seen.template of<KIND>(s[i][j] * scale, query, key) - lse[row]);
                        grad = p * (ds[i][j] - delta[row]);
                    }
                    probs[i * BY + ty][j * BX + tx] = p;
                    grads[i * BY + ty][j * BX + tx] = grad;
                }
            }
            __syncthreads();
            accumulate<OTHER>(acc_a, grads, tile_a);
            if (OF_KEYS) accumulate<OTHER>(acc_b, probs, tile_b);
            __syncthreads();
        }
    }
    const long long zd = SPLIT ? (long long)blockIdx.y * (gridDim.x / tiles) + z : z;
    #pragma unroll
    for (int i = 0; i < OWN_Y; ++i) {
        const int r = row0 + i * BY + ty;
        if (r >= rows) continue;
        #pragma unroll
        for (int j = 0; j < D_X; ++j) {
            const int e = j * BX + tx;
            const long long row = zd * rows + r;
            if (e < width) da[row * width + e] = U(acc_a[i][j] * scale);
            if (OF_KEYS && e < width_v) db[row * width_v + e] = U(acc_b[i][j]);
        }
    }
}
