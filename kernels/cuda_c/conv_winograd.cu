// Convolution with kernels of 3 x 3 by fewer multiplications: Winograd's minimal filtering.
//
// Two neighbouring results of three taps g take four multiplications, not six (S. Winograd,
// "Arithmetic complexity of computations", 1980; F(2, 3)):
//
//     m0 = (d0 - d2) g0                      y0 = m0 + m1 + m2
//     m1 = (d1 + d2) (g0 + g1 + g2) / 2      y1 = m1 - m2 - m3
//     m2 = (d2 - d1) (g0 - g1 + g2) / 2
//     m3 = (d1 - d3) g2
//
// so a tile of 2 x 2 results takes 16, not 36. The sums over channels come before y: a convolution
// is 16 matrix products, one for each pair of an m down and an m across (A. Lavin and S. Gray, "Fast
// algorithms for convolutional neural networks", 2016).
//
//   weights    w (O, C, 3, 3) -> u (16, O, C)
//   inputs     planes -> v (16, C, tiles), of windows of 4 x 4, two apart
//   outputs    m = u @ v (16, O, tiles) -> y
//
// For backward-data the gradient is convolved with the filters turned. For backward-weight each step
// is taken back, the last one first:
//
//   gradients  planes of g -> d (16, O, tiles)
//   filters    d @ v.T (16, O, C) -> dw
//
// Planes are split by even and odd rows and columns (conv_gemm.cu: pad), so that neighbouring tiles
// read neighbouring elements, over the ends of rows: the last tile of a row has no results.

template <class A>
__device__ __forceinline__ void of_taps(A g0, A g1, A g2, A* m) {
    const A ends = A(0.5) * (g0 + g2), middle = A(0.5) * g1;
    m[0] = g0, m[1] = ends + middle, m[2] = ends - middle, m[3] = g2;
}

template <class A>
__device__ __forceinline__ void of_window(const A* d, A* m) {
    m[0] = d[0] - d[2], m[1] = d[1] + d[2], m[2] = d[2] - d[1], m[3] = d[1] - d[3];
}

template <class A>
__device__ __forceinline__ void of_gradients(A g0, A g1, A* m) {
    m[0] = g0, m[1] = g0 + g1, m[2] = g0 - g1, m[3] = -g1;
}

template <class A>
__device__ __forceinline__ void taps(const A* m, A* g) {
    const A ends = A(0.5) * (m[1] + m[2]);
    g[0] = m[0] + ends, g[1] = A(0.5) * (m[1] - m[2]), g[2] = ends + m[3];
}

// A thread makes u[:, row, column] of a filter of w (O, C, 9), TURNED by 180 degrees for
// backward-data; row and column are O and C, then C and O.
template <class A, bool TURNED, int BLOCK>
__global__ void weights(const A* w, A* u, int rows, int columns) {
    const int column = blockIdx.x * BLOCK + threadIdx.x, row = blockIdx.y;
    if (column >= columns) return;
    const long long filter = TURNED ? (long long)column * rows + row : (long long)row * columns + column;
    const A* g = w + filter * 9 + (TURNED ? 8 : 0);
    constexpr int STEP = TURNED ? -1 : 1;
    A down[3][4];
    #pragma unroll
    for (int j = 0; j < 3; ++j) of_taps(g[j * STEP], g[(j + 3) * STEP], g[(j + 6) * STEP], down[j]);
    A* to = u + (long long)row * columns + column;
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
        A m[4];
        of_taps(down[0][i], down[1][i], down[2][i], m);
        #pragma unroll
        for (int j = 0; j < 4; ++j) to[(4 * i + j) * ((long long)rows * columns)] = m[j];
    }
}

// Grid (tiles, channels, images): a thread makes v[:, channel, image * count + tile] of the `count`
// tiles from the tile `first` on; v has `tiles` columns. planes: for each image and channel four
// phases of `plane` elements, in rows of `width`.
template <class A>
__global__ void inputs(const A* planes, A* v, long long tiles, long long plane, int width, int first,
                       int count) {
    const int tile = blockIdx.x * blockDim.x + threadIdx.x, channel = blockIdx.y;
    if (tile >= count) return;
    const int channels = gridDim.y;
    const A* base = planes + ((long long)blockIdx.z * channels + channel) * 4 * plane + first + tile;
    A down[4][4];
    #pragma unroll
    for (int j = 0; j < 4; ++j) {
        const A* even = base + j % 2 * plane + j / 2;
        const A* odd = even + 2 * plane;
        const A d[4] = {even[0], odd[0], even[width], odd[width]};
        of_window(d, down[j]);
    }
    A* to = v + channel * tiles + (long long)blockIdx.z * count + tile;
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
        const A d[4] = {down[0][i], down[1][i], down[2][i], down[3][i]};
        A m[4];
        of_window(d, m);
        #pragma unroll
        for (int j = 0; j < 4; ++j) to[(4 * i + j) * (channels * tiles)] = m[j];
    }
}

