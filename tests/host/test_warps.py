"""Warp operations, votes, barriers with predicates, atomics: against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from kernels import raw_kernel

pytestmark = pytest.mark.usefixtures("order")


def run(
    body: str, threads: int, rows: int, dtype=np.int32, ctype: str = "int", debug=None
) -> np.ndarray:
    """`body` sets out[row * n + t] for each thread t of one block."""
    code = f"""
    __global__ void body({ctype}* out) {{
        const int t = threadIdx.x, n = blockDim.x, lane = t % 32;
        {body}
    }}
    """
    out = np.full((rows, threads), -7).astype(dtype)
    raw_kernel(code, "body", debug=debug)((1,), (threads,), (out,))
    return out


def test_shuffles():
    out = run(
        """
        out[t] = __shfl_sync(0xffffffff, t, 5);
        out[n + t] = __shfl_up_sync(0xffffffff, t, 3);
        out[2 * n + t] = __shfl_down_sync(0xffffffff, t, 3);
        out[3 * n + t] = __shfl_xor_sync(0xffffffff, t, 9);
        out[4 * n + t] = __shfl_sync(0xffffffff, t, 2, 8);
        out[5 * n + t] = __shfl_up_sync(0xffffffff, t, 1, 4);
        out[6 * n + t] = __shfl_down_sync(0xffffffff, t, 1, 4);
        out[7 * n + t] = (int)(__shfl_xor_sync(0xffffffff, t * 1e10, 1) / 1e10);
        out[8 * n + t] = (int)(__shfl_xor_sync(0xffffffff, (long long)t << 40, 2) >> 40);
        """,
        64,
        9,
    )
    t = np.arange(64)
    lane, base = t % 32, t - t % 32
    assert (out[0] == base + 5).all()
    assert (out[1] == np.where(lane < 3, t, t - 3)).all()
    assert (out[2] == np.where(lane > 28, t, t + 3)).all()
    assert (out[3] == t ^ 9).all()
    assert (out[4] == t - t % 8 + 2).all()
    assert (out[5] == np.where(t % 4 == 0, t, t - 1)).all()
    assert (out[6] == np.where(t % 4 == 3, t, t + 1)).all()
    assert (out[7] == t ^ 1).all()
    assert (out[8] == t ^ 2).all()


def test_votes_matches_reductions():
    out = run(
        """
        unsigned full = 0xffffffff;
        int all = 0;
        out[t] = __ballot_sync(full, lane % 3 == 0);
        out[n + t] = __any_sync(full, lane == 7) + 2 * __any_sync(full, lane > 40);
        out[2 * n + t] = __all_sync(full, lane < 32) + 2 * __all_sync(full, lane < 31);
        out[3 * n + t] = __match_any_sync(full, lane / 5);
        out[4 * n + t] = __match_all_sync(full, t / 32, &all);
        out[5 * n + t] = all;
        if (__match_all_sync(full, 1.5f * lane, &all) || all) out[5 * n + t] = 2;
        out[6 * n + t] = __reduce_add_sync(full, t);
        out[7 * n + t] = __reduce_min_sync(full, lane - 16);
        out[8 * n + t] = __reduce_max_sync(full, (unsigned)(lane - 16));
        out[9 * n + t] = __reduce_xor_sync(full, 1u << lane) ^ __reduce_or_sync(full, 1u << lane);
        out[10 * n + t] = __reduce_and_sync(full, ~(1u << lane) | 1u << 31);
        __syncwarp();
        """,
        64,
        11,
        np.uint32,
        "unsigned",
    )
    lane = np.arange(64) % 32
    assert (out[0] == sum(1 << i for i in range(0, 32, 3))).all()
    assert (out[1] == 1).all()
    assert (out[2] == 1).all()
    groups = [sum(1 << j for j in range(32) if j // 5 == i // 5) for i in lane]
    assert (out[3] == groups).all()
    assert (out[4] == 0xFFFFFFFF).all()
    assert (out[5] == 1).all()
    assert (out[6][[0, 40]] == [sum(range(32)), sum(range(32, 64))]).all()
    assert (out[7].view(np.int32) == -16).all()
    assert (out[8] == 0xFFFFFFFF).all()
    assert (out[9] == 0).all()
    assert (out[10] == 0x80000000).all()


def test_partial_masks_and_exited_lanes():
    out = run(
        """
        if (lane >= 20) return;
        unsigned mine = lane % 2 ? 0x000aaaaau : 0x00055555u;
        if (lane % 2) out[t] = __reduce_add_sync(mine, 1);
        else out[t] = 100 + __popc(__ballot_sync(mine, lane < 10));
        out[n + t] = __popc(__ballot_sync(0xffffffff, 1));  // the exited lanes don't count
        out[2 * n + t] = __shfl_sync(0xffffffff, t, 25);    // undefined in CUDA: poison here
        """,
        48,
        3,
        debug=False,  # the checked mode reports the last line
    )
    lane = np.arange(48) % 32
    here = lane < 20
    here[32:] = True
    count = np.where(np.arange(48) < 32, 10, 8)
    expected = np.where(lane % 2, count, np.where(np.arange(48) < 32, 105, 105))
    assert (out[0][here] == expected[here]).all()
    assert (out[0][~here] == -7).all()
    assert (out[1][here] == np.where(np.arange(48) < 32, 20, 16)[here]).all()
    assert (out[2][here] == -1).all()


def test_activemask_sees_the_lanes_of_its_branch():
    """The warp-aggregated atomic of the CUDA blog."""
    out = run(
        """
        if (lane % 3 == 0) {
            unsigned active = __activemask();
            int leader = __ffs(active) - 1, first = 0;
            if (lane == leader) first = atomicAdd(out + n, __popc(active));
            first = __shfl_sync(active, first, leader);
            out[t] = first + __popc(active & ((1u << lane) - 1));
        } else {
            out[t] = __activemask() == 0xb6db6db6u ? -2 : -3;
        }
        """,
        64,
        2,
    )
    lane = np.arange(64) % 32
    chosen = lane % 3 == 0
    assert sorted(out[0][chosen] + 7) == list(range(22))
    assert (out[0][~chosen] == -2).all()


def test_barriers_with_predicates():
    out = run(
        """
        out[t] = __syncthreads_count(t % 3 == 0);
        out[n + t] = __syncthreads_and(t < 70) + 2 * __syncthreads_and(t < 69);
        out[2 * n + t] = __syncthreads_or(t == 69) + 2 * __syncthreads_or(t > 69);
        if (t >= 40) return;
        out[3 * n + t] = __syncthreads_count(1) + 100 * __syncthreads_and(1);
        """,
        70,
        4,
    )
    assert (out[0] == 24).all()
    assert (out[1] == 1).all()
    assert (out[2] == 1).all()
    assert (out[3][:40] == 140).all()


def test_early_returns_before_barriers():
    """An exited thread does not hold the others up, whoever is the last to come."""
    out = run(
        """
        __shared__ int s[100];
        s[t] = t;
        if (t % 4 == 1) return;
        __syncthreads();
        if (t % 4 == 2) return;
        for (int i = 0; i < t % 4 * 5; ++i) __syncthreads();
        out[t] = s[n - 1 - t];
        """,
        100,
        1,
    )
    t = np.arange(100)
    expected = np.where((t % 4 == 1) | (t % 4 == 2), -7, 99 - t)
    assert (out[0] == expected).all()


def test_atomics():
    code = """
    __global__ void atomics(int* i, unsigned* u, unsigned long long* l, float* f, double* d) {
        int t = blockIdx.x * blockDim.x + threadIdx.x;
        atomicAdd(i + 0, t);      atomicSub(i + 1, 2);      atomicMin(i + 2, -t);
        atomicMax(i + 3, t);      atomicAnd(i + 4, ~(1 << t % 32)); atomicOr(i + 5, 1 << t % 32);
        atomicXor(i + 6, 1 << t % 31);
        atomicInc(u + 0, 9);      atomicDec(u + 1, 6);      atomicMax(u + 2, (unsigned)t);
        atomicAdd(l + 0, 1ull << 33); atomicMin(l + 1, (unsigned long long)t);
        atomicAdd(f + 0, 0.5f);   atomicAdd(d + 0, 0.25);
        // A maximum of floats by compare-and-swap, as people write it.
        int* address = (int*)(f + 1);
        int old = *address, assumed;
        do {
            assumed = old;
            float larger = fmaxf((float)t, __int_as_float(assumed));
            old = atomicCAS(address, assumed, __float_as_int(larger));
        } while (assumed != old);
        if (atomicExch(u + 3, 1u) == 0) atomicExch(f + 2, (float)1.5);
        atomicAdd_block(i + 7, 1);
    }
    """
    i, u = np.zeros(8, np.int32), np.zeros(4, np.uint32)
    i[4], u[1] = -1, 3
    long, f, d = np.full(2, 1000, np.uint64), np.zeros(3, np.float32), np.zeros(1)
    n = 4 * 96
    raw_kernel(code, "atomics")((4,), (96,), (i, u, long, f, d))
    parity = 0
    for t in range(n):
        parity ^= 1 << t % 31
    assert i.tolist() == [n * (n - 1) // 2, -2 * n, 1 - n, n - 1, 0, -1, parity, n]
    counter = 3
    for _ in range(n):
        counter = 6 if counter == 0 or counter > 6 else counter - 1
    assert u.tolist() == [n % 10, counter, n - 1, 1]
    assert long.tolist() == [1000 + (n << 33), 0]
    assert f.tolist() == [n / 2, n - 1, 1.5]
    assert d[0] == n / 4


def test_a_lock_that_threads_of_a_block_spin_on():
    out = run(
        """
        __shared__ int lock, count;
        if (t == 0) lock = count = 0;
        __syncthreads();
        while (atomicCAS(&lock, 0, 1) != 0) { }
        count += 1;
        __threadfence();
        __syncwarp(1u << lane);
        atomicExch(&lock, 0);
        __syncthreads();
        out[t] = count;
        """,
        64,
        1,
    )
    assert (out == 64).all()


def test_waiting_for_a_flag_that_a_later_thread_sets():
    out = run(
        """
        __shared__ int flag;
        if (t == 0) flag = 0;
        __syncthreads();
        if (t == 0) { while (atomicAdd(&flag, 0) < 63) { } }
        if (t == 63) { while (atomicAdd(&flag, 0) < 62) __nanosleep(100); }
        if (t > 0) atomicAdd(&flag, 1);
        out[t] = 1;
        """,
        64,
        1,
    )
    assert (out == 1).all()
