// The wrong kernels of the bug hunts, in CUDA C. What is wrong is for the reader to find.

#include <cuda_fp16.h>

__global__ void fix_barrier(const float* x, float* out) {
    __shared__ float tile[64];
    int t = threadIdx.x, i = blockIdx.x * 64 + t;
    tile[t] = x[i];
    __syncthreads();
    float s = tile[t] + tile[(t + 1) % 64];
    tile[t] = s;
    __syncthreads();
    out[i] = s - tile[(t + 63) % 64];
}

__global__ void fix_guard(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[i + 1] - x[i];
}

__global__ void fix_histogram(const long long* x, long long* counts, int n) {
    __shared__ unsigned long long tile[10];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    if (t < 10) tile[t] = 0;
    __syncthreads();
    if (i < n) tile[x[i]] += 1;
    __syncthreads();
    if (t < 10) atomicAdd((unsigned long long*)&counts[t], tile[t]);
}

__global__ void fix_stride(const float* x, int rows, int columns, float* out) {
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    if (j < columns) {
        float total = 0;
        for (int i = 0; i < rows; i++) total += x[i * rows + j];
        out[j] = total;
    }
}

__global__ void fix_divergence(const float* x, float* out, int n) {
    __shared__ float tile[64];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    tile[t] = 0;
    if (i < n) {
        tile[t] = x[i];
        __syncthreads();
        for (int step = 32; step; step /= 2) {
            if (t < step) tile[t] += tile[t + step];
            __syncthreads();
        }
        if (t == 0) out[blockIdx.x] = tile[0];
    }
}

__global__ void fix_uninitialised(const float* x, float* out, int n) {
    __shared__ float tile[64];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    if (i < n) tile[t] = x[i];
    __syncthreads();
    for (int step = 32; step; step /= 2) {
        if (t < step) tile[t] = fmaxf(tile[t], tile[t + step]);
        __syncthreads();
    }
    if (t == 0) out[blockIdx.x] = tile[0];
}

__global__ void fix_banks(const float* x, float* out) {
    __shared__ float tile[64][32];
    int t = threadIdx.x, first = blockIdx.x * 64;
    for (int row = t / 32; row < 64; row += 2) tile[row][t % 32] = x[(first + row) * 32 + t % 32];
    __syncthreads();
    float total = 0;
    for (int j = 0; j < 32; j++) total += tile[t][j];
    out[first + t] = total;
}

__global__ void fix_mask(const float* x, float* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float value = x[i];
    for (int step = 16; step; step /= 2)
        value = fmaxf(value, __shfl_down_sync(0x0000ffffu, value, step));
    if (threadIdx.x % 32 == 0) out[i / 32] = value;
}

__global__ void fix_overflow(const int* x, long long* out, int n) {
    __shared__ int tile[64];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    tile[t] = i < n ? x[i] : 0;
    __syncthreads();
    for (int step = 32; step; step /= 2) {
        if (t < step) tile[t] += tile[t + step];
        __syncthreads();
    }
    if (t == 0) out[blockIdx.x] = tile[0];
}

__global__ void fix_half(const __half* x, float* out, int n, int columns) {
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    if (j < columns) {
        __half total = __float2half(0);
        for (int i = 0; i < n; i++) total = __hadd(total, x[i * columns + j]);
        out[j] = __half2float(total) / n;
    }
}