// Grid (tiles, channels, images): y[image, channel] of `count` tiles from the tile `first` on.
// Results lie in shared memory first, where neighbours have tables of their own, so that a warp
// writes neighbours. m has `tiles` columns, y planes of height x columns.
template <class A, bool BIAS, int BLOCK>
__global__ void outputs(const A* m, const A* bias, A* y, long long tiles, int height, int columns,
                        int width, int first, int count) {
    __shared__ A results[2][2][BLOCK];
    const int channel = blockIdx.y, channels = gridDim.y, own = blockIdx.x * BLOCK, tx = threadIdx.x;
    const A more = BIAS ? bias[channel] : A(0);
    if (own + tx < count) {
        const A* from = m + channel * tiles + (long long)blockIdx.z * count + own + tx;
        A down[2][4];
        #pragma unroll
        for (int j = 0; j < 4; ++j) {
            A part[4];
            #pragma unroll
            for (int i = 0; i < 4; ++i) part[i] = from[(4 * i + j) * (channels * tiles)];
            down[0][j] = part[0] + part[1] + part[2];
            down[1][j] = part[1] - part[2] - part[3];
        }
        #pragma unroll
        for (int i = 0; i < 2; ++i) {
            results[i][0][tx] = down[i][0] + down[i][1] + down[i][2] + more;
            results[i][1][tx] = down[i][1] - down[i][2] - down[i][3] + more;
        }
    }
    __syncthreads();
    const int start = first + own, end = first + min(own + BLOCK, count);
    y += ((long long)blockIdx.z * channels + channel) * height * columns;
    for (int row = start / width; row * width < end; ++row) {
        const int before = row * width, left = max(start - before, 0);
        const int right = min(2 * min(end - before, width - 1), columns);
        for (int i = 0; i < min(2, height - 2 * row); ++i) {
            for (int j = 2 * left + tx; j < right; j += BLOCK) {
                y[(2 * row + i) * (long long)columns + j] = results[i][j % 2][before + j / 2 - start];
            }
        }
    }
}

// As `inputs`, of planes of g with zeros where there is no result, to d.
template <class A>
__global__ void gradients(const A* planes, A* d, long long tiles, long long plane, int first,
                          int count) {
    const int tile = blockIdx.x * blockDim.x + threadIdx.x, channel = blockIdx.y;
    if (tile >= count) return;
    const int channels = gridDim.y;
    const A* base = planes + ((long long)blockIdx.z * channels + channel) * 4 * plane + first + tile;
    A down[2][4];
    #pragma unroll
    for (int j = 0; j < 2; ++j) of_gradients(base[j * plane], base[(j + 2) * plane], down[j]);
    A* to = d + channel * tiles + (long long)blockIdx.z * count + tile;
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
        A m[4];
        of_gradients(down[0][i], down[1][i], m);
        #pragma unroll
        for (int j = 0; j < 4; ++j) to[(4 * i + j) * (channels * tiles)] = m[j];
    }
}

// Grid (C tiles, O): dw (O, C, 9) from m (16, O, C), by way of shared memory, so that a warp writes
// neighbours.
template <class A, int BLOCK>
__global__ void filters(const A* m, A* dw, int outputs, int channels) {
    __shared__ A result[BLOCK][9];
    const int c0 = blockIdx.x * BLOCK, c = c0 + threadIdx.x, o = blockIdx.y;
    const long long apart = (long long)outputs * channels;
    if (c < channels) {
        const A* from = m + (long long)o * channels + c;
        A down[4][3], part[4];
        #pragma unroll
        for (int j = 0; j < 4; ++j) {
            #pragma unroll
            for (int i = 0; i < 4; ++i) part[i] = from[(4 * i + j) * apart];
            taps(part, down[j]);
        }
        #pragma unroll
        for (int i = 0; i < 3; ++i) {
            #pragma unroll
            for (int j = 0; j < 4; ++j) part[j] = down[j][i];
            taps(part, result[threadIdx.x] + 3 * i);
        }
    }
    __syncthreads();
    dw += ((long long)o * channels + c0) * 9;
    const int live = min(BLOCK, channels - c0) * 9;
    for (int k = threadIdx.x; k < live; k += BLOCK) dw[k] = result[k / 9][k % 9];
}
