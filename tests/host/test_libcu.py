"""libcu++'s barriers and pipelines, and cooperative groups of more than a warp."""

from __future__ import annotations

import numpy as np
import pytest

from kernels import lab, raw_kernel, raw_module
from kernels.support.errors import CompileError

pytestmark = pytest.mark.usefixtures("order")

MODULE = raw_module(
    r"""
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cuda/barrier>
#include <cuda/pipeline>
namespace cg = cooperative_groups;
__global__ void tiles(int* out, int* others) {
    __shared__ cg::block_tile_memory<256> memory;
    cg::thread_block block = cg::this_thread_block(memory);
    auto tile = cg::tiled_partition<128>(block);
    int t = threadIdx.x;
    out[t] = cg::reduce(tile, t, cg::plus<int>()) + 0 * tile.meta_group_rank();
    others[t] = tile.shfl(t, 3) + 1000 * tile.any(t == 200) + 2000 * tile.all(t < 128);
    if (tile.meta_group_rank() == 1) tile.sync();
    auto warp = cg::tiled_partition<32>(tile);
    others[t] += 10000 * warp.shfl(t, 0);
}
#pragma nv_diag_suppress static_var_with_dynamic_init
__global__ void bar(const float* x, float* y, int n) {
    using barrier = cuda::barrier<cuda::thread_scope_block>;
    __shared__ barrier ready;
    __shared__ float tile[128];
    auto block = cg::this_thread_block();
    if (block.thread_rank() == 0) init(&ready, block.size());
    block.sync();
    for (int i = 0; i < n; i += 128) {
        constexpr auto bytes = cuda::aligned_size_t<16>(sizeof(float) * 128);
        cuda::memcpy_async(block, tile, x + i, bytes, ready);
        barrier::arrival_token token = ready.arrive();
        ready.wait(std::move(token));
        y[i + threadIdx.x] = tile[127 - threadIdx.x];
        ready.arrive_and_wait();
    }
}
__global__ void pipe(const float* x, float* y, int n) {
    constexpr auto scope = cuda::thread_scope_block;
    constexpr int stages = 2;
    __shared__ cuda::pipeline_shared_state<scope, stages> state;
    extern __shared__ float s[];
    auto block = cg::this_thread_block();
    auto pipeline = cuda::make_pipeline(block, &state);
    int b = block.size();
    for (int compute = 0, fetch = 0; compute < n; ++compute) {
        for (; fetch < n && fetch < compute + stages; ++fetch) {
            pipeline.producer_acquire();
            float* to = s + fetch % stages * b;
            cuda::memcpy_async(block, to, x + fetch * b, sizeof(float) * b, pipeline);
            pipeline.producer_commit();
        }
        pipeline.consumer_wait();
        y[compute * b + threadIdx.x] = s[compute % stages * b + b - 1 - threadIdx.x];
        pipeline.consumer_release();
    }
}
__global__ void roles(const float* x, float* y, int n) {
    constexpr auto scope = cuda::thread_scope_block;
    __shared__ cuda::pipeline_shared_state<scope, 3> state;
    __shared__ float s[3][64];
    auto block = cg::this_thread_block();
    auto role = threadIdx.x < 32 ? cuda::pipeline_role::producer : cuda::pipeline_role::consumer;
    auto pipeline = cuda::make_pipeline(block, &state, role);
    if (threadIdx.x < 32) {
        auto group = cg::tiled_partition<32>(block);
        for (int i = 0; i < n; ++i) {
            pipeline.producer_acquire();
            cuda::memcpy_async(group, s[i % 3], x + 64 * i, sizeof(float) * 64, pipeline);
            pipeline.producer_commit();
        }
    } else {
        for (int i = 0; i < n; ++i) {
            pipeline.consumer_wait();
            y[64 * i + threadIdx.x - 32] = s[i % 3][95 - threadIdx.x];
            pipeline.consumer_release();
        }
    }
}
__global__ void mine(const float* x, float* y, int n) {
    __shared__ float s[2][64];
    auto pipe = cuda::make_pipeline();
    int t = threadIdx.x;
    for (int i = 0; i < n + 1; ++i) {
        if (i < n) {
            pipe.producer_acquire();
            cuda::memcpy_async(&s[i % 2][t], x + 64 * i + t, sizeof(float), pipe);
            pipe.producer_commit();
        }
        if (i > 0) {
            if (i < n) cuda::pipeline_consumer_wait_prior<1>(pipe);
            else cuda::pipeline_consumer_wait_prior<0>(pipe);
            y[64 * (i - 1) + t] = s[(i - 1) % 2][t] + 1;
            pipe.consumer_release();
        }
    }
}
"""
)


