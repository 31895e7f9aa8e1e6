// Max and average pooling over windows of the planes of x (planes, H, W), with gradients.
//
//   max_forward   one thread per result: the first maximum and its position; a NaN wins
//   max_gather    gradient: one thread per element of dx asks every window that holds it
//   max_owner     windows that share nothing: the thread of a window writes all of it
//   max_scatter   windows that are not known: a block per plane adds each g where its index says
//   avg_forward, avg_gather   the same for means
//
// Grid (planes, row tiles, column tiles). Kernel size, stride and dilation are constants.
struct Sizes {
    int height, width, out_height, out_width, pad_h, pad_w;
};

template <class T, class A, int KH, int KW, int SH, int SW, int DH, int DW, bool INSIDE>
__global__ void max_forward(const T* x, T* y, long long* index, Sizes s) {
    const int oh = blockIdx.y * blockDim.y + threadIdx.y;
    const int ow = blockIdx.z * blockDim.x + threadIdx.x;
    if (oh >= s.out_height || ow >= s.out_width) return;
    const T* plane = x + blockIdx.x * (long long)s.height * s.width;
    A best = A(0);
    int at = -1;
    #pragma unroll 8
    for (int i = 0; i < KH; ++i) {
        const int h = oh * SH + i * DH - s.pad_h;
        #pragma unroll 8
        for (int j = 0; j < KW; ++j) {
            const int v = ow * SW + j * DW - s.pad_w;
            if (!INSIDE && (h < 0 || h >= s.height || v < 0 || v >= s.width)) continue;
            const A value = A(plane[h * s.width + v]);
            if (at < 0 || value > best || (value != value && best == best)) {
                best = value;
                at = h * s.width + v;
            }
        }
    }
    const long long out = (blockIdx.x * (long long)s.out_height + oh) * s.out_width + ow;
    y[out] = T(best);
    index[out] = at;
}

template <class T, class A, int KH, int KW, int SH, int SW, int DH, int DW>
__global__ void max_gather(const T* g, const long long* index, T* dx, Sizes s) {
    const int h = blockIdx.y * blockDim.y + threadIdx.y;
    const int v = blockIdx.z * blockDim.x + threadIdx.x;
    if (h >= s.height || v >= s.width) return;
    const int here = h * s.width + v;
    A sum = A(0);
    #pragma unroll 8
    for (int i = 0; i < KH; ++i) {
        const int top = h + s.pad_h - i * DH, oh = top / SH;
        if (top < 0 || oh * SH != top || oh >= s.out_height) continue;
        #pragma unroll 8
        for (int j = 0; j < KW; ++j) {
            const int left = v + s.pad_w - j * DW, ow = left / SW;
            if (left < 0 || ow * SW != left || ow >= s.out_width) continue;
            const long long out = (blockIdx.x * (long long)s.out_height + oh) * s.out_width + ow;
            if (index[out] == here) sum += A(g[out]);
        }
    }
    dx[blockIdx.x * (long long)s.height * s.width + here] = T(sum);
}

// Threads past the last window write zeros to the rows and columns that no window holds.
template <class T, class A, int KH, int KW>
__global__ void max_owner(const T* g, const long long* index, T* dx, Sizes s) {
    const int oh = blockIdx.y * blockDim.y + threadIdx.y;
    const int ow = blockIdx.z * blockDim.x + threadIdx.x;
    const bool inside = oh < s.out_height && ow < s.out_width;
    const long long out = (blockIdx.x * (long long)s.out_height + oh) * s.out_width + ow;
    const long long at = inside ? index[out] : -1;
    const T value = inside ? g[out] : T(0.0f);
    T* plane = dx + blockIdx.x * (long long)s.height * s.width;
    #pragma unroll 8
    for (int i = 0; i < KH; ++i) {
        #pragma unroll 8
        for (int j = 0; j < KW; ++j) {
            const int h = oh * KH + i, v = ow * KW + j;
            if (h >= s.height || v >= s.width) continue;
            plane[h * s.width + v] = at == h * s.width + v ? value : T(0.0f);
        }
    }
}

