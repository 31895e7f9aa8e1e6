// Running sums (inclusive scans) along rows, in segments, and along columns.
//
// Versions, which differ in how a block scans a tile of THREADS elements:
// 1. scan_hillis_steele: log2(THREADS) steps, in each of which every element adds the one `stride`
//    before it (Hillis and Steele, 1986): short, but n log n additions
// 2. scan_blelloch: a tree of sums upward and back down (Blelloch, 1990): 2 n additions
// 3. scan_shuffle: each warp scans in registers, then all add the sums of the warps before: two
//    barriers
// A block walks its segment of a row tile by tile and carries the sum along; totals (rows, segments)
// receives each segment's sum, which add_offsets spreads. scan_columns: a thread per column.
#include "common.cuh"

constexpr int THREADS = 256, WARPS = THREADS / 32;

struct HillisSteele {  // each: the inclusive scan of the block's values; `total` of all of them
    template <class A>
    static __device__ A scan(A value, A* tile, A& total) {
        const int tid = threadIdx.x;
        tile[tid] = value;
        __syncthreads();
        for (int stride = 1; stride < THREADS; stride *= 2) {
            const A before = tid >= stride ? tile[tid - stride] : A(0);
            __syncthreads();
            tile[tid] += before;
            __syncthreads();
        }
        total = tile[THREADS - 1];
        return tile[tid];
    }
};

struct Blelloch {
    template <class A>
    static __device__ A scan(A value, A* tile, A& total) {
        const int tid = threadIdx.x;
        tile[tid] = value;
        __syncthreads();
        for (int stride = 1; stride < THREADS; stride *= 2) {  // up: a pair's right end: its sum
            const int right = 2 * stride * (tid + 1) - 1;
            if (right < THREADS) tile[right] += tile[right - stride];
            __syncthreads();
        }
        for (int stride = THREADS / 4; stride > 0; stride /= 2) {  // down: to the next pair's middle
            const int middle = 2 * stride * (tid + 1) + stride - 1;
            if (middle < THREADS) tile[middle] += tile[middle - stride];
            __syncthreads();
        }
        total = tile[THREADS - 1];
        return tile[tid];
    }
};

struct Shuffle {
    template <class A>
    static __device__ A scan(A value, A* tile, A& total) {
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        for (int stride = 1; stride < 32; stride *= 2) {
            const A before = __shfl_up_sync(FULL_WARP, value, stride);
            if (lane >= stride) value += before;
        }
        if (lane == 31) tile[warp] = value;
        __syncthreads();
        A before = A(0);
        total = A(0);
        for (int w = 0; w < WARPS; ++w) {
            if (w < warp) before += tile[w];
            total += tile[w];
        }
        return before + value;
    }
};

template <class T, class A, class Version>
__global__ void scan_rows(const T* x, T* out, A* totals, long long length, long long segment,
                          long long segments) {
    __shared__ A tile[THREADS];
    const long long row = blockIdx.x / (unsigned)segments;
    const long long first = blockIdx.x % (unsigned)segments * segment;
    const long long stop = first + segment < length ? first + segment : length;
    const long long last = row * length + stop;
    A carry = A(0), total;
    for (long long base = row * length + first; base < last; base += THREADS) {
        const long long i = base + threadIdx.x;
        const A sum = Version::scan(i < last ? A(x[i]) : A(0), tile, total);
        if (i < last) out[i] = T(carry + sum);
        carry += total;
        __syncthreads();
    }
    if (threadIdx.x == 0) totals[blockIdx.x] = carry;
}

// Adds to each segment the sum of those before.
template <class T, class A>
__global__ void add_offsets(T* out, const A* sums, long long length, long long segment,
                            long long segments) {
    const long long row = blockIdx.x / (unsigned)segments, part = blockIdx.x % (unsigned)segments;
    if (part == 0) return;
    const long long first = part * segment;
    const long long last = first + segment < length ? first + segment : length;
    for (long long i = first + threadIdx.x; i < last; i += blockDim.x) {
        out[row * length + i] = T(A(out[row * length + i]) + sums[blockIdx.x - 1]);
    }
}

// x and out (outer, length, inner), `columns` = outer * inner.
template <class T, class A>
__global__ void scan_columns(const T* x, T* out, long long columns, long long length,
                             long long inner) {
    const long long column = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (column >= columns) return;
    const long long start = column / inner * length * inner + column % inner;
    A total = A(0);
    for (long long k = 0; k < length; ++k) {
        total += A(x[start + k * inner]);
        out[start + k * inner] = T(total);
    }
}
