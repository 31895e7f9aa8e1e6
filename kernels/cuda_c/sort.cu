// Sorting rows: of each row the elements in order, and their positions.
//
// An element's key is an unsigned integer in the order of the elements: T is the type of an element,
// C the one that it is read as (int, unsigned, float or their 64-bit forms). NaN is the largest, -0
// equals 0, and DESCENDING reverses the order. Of equal keys the one at the smaller position is
// first, so the sort is stable.
//
// Versions:
// 1. sort_bitonic: a launch per step of a bitonic network (Batcher, 1968) on elements and positions
//    in global memory, a thread per pair
// 2. sort_shared: a block sorts a row, all steps of the network in shared memory
// 3. sort_merge: a thread sorts 8 elements in registers; then two runs become one until there is
//    one per row, where each thread finds by a search which elements of both make its own 8 (Green,
//    McColl and Bader, 2012: merge path), so that log2(n / 8) passes through shared memory do
//
// search_sorted: a thread per value searches a row that is sorted; with a TILE the block first copies
// the keys of the row to shared memory, where threads that read all over it do not wait for lines.
#include "common.cuh"

constexpr int ITEMS = 8;

__device__ __forceinline__ unsigned ordered(unsigned x) { return x; }
__device__ __forceinline__ unsigned ordered(int x) { return unsigned(x) ^ 0x80000000u; }
__device__ __forceinline__ unsigned ordered(float x) {
    const unsigned bits = __float_as_uint(x + 0.0f);  // -0 becomes 0
    return x != x ? ~0u : bits ^ (unsigned(int(bits) >> 31) | 0x80000000u);
}
__device__ __forceinline__ unsigned long long ordered(unsigned long long x) { return x; }
__device__ __forceinline__ unsigned long long ordered(long long x) {
    return (unsigned long long)x ^ 0x8000000000000000ull;
}
__device__ __forceinline__ unsigned long long ordered(double x) {
    const long long bits = __double_as_longlong(x + 0.0);
    return x != x ? ~0ull : (unsigned long long)(bits ^ ((bits >> 63) | (long long)(1ull << 63)));
}

// The key of an element of type T that is read as C.
template <class T, class C, bool DESCENDING>
struct Key {
    typedef decltype(ordered(C())) type;
    static __device__ __forceinline__ type of(T x) {
        const type key = ordered(C(x));
        return DESCENDING ? ~key : key;
    }
};

// One step on all pairs (i, i ^ mask) of positions in rows of n, of which the first is the smaller.
// A pair that reaches behind the end of the row has its larger element there already. first: the
// elements are still in x.
template <class T, class C, bool DESCENDING>
__global__ void sort_bitonic(const T* x, T* values, long long* positions, long long size,
                             long long n, long long mask, long long first) {
    typedef Key<T, C, DESCENDING> Order;
    const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i >= size) return;
    const long long place = i % n, other = place ^ mask, j = i - place + other;
    if (other < place) return;
    const T a = first ? x[i] : values[i];
    const long long at_a = first ? place : positions[i];
    if (first) {
        values[i] = a;
        positions[i] = at_a;
    }
    if (other >= n) return;
    const T b = first ? x[j] : values[j];
    const long long at_b = first ? other : positions[j];
    const auto key_a = Order::of(a), key_b = Order::of(b);
    const bool swap = key_b < key_a || (key_b == key_a && at_b < at_a);
    if (swap || first) {
        values[i] = swap ? b : a;
        values[j] = swap ? a : b;
        positions[i] = swap ? at_b : at_a;
        positions[j] = swap ? at_a : at_b;
    }
}

// A block per row of n <= width <= TILE elements, width a power of 2. values and positions (rows,
// stop - start): what is at the places from start to stop of the order.
template <class T, class C, bool DESCENDING, int TILE>
__global__ void sort_shared(const T* x, T* values, long long* positions, long long n,
                            long long width, long long start, long long stop) {
    typedef Key<T, C, DESCENDING> Order;
    typedef typename Order::type K;
    __shared__ K keys[TILE];
    __shared__ unsigned short places[TILE];
    const T* row = x + blockIdx.x * n;
    for (int j = threadIdx.x; j < width; j += blockDim.x) {
        keys[j] = j < n ? Order::of(row[j]) : K(~K(0));
        places[j] = (unsigned short)j;
    }
    for (int size = 2; size <= width; size *= 2) {
        for (int half = size / 2; half > 0; half /= 2) {
            const int mask = half == size / 2 ? size - 1 : half;  // mirrored, then shifted
            __syncthreads();
            for (int p = threadIdx.x; p < width / 2; p += blockDim.x) {
                const int i = 2 * p - (p & (half - 1)), j = i ^ mask;
                const K a = keys[i], b = keys[j];
                const unsigned short at_a = places[i], at_b = places[j];
                if (b < a || (b == a && at_b < at_a)) {
                    keys[i] = b;
                    keys[j] = a;
                    places[i] = at_b;
                    places[j] = at_a;
                }
            }
        }
    }
    __syncthreads();
    const long long out = blockIdx.x * (stop - start) - start;
    for (int j = int(start) + threadIdx.x; j < stop; j += blockDim.x) {
        positions[out + j] = places[j];
        values[out + j] = row[places[j]];
    }
}