// Grid (planes,); `pixels` of a plane of g, `size` of one of dx.
template <class T, class A>
__global__ void max_scatter(const T* g, const long long* index, A* dx, int pixels, int size) {
    const long long from = blockIdx.x * (long long)pixels;
    A* plane = dx + blockIdx.x * (long long)size;
    for (int i = threadIdx.x; i < size; i += blockDim.x) plane[i] = A(0);
    __syncthreads();
    for (int i = threadIdx.x; i < pixels; i += blockDim.x) {
        const long long at = index[from + i];
        if (at >= 0) atomicAdd(&plane[at], A(g[from + i]));
    }
}

// Along one axis, how many elements the window of output `out` counts.
__device__ __forceinline__ int covered(int out, int stride, int kernel, int pad, int size,
                                       bool include_pad) {
    int start = out * stride - pad, end = start + kernel;
    if (end > size + pad) end = size + pad;
    if (include_pad) return end - start;
    if (start < 0) start = 0;
    return (end < size ? end : size) - start;
}

// DIVISOR 0: the elements that the window counts.
template <class A, int KH, int KW, int SH, int SW, bool INCLUDE_PAD, int DIVISOR>
__device__ __forceinline__ A divisor(int oh, int ow, const Sizes& s) {
    if (DIVISOR != 0) return A(DIVISOR);
    return A(covered(oh, SH, KH, s.pad_h, s.height, INCLUDE_PAD) *
             covered(ow, SW, KW, s.pad_w, s.width, INCLUDE_PAD));
}

template <class T, class A, int KH, int KW, int SH, int SW, bool INCLUDE_PAD, int DIVISOR>
__global__ void avg_forward(const T* x, T* y, Sizes s) {
    const int oh = blockIdx.y * blockDim.y + threadIdx.y;
    const int ow = blockIdx.z * blockDim.x + threadIdx.x;
    if (oh >= s.out_height || ow >= s.out_width) return;
    const T* plane = x + blockIdx.x * (long long)s.height * s.width;
    A sum = A(0);
    #pragma unroll 8
    for (int i = 0; i < KH; ++i) {
        #pragma unroll 8
        for (int j = 0; j < KW; ++j) {
            const int h = oh * SH + i - s.pad_h, v = ow * SW + j - s.pad_w;
            if (h >= 0 && h < s.height && v >= 0 && v < s.width) sum += A(plane[h * s.width + v]);
        }
    }
    sum /= divisor<A, KH, KW, SH, SW, INCLUDE_PAD, DIVISOR>(oh, ow, s);
    y[(blockIdx.x * (long long)s.out_height + oh) * s.out_width + ow] = T(sum);
}

template <class T, class A, int KH, int KW, int SH, int SW, bool INCLUDE_PAD, int DIVISOR>
__global__ void avg_gather(const T* g, T* dx, Sizes s) {
    const int h = blockIdx.y * blockDim.y + threadIdx.y;
    const int v = blockIdx.z * blockDim.x + threadIdx.x;
    if (h >= s.height || v >= s.width) return;
    A sum = A(0);
    const int top = h + s.pad_h, left = v + s.pad_w;
    // From the last window that can hold the element back.
    #pragma unroll 8
    for (int i = 0; i < (KH + SH - 1) / SH; ++i) {
        const int oh = top / SH - i;
        if (oh < 0 || oh >= s.out_height || oh * SH + KH <= top) continue;
        #pragma unroll 8
        for (int j = 0; j < (KW + SW - 1) / SW; ++j) {
            const int ow = left / SW - j;
            if (ow < 0 || ow >= s.out_width || ow * SW + KW <= left) continue;
            const long long out = (blockIdx.x * (long long)s.out_height + oh) * s.out_width + ow;
            sum += A(g[out]) / divisor<A, KH, KW, SH, SW, INCLUDE_PAD, DIVISOR>(oh, ow, s);
        }
    }
    dx[(blockIdx.x * (long long)s.height + h) * s.width + v] = T(sum);
}
