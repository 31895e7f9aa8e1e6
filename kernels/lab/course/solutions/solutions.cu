// Solutions of the exercises in CUDA C. Try yours first.

#include <cooperative_groups.h>
#include <cuda_fp16.h>
#include <math_constants.h>
#include <mma.h>

#define FULL 0xffffffffu
#define LOWEST -3e38f  // less than every score; unlike -inf, it can be subtracted from itself

// The sum of what 64 threads stored in `tile`.
__device__ float sum_of_64(float* tile, int t) {
    for (int step = 32; step; step /= 2) {
        if (t < step) tile[t] += tile[t + step];
        __syncthreads();
    }
    float result = tile[0];
    __syncthreads();  // before anyone writes to the tile again
    return result;
}

__global__ void add_ten(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[i] + 10;
}

__global__ void saxpy(float a, const float* x, const float* y, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = a * x[i] + y[i];
}

__global__ void reverse(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[n - 1 - i] = x[i];
}

__global__ void multiply_2d(const float* a, const float* b, float* out, int rows, int columns) {
    int j = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y * blockDim.y + threadIdx.y;
    if (i < rows && j < columns) out[i * columns + j] = a[i * columns + j] * b[i * columns + j];
}

__global__ void outer_sum(const float* row, const float* column, float* out, int rows,
                          int columns) {
    int j = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y * blockDim.y + threadIdx.y;
    if (i < rows && j < columns) out[i * columns + j] = column[i] + row[j];
}

__global__ void square_strided(const float* x, float* out, int n) {
    int first = blockIdx.x * blockDim.x + threadIdx.x;
    for (int i = first; i < n; i += gridDim.x * blockDim.x) {
        float value = x[i];
        out[i] = value * value;
    }
}

__global__ void split_points(const float* points, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        for (int axis = 0; axis < 3; axis++) out[axis * n + i] = points[3 * i + axis];
}

__global__ void gather(const float* x, const long long* index, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[index[i]];
}

__global__ void histogram(const long long* x, long long* counts, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd((unsigned long long*)&counts[x[i]], 1ull);
}

__global__ void reverse_blocks(const float* x, float* out) {
    __shared__ float tile[64];
    int t = threadIdx.x, i = blockIdx.x * 64 + t;
    tile[t] = x[i];
    __syncthreads();
    out[i] = tile[63 - t];
}

__global__ void stencil(const float* x, float* out, int n) {
    __shared__ float tile[66];
    int t = threadIdx.x, i = blockIdx.x * 64 + t;
    tile[t + 1] = i < n ? x[i] : 0;
    if (t == 0) tile[0] = i > 0 ? x[i - 1] : 0;
    if (t == 63) tile[65] = i + 1 < n ? x[i + 1] : 0;
    __syncthreads();
    if (i < n) out[i] = tile[t] + tile[t + 1] + tile[t + 2];
}

__global__ void transpose(const float* x, float* out, int rows, int columns) {
    __shared__ float tile[32][33];
    int tx = threadIdx.x, ty = threadIdx.y, row = blockIdx.y * 32, column = blockIdx.x * 32;
    if (row + ty < rows && column + tx < columns)
        tile[ty][tx] = x[(row + ty) * columns + column + tx];
    __syncthreads();
    if (column + ty < columns && row + tx < rows)
        out[(column + ty) * rows + row + tx] = tile[tx][ty];
}

__global__ void block_sum(const float* x, float* out, int n) {
    __shared__ float tile[128];
    int t = threadIdx.x, i = blockIdx.x * 128 + t;
    tile[t] = i < n ? x[i] : 0;
    __syncthreads();
    for (int step = 64; step; step /= 2) {
        if (t < step) tile[t] += tile[t + step];
        __syncthreads();
    }
    if (t == 0) out[blockIdx.x] = tile[0];
}

__global__ void warp_sum(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float value = i < n ? x[i] : 0;
    for (int step = 16; step; step /= 2) value += __shfl_down_sync(FULL, value, step);
    if (threadIdx.x % 32 == 0) atomicAdd(out, value);
}

__global__ void scan(const float* x, float* out, int n) {
    __shared__ float tile[128];
    int t = threadIdx.x;
    tile[t] = t < n ? x[t] : 0;
    __syncthreads();
    for (int step = 1; step < 128; step *= 2) {
        float value = t >= step ? tile[t] + tile[t - step] : tile[t];
        __syncthreads();
        tile[t] = value;
        __syncthreads();
    }
    if (t < n) out[t] = tile[t];
}

