// Batch normalisation of x (N, C, ...) per channel, with its gradient, and that of group norm.
//
// y = (x - mean) * invstd * weight + bias. About 8 operations per element forward and 12 backward; at
// least x read twice and y written once (the statistics must be complete before the first result).
//
//   statistics  mean and 1 / sqrt(variance + eps) of a channel: two passes (the second sums squares
//               of differences from the mean, which does not cancel)
//   apply       a thread per element, or per four of a plane
//   sums        backward: sum(g) and sum(g * xhat) of a channel
//   gradient    backward: as `apply`
//
// `planes`: a block per channel, threads along the plane of one image, for x (N, C, S) with S > 1.
// `columns`: threads along the channels, for x (N, C), where a channel is a column.
// `groups`: the gradient of group norm, a block per group of an image and a warp per channel: each
// channel's sums are those that its parameters need, and weighted they are the group's.
// `split`: few channels leave a GPU idle, so each is shared by several blocks. For the statistics they
// write the means and squares of their parts, which are merged by the method of Chan et al. (1979).
#include "common.cuh"

constexpr int BX = 32, BY = 8;  // the block of the column kernels

// What a block has of a channel: of every `step`-th image from `image` on, the elements of the plane
// from `first` to before `last`. The second constructor is for a block of `split`.
struct Part {
    int image, step, first, last;

    __device__ explicit Part(int size) : image(0), step(1), first(0), last(size) {}
    __device__ Part(int pieces, int span, int size)
        : image(blockIdx.y / pieces), step(gridDim.y / pieces), first(blockIdx.y % pieces * span),
          last(first + span < size ? first + span : size) {}
};

// visit(i) for a thread's elements i of channel c, BLOCK apart. Planes that are not much larger than
// a block count as one row of elements: no thread waits for the next plane, and the loads of several
// steps are under way at once.
template <int BLOCK, class Visit>
__device__ __forceinline__ void each_in_channel(const Part& part, int images, int channels, int size,
                                                int c, Visit visit) {
    const int width = part.last - part.first;
    const long long image = (long long)channels * size, across = part.step * image;
    long long at = part.image * image + (long long)c * size + part.first;
    if (width >= 8 * BLOCK) {
        for (int n = part.image; n < images; n += part.step, at += across) {
            for (int i = threadIdx.x; i < width; i += BLOCK) visit(at + i);
        }
        return;
    }
    if (width <= 0 || part.image >= images) return;
    const long long count = ((images - part.image - 1LL) / part.step + 1) * width;
    const int own = threadIdx.x < count ? (int)((count - threadIdx.x + BLOCK - 1) / BLOCK) : 0;
    int i = threadIdx.x % width;
    at += threadIdx.x / width * across + i;
    const int turn = BLOCK % width;
    const long long along = BLOCK / width * across + turn, back = across - width;
    #pragma unroll 8
    for (int k = 0; k < own; ++k) {
        visit(at);
        at += along;
        i += turn;
        if (i >= width) i -= width, at += back;
    }
}

template <class T, class A, int BLOCK>
__global__ void statistics_planes(const T* x, A* mean, A* invstd, A eps, int images, int channels,
                                  int size) {
    __shared__ A partial[32];
    const int c = blockIdx.x;
    const A count = A((long long)images * size);
    const Part all(size);
    A total = A(0);
    each_in_channel<BLOCK>(all, images, channels, size, c, [&](long long i) { total += A(x[i]); });
    const A m = block_sum<BLOCK>(total, partial) / count;
    total = A(0);
    each_in_channel<BLOCK>(all, images, channels, size, c, [&](long long i) {
        const A d = A(x[i]) - m;
        total += d * d;
    });
    const A variance = block_sum<BLOCK>(total, partial) / count;
    if (threadIdx.x == 0) mean[c] = m, invstd[c] = A(1) / sqrt_of(variance + eps);
}

// The sum of a column's BY partial sums, in every thread.
template <class A>
__device__ __forceinline__ A column_sum(A value, A (*partial)[BX]) {
    partial[threadIdx.y][threadIdx.x] = value;
    __syncthreads();
    A total = partial[0][threadIdx.x];
    for (int i = 1; i < BY; ++i) total += partial[i][threadIdx.x];
    __syncthreads();
    return total;
}

