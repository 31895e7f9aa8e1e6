// Convolution straight from its definition: the first versions of the ladder, and depthwise kernels.
//
// 1. direct_forward  one thread per result, neighbours along a row of the output
// 2. tiled_forward   a block copies its piece of x, with the halo, into shared memory once, and each
//                    thread keeps the results of several output channels, or of several rows
//    few_channels    a block keeps the halo of all input channels and multiplies it, as the right
//                    matrix of a product, by the weights of CHANNELS output channels after another
//    direct_data     one thread per element of dx, which gathers from every output that read it
//    direct_weight   one warp per element of dw: lanes along the output, summed by shuffles
//
// x (N, C, H, W), w (O, C / groups, KH, KW), y and g (N, O, OH, OW). Kernel size, stride and
// dilation are constants: their loops unroll.
#include "common.cuh"

struct Sizes {  // in this order in every kernel's parameters
    int channels, height, width;           // of x
    int out_channels, per_in;              // of w: outputs, inputs of a group
    int out_height, out_width;             // of y
    int groups, pad_h, pad_w;
};

template <class T, class A, int KH, int KW, int SH, int SW, int DH, int DW, bool BIAS>
__global__ void direct_forward(const T* x, const T* w, const T* bias, T* y, Sizes s) {
    const int n = blockIdx.x / s.out_channels, oc = blockIdx.x % s.out_channels;
    const int oh = blockIdx.y * blockDim.y + threadIdx.y;
    const int ow = blockIdx.z * blockDim.x + threadIdx.x;
    if (oh >= s.out_height || ow >= s.out_width) return;
    const int c0 = oc / (s.out_channels / s.groups) * s.per_in;
    A sum = BIAS ? A(bias[oc]) : A(0);
    for (int c = 0; c < s.per_in; ++c) {
        const T* plane = x + ((long long)n * s.channels + c0 + c) * s.height * s.width;
        const T* weight = w + ((long long)oc * s.per_in + c) * KH * KW;
        #pragma unroll
        for (int i = 0; i < KH; ++i) {
            const int h = oh * SH + i * DH - s.pad_h;
            #pragma unroll
            for (int j = 0; j < KW; ++j) {
                const int v = ow * SW + j * DW - s.pad_w;
                if (h >= 0 && h < s.height && v >= 0 && v < s.width) {
                    sum += A(weight[i * KW + j]) * A(plane[(long long)h * s.width + v]);
                }
            }
        }
    }
    y[((long long)blockIdx.x * s.out_height + oh) * s.out_width + ow] = T(sum);
}

// Block (TILE_W, TILE_H / ROWS): a thread computes ROWS results below one another. Grid images *
// groups * channel tiles * tiles: those of a plane after one another. With a stride the columns of
// the halo are brought together by its phases, so that neighbours read neighbours.
template <class T, class A, int KH, int KW, int SH, int SW, int DH, int DW, bool BIAS, int CHANNELS,
          int ROWS, int TILE_H, int TILE_W>
