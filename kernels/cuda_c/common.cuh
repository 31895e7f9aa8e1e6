// What the families share: packs of 16 bytes, and reductions over a warp and a block.
#ifndef MINIGRAD_COMMON
#define MINIGRAD_COMMON

constexpr unsigned FULL_WARP = 0xffffffff;

// W neighbouring elements that move in one memory instruction, where they are aligned.
template <class T, int W>
struct __align__(sizeof(T) * W < 16 ? sizeof(T) * W : 16) Pack {
    T at[W];
};

__device__ __forceinline__ bool aligned16(const void* address) {
    return ((size_t)address & 15) == 0;
}

// The width of the packs in which a thread takes a power of two of elements.
template <class T>
__host__ __device__ constexpr int pack_of(int elements) {
    return elements * sizeof(T) < 16 ? elements : 16 / sizeof(T);
}

// Of a row whose elements lie in the registers of a warp, in packs or else 32 apart, the place of a
// lane's element w of its pack i.
template <int W>
__device__ __forceinline__ int place_of(int i, int w, bool packs) {
    return packs ? (i * 32 + threadIdx.x) * W + w : (i * W + w) * 32 + threadIdx.x;
}

// The elements that a lane holds; `absent` where x ends.
template <class A, int PACKS, class T, int W>
__device__ __forceinline__ void load_row(A (&values)[PACKS][W], const T* x, int n, bool packs,
                                         A absent) {
    #pragma unroll
    for (int i = 0; i < PACKS; ++i) {
        const int at = place_of<W>(i, 0, packs);
        Pack<T, W> pack;
        if (packs && at < n) pack = *(const Pack<T, W>*)(x + at);
        #pragma unroll
        for (int w = 0; w < W; ++w) {
            const int one = place_of<W>(i, w, packs);
            if (packs) values[i][w] = at < n ? A(pack.at[w]) : absent;
            else values[i][w] = one < n ? A(x[one]) : absent;
        }
    }
}

template <class A, int PACKS, class T, int W>
__device__ __forceinline__ void store_row(const A (&values)[PACKS][W], T* y, int n, bool packs) {
    #pragma unroll
    for (int i = 0; i < PACKS; ++i) {
        const int at = place_of<W>(i, 0, packs);
        Pack<T, W> pack;
        #pragma unroll
        for (int w = 0; w < W; ++w) pack.at[w] = T(values[i][w]);
        if (packs && at < n) *(Pack<T, W>*)(y + at) = pack;
        #pragma unroll
        for (int w = 0; w < W; ++w) {
            const int one = place_of<W>(i, w, packs);
            if (!packs && one < n) y[one] = pack.at[w];
        }
    }
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

// The sum over the block, in every thread; `partial` is shared, one element per warp. BLOCK: its
// threads, where that is known when the kernel is compiled.
template <int BLOCK = 0, class A>
__device__ __forceinline__ A block_sum(A value, A* partial) {
    const int warps = (BLOCK ? BLOCK : blockDim.x) / 32;
    value = warp_sum(value);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
    __syncthreads();
    A total = partial[0];
    for (int w = 1; w < warps; ++w) total += partial[w];
    __syncthreads();
    return total;
}

template <int BLOCK = 0, class A>
__device__ __forceinline__ A block_max(A value, A* partial) {
    const int warps = (BLOCK ? BLOCK : blockDim.x) / 32;
    value = warp_max(value);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
    __syncthreads();
    A top = partial[0];
    for (int w = 1; w < warps; ++w) top = partial[w] > top ? partial[w] : top;
    __syncthreads();
    return top;
}
#endif