__global__ void matmul(const float* a, const float* b, float* out, int m, int k, int n) {
    int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= m || column >= n) return;
    float total = 0;
    for (int l = 0; l < k; l++) total += a[row * k + l] * b[l * n + column];
    out[row * n + column] = total;
}

__global__ void matmul_tiled(const float* a, const float* b, float* out, int m, int k, int n) {
    __shared__ float a_tile[16][16], b_tile[16][16];
    int tx = threadIdx.x, ty = threadIdx.y;
    int row = blockIdx.y * 16 + ty, column = blockIdx.x * 16 + tx;
    float total = 0;
    for (int first = 0; first < k; first += 16) {
        a_tile[ty][tx] = row < m && first + tx < k ? a[row * k + first + tx] : 0;
        b_tile[ty][tx] = first + ty < k && column < n ? b[(first + ty) * n + column] : 0;
        __syncthreads();
        for (int j = 0; j < 16; j++) total += a_tile[ty][j] * b_tile[j][tx];
        __syncthreads();
    }
    if (row < m && column < n) out[row * n + column] = total;
}

__global__ void relu(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = fmaxf(x[i], 0);
}

__global__ void relu_backward(const float* g, const float* y, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = y[i] > 0 ? g[i] : 0;
}

__global__ void softmax(const float* x, float* out, int rows, int columns) {
    __shared__ float tile[64];
    int t = threadIdx.x;
    x += blockIdx.x * columns;
    out += blockIdx.x * columns;
    float top = LOWEST, total = 0;
    for (int j = t; j < columns; j += 64) top = fmaxf(top, x[j]);
    tile[t] = top;
    __syncthreads();
    for (int step = 32; step; step /= 2) {
        if (t < step) tile[t] = fmaxf(tile[t], tile[t + step]);
        __syncthreads();
    }
    top = tile[0];
    __syncthreads();
    for (int j = t; j < columns; j += 64) total += expf(x[j] - top);
    tile[t] = total;
    __syncthreads();
    total = sum_of_64(tile, t);
    for (int j = t; j < columns; j += 64) out[j] = expf(x[j] - top) / total;
}

__global__ void layer_norm(const float* x, float* out, int rows, int columns) {
    __shared__ float tile[64];
    int t = threadIdx.x;
    x += blockIdx.x * columns;
    out += blockIdx.x * columns;
    float total = 0;
    for (int j = t; j < columns; j += 64) total += x[j];
    tile[t] = total;
    __syncthreads();
    float mean = sum_of_64(tile, t) / columns;
    total = 0;
    for (int j = t; j < columns; j += 64) {
        float difference = x[j] - mean;
        total += difference * difference;
    }
    tile[t] = total;
    __syncthreads();
    float scale = 1 / sqrtf(sum_of_64(tile, t) / columns + 1e-5f);
    for (int j = t; j < columns; j += 64) out[j] = (x[j] - mean) * scale;
}

__global__ void cross_entropy(const float* logits, const long long* target, float* out, int rows,
                              int columns) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= rows) return;
    const float* row = logits + i * columns;
    float top = row[0], total = 0;
    for (int j = 1; j < columns; j++) top = fmaxf(top, row[j]);
    for (int j = 0; j < columns; j++) total += expf(row[j] - top);
    out[i] = logf(total) + top - row[target[i]];
}

__global__ void linear_backward(const float* x, const float* g, float* out, int rows, int inputs,
                                int outputs) {
    int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= outputs || column >= inputs) return;
    float total = 0;
    for (int k = 0; k < rows; k++) total += g[k * outputs + row] * x[k * inputs + column];
    out[row * inputs + column] = total;
}

__global__ void sgd(const float* g, float lr, float momentum, float* velocity, float* p, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = momentum * velocity[i] + g[i];
    velocity[i] = v;
    p[i] -= lr * v;
}

__global__ void embedding_backward(const float* g, const long long* index, float* table, int n,
                                   int width) {
    int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row < n && column < width)
        atomicAdd(&table[index[row] * width + column], g[row * width + column]);
}