__global__ void tiled_forward(const T* x, const T* w, const T* bias, T* y, Sizes s) {
    constexpr int HALO_H = (TILE_H - 1) * SH + (KH - 1) * DH + 1;
    constexpr int PHASE_W = TILE_W + (KW - 1) * DW / SW, HALO_W = SW * PHASE_W;
    __shared__ A halo[HALO_H][HALO_W], loaded[HALO_H][HALO_W];
    const auto target = SW > 1 ? loaded : halo;
    const int tx = threadIdx.x, ty = threadIdx.y;
    const int per_group = s.out_channels / s.groups;
    const int across = (s.out_width + TILE_W - 1) / TILE_W;
    const int tiles = (s.out_height + TILE_H - 1) / TILE_H * across;
    const int parts = (per_group + CHANNELS - 1) / CHANNELS;
    const int tile = blockIdx.x % tiles, part = blockIdx.x / tiles;
    const int oh0 = tile / across * TILE_H, ow0 = tile % across * TILE_W;
    const int first = part % parts * CHANNELS;
    const int n = part / parts / s.groups, group = part / parts % s.groups;
    A sum[CHANNELS][ROWS] = {};
    for (int c = 0; c < s.per_in; ++c) {
        const long long channel = (long long)n * s.channels + group * s.per_in + c;
        const T* plane = x + channel * s.height * s.width;
        for (int i = ty; i < HALO_H; i += TILE_H / ROWS) {
            const int h = oh0 * SH + i - s.pad_h;
            for (int j = tx; j < HALO_W; j += TILE_W) {
                const int v = ow0 * SW + j - s.pad_w;
                const bool inside = h >= 0 && h < s.height && v >= 0 && v < s.width;
                target[i][j] = inside ? A(plane[(long long)h * s.width + v]) : A(0);
            }
        }
        __syncthreads();
        if (SW > 1) {
            for (int i = ty; i < HALO_H; i += TILE_H / ROWS) {
                for (int u = tx; u < PHASE_W; u += TILE_W) {
                    for (int p = 0; p < SW; ++p) halo[i][p * PHASE_W + u] = loaded[i][u * SW + p];
                }
            }
            __syncthreads();
        }
        for (int j = 0; j < KW; ++j) {
            const int v = j * DW % SW * PHASE_W + tx + j * DW / SW;
            for (int i = 0; i < KH; ++i) {
                #pragma unroll
                for (int o = 0; o < CHANNELS; ++o) {
                    const int last = per_group - 1, at = first + o < last ? first + o : last;
                    const long long oc = group * per_group + at;
                    const A weight = A(w[((oc * s.per_in + c) * KH + i) * KW + j]);
                    #pragma unroll
                    for (int r = 0; r < ROWS; ++r) {
                        sum[o][r] += weight * halo[(ty * ROWS + r) * SH + i * DH][v];
                    }
                }
            }
        }
        __syncthreads();
    }
    #pragma unroll
    for (int o = 0; o < CHANNELS; ++o) {
        if (first + o >= per_group) break;
        const long long oc = group * per_group + first + o;
        #pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            const int oh = oh0 + ty * ROWS + r, ow = ow0 + tx;
            if (oh >= s.out_height || ow >= s.out_width) continue;
            const long long row = (n * (long long)s.out_channels + oc) * s.out_height + oh;
            y[row * s.out_width + ow] = T(BIAS ? sum[o][r] + A(bias[oc]) : sum[o][r]);
        }
    }
}

// Block (TILE_W, CHANNELS): TILE_H x TILE_W outputs of all channels of one group; grid images *
// groups * tiles. In the halo a column lies behind those of the same phase of the stride; a table
// has the place of each term.
template <class T, class A, int KH, int KW, int SH, int SW, int DH, int DW, bool BIAS, int READ,
          int TILE_H, int TILE_W, int CHANNELS>
__global__ void few_channels(const T* x, const T* w, const T* bias, T* y, Sizes s) {
    constexpr int TERMS = READ * KH * KW, HALO_H = (TILE_H - 1) * SH + (KH - 1) * DH + 1;
    constexpr int PHASE_W = TILE_W + (KW - 1) * DW / SW, HALO_W = SW * PHASE_W;
    __shared__ A halo[READ * HALO_H * HALO_W], factors[CHANNELS][TERMS];
    __shared__ unsigned places[TERMS];
    const int tx = threadIdx.x, ty = threadIdx.y, written = s.out_channels / s.groups;
    const int across = (s.out_width + TILE_W - 1) / TILE_W;
    const int tiles = (s.out_height + TILE_H - 1) / TILE_H * across;
    const int tile = blockIdx.x % tiles, group = blockIdx.x / tiles % s.groups;
    const int oh0 = tile / across * TILE_H, ow0 = tile % across * TILE_W;
    const long long n = blockIdx.x / tiles / s.groups;
    x += (n * s.channels + group * READ) * s.height * s.width;
    for (int t = ty * TILE_W + tx; t < TERMS; t += TILE_W * CHANNELS) {
        const int row = t / (KH * KW) * HALO_H + t / KW % KH * DH, j = t % KW * DW;
        places[t] = row * HALO_W + j % SW * PHASE_W + j / SW;
    }
    for (int line = ty; line < READ * HALO_H; line += CHANNELS) {
        const int h = oh0 * SH + line % HALO_H - s.pad_h;
        const T* row = x + ((long long)(line / HALO_H) * s.height + h) * s.width;
        for (int phase = 0; phase < SW; ++phase) {
            for (int u = tx; u < PHASE_W; u += TILE_W) {
                const int v = (ow0 + u) * SW + phase - s.pad_w;
                const bool inside = h >= 0 && h < s.height && v >= 0 && v < s.width;
                halo[line * HALO_W + phase * PHASE_W + u] = inside ? A(row[v]) : A(0);
            }
        }
    }
    for (int first = 0; first < written; first += CHANNELS) {
        const bool has_own = first + ty < written;
        const int oc = group * written + first + ty;
        for (int t = tx; t < TERMS; t += TILE_W) {
            factors[ty][t] = has_own ? A(w[(long long)oc * TERMS + t]) : A(0);
        }
        __syncthreads();
        for (int r = 0; r < TILE_H; ++r) {
            A sum = A(0);
            for (int t = 0; t < TERMS; ++t) {
                sum += factors[ty][t] * halo[places[t] + r * (SH * HALO_W) + tx];
            }
            if (has_own && oh0 + r < s.out_height && ow0 + tx < s.out_width) {
                const long long row = (n * s.out_channels + oc) * s.out_height + oh0 + r;
                y[row * s.out_width + ow0 + tx] = T(BIAS ? sum + A(bias[oc]) : sum);
            }
        }
        __syncthreads();
    }
}

