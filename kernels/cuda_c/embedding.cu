// Embedding, gather, scatter and take: copies by index, and their gradients, additions by index.
//
// n elements by index move at least 2 n elements and the index; a gradient adds one read of what it
// adds to. Neighbouring threads read and write neighbours, which an index into rows allows and an
// index into elements does not. Indices were checked before.
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

// `low` in place of numbers outside of low .. high - 1; the first one found is recorded.
template <class I>
__global__ void checked_index(const I* index, I* out, long long* record, long long low,
                              long long high, long long ignore, long long number, long long n) {
    const long long i = self();
    if (i >= n) return;
    const long long value = (long long)index[i];
    const bool fine = (low <= value && value < high) || value == ignore;
    out[i] = fine ? index[i] : I(low);
    if (fine) return;
    if (atomicCAS((unsigned long long*)record, 0ull, (unsigned long long)number) == 0) {
        record[1] = value;
    }
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