// A block per TILE / 2^shift rows of n <= 2^shift elements. values and positions as above.
template <class T, class C, bool DESCENDING, int TILE>
__global__ void __launch_bounds__(TILE / ITEMS)
    sort_merge(const T* x, T* values, long long* positions, long long rows, long long n,
               long long shift, long long start, long long stop) {
    typedef Key<T, C, DESCENDING> Order;
    typedef typename Order::type K;
    constexpr int THREADS = TILE / ITEMS;
    __shared__ Pack<K, ITEMS> key_packs[THREADS];
    __shared__ Pack<unsigned short, ITEMS> place_packs[THREADS];
    K* keys = key_packs[0].at;
    unsigned short* places = place_packs[0].at;
    const int tid = threadIdx.x, mine = tid * ITEMS, width = 1 << shift;
    const int length = int(n), from = int(start), to = int(stop), count = to - from;
    const long long first_row = blockIdx.x * (long long)(TILE >> shift);
    const int own_rows = int(rows - first_row < TILE ? rows - first_row : TILE);
    x += first_row * n;
    values += first_row * count;
    positions += first_row * count;
    for (int j = tid; j < TILE; j += THREADS) {
        const int row = j >> shift, column = j & (width - 1);
        const bool inside = row < own_rows && column < length;
        keys[j] = inside ? Order::of(x[row * length + column]) : K(~K(0));
    }
    __syncthreads();
    Pack<K, ITEMS> key = key_packs[tid];
    Pack<unsigned short, ITEMS> place;
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) place.at[i] = (unsigned short)((mine + i) & (width - 1));
#pragma unroll
    for (int step = 0; step < ITEMS; ++step) {  // neighbours change places: stable
#pragma unroll
        for (int i = step % 2; i + 1 < ITEMS; i += 2) {
            const K a = key.at[i], b = key.at[i + 1];
            const unsigned short at_a = place.at[i], at_b = place.at[i + 1];
            const bool swap = b < a;
            key.at[i] = swap ? b : a;
            key.at[i + 1] = swap ? a : b;
            place.at[i] = swap ? at_b : at_a;
            place.at[i + 1] = swap ? at_a : at_b;
        }
    }
    key_packs[tid] = key;
    place_packs[tid] = place;
    for (int run = ITEMS; run < width; run *= 2) {
        __syncthreads();
        const int skipped = mine & (2 * run - 1);  // elements of the merged run before the own ones
        const bool last = 2 * run == width;
        const bool wanted = skipped < to && !(last && skipped + ITEMS <= from);
        if (wanted) {
            const int begin = mine - skipped, middle = begin + run, end = middle + run;
            int low = skipped > run ? skipped - run : 0;  // how many of them the first run has
            int high = skipped < run ? skipped : run;
            while (low < high) {
                const int half = (low + high) >> 1;
                if (keys[middle + skipped - 1 - half] < keys[begin + half]) {
                    high = half;
                } else {
                    low = half + 1;
                }
            }
            int i = begin + low, j = middle + skipped - low;
            K a = keys[i], b = keys[j & (TILE - 1)];  // behind the last element nothing is used
#pragma unroll
            for (int t = 0; t < ITEMS; ++t) {
                const bool from_first = j >= end || (i < middle && !(b < a));
                const int at = from_first ? i : j;
                key.at[t] = from_first ? a : b;
                place.at[t] = places[at];
                const K next = keys[(at + 1) & (TILE - 1)];
                if (from_first) {
                    a = next;
                    ++i;
                } else {
                    b = next;
                    ++j;
                }
            }
        }
        __syncthreads();
        if (wanted) {
            key_packs[tid] = key;
            place_packs[tid] = place;
        }
    }
    __syncthreads();
    for (int j = tid; j < TILE; j += THREADS) {
        const int row = j >> shift, column = j & (width - 1);
        if (row < own_rows && column >= from && column < to) {
            const int out = row * count + column - from;
            positions[out] = places[j];
            values[out] = x[row * length + places[j]];
        }
    }
}

// A place in a tile, or in a row of any length.
template <bool TILED>
struct Width {
    typedef int type;
};
template <>
struct Width<false> {
    typedef long long type;
};

// sequence (rows, n), values and out (rows, m): before how many elements of its row a value is to be
// inserted; RIGHT: behind equal ones. A block per `span` values of a row; without a TILE, of all rows.
template <class T, class C, bool RIGHT, int TILE>
__global__ void search_sorted(const T* sequence, const T* values, long long* out, long long rows,
                              long long n, long long m, long long span) {
    typedef Key<T, C, false> Order;
    typedef typename Order::type K;
    typedef typename Width<TILE != 0>::type Place;
    __shared__ K keys[TILE ? TILE : 1];
    long long begin = blockIdx.x * span, end = rows * m;
    if (TILE) {
        const unsigned spans = unsigned((m + span - 1) / span);
        const long long row = blockIdx.x / spans;
        for (int j = threadIdx.x; j < n; j += blockDim.x) keys[j] = Order::of(sequence[row * n + j]);
        __syncthreads();
        begin = row * m + blockIdx.x % spans * span;
        end = row * m + m;
    }
    end = begin + span < end ? begin + span : end;
    for (long long i = begin + threadIdx.x; i < end; i += blockDim.x) {
        const K key = Order::of(values[i]);
        const T* own = sequence + (TILE ? 0 : i / m * n);
        Place low = 0, high = Place(n);
        while (low < high) {
            const Place half = (low + high) >> 1;
            const K other = TILE ? keys[half] : Order::of(own[half]);
            if (other < key || (RIGHT && other == key)) {
                low = half + 1;
            } else {
                high = half;
            }
        }
        out[i] = low;
    }
}
