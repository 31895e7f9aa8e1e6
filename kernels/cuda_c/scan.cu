// Running sums, products and extrema (inclusive scans) along rows, in segments, and along columns.
//
// A line of the reduction table gives `load` and `combine`. S is the type of an element, A the
// accumulator, START the identity. The generated text stands before this file; alone it is the sum
// of floats.
//
// Versions, which differ in how a block scans a tile of THREADS elements:
// 1. HillisSteele: log2(THREADS) steps, in each of which every element adds the one `stride` before
//    it (Hillis and Steele, 1986): short, but n log n combinations
// 2. Blelloch: a tree of sums upward and back down (Blelloch, 1990): 2 n combinations
// 3. Shuffle: each warp scans in registers, then all add the sums of the warps before: two barriers
// A block walks its segment of a row tile by tile and carries the total along; totals (rows,
// segments) receives what each segment combines to, which add_offsets spreads. scan_columns: a
// thread per column.
//
// Extrema carry two numbers, a value and its place, of which the later one stays where values are
// equal; a NaN beats all that is before it.
#include "common.cuh"

#ifndef MINIGRAD_LINE
typedef float S;
typedef float A;
#define START 0.0f
__device__ __forceinline__ A load(S x) { return x; }
__device__ __forceinline__ A combine(A a, A b) { return a + b; }
#endif

constexpr int THREADS = 256, WARPS = THREADS / 32;

struct HillisSteele {  // each: the inclusive scan of the block's values; `total` of all of them
    static __device__ A scan(A value, A* tile, A& total) {
        const int tid = threadIdx.x;
        tile[tid] = value;
        __syncthreads();
        for (int stride = 1; stride < THREADS; stride *= 2) {
            const A before = tid >= stride ? tile[tid - stride] : A(START);
            __syncthreads();
            tile[tid] = combine(before, tile[tid]);
            __syncthreads();
        }
        total = tile[THREADS - 1];
        return tile[tid];
    }
};

struct Blelloch {
    static __device__ A scan(A value, A* tile, A& total) {
        const int tid = threadIdx.x;
        tile[tid] = value;
        __syncthreads();
        for (int stride = 1; stride < THREADS; stride *= 2) {  // up: a pair's right end: its sum
            const int right = 2 * stride * (tid + 1) - 1;
            if (right < THREADS) tile[right] = combine(tile[right - stride], tile[right]);
            __syncthreads();
        }
        for (int stride = THREADS / 4; stride > 0; stride /= 2) {  // down: to the next pair's middle
            const int middle = 2 * stride * (tid + 1) + stride - 1;
            if (middle < THREADS) tile[middle] = combine(tile[middle - stride], tile[middle]);
            __syncthreads();
        }
        total = tile[THREADS - 1];
        return tile[tid];
    }
};

struct Shuffle {
    static __device__ A scan(A value, A* tile, A& total) {
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        for (int stride = 1; stride < 32; stride *= 2) {
            const A before = __shfl_up_sync(FULL_WARP, value, stride);
            if (lane >= stride) value = combine(before, value);
        }
        if (lane == 31) tile[warp] = value;
        __syncthreads();
        A before = A(START);
        total = A(START);
        for (int w = 0; w < WARPS; ++w) {
            if (w < warp) before = combine(before, tile[w]);
            total = combine(total, tile[w]);
        }
        return combine(before, value);
    }
};

template <class Version>
__global__ void scan_rows(const S* x, S* out, A* totals, long long length, long long segment,
                          long long segments) {
    __shared__ A tile[THREADS];
    const long long row = blockIdx.x / (unsigned)segments;
    const long long first = blockIdx.x % (unsigned)segments * segment;
    const long long stop = first + segment < length ? first + segment : length;
    const long long last = row * length + stop;
    A carry = A(START), total;
    for (long long base = row * length + first; base < last; base += THREADS) {
        const long long i = base + threadIdx.x;
        const A sum = Version::scan(i < last ? load(x[i]) : A(START), tile, total);
        if (i < last) out[i] = S(combine(carry, sum));
        carry = combine(carry, total);
        __syncthreads();
    }
    if (threadIdx.x == 0) totals[blockIdx.x] = carry;
}