def test_tiles_of_several_warps():
    t = np.arange(256)
    sums, others = np.zeros(256, np.int32), np.zeros(256, np.int32)
    MODULE.get_function("tiles")((2,), (256,), (sums, others))
    np.testing.assert_array_equal(sums, t.reshape(2, 128).sum(1).repeat(128))
    first = np.array([3 + 2000, 131 + 1000]).repeat(128)
    np.testing.assert_array_equal(others, first + 10000 * (t // 32 * 32))


@pytest.mark.parametrize(
    "name, threads, shared, count, reversed_pieces",
    [("bar", 128, 0, 1024, 128), ("pipe", 128, 1024, 8, 128), ("roles", 96, 0, 16, 64)],
)
def test_copies_that_are_waited_for(rng, name, threads, shared, count, reversed_pieces):
    x, y = rng.random(1024, dtype=np.float32), np.zeros(1024, np.float32)
    MODULE.get_function(name)((2,), (threads,), (x, y, count), shared_mem=shared)
    np.testing.assert_array_equal(y, x.reshape(-1, reversed_pieces)[:, ::-1].ravel())


def test_a_pipeline_of_each_thread(rng):
    x, y = rng.random(1024, dtype=np.float32), np.zeros(1024, np.float32)
    MODULE.get_function("mine")((2,), (64,), (x, y, 16))
    np.testing.assert_array_equal(y, x + 1)


def test_a_barrier_is_passed_in_phases():
    code = """
    #include <cuda/barrier>
    __global__ void phases(int* out) {
        __shared__ cuda::barrier<cuda::thread_scope_block> halves[2];
        __shared__ int count[2];
        int half = threadIdx.x / 32;
        if (threadIdx.x < 2) { init(&halves[threadIdx.x], 32); count[threadIdx.x] = 0; }
        __syncthreads();
        for (int i = 0; i < 5; ++i) {
            atomicAdd(&count[half], 1);
            halves[half].arrive_and_wait();
            if (count[half] != 32 * (i + 1)) out[threadIdx.x] = -1;
            if (i == 3 && threadIdx.x % 32 == 31) { halves[half].arrive_and_drop(); return; }
            halves[half].arrive_and_wait();
            if (i == 3 && threadIdx.x % 32 < 31) { out[threadIdx.x] += count[half]; return; }
        }
    }
    """
    out = np.zeros(64, np.int32)
    raw_kernel(code, "phases")((1,), (64,), (out,))
    np.testing.assert_array_equal(out, np.where(np.arange(64) % 32 < 31, 128, 0))


def test_a_tile_has_a_size_of_a_power_of_two():
    code = """
    #include <cooperative_groups.h>
    __global__ void k() {
        cooperative_groups::tiled_partition<96>(cooperative_groups::this_thread_block()).sync();
    }
    """
    with pytest.raises(CompileError, match="a power of two up to 1024"):
        raw_kernel(code, "k").compile()


ATOMICS = raw_module(
    r"""
#include <cuda/atomic>
#include <cuda/latch>
#include <cuda/semaphore>
extern "C" __global__ void counts(const int* x, int* bins, int* most, float* sum, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        cuda::atomic_ref<int, cuda::thread_scope_device> bin(bins[x[i] % 8]);
        bin.fetch_add(1, cuda::memory_order_relaxed);
        cuda::atomic_ref<int, cuda::thread_scope_device>(*most).fetch_max(
            x[i], cuda::std::memory_order_relaxed);
        cuda::std::atomic_ref<float> total{*sum};
        total += 1.0f;
    }
}
extern "C" __global__ void last_block(const float* x, float* partial, unsigned* done, float* out) {
    __shared__ bool last;
    __shared__ cuda::atomic<int, cuda::thread_scope_block> arrived;
    if (threadIdx.x == 0) arrived.store(0, cuda::memory_order_relaxed);
    __syncthreads();
    arrived++;
    if (threadIdx.x == 0) {
        while (arrived.load(cuda::memory_order_acquire) != blockDim.x) {}
        float sum = 0;
        for (int i = 0; i < blockDim.x; ++i) sum += x[blockIdx.x * blockDim.x + i];
        partial[blockIdx.x] = sum;
        cuda::atomic_ref<unsigned, cuda::thread_scope_device> count(*done);
        last = count.fetch_add(1, cuda::memory_order_acq_rel) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && threadIdx.x == 0) {
        for (int i = 0; i < gridDim.x; ++i) *out += partial[i];
    }
}
extern "C" __global__ void lock(int* locked, int* value) {
    cuda::atomic_ref<int, cuda::thread_scope_device> l(*locked);
    int expected = 0;
    if (threadIdx.x % 32 == 0) {
        while (!l.compare_exchange_weak(expected, 1, cuda::memory_order_acquire,
                                        cuda::memory_order_relaxed)) expected = 0;
        *value += 1;
        l.store(0, cuda::memory_order_release);
    }
}
extern "C" __global__ void meet(int* out) {
    __shared__ alignas(16) char room[64];
    __shared__ cuda::binary_semaphore<cuda::thread_scope_block> one;
    __shared__ int count;
    auto& all = *reinterpret_cast<cuda::latch<cuda::thread_scope_block>*>(room);
    if (threadIdx.x == 0) {
        new (&all) cuda::latch<cuda::thread_scope_block>(blockDim.x);
        new (&one) cuda::binary_semaphore<cuda::thread_scope_block>(1);
        count = 0;
    }
    __syncthreads();
    if (threadIdx.x % 8 == 0) { one.acquire(); count += 1; one.release(); }
    all.arrive_and_wait();
    out[threadIdx.x] = count;
}
"""
)


@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("name", ["counts", "last_block", "lock", "meet"])
def test_atomic_objects(rng, name, recorded):
    """Their values, and that they order what threads do: the lab finds no race."""
    x = rng.integers(0, 100, 256).astype(np.int32)
    bins, most, total = np.zeros(8, np.int32), np.zeros(1, np.int32), np.zeros(1, np.float32)
    partial, done, met = np.zeros(4, np.float32), np.zeros(1, np.uint32), np.zeros(64, np.int32)
    floats = x.astype(np.float32)
    args = {
        "counts": (x, bins, most, total, 256),
        "last_block": (floats, partial, done, total),
        "lock": (np.zeros(1, np.int32), most),
        "meet": (met,),
    }[name]
    kernel, grid = ATOMICS.get_function(name), 1 if name == "meet" else 4
    if recorded:
        assert not lab.profile(kernel, grid, 64, *args).findings
    else:
        kernel((grid,), (64,), args)
    if name == "counts":
        assert (bins == np.bincount(x % 8, minlength=8)).all() and most == x.max() and total == 256
    assert name != "last_block" or (total == floats.sum() and done == 4)
    assert name != "lock" or most == 8
    assert name != "meet" or (met == 8).all()


def test_an_atomic_that_is_read_before_it_is_stored():
    code = ATOMICS.code.replace("arrived.store(0, cuda::memory_order_relaxed)", "last = true")
    code = code.replace("while (arrived.load(cuda::memory_order_acquire) != blockDim.x) {}", "")
    kernel = raw_kernel(code, "last_block")
    report = lab.profile(
        kernel, 1, 32, np.ones(32, np.float32), np.ones(1, np.float32), np.ones(1, np.uint32),
        np.ones(1, np.float32),
    )  # fmt: skip
    assert "uninitialised: shared arrived" in str(report.findings[0])


def test_the_standard_library_of_devices(rng):
    code = r"""
    #include <cuda/std/array>
    #include <cuda/std/bit>
    #include <cuda/std/complex>
    #include <cuda/std/limits>
    #include <cuda/std/numbers>
    #include <cuda/std/optional>
    #include <cuda/std/span>
    #include <cuda/std/tuple>
    namespace s = cuda::std;
    __global__ void k(float* out, s::complex<float>* z) {
        s::array<int, 4> a = {3, 1, 2, 0};
        s::span<int, 4> all(a.data(), 4);
        int sum = 0;
        for (int v : all.subspan(1)) sum += v;
        s::optional<int> some;
        some = sum;
        out[0] = s::get<1>(s::make_tuple(1, 2.5f)) + some.value_or(7) + all.size();
        out[1] = s::popcount(7u) + s::countl_zero((unsigned char)1) + s::bit_ceil(9u);
        out[2] = s::rotl((unsigned char)0x81, 1) + s::bit_width(8u) + s::has_single_bit(6u);
        out[3] = s::numbers::pi_v<float> + s::bit_cast<float>(0x3f800000);
        out[4] = s::numeric_limits<float>::max();
        z[0] = z[0] * s::conj(z[1]) / s::abs(z[1]);
    }
    """
    out, z = np.zeros(5, np.float32), (rng.random(2) + 1j * rng.random(2)).astype(np.complex64)
    expected = z[0] * z[1].conj() / abs(z[1])
    raw_kernel(code, "k")((1,), (1,), (out, z))
    wanted = [2.5 + 3 + 4, 3 + 7 + 16, 3 + 4 + 0, np.pi + 1, np.finfo(np.float32).max]
    np.testing.assert_allclose(out, wanted, rtol=1e-6)
    np.testing.assert_allclose(z[0], expected, rtol=1e-6)
