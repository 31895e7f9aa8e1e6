// Max and average pooling over windows of the planes of x (planes, H, W), with gradients.
//
//   max_forward   one thread per result: the first maximum and its position; a NaN wins
//   max_padded    the same for a copy of x with a border of the lowest number, which no window leaves
//   max_adaptive  the same over windows that divide the plane into rows and columns of results
//   max_gather    gradient: one thread per element of dx asks every window that holds it
//   max_owner     gradient: one thread writes a step of the stride and reads each window once
//   max_scatter   windows that are not known: a block per plane adds each g where its index says
//   max_plane     the same by one thread per plane, in order
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

// x: padded planes, of the sizes s; height, width: of the planes in them.
template <class T, class A, int KH, int KW, int SH, int SW, int DH, int DW>
__global__ void max_padded(const T* x, T* y, long long* index, Sizes s, int height, int width) {
    const int oh = blockIdx.y * blockDim.y + threadIdx.y;
    const int ow = blockIdx.z * blockDim.x + threadIdx.x;
    if (oh >= s.out_height || ow >= s.out_width) return;
    const T* window = x + (blockIdx.x * (long long)s.height + oh * SH) * s.width + ow * SW;
    const int top = oh * SH - s.pad_h, left = ow * SW - s.pad_w;
    A best = A(window[0]);
    // the window's first element, or the first that is not of the border
    const int row = top < 0 ? (DH + top % DH) % DH : top;
    int at = row * width + (left < 0 ? (DW + left % DW) % DW : left);
    #pragma unroll 8
    for (int i = 0; i < KH; ++i) {
        #pragma unroll 8
        for (int j = 0; j < KW; ++j) {
            const A value = A(window[i * DH * s.width + j * DW]);
            if (value > best || (value != value && best == best)) {
                best = value;
                at = (top + i * DH) * width + left + j * DW;
            }
        }
    }
    const long long out = (blockIdx.x * (long long)s.out_height + oh) * s.out_width + ow;
    y[out] = T(best);
    index[out] = at;
}

template <class T, class A>
__global__ void max_adaptive(const T* x, T* y, long long* index, Sizes s) {
    const int oh = blockIdx.y * blockDim.y + threadIdx.y;
    const int ow = blockIdx.z * blockDim.x + threadIdx.x;
    if (oh >= s.out_height || ow >= s.out_width) return;
    const T* plane = x + blockIdx.x * (long long)s.height * s.width;
    const int bottom = ((oh + 1) * s.height + s.out_height - 1) / s.out_height;
    const int left = ow * s.width / s.out_width;
    const int right = ((ow + 1) * s.width + s.out_width - 1) / s.out_width;
    A best = A(0);
    int at = -1;
    for (int h = oh * s.height / s.out_height; h < bottom; ++h) {
        #pragma unroll 4
        for (int v = left; v < right; ++v) {
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
    for (int i = 0; i <= (KH - 1) * DH / SH; ++i) {
        const int oh = (h + s.pad_h) / SH - i;
        if (oh < 0 || oh >= s.out_height) continue;
        #pragma unroll 8
        for (int j = 0; j <= (KW - 1) * DW / SW; ++j) {
            const int ow = (v + s.pad_w) / SW - j;
            if (ow < 0 || ow >= s.out_width) continue;
            const long long out = (blockIdx.x * (long long)s.out_height + oh) * s.out_width + ow;
            if (index[out] == here) sum += A(g[out]);
        }
    }
    dx[blockIdx.x * (long long)s.height * s.width + here] = T(sum);
}

// A thread reads the windows that reach into its step of the stride, once, and writes the step.
template <class T, class A, int KH, int KW, int SH, int SW, int PAD_H, int PAD_W>
__global__ void max_owner(const T* g, const long long* index, T* dx, Sizes s) {
    const int a = blockIdx.y * blockDim.y + threadIdx.y;
    const int b = blockIdx.z * blockDim.x + threadIdx.x;
    constexpr int ROWS = (KH + SH - 1) / SH, COLUMNS = (KW + SW - 1) / SW;
    long long at[ROWS * COLUMNS];
    A value[ROWS * COLUMNS];
    #pragma unroll
    for (int k = 0; k < ROWS * COLUMNS; ++k) {
        const int oh = a - k / COLUMNS, ow = b - k % COLUMNS;
        const bool inside = oh >= 0 && oh < s.out_height && ow >= 0 && ow < s.out_width;
        const long long out = (blockIdx.x * (long long)s.out_height + oh) * s.out_width + ow;
        at[k] = inside ? index[out] : -1;
        value[k] = inside ? A(g[out]) : A(0);
    }
    T* plane = dx + blockIdx.x * (long long)s.height * s.width;
    #pragma unroll
    for (int r = 0; r < SH; ++r) {
        #pragma unroll
        for (int c = 0; c < SW; ++c) {
            const int h = a * SH + r - PAD_H, v = b * SW + c - PAD_W;
            if (h < 0 || h >= s.height || v < 0 || v >= s.width) continue;
            A sum = A(0);
            #pragma unroll
            for (int k = 0; k < ROWS * COLUMNS; ++k) {
                if (r + k / COLUMNS * SH < KH && c + k % COLUMNS * SW < KW)
                    sum += at[k] == h * s.width + v ? value[k] : A(0);
            }
            plane[h * s.width + v] = T(sum);
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

// Grid (planes,) of one thread each.
template <class T, class A>
__global__ void max_plane(const T* g, const long long* index, A* dx, int pixels, int size) {
    const long long from = blockIdx.x * (long long)pixels;
    A* plane = dx + blockIdx.x * (long long)size;
    for (int i = 0; i < size; ++i) plane[i] = A(0);
    for (int i = 0; i < pixels; ++i) {
        const long long at = index[from + i];
        if (at >= 0) plane[at] += A(g[from + i]);
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
