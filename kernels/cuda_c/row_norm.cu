// Layer norm and RMS norm: each row of x (rows, n) by its own statistics, and their gradients.
//
// y = (x - mean) * invstd * weight + bias, invstd = 1 / sqrt(variance + eps); RMS norm (CENTRED
// false) has no mean and no bias. About 8 operations per element forward and 14 backward; at least x
// read and y written once, backward g and x read and dx written, and both read once more for the
// sums over all rows.
//
// 1. online     a block per row: mean and squares in one pass (Welford, 1962); x is read twice
// 2. one_read   the row waits in shared memory: read once; up to IN_SHARED elements
// 3. warp       short rows: a warp per row, elements in registers by 16-byte loads, shuffles
// 4. split      few long rows: several blocks per row leave the mean and squares of their parts; a
//               second launch merges them, and reads x again for the result
//    thread     many rows of a few elements on a CPU: a thread per row. x and y lie in transposed
//               copies, in which the elements that neighbouring threads read are neighbours
// Gradient of x: `split` and `thread` likewise; `block` reads g and x twice, `warp` keeps them in
// registers. Those of weight and bias: a column of threads walks down some of the rows, whose sums
// are added up by a reduction.
#include "common.cuh"

// The result of an element whose distance from the mean is d.
template <class A, bool WEIGHT, bool BIAS, class P>
__device__ __forceinline__ A scaled(A d, A inv, const P* weight, const P* bias, int at) {
    A v = d * inv;
    if (WEIGHT) v *= A(weight[at]);
    if (BIAS) v += A(bias[at]);
    return v;
}

// 1 / sqrt(variance). Squares that overflow give NaN in layer norm: with 0, the row would be zeros,
// which look like a result.
template <class A, bool CENTRED>
__device__ __forceinline__ A inverse_root(A variance) {
    const A inv = A(1) / sqrt_of(variance);
    return CENTRED && inv == A(0) ? inv * A(infinity()) : inv;
}

// A block a row. The threads' means and squares are merged as Chan et al. (1979) do it.
template <class T, class P, class A, bool CENTRED, bool WEIGHT, bool BIAS, int BLOCK>
__global__ void online(const T* __restrict__ x, const P* weight, const P* bias, A* mean, A* invstd,
                       T* __restrict__ y, A eps, int n) {
    __shared__ A partial[32];
    x += blockIdx.x * (long long)n;
    y += blockIdx.x * (long long)n;
    A count = A(0), own = A(0), squares = A(0);
    for (int i = threadIdx.x; i < n; i += BLOCK) {
        const A v = A(x[i]), d = v - own;
        if (CENTRED) {
            count += A(1);
            own += d / count;
        }
        squares += d * (v - own);
    }
    A m = A(0);
    if (CENTRED) {
        m = block_sum<BLOCK>(count * own, partial) / A(n);
        squares += count * (own - m) * (own - m);
    }
    const A inv = inverse_root<A, CENTRED>(block_sum<BLOCK>(squares, partial) / A(n) + eps);
    if (threadIdx.x == 0) {
        if (CENTRED) mean[blockIdx.x] = m;
        invstd[blockIdx.x] = inv;
    }
    for (int i = threadIdx.x; i < n; i += BLOCK) {
        y[i] = T(scaled<A, WEIGHT, BIAS>(A(x[i]) - m, inv, weight, bias, i));
    }
}

template <class T, class P, class A, bool CENTRED, bool WEIGHT, bool BIAS, int BLOCK>
__global__ void one_read(const T* x, const P* weight, const P* bias, A* mean, A* invstd, T* y,
                         A eps, int n) {
    constexpr int IN_SHARED = 4096;
    __shared__ A partial[32];
    __shared__ A values[IN_SHARED];
    x += blockIdx.x * (long long)n;
    y += blockIdx.x * (long long)n;
    A total = A(0);
    for (int i = threadIdx.x; i < n; i += BLOCK) total += values[i] = A(x[i]);
    const A m = CENTRED ? block_sum<BLOCK>(total, partial) / A(n) : A(0);
    total = A(0);
    for (int i = threadIdx.x; i < n; i += BLOCK) total += (values[i] - m) * (values[i] - m);
    const A inv = inverse_root<A, CENTRED>(block_sum<BLOCK>(total, partial) / A(n) + eps);
    if (threadIdx.x == 0) {
        if (CENTRED) mean[blockIdx.x] = m;
        invstd[blockIdx.x] = inv;
    }
    for (int i = threadIdx.x; i < n; i += BLOCK) {
        y[i] = T(scaled<A, WEIGHT, BIAS>(values[i] - m, inv, weight, bias, i));
    }
}

