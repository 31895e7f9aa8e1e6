// Copies: x (batch, rows, columns) to out (batch, columns, rows), and a part of a concatenation.
//
// 1. transpose_naive: reads rows and writes columns; every write is a transaction of its own
// 2. transpose_tile<TILE>: a tile passes through shared memory, so that reads and writes both run
//    along rows; but the 32 threads that read a column of the tile all hit one bank
// 3. transpose_tile<TILE + 1>, "padded": one more column puts a column into 32 different banks
// few_rows, few_columns: a thread moves one element of each of the COUNT rows or columns; constants,
//    so that a compiler for the CPU makes packs of what neighbouring threads move
// concat_rows: a block copies a tile of a part into its columns of the result.
// pad_sides: a thread adds the two borders of a row that has its place for them.
//
// On a GPU (the plans: kernels/launchers/copies.py):
// copy_strided: any strides on both sides; a thread moves U packs of W elements, all loaded first
// copy_tiled: the same where the two sides' neighbours lie along different dimensions
// concat_parts: up to four parts, in the order of the result
// pad: with a border of a value, or of elements of its own
// triangle: reads what it keeps
#include "common.cuh"

constexpr int TILE = 32, ROWS = 8;  // a block is TILE x ROWS threads

template <class T>
__global__ void transpose_naive(const T* x, T* out, long long rows, long long columns) {
    const long long column = blockIdx.x * (long long)TILE + threadIdx.x;
    const long long start = blockIdx.z * rows * columns;
    const long long first = blockIdx.y * (long long)TILE;
    if (column >= columns) return;
    for (long long row = first + threadIdx.y; row < first + TILE && row < rows; row += ROWS) {
        out[start + column * rows + row] = x[start + row * columns + column];
    }
}

template <class T, int WIDTH>
__global__ void transpose_tile(const T* x, T* out, long long rows, long long columns) {
    __shared__ T tile[TILE][WIDTH];
    const int tx = threadIdx.x;
    const long long row0 = blockIdx.y * (long long)TILE, column0 = blockIdx.x * (long long)TILE;
    const long long start = blockIdx.z * rows * columns;
    for (int k = threadIdx.y; k < TILE; k += ROWS) {
        if (row0 + k < rows && column0 + tx < columns) {
            tile[k][tx] = x[start + (row0 + k) * columns + column0 + tx];
        }
    }
    __syncthreads();
    for (int k = threadIdx.y; k < TILE; k += ROWS) {
        if (column0 + k < columns && row0 + tx < rows) {
            out[start + (column0 + k) * rows + row0 + tx] = tile[tx][k];
        }
    }
}

// x (batch, phases, COUNT, times, length) to out (batch, times, phases, length, COUNT).
template <class T, int COUNT>
__global__ void few_rows(const T* x, T* out, long long lines, long long length, long long times,
                         long long phases) {
    const long long line = blockIdx.x * (long long)blockDim.y + threadIdx.y;
    if (line >= lines) return;
    const long long phase = line % phases, time = line / phases % times;
    x += ((line / (phases * times) * phases + phase) * COUNT * times + time) * length;
    out += line * length * COUNT;
    for (long long i = threadIdx.x; i < length; i += blockDim.x) {
        for (int row = 0; row < COUNT; ++row) out[i * COUNT + row] = x[row * times * length + i];
    }
}

// x (lines, length, COUNT) to out (lines, COUNT, length).
template <class T, int COUNT>
__global__ void few_columns(const T* x, T* out, long long lines, long long length) {
    const long long line = blockIdx.x * (long long)blockDim.y + threadIdx.y;
    if (line >= lines) return;
    x += line * length * COUNT;
    out += line * length * COUNT;
    for (long long i = threadIdx.x; i < length; i += blockDim.x) {
        for (int column = 0; column < COUNT; ++column) {
            out[column * length + i] = x[i * COUNT + column];
        }
    }
}

// x (rows, width) into the columns of out (rows, total) that begin at `start`.
template <class T>
__global__ void concat_rows(const T* x, T* out, long long rows, long long width, long long total,
                            long long start) {
    const long long tiles = (width + blockDim.x - 1) / blockDim.x;
    const long long row = blockIdx.x / tiles * blockDim.y + threadIdx.y;
    const long long j = blockIdx.x % tiles * blockDim.x + threadIdx.x;
    if (row < rows && j < width) out[row * total + start + j] = x[row * width + j];
}

// The first and the last elements of each row of out (rows, width) from others of it: `left` or
// `right`, and so on by `step`.
template <class T>
__global__ void pad_sides(T* out, long long rows, long long width, long long before,
                          long long after, long long step, long long left, long long right) {
    const long long row = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (row >= rows) return;
    out += row * width;
    for (long long j = 0; j < before; ++j) out[j] = out[left + step * j];
    for (long long j = 0; j < after; ++j) out[width - after + j] = out[right + step * j];
}

