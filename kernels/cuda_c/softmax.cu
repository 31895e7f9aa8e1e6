// Softmax and log-softmax of rows, with their gradients. LOG: the logarithm.
//
// About 4 operations and one exp per element; at least x read and y written once.
// 1. three_pass   a block per row: maximum, sum of exp(x - max), result; the row is read three times
// 2. online       maximum and sum in one pass (Milakov and Gimelshein, 2018): read twice
// 3. one_read     the row waits in shared memory: read once; up to IN_SHARED elements
// 4. warp         short rows: a warp per row, elements in registers, shuffles instead of barriers
// 5. strided      other axes: a thread per row, neighbours along `inner`
// 6. split        few long rows: several blocks per row leave the maximum and the sum of their parts;
//                 a second launch merges them, and reads the row again for the result
// Gradients, y (g - sum(g y)), for the logarithm g - exp(y) sum(g): block, warp, strided and split.
//
// A row of all -inf, or with a NaN or +inf, becomes NaN, as in torch.
#include "common.cuh"

template <bool LOG, class A>
struct Result {  // of an element, once the row's maximum and sum are known
    const A top, part;

    __device__ Result(A top, A total) : top(top), part(LOG ? log_of(total) : A(1) / total) {}
    __device__ A of(A x) const { return LOG ? (x - top) - part : exp_of(x - top) * part; }
    __device__ A of_exp(A e) const { return e * part; }
};

// What a thread has seen of a row; it rescales its sum when its maximum grows.
template <class A>
struct Online {
    A top = A(-infinity()), total = A(0);

    __device__ void add(A v) {
        if (v > top) {
            total = total * exp_of(top - v) + A(1);
            top = v;
        } else if (v != A(-infinity())) {
            total += exp_of(v - top);
        }
    }
    // Of the elements from `first` to before `last` those BLOCK apart. Several at a time are loaded
    // before any is looked at, and rescale the sum once.
    template <int BLOCK, class T>
    __device__ void walk(const T* x, int first, int last) {
        constexpr int AT_ONCE = 8;
        int i = first;
        for (; i < last - (AT_ONCE - 1) * BLOCK; i += AT_ONCE * BLOCK) {
            A values[AT_ONCE], most = top;
            #pragma unroll
            for (int k = 0; k < AT_ONCE; ++k) values[k] = A(x[i + k * BLOCK]);
            #pragma unroll
            for (int k = 0; k < AT_ONCE; ++k) most = values[k] > most ? values[k] : most;
            if (most > top) total *= exp_of(top - most);
            top = most;
            #pragma unroll
            for (int k = 0; k < AT_ONCE; ++k) {
                const A share = exp_of(values[k] - top);
                total += values[k] == A(-infinity()) ? A(0) : share;
            }
        }
        for (; i < last; i += BLOCK) add(A(x[i]));
    }
    // The row's maximum, in every thread of BLOCK; `total` becomes the sum of all.
    template <int BLOCK>
    __device__ A merge(A* partial) {
        const A most = block_max<BLOCK>(top, partial);
        if (top > A(-infinity())) total *= exp_of(top - most);
        total = block_sum<BLOCK>(total, partial);
        return most;
    }
};

template <class T, class A, bool LOG, int BLOCK>
__global__ void three_pass(const T* __restrict__ x, T* __restrict__ y, int n) {
    __shared__ A partial[32];
    x += blockIdx.x * (long long)n;
    y += blockIdx.x * (long long)n;
    A top = A(-infinity());
    for (int i = threadIdx.x; i < n; i += BLOCK) top = A(x[i]) > top ? A(x[i]) : top;
    top = block_max<BLOCK>(top, partial);
    A total = A(0);
    for (int i = threadIdx.x; i < n; i += BLOCK) total += exp_of(A(x[i]) - top);
    const Result<LOG, A> result(top, block_sum<BLOCK>(total, partial));
    for (int i = threadIdx.x; i < n; i += BLOCK) y[i] = T(result.of(A(x[i])));
}

template <class T, class A, bool LOG, int BLOCK>
__global__ void online(const T* __restrict__ x, T* __restrict__ y, int n) {
    __shared__ A partial[32];
    x += blockIdx.x * (long long)n;
    y += blockIdx.x * (long long)n;
    Online<A> own;
    own.template walk<BLOCK>(x, threadIdx.x, n);
    const A top = own.template merge<BLOCK>(partial);
    const Result<LOG, A> result(top, own.total);
    for (int i = threadIdx.x; i < n; i += BLOCK) y[i] = T(result.of(A(x[i])));
}