// The elements of a row that a block of `split` takes. Grid (rows * parts,).
struct Span {
    long long row, start;  // the row's number, and where it begins
    int part, first, last;

    __device__ Span(int span, int n, int parts)
        : row(blockIdx.x / parts), start(row * n), part(blockIdx.x % parts), first(part * span),
          last(n - first < span ? n : first + span) {}
};

// Of `span` elements the mean, and the squares of the distances from it.
template <class T, class A, bool CENTRED, int BLOCK>
__global__ void split_sums(const T* x, A* means, A* squares, int span, int n, int parts) {
    __shared__ A partial[32];
    const Span own(span, n, parts);
    A total = A(0);
    for (int i = own.first + threadIdx.x; CENTRED && i < own.last; i += BLOCK) {
        total += A(x[own.start + i]);
    }
    const A m = CENTRED ? block_sum<BLOCK>(total, partial) / A(own.last - own.first) : A(0);
    total = A(0);
    for (int i = own.first + threadIdx.x; i < own.last; i += BLOCK) {
        const A d = A(x[own.start + i]) - m;
        total += d * d;
    }
    total = block_sum<BLOCK>(total, partial);
    if (threadIdx.x == 0) means[blockIdx.x] = m, squares[blockIdx.x] = total;
}

template <class T, class P, class A, bool CENTRED, bool WEIGHT, bool BIAS, int BLOCK>
__global__ void split(const T* __restrict__ x, const P* weight, const P* bias, const A* means,
                      const A* squares, A* mean, A* invstd, T* __restrict__ y, A eps, int span,
                      int n, int parts) {
    __shared__ A partial[32];
    const Span own(span, n, parts);
    means += own.row * parts;
    squares += own.row * parts;
    A total = A(0);
    for (int p = threadIdx.x; CENTRED && p < parts; p += BLOCK) {
        total += means[p] * A(n - p * span < span ? n - p * span : span);
    }
    const A m = CENTRED ? block_sum<BLOCK>(total, partial) / A(n) : A(0);
    total = A(0);
    for (int p = threadIdx.x; p < parts; p += BLOCK) {
        const A d = CENTRED ? means[p] - m : A(0);
        total += squares[p] + d * d * A(n - p * span < span ? n - p * span : span);
    }
    const A inv = inverse_root<A, CENTRED>(block_sum<BLOCK>(total, partial) / A(n) + eps);
    if (threadIdx.x == 0 && own.part == 0) {
        if (CENTRED) mean[own.row] = m;
        invstd[own.row] = inv;
    }
    for (int i = own.first + threadIdx.x; i < own.last; i += BLOCK) {
        const A d = A(x[own.start + i]) - m;
        y[own.start + i] = T(scaled<A, WEIGHT, BIAS>(d, inv, weight, bias, i));
    }
}

// Block (32, rows): HELD elements per lane, n <= 32 * HELD.
template <class T, class P, class A, bool CENTRED, bool WEIGHT, bool BIAS, int HELD>
__global__ void warp(const T* x, const P* weight, const P* bias, A* mean, A* invstd, T* y, A eps,
                     int rows, int n) {
    constexpr int W = pack_of<T>(HELD), PACKS = HELD / W;
    const long long row = blockIdx.x * (long long)blockDim.y + threadIdx.y;
    if (row >= rows) return;
    const bool packs = n % W == 0 && aligned16(x) && aligned16(y);
    A values[PACKS][W], total = A(0);
    load_row<A, PACKS>(values, x + row * n, n, packs, A(0));
    #pragma unroll
    for (int i = 0; i < PACKS; ++i) {
        #pragma unroll
        for (int w = 0; w < W; ++w) total += values[i][w];
    }
    const A m = CENTRED ? warp_sum(total) / A(n) : A(0);
    total = A(0);
    #pragma unroll
    for (int i = 0; i < PACKS; ++i) {
        #pragma unroll
        for (int w = 0; w < W; ++w) {
            const A d = place_of<W>(i, w, packs) < n ? values[i][w] - m : A(0);
            total += d * d;
        }
    }
    const A inv = inverse_root<A, CENTRED>(warp_sum(total) / A(n) + eps);
    if (threadIdx.x == 0) {
        if (CENTRED) mean[row] = m;
        invstd[row] = inv;
    }
    #pragma unroll
    for (int i = 0; i < PACKS; ++i) {
        #pragma unroll
        for (int w = 0; w < W; ++w) {
            const int at = place_of<W>(i, w, packs);
            if (at < n) {
                values[i][w] = scaled<A, WEIGHT, BIAS>(values[i][w] - m, inv, weight, bias, at);
            }
        }
    }
    store_row<A, PACKS>(values, y + row * n, n, packs);
}

