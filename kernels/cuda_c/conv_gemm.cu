// Convolution as a matrix product whose right operand is never built (implicit GEMM).
//
// For image n and group g the result is y[oc, q] = sum_k w[oc, k] * col[k, q], where k = (ic, kh, kw)
// and q is an output pixel. In a plane that is padded already, with rows of `width` elements, let
// q = oh * width + ow run over padded positions: then col[k, q] = planes[offset[k] + q], neighbours q
// read neighbours in memory, and a table `offset` of K integers says all there is to say about
// kernel, dilation and channel. The few q with ow >= OW are computed and not stored. A stride s
// splits the plane into s * s phases, each of which is a plane with stride 1. In backward-data the
// phases of dx are so many output channels, with zeros for the weights that do not reach them.
//
//   pad             x -> planes: padding, phases of a stride
//   implicit_gemm   the product, RM x RN results a thread as in matmul.cu; forward, and backward-data
//                   (a convolution of the padded gradient)
//   swap_channels   w (groups * O, C, taps) -> (groups * C, phases, O, shifts), for backward-data
//   weight_gradient dw[oc, k] = sum_(n, q) g[oc, q] * planes[offset[k] + q]: the lanes of a block
//                   run along q, each keeps an RM x RN tile of sums, and are added up last
#include "matmul.cuh"

// planes[(image, channel), phase, t, u] from x (channels, H, W), where `channels` counts those of
// all images. Padded coordinate i = t * SUB + phase holds x[i - lead] where that is an index. Planes
// after the last channel are zeros: room to read past the end.
template <class T, class A, int SUB_H, int SUB_W>
__global__ void pad(const T* x, A* planes, long long all_rows, int channels, int height, int x_width,
                    int rows, int width, int lead_h, int lead_w) {
    constexpr int PHASES = SUB_H * SUB_W;
    const long long row = blockIdx.x * (long long)blockDim.y + threadIdx.y;
    if (row >= all_rows) return;
    const int t = row % rows, phase = row / rows % PHASES;
    const long long channel = row / ((long long)rows * PHASES);
    const int h = t * SUB_H + phase / SUB_W - lead_h;
    const bool live = channel < channels && h >= 0 && h < height;
    const T* from = x + (channel * height + h) * x_width;
    for (int u = blockIdx.y * blockDim.x + threadIdx.x; u < width; u += gridDim.y * blockDim.x) {
        const int v = u * SUB_W + phase % SUB_W - lead_w;
        planes[row * width + u] = live && v >= 0 && v < x_width ? A(from[v]) : A(0);
    }
}

// One block, (BX, BY) threads: BY * RM output channels x BX * RN positions of one group of one
// image. w (groups * channels, terms); planes flat, `image` elements apart per (image, group);
// y (images * groups * channels, OH * OW). `offset` is padded to a multiple of TK.
// SPLIT: blockIdx.z takes `span` terms, a multiple of TK, and y has its rows for each.
template <class T, class P, class U, class A, int BX, int BY, int RM, int RN, int TK, bool BIAS,
          bool SPLIT>
