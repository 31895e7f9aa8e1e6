// Embedding, gather, scatter and take: copies by index, and their gradients, additions by index.
//
// n elements by index move at least 2 n elements and the index; a gradient adds one read of what it
// adds to. Neighbouring threads read and write neighbours, which an index into rows allows and an
// index into elements does not. Indices were checked before; on a GPU the kernels at the end check
// them, which saves a pass over the index.
//
// Additions by index collide where indices repeat. Versions:
// 1. atomic: a thread per element, collisions settled by atomic additions; the order of equal indices,
//    and so the last bit of a float, depends on timing
// 2. lines: a thread per line along the indexed axis (for an embedding, per column), which adds in
//    order: no two threads meet, and results repeat bit by bit. Slow on a GPU where lines are few.
// 3. split: then several threads share a line; each looks at all its indices, and adds in order to
//    some of the results: the same, bit by bit
// To put elements by index is the same without the addition: `lines` leaves the last of equal
// indices, `elements`, a thread each, any of them.
#include "common.cuh"

__device__ __forceinline__ long long self() {
    return blockIdx.x * (long long)blockDim.x + threadIdx.x;
}

__device__ __forceinline__ void add(float* address, float value) { atomicAdd(address, value); }
__device__ __forceinline__ void add(double* address, double value) { atomicAdd(address, value); }
__device__ __forceinline__ void add(int* address, int value) { atomicAdd(address, value); }
__device__ __forceinline__ void add(unsigned* address, unsigned value) {
    atomicAdd(address, value);
}
__device__ __forceinline__ void add(unsigned long long* address, unsigned long long value) {
    atomicAdd(address, value);
}
__device__ __forceinline__ void add(long long* address, long long value) {  // wraps all the same
    atomicAdd((unsigned long long*)address, (unsigned long long)value);
}

// The first wrong number is recorded (kernels/support/wrong_index.py).
__device__ __forceinline__ void note(long long* record, long long number, long long wrong) {
    if (atomicCAS((unsigned long long*)record, 0ull, (unsigned long long)number) == 0) {
        record[1] = wrong;
    }
}

// `low` in place of numbers outside of low .. high - 1; negative ones count from the end, `high`.
template <class I>
__global__ void checked_index(const I* index, I* out, long long* record, long long low,
                              long long high, long long ignore, long long number, long long n) {
    const long long i = self();
    if (i >= n) return;
    const long long value = (long long)index[i];
    const bool fine = low <= value && value < high;
    const long long used = fine ? value : low;
    out[i] = value == ignore && !fine ? index[i] : I(used < 0 ? used + high : used);
    if (!fine && value != ignore) note(record, number, value);
}

// A block per tile of rows and columns; `tiles` of them side by side.
template <class T, class I>
__global__ void embedding(const T* weight, const I* index, T* out, long long width, long long tiles,
                          long long rows) {
    const long long row = blockIdx.x / tiles * blockDim.y + threadIdx.y;
    const long long j = blockIdx.x % tiles * blockDim.x + threadIdx.x;
    if (row < rows && j < width) out[row * width + j] = weight[index[row] * width + j];
}

template <class T, class I, class A>
__global__ void embedding_backward_atomic(const T* g, const I* index, A* dw, long long width,
                                          long long tiles, long long rows) {
    const long long row = blockIdx.x / tiles * blockDim.y + threadIdx.y;
    const long long j = blockIdx.x % tiles * blockDim.x + threadIdx.x;
    if (row < rows && j < width) add(&dw[index[row] * width + j], A(g[row * width + j]));
}

template <class T, class I, class A>
__global__ void embedding_backward_lines(const T* g, const I* index, A* dw, long long width,
                                         long long tiles, long long rows) {
    const long long column = self();
    if (column >= width) return;
    for (long long row = 0; row < rows; ++row) {
        dw[index[row] * width + column] += A(g[row * width + column]);
    }
}

template <class T, class I, class A>
__global__ void embedding_backward_split(const T* g, const I* index, A* dw, long long width,
                                         long long tiles, long long span, long long rows) {
    const long long column = blockIdx.x % tiles * blockDim.x + threadIdx.x;
    const long long first = blockIdx.x / tiles * span;
    if (column >= width) return;
    for (long long row = 0; row < rows; ++row) {
        const long long at = index[row];
        if (first <= at && at < first + span) dw[at * width + column] += A(g[row * width + column]);
    }
}

// x (outer, size, inner); index and out (outer, length, inner), n elements.
template <class T, class I>
__global__ void gather(const T* x, const I* index, T* out, long long size, long long length,
                       long long inner, long long n) {
    const long long i = self();
    if (i < n) out[i] = x[(i / (length * inner) * size + index[i]) * inner + i % inner];
}

