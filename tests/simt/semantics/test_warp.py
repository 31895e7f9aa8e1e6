"""Warp operations: shuffles, votes, matches and masks, whole warps and broken ones.

Numba's simulator has none of these; the expected values come from the PTX manual's definitions.
"""

from __future__ import annotations

import numpy as np
import pytest
from numba import float32, int32, int64, uint32

from kernels.simt import cuda

FULL = 0xFFFFFFFF


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.float32, np.float64])
def test_shuffles_of_a_full_warp(jit, dtype):
    @jit
    def kernel(a, out):
        i = cuda.grid(1)
        out[0, i] = cuda.shfl_sync(FULL, a[i], 5)
        out[1, i] = cuda.shfl_up_sync(FULL, a[i], 3)
        out[2, i] = cuda.shfl_down_sync(FULL, a[i], 4)
        out[3, i] = cuda.shfl_xor_sync(FULL, a[i], 9)

    a = (np.arange(96) * 7 % 97).astype(dtype)
    out = np.zeros((4, 96), dtype)
    kernel[1, 96](a, out)
    lane, base = np.arange(96) % 32, np.arange(96) // 32 * 32
    np.testing.assert_array_equal(out[0], a[base + 5])
    # Lanes whose source is outside the warp keep their own value.
    np.testing.assert_array_equal(out[1], a[base + np.where(lane >= 3, lane - 3, lane)])
    np.testing.assert_array_equal(out[2], a[base + np.where(lane < 28, lane + 4, lane)])
    np.testing.assert_array_equal(out[3], a[base + (lane ^ 9)])


