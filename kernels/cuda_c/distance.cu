// Distances of rows: a reduction over the difference of two rows.
//
// A line of the reduction table gives `load` (of a difference), `combine` and `finish`. S is the
// type of an element, A the accumulator, R what is stored, START the identity. The generated text
// stands before this file; alone it is the squared Euclidean distance of floats.
//
// tiled: block (TILE, TILE), one result per thread; a block copies tiles into shared memory
#include "common.cuh"

#ifndef MINIGRAD_LINE
typedef float S;
typedef float A;
typedef float R;
#define START 0.0f
__device__ __forceinline__ A load(A x) { return x * x; }
__device__ __forceinline__ A combine(A a, A b) { return a + b; }
__device__ __forceinline__ R finish(A a, long long n) { return a; }
#endif

// a (batch, m, k), b (batch, n, k), out (batch, m, n). PAIRS: a and b are the same, and only rows
// before others are wanted: out (m (m - 1) / 2,).
template <int TILE, bool PAIRS>
__global__ void tiled(const S* a, const S* b, R* out, long long m, long long n, long long k) {
    __shared__ A a_tile[TILE][TILE];
    __shared__ A b_tile[TILE][TILE];
    const int tx = threadIdx.x, ty = threadIdx.y;
    const long long row = blockIdx.y * (long long)TILE + ty;
    const long long col = blockIdx.x * (long long)TILE + tx;
    a += blockIdx.z * m * k;
    b += blockIdx.z * n * k;
    if (PAIRS && blockIdx.x < blockIdx.y) return;  // the whole block
    A sum = A(START);
    for (long long k0 = 0; k0 < k; k0 += TILE) {
        a_tile[ty][tx] = row < m && k0 + tx < k ? A(a[row * k + k0 + tx]) : A(0);
        b_tile[ty][tx] = k0 + ty < k && col < n ? A(b[col * k + k0 + ty]) : A(0);
        __syncthreads();
        for (int i = 0; i < TILE; ++i) {  // both are 0 behind the end of the rows
            sum = combine(sum, load(a_tile[ty][i] - b_tile[i][tx]));
        }
        __syncthreads();
    }
    if (PAIRS) {
        if (row < col && col < n) {
            out[row * (2 * n - row - 1) / 2 + col - row - 1] = finish(sum, k);
        }
    } else if (row < m && col < n) {
        out[(blockIdx.z * m + row) * n + col] = finish(sum, k);
    }
}