__global__ void conv2d(const float* x, const float* w, float* out, int channels, int height,
                       int width, int filters, int size) {
    int j = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y * blockDim.y + threadIdx.y;
    int f = blockIdx.z, rows = height - size + 1, columns = width - size + 1;
    if (i >= rows || j >= columns) return;
    float total = 0;
    for (int c = 0; c < channels; c++)
        for (int p = 0; p < size; p++)
            for (int q = 0; q < size; q++)
                total += x[(c * height + i + p) * width + j + q] *
                         w[((f * channels + c) * size + p) * size + q];
    out[(f * rows + i) * columns + j] = total;
}

__global__ void matmul_registers(const float* a, const float* b, float* out, int m, int k, int n) {
    __shared__ float a_tile[32][8], b_tile[8][32];
    float totals[4][4] = {};
    int tx = threadIdx.x, ty = threadIdx.y, row = blockIdx.y * 32, column = blockIdx.x * 32;
    for (int first = 0; first < k; first += 8) {
        for (int i = ty; i < 32; i += 8)
            a_tile[i][tx] = row + i < m && first + tx < k ? a[(row + i) * k + first + tx] : 0;
        for (int j = tx; j < 32; j += 8)
            b_tile[ty][j] = first + ty < k && column + j < n ? b[(first + ty) * n + column + j] : 0;
        __syncthreads();
        for (int l = 0; l < 8; l++) {
            float a_part[4], b_part[4];
            for (int i = 0; i < 4; i++) {
                a_part[i] = a_tile[ty + 8 * i][l];
                b_part[i] = b_tile[l][tx + 8 * i];
            }
            for (int i = 0; i < 4; i++)
                for (int j = 0; j < 4; j++) totals[i][j] += a_part[i] * b_part[j];
        }
        __syncthreads();
    }
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++)
            if (row + ty + 8 * i < m && column + tx + 8 * j < n)
                out[(row + ty + 8 * i) * n + column + tx + 8 * j] = totals[i][j];
}

__global__ void softmax_online(const float* x, float* out, int rows, int columns) {
    __shared__ float tops[64], sums[64];
    int t = threadIdx.x;
    x += blockIdx.x * columns;
    out += blockIdx.x * columns;
    float top = LOWEST, total = 0;
    for (int j = t; j < columns; j += 64) {
        float value = x[j], larger = fmaxf(top, value);
        total = total * expf(top - larger) + expf(value - larger);
        top = larger;
    }
    tops[t] = top;
    sums[t] = total;
    __syncthreads();
    for (int step = 32; step; step /= 2) {
        if (t < step) {
            float mine = tops[t], other = tops[t + step], larger = fmaxf(mine, other);
            sums[t] = sums[t] * expf(mine - larger) + sums[t + step] * expf(other - larger);
            tops[t] = larger;
        }
        __syncthreads();
    }
    for (int j = t; j < columns; j += 64) out[j] = expf(x[j] - tops[0]) / sums[0];
}

__global__ void layer_norm_backward(const float* g, const float* x, const float* mean,
                                    const float* rstd, float* out, int rows, int columns) {
    __shared__ float tile[64];
    int t = threadIdx.x, start = blockIdx.x * columns;
    float centre = mean[blockIdx.x], scale = rstd[blockIdx.x], plain = 0, weighted = 0;
    for (int j = t; j < columns; j += 64) {
        float value = g[start + j];
        plain += value;
        weighted += value * (x[start + j] - centre) * scale;
    }
    tile[t] = plain;
    __syncthreads();
    plain = sum_of_64(tile, t) / columns;
    tile[t] = weighted;
    __syncthreads();
    weighted = sum_of_64(tile, t) / columns;
    for (int j = t; j < columns; j += 64) {
        float xhat = (x[start + j] - centre) * scale;
        out[start + j] = scale * (g[start + j] - plain - xhat * weighted);
    }
}

