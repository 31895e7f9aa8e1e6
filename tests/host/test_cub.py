"""The collectives of CUB: values beside NumPy's, and what is checked of their use."""

from __future__ import annotations

import numpy as np
import pytest

from kernels import lab, raw_kernel, raw_module
from kernels.support.errors import CompileError, KernelError

MODULE = raw_module(
    r"""
#include <cub/block/block_adjacent_difference.cuh>
#include <cub/block/block_discontinuity.cuh>
#include <cub/block/block_exchange.cuh>
#include <cub/block/block_histogram.cuh>
#include <cub/block/block_load.cuh>
#include <cub/block/block_merge_sort.cuh>
#include <cub/block/block_radix_sort.cuh>
#include <cub/block/block_reduce.cuh>
#include <cub/block/block_scan.cuh>
#include <cub/block/block_store.cuh>
#include <cub/warp/warp_reduce.cuh>
#include <cub/warp/warp_scan.cuh>
#include <cuda/functional>
template <int X, int Y> __global__ void reduces(const int* x, int* out, int valid) {
    typedef cub::BlockReduce<int, X, cub::BLOCK_REDUCE_WARP_REDUCTIONS, Y> R;
    __shared__ typename R::TempStorage temp;
    int t = threadIdx.y * X + threadIdx.x, v = x[blockIdx.x * X * Y + t];
    int sum = R(temp).Sum(v);
    __syncthreads();
    int most = R(temp).Reduce(v, cuda::maximum<>());
    __syncthreads();
    int some = R(temp).Sum(v, valid);
    if (t == 0) {
        int* to = out + 3 * blockIdx.x;
        to[0] = sum, to[1] = most, to[2] = some;
    }
}
struct Running {
    int total;
    __device__ int operator()(int sum) { int before = total; total += sum; return before; }
};
template <int B, int N> __global__ void scans(const int* x, int* inclusive, int* exclusive, int n) {
    typedef cub::BlockLoad<int, B, N, cub::BLOCK_LOAD_TRANSPOSE> L;
    typedef cub::BlockStore<int, B, N, cub::BLOCK_STORE_WARP_TRANSPOSE> W;
    typedef cub::BlockScan<int, B> S;
    __shared__ union {
        typename L::TempStorage l;
        typename W::TempStorage w;
        typename S::TempStorage s;
    } temp;
    Running running = {0};
    for (int first = 0; first < n; first += B * N) {
        int items[N], sums[N], more[N];
        L(temp.l).Load(x + first, items, n - first, 0);
        __syncthreads();
        S(temp.s).ExclusiveSum(items, sums, running);
        for (int i = 0; i < N; ++i) more[i] = sums[i] + items[i];
        __syncthreads();
        W(temp.w).Store(exclusive + first, sums, n - first);
        __syncthreads();
        W(temp.w).Store(inclusive + first, more, n - first);
        __syncthreads();
    }
}
template <class K, int B, int N> __global__ void sorts(K* keys, int* places, int descending) {
    typedef cub::BlockRadixSort<K, B, N, int> S;
    __shared__ typename S::TempStorage temp;
    K k[N];
    int v[N];
    cub::LoadDirectBlocked(threadIdx.x, keys, k);
    for (int i = 0; i < N; ++i) v[i] = threadIdx.x * N + i;
    if (descending) S(temp).SortDescending(k, v);
    else S(temp).Sort(k, v);
    cub::StoreDirectBlocked(threadIdx.x, keys, k);
    cub::StoreDirectBlocked(threadIdx.x, places, v);
}
template <int W> __global__ void warps(const int* x, int* sums, int* scanned, int* most) {
    typedef cub::WarpReduce<int, W> R;
    typedef cub::WarpScan<int, W> S;
    __shared__ typename R::TempStorage r[64 / W];
    __shared__ typename S::TempStorage s[64 / W];
    int t = threadIdx.x, w = t / W, out;
    int sum = R(r[w]).Sum(x[t]);
    if (t % W == 0) sums[w] = sum;
    S(s[w]).InclusiveSum(x[t], out);
    scanned[t] = out;
    S(s[w]).ExclusiveScan(x[t], out, -1, cuda::maximum<>());
    most[t] = out;
}
template <int B, int N>
__global__ void neighbours(const int* x, int* heads, int* steps, int* bins, int* turned) {
    typedef cub::BlockDiscontinuity<int, B> D;
    typedef cub::BlockAdjacentDifference<int, B> A;
    typedef cub::BlockHistogram<int, B, N, 8> H;
    typedef cub::BlockExchange<int, B, N> E;
    __shared__ typename D::TempStorage d;
    __shared__ typename A::TempStorage a;
    __shared__ typename H::TempStorage h;
    __shared__ typename E::TempStorage e;
    __shared__ int counts[8];
    int items[N], out[N];
    cub::LoadDirectBlocked(threadIdx.x, x, items);
    D(d).FlagHeads(out, items, cuda::std::not_equal_to<>());
    cub::StoreDirectBlocked(threadIdx.x, heads, out);
    A(a).SubtractLeft(items, out, cuda::std::minus<>());
    cub::StoreDirectBlocked(threadIdx.x, steps, out);
    H(h).Histogram(items, counts);
    __syncthreads();
    if (threadIdx.x < 8) bins[threadIdx.x] = counts[threadIdx.x];
    E(e).BlockedToStriped(items, out);
    cub::StoreDirectStriped<B>(threadIdx.x, turned, out);
}
struct Backwards { __device__ bool operator()(int a, int b) const { return a % 10 > b % 10; } };
template <int B, int N> __global__ void merges(int* x) {
    typedef cub::BlockMergeSort<int, B, N> S;
    __shared__ typename S::TempStorage temp;
    int items[N];
    cub::LoadDirectBlocked(threadIdx.x, x, items);
    S(temp).Sort(items, Backwards());
    cub::StoreDirectBlocked(threadIdx.x, x, items);
}
""",
    name_expressions=(
        "reduces<64, 1>", "reduces<12, 7>", "scans<64, 3>", "scans<96, 2>", "sorts<float, 32, 4>",
        "sorts<short, 96, 1>", "warps<32>", "warps<8>", "neighbours<32, 3>", "merges<64, 2>",
    ),
)  # fmt: skip


