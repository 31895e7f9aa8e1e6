// Reductions of x, seen as (outer, length, inner), along its middle: the classic ladder, and the
// kernels that the launcher picks from.
//
// A line of the table gives three functions: `load` (the map), `combine` and `finish`. S is the
// type of an element, A the accumulator, R what is stored, START the identity. The generated text
// stands before this file; alone it is the sum of floats.
//
// The ladder (all of x to a value a block, launched again until one is left), after M. Harris,
// "Optimizing parallel reduction in CUDA" (NVIDIA, 2007) and J. Luitjens, "Faster parallel
// reductions on Kepler" (2014):
// 1. interleaved: neighbours first; lanes diverge in every warp
// 2. contiguous_threads: the same pairs, done by the lowest threads; whole warps retire
// 3. sequential: fold halves; no bank conflicts
// 4. first_add: combine two elements while loading
// 5. shuffle: the last warp trades registers
// What ships, many elements per thread:
// 6. block: a block walks its segment of a row; shuffles, one barrier
// 7. warp: one warp per row
// 8. thread: one thread per result
// 9. columns: tiles of neighbouring columns, where inner > 1
#include "common.cuh"

#ifndef MINIGRAD_LINE
typedef float S;
typedef float A;
typedef float R;
#define START 0.0f
__device__ __forceinline__ A load(S x) { return x; }
__device__ __forceinline__ A combine(A a, A b) { return a + b; }
__device__ __forceinline__ R finish(A a, long long n) { return a; }
#endif

constexpr int THREADS = 256;

__global__ void interleaved(const S* x, R* out, long long n, long long count) {
    __shared__ A values[THREADS];
    const int tid = threadIdx.x;
    const long long i = blockIdx.x * (long long)THREADS + tid;
    values[tid] = i < n ? load(x[i]) : A(START);
    __syncthreads();
    for (int stride = 1; stride < THREADS; stride *= 2) {
        if (tid % (2 * stride) == 0) values[tid] = combine(values[tid], values[tid + stride]);
        __syncthreads();
    }
    if (tid == 0) out[blockIdx.x] = finish(values[0], count);
}

__global__ void contiguous_threads(const S* x, R* out, long long n, long long count) {
    __shared__ A values[THREADS];
    const int tid = threadIdx.x;
    const long long i = blockIdx.x * (long long)THREADS + tid;
    values[tid] = i < n ? load(x[i]) : A(START);
    __syncthreads();
    for (int stride = 1; stride < THREADS; stride *= 2) {
        const int at = 2 * stride * tid;
        if (at < THREADS) values[at] = combine(values[at], values[at + stride]);
        __syncthreads();
    }
    if (tid == 0) out[blockIdx.x] = finish(values[0], count);
}

__global__ void sequential(const S* x, R* out, long long n, long long count) {
    __shared__ A values[THREADS];
    const int tid = threadIdx.x;
    const long long i = blockIdx.x * (long long)THREADS + tid;
    values[tid] = i < n ? load(x[i]) : A(START);
    __syncthreads();
    for (int stride = THREADS / 2; stride > 0; stride /= 2) {
        if (tid < stride) values[tid] = combine(values[tid], values[tid + stride]);
        __syncthreads();
    }
    if (tid == 0) out[blockIdx.x] = finish(values[0], count);
}

// The element of this thread and the one THREADS further on.
__device__ __forceinline__ A load_two(const S* x, long long i, long long n) {
    A value = i < n ? load(x[i]) : A(START);
    if (i + THREADS < n) value = combine(value, load(x[i + THREADS]));
    return value;
}

__global__ void first_add(const S* x, R* out, long long n, long long count) {
    __shared__ A values[THREADS];
    const int tid = threadIdx.x;
    values[tid] = load_two(x, blockIdx.x * (2LL * THREADS) + tid, n);
    __syncthreads();
    for (int stride = THREADS / 2; stride > 0; stride /= 2) {
        if (tid < stride) values[tid] = combine(values[tid], values[tid + stride]);
        __syncthreads();
    }
    if (tid == 0) out[blockIdx.x] = finish(values[0], count);
}

// The value that the lane `step` further on has.
template <class V>
__device__ __forceinline__ V shifted(V value, int step) {
    return __shfl_down_sync(FULL_WARP, value, step);
}

// A warp's 32 values into lane 0.
__device__ __forceinline__ A warp_reduce(A value) {
    for (int step = 16; step > 0; step /= 2) value = combine(value, shifted(value, step));
    return value;
}

