"""<cooperative_groups.h>: tiles, the lanes that are together, the block, and the grid."""

from __future__ import annotations

import numpy as np
import pytest

from kernels import raw_kernel, raw_module
from kernels.support.errors import KernelError, LaunchError

pytestmark = pytest.mark.usefixtures("order")

MODULE = raw_module(
    r"""
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
#include <cooperative_groups/memcpy_async.h>
namespace cg = cooperative_groups;

template <class Tile> __device__ float tile_sum(const Tile& tile, float v) {
    for (int i = tile.size() / 2; i > 0; i /= 2) v += tile.shfl_down(v, i);
    return tile.shfl(v, 0);
}
__device__ int group_sum(cg::thread_group g, int* s, int v) {  // of the SDK's first sample
    int lane = g.thread_rank();
    for (int i = g.size() / 2; i > 0; i /= 2) {
        s[lane] = v;
        g.sync();
        if (lane < i) v += s[lane + i];
        g.sync();
    }
    return v;
}
struct Pair { double value; int index; };

__global__ void tiles(const float* x, float* out, int* places) {
    cg::thread_block block = cg::this_thread_block();
    auto warp = cg::tiled_partition<32>(block);
    cg::thread_block_tile<8> tile = cg::tiled_partition<8>(warp);
    int i = block.thread_rank(), n = block.size();
    float v = x[i];
    out[i] = tile_sum(tile, v);
    out[n + i] = cg::reduce(warp, v, cg::greater<float>());
    out[2 * n + i] = cg::inclusive_scan(tile, v, cg::plus<float>());
    out[3 * n + i] = cg::exclusive_scan(tile, v);
    out[4 * n + i] = tile.shfl_xor(v, 3) + tile.shfl_up(v, 2);
    Pair best = cg::reduce(warp, Pair{v, i}, [](Pair a, Pair b) {
        return a.value > b.value || (a.value == b.value && a.index < b.index) ? a : b; });
    out[5 * n + i] = best.index;
    places[i] = tile.thread_rank() + 10 * tile.meta_group_rank() + 1000 * tile.meta_group_size();
    places[n + i] = tile.ballot(v > 0) + 1000 * tile.any(v > 2) + 10000 * tile.all(v > -1);
    places[2 * n + i] = block.thread_index().x + 100 * block.dim_threads().y
        + 1000 * block.group_index().x;
    __shared__ int s[64];
    __shared__ float copied[64];
    places[3 * n + i] = group_sum(block, s, i);
    places[4 * n + i] = group_sum(cg::tiled_partition(cg::this_thread_block(), 16),
                                  s + i / 16 * 16, i);
    cg::memcpy_async(block, copied, x, sizeof(float) * n);
    bool early = copied[i] != x[i];
    cg::wait(block);
    places[5 * n + i] = early + 2 * (copied[n - 1 - i] == x[n - 1 - i]);
}

__global__ void together(const int* x, int* out, int* counter) {
    int i = threadIdx.x;
    out[i] = -1;
    if (x[i] % 3 == 0) {  // one atomic for all lanes that are here
        auto active = cg::coalesced_threads();
        int first;
        if (active.thread_rank() == 0) first = atomicAdd(counter, active.size());
        out[i] = active.shfl(first, 0) + active.thread_rank();
        out[32 + i] = active.shfl_down(i, 1) - active.shfl_up(i, 1);
        out[64 + i] = cg::reduce(cg::tiled_partition(active, 4), 1, cg::plus<int>());
    }
    auto warp = cg::tiled_partition<32>(cg::this_thread_block());
    auto same = cg::labeled_partition(warp, x[i] % 4);
    out[96 + i] = cg::reduce(same, x[i], cg::plus<int>()) + 1000 * same.num_threads();
    out[128 + i] = cg::binary_partition(warp, x[i] > 9).size();
}
"""
)