// The same by tiles of rows and columns, so that no element needs a division. out (rows, width), n
// elements; a row of index serves `shared` rows, of which `per` share a part of x, `jump` elements
// further than that before. LAST: the indexed axis is the last one; else the part is (size, width).
template <class T, class I, bool LAST>
__global__ void gather_rows(const T* x, const I* index, T* out, long long width, long long per,
                            long long jump, long long shared, long long tiles, long long n) {
    const long long row = blockIdx.x / tiles * blockDim.y + threadIdx.y;
    const long long j = blockIdx.x % tiles * blockDim.x + threadIdx.x;
    if (row * width >= n || j >= width) return;
    const long long at = index[row / shared * width + j];
    out[row * width + j] = x[row / per * jump + (LAST ? at : at * width + j)];
}

// out (outer, size, inner); src and index (outer, length, inner), n elements.
template <class T, class I, class A>
__global__ void scatter_add_atomic(const T* src, const I* index, A* out, long long size,
                                   long long length, long long inner, long long n) {
    const long long i = self();
    if (i < n) add(&out[(i / (length * inner) * size + index[i]) * inner + i % inner], A(src[i]));
}

template <class T, class I, class A>
__global__ void scatter_add_lines(const T* src, const I* index, A* out, long long size,
                                  long long length, long long inner, long long n) {
    const long long line = self();
    if (line >= n / length) return;
    const long long outer = line / inner, column = line % inner;
    for (long long k = 0; k < length; ++k) {
        const long long i = (outer * length + k) * inner + column;
        out[(outer * size + index[i]) * inner + column] += A(src[i]);
    }
}

template <class T, class I, class A>
__global__ void scatter_add_split(const T* src, const I* index, A* out, long long size,
                                  long long length, long long inner, long long span, long long n) {
    const long long lines = n / length, line = self() % lines, first = self() / lines * span;
    const long long outer = line / inner, column = line % inner;
    if (first >= size) return;
    for (long long k = 0; k < length; ++k) {
        const long long i = (outer * length + k) * inner + column, at = index[i];
        if (first <= at && at < first + span) out[(outer * size + at) * inner + column] += A(src[i]);
    }
}

// out (outer, size, inner); src and index (outer, length, inner), n elements.
template <class T, class I>
__global__ void put_elements(const T* src, const I* index, T* out, long long size, long long length,
                             long long inner, long long n) {
    const long long i = self();
    if (i < n) out[(i / (length * inner) * size + index[i]) * inner + i % inner] = src[i];
}

template <class T, class I>
__global__ void put_lines(const T* src, const I* index, T* out, long long size, long long length,
                          long long inner, long long n) {
    const long long line = self();
    if (line >= n / length) return;
    const long long outer = line / inner, column = line % inner;
    for (long long k = 0; k < length; ++k) {
        const long long i = (outer * length + k) * inner + column;
        out[(outer * size + index[i]) * inner + column] = src[i];
    }
}

// ---- On a GPU: kernels that check the index, which they read once. Numbers from `low` to -1 count
// from the end, `size`; for a wrong one, which is recorded, stands 0. A thread has several elements,
// so that its loads are in flight together. U: unsigned integers that hold all positions, of 32 bits
// where that is enough, as a division of 64 bits takes a hundred instructions.
constexpr int TAKE = 0, PUT = 1, ADD = 2;  // out[i] = in[at[i]], out[at[i]] = in[i], or +=
constexpr int STEP = 256, TIMES = 8;       // threads of a block, elements of a thread

template <class I>
__device__ __forceinline__ long long inside(I given, long long size, long long low,
                                            long long* record, long long number) {
    const long long at = (long long)given;
    if (0 <= at && at < size) return at;
    if (low <= at && at < 0) return at + size;
    note(record, number, at);
    return 0;
}

template <int MODE, class T, class A>
__device__ __forceinline__ void store(A* out, T value) {
    if constexpr (MODE == ADD) {
        add(out, A(value));
    } else {
        *out = value;
    }
}