def numbers(rng, *shape, dtype=np.int32):
    return rng.integers(-50, 50, shape).astype(dtype)


@pytest.mark.parametrize("name, block", [("reduces<64, 1>", (64,)), ("reduces<12, 7>", (12, 7))])
def test_block_reduce(order, rng, name, block):
    x, out = numbers(rng, 3, np.prod(block)), np.zeros((3, 3), np.int32)
    MODULE.get_function(name)((3,), block, (x, out, 41))
    np.testing.assert_array_equal(out, np.stack([x.sum(1), x.max(1), x[:, :41].sum(1)], 1))


@pytest.mark.parametrize("name, block", [("scans<64, 3>", 64), ("scans<96, 2>", 96)])
def test_block_scan_of_tiles(order, rng, name, block):
    x = numbers(rng, 500)
    inclusive, exclusive = np.zeros_like(x), np.zeros_like(x)
    MODULE.get_function(name)((1,), (block,), (x, inclusive, exclusive, 500))
    np.testing.assert_array_equal(inclusive, x.cumsum())
    np.testing.assert_array_equal(exclusive, x.cumsum() - x)


@pytest.mark.parametrize("descending", [0, 1])
@pytest.mark.parametrize(
    "name, block, dtype",
    [("sorts<float, 32, 4>", 32, np.float32), ("sorts<short, 96, 1>", 96, np.int16)],
)
def test_block_radix_sort_is_stable(order, rng, name, block, dtype, descending):
    keys = numbers(rng, 128 if block == 32 else 96, dtype=dtype)
    keys[::7] *= 0  # -0 of floats is 0
    places, found = np.zeros(keys.size, np.int32), keys.copy()
    MODULE.get_function(name)((1,), (block,), (found, places, descending))
    expected = np.argsort(-keys if descending else keys, kind="stable")
    np.testing.assert_array_equal(places, expected)
    np.testing.assert_array_equal(found, keys[expected])