__global__ void shuffle(const S* x, R* out, long long n, long long count) {
    __shared__ A values[THREADS];
    const int tid = threadIdx.x;
    values[tid] = load_two(x, blockIdx.x * (2LL * THREADS) + tid, n);
    __syncthreads();
    for (int stride = THREADS / 2; stride >= 32; stride /= 2) {
        if (tid < stride) values[tid] = combine(values[tid], values[tid + stride]);
        __syncthreads();
    }
    if (tid < 32) {
        const A value = warp_reduce(values[tid]);
        if (tid == 0) out[blockIdx.x] = finish(value, count);
    }
}

// The elements of N packs, `step` packs apart, as one value; all are loaded before the first is
// looked at, and combined as a tree, whose chains are short.
template <int N, int W>
__device__ __forceinline__ A of_packs(const Pack<S, W>* pack, long long step) {
    Pack<S, W> elements[N];
    A parts[N * W];
    #pragma unroll
    for (int k = 0; k < N; ++k) elements[k] = pack[k * step];
    #pragma unroll
    for (int k = 0; k < N * W; ++k) parts[k] = load(elements[k / W].at[k % W]);
    #pragma unroll
    for (int next = 1; next < N * W; next *= 2) {
        #pragma unroll
        for (int k = 0; k < N * W; k += 2 * next) parts[k] = combine(parts[k], parts[k + next]);
    }
    return parts[0];
}

constexpr int AT_ONCE = 4;  // elements or packs that a thread loads before it looks at them

// `value` combined with x's elements i, i + step, ... before `last`, each `stride` from the next.
__device__ __forceinline__ A walked(A value, const S* x, long long i, long long last,
                                    long long step, long long stride) {
    for (; i + (AT_ONCE - 1) * step < last; i += AT_ONCE * step) {
        const Pack<S, 1>* next = (const Pack<S, 1>*)(x + i * stride);
        value = combine(value, of_packs<AT_ONCE>(next, step * stride));
    }
    for (; i < last; i += step) value = combine(value, load(x[i * stride]));
    return value;
}

// Block b takes a segment of a row: out (rows, segments). Its elements come in packs of 16 bytes,
// where it begins at a multiple of that; the rest one by one.
template <int BLOCK>
__global__ void rows_by_block(const S* x, R* out, long long length, long long segment,
                              long long segments, long long count) {
    __shared__ A partial[BLOCK / 32];
    const long long row = blockIdx.x / (unsigned)segments;
    const long long first = blockIdx.x % (unsigned)segments * segment;
    const long long last = first + segment < length ? first + segment : length;
    const S* start = x + row * length;
    constexpr int W = sizeof(S) < 16 ? 16 / sizeof(S) : 1;
    const int packs = aligned16(start + first) && last > first ? (last - first) / W : 0;
    const Pack<S, W>* pack = (const Pack<S, W>*)(start + first);
    A value = A(START);
    int i = threadIdx.x;
    for (; i < packs - (AT_ONCE - 1) * BLOCK; i += AT_ONCE * BLOCK) {
        value = combine(value, of_packs<AT_ONCE>(pack + i, BLOCK));
    }
    for (; i < packs; i += BLOCK) value = combine(value, of_packs<1>(pack + i, 0));
    for (long long i = first + packs * W + threadIdx.x; i < last; i += BLOCK) {
        value = combine(value, load(start[i]));
    }
    value = warp_reduce(value);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int warp = 1; warp < BLOCK / 32; ++warp) value = combine(value, partial[warp]);
        out[blockIdx.x] = finish(value, count);
    }
}

// Block (32, warps): a warp per row.
__global__ void rows_by_warp(const S* x, R* out, long long rows, long long length,
                             long long count) {
    const long long row = blockIdx.x * (long long)blockDim.y + threadIdx.y;
    if (row >= rows) return;
    const S* start = x + row * length;
    const A value = warp_reduce(walked(A(START), start, threadIdx.x, length, 32, 1));
    if (threadIdx.x == 0) out[row] = finish(value, count);
}

__global__ void by_thread(const S* x, R* out, long long results, long long length, long long inner,
                          long long count) {
    const long long k = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (k >= results) return;
    const S* start = x + (inner == 1 ? k * length : k / inner * length * inner + k % inner);
    A value = A(START);
    for (long long i = 0; i < length; ++i) value = combine(value, load(start[i * inner]));
    out[k] = finish(value, count);
}

