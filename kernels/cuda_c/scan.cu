// Running sums, products and extrema (inclusive scans) along rows, in segments, and along columns.
//
// A line of the reduction table gives `load` and `combine`. S is the type of an element, A the
// accumulator, START the identity. The generated text stands before this file; alone it is the sum
// of floats.
//
// Versions, which differ in how a block scans a tile of a value per thread:
// 1. HillisSteele: log2(THREADS) steps, in each of which every element adds the one `stride` before
//    it (Hillis and Steele, 1986): short, but n log n combinations
// 2. Blelloch: a tree of sums upward and back down (Blelloch, 1990): 2 n combinations
// 3. Shuffle: a thread scans four elements, each warp the sums of its threads in registers, then
//    all add the sums of the warps before: two barriers
// A block walks its segment of a row tile by tile and carries the total along, from what the
// segments before combine to, which a reduction has found. scan_columns: a thread per column.
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

// Each: what the block's values before a thread's combine to; `total` of all of them.
struct HillisSteele {
    static constexpr int ITEMS = 1;

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
        return tid > 0 ? tile[tid - 1] : A(START);
    }
};

struct Blelloch {
    static constexpr int ITEMS = 1;

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
        return tid > 0 ? tile[tid - 1] : A(START);
    }
};

struct Shuffle {
    static constexpr int ITEMS = 4;

    // The inclusive scan of the first `lanes` lanes' values.
    static __device__ A scan_lanes(A value, int lanes) {
        const int lane = threadIdx.x % 32;
        for (int stride = 1; stride < lanes; stride *= 2) {
            const A before = __shfl_up_sync(FULL_WARP, value, stride);
            if (lane >= stride) value = combine(before, value);
        }
        return value;
    }

    static __device__ A scan(A value, A* tile, A& total) {
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        value = scan_lanes(value, 32);
        if (lane == 31) tile[warp] = value;
        __syncthreads();
        const A warps = scan_lanes(lane < WARPS ? tile[lane] : A(START), WARPS);
        const A before = __shfl_sync(FULL_WARP, warps, warp > 0 ? warp - 1 : 0);
        const A here = __shfl_up_sync(FULL_WARP, value, 1);
        total = __shfl_sync(FULL_WARP, warps, WARPS - 1);
        const A first = warp > 0 ? before : A(START);
        return lane > 0 ? combine(first, here) : first;
    }
};

// Block b scans a segment of a row; before (rows, segments): what segments and those before them
// combine to, which is not looked at in the first one.
template <class Version>
__global__ void scan_rows(const S* x, S* out, const A* before, long long length, long long segment,
                          long long segments) {
    constexpr int ITEMS = Version::ITEMS;
    __shared__ A tile[THREADS];
    const long long row = blockIdx.x / (unsigned)segments, part = blockIdx.x % (unsigned)segments;
    const long long first = part * segment;
    const int size = first + segment < length ? segment : length - first;
    x += row * length + first;
    out += row * length + first;
    const bool packs = aligned16(x) && aligned16(out);
    A carry = part > 0 ? before[blockIdx.x - 1] : A(START), total;
    for (int base = 0; base < size; base += THREADS * ITEMS) {
        const int i = base + threadIdx.x * ITEMS;
        const bool whole = packs && i + ITEMS <= size;
        Pack<S, ITEMS> elements;
        if (whole) elements = *(const Pack<S, ITEMS>*)(x + i);
        A sums[ITEMS];
        #pragma unroll
        for (int k = 0; k < ITEMS; ++k) {
            if (!whole && i + k < size) elements.at[k] = x[i + k];
            const A own = i + k < size ? load(elements.at[k]) : A(START);
            sums[k] = k > 0 ? combine(sums[k > 0 ? k - 1 : 0], own) : own;
        }
        const A earlier = Version::scan(sums[ITEMS - 1], tile, total);
        const A start = combine(carry, earlier);
        #pragma unroll
        for (int k = 0; k < ITEMS; ++k) {
            elements.at[k] = S(combine(start, sums[k]));
            if (!whole && i + k < size) out[i + k] = elements.at[k];
        }
        if (whole) *(Pack<S, ITEMS>*)(out + i) = elements;
        carry = combine(carry, total);
        __syncthreads();
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