@pytest.mark.parametrize("width", [32, 8])
def test_warps(order, rng, width):
    x, sums = numbers(rng, 64), np.zeros(64 // width, np.int32)
    scanned, most = np.zeros((2, 64), np.int32)
    MODULE.get_function(f"warps<{width}>")((1,), (64,), (x, sums, scanned, most))
    rows = x.reshape(-1, width)
    np.testing.assert_array_equal(sums, rows.sum(1))
    np.testing.assert_array_equal(scanned.reshape(rows.shape), rows.cumsum(1))
    before = np.maximum.accumulate(np.c_[np.full(len(rows), -1), rows[:, :-1]], 1)
    np.testing.assert_array_equal(most.reshape(rows.shape), before)


def test_neighbours_histogram_and_exchange(order, rng):
    x = rng.integers(0, 8, 96).astype(np.int32)
    heads, steps, turned = np.zeros((3, 96), np.int32)
    bins = np.zeros(8, np.int32)
    MODULE.get_function("neighbours<32, 3>")((1,), (32,), (x, heads, steps, bins, turned))
    np.testing.assert_array_equal(heads, np.r_[True, x[1:] != x[:-1]])
    np.testing.assert_array_equal(steps, np.r_[x[0], np.diff(x)])
    np.testing.assert_array_equal(bins, np.bincount(x, minlength=8))
    np.testing.assert_array_equal(turned, x)


def test_block_merge_sort(order, rng):
    x = rng.integers(0, 1000, 128).astype(np.int32)
    expected = x[np.argsort(-(x % 10), kind="stable")]
    MODULE.get_function("merges<64, 2>")((1,), (64,), (x,))
    np.testing.assert_array_equal(x, expected)


TWICE = r"""
#include <cub/block/block_reduce.cuh>
__global__ void twice(const float* x, float* out) {
    typedef cub::BlockReduce<float, 64> R;
    __shared__ R::TempStorage temp;
    float a = R(temp).Sum(x[threadIdx.x]);
    BARRIER
    float b = R(temp).Sum(2 * x[threadIdx.x]);
    RESULT
}
"""


@pytest.mark.parametrize("barrier", ["", "__syncthreads();"])
def test_storage_used_again_without_a_barrier_is_a_race(barrier):
    code = TWICE.replace("BARRIER", barrier)
    code = code.replace("RESULT", "if (threadIdx.x == 0) *out = a + b;")
    report = lab.profile(
        raw_kernel(code, "twice"), 1, 64, np.ones(64, np.float32), np.zeros(1, np.float32)
    )
    races = [str(finding) for finding in report.findings]
    if barrier:
        assert not races
    else:
        assert races[0].startswith("shared temp[0]: unsynchronised accesses by two threads")
        assert "fix: __syncthreads() between line 6 and line 8" in races[0]


def test_only_thread_0_has_the_result_of_a_reduction():
    code = TWICE.replace("BARRIER", "__syncthreads();").replace("RESULT", "out[threadIdx.x] = a;")
    out = np.zeros(64, np.float32)
    raw_kernel(code, "twice")((1,), (64,), (np.ones(64, np.float32), out))
    assert out[0] == 64 and np.isnan(out[1:]).all()


@pytest.mark.parametrize("block", [(32,), (8, 8), (128,)])
def test_a_block_of_other_dimensions_is_an_error(block):
    code = TWICE.replace("BARRIER", "").replace("RESULT", "")
    with pytest.raises(KernelError, match="line 6.*template arguments must be those of the launch"):
        raw_kernel(code, "twice")((1,), block, (np.ones(64, np.float32), np.zeros(1, np.float32)))


def test_what_is_not_there_is_named():
    code = """
    #include <cub/cub.cuh>
    __global__ void k(int* x) { cub::DeviceReduce::Sum(nullptr, *(size_t*)x, x, x, 1); }
    """
    with pytest.raises(
        CompileError, match="line 3: CUB beyond its collectives of a block and a warp: not"
    ):
        raw_kernel(code, "k").compile()
