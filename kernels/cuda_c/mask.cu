// What a mask chooses: the places where it is True, or the elements of another array there.
//
// How many there are before an element decides where its result goes, so the mask is read twice:
// 1. count: a block counts those of its part; a running sum of the counts says where each begins
// 2. choose: a block ranks those of its part in shared memory, so that neighbouring threads write
//    neighbouring results
#include "common.cuh"

constexpr int THREADS = 256, EACH = 16;  // elements of a thread: 16 bytes of the mask

// Bit k: whether element first + k of a mask of n is True.
__device__ __forceinline__ unsigned bits_of(const bool* mask, long long first, long long n) {
    unsigned bits = 0;
    if (first + EACH <= n && aligned16(mask + first)) {
        const auto pack = *(const Pack<bool, EACH>*)(mask + first);
        for (int k = 0; k < EACH; ++k) bits |= unsigned(pack.at[k]) << k;
    } else {
        for (int k = 0; k < EACH && first + k < n; ++k) bits |= unsigned(mask[first + k]) << k;
    }
    return bits;
}

__global__ void count(const bool* mask, long long* counts, long long n) {
    __shared__ int partial[THREADS / 32];
    const long long first = (blockIdx.x * (long long)THREADS + threadIdx.x) * EACH;
    const int total = block_sum(__popc(bits_of(mask, first, n)), partial);
    if (threadIdx.x == 0) counts[blockIdx.x] = total;
}

// ends: the running sum of the counts. Returns how many there are in this block; their numbers in
// it go to `chosen`.
__device__ __forceinline__ int ranked(const bool* mask, unsigned short* chosen, long long n) {
    __shared__ int partial[THREADS / 32];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const long long first = (blockIdx.x * (long long)THREADS + threadIdx.x) * EACH;
    const unsigned bits = bits_of(mask, first, n);
    const int own = __popc(bits);
    int upto = own;  // of the warp, with this thread's
    for (int step = 1; step < 32; step *= 2) {
        const int other = __shfl_up_sync(FULL_WARP, upto, step);
        if (lane >= step) upto += other;
    }
    if (lane == 31) partial[warp] = upto;
    __syncthreads();
    int rank = upto - own, total = 0;
    for (int w = 0; w < THREADS / 32; ++w) {
        if (w < warp) rank += partial[w];
        total += partial[w];
    }
    for (int k = 0; k < EACH; ++k) {
        if (bits >> k & 1) chosen[rank++] = threadIdx.x * EACH + k;
    }
    __syncthreads();
    return total;
}

template <class T>
__global__ void choose(const bool* mask, const long long* ends, const T* x, T* out, long long n) {
    __shared__ unsigned short chosen[THREADS * EACH];
    const int total = ranked(mask, chosen, n);
    const long long first = blockIdx.x * (long long)(THREADS * EACH);
    const long long start = ends[blockIdx.x] - total;
    for (int i = threadIdx.x; i < total; i += THREADS) out[start + i] = x[first + chosen[i]];
}

// out (found, D): a place along each dimension of a mask (..., size1, size2, size3), of which the
// last D - 1 sizes count. U: unsigned integers that hold a place, of 32 bits where that is enough: a
// division of 64 bits takes a hundred instructions.
template <int D, class U>
__global__ void places(const bool* mask, const long long* ends, long long* out, long long size1,
                       long long size2, long long size3, long long n) {
    __shared__ unsigned short chosen[THREADS * EACH];
    const int total = ranked(mask, chosen, n);
    const long long first = blockIdx.x * (long long)(THREADS * EACH);
    const long long start = ends[blockIdx.x] - total;
    const U sizes[3] = {U(size1), U(size2), U(size3)};
    for (int i = threadIdx.x; i < total; i += THREADS) {
        U rest = U(first) + chosen[i];
        long long* at = out + (start + i) * D;
#pragma unroll
        for (int d = D - 1; d > 0; --d) {
            const U above = rest / sizes[d + 3 - D];
            at[d] = rest - above * sizes[d + 3 - D];
            rest = above;
        }
        at[0] = rest;
    }
}