template <class T, class A>
__global__ void statistics_columns(const T* x, A* mean, A* invstd, A eps, int images, int channels) {
    __shared__ A partial[BY][BX];
    const int c = blockIdx.x * BX + threadIdx.x;
    const bool live = c < channels;
    A total = A(0);
    for (int n = threadIdx.y; live && n < images; n += BY) total += A(x[(long long)n * channels + c]);
    const A m = column_sum(total, partial) / A(images);
    total = A(0);
    for (int n = threadIdx.y; live && n < images; n += BY) {
        const A d = A(x[(long long)n * channels + c]) - m;
        total += d * d;
    }
    const A variance = column_sum(total, partial) / A(images);
    if (threadIdx.y == 0 && live) mean[c] = m, invstd[c] = A(1) / sqrt_of(variance + eps);
}

// Grid (C, parts); sizes (parts,): the elements of each; means and squares about them (parts, C).
template <class T, class A, int BLOCK>
__global__ void split_planes(const T* x, const A* sizes, A* means, A* squares, int pieces, int span,
                             int images, int channels, int size) {
    __shared__ A partial[32];
    const int c = blockIdx.x;
    const Part part(pieces, span, size);
    A total = A(0);
    each_in_channel<BLOCK>(part, images, channels, size, c, [&](long long i) { total += A(x[i]); });
    const A m = block_sum<BLOCK>(total, partial) / sizes[blockIdx.y];
    total = A(0);
    each_in_channel<BLOCK>(part, images, channels, size, c, [&](long long i) {
        const A d = A(x[i]) - m;
        total += d * d;
    });
    total = block_sum<BLOCK>(total, partial);
    if (threadIdx.x > 0) return;
    means[blockIdx.y * (long long)channels + c] = m;
    squares[blockIdx.y * (long long)channels + c] = total;
}

// Grid (tiles of C, parts): a part is `span` rows of x.
template <class T, class A>
__global__ void split_columns(const T* x, const A* sizes, A* means, A* squares, int pieces, int span,
                              int images, int channels) {
    __shared__ A partial[BY][BX];
    const int c = blockIdx.x * BX + threadIdx.x, first = blockIdx.y * span;
    const int last = first + span < images ? first + span : images;
    const bool live = c < channels;
    A total = A(0);
    for (int n = first + threadIdx.y; live && n < last; n += BY) {
        total += A(x[(long long)n * channels + c]);
    }
    const A m = column_sum(total, partial) / sizes[blockIdx.y];
    total = A(0);
    for (int n = first + threadIdx.y; live && n < last; n += BY) {
        const A d = A(x[(long long)n * channels + c]) - m;
        total += d * d;
    }
    total = column_sum(total, partial);
    if (threadIdx.y > 0 || !live) return;
    means[blockIdx.y * (long long)channels + c] = m;
    squares[blockIdx.y * (long long)channels + c] = total;
}

// Grid (tiles of C,): mean and invstd (C,) of what `split_*` leave.
template <class A>
__global__ void merge(const A* means, const A* squares, const A* sizes, A* mean, A* invstd, A eps,
                      int parts, int channels) {
    __shared__ A partial[BY][BX];
    const int c = blockIdx.x * BX + threadIdx.x;
    const bool live = c < channels;
    A count = A(0), total = A(0);
    for (int p = 0; p < parts; ++p) count += sizes[p];
    for (int p = threadIdx.y; live && p < parts; p += BY) {
        total += sizes[p] * means[p * (long long)channels + c];
    }
    const A m = column_sum(total, partial) / count;
    total = A(0);
    for (int p = threadIdx.y; live && p < parts; p += BY) {
        const long long at = p * (long long)channels + c;
        total += squares[at] + sizes[p] * (means[at] - m) * (means[at] - m);
    }
    const A variance = column_sum(total, partial) / count;
    if (threadIdx.y == 0 && live) mean[c] = m, invstd[c] = A(1) / sqrt_of(variance + eps);
}

constexpr int OF_PLANES = 4;  // elements of a thread, whose loads do not wait for each other

// Where a thread is in x: element k of it, or -1, and its channel c.
__device__ __forceinline__ long long in_planes(int k, int channels, int size, int& c) {
    const unsigned each = OF_PLANES * blockDim.x, tiles = (size + each - 1) / each;
    const unsigned plane = blockIdx.x / tiles, tile = blockIdx.x % tiles;
    const long long i = tile * (long long)each + k * blockDim.x + threadIdx.x;
    c = plane % channels;
    return i < size ? plane * (long long)size + i : -1;
}