// A division by a number that the host knows, for n below 2^31: a product and a shift.
struct Divisor {
    unsigned by, factor, shift;
    __device__ __forceinline__ unsigned quotient(unsigned n) const {
        return (__umulhi(n, factor) + n) >> shift;
    }
};

struct Dimension {
    Divisor size;
    int from, to;  // strides in elements
};

struct Layout {
    unsigned count;  // the product of the sizes
    int from, to;    // where the first elements lie
    int rows, columns;
    Dimension at[6];  // the outermost first
};

// Where item `i` of a layout of N dimensions lies.
template <int N>
__device__ __forceinline__ void locate(const Layout& s, unsigned i, int& from, int& to) {
    from = s.from, to = s.to;
    #pragma unroll
    for (int d = N - 1; d > 0; --d) {
        const unsigned rest = s.at[d].size.quotient(i);
        const int place = i - rest * s.at[d].size.by;
        from += place * s.at[d].from, to += place * s.at[d].to;
        i = rest;
    }
    from += (int)i * s.at[0].from, to += (int)i * s.at[0].to;
}

template <class T, int W>
__device__ __forceinline__ bool packed(const T* address) {
    return ((size_t)address & (sizeof(T) * W - 1)) == 0;
}

template <class T, int W>
__device__ __forceinline__ Pack<T, W> load(const T* from, bool whole) {
    if (whole) return *(const Pack<T, W>*)from;
    Pack<T, W> pack;
    #pragma unroll
    for (int w = 0; w < W; ++w) pack.at[w] = from[w];
    return pack;
}

template <class T, int W>
__device__ __forceinline__ void store(T* to, Pack<T, W> pack, bool whole) {
    if (whole) {
        *(Pack<T, W>*)to = pack;
        return;
    }
    #pragma unroll
    for (int w = 0; w < W; ++w) to[w] = pack.at[w];
}

// The innermost dimension counts packs, whose elements are neighbours on both sides.
template <class T, int W, int U, int N>
__global__ void copy_strided(const T* x, T* out, Layout s) {
    const bool whole = W == 1 || (packed<T, W>(x) && packed<T, W>(out));
    const unsigned first = blockIdx.x * (blockDim.x * U) + threadIdx.x;
    int from, to[U];
    Pack<T, W> pack[U];
    #pragma unroll
    for (int u = 0; u < U; ++u) {
        const unsigned i = first + u * blockDim.x;
        locate<N>(s, i, from, to[u]);
        if (i < s.count) pack[u] = load<T, W>(x + from, whole);
    }
    #pragma unroll
    for (int u = 0; u < U; ++u) {
        if (first + u * blockDim.x < s.count) store<T, W>(out + to[u], pack[u], whole);
    }
}

// The last dimension counts tiles along `columns`, neighbours in out, the one before along `rows`,
// neighbours in x; their strides are of elements.
template <class T, int N>
__global__ void copy_tiled(const T* x, T* out, Layout s) {
    __shared__ T tile[TILE][TILE + 1];
    const unsigned across = s.at[N - 1].size.quotient(blockIdx.x);
    const unsigned others = s.at[N - 2].size.quotient(across);
    const int column0 = (blockIdx.x - across * s.at[N - 1].size.by) * TILE;
    const int row0 = (across - others * s.at[N - 2].size.by) * TILE;
    const Dimension &row = s.at[N - 2], &column = s.at[N - 1];
    int from = s.from, to = s.to;
    if (N > 2) locate<(N > 2 ? N - 2 : 1)>(s, others, from, to);
    const int tx = threadIdx.x;
    #pragma unroll
    for (int k = threadIdx.y; k < TILE; k += ROWS) {
        if (column0 + k < s.columns && row0 + tx < s.rows) {
            tile[k][tx] = x[from + (column0 + k) * column.from + (row0 + tx) * row.from];
        }
    }
    __syncthreads();
    #pragma unroll
    for (int k = threadIdx.y; k < TILE; k += ROWS) {
        if (row0 + k < s.rows && column0 + tx < s.columns) {
            out[to + (row0 + k) * row.to + (column0 + tx) * column.to] = tile[tx][k];
        }
    }
}

// Parts of a concatenation, in packs: row i of part p, `width` packs, goes to columns of row i of
// the result, which has `total` packs. An absent part begins where the columns end.
struct Joined {
    unsigned count, begin1, begin2, begin3, total, start;
    Divisor columns;  // of all the parts
};

