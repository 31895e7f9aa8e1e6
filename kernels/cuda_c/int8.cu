// Products of 8-bit integers with scales per row and column, and rounding of rows to 8 bits.
//
// m n k multiplications of bytes, added up in 32 bits; four bytes are loaded as one word.
// 1. bytes: a thread per result, which loads byte by byte
// 2. dp4a: a thread per result; __dp4a multiplies four pairs of bytes and adds (from sm_61 on)
// 3. tiled: the words of a tile in shared memory, read by 16 threads each
#include "common.cuh"

constexpr int TILE = 16;

template <bool BIAS>
__device__ __forceinline__ void store(float* out, long long at, int total, float scale, float bias) {
    out[at] = BIAS ? total * scale + bias : total * scale;
}

template <bool BIAS>
__global__ void matmul_bytes(const signed char* a, const signed char* b, const float* scale_a,
                             const float* scale_b, const float* bias, float* out, long long m,
                             long long n, long long k) {
    const long long col = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    const long long row = blockIdx.y * (long long)blockDim.y + threadIdx.y;
    if (row >= m || col >= n) return;
    int total = 0;
    for (long long i = 0; i < k; ++i) total += int(a[row * k + i]) * int(b[col * k + i]);
    store<BIAS>(out, row * n + col, total, scale_a[row] * scale_b[col], BIAS ? bias[col] : 0.0f);
}

template <bool BIAS>
__global__ void matmul_dp4a(const int* a, const int* b, const float* scale_a, const float* scale_b,
                            const float* bias, float* out, long long m, long long n, long long k) {
    const long long col = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    const long long row = blockIdx.y * (long long)blockDim.y + threadIdx.y;
    if (row >= m || col >= n) return;
    int total = 0;
    for (long long i = 0; i < k; ++i) total = __dp4a(a[row * k + i], b[col * k + i], total);
    store<BIAS>(out, row * n + col, total, scale_a[row] * scale_b[col], BIAS ? bias[col] : 0.0f);
}

template <bool BIAS>
__global__ void matmul_tiled(const int* a, const int* b, const float* scale_a, const float* scale_b,
                             const float* bias, float* out, long long m, long long n, long long k) {
    __shared__ int a_tile[TILE][TILE];
    __shared__ int b_tile[TILE][TILE + 1];
    const int tx = threadIdx.x, ty = threadIdx.y;
    const long long row = blockIdx.y * (long long)TILE + ty;
    const long long col = blockIdx.x * (long long)TILE + tx;
    const long long other = blockIdx.x * (long long)TILE + ty;  // the row of b that it loads
    int total = 0;
    for (long long k0 = 0; k0 < k; k0 += TILE) {
        a_tile[ty][tx] = row < m && k0 + tx < k ? a[row * k + k0 + tx] : 0;
        b_tile[ty][tx] = other < n && k0 + tx < k ? b[other * k + k0 + tx] : 0;
        __syncthreads();
        for (int i = 0; i < TILE; ++i) total = __dp4a(a_tile[ty][i], b_tile[tx][i], total);
        __syncthreads();
    }
    if (row >= m || col >= n) return;
    store<BIAS>(out, row * n + col, total, scale_a[row] * scale_b[col], BIAS ? bias[col] : 0.0f);
}

// A warp per row, block (32, rows).
template <class T>
__global__ void quantize_warp(const T* x, signed char* q, float* scale, long long m, long long k) {
    const long long row = blockIdx.x * (long long)blockDim.y + threadIdx.y;
    float top = 0.0f;
    if (row < m) {
        for (long long i = threadIdx.x; i < k; i += 32) {
            const float size = fabsf(float(x[row * k + i]));
            top = size > top ? size : top;
        }
    }
    top = warp_max(top);
    if (row >= m) return;
    const float size = (top > 0.0f ? top : 1.0f) / 127.0f;
    if (threadIdx.x == 0) scale[row] = size;
    for (long long i = threadIdx.x; i < k; i += 32) {
        const float value = rintf(float(x[row * k + i]) / size);
        q[row * k + i] = (signed char)(value < -127.0f ? -127.0f : value > 127.0f ? 127.0f : value);
    }
}