def test_tiles(rng):
    n = 64
    x = rng.integers(-5, 5, n).astype(np.float32)
    out, places = np.zeros((6, n), np.float32), np.zeros((6, n), np.int32)
    MODULE.get_function("tiles")((1,), (32, 2), (x, out, places))
    eights, i = x.reshape(8, 8), np.arange(n)
    np.testing.assert_array_equal(out[0], eights.sum(1).repeat(8))
    np.testing.assert_array_equal(out[1], x.reshape(2, 32).max(1).repeat(32))
    np.testing.assert_array_equal(out[2], eights.cumsum(1).ravel())
    np.testing.assert_array_equal(out[3], (eights.cumsum(1) - eights).ravel())
    up = np.where(i % 8 >= 2, x[i - 2], x)
    np.testing.assert_array_equal(out[4], x[i ^ 3] + up)
    best = x.reshape(2, 32).argmax(1) + 32 * np.arange(2)
    np.testing.assert_array_equal(out[5], best.repeat(32))
    np.testing.assert_array_equal(places[0], i % 8 + i // 8 * 10 + 8000)
    ballot = ((eights > 0) << np.arange(8)).sum(1)
    votes = ballot + 1000 * (eights > 2).any(1) + 10000 * (eights > -1).all(1)
    np.testing.assert_array_equal(places[1], votes.repeat(8))
    np.testing.assert_array_equal(places[2], i % 32 + 200)
    assert places[3, 0] == i.sum()
    np.testing.assert_array_equal(places[4, ::16], i.reshape(4, 16).sum(1))
    np.testing.assert_array_equal(places[5], 3)  # poison before the wait, then the values


def test_lanes_that_are_together(rng):
    x = rng.integers(0, 20, 32, dtype=np.int32)
    out, counter = np.zeros((5, 32), np.int32), np.array([100], np.int32)
    MODULE.get_function("together")((1,), (32,), (x, out, counter))
    here = np.flatnonzero(x % 3 == 0)
    assert counter[0] == 100 + here.size
    np.testing.assert_array_equal(out[0, here], 100 + np.arange(here.size))
    assert (np.delete(out[0], here) == -1).all()
    down, up = np.append(here[1:], here[-1]), np.append(here[0], here[:-1])
    np.testing.assert_array_equal(out[1, here], down - up)
    sizes = np.minimum(4, here.size - np.arange(here.size) // 4 * 4)
    np.testing.assert_array_equal(out[2, here], sizes)
    same = (x % 4)[:, None] == x % 4
    np.testing.assert_array_equal(out[3], (same * x).sum(1) + 1000 * same.sum(1))
    np.testing.assert_array_equal(out[4], np.where(x > 9, (x > 9).sum(), (x <= 9).sum()))


GRID = r"""
#include <cooperative_groups.h>
extern __shared__ float scratch[];
__global__ void steps(const float* x, float* a, float* b, int n, int turns, int bad) {
    auto grid = cooperative_groups::this_grid();
    auto block = cooperative_groups::this_thread_block();
    __shared__ float own[64];
    int i = grid.thread_rank(), t = threadIdx.x;
    own[t] = i;
    scratch[t] = 2 * i;
    if (i < n) a[i] = x[i];
    if (bad && blockIdx.x == 2) return;
    for (int turn = 0; turn < turns; ++turn) {
        grid.sync();
        if (i < n) b[i] = a[(i + 1) % n] + a[(i + n - 1) % n];
        __shared__ int late;
        if (t == 0) late = blockIdx.x;
        grid.sync();
        if (i < n) a[i] = b[i] / 2 + late - (float)blockIdx.x;
    }
    block.sync();
    if (i < n) b[i] = own[63 - t] + scratch[63 - t];
}
"""


def test_the_grid_waits_for_itself(rng):
    """Blocks keep their shared memory while others run."""
    n, blocks, turns = 300, 5, 3
    x = rng.standard_normal(n, dtype=np.float32)
    a, b = np.full(n, np.nan, np.float32), np.full(n, np.nan, np.float32)
    kernel = raw_kernel(GRID, "steps", enable_cooperative_groups=True)
    kernel((blocks,), (64,), (x, a, b, n, turns, 0), shared_mem=256)
    expected = x
    for _ in range(turns):
        expected = (np.roll(expected, 1) + np.roll(expected, -1)) / 2
    np.testing.assert_allclose(a, expected, rtol=1e-6, atol=1e-6)
    i = np.arange(n)
    np.testing.assert_array_equal(b, 3 * (i // 64 * 64 + 63 - i % 64))
    with pytest.raises(KernelError, match="4 of 5 blocks wait at this_grid.*on line 1[46] and the"):
        kernel((blocks,), (64,), (x, a, b, n, turns, 1), shared_mem=256)
    kernel((blocks,), (64,), (x, a, b, n, turns, 0), shared_mem=256)
    np.testing.assert_allclose(a, expected, rtol=1e-6, atol=1e-6)
    with pytest.raises(LaunchError, match="cooperative launch of 16448 threads"):
        kernel((257,), (64,), (x, a, b, n, turns, 0), shared_mem=256)
    with pytest.raises(KernelError, match="enable_cooperative_groups=True"):
        raw_kernel(GRID, "steps")((1,), (64,), (x, a, b, n, turns, 0), shared_mem=256)


def test_an_asynchronous_copy_by_numbers_of_elements(rng):
    code = """
    #include <cooperative_groups.h>
    #include <cooperative_groups/memcpy_async.h>
    namespace cg = cooperative_groups;
    __global__ void k(const float* x, float* y, int n) {
        __shared__ float s[64];
        auto block = cg::this_thread_block();
        for (int first = 0; first < n; first += 64) {
            cg::memcpy_async(block, s, 64, x + first, n - first);
            cg::wait(block);
            int count = n - first < 64 ? n - first : 64;
            if (threadIdx.x < count) y[first + threadIdx.x] = s[count - 1 - threadIdx.x];
            block.sync();
        }
    }
    """
    x, y = rng.random(150, dtype=np.float32), np.zeros(150, np.float32)
    raw_kernel(code, "k")((1,), (64,), (x, y, 150))
    pieces = [x[:64], x[64:128], x[128:]]
    np.testing.assert_array_equal(y, np.concatenate([piece[::-1] for piece in pieces]))
