// What the families share: packs of 16 bytes, and reductions over a warp and a block.
#ifndef MINIGRAD_COMMON
#define MINIGRAD_COMMON

constexpr unsigned FULL_WARP = 0xffffffff;

// W neighbouring elements that move in one memory instruction, where they are aligned.
template <class T, int W>
struct __align__(sizeof(T) * W) Pack {
    T at[W];
};

__device__ __forceinline__ bool aligned16(const void* address) {
    return ((size_t)address & 15) == 0;
}

__device__ __forceinline__ float infinity() { return __int_as_float(0x7f800000); }

// One name for both types: a template's float stays a float.
__device__ __forceinline__ float exp_of(float x) { return expf(x); }
__device__ __forceinline__ double exp_of(double x) { return exp(x); }
__device__ __forceinline__ float log_of(float x) { return logf(x); }
__device__ __forceinline__ double log_of(double x) { return log(x); }
__device__ __forceinline__ float sqrt_of(float x) { return sqrtf(x); }
__device__ __forceinline__ double sqrt_of(double x) { return sqrt(x); }

// The sum over the warp, in every lane.
template <class A>
__device__ __forceinline__ A warp_sum(A value) {
    for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(FULL_WARP, value, step);
    return value;
}

template <class A>
__device__ __forceinline__ A warp_max(A value) {
    for (int step = 16; step > 0; step /= 2) {
        const A other = __shfl_xor_sync(FULL_WARP, value, step);
        value = other > value ? other : value;
    }
    return value;
}

// The sum over the block, in every thread; `partial` is shared, one element per warp.
template <class A>
__device__ __forceinline__ A block_sum(A value, A* partial) {
    value = warp_sum(value);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
    __syncthreads();
    A total = partial[0];
    for (int w = 1; w < blockDim.x / 32; ++w) total += partial[w];
    __syncthreads();
    return total;
}

template <class A>
__device__ __forceinline__ A block_max(A value, A* partial) {
    value = warp_max(value);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
    __syncthreads();
    A top = partial[0];
    for (int w = 1; w < blockDim.x / 32; ++w) top = partial[w] > top ? partial[w] : top;
    __syncthreads();
    return top;
}
#endif