def test_shuffle_from_a_lane_that_differs(jit):
    @jit
    def kernel(a, out):
        i = cuda.grid(1)
        lane = cuda.laneid
        out[i] = cuda.shfl_sync(FULL, a[i], (lane * 5 + 3) % 32)

    a = np.arange(64)
    out = np.zeros(64, np.int64)
    kernel[1, 64](a, out)
    lane = np.arange(64) % 32
    np.testing.assert_array_equal(out, np.arange(64) // 32 * 32 + (lane * 5 + 3) % 32)


def test_source_lane_is_taken_modulo_the_warp(jit):
    @jit
    def kernel(out):
        i = cuda.threadIdx.x
        out[i] = cuda.shfl_sync(FULL, i, i + 1)

    out = np.zeros(32, np.int32)
    kernel[1, 32](out)
    assert out.tolist() == [*range(1, 32), 0]


def test_warp_reduction_loop(jit, rng):
    @jit
    def kernel(a, out):
        i = cuda.grid(1)
        v = a[i]
        offset = 16
        while offset > 0:
            v += cuda.shfl_down_sync(FULL, v, offset)
            offset //= 2
        if cuda.laneid == 0:
            out[i // 32] = v

    a = rng.integers(-1000, 1000, 256)
    out = np.zeros(8, np.int64)
    kernel[2, 128](a, out)
    np.testing.assert_array_equal(out, a.reshape(8, 32).sum(1))


def test_warp_inclusive_scan(jit, rng):
    @jit
    def kernel(a, out):
        i = cuda.grid(1)
        lane = i % 32
        v = a[i]
        for k in range(5):
            other = cuda.shfl_up_sync(FULL, v, 1 << k)
            if lane >= 1 << k:
                v += other
        out[i] = v

    a = rng.integers(-9, 9, 64)
    out = np.zeros(64, np.int64)
    kernel[1, 64](a, out)
    np.testing.assert_array_equal(out.reshape(2, 32), a.reshape(2, 32).cumsum(1))


def test_butterfly_maximum(jit, rng):
    @jit
    def kernel(a, out):
        i = cuda.grid(1)
        v = a[i]
        for k in range(5):
            v = max(v, cuda.shfl_xor_sync(FULL, v, 16 >> k))
        out[i] = v

    a = rng.standard_normal(64).astype(np.float32)
    out = np.zeros(64, np.float32)
    kernel[1, 64](a, out)
    np.testing.assert_array_equal(
        out.reshape(2, 32), np.repeat(a.reshape(2, 32).max(1), 32).reshape(2, 32)
    )


def test_partial_warp_of_a_small_block(jit):
    # 20 threads: lanes 20 to 31 do not exist. Reading them is undefined, staying inside is not.
    @jit
    def kernel(out):
        i = cuda.threadIdx.x
        v = cuda.shfl_sync((1 << 20) - 1, i * 3, 19 - i)
        out[i] = v

    out = np.zeros(20, np.int64)
    kernel[1, 20](out)
    assert out.tolist() == [3 * (19 - i) for i in range(20)]


def test_partial_masks_in_divergent_branches(jit):
    @jit
    def kernel(out):
        i = cuda.threadIdx.x
        if i < 16:
            out[i] = cuda.shfl_sync(0x0000FFFF, i, 15 - i)
        else:
            out[i] = cuda.shfl_xor_sync(0xFFFF0000, i * 10, 1)

    out = np.zeros(32, np.int64)
    kernel[1, 32](out)
    expected = [15 - i for i in range(16)] + [(i ^ 1) * 10 for i in range(16, 32)]
    assert out.tolist() == expected


def test_shuffles_after_other_lanes_returned(jit):
    @jit
    def kernel(n, out):
        i = cuda.threadIdx.x
        if i >= n:
            return
        v = i + 1
        for k in range(3):
            v += cuda.shfl_xor_sync(0xFF, v, 1 << k)
        out[i] = v

    out = np.zeros(32, np.int64)
    kernel[1, 32](8, out)
    assert out.tolist() == [36] * 8 + [0] * 24


def test_shuffle_in_a_branch_that_whole_warps_take(jit):
    @jit
    def kernel(a, out):
        i = cuda.threadIdx.x
        warp = i // 32
        v = a[i]
        if warp == 1:
            v = cuda.shfl_xor_sync(FULL, v, 1)
        cuda.syncthreads()
        if warp == 0:
            v = v + cuda.shfl_down_sync(FULL, v, 1)
        out[i] = v

    a = np.arange(96)
    out = np.zeros(96, np.int64)
    kernel[1, 96](a, out)
    down = np.arange(32) + np.minimum(np.arange(32) + 1, 31)
    np.testing.assert_array_equal(out, np.concatenate([down, np.arange(32, 64) ^ 1, a[64:]]))


def test_block_reduction_by_shuffles(jit, rng):
    @jit
    def kernel(a, out):
        partial = cuda.shared.array(32, float32)
        i = cuda.grid(1)
        t = cuda.threadIdx.x
        lane, warp = t % 32, t // 32
        v = a[i] if i < a.size else float32(0)
        for k in range(5):
            v += cuda.shfl_down_sync(FULL, v, 16 >> k)
        if lane == 0:
            partial[warp] = v
        cuda.syncthreads()
        if warp == 0:
            v = partial[lane] if lane < cuda.blockDim.x // 32 else float32(0)
            for k in range(5):
                v += cuda.shfl_down_sync(FULL, v, 16 >> k)
            if lane == 0:
                cuda.atomic.add(out, 0, v)

    a = rng.integers(-50, 50, 1025).astype(np.float32)
    out = np.zeros(1, np.float32)
    kernel[5, 256](a, out)
    assert out[0] == a.sum()


def test_votes(jit):
    @jit
    def kernel(a, out):
        i = cuda.grid(1)
        out[0, i] = cuda.all_sync(FULL, a[i] >= 0)
        out[1, i] = cuda.any_sync(FULL, a[i] > 40)
        out[2, i] = cuda.eq_sync(FULL, a[i] > 1000)
        out[3, i] = cuda.eq_sync(FULL, a[i] > 40)

    a = np.arange(64)
    out = np.zeros((4, 64), np.int32)
    kernel[1, 64](a, out)
    warp = np.arange(64) // 32
    np.testing.assert_array_equal(out != 0, [warp >= 0, warp == 1, warp >= 0, warp == 0])


def test_ballot_is_per_thread(jit):
    # The value of ballot(mask, True) depends on which threads are there to vote.
    @jit
    def kernel(n, out):
        i = cuda.threadIdx.x
        if i < n:
            out[0, i] = cuda.ballot_sync((1 << n) - 1, True)
        out[1, i] = cuda.ballot_sync(FULL, i % 3 == 0)

    out = np.zeros((2, 32), np.uint32)
    kernel[1, 32](11, out)
    assert out[0].tolist() == [(1 << 11) - 1] * 11 + [0] * 21
    assert (out[1] == sum(1 << i for i in range(0, 32, 3))).all()


def test_ballot_is_a_signed_int32(jit):
    # numba-cuda types ballot_sync and match_any_sync as int32.
    @jit
    def kernel(out):
        out[cuda.threadIdx.x] = cuda.ballot_sync(FULL, 1)

    out = np.zeros(32, np.int64)
    kernel[1, 32](out)
    assert (out == -1).all()


def test_stream_compaction_with_ballot_and_popc(jit, rng):
    @jit
    def kernel(a, out, count):
        i = cuda.threadIdx.x
        keep = a[i] > 0
        votes = cuda.ballot_sync(FULL, keep)
        before = cuda.popc(votes & cuda.lanemask_lt())
        if keep:
            out[before] = a[i]
        if i == 0:
            count[0] = cuda.popc(votes)

    a = rng.integers(-5, 5, 32)
    out, count = np.zeros(32, np.int64), np.zeros(1, np.int32)
    kernel[1, 32](a, out, count)
    assert out[: count[0]].tolist() == a[a > 0].tolist()


def test_match_any(jit, rng):
    @jit
    def kernel(a, out):
        i = cuda.grid(1)
        out[i] = cuda.match_any_sync(FULL, a[i])

    a = rng.integers(0, 5, 64)
    out = np.zeros(64, np.uint32)
    kernel[1, 64](a, out)
    for warp in range(2):
        part = a[warp * 32 : warp * 32 + 32]
        expected = [sum(1 << j for j in range(32) if part[j] == v) for v in part]
        assert out[warp * 32 : warp * 32 + 32].tolist() == expected


def test_match_all(jit):
    @jit
    def kernel(a, mask, same):
        i = cuda.grid(1)
        m, p = cuda.match_all_sync(FULL, a[i])
        mask[i] = m
        same[i] = p

    a = np.array([7] * 32 + [7] * 31 + [8])
    mask, same = np.zeros(64, np.uint32), np.zeros(64, np.int32)
    kernel[1, 64](a, mask, same)
    assert mask.tolist() == [FULL] * 32 + [0] * 32
    assert (same != 0).tolist() == [True] * 32 + [False] * 32


def test_activemask(jit):
    @jit
    def kernel(out):
        i = cuda.threadIdx.x
        out[i] = cuda.activemask()

    out = np.zeros(52, np.uint32)
    kernel[1, 52](out)
    assert out.tolist() == [FULL] * 32 + [(1 << 20) - 1] * 20


def test_activemask_in_a_branch(jit):
    @jit
    def kernel(out):
        i = cuda.threadIdx.x
        if i < 10:
            out[i] = cuda.activemask()

    out = np.zeros(32, np.uint32)
    kernel[1, 32](out)
    assert out.tolist() == [(1 << 10) - 1] * 10 + [0] * 22


def test_lanemask_and_laneid(jit):
    @jit
    def kernel(lt, lane, size):
        i = cuda.threadIdx.x + cuda.threadIdx.y * cuda.blockDim.x
        lt[i] = cuda.lanemask_lt()
        lane[i] = cuda.laneid
        size[i] = cuda.warpsize

    lt, lane, size = np.zeros(80, np.uint32), np.zeros(80, np.int32), np.zeros(80, np.int32)
    kernel[1, (20, 4)](lt, lane, size)
    np.testing.assert_array_equal(lane, np.arange(80) % 32)
    np.testing.assert_array_equal(lt, (1 << (np.arange(80) % 32)) - 1)
    assert (size == 32).all()


def test_warps_of_a_two_dimensional_block_run_x_first(jit):
    @jit
    def kernel(out):
        x, y = cuda.threadIdx.x, cuda.threadIdx.y
        out[y, x] = cuda.shfl_down_sync(FULL, y * 100 + x, 1)

    out = np.zeros((4, 16), np.int64)
    kernel[1, (16, 4)](out)
    flat = np.arange(64) // 16 * 100 + np.arange(64) % 16
    source = np.where(np.arange(64) % 32 == 31, np.arange(64), np.arange(64) + 1)
    np.testing.assert_array_equal(out.ravel(), flat[np.minimum(source, 63)])


def test_order_of_evaluation_around_a_shuffle(jit):
    @jit
    def kernel(a, out):
        i = cuda.threadIdx.x
        out[i] = a[i] * 1000 + cuda.shfl_xor_sync(FULL, a[i], 1) + a[i ^ 2] * 0
        a[i] = -1
        out[i] += cuda.shfl_down_sync(FULL, out[i], 1) * cuda.any_sync(FULL, a[i] < -5)

    a = np.arange(32)
    out = np.zeros(32, np.int64)
    kernel[1, 32](a, out)
    i = np.arange(32)
    np.testing.assert_array_equal(out, i * 1000 + (i ^ 1))


def test_two_shuffles_in_one_expression(jit):
    @jit
    def kernel(out):
        i = cuda.threadIdx.x
        out[i] = cuda.shfl_sync(FULL, cuda.shfl_xor_sync(FULL, i, 1), 31 - i) - cuda.shfl_up_sync(
            FULL, i, 1
        )

    out = np.zeros(32, np.int64)
    kernel[1, 32](out)
    i = np.arange(32)
    np.testing.assert_array_equal(out, ((31 - i) ^ 1) - np.maximum(i - 1, 0))


def test_vote_driven_warp_loop(jit):
    # Each warp goes on for as long as one of its lanes wants to.
    @jit
    def kernel(a, rounds):
        i = cuda.grid(1)
        left = a[i]
        n = 0
        while cuda.any_sync(FULL, left > 0):
            left -= 1
            n += 1
        rounds[i] = n

    a = np.arange(96) * 3 % 40
    rounds = np.zeros(96, np.int32)
    kernel[1, 96](a, rounds)
    np.testing.assert_array_equal(rounds, np.repeat(a.reshape(3, 32).max(1), 32))


def test_warp_loop_with_leader_election(jit, rng):
    # Lanes with equal keys are served together; ffs picks the leader.
    @jit
    def kernel(keys, out):
        i = cuda.threadIdx.x
        key = keys[i]
        done = False
        rounds = 0
        while cuda.any_sync(FULL, not done):
            todo = cuda.ballot_sync(FULL, not done)
            leader = cuda.ffs(todo) - 1
            chosen = cuda.shfl_sync(FULL, key, leader)
            if not done and key == chosen:
                out[i] = rounds
                done = True
            rounds += 1

    keys = rng.integers(0, 6, 32)
    out = np.zeros(32, np.int64)
    kernel[1, 32](keys, out)
    first = list(dict.fromkeys(keys.tolist()))
    assert out.tolist() == [first.index(k) for k in keys]


def test_shuffle_inside_a_device_function(jit):
    @cuda.jit(device=True)
    def warp_sum(v):
        for k in range(5):
            v += cuda.shfl_xor_sync(FULL, v, 1 << k)
        return v

    @jit
    def kernel(a, out):
        i = cuda.grid(1)
        out[i] = warp_sum(a[i]) - warp_sum(int32(1))

    a = np.arange(64)
    out = np.zeros(64, np.int64)
    kernel[1, 64](a, out)
    np.testing.assert_array_equal(out, np.repeat(a.reshape(2, 32).sum(1), 32) - 32)


def test_syncwarp_orders_shared_memory_within_a_warp(jit):
    @jit
    def kernel(out):
        tile = cuda.shared.array(64, int64)
        i = cuda.threadIdx.x
        tile[i] = i
        cuda.syncwarp()
        v = tile[i ^ 1]
        cuda.syncwarp()
        tile[i] = v * 10
        cuda.syncwarp()
        out[i] = tile[i ^ 3]

    out = np.zeros(64, np.int64)
    kernel[1, 64](out)
    np.testing.assert_array_equal(out, (np.arange(64) ^ 3 ^ 1) * 10)


def test_bit_operations(jit):
    @jit
    def kernel(u, w, out, wide):
        i = cuda.grid(1)
        if i < u.size:
            out[0, i] = cuda.popc(u[i])
            out[1, i] = cuda.clz(u[i])
            out[2, i] = cuda.ffs(u[i])
            out[3, i] = cuda.brev(u[i])
            wide[0, i] = cuda.popc(w[i])
            wide[1, i] = cuda.clz(w[i])
            wide[2, i] = cuda.ffs(w[i])
            wide[3, i] = cuda.brev(w[i])

    u = np.array([0, 1, 2, 0x80000000, FULL, 0x00F0, 12345], np.uint32)
    w = np.array([0, 1, 2**63, 2**64 - 1, 2**40, 0xF0, 987654321987], np.uint64)
    out, wide = np.zeros((4, 7), np.uint32), np.zeros((4, 7), np.uint64)
    kernel[1, 8](u, w, out, wide)

    def expected(v, bits):
        text = format(int(v), f"0{bits}b")
        low = len(text) - len(text.rstrip("0"))
        return [
            text.count("1"),
            len(text) - len(text.lstrip("0")),
            0 if v == 0 else low + 1,
            int(text[::-1], 2),
        ]

    assert out.T.tolist() == [expected(v, 32) for v in u]
    assert wide.T.tolist() == [expected(v, 64) for v in w]


def test_selp(jit):
    @jit
    def kernel(a, out):
        i = cuda.grid(1)
        out[i] = cuda.selp(a[i] > 3, a[i], -a[i])

    a = np.arange(8)
    out = np.zeros(8, np.int64)
    kernel[1, 8](a, out)
    assert out.tolist() == [0, -1, -2, -3, 4, 5, 6, 7]


def test_uint32_and_bool_operands_of_votes(jit):
    @jit
    def kernel(out):
        i = cuda.threadIdx.x
        out[i] = cuda.popc(cuda.ballot_sync(uint32(FULL), uint32(i) & uint32(1)))

    out = np.zeros(32, np.int64)
    kernel[1, 32](out)
    assert (out == 16).all()