// The elements of a row that a block of `split` takes, and where the row begins. Grid (rows * parts,).
struct Span {
    long long row;
    int first, last;

    __device__ Span(int span, int n, int parts)
        : row(blockIdx.x / parts * (long long)n), first(blockIdx.x % parts * span),
          last(n - first < span ? n : first + span) {}
};

template <class T, class A, int BLOCK>
__global__ void split_sums(const T* x, A* tops, A* totals, int span, int n, int parts) {
    __shared__ A partial[32];
    const Span part(span, n, parts);
    Online<A> own;
    own.template walk<BLOCK>(x + part.row, part.first + threadIdx.x, part.last);
    const A top = own.template merge<BLOCK>(partial);
    if (threadIdx.x == 0) tops[blockIdx.x] = top, totals[blockIdx.x] = own.total;
}

template <class T, class A, bool LOG, int BLOCK>
__global__ void split(const T* __restrict__ x, const A* tops, const A* totals, T* __restrict__ y,
                      int span, int n, int parts) {
    __shared__ A partial[32];
    const Span part(span, n, parts);
    const long long own = (long long)(blockIdx.x / parts) * parts;
    A top = A(-infinity()), total = A(0);
    for (int p = threadIdx.x; p < parts; p += BLOCK) {
        top = tops[own + p] > top ? tops[own + p] : top;
    }
    top = block_max<BLOCK>(top, partial);
    for (int p = threadIdx.x; p < parts; p += BLOCK) {
        total += totals[own + p] * exp_of(tops[own + p] - top);
    }
    const Result<LOG, A> result(top, block_sum<BLOCK>(total, partial));
    for (int i = part.first + threadIdx.x; i < part.last; i += BLOCK) {
        y[part.row + i] = T(result.of(A(x[part.row + i])));
    }
}

template <class T, class A, bool LOG, int BLOCK>
__global__ void one_read(const T* x, T* y, int n) {
    constexpr int IN_SHARED = 4096;
    __shared__ A partial[32];
    __shared__ A values[IN_SHARED];
    x += blockIdx.x * (long long)n;
    y += blockIdx.x * (long long)n;
    A top = A(-infinity());
    for (int i = threadIdx.x; i < n; i += BLOCK) {
        values[i] = A(x[i]);
        top = values[i] > top ? values[i] : top;
    }
    top = block_max<BLOCK>(top, partial);
    A total = A(0);
    for (int i = threadIdx.x; i < n; i += BLOCK) {
        const A e = exp_of(values[i] - top);
        if (!LOG) values[i] = e;
        total += e;
    }
    const Result<LOG, A> result(top, block_sum<BLOCK>(total, partial));
    for (int i = threadIdx.x; i < n; i += BLOCK) {
        y[i] = T(LOG ? result.of(values[i]) : result.of_exp(values[i]));
    }
}

// Block (32, rows): HELD elements per lane, n <= 32 * HELD.
template <class T, class A, bool LOG, int HELD>
__global__ void warp(const T* x, T* y, int rows, int n) {
    constexpr int W = pack_of<T>(HELD), PACKS = HELD / W;
    const long long row = blockIdx.x * (long long)blockDim.y + threadIdx.y;
    if (row >= rows) return;
    const bool packs = n % W == 0 && aligned16(x) && aligned16(y);
    A values[PACKS][W], top = A(-infinity()), total = A(0);
    load_row<A, PACKS>(values, x + row * n, n, packs, A(-infinity()));
    #pragma unroll
    for (int i = 0; i < PACKS * W; ++i) {
        const A v = values[i / W][i % W];
        top = v > top ? v : top;
    }
    top = warp_max(top);
    #pragma unroll
    for (int i = 0; i < PACKS * W; ++i) {
        A& v = values[i / W][i % W];
        const A e = exp_of(v - top);
        total += e;
        if (!LOG) v = e;
    }
    const Result<LOG, A> result(top, warp_sum(total));
    #pragma unroll
    for (int i = 0; i < PACKS * W; ++i) {
        A& v = values[i / W][i % W];
        v = LOG ? result.of(v) : result.of_exp(v);
    }
    store_row<A, PACKS>(values, y + row * n, n, packs);
}