// x and y (N, rows).
template <class T, class P, class A, bool CENTRED, bool WEIGHT, bool BIAS, int N>
__global__ void thread(const T* __restrict__ x, const P* weight, const P* bias, A* mean, A* invstd,
                       T* __restrict__ y, A eps, int rows) {
    const long long row = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (row >= rows) return;
    A values[N], total = A(0);
    #pragma unroll
    for (int i = 0; i < N; ++i) total += values[i] = A(x[i * (long long)rows + row]);
    const A m = CENTRED ? total / A(N) : A(0);
    total = A(0);
    #pragma unroll
    for (int i = 0; i < N; ++i) total += (values[i] - m) * (values[i] - m);
    const A inv = inverse_root<A, CENTRED>(total / A(N) + eps);
    if (CENTRED) mean[row] = m;
    invstd[row] = inv;
    #pragma unroll
    for (int i = 0; i < N; ++i) {
        const A v = scaled<A, WEIGHT, BIAS>(values[i] - m, inv, weight, bias, i);
        y[i * (long long)rows + row] = T(v);
    }
}

template <class T, class M, class P, class A, bool CENTRED, bool WEIGHT, int BLOCK>
__global__ void block_backward(const T* __restrict__ g, const T* __restrict__ x, const M* mean,
                               const M* invstd, const P* weight, T* __restrict__ dx, int n) {
    __shared__ A partial[32];
    const long long row = blockIdx.x * (long long)n;
    const A m = CENTRED ? A(mean[blockIdx.x]) : A(0), inv = A(invstd[blockIdx.x]);
    A plain = A(0), product = A(0);
    for (int i = threadIdx.x; i < n; i += BLOCK) {
        const A gv = WEIGHT ? A(g[row + i]) * A(weight[i]) : A(g[row + i]);
        plain += gv;
        product += gv * (A(x[row + i]) - m);
    }
    plain = CENTRED ? block_sum<BLOCK>(plain, partial) / A(n) : A(0);
    product = block_sum<BLOCK>(product, partial) * inv * inv / A(n);
    for (int i = threadIdx.x; i < n; i += BLOCK) {
        const A gv = WEIGHT ? A(g[row + i]) * A(weight[i]) : A(g[row + i]);
        dx[row + i] = T(inv * (gv - plain - (A(x[row + i]) - m) * product));
    }
}

// plain and product (rows, parts): of `span` elements the sums of g * weight, and of that times
// x - mean.
template <class T, class M, class P, class A, bool CENTRED, bool WEIGHT, int BLOCK>
__global__ void split_sums_backward(const T* g, const T* x, const M* mean, const P* weight, A* plain,
                                    A* product, int span, int n, int parts) {
    __shared__ A partial[32];
    const Span own(span, n, parts);
    const A m = CENTRED ? A(mean[own.row]) : A(0);
    A first = A(0), second = A(0);
    for (int i = own.first + threadIdx.x; i < own.last; i += BLOCK) {
        const A gv = WEIGHT ? A(g[own.start + i]) * A(weight[i]) : A(g[own.start + i]);
        first += gv;
        second += gv * (A(x[own.start + i]) - m);
    }
    first = block_sum<BLOCK>(first, partial);
    second = block_sum<BLOCK>(second, partial);
    if (threadIdx.x == 0) plain[blockIdx.x] = first, product[blockIdx.x] = second;
}

template <class T, class M, class P, class A, bool CENTRED, bool WEIGHT, int BLOCK>
__global__ void split_backward(const T* __restrict__ g, const T* __restrict__ x, const M* mean,
                               const M* invstd, const P* weight, const A* plain, const A* product,
                               T* __restrict__ dx, int span, int n, int parts) {
    __shared__ A partial[32];
    const Span own(span, n, parts);
    const A m = CENTRED ? A(mean[own.row]) : A(0), inv = A(invstd[own.row]);
    A less = A(0), slope = A(0);
    for (int p = threadIdx.x; p < parts; p += BLOCK) {
        less += plain[own.row * parts + p];
        slope += product[own.row * parts + p];
    }
    less = CENTRED ? block_sum<BLOCK>(less, partial) / A(n) : A(0);
    slope = block_sum<BLOCK>(slope, partial) * inv * inv / A(n);
    for (int i = own.first + threadIdx.x; i < own.last; i += BLOCK) {
        const long long at = own.start + i;
        const A gv = WEIGHT ? A(g[at]) * A(weight[i]) : A(g[at]);
        dx[at] = T(inv * (gv - less - (A(x[at]) - m) * slope));
    }
}