__device__ __forceinline__ long long in_columns(int images, int channels, int& c) {
    c = blockIdx.y * blockDim.x + threadIdx.x;
    const long long n = blockIdx.x * (long long)blockDim.y + threadIdx.y;
    return n < images && c < channels ? n * channels + c : -1;
}

// PLANES: grid (N * C * tiles of S), and `size` is S; else block (BX, BY), grid (tiles of N, tiles of
// C), and `size` is N.
template <class T, class M, class A, bool PLANES, bool WEIGHT, bool BIAS>
__global__ void apply(const T* __restrict__ x, const M* mean, const M* invstd, const T* weight,
                      const T* bias, T* __restrict__ y, int channels, int size) {
    constexpr int EACH = PLANES ? OF_PLANES : 1;
    long long at[EACH];
    A own[EACH];
    int c;
    #pragma unroll
    for (int k = 0; k < EACH; ++k) {
        at[k] = PLANES ? in_planes(k, channels, size, c) : in_columns(size, channels, c);
        own[k] = at[k] < 0 ? A(0) : A(x[at[k]]);
    }
    if (at[0] < 0) return;
    const A m = A(mean[c]), scale = WEIGHT ? A(invstd[c]) * A(weight[c]) : A(invstd[c]);
    const A shift = BIAS ? A(bias[c]) : A(0);
    #pragma unroll
    for (int k = 0; k < EACH; ++k) {
        if (at[k] >= 0) y[at[k]] = T((own[k] - m) * scale + shift);
    }
}

template <class T, class M, class A, int BLOCK>
__global__ void sums_planes(const T* g, const T* x, const M* mean, const M* invstd, A* dweight,
                            A* dbias, int images, int channels, int size) {
    __shared__ A partial[32];
    const int c = blockIdx.x;
    const A m = A(mean[c]);
    A plain = A(0), scaled = A(0);
    each_in_channel<BLOCK>(Part(size), images, channels, size, c, [&](long long i) {
        const A gv = A(g[i]);
        plain += gv;
        scaled += gv * (A(x[i]) - m);
    });
    plain = block_sum<BLOCK>(plain, partial);
    scaled = block_sum<BLOCK>(scaled, partial);
    if (threadIdx.x == 0) dbias[c] = plain, dweight[c] = scaled * A(invstd[c]);
}

template <class T, class M, class A>
__global__ void sums_columns(const T* g, const T* x, const M* mean, const M* invstd, A* dweight,
                             A* dbias, int images, int channels) {
    __shared__ A partial[BY][BX];
    const int c = blockIdx.x * BX + threadIdx.x;
    const bool live = c < channels;
    A plain = A(0), scaled = A(0);
    for (int n = threadIdx.y; live && n < images; n += BY) {
        const long long i = (long long)n * channels + c;
        plain += A(g[i]);
        scaled += A(g[i]) * (A(x[i]) - A(mean[c]));
    }
    plain = column_sum(plain, partial);
    scaled = column_sum(scaled, partial);
    if (threadIdx.y == 0 && live) dbias[c] = plain, dweight[c] = scaled * A(invstd[c]);
}

// Grid (C, parts): dweight and dbias (parts, C).
template <class T, class M, class A, int BLOCK>
__global__ void split_sums_planes(const T* g, const T* x, const M* mean, const M* invstd, A* dweight,
                                  A* dbias, int pieces, int span, int images, int channels,
                                  int size) {
    __shared__ A partial[32];
    const int c = blockIdx.x;
    const Part part(pieces, span, size);
    const A m = A(mean[c]);
    A plain = A(0), scaled = A(0);
    each_in_channel<BLOCK>(part, images, channels, size, c, [&](long long i) {
        const A gv = A(g[i]);
        plain += gv;
        scaled += gv * (A(x[i]) - m);
    });
    plain = block_sum<BLOCK>(plain, partial);
    scaled = block_sum<BLOCK>(scaled, partial);
    if (threadIdx.x > 0) return;
    dbias[blockIdx.y * (long long)channels + c] = plain;
    dweight[blockIdx.y * (long long)channels + c] = scaled * A(invstd[c]);
}