struct PlaneSizes {
    int height, width, out_channels, out_height, out_width, written;  // written: outputs of a channel
    int count, row, lead_h, lead_w;  // elements of the plane and of its rows; where x begins in it
};

// Block z: y[z] from the plane x[z / written], of at most SIZE elements. A position has a result for
// each of PH x PW phases, which lie side by side in y: w (O * phases, taps).
template <class T, class A, int KH, int KW, int PH, int PW, int SH, int SW, int DH, int DW,
          bool BIAS, int SIZE>
__global__ void plane_forward(const T* x, const T* w, const T* bias, T* y, PlaneSizes s) {
    __shared__ A plane[SIZE], sums[PH][PW * SIZE];
    const int tx = threadIdx.x, ty = threadIdx.y, step = blockDim.x * blockDim.y;
    const int first = ty * blockDim.x + tx, channel = blockIdx.x % s.out_channels;
    x += blockIdx.x / s.written * (long long)s.height * s.width;
    y += blockIdx.x * (long long)s.out_height * s.out_width;
    w += channel * (PH * PW * KH * KW);
    for (int q = first; q < s.count; q += step) plane[q] = A(0);
    __syncthreads();
    for (int h = ty; h < s.height; h += blockDim.y) {
        A* row = plane + (s.lead_h + h) * s.row + s.lead_w;
        for (int u = tx; u < s.width; u += blockDim.x) row[u] = A(x[h * s.width + u]);
    }
    __syncthreads();
    for (int q = first; q < s.count - (KH - 1) * DH * s.row - (KW - 1) * DW; q += step) {
        #pragma unroll
        for (int phase = 0; phase < PH * PW; ++phase) {
            A total = BIAS ? A(bias[channel]) : A(0);
            #pragma unroll
            for (int i = 0; i < KH; ++i) {
                #pragma unroll
                for (int j = 0; j < KW; ++j) {
                    const A weight = A(w[(phase * KH + i) * KW + j]);
                    total += weight * plane[q + i * DH * s.row + j * DW];
                }
            }
            sums[phase / PW][q * PW + phase % PW] = total;
        }
    }
    __syncthreads();
    for (int h = ty; h < s.out_height; h += blockDim.y) {
        const A* row = sums[h % PH] + h / PH * (SH * PW) * s.row;
        for (int u = tx; u < s.out_width; u += blockDim.x) y[h * s.out_width + u] = T(row[u * SW]);
    }
}