// `in` and `out`, one (outer, size, inner), the other as the index, (outer, length, inner), of n
// elements. INNER: whether inner is not 1. SHARED: a row of the index serves `shared` rows.
// A block has neighbouring elements, so that what it takes out of a row comes once from memory.
template <int MODE, class T, class A, class I, class U, bool INNER, bool SHARED>
__global__ void along(const T* __restrict__ in, const I* __restrict__ index, A* __restrict__ out,
                      long long* record, long long number, long long low, long long size, U length,
                      U inner, U shared, U n) {
    const U first = blockIdx.x * U(STEP * TIMES) + threadIdx.x;
    I given[TIMES];
    U there[TIMES];
    T value[TIMES];
#pragma unroll
    for (int k = 0; k < TIMES; ++k) {
        const U i = first + k * STEP, line = INNER ? i / inner : i, row = line / length;
        there[k] = INNER ? row * U(size) * inner + (i - line * inner) : row * U(size);
        if (i < n) given[k] = index[SHARED ? row / shared * length + (i - row * length) : i];
    }
#pragma unroll
    for (int k = 0; k < TIMES; ++k) {
        const U at = first + k * STEP < n ? inside(given[k], size, low, record, number) : 0;
        there[k] += INNER ? at * inner : at;
    }
#pragma unroll
    for (int k = 0; k < TIMES; ++k) {
        const U i = first + k * STEP;
        if (i < n) value[k] = in[MODE == TAKE ? there[k] : i];
    }
#pragma unroll
    for (int k = 0; k < TIMES; ++k) {
        const U i = first + k * STEP;
        if (i < n) store<MODE>(out + (MODE == TAKE ? i : there[k]), value[k]);
    }
}

// The same where inner is long. Neighbouring blocks have the same columns: those of the indexed
// side, which lie far apart, stay in the cache while all its rows are asked for.
template <int MODE, class T, class A, class I, class U>
__global__ void across(const T* __restrict__ in, const I* __restrict__ index, A* __restrict__ out,
                       long long* record, long long number, long long low, long long size, U length,
                       U inner, U tiles, U stripes) {
    const U stripe = blockIdx.x / tiles, outer = stripe / stripes;
    const U column = stripe % stripes * blockDim.x + threadIdx.x;
    const U first = blockIdx.x % tiles * (blockDim.y * TIMES) + threadIdx.y;
    if (column >= inner) return;
    in += outer * (MODE == TAKE ? U(size) : length) * inner + column;
    out += outer * (MODE == TAKE ? length : U(size)) * inner + column;
    index += outer * length * inner + column;
    I given[TIMES];
    U there[TIMES];
    T value[TIMES];
#pragma unroll
    for (int k = 0; k < TIMES; ++k) {
        const U row = first + k * blockDim.y;
        if (row < length) given[k] = index[row * inner];
    }
#pragma unroll
    for (int k = 0; k < TIMES; ++k) {
        const U row = first + k * blockDim.y;
        if (row < length) there[k] = U(inside(given[k], size, low, record, number)) * inner;
    }
#pragma unroll
    for (int k = 0; k < TIMES; ++k) {
        const U row = first + k * blockDim.y;
        if (row < length) value[k] = in[MODE == TAKE ? there[k] : row * inner];
    }
#pragma unroll
    for (int k = 0; k < TIMES; ++k) {
        const U row = first + k * blockDim.y;
        if (row < length) store<MODE>(out + (MODE == TAKE ? row * inner : there[k]), value[k]);
    }
}

// Rows of `width` packs of W elements, n packs in all: taken at index, or put or added there (one by
// one).
template <int MODE, class T, class A, class I, class U, int W>
__global__ void rows(const T* __restrict__ in, const I* __restrict__ index, A* __restrict__ out,
                     long long* record, long long number, long long low, long long size, U width,
                     U n) {
    constexpr int PACKS = TIMES / 2;
    const U first = blockIdx.x * U(STEP * PACKS) + threadIdx.x;
    const bool aligned = W > 1 && aligned16(in) && aligned16(out);
    I given[PACKS];
    U there[PACKS];
    Pack<T, W> value[PACKS];
#pragma unroll
    for (int k = 0; k < PACKS; ++k) {
        const U i = first + k * STEP, row = i / width;
        there[k] = i - row * width;
        if (i < n) given[k] = index[row];
    }
#pragma unroll
    for (int k = 0; k < PACKS; ++k) {
        const U i = first + k * STEP;
        if (i < n) there[k] += U(inside(given[k], size, low, record, number)) * width;
    }
    if (aligned) {
#pragma unroll
        for (int k = 0; k < PACKS; ++k) {
            const U i = first + k * STEP, from = MODE == TAKE ? there[k] : i;
            if (i < n) value[k] = ((const Pack<T, W>*)in)[from];
        }
#pragma unroll
        for (int k = 0; k < PACKS; ++k) {
            const U i = first + k * STEP, to = MODE == TAKE ? i : there[k];
            if (i < n) ((Pack<T, W>*)out)[to] = value[k];
        }
        return;
    }
#pragma unroll
    for (int k = 0; k < PACKS; ++k) {
        const U i = first + k * STEP, from = MODE == TAKE ? there[k] : i;
        const U to = MODE == TAKE ? i : there[k];
        if (i >= n) continue;
        for (int w = 0; w < W; ++w) store<MODE>(out + to * W + w, in[from * W + w]);
    }
}