// Grid (tiles of C, parts): dweight and dbias (parts, C), each of `span` rows.
template <class T, class M, class A>
__global__ void split_sums_columns(const T* g, const T* x, const M* mean, const M* invstd, A* dweight,
                                   A* dbias, int pieces, int span, int images, int channels) {
    __shared__ A partial[BY][BX];
    const int c = blockIdx.x * BX + threadIdx.x, first = blockIdx.y * span;
    const int last = first + span < images ? first + span : images;
    const bool live = c < channels;
    A plain = A(0), scaled = A(0);
    for (int n = first + threadIdx.y; live && n < last; n += BY) {
        const long long i = (long long)n * channels + c;
        plain += A(g[i]);
        scaled += A(g[i]) * (A(x[i]) - A(mean[c]));
    }
    plain = column_sum(plain, partial);
    scaled = column_sum(scaled, partial);
    if (threadIdx.y > 0 || !live) return;
    dbias[blockIdx.y * (long long)channels + c] = plain;
    dweight[blockIdx.y * (long long)channels + c] = scaled * A(invstd[c]);
}

// PLANES and `size` as in `apply`; count: the elements of a channel.
template <class T, class M, class A, bool PLANES, bool WEIGHT>
__global__ void gradient(const T* __restrict__ g, const T* __restrict__ x, const M* mean,
                         const M* invstd, const T* weight, const A* dweight, const A* dbias,
                         A count, T* __restrict__ dx, int channels, int size) {
    constexpr int EACH = PLANES ? OF_PLANES : 1;
    long long at[EACH];
    A own[EACH], grads[EACH];
    int c;
    #pragma unroll
    for (int k = 0; k < EACH; ++k) {
        at[k] = PLANES ? in_planes(k, channels, size, c) : in_columns(size, channels, c);
        own[k] = at[k] < 0 ? A(0) : A(x[at[k]]);
        grads[k] = at[k] < 0 ? A(0) : A(g[at[k]]);
    }
    if (at[0] < 0) return;
    const A m = A(mean[c]), inv = A(invstd[c]), scale = WEIGHT ? inv * A(weight[c]) : inv;
    const A plain = dbias[c], scaled = dweight[c];
    #pragma unroll
    for (int k = 0; k < EACH; ++k) {
        const A xhat = (own[k] - m) * inv;
        if (at[k] >= 0) dx[at[k]] = T(scale * (grads[k] - (plain + xhat * scaled) / count));
    }
}

// Block (32, WARPS), grid (N * G,); g, x and dx (N * G, channels, size) for the channels of a group,
// mean and invstd (N * G,), weight (groups, channels), dweight and dbias (N * G, channels).
template <class T, class M, class A, bool WEIGHT, int WARPS>
__global__ void group_gradient(const T* __restrict__ g, const T* __restrict__ x, const M* mean,
                               const M* invstd, const T* weight, A* dweight, A* dbias,
                               T* __restrict__ dx, int groups, int channels, int size) {
    __shared__ A plain_part[WARPS], scaled_part[WARPS];
    const int lane = threadIdx.x, warp = threadIdx.y, row = blockIdx.x;
    const A m = A(mean[row]), inv = A(invstd[row]);
    const T* own_weight = weight + (WEIGHT ? row % groups * channels : 0);
    const long long first = (long long)row * channels;
    A plain = A(0), scaled = A(0);
    for (int d = warp; d < channels; d += WARPS) {
        const long long at = (first + d) * size;
        A own_plain = A(0), own_scaled = A(0);
        #pragma unroll 4
        for (int i = lane; i < size; i += 32) {
            const A gv = A(g[at + i]);
            own_plain += gv;
            own_scaled += gv * (A(x[at + i]) - m);
        }
        own_plain = warp_sum(own_plain);
        own_scaled = warp_sum(own_scaled) * inv;
        if (lane == 0) dbias[first + d] = own_plain, dweight[first + d] = own_scaled;
        const A factor = WEIGHT ? A(own_weight[d]) : A(1);
        plain += factor * own_plain;
        scaled += factor * own_scaled;
    }
    if (lane == 0) plain_part[warp] = plain, scaled_part[warp] = scaled;
    __syncthreads();
    plain = plain_part[0], scaled = scaled_part[0];
    for (int w = 1; w < WARPS; ++w) plain += plain_part[w], scaled += scaled_part[w];
    const A count = A((long long)channels * size);
    plain /= count;
    scaled /= count;
    for (int d = warp; d < channels; d += WARPS) {
        const long long at = (first + d) * size;
        const A factor = WEIGHT ? A(own_weight[d]) : A(1);
        #pragma unroll 4
        for (int i = lane; i < size; i += 32) {
            const A xhat = (A(x[at + i]) - m) * inv;
            dx[at + i] = T(inv * (factor * A(g[at + i]) - plain - xhat * scaled));
        }
    }
}