template <class T, class M, class P, class A, bool CENTRED, bool WEIGHT, int HELD>
__global__ void warp_backward(const T* g, const T* x, const M* mean, const M* invstd,
                              const P* weight, T* dx, int rows, int n) {
    constexpr int W = pack_of<T>(HELD), PACKS = HELD / W;
    const long long row = blockIdx.x * (long long)blockDim.y + threadIdx.y;
    if (row >= rows) return;
    const bool packs = n % W == 0 && aligned16(g) && aligned16(x) && aligned16(dx);
    const A m = CENTRED ? A(mean[row]) : A(0), inv = A(invstd[row]);
    A grads[PACKS][W], xhat[PACKS][W], plain = A(0), product = A(0);
    load_row<A, PACKS>(grads, g + row * n, n, packs, A(0));
    load_row<A, PACKS>(xhat, x + row * n, n, packs, A(0));
    #pragma unroll
    for (int i = 0; i < PACKS; ++i) {
        #pragma unroll
        for (int w = 0; w < W; ++w) {
            const int at = place_of<W>(i, w, packs);
            if (WEIGHT && at < n) grads[i][w] *= A(weight[at]);
            xhat[i][w] = (xhat[i][w] - m) * inv;
            plain += grads[i][w];
            product += grads[i][w] * xhat[i][w];  // g is 0 where the row has ended
        }
    }
    plain = CENTRED ? warp_sum(plain) / A(n) : A(0);
    product = warp_sum(product) / A(n);
    #pragma unroll
    for (int i = 0; i < PACKS; ++i) {
        #pragma unroll
        for (int w = 0; w < W; ++w) {
            grads[i][w] = inv * (grads[i][w] - plain - xhat[i][w] * product);
        }
    }
    store_row<A, PACKS>(grads, dx + row * n, n, packs);
}

// g, x, dx and terms (N, rows): if AFFINE, dweight is the sum of the terms.
template <class T, class M, class P, class A, bool CENTRED, bool WEIGHT, bool AFFINE, int N>
__global__ void thread_backward(const T* __restrict__ g, const T* __restrict__ x, const M* mean,
                                const M* invstd, const P* weight, T* __restrict__ dx, A* terms,
                                int rows) {
    const long long row = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (row >= rows) return;
    const A m = CENTRED ? A(mean[row]) : A(0), inv = A(invstd[row]);
    A grads[N], xhat[N], plain = A(0), product = A(0);
    #pragma unroll
    for (int i = 0; i < N; ++i) {
        const long long at = i * (long long)rows + row;
        grads[i] = A(g[at]);
        xhat[i] = (A(x[at]) - m) * inv;
        if (AFFINE) terms[at] = grads[i] * xhat[i];
        if (WEIGHT) grads[i] *= A(weight[i]);
        plain += grads[i];
        product += grads[i] * xhat[i];
    }
    plain = CENTRED ? plain / A(N) : A(0);
    product /= A(N);
    #pragma unroll
    for (int i = 0; i < N; ++i) {
        dx[i * (long long)rows + row] = T(inv * (grads[i] - plain - xhat[i] * product));
    }
}

// Block (BX, BY), grid (tiles of n, parts): dweight and dbias (parts, n), each of some of the rows.
template <class T, class M, class A, bool CENTRED, int BX, int BY>
__global__ void parameter_sums(const T* g, const T* x, const M* mean, const M* invstd, A* dweight,
                               A* dbias, int rows, int n) {
    __shared__ A weight_part[BY][BX], bias_part[BY][BX];
    const int tx = threadIdx.x, ty = threadIdx.y, c = blockIdx.x * BX + tx;
    const int step = (rows + gridDim.y - 1) / gridDim.y, first = blockIdx.y * step;
    const int last = first + step < rows ? first + step : rows;
    A plain = A(0), product = A(0);
    for (int row = first + ty; c < n && row < last; row += BY) {
        const long long at = row * (long long)n + c;
        const A gv = A(g[at]), xv = CENTRED ? A(x[at]) - A(mean[row]) : A(x[at]);
        plain += gv;
        product += gv * xv * A(invstd[row]);
    }
    weight_part[ty][tx] = product;
    bias_part[ty][tx] = plain;
    __syncthreads();
    if (ty > 0 || c >= n) return;
    for (int i = 1; i < BY; ++i) product += weight_part[i][tx], plain += bias_part[i][tx];
    dweight[blockIdx.y * (long long)n + c] = product;
    if (CENTRED) dbias[blockIdx.y * (long long)n + c] = plain;
}