// Combines with each segment those before it.
__global__ void add_offsets(S* out, const A* totals, long long length, long long segment,
                            long long segments) {
    const long long row = blockIdx.x / (unsigned)segments, part = blockIdx.x % (unsigned)segments;
    if (part == 0) return;
    const long long first = part * segment;
    const long long last = first + segment < length ? first + segment : length;
    for (long long i = first + threadIdx.x; i < last; i += blockDim.x) {
        S& element = out[row * length + i];
        element = S(combine(totals[blockIdx.x - 1], load(element)));
    }
}

// x and out (outer, length, inner), `columns` = outer * inner.
__global__ void scan_columns(const S* x, S* out, long long columns, long long length,
                             long long inner) {
    const long long column = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (column >= columns) return;
    const long long start = column / inner * length * inner + column % inner;
    A total = A(START);
    for (long long k = 0; k < length; ++k) {
        total = combine(total, load(x[start + k * inner]));
        out[start + k * inner] = S(total);
    }
}

struct Winner {
    A value;
    long long place;
};

// The winner of a and of b, which comes later: a stays if it beats b, and b is no NaN.
__device__ __forceinline__ Winner later(Winner a, Winner b) {
    return b.value != b.value || combine(a.value, b.value) == b.value ? b : a;
}

// FIRST: x holds elements, whose position counts; else the winners of segments, with `positions`.
// best and found (rows, segments) receive the winner of each segment.
template <bool FIRST>
__global__ void scan_extrema(const S* x, const long long* positions, S* values, long long* places,
                             A* best, long long* found, long long length, long long segment,
                             long long segments) {
    __shared__ Winner winners[WARPS];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const long long start = blockIdx.x / (unsigned)segments * length;
    const long long begin = blockIdx.x % (unsigned)segments * segment;
    const long long last = begin + segment < length ? begin + segment : length;
    Winner carry = {A(START), 0};
    for (long long base = begin; base < last; base += THREADS) {
        const long long i = base + threadIdx.x;
        Winner own = {A(START), 0};
        if (i < last) {
            own.value = load(x[start + i]);
            own.place = FIRST ? i : positions[start + i];
        }
        for (int stride = 1; stride < 32; stride *= 2) {
            const Winner before = {__shfl_up_sync(FULL_WARP, own.value, stride),
                                   __shfl_up_sync(FULL_WARP, own.place, stride)};
            if (lane >= stride) own = later(before, own);
        }
        if (lane == 31) winners[warp] = own;
        __syncthreads();
        for (int w = 0; w < WARPS; ++w) {
            if (w == warp) own = later(carry, own);  // so far the winner before this warp
            carry = later(carry, winners[w]);
        }
        if (i < last) {
            values[start + i] = S(own.value);
            places[start + i] = own.place;
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        best[blockIdx.x] = carry.value;
        found[blockIdx.x] = carry.place;
    }
}

// Puts into each segment the winner of those before it, as far as it stays.
__global__ void spread_extrema(S* values, long long* places, const A* best, const long long* found,
                               long long length, long long segment, long long segments) {
    const long long row = blockIdx.x / (unsigned)segments, part = blockIdx.x % (unsigned)segments;
    if (part == 0) return;
    const Winner before = {best[blockIdx.x - 1], found[blockIdx.x - 1]};
    const long long first = row * length + part * segment;
    const long long last = row * length + (part * segment + segment < length ? part * segment + segment : length);
    for (long long i = first + threadIdx.x; i < last; i += blockDim.x) {
        const Winner winner = later(before, {load(values[i]), places[i]});
        values[i] = S(winner.value);
        places[i] = winner.place;
    }
}

// x, values and places (outer, length, inner), `columns` = outer * inner.
__global__ void scan_extrema_columns(const S* x, S* values, long long* places, long long columns,
                                     long long length, long long inner) {
    const long long column = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (column >= columns) return;
    const long long start = column / inner * length * inner + column % inner;
    Winner winner = {A(START), 0};
    for (long long k = 0; k < length; ++k) {
        const long long i = start + k * inner;
        winner = later(winner, {load(x[i]), k});
        values[i] = S(winner.value);
        places[i] = winner.place;
    }
}
