// Products with a sparse matrix in compressed rows (CSR), and the gradient of its elements.
//
// A matrix with nnz elements times a dense one of n columns: 2 nnz n operations. Each element brings
// its column index and a row of the dense matrix from anywhere. Versions of spmm:
// 1. thread: a thread per row of the result; a warp takes as long as its longest row
// 2. warp: a warp per row, its lanes at neighbouring columns; where there are less than 32 columns,
//    groups of lanes share the elements of the row and add up by shuffles (Bell and Garland, 2009)
// 3. merge: rows and elements as one path, cut into parts of equal length (Merrill and Garland,
//    2016). A part writes the rows that end in it, and leaves a carry of the row that goes on.
// sddmm: a[row[e]] . b[col[e]] for each element e, by a thread or a warp.
#include "common.cuh"

__device__ __forceinline__ long long self() {
    return blockIdx.x * (long long)blockDim.x + threadIdx.x;
}

// T: elements, S: of the result, A: what is computed in, I: indices.
template <class T, class S, class A, class I>
__global__ void spmm_thread(const I* crow, const I* col, const T* values, const T* dense, S* out,
                            long long rows, long long width) {
    const long long row = self();
    if (row >= rows) return;
    for (long long j = 0; j < width; ++j) {
        A total = A(0);
        for (long long k = crow[row]; k < crow[row + 1]; ++k) {
            total += A(values[k]) * A(dense[col[k] * width + j]);
        }
        out[row * width + j] = S(total);
    }
}

// COLUMNS: of the dense matrix that a warp takes at a time.
template <class T, class S, class A, class I, int COLUMNS>
__global__ void spmm_warp(const I* crow, const I* col, const T* values, const T* dense, S* out,
                          long long rows, long long width) {
    const long long row = blockIdx.x * (long long)blockDim.y + threadIdx.y;
    const int group = threadIdx.x / COLUMNS;
    for (long long base = 0; base < width; base += COLUMNS) {
        const long long j = base + threadIdx.x % COLUMNS;
        A total = A(0);
        if (row < rows && j < width) {
            for (long long k = crow[row] + group; k < crow[row + 1]; k += 32 / COLUMNS) {
                total += A(values[k]) * A(dense[col[k] * width + j]);
            }
        }
        for (int step = 16; step >= COLUMNS; step /= 2) {
            total += __shfl_xor_sync(FULL_WARP, total, step);
        }
        if (row < rows && j < width && group == 0) out[row * width + j] = S(total);
    }
}

// How many rows have ended where the path of row ends and elements crosses a diagonal.
template <class I>
__device__ __forceinline__ long long path(const I* crow, long long rows, long long count,
                                          long long diagonal) {
    long long low = diagonal > count ? diagonal - count : 0;
    long long high = diagonal < rows ? diagonal : rows;
    while (low < high) {
        const long long middle = (low + high) / 2;
        if (crow[middle + 1] <= diagonal - 1 - middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

// ITEMS: of the path that a part takes; `tiles` blocks side by side cover the columns.
template <class T, class S, class A, class I, int ITEMS>
__global__ void spmm_merge(const I* crow, const I* col, const T* values, const T* dense, S* out,
                           I* carry_row, S* carry, long long width, long long parts,
                           long long tiles, long long rows, long long count) {
    const long long part = blockIdx.x / tiles * blockDim.y + threadIdx.y;
    const long long j = blockIdx.x % tiles * blockDim.x + threadIdx.x;
    if (part >= parts || j >= width) return;
    const long long start = part * ITEMS;
    const long long stop = start + ITEMS < rows + count ? start + ITEMS : rows + count;
    const long long last = path(crow, rows, count, stop);
    long long row = path(crow, rows, count, start), k = start - row;
    A total = A(0);
    for (; row < last; ++row) {
        for (; k < crow[row + 1]; ++k) total += A(values[k]) * A(dense[col[k] * width + j]);
        out[row * width + j] = S(total);
        total = A(0);
    }
    for (; k < stop - last; ++k) total += A(values[k]) * A(dense[col[k] * width + j]);
    carry[part * width + j] = S(total);
    if (j == 0) carry_row[part] = I(last);
}

// A thread per carry; the first of several parts that carry into one row adds all of them.
template <class S, class I>
__global__ void spmm_carry(const I* carry_row, const S* carry, S* out, long long width,
                           long long parts, long long rows) {
    long long part = self() / width;
    const long long j = self() % width;
    if (part >= parts) return;
    const long long row = carry_row[part];
    if (row >= rows || (part > 0 && carry_row[part - 1] == row)) return;
    S total = S(0);
    for (; part < parts && carry_row[part] == row; ++part) total += carry[part * width + j];
    out[row * width + j] += total;
}

template <class T, class A, class I>
__global__ void sddmm_thread(const I* row, const I* col, const T* a, const T* b, T* out,
                             long long width, long long count) {
    const long long e = self();
    if (e >= count) return;
    A total = A(0);
    for (long long j = 0; j < width; ++j) total += A(a[row[e] * width + j]) * A(b[col[e] * width + j]);
    out[e] = T(total);
}

template <class T, class A, class I>
__global__ void sddmm_warp(const I* row, const I* col, const T* a, const T* b, T* out,
                           long long width, long long count) {
    const long long e = blockIdx.x * (long long)blockDim.y + threadIdx.y;
    A total = A(0);
    if (e < count) {
        for (long long j = threadIdx.x; j < width; j += 32) {
            total += A(a[row[e] * width + j]) * A(b[col[e] * width + j]);
        }
    }
    total = warp_sum(total);
    if (e < count && threadIdx.x == 0) out[e] = T(total);
}
