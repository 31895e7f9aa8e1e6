"""The programs of every CUDA course, as they are written there, on NumPy arrays."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

from kernels import raw_kernel

pytestmark = pytest.mark.usefixtures("order")

MATMUL = r"""
__global__ void matmul_kernel(float* A, float* B, float* C, int M, int N, int K) {
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    int col = blockIdx.x * blockDim.x + threadIdx.x;

    if (row < M && col < N) {
        float sum = 0.0f;
        for (int k = 0; k < K; k++) {
            sum += A[row * K + k] * B[k * N + col];
        }
        C[row * N + col] = sum;
    }
}
"""

TILED = r"""
#define TILE 16
extern "C" __global__ void tiled(const float* __restrict__ A, const float* __restrict__ B,
                                 float* __restrict__ C, int M, int N, int K) {
    __shared__ float As[TILE][TILE], Bs[TILE][TILE + 1];
    int tx = threadIdx.x, ty = threadIdx.y;
    int row = blockIdx.y * TILE + ty, col = blockIdx.x * TILE + tx;
    float acc = 0.0f;
    for (int t = 0; t < (K + TILE - 1) / TILE; ++t) {
        As[ty][tx] = row < M && t * TILE + tx < K ? A[row * K + t * TILE + tx] : 0.0f;
        Bs[ty][tx] = col < N && t * TILE + ty < K ? B[(t * TILE + ty) * N + col] : 0.0f;
        __syncthreads();
        #pragma unroll
        for (int k = 0; k < TILE; ++k) acc += As[ty][k] * Bs[k][tx];
        __syncthreads();
    }
    if (row < M && col < N) C[row * N + col] = acc;
}
"""

TREE_SUM = r"""
template <typename T>
__global__ void tree_sum(const T* in, T* out, unsigned int n) {
    extern __shared__ T sdata[];
    unsigned int tid = threadIdx.x;
    unsigned int i = blockIdx.x * blockDim.x * 2 + tid;
    T mine = i < n ? in[i] : T(0);
    if (i + blockDim.x < n) mine += in[i + blockDim.x];
    sdata[tid] = mine;
    __syncthreads();
    for (unsigned int s = blockDim.x / 2; s > 0; s >>= 1) {
        if (tid < s) sdata[tid] += sdata[tid + s];
        __syncthreads();
    }
    if (tid == 0) atomicAdd(out, sdata[0]);
}
"""

SHUFFLE_SUM = r"""
__inline__ __device__ float warpReduceSum(float val) {
    for (int offset = warpSize / 2; offset > 0; offset /= 2)
        val += __shfl_down_sync(0xffffffff, val, offset);
    return val;
}

__inline__ __device__ float blockReduceSum(float val) {
    static __shared__ float shared[32];
    int lane = threadIdx.x % warpSize;
    int wid = threadIdx.x / warpSize;
    val = warpReduceSum(val);
    if (lane == 0) shared[wid] = val;
    __syncthreads();
    val = (threadIdx.x < blockDim.x / warpSize) ? shared[lane] : 0;
    if (wid == 0) val = warpReduceSum(val);
    return val;
}

__global__ void __launch_bounds__(1024) shuffle_sum(float* in, float* out, int N) {
    float sum = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < N; i += blockDim.x * gridDim.x)
        sum += in[i];
    sum = blockReduceSum(sum);
    if (threadIdx.x == 0) out[blockIdx.x] = sum;
}
"""

SCAN = r"""
__global__ void scan(const int *in, int *out, int n) {
    extern __shared__ int temp[];
    int t = threadIdx.x, pout = 0, pin = 1;
    temp[t] = t < n ? in[t] : 0;
    __syncthreads();
    for (int offset = 1; offset < blockDim.x; offset *= 2) {
        pout = 1 - pout;
        pin = 1 - pout;
        int v = temp[pin * blockDim.x + t];
        if (t >= offset) v += temp[pin * blockDim.x + t - offset];
        temp[pout * blockDim.x + t] = v;
        __syncthreads();
    }
    if (t < n) out[t] = temp[pout * blockDim.x + t];
}
"""

HISTOGRAM = r"""
__global__ void histogram(const unsigned char* data, unsigned int* bins, long long n) {
    __shared__ unsigned int local[256];
    for (int i = threadIdx.x; i < 256; i += blockDim.x) local[i] = 0;
    __syncthreads();
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n;
         i += (long long)blockDim.x * gridDim.x)
        atomicAdd(&local[data[i]], 1);
    __syncthreads();
    for (int i = threadIdx.x; i < 256; i += blockDim.x) atomicAdd(&bins[i], local[i]);
}
"""

TRANSPOSE = r"""
const int TILE_DIM = 32, BLOCK_ROWS = 8;