__global__ void __launch_bounds__(BX * BY)
implicit_gemm(const T* w, const P* planes, const unsigned* offset, const T* bias, U* y, int channels,
              int terms, int groups, long long image, int positions, int width, int out_w, int span,
              int pixels) {
    constexpr int TM = BY * RM, TN = BX * RN, THREADS = BX * BY, W = 16 / sizeof(A);
    __shared__ __align__(16) A w_tile[TK][TM + W];
    __shared__ __align__(16) A p_tile[TK][TN];
    const int tx = threadIdx.x, ty = threadIdx.y, t = ty * BX + tx;
    const int tiles = (positions + TN - 1) / TN;
    const long long z = blockIdx.x / tiles;
    const int q0 = blockIdx.x % tiles * TN, c0 = blockIdx.y * TM;
    const int w0 = z % groups * channels;
    const T* weights = w + (long long)w0 * terms;
    const P* base = planes + z * image + q0;
    A sum[RN][RM] = {};
    const int first = SPLIT ? blockIdx.z * span : 0;
    const int last = SPLIT && terms - first > span ? first + span : terms;
    for (int k0 = first; k0 < last; k0 += TK) {
        load_tile<TM, TK, THREADS, true>(w_tile, weights, c0, k0, channels, terms, t);
        for (int i = ty; i < TK; i += BY) {
            const P* start = base + offset[k0 + i];
            const int live = k0 + i < terms ? positions - q0 : 0;
            for (int q = tx; q < TN; q += BX) p_tile[i][q] = q < live ? A(start[q]) : A(0);
        }
        __syncthreads();
#ifdef MINIGRAD_ON_CPU
        multiply_tiles<W, W>(sum, p_tile, w_tile, tx * RN, ty * RM);
#else
        // The next terms are loaded while these are multiplied, and threads' columns are packs of 16
        // bytes side by side: no two threads of a warp want the same bank of shared memory.
        static_assert(RN % W == 0, "whole packs");
        #pragma unroll 8
        for (int i = 0; i < TK; ++i) {
            #pragma unroll
            for (int q = 0; q < RN; ++q) {
                const A value = p_tile[i][q / W * W * BX + tx * W + q % W];
                #pragma unroll
                for (int r = 0; r < RM; ++r) sum[q][r] += w_tile[i][ty * RM + r] * value;
            }
        }
#endif
        __syncthreads();
    }
    const long long zo = SPLIT ? (long long)blockIdx.z * (gridDim.x / tiles) + z : z;
#ifdef MINIGRAD_ON_CPU
    for (int q = 0; q < RN; ++q) {
        const int at = q0 + tx * RN + q, oh = at / width, ow = at % width;
#else
    #pragma unroll
    for (int q = 0; q < RN; ++q) {
        const int at = q0 + q / W * W * BX + tx * W + q % W, oh = at / width, ow = at % width;
#endif
        if (at >= positions || ow >= out_w) continue;
        #pragma unroll
        for (int r = 0; r < RM; ++r) {
            const int c = c0 + ty * RM + r;
            if (c >= channels) continue;
            const bool biased = BIAS && (!SPLIT || blockIdx.z == 0);
            const A value = biased ? sum[q][r] + A(bias[w0 + c]) : sum[q][r];
            y[(zo * channels + c) * pixels + oh * out_w + ow] = U(value);
        }
    }
}

// A thread a pair of channels; w (outs, ins, count), swapped (groups * ins, phases, per_out, shifts).
// taps (phases, shifts) is the tap of each phase and shift; -1 where there is none.
template <class T>
__global__ void swap_channels(const T* w, const int* taps, T* swapped, int outs, int ins, int count,
                              int per_out, int phases, int shifts) {
    const int c = blockIdx.x * blockDim.x + threadIdx.x;
    const int o = blockIdx.y * blockDim.y + threadIdx.y;
    if (o >= outs || c >= ins) return;
    const T* from = w + ((long long)o * ins + c) * count;
    for (int phase = 0; phase < phases; ++phase) {
        const long long row = ((long long)o / per_out * ins + c) * phases + phase;
        T* to = swapped + (row * per_out + o % per_out) * shifts;
        for (int shift = 0; shift < shifts; ++shift) {
            const int tap = taps[phase * shifts + shift];
            to[shift] = tap >= 0 ? from[tap] : T(0);
        }
    }
}

// One block, (BX, BY) threads: RM output channels x BY * RN taps of one group, over every
// `splits`-th image. g flat, (images * groups * channels, positions); planes flat, `image` elements
// apart per (image, group); dw (splits, groups * channels, terms). blockIdx.z = (split, group).
// `offset` is padded to a multiple of BY * RN. A step takes up to SPAN
// positions.
template <class A, int BX, int BY, int RM, int RN, int SPAN>
__global__ void __launch_bounds__(BX * BY)
weight_gradient(const A* g, const A* planes, const unsigned* offset, A* dw, int splits, int channels,
                int terms, int images, int groups, long long image, int positions) {
    __shared__ A g_tile[SPAN][RM + 1];
    __shared__ A lanes[BY][RN][BX];
    const int tx = threadIdx.x, ty = threadIdx.y;
    const int split = blockIdx.z / groups, group = blockIdx.z % groups;
    const int c0 = blockIdx.y * RM, k0 = (blockIdx.x * BY + ty) * RN;
    const A* start[RN];
    A sum[RN][RM] = {};
    for (int n = split; n < images; n += splits) {
        const long long z = (long long)n * groups + group;
        for (int q0 = 0; q0 < positions; q0 += SPAN) {
            const int span = positions - q0 < SPAN ? positions - q0 : SPAN;
            for (int r = ty; r < RM; r += BY) {
                const A* row = g + (z * channels + c0 + r) * positions + q0;
                const bool live = c0 + r < channels;
                for (int q = tx; q < span; q += BX) g_tile[q][r] = live ? row[q] : A(0);
            }
            __syncthreads();
            #pragma unroll
            for (int j = 0; j < RN; ++j) start[j] = planes + z * image + q0 + offset[k0 + j];
            #pragma unroll 4
            for (int q = tx; q < span; q += BX) {
                A gv[RM], pv[RN];
                #pragma unroll
                for (int r = 0; r < RM; ++r) gv[r] = g_tile[q][r];
                #pragma unroll
                for (int j = 0; j < RN; ++j) pv[j] = start[j][q];
                #pragma unroll
                for (int j = 0; j < RN; ++j) {
                    #pragma unroll
                    for (int r = 0; r < RM; ++r) sum[j][r] += gv[r] * pv[j];
                }
            }
            __syncthreads();
        }
    }
    #pragma unroll
    for (int r = 0; r < RM; ++r) {
        #pragma unroll
        for (int j = 0; j < RN; ++j) lanes[ty][j][tx] = sum[j][r];
        __syncthreads();
        for (int j = tx; j < RN; j += BX) {
            if (k0 + j >= terms || c0 + r >= channels) continue;
            A total = A(0);
            for (int lane = 0; lane < BX; ++lane) total += lanes[ty][j][lane];
            dw[((long long)split * groups * channels + group * channels + c0 + r) * terms + k0 + j] =
                total;
        }
        __syncthreads();
    }
}