// One warp: dw[channel] (taps) of x (images * channels, H, W) and g (the same, OH, OW). The planes as
// in plane_forward, with the elements of g a stride apart.
template <class T, class A, int KH, int KW, int SH, int SW, int DH, int DW, int SIZE>
__global__ void plane_weight(const T* x, const T* g, T* dw, int planes, PlaneSizes s) {
    __shared__ A plane[SIZE], slopes[SIZE];
    const int lane = threadIdx.x, channel = blockIdx.x;
    A sum[KH * KW] = {};
    for (int q = lane; q < s.count; q += 32) plane[q] = slopes[q] = A(0);
    for (int z = channel; z < planes; z += s.out_channels) {
        const T* from = x + (long long)z * s.height * s.width;
        const T* gradient = g + (long long)z * s.out_height * s.out_width;
        __syncthreads();
        for (int h = 0; h < s.height; ++h) {
            A* row = plane + (s.lead_h + h) * s.row + s.lead_w;
            for (int u = lane; u < s.width; u += 32) row[u] = A(from[h * s.width + u]);
        }
        for (int h = 0; h < s.out_height; ++h) {
            A* row = slopes + h * SH * s.row;
            for (int u = lane; u < s.out_width; u += 32) {
                row[u * SW] = A(gradient[h * s.out_width + u]);
            }
        }
        __syncthreads();
        for (int q = lane; q < s.count - (KH - 1) * DH * s.row - (KW - 1) * DW; q += 32) {
            #pragma unroll
            for (int i = 0; i < KH; ++i) {
                #pragma unroll
                for (int j = 0; j < KW; ++j) {
                    sum[i * KW + j] += slopes[q] * plane[q + i * DH * s.row + j * DW];
                }
            }
        }
    }
    #pragma unroll
    for (int t = 0; t < KH * KW; ++t) {
        const A total = warp_sum(sum[t]);
        if (lane == 0) dw[channel * (KH * KW) + t] = T(total);
    }
}

// Grid (images * channels, row tiles, column tiles) of dx.
template <class T, class A, int KH, int KW, int SH, int SW, int DH, int DW>
__global__ void direct_data(const T* g, const T* w, T* dx, Sizes s) {
    const int n = blockIdx.x / s.channels, c = blockIdx.x % s.channels;
    const int h = blockIdx.y * blockDim.y + threadIdx.y;
    const int v = blockIdx.z * blockDim.x + threadIdx.x;
    if (h >= s.height || v >= s.width) return;
    const int per_out = s.out_channels / s.groups, o0 = c / s.per_in * per_out;
    A sum = A(0);
    for (int o = o0; o < o0 + per_out; ++o) {
        const long long plane = ((long long)n * s.out_channels + o) * s.out_height;
        const T* weight = w + ((long long)o * s.per_in + c % s.per_in) * KH * KW;
        #pragma unroll
        for (int i = 0; i < KH; ++i) {
            const int top = h + s.pad_h - i * DH, oh = top / SH;
            if (top < 0 || oh * SH != top || oh >= s.out_height) continue;
            #pragma unroll
            for (int j = 0; j < KW; ++j) {
                const int left = v + s.pad_w - j * DW, ow = left / SW;
                if (left < 0 || ow * SW != left || ow >= s.out_width) continue;
                sum += A(weight[i * KW + j]) * A(g[(plane + oh) * s.out_width + ow]);
            }
        }
    }
    dx[((long long)blockIdx.x * s.height + h) * s.width + v] = T(sum);
}

// Block 32, grid (output channels, input channels of a group, kernel elements) of dw.
template <class T, class A, int SH, int SW, int DH, int DW>
__global__ void direct_weight(const T* g, const T* x, T* dw, int images, int kernel_w, Sizes s) {
    const int oc = blockIdx.x, ic = blockIdx.y, lane = threadIdx.x;
    const int i = blockIdx.z / kernel_w, j = blockIdx.z % kernel_w;
    const int c = oc / (s.out_channels / s.groups) * s.per_in + ic;
    A sum = A(0);
    for (int n = 0; n < images; ++n) {
        const T* plane = x + ((long long)n * s.channels + c) * s.height * s.width;
        const T* gradient = g + ((long long)n * s.out_channels + oc) * s.out_height * s.out_width;
        for (int oh = 0; oh < s.out_height; ++oh) {
            const int h = oh * SH + i * DH - s.pad_h;
            if (h < 0 || h >= s.height) continue;
            for (int ow = lane; ow < s.out_width; ow += 32) {
                const int v = ow * SW + j * DW - s.pad_w;
                if (v < 0 || v >= s.width) continue;
                sum += A(gradient[(long long)oh * s.out_width + ow]) *
                       A(plane[(long long)h * s.width + v]);
            }
        }
    }
    sum = warp_sum(sum);
    if (lane == 0) dw[((long long)oc * s.per_in + ic) * gridDim.z + blockIdx.z] = T(sum);
}