__global__ void transpose(double *odata, const double *idata, int width, int height) {
    __shared__ double tile[TILE_DIM][TILE_DIM + 1];
    int x = blockIdx.x * TILE_DIM + threadIdx.x, y = blockIdx.y * TILE_DIM + threadIdx.y;
    for (int j = 0; j < TILE_DIM; j += BLOCK_ROWS)
        if (x < width && y + j < height)
            tile[threadIdx.y + j][threadIdx.x] = idata[(y + j) * width + x];
    __syncthreads();
    x = blockIdx.y * TILE_DIM + threadIdx.x;
    y = blockIdx.x * TILE_DIM + threadIdx.y;
    for (int j = 0; j < TILE_DIM; j += BLOCK_ROWS)
        if (x < height && y + j < width)
            odata[(y + j) * height + x] = tile[threadIdx.x][threadIdx.y + j];
}
"""

BITONIC = r"""
__global__ void bitonic(float* values) {
    __shared__ float s[512];
    unsigned t = threadIdx.x;
    s[t] = values[blockIdx.x * blockDim.x + t];
    __syncthreads();
    for (unsigned k = 2; k <= blockDim.x; k <<= 1) {
        for (unsigned j = k >> 1; j > 0; j >>= 1) {
            unsigned other = t ^ j;
            if (other > t) {
                bool up = (t & k) == 0;
                if ((s[t] > s[other]) == up) { float x = s[t]; s[t] = s[other]; s[other] = x; }
            }
            __syncthreads();
        }
    }
    values[blockIdx.x * blockDim.x + t] = s[t];
}
"""


@pytest.mark.parametrize("code, name", [(MATMUL, "matmul_kernel"), (TILED, "tiled")])
def test_matmul(rng, code, name):
    m, n, k = 50, 67, 33
    a = rng.standard_normal((m, k), dtype=np.float32)
    b = rng.standard_normal((k, n), dtype=np.float32)
    c = np.full((m, n), np.nan, np.float32)
    raw_kernel(code, name)((5, 4), (16, 16), (a, b, c, m, n, k))
    np.testing.assert_allclose(c, a.astype(float) @ b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("ctype, dtype", [("float", np.float32), ("double", np.float64)])
def test_tree_reduction_as_a_template(rng, ctype, dtype):
    x = rng.standard_normal(5001).astype(dtype)
    out = np.zeros(1, dtype)
    kernel = raw_kernel(TREE_SUM, f"tree_sum<{ctype}>")
    kernel((20,), (128,), (x, out, x.size), shared_mem=128 * x.itemsize)
    np.testing.assert_allclose(out[0], x.sum(dtype=float), rtol=1e-4)


def test_shuffle_reduction(rng):
    x = rng.standard_normal(10_000, dtype=np.float32)
    out = np.zeros(3, np.float32)
    raw_kernel(SHUFFLE_SUM, "shuffle_sum")(3, 256, (x, out, x.size))
    np.testing.assert_allclose(out.sum(), x.sum(dtype=float), rtol=1e-4)


def test_scan(rng):
    x = rng.integers(-9, 9, 200, dtype=np.int32)
    out = np.zeros_like(x)
    raw_kernel(SCAN, "scan")((1,), (256,), (x, out, 200), shared_mem=2 * 256 * 4)
    np.testing.assert_array_equal(out, x.cumsum())


def test_histogram(rng):
    data = rng.integers(0, 256, 100_003, dtype=np.uint8)
    bins = np.zeros(256, np.uint32)
    raw_kernel(HISTOGRAM, "histogram")((7,), (96,), (data, bins, data.size))
    np.testing.assert_array_equal(bins, np.bincount(data, minlength=256))


def test_transpose(rng):
    x = rng.standard_normal((45, 70))
    out = np.zeros((70, 45))
    raw_kernel(TRANSPOSE, "transpose")((3, 2), (32, 8), (out, x, 70, 45))
    np.testing.assert_array_equal(out, x.T)


def test_block_sort(rng):
    x = rng.standard_normal((3, 512), dtype=np.float32)
    expected = np.sort(x, axis=1)
    raw_kernel(BITONIC, "bitonic")((3,), (512,), (x,))
    np.testing.assert_array_equal(x, expected)


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="counts maps as Linux has them")
def test_os_threads_that_end_leave_their_stacks_to_others():
    code = """__global__ void turned(float* x) {
        __shared__ float s[256];
        s[threadIdx.x] = x[threadIdx.x];
        __syncthreads();
        x[threadIdx.x] = s[255 - threadIdx.x];
    }"""
    kernel = raw_kernel(code, "turned")
    counts = []
    for _ in range(4):
        x = np.arange(256, dtype=np.float32)
        thread = threading.Thread(target=kernel, args=((1,), (256,), (x,)))
        thread.start()
        thread.join()
        assert (x == np.arange(256)[::-1]).all()
        counts.append(len(Path("/proc/self/maps").read_text().splitlines()))
    assert counts[-1] - counts[0] < 50, counts  # each thread of a block has two