__global__ void attention(const float* q, const float* k, const float* v, float* out, int queries,
                          int keys) {
    __shared__ float k_tile[32][16], v_tile[32][16];
    int t = threadIdx.x, i = blockIdx.x * 64 + t;
    float query[16], result[16], top = LOWEST, total = 0;
    for (int d = 0; d < 16; d++) {
        query[d] = i < queries ? q[i * 16 + d] : 0;
        result[d] = 0;
    }
    for (int first = 0; first < keys; first += 32) {
        for (int place = t; place < 512; place += 64) {
            int row = place / 16, d = place % 16;
            bool inside = first + row < keys;
            k_tile[row][d] = inside ? k[(first + row) * 16 + d] : 0;
            v_tile[row][d] = inside ? v[(first + row) * 16 + d] : 0;
        }
        __syncthreads();
        for (int row = 0; row < 32 && first + row < keys; row++) {
            float score = 0;
            for (int d = 0; d < 16; d++) score += query[d] * k_tile[row][d];
            score *= 0.25f;
            float larger = fmaxf(top, score);
            float old = expf(top - larger), now = expf(score - larger);
            total = total * old + now;
            for (int d = 0; d < 16; d++) result[d] = result[d] * old + now * v_tile[row][d];
            top = larger;
        }
        __syncthreads();
    }
    if (i < queries)
        for (int d = 0; d < 16; d++) out[i * 16 + d] = result[d] / total;
}

__device__ float sigmoid(float x) { return 1 / (1 + expf(-x)); }

__global__ void gru_cell(const float* gx, const float* gh, const float* h, float* out, int rows,
                         int hidden) {
    int j = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= rows || j >= hidden) return;
    gx += row * 3 * hidden;
    gh += row * 3 * hidden;
    float r = sigmoid(gx[j] + gh[j]), z = sigmoid(gx[hidden + j] + gh[hidden + j]);
    float fresh = tanhf(gx[2 * hidden + j] + r * gh[2 * hidden + j]);
    out[row * hidden + j] = (1 - z) * fresh + z * h[row * hidden + j];
}

__global__ void compact(const float* x, float* out, long long* counts, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 32;
    float value = i < n ? x[i] : 0;
    unsigned positive = __ballot_sync(FULL, value > 0);
    int count = __popc(positive);
    if (value > 0) out[i - lane + __popc(positive & ((1u << lane) - 1))] = value;
    if (lane >= count) out[i] = 0;
    if (lane == 0) counts[i / 32] = count;
}

__global__ void centre(const float* x, float* partial, float* out, int n) {
    __shared__ float tile[64];
    int first = blockIdx.x * blockDim.x + threadIdx.x, step = gridDim.x * blockDim.x;
    float total = 0;
    for (int i = first; i < n; i += step) total += x[i];
    tile[threadIdx.x] = total;
    __syncthreads();
    total = sum_of_64(tile, threadIdx.x);
    if (threadIdx.x == 0) partial[blockIdx.x] = total;
    cooperative_groups::this_grid().sync();
    float mean = (partial[0] + partial[1] + partial[2] + partial[3]) / n;
    for (int i = first; i < n; i += step) out[i] = x[i] - mean;
}

__global__ void matmul_double_buffered(const float* a, const float* b, float* out, int m, int k,
                                       int n) {
    __shared__ float a_tile[2][16][16], b_tile[2][16][16];
    int tx = threadIdx.x, ty = threadIdx.y, now = 0;
    int row = blockIdx.y * 16 + ty, column = blockIdx.x * 16 + tx;
    a_tile[0][ty][tx] = row < m && tx < k ? a[row * k + tx] : 0;
    b_tile[0][ty][tx] = ty < k && column < n ? b[ty * n + column] : 0;
    float total = 0;
    for (int next = 16; next < k + 16; next += 16) {
        __syncthreads();
        if (next < k) {
            a_tile[1 - now][ty][tx] = row < m && next + tx < k ? a[row * k + next + tx] : 0;
            b_tile[1 - now][ty][tx] = next + ty < k && column < n ? b[(next + ty) * n + column] : 0;
        }
        for (int j = 0; j < 16; j++) total += a_tile[now][ty][j] * b_tile[now][j][tx];
        now = 1 - now;
    }
    if (row < m && column < n) out[row * n + column] = total;
}

__global__ void float4_scale(float a, const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (4 * i + 3 < n) {
        float4 v = ((const float4*)x)[i];
        v.x *= a;
        v.y *= a;
        v.z *= a;
        v.w *= a;
        ((float4*)out)[i] = v;
    } else {
        for (int j = 4 * i; j < n; j++) out[j] = a * x[j];
    }
}

