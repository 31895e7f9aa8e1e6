"""The interpreter: every CUDA thread runs the Python function, with CUDA's types and barriers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numba import float32, int32, uint32, uint64

from kernels.simt import cuda
from kernels.simt.interpreter import interpreter
from kernels.simt.interpreter.values import Int, KernelArray, value_of
from kernels.support.errors import CompileError, KernelError, KernelIndexError, LaunchError

SEED = 20261123
FULL = 0xFFFFFFFF


def run(function, grid, block, *args, **options) -> None:
    interpreter.run(function, grid, block, args, **options)


# --- positions, memory, barriers


def test_positions_in_three_dimensions():
    def kernel(out):
        x, y, z = cuda.grid(3)
        sx, sy, _ = cuda.gridsize(3)
        out[z, y, x] = (z * sy + y) * sx + x
        if cuda.threadIdx.z == 1 and cuda.blockIdx.y == 1:
            out[z, y, x] *= -1
        assert cuda.blockDim.x * cuda.gridDim.x == sx == out.shape[2]
        assert cuda.laneid == (cuda.threadIdx.x + 2 * cuda.threadIdx.y + 6 * cuda.threadIdx.z) % 32

    out = np.zeros((4, 6, 4), np.int64)
    run(kernel, (2, 2, 2), (2, 3, 2), out)
    expected = np.arange(out.size).reshape(out.shape)
    expected[1::2, 3:] *= -1
    np.testing.assert_array_equal(out, expected)


def test_shared_memory_and_barriers():
    def kernel(x, out):
        left, right = cuda.shared.array(64, float32), cuda.shared.array(64, float32)
        i = cuda.threadIdx.x
        left[i] = x[i]
        right[i] = -x[i]
        cuda.syncthreads()
        out[i] = left[63 - i] * 2 + right[i]

    x = np.random.default_rng(SEED).normal(size=64).astype(np.float32)
    out = np.zeros(64)
    run(kernel, 1, 64, x, out)
    np.testing.assert_array_equal(out, x[::-1].astype(np.float64) * 2 - x)


def test_dynamic_shared_arrays_overlap():
    def kernel(out):
        words = cuda.shared.array(0, int32)
        halves = cuda.shared.array(0, np.int16)
        if cuda.threadIdx.x == 0:
            words[1] = 0x00030002
        cuda.syncthreads()
        out[0], out[1], out[2] = halves[2], halves[3], words.size

    out = np.zeros(3, np.int32)
    run(kernel, 1, 2, out, shared_bytes=16)
    assert out.tolist() == [2, 3, 4]


def test_shared_memory_starts_as_nan_and_local_arrays_are_private():
    def kernel(out, local):
        tile = cuda.shared.array(4, float32)
        mine = cuda.local.array((2, 2), int32)
        mine[1, 1] = cuda.threadIdx.x
        cuda.syncthreads()
        out[cuda.threadIdx.x] = tile[cuda.threadIdx.x]
        local[cuda.threadIdx.x] = mine[1, 1]

    out, local = np.zeros(4), np.zeros(4)
    run(kernel, 1, 4, out, local)
    assert np.isnan(out).all()
    assert local.tolist() == [0, 1, 2, 3]


def test_block_votes():
    def kernel(out):
        i = cuda.threadIdx.x
        out[i, 0] = cuda.syncthreads_count(i % 3 == 0)
        out[i, 1] = cuda.syncthreads_and(i < 40)
        out[i, 2] = cuda.syncthreads_or(i == 39)

    out = np.zeros((40, 3), np.int32)
    run(kernel, 1, 40, out)
    assert (out == [14, 1, 1]).all()


def test_grid_barrier():
    def kernel(x, out):
        i = cuda.grid(1)
        group = cuda.cg.this_grid()
        x[i] = i
        group.sync()
        out[i] = x[x.size - 1 - i]
        group.sync()
        x[i] = -1

    x, out = np.zeros(48, np.int64), np.zeros(48, np.int64)
    run(kernel, 3, 16, x, out)
    np.testing.assert_array_equal(out, np.arange(48)[::-1])
    assert (x == -1).all()


def test_early_return_holds_up_no_barrier():
    def kernel(out):
        if cuda.threadIdx.x >= 10:
            return
        cuda.syncthreads()
        out[cuda.threadIdx.x] = 1

    out = np.zeros(32)
    run(kernel, 1, 32, out)
    assert out.sum() == 10


def test_a_barrier_that_some_threads_go_around(line_of):
    def kernel(out):
        if cuda.threadIdx.x < 16:
            cuda.syncthreads()  # HERE
        out[0] += 0

    with pytest.raises(KernelError, match="only some live threads") as caught:
        run(kernel, 1, 32, np.zeros(1))
    assert f":{line_of(kernel, '# HERE')}" in str(caught.value)


def test_a_warp_operation_that_some_lanes_never_reach():
    def kernel(out):
        if cuda.threadIdx.x < 16:
            cuda.syncwarp()
        cuda.syncthreads()

    with pytest.raises(KernelError, match="16 threads waiting in syncwarp"):
        run(kernel, 1, 32, np.zeros(1))


# --- warps


def test_shuffles():
    def kernel(out):
        i = cuda.threadIdx.x
        out[0, i] = cuda.shfl_sync(FULL, i * 10, 5)
        out[1, i] = cuda.shfl_up_sync(FULL, i * 10, 3)
        out[2, i] = cuda.shfl_down_sync(FULL, i * 10, 3)
        out[3, i] = cuda.shfl_xor_sync(FULL, i * 10, 6)

    out = np.zeros((4, 32), np.int64)
    run(kernel, 1, 32, out)
    lanes = np.arange(32)
    assert (out[0] == 50).all()
    np.testing.assert_array_equal(out[1], np.where(lanes >= 3, lanes - 3, lanes) * 10)
    np.testing.assert_array_equal(out[2], np.where(lanes < 29, lanes + 3, lanes) * 10)
    np.testing.assert_array_equal(out[3], (lanes ^ 6) * 10)


def test_lane_numbers_are_numbers():
    def kernel(x, out):
        i = cuda.threadIdx.x
        out[i, 0] = x[cuda.laneid]
        out[i, 1] = x[i] * cuda.laneid
        out[i, 2] = cuda.laneid
        out[i, 3] = i // cuda.warpsize + (cuda.laneid << 1)

    x, out = np.arange(40, dtype=np.float32), np.zeros((40, 4))
    run(kernel, 1, 40, x, out)
    i = np.arange(40)
    expected = np.stack([i % 32, i * (i % 32), i % 32, i // 32 + i % 32 * 2], axis=1)
    np.testing.assert_array_equal(out, expected)


def test_votes_and_matches():
    def kernel(out, x):
        i = cuda.threadIdx.x
        out[0, i] = cuda.ballot_sync(FULL, i % 2)
        out[1, i] = cuda.any_sync(FULL, i == 31)
        out[2, i] = cuda.all_sync(FULL, i < 31)
        out[3, i] = cuda.eq_sync(FULL, 7)
        out[4, i] = cuda.match_any_sync(FULL, x[i])
        mask, same = cuda.match_all_sync(FULL, x[i])
        out[5, i] = mask + same
        out[6, i] = cuda.lanemask_lt()

    out = np.zeros((7, 32), np.int64)
    x = np.arange(32) % 3
    run(kernel, 1, 32, out, x)
    assert (out[0] == -0x55555556).all()
    assert (out[1] == 1).all() and (out[2] == 0).all() and (out[3] == 1).all()
    groups = [sum(1 << lane for lane in range(32) if x[lane] == x[i]) for i in range(32)]
    np.testing.assert_array_equal(out[4], np.array(groups, np.uint32).view(np.int32))
    assert (out[5] == 0).all()
    np.testing.assert_array_equal(out[6], [2**i - 1 for i in range(32)])


def test_partial_masks_and_convergence():
    def kernel(out):
        i = cuda.threadIdx.x
        if i < 4:
            out[i] = cuda.ballot_sync(0xF, True)
        elif i < 8:
            out[i] = cuda.activemask()
        elif i < 12:
            return
        cuda.syncwarp(0xFFFFF0FF)

    out = np.zeros(32, np.int64)
    run(kernel, 1, 32, out)
    assert out[:12].tolist() == [0xF] * 4 + [0xF0] * 4 + [0] * 4


def test_a_lane_outside_its_own_mask():
    def kernel(out):
        out[0] = cuda.ballot_sync(0x7FFFFFFF, True)

    with pytest.raises(KernelError, match="lane 31 is not in its own mask 0x7fffffff"):
        run(kernel, 1, 32, np.zeros(1))


# --- waiting for each other


def test_threads_and_blocks_may_wait_for_later_ones():
    def kernel(flags, out):
        i = cuda.grid(1)
        if i + 1 < flags.size:
            while flags[i + 1] == 0:
                pass
        out[0] = out[0] * 10 + i
        flags[i] = 1

    flags, out = np.zeros(6, np.int32), np.zeros(1, np.int64)
    run(kernel, 2, 3, flags, out)
    assert out[0] == 543210


def test_a_spin_lock_in_one_warp():
    def kernel(lock, total):
        while cuda.atomic.cas(lock, 0, 0, 1) != 0:
            pass
        total[0] += 1
        cuda.threadfence()
        cuda.atomic.exch(lock, 0, 0)

    lock, total = np.zeros(1, np.int32), np.zeros(1, np.int64)
    run(kernel, 1, 32, lock, total)
    assert total[0] == 32


def test_an_endless_wait_is_reported(line_of):
    def kernel(flag):
        while flag[0] == 0:  # HERE
            pass

    with pytest.raises(KernelError, match="endless wait") as caught:
        run(kernel, 1, 2, np.zeros(1))
    assert f":{line_of(kernel, '# HERE')}" in str(caught.value)


# --- types


def test_arithmetic_has_cudas_types():
    kinds = {}

    def kernel(f, d, i, u, b):
        x, n, m = f[0], i[0], u[0]
        kinds["float32 * float literal"] = type(x * 2.0)
        kinds["float32 * int"] = type(x * 2)
        kinds["float32 * float32"] = type(x * float32(2.0))
        kinds["float32 ** int"] = type(x**2)
        kinds["int32 + int32"] = (n + n).dtype
        kinds["uint64 + uint64"] = (uint64(3) + uint64(4)).dtype
        kinds["uint8 + uint8"] = (m + m).dtype
        kinds["int / int"] = type(n / 2)
        kinds["bool + int"] = (b[0] + 1).dtype
        kinds["exp float32"] = type(math.exp(x))
        kinds["exp int"] = type(math.exp(n))
        kinds["floor float32"] = type(math.floor(x))
        kinds["float64"] = type(d[0] * x)
        kinds["round"] = type(round(x))
        kinds["range"] = next(type(k) for k in range(1))
        kinds["shape"] = type(f.shape[0] * x)

    arrays = [np.ones(1, t) for t in (np.float32, np.float64, np.int32, np.uint8, np.bool_)]
    run(kernel, 1, 1, *arrays)
    int64, u64 = np.dtype(np.int64), np.dtype(np.uint64)
    assert kinds == {
        "float32 * float literal": np.float64,
        "float32 * int": np.float64,
        "float32 * float32": np.float32,
        "float32 ** int": np.float32,
        "int32 + int32": int64,
        "uint64 + uint64": u64,
        "uint8 + uint8": u64,
        "int / int": np.float64,
        "bool + int": int64,
        "exp float32": np.float32,
        "exp int": np.float64,
        "floor float32": np.float32,
        "float64": np.float64,
        "round": Int,
        "range": Int,
        "shape": np.float64,
    }


def test_integers_wrap_and_stores_truncate():
    def kernel(out, small):
        big = 2**62
        out[0] = big * 2
        out[1] = uint32(2**32 + 7)
        out[2] = int32(2**31)
        out[3] = 7 // 0 if small[0] == 0 else 1
        small[0] = 300
        small[1] = 2.9
        small[2] = -1

    out, small = np.zeros(4, np.int64), np.zeros(3, np.uint8)
    run(kernel, 1, 1, out, small)
    assert out.tolist() == [-(2**63), 7, -(2**31), 0]
    assert small.tolist() == [44, 2, 255]


def test_half_precision_computes_in_float32():
    def kernel(x, out):
        out[0] = x[0] + x[1]
        x[2] = x[0] + x[1]

    x, out = np.array([2048, 1, 0], np.float16), np.zeros(1)
    run(kernel, 1, 1, x, out)
    assert out[0] == 2049
    assert x[2] == 2048


def test_mathematics_like_c():
    def kernel(x, out):
        out[0] = math.log(x[0])
        out[1] = math.sqrt(x[1])
        out[2] = math.exp(x[2])
        out[3] = x[3] / x[0]
        out[4] = max(x[4], x[3])
        out[5] = min(x[3], x[4])

    out = np.zeros(6)
    run(kernel, 1, 1, np.array([0, -1, 1000, 1, np.nan], np.float32), out)
    assert out[[0, 2, 3, 4, 5]].tolist() == [-math.inf, math.inf, math.inf, 1, 1]
    assert math.isnan(out[1])


def test_bit_operations_know_their_width():
    def kernel(x, out):
        out[0], out[1] = cuda.popc(x[0]), cuda.popc(-1)
        out[2], out[3] = cuda.clz(x[1]), cuda.ffs(x[1])
        out[4] = cuda.brev(uint32(1))
        out[5] = cuda.fma(2.0, 3.0, 1.0)
        out[6] = cuda.selp(x[1] > 0, 5, 6)

    out = np.zeros(7, np.int64)
    run(kernel, 1, 1, np.array([-1, 8], np.int32), out)
    assert out.tolist() == [32, 64, 28, 4, 2**31, 7, 5]


def test_atomics():
    def kernel(counts, x, best):
        i = cuda.grid(1)
        cuda.atomic.add(counts, x[i], 1)
        cuda.atomic.max(best, (0, 1), x[i])
        old = cuda.atomic.inc(best, (1, 0), 3)
        assert old <= 3

    x = np.random.default_rng(SEED).integers(0, 5, 64)
    counts, best = np.zeros(5, np.int32), np.zeros((2, 2), np.uint32)
    run(kernel, 2, 32, counts, x, best)
    np.testing.assert_array_equal(counts, np.bincount(x, minlength=5))
    assert best.tolist() == [[0, x.max()], [64 % 4, 0]]


def test_atomics_that_cuda_lacks():
    def kernel(a):
        cuda.atomic.add(a, 0, 1)

    with pytest.raises(CompileError, match="no such atomic for int8"):
        run(kernel, 1, 1, np.zeros(1, np.int8))


# --- what a kernel refers to

SCALE = 3
TABLE = np.array([1.5, 2.5], np.float32)


@cuda.jit(device=True)
def scaled(x, depth=0):
    if depth < 2:
        return scaled(x, depth + 1) + SCALE
    cuda.syncthreads()
    return x + TABLE[1]


def test_device_functions_globals_closures_and_defaults():
    offset = 100

    def kernel(out):
        table = cuda.const.array_like(TABLE)
        out[cuda.threadIdx.x] = scaled(cuda.threadIdx.x) + offset + table[0]

    out = np.zeros(3)
    run(kernel, 1, 3, out)
    assert out.tolist() == [110, 111, 112]


def test_constant_arrays_are_read_only():
    def kernel(out):
        TABLE[0] = 1

    with pytest.raises(ValueError, match="read-only"):
        run(kernel, 1, 1, np.zeros(1))
    assert TABLE[0] == 1.5


@pytest.mark.needs("numba.cuda")
def test_kernels_written_for_numba_cuda():
    from numba import cuda as real

    def kernel(out):
        tile = real.shared.array(4, real.float32)
        i = real.grid(1)
        tile[i] = i
        real.syncthreads()
        out[i] = tile[3 - i]
        real.atomic.add(out, 0, 10)

    out = np.zeros(4)
    run(kernel, 1, 4, out)
    assert out.tolist() == [43, 2, 1, 0]


def test_vector_types():
    def kernel(out):
        pair = cuda.float2(1, 2)
        whole = cuda.float4(pair, 3, 4.5)
        out[0] = whole.x + whole.y + whole.z + whole.w

    out = np.zeros(1)
    run(kernel, 1, 1, out)
    assert out[0] == 10.5


def test_any_python_works(capsys):
    def kernel(out):
        seen = {k: [k] * 2 for k in range(3)}
        try:
            out[0] = sum(len(v) for v in seen.values())
        finally:
            print("thread", cuda.threadIdx.x)

    out = np.zeros(1)
    run(kernel, 1, 2, out)
    assert out[0] == 6
    assert capsys.readouterr().out == "thread 0\nthread 1\n"


def test_breakpoint_stops_in_the_kernel(monkeypatch):
    seen = []

    def hook():
        frame = interpreter.sys._getframe(1)
        seen.append((frame.f_locals["i"], cuda.threadIdx.x))

    monkeypatch.setattr("sys.breakpointhook", hook)

    def kernel(out):
        i = cuda.grid(1)
        if i == 2:
            breakpoint()
        out[i] = i

    run(kernel, 1, 4, np.zeros(4))
    assert seen == [(2, 2)]


# --- errors


def test_out_of_bounds_names_everything(line_of):
    def kernel(values):
        values[cuda.grid(1), 0] = 1  # HERE

    with pytest.raises(KernelIndexError) as caught:
        run(kernel, 2, 8, np.zeros((10, 2)))
    message = str(caught.value)
    for part in ("values[10, 0]", "(10, 2)", "block (1, 0, 0)", "thread (2, 0, 0)"):
        assert part in message
    assert f":{line_of(kernel, '# HERE')}" in message


def test_exceptions_come_through_with_the_thread():
    def kernel(x):
        cuda.syncthreads()
        if cuda.threadIdx.x == 3:
            raise ValueError("three")

    with pytest.raises(ValueError, match="three") as caught:
        run(kernel, 1, 8, np.zeros(1))
    assert "thread (3, 0, 0)" in caught.value.__notes__[0]


@pytest.mark.parametrize(
    ("grid", "block"), [(0, 1), (1, 1025), ((1, 1, 1, 1), 1), (1, (1, 1, 65)), ((1, 65536), 1)]
)
def test_launch_limits(grid, block):
    def kernel(x):
        x[0] = 1

    with pytest.raises(LaunchError):
        run(kernel, grid, block, np.zeros(1))


def test_shared_memory_limit():
    def kernel(x):
        cuda.shared.array(40 * 1024, np.uint8)
        cuda.shared.array(9 * 1024, np.uint8)

    with pytest.raises(LaunchError, match="49152"):
        run(kernel, 1, 1, np.zeros(1))


def test_a_kernel_returns_nothing():
    def kernel(x):
        return 1

    with pytest.raises(CompileError, match="returns nothing"):
        run(kernel, 1, 1, np.zeros(1))


def test_no_thread_outlives_a_launch():
    import threading

    def kernel(x):
        cuda.syncthreads()
        if cuda.threadIdx.x == 20:
            raise KeyError(1)
        cuda.syncthreads()

    before = threading.active_count()
    with pytest.raises(KeyError):
        run(kernel, 4, 32, np.zeros(1))
    assert threading.active_count() == before


def test_arrays_keep_their_identity_and_strides():
    base = np.zeros((6, 6))
    view = value_of(base[::2, 1:])
    assert isinstance(view, KernelArray)
    assert np.shares_memory(view, base)
    assert view.T.shape == (5, 3)