// x and y (outer, n, inner), grid (outer, tiles of inner).
template <class T, class A, bool LOG>
__global__ void strided(const T* x, T* y, int n, long long inner) {
    const long long c = blockIdx.y * (long long)blockDim.x + threadIdx.x;
    if (c >= inner) return;
    x += blockIdx.x * n * inner + c;
    y += blockIdx.x * n * inner + c;
    A top = A(-infinity()), total = A(0);
    for (int i = 0; i < n; ++i) top = A(x[i * inner]) > top ? A(x[i * inner]) : top;
    for (int i = 0; i < n; ++i) total += exp_of(A(x[i * inner]) - top);
    const Result<LOG, A> result(top, total);
    for (int i = 0; i < n; ++i) y[i * inner] = T(result.of(A(x[i * inner])));
}

// What an element adds to the row's sum, and its gradient.
template <bool LOG, class A>
__device__ __forceinline__ A share(A g, A y) { return LOG ? g : g * y; }

template <bool LOG, class A>
__device__ __forceinline__ A gradient(A g, A y, A total) {
    return LOG ? g - exp_of(y) * total : y * (g - total);
}

template <class T, class A, bool LOG, int BLOCK>
__global__ void block_backward(const T* __restrict__ g, const T* __restrict__ y,
                               T* __restrict__ dx, int n) {
    __shared__ A partial[32];
    const long long row = blockIdx.x * (long long)n;
    A total = A(0);
    for (int i = threadIdx.x; i < n; i += BLOCK) {
        total += share<LOG>(A(g[row + i]), A(y[row + i]));
    }
    total = block_sum<BLOCK>(total, partial);
    for (int i = threadIdx.x; i < n; i += BLOCK) {
        dx[row + i] = T(gradient<LOG>(A(g[row + i]), A(y[row + i]), total));
    }
}

template <class T, class A, bool LOG>
__global__ void warp_backward(const T* g, const T* y, T* dx, int rows, int n) {
    const long long r = blockIdx.x * (long long)blockDim.y + threadIdx.y, row = r * n;
    if (r >= rows) return;
    A total = A(0);
    for (int i = threadIdx.x; i < n; i += 32) {
        total += share<LOG>(A(g[row + i]), A(y[row + i]));
    }
    total = warp_sum(total);
    for (int i = threadIdx.x; i < n; i += 32) {
        dx[row + i] = T(gradient<LOG>(A(g[row + i]), A(y[row + i]), total));
    }
}

template <class T, class A, bool LOG>
__global__ void strided_backward(const T* g, const T* y, T* dx, int n, long long inner) {
    const long long c = blockIdx.y * (long long)blockDim.x + threadIdx.x;
    if (c >= inner) return;
    const long long start = blockIdx.x * n * inner + c;
    A total = A(0);
    for (int i = 0; i < n; ++i) {
        total += share<LOG>(A(g[start + i * inner]), A(y[start + i * inner]));
    }
    for (int i = 0; i < n; ++i) {
        const long long at = start + i * inner;
        dx[at] = T(gradient<LOG>(A(g[at]), A(y[at]), total));
    }
}

template <class T, class A, bool LOG, int BLOCK>
__global__ void split_sums_backward(const T* g, const T* y, A* sums, int span, int n, int parts) {
    __shared__ A partial[32];
    const Span part(span, n, parts);
    A total = A(0);
    for (int i = part.first + threadIdx.x; i < part.last; i += BLOCK) {
        total += share<LOG>(A(g[part.row + i]), A(y[part.row + i]));
    }
    total = block_sum<BLOCK>(total, partial);
    if (threadIdx.x == 0) sums[blockIdx.x] = total;
}

template <class T, class A, bool LOG, int BLOCK>
__global__ void split_backward(const T* __restrict__ g, const T* __restrict__ y, const A* sums,
                               T* __restrict__ dx, int span, int n, int parts) {
    __shared__ A partial[32];
    const Span part(span, n, parts);
    const long long own = (long long)(blockIdx.x / parts) * parts;
    A total = A(0);
    for (int p = threadIdx.x; p < parts; p += BLOCK) total += sums[own + p];
    total = block_sum<BLOCK>(total, partial);
    for (int i = part.first + threadIdx.x; i < part.last; i += BLOCK) {
        const long long at = part.row + i;
        dx[at] = T(gradient<LOG>(A(g[at]), A(y[at]), total));
    }
}