__global__ void half_dot(const __half* x, const __half* y, float* out, int rows, int columns) {
    __shared__ float tile[64];
    int t = threadIdx.x, start = blockIdx.x * columns;
    float total = 0;
    for (int j = t; j < columns; j += 64)
        total += __half2float(x[start + j]) * __half2float(y[start + j]);
    tile[t] = total;
    __syncthreads();
    total = sum_of_64(tile, t);
    if (t == 0) out[blockIdx.x] = total;
}

__global__ void wmma_matmul(const half* a, const half* b, float* out, int m, int k, int n) {
    using namespace nvcuda::wmma;
    int row = blockIdx.y * 16, column = blockIdx.x * 16;
    fragment<matrix_a, 16, 16, 16, half, row_major> a_tile;
    fragment<matrix_b, 16, 16, 16, half, row_major> b_tile;
    fragment<accumulator, 16, 16, 16, float> total;
    fill_fragment(total, 0.0f);
    for (int first = 0; first < k; first += 16) {
        load_matrix_sync(a_tile, a + row * k + first, k);
        load_matrix_sync(b_tile, b + first * n + column, n);
        mma_sync(total, a_tile, b_tile, total);
    }
    store_matrix_sync(out + row * n + column, total, n, mem_row_major);
}

__global__ void fix_barrier(const float* x, float* out) {
    __shared__ float tile[64];
    int t = threadIdx.x, i = blockIdx.x * 64 + t;
    tile[t] = x[i];
    __syncthreads();
    float s = tile[t] + tile[(t + 1) % 64];
    __syncthreads();
    tile[t] = s;
    __syncthreads();
    out[i] = s - tile[(t + 63) % 64];
}

__global__ void fix_guard(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i + 1 < n) out[i] = x[i + 1] - x[i];
}

__global__ void fix_histogram(const long long* x, long long* counts, int n) {
    __shared__ unsigned long long tile[10];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    if (t < 10) tile[t] = 0;
    __syncthreads();
    if (i < n) atomicAdd(&tile[x[i]], 1);
    __syncthreads();
    if (t < 10) atomicAdd((unsigned long long*)&counts[t], tile[t]);
}

__global__ void fix_stride(const float* x, int rows, int columns, float* out) {
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    if (j < columns) {
        float total = 0;
        for (int i = 0; i < rows; i++) total += x[i * columns + j];
        out[j] = total;
    }
}

__global__ void fix_divergence(const float* x, float* out, int n) {
    __shared__ float tile[64];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    tile[t] = i < n ? x[i] : 0;
    __syncthreads();
    for (int step = 32; step; step /= 2) {
        if (t < step) tile[t] += tile[t + step];
        __syncthreads();
    }
    if (t == 0) out[blockIdx.x] = tile[0];
}

__global__ void fix_uninitialised(const float* x, float* out, int n) {
    __shared__ float tile[64];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    tile[t] = i < n ? x[i] : -CUDART_INF_F;
    __syncthreads();
    for (int step = 32; step; step /= 2) {
        if (t < step) tile[t] = fmaxf(tile[t], tile[t + step]);
        __syncthreads();
    }
    if (t == 0) out[blockIdx.x] = tile[0];
}

__global__ void fix_banks(const float* x, float* out) {
    __shared__ float tile[64][33];
    int t = threadIdx.x, first = blockIdx.x * 64;
    for (int row = t / 32; row < 64; row += 2) tile[row][t % 32] = x[(first + row) * 32 + t % 32];
    __syncthreads();
    float total = 0;
    for (int j = 0; j < 32; j++) total += tile[t][j];
    out[first + t] = total;
}

__global__ void fix_mask(const float* x, float* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float value = x[i];
    for (int step = 16; step; step /= 2)
        value = fmaxf(value, __shfl_down_sync(FULL, value, step));
    if (threadIdx.x % 32 == 0) out[i / 32] = value;
}

__global__ void fix_overflow(const int* x, long long* out, int n) {
    __shared__ long long tile[64];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    tile[t] = i < n ? x[i] : 0;
    __syncthreads();
    for (int step = 32; step; step /= 2) {
        if (t < step) tile[t] += tile[t + step];
        __syncthreads();
    }
    if (t == 0) out[blockIdx.x] = tile[0];
}

__global__ void fix_half(const __half* x, float* out, int n, int columns) {
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    if (j < columns) {
        float total = 0;
        for (int i = 0; i < n; i++) total += __half2float(x[i * columns + j]);
        out[j] = total / n;
    }
}
