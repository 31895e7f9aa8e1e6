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
    // The row's maximum, in every thread; `total` becomes the sum of all.
    __device__ A merge(A* partial) {
        const A most = block_max(top, partial);
        if (top > A(-infinity())) total *= exp_of(top - most);
        total = block_sum(total, partial);
        return most;
    }
};

template <class T, class A, bool LOG>
__global__ void three_pass(const T* x, T* y, int n) {
    __shared__ A partial[32];
    x += blockIdx.x * (long long)n;
    y += blockIdx.x * (long long)n;
    A top = A(-infinity());
    for (int i = threadIdx.x; i < n; i += blockDim.x) top = A(x[i]) > top ? A(x[i]) : top;
    top = block_max(top, partial);
    A total = A(0);
    for (int i = threadIdx.x; i < n; i += blockDim.x) total += exp_of(A(x[i]) - top);
    const Result<LOG, A> result(top, block_sum(total, partial));
    for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = T(result.of(A(x[i])));
}

template <class T, class A, bool LOG>
__global__ void online(const T* x, T* y, int n) {
    __shared__ A partial[32];
    x += blockIdx.x * (long long)n;
    y += blockIdx.x * (long long)n;
    Online<A> own;
    for (int i = threadIdx.x; i < n; i += blockDim.x) own.add(A(x[i]));
    const A top = own.merge(partial);
    const Result<LOG, A> result(top, own.total);
    for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = T(result.of(A(x[i])));
}

// The elements of a row that a block of `split` takes, and where the row begins. Grid (rows * parts,).
struct Span {
    long long row;
    int first, last;

    __device__ Span(int span, int n, int parts)
        : row(blockIdx.x / parts * (long long)n), first(blockIdx.x % parts * span),
          last(n - first < span ? n : first + span) {}
};

template <class T, class A>
__global__ void split_sums(const T* x, A* tops, A* totals, int span, int n, int parts) {
    __shared__ A partial[32];
    const Span part(span, n, parts);
    Online<A> own;
    for (int i = part.first + threadIdx.x; i < part.last; i += blockDim.x) own.add(A(x[part.row + i]));
    const A top = own.merge(partial);
    if (threadIdx.x == 0) tops[blockIdx.x] = top, totals[blockIdx.x] = own.total;
}

template <class T, class A, bool LOG>
__global__ void split(const T* x, const A* tops, const A* totals, T* y, int span, int n, int parts) {
    __shared__ A partial[32];
    const Span part(span, n, parts);
    const long long own = (long long)(blockIdx.x / parts) * parts;
    A top = A(-infinity()), total = A(0);
    for (int p = threadIdx.x; p < parts; p += blockDim.x) {
        top = tops[own + p] > top ? tops[own + p] : top;
    }
    top = block_max(top, partial);
    for (int p = threadIdx.x; p < parts; p += blockDim.x) {
        total += totals[own + p] * exp_of(tops[own + p] - top);
    }
    const Result<LOG, A> result(top, block_sum(total, partial));
    for (int i = part.first + threadIdx.x; i < part.last; i += blockDim.x) {
        y[part.row + i] = T(result.of(A(x[part.row + i])));
    }
}

template <class T, class A, bool LOG>
__global__ void one_read(const T* x, T* y, int n) {
    constexpr int IN_SHARED = 4096;
    __shared__ A partial[32];
    __shared__ A values[IN_SHARED];
    x += blockIdx.x * (long long)n;
    y += blockIdx.x * (long long)n;
    A top = A(-infinity());
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        values[i] = A(x[i]);
        top = values[i] > top ? values[i] : top;
    }
    top = block_max(top, partial);
    A total = A(0);
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        const A e = exp_of(values[i] - top);
        if (!LOG) values[i] = e;
        total += e;
    }
    const Result<LOG, A> result(top, block_sum(total, partial));
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        y[i] = T(LOG ? result.of(values[i]) : result.of_exp(values[i]));
    }
}

// Block (32, rows): HELD elements per lane, n <= 32 * HELD.
template <class T, class A, bool LOG, int HELD>
__global__ void warp(const T* x, T* y, int rows, int n) {
    const int lane = threadIdx.x;
    const long long row = blockIdx.x * (long long)blockDim.y + threadIdx.y;
    if (row >= rows) return;
    x += row * n;
    y += row * n;
    A values[HELD], top = A(-infinity());
    #pragma unroll
    for (int i = 0; i < HELD; ++i) {
        const int at = i * 32 + lane;
        values[i] = at < n ? A(x[at]) : A(-infinity());
        top = values[i] > top ? values[i] : top;
    }
    top = warp_max(top);
    A total = A(0);
    #pragma unroll
    for (int i = 0; i < HELD; ++i) {
        const A e = i * 32 + lane < n ? exp_of(values[i] - top) : A(0);
        total += e;
        if (!LOG) values[i] = e;
    }
    const Result<LOG, A> result(top, warp_sum(total));
    #pragma unroll
    for (int i = 0; i < HELD; ++i) {
        const int at = i * 32 + lane;
        if (at < n) y[at] = T(LOG ? result.of(values[i]) : result.of_exp(values[i]));
    }
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

template <class T, class A, bool LOG>
__global__ void block_backward(const T* g, const T* y, T* dx, int n) {
    __shared__ A partial[32];
    const long long row = blockIdx.x * (long long)n;
    A total = A(0);
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        total += share<LOG>(A(g[row + i]), A(y[row + i]));
    }
    total = block_sum(total, partial);
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
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

template <class T, class A, bool LOG>
__global__ void split_sums_backward(const T* g, const T* y, A* sums, int span, int n, int parts) {
    __shared__ A partial[32];
    const Span part(span, n, parts);
    A total = A(0);
    for (int i = part.first + threadIdx.x; i < part.last; i += blockDim.x) {
        total += share<LOG>(A(g[part.row + i]), A(y[part.row + i]));
    }
    total = block_sum(total, partial);
    if (threadIdx.x == 0) sums[blockIdx.x] = total;
}

template <class T, class A, bool LOG>
__global__ void split_backward(const T* g, const T* y, const A* sums, T* dx, int span, int n,
                               int parts) {
    __shared__ A partial[32];
    const Span part(span, n, parts);
    const long long own = (long long)(blockIdx.x / parts) * parts;
    A total = A(0);
    for (int p = threadIdx.x; p < parts; p += blockDim.x) total += sums[own + p];
    total = block_sum(total, partial);
    for (int i = part.first + threadIdx.x; i < part.last; i += blockDim.x) {
        const long long at = part.row + i;
        dx[at] = T(gradient<LOG>(A(g[at]), A(y[at]), total));
    }
}
