// Cross products of vectors of three elements: x (outer, 3, inner), a thread per vector. 9 operations
// on 6 elements, which are read once.
#include "common.cuh"

template <class T, class A>
__global__ void cross(const T* a, const T* b, T* out, long long inner, long long vectors) {
    const long long v = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (v >= vectors) return;
    const long long at = inner == 1 ? 3 * v : v / inner * 3 * inner + v % inner;
    const A a0 = A(a[at]), a1 = A(a[at + inner]), a2 = A(a[at + 2 * inner]);
    const A b0 = A(b[at]), b1 = A(b[at + inner]), b2 = A(b[at + 2 * inner]);
    out[at] = T(a1 * b2 - a2 * b1);
    out[at + inner] = T(a2 * b0 - a0 * b2);
    out[at + 2 * inner] = T(a0 * b1 - a1 * b0);
}