// A block of (WIDTH, HEIGHT) threads takes WIDTH neighbouring columns: a row of threads reads a row
// of memory. out (outer, segments, inner); tiles: blocks a segment.
template <int WIDTH, int HEIGHT>
__global__ void columns_by_tile(const S* x, R* out, long long length, long long inner,
                                long long segment, long long segments, long long tiles,
                                long long count) {
    __shared__ A values[HEIGHT][WIDTH];
    const int tx = threadIdx.x, ty = threadIdx.y;
    const long long part = blockIdx.x / (unsigned)tiles;  // outer * segments + segment
    const long long column = blockIdx.x % (unsigned)tiles * WIDTH + tx;
    const long long first = part % segments * segment;
    const long long last = first + segment < length ? first + segment : length;
    const S* start = x + part / segments * length * inner;
    A value = A(START);
    if (column < inner) value = walked(value, start + column, first + ty, last, HEIGHT, inner);
    values[ty][tx] = value;
    __syncthreads();
    for (int stride = HEIGHT / 2; stride > 0; stride /= 2) {
        if (ty < stride) values[ty][tx] = combine(values[ty][tx], values[ty + stride][tx]);
        __syncthreads();
    }
    if (ty == 0 && column < inner) out[part * inner + column] = finish(values[0][tx], count);
}

#ifndef MOMENTS  // from here on, accumulators are numbers
// Whether b beats a; a NaN beats every number, equals do not.
__device__ __forceinline__ bool wins(A a, A b) { return a == a && combine(a, b) != a; }

__global__ void arg_by_thread(const S* x, long long* out, long long results, long long length,
                              long long inner) {
    const long long k = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (k >= results) return;
    const S* start = x + (inner == 1 ? k * length : k / inner * length * inner + k % inner);
    A best = load(start[0]);
    long long at = 0;
    for (long long i = 1; i < length; ++i) {
        const A value = load(start[i * inner]);
        if (wins(best, value)) best = value, at = i;
    }
    out[k] = at;
}

// Block (32, warps): a warp per row. A lane begins with the identity at the place of its first
// element, which no element equal to the identity need replace; lanes without elements are at later
// places, which lose every tie.
__global__ void arg_by_warp(const S* x, long long* out, long long rows, long long length) {
    const long long row = blockIdx.x * (long long)blockDim.y + threadIdx.y;
    if (row >= rows) return;
    const S* start = x + row * length;
    A value = A(START);
    int place = threadIdx.x;
    for (int i = threadIdx.x; i < length; i += 32) {
        const A candidate = load(start[i]);
        if (wins(value, candidate)) value = candidate, place = i;
    }
    #pragma unroll
    for (int step = 16; step > 0; step /= 2) {
        const A other = __shfl_down_sync(FULL_WARP, value, step);
        const int there = __shfl_down_sync(FULL_WARP, place, step);
        if (wins(value, other) || (there < place && !wins(other, value))) {
            value = other, place = there;
        }
    }
    if (threadIdx.x == 0) out[row] = place;
}

// The winners of segments and where they are: best and out (rows, segments). FIRST: x holds
// elements, whose position counts; else partial winners, with `positions`.
template <int BLOCK, bool FIRST>
__global__ void arg_by_block(const S* x, const long long* positions, A* best, long long* out,
                             long long length, long long segment, long long segments) {
    __shared__ A values[BLOCK];
    __shared__ long long places[BLOCK];
    const int tid = threadIdx.x;
    const long long row = blockIdx.x / (unsigned)segments;
    const long long begin = blockIdx.x % (unsigned)segments * segment;
    const long long end = begin + segment < length ? begin + segment : length;
    A value = A(START);
    long long place = -1;
    for (long long i = begin + tid; i < end; i += BLOCK) {
        const A candidate = load(x[row * length + i]);
        if (place < 0 || wins(value, candidate)) {
            value = candidate;
            place = FIRST ? i : positions[row * length + i];
        }
    }
    values[tid] = value;
    places[tid] = place;
    __syncthreads();
    for (int stride = BLOCK / 2; stride > 0; stride /= 2) {
        if (tid < stride) {
            const long long mine = places[tid], other = places[tid + stride];
            const A a = values[tid], b = values[tid + stride];
            const bool tie = !wins(a, b) && !wins(b, a);
            if (other >= 0 && (mine < 0 || wins(a, b) || (tie && other < mine))) {
                values[tid] = b;
                places[tid] = other;
            }
        }
        __syncthreads();
    }
    if (tid == 0) best[blockIdx.x] = values[0], out[blockIdx.x] = places[0];
}
#endif