template <class T, int W, int U>
__global__ void concat_parts(const T* a, const T* b, const T* c, const T* d, T* out, Joined s) {
    const bool whole = W == 1 || (packed<T, W>(a) && packed<T, W>(b) && packed<T, W>(c) &&
                                  packed<T, W>(d) && packed<T, W>(out));
    const unsigned first = blockIdx.x * (blockDim.x * U) + threadIdx.x;
    unsigned to[U];
    Pack<T, W> pack[U];
    #pragma unroll
    for (int u = 0; u < U; ++u) {
        const unsigned i = first + u * blockDim.x, row = s.columns.quotient(i);
        const unsigned j = i - row * s.columns.by;
        const int part = (j >= s.begin1) + (j >= s.begin2) + (j >= s.begin3);
        const T* x = part < 2 ? (part ? b : a) : part < 3 ? c : d;
        const unsigned begin = part < 2 ? (part ? s.begin1 : 0) : part < 3 ? s.begin2 : s.begin3;
        const unsigned end = part < 1 ? s.begin1 : part < 2 ? s.begin2
                           : part < 3 ? s.begin3 : s.columns.by;
        to[u] = row * s.total + s.start + j;
        if (i < s.count) pack[u] = load<T, W>(x + (row * (end - begin) + j - begin) * W, whole);
    }
    #pragma unroll
    for (int u = 0; u < U; ++u) {
        if (first + u * blockDim.x < s.count) store<T, W>(out + to[u] * W, pack[u], whole);
    }
}

struct Side {  // a dimension of the result: of x it has `length` elements from `before` on
    Divisor size;
    int from, before, length;
};

struct Bordered {
    unsigned count;
    Side at[6];
};

enum Border { VALUE, REFLECT, REPLICATE, CIRCULAR };

// Where in x a position of the result lies, or with VALUE whether it does.
template <int MODE>
__device__ __forceinline__ bool inside(int& place, int length) {
    if (MODE == VALUE) return place >= 0 && place < length;
    const bool before = place < 0, after = place >= length;
    if (MODE == REFLECT) place = before ? -place : after ? 2 * (length - 1) - place : place;
    if (MODE == REPLICATE) place = before ? 0 : after ? length - 1 : place;
    if (MODE == CIRCULAR) place += before ? length : after ? -length : 0;
    return true;
}

// The innermost dimension counts packs, where it has no border.
template <class T, class A, int W, int U, int N, int MODE>
__global__ void pad(const T* x, T* out, A value, Bordered s) {
    const bool whole = W == 1 || (packed<T, W>(x) && packed<T, W>(out));
    const unsigned first = blockIdx.x * (blockDim.x * U) + threadIdx.x;
    Pack<T, W> pack[U];
    #pragma unroll
    for (int u = 0; u < U; ++u) {
        unsigned rest = first + u * blockDim.x;
        const bool real = rest < s.count;
        bool has = true;
        int from = 0;
        #pragma unroll
        for (int d = N - 1; d >= 0; --d) {
            const unsigned outer = d > 0 ? s.at[d].size.quotient(rest) : 0;
            int place = (int)(rest - outer * s.at[d].size.by) - s.at[d].before;
            has &= inside<MODE>(place, s.at[d].length);
            from += place * s.at[d].from;
            rest = outer;
        }
        #pragma unroll
        for (int w = 0; w < W; ++w) pack[u].at[w] = T(value);
        if (real && has) pack[u] = load<T, W>(x + from, whole);
    }
    #pragma unroll
    for (int u = 0; u < U; ++u) {
        const unsigned i = first + u * blockDim.x;
        if (i < s.count) store<T, W>(out + i * W, pack[u], whole);
    }
}

struct Triangular {
    unsigned count;
    Divisor packs, rows;  // of a row, of a matrix
    int diagonal;
};

// x (matrices, rows, columns) where j - i <= diagonal (LOWER) or >= diagonal, zeros elsewhere.
template <class T, int W, int U, int LOWER>
__global__ void triangle(const T* x, T* out, Triangular s) {
    const bool whole = W == 1 || (packed<T, W>(x) && packed<T, W>(out));
    const unsigned first = blockIdx.x * (blockDim.x * U) + threadIdx.x;
    Pack<T, W> pack[U];
    int off[U];  // of a pack's first element, from the diagonal to the right
    #pragma unroll
    for (int u = 0; u < U; ++u) {
        const unsigned i = first + u * blockDim.x, row = s.packs.quotient(i);
        const int line = row - s.rows.quotient(row) * s.rows.by;
        off[u] = (int)(i - row * s.packs.by) * W - line - s.diagonal;
        #pragma unroll
        for (int w = 0; w < W; ++w) pack[u].at[w] = T(0);
        const bool kept = LOWER ? off[u] <= 0 : off[u] + W > 0;
        if (i < s.count && kept) pack[u] = load<T, W>(x + i * W, whole);
    }
    #pragma unroll
    for (int u = 0; u < U; ++u) {
        const unsigned i = first + u * blockDim.x;
        #pragma unroll
        for (int w = 0; w < W; ++w) {
            if (LOWER ? off[u] + w > 0 : off[u] + w < 0) pack[u].at[w] = T(0);
        }
        if (i < s.count) store<T, W>(out + i * W, pack[u], whole);
    }
}
