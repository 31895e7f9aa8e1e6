"""Threads and blocks that wait for what others store: volatile variables, loads of inline PTX."""

from __future__ import annotations

import time

import numpy as np
import pytest

from kernels import lab, raw_kernel
from kernels.host import source

SPINS = {
    "an empty body": "while (flag[b - 1] == 0) ;",
    "braces": "while (!flag[b - 1]) { }",
    "do": "int f; do { f = flag[b - 1]; } while (f == 0);",
    "break": "for (;;) { if (flag[b - 1] != 0) break; }",
    "a cast": "while (true) if (*(volatile int*)(plain + b - 1)) break;",
    "a function": "int f = 0; while (f == 0) f = read(plain + b - 1);",
    "a macro": "int f = 0; while (f == 0) f = READ(plain + b - 1);",
    "ld.acquire": "int f; do { asm volatile(\"ld.acquire.gpu.global.s32 %0, [%1];\" : \"=r\"(f)"
    " : \"l\"(plain + b - 1) : \"memory\"); } while (!f);",
    "ld.volatile": "int f = 0; while (f < 1) asm volatile(\"ld.volatile.global.u32 %0, [%1];\""
    " : \"=r\"(f) : \"l\"(plain + b - 1));",
}  # fmt: skip


def chain(spin: str, **more) -> object:
    """Each block waits for the one before it, which says so in `flag`."""
    code = rf"""
#define READ(p) \
    (*(volatile int*)(p))
__device__ int read(const int* p) {{ return *(const volatile int*)p; }}
__global__ void chain(volatile int* flag, float* value, int* plain) {{
    int b = blockIdx.x;
    if (threadIdx.x == 0) {{
        if (b > 0) {{
            {spin}
            __threadfence();
            value[b] = value[b - 1] + 1;
        }}
        __threadfence();
        flag[b] = 1;
    }}
}}"""
    return raw_kernel(code, "chain", **more)


@pytest.mark.parametrize("spin", SPINS.values(), ids=SPINS)
def test_blocks_wait_for_a_flag(spin, order):
    """A cooperative launch runs blocks together, in whatever order they begin."""
    flag, value = np.zeros(5, np.int32), np.zeros(5, np.float32)
    kernel = chain(spin, enable_cooperative_groups=True)
    kernel((5,), (32,), (flag, value, flag))
    assert value.tolist() == [0, 1, 2, 3, 4] and (flag == 1).all()


def test_threads_of_a_block_wait_for_a_volatile_variable(order):
    code = """
struct Box { volatile int turn; };
__global__ void turns(float* x) {
    __shared__ Box box;
    __shared__ float sum;
    if (threadIdx.x == 0) box.turn = 0, sum = 0;
    __syncthreads();
    while (box.turn != threadIdx.x) {}
    sum = sum * 0.5f + threadIdx.x;
    __threadfence_block();
    box.turn = threadIdx.x + 1;
    __syncthreads();
    if (threadIdx.x == 0) *x = sum;
}"""
    x, expected = np.zeros(1, np.float32), np.float32(0)
    for thread in range(64):
        expected = expected * np.float32(0.5) + np.float32(thread)
    raw_kernel(code, "turns")((1,), (64,), (x,))
    assert x[0] == expected


BARRIER = """
#include <cooperative_groups.h>
__global__ void meet(volatile int* in, volatile int* out, float* x, int twice) {
    __shared__ float mine;
    int b = blockIdx.x, t = threadIdx.x, n = gridDim.x;
    if (t == 0) mine = b;
    x[b * 32 + t] = b + t;
    __syncthreads();
    if (t == 0) { __threadfence(); in[b] = 1; }
    if (b == 0) {
        if (t < n) while (in[t] != 1) {}
        __syncthreads();
        if (t < n) out[t] = 1;
    }
    if (t == 0) while (out[b] != 1) {}
    __syncthreads();
    float next = x[(b + 1) % n * 32 + t];
    if (twice) cooperative_groups::this_grid().sync();
    x[b * 32 + t] = 100 * mine + next;
}"""


def test_a_barrier_of_blocks_written_by_hand(order):
    """Of Xiao and Feng, "Inter-block GPU communication via fast barrier synchronization", 2010."""
    kernel = raw_kernel(BARRIER, "meet", enable_cooperative_groups=True)
    x = np.zeros((4, 32), np.float32)
    kernel((4,), (32,), (np.zeros(4, np.int32), np.zeros(4, np.int32), x, 1))
    block, thread = np.arange(4)[:, None], np.arange(32)
    np.testing.assert_array_equal(x, 100 * block + (block + 1) % 4 + thread)


def test_a_wait_without_an_end_is_found():
    code = "__global__ void k(volatile int* x) { while (x[0] == 0) {} x[1] = 1; }"
    report = lab.profile(raw_kernel(code, "k"), 1, 32, np.zeros(2, np.int32))
    assert "spins on a value that nothing changes" in str(report.errors[0])


def test_which_loops_let_others_run():
    code = """
__global__ void k(volatile int* flag, int* x) {
    for (int i = 0; i < 9; ++i) x[i] = flag[i];
    while (x[0]) { x[0] -= 1; }
    do { x[1] -= 1; } while (x[1] > 0);
    while (flag[0]) { x[0] = 1; }
    do x[2] = flag[2]; while (x[2]);
    while (*x) ;
    for (; x[1];) {}
}"""
    changed, _ = source.rewrite(code, True)
    polled = [i for i, line in enumerate(changed.splitlines(), 1) if "mgh::poll" in line]
    assert polled == [6, 7, 8, 9] and len(changed.splitlines()) == len(code.splitlines())


@pytest.mark.parametrize("spin", SPINS.values(), ids=SPINS)
def test_a_volatile_flag_is_no_race(spin):
    """And it orders what is before the store and after the load."""
    flag, value = np.zeros(5, np.int32), np.zeros(5, np.float32)
    report = lab.profile(chain(spin), 5, 32, flag, value, flag)
    assert not report.findings and value[4] == 4


@pytest.mark.parametrize(
    "store, load, wrong",
    [
        ("x[0] = 1; flag[0] = 1;", "while (flag[0] == 0) {} y[0] = x[0];", False),
        ("flag[0] = 1; x[0] = 1;", "while (flag[0] == 0) {} y[0] = x[0];", True),
        ("x[0] = 1; flag[0] = 1;", "y[0] = x[0]; while (flag[0] == 0) {}", True),
        ("x[0] = 1; flag[0] = 1;", "while (flag[1] != 0) {} y[0] = x[0];", True),
        ("x[0] = 1; plain[0] = 1;", "while (flag[0] == 0) {} y[0] = x[0];", True),
        ("s = 1; flag[0] = 1;", "while (flag[0] == 0) {} y[0] = s;", False),
        ("v = 1;", "y[0] = v;", True),
    ],
)
def test_races_beside_a_volatile_flag(store, load, wrong):
    code = f"""
__global__ void k(volatile int* flag, int* plain, float* x, float* y) {{
    __shared__ float s;
    __shared__ volatile float v;
    if (threadIdx.x == 0) {{ {store} }}
    if (threadIdx.x == 32) {{ {load} }}
}}"""
    flag = np.zeros(2, np.int32)
    x, y = np.zeros((2, 1), np.float32)
    report = lab.profile(raw_kernel(code, "k"), 1, 64, flag, flag, x, y)
    assert bool(report.races) == wrong, report.findings


def test_volatile_accesses_are_loads_and_stores():
    code = "__global__ void k(volatile float* x) { x[threadIdx.x] = x[threadIdx.x + 32] + 1; }"
    report = lab.profile(raw_kernel(code, "k"), 1, 32, np.zeros(64, np.float32))
    line = report.at("x[threadIdx.x]")
    assert [(part.op, part.sectors) for part in line.parts] == [("load", 4), ("store", 4)]


def test_the_global_timer_counts_nanoseconds():
    code = """__global__ void k(unsigned long long* t) {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t[0]));
        unsigned long long now;
        do { asm volatile("nanosleep.u32 100; mov.u64 %0, %%globaltimer;" : "=l"(now)); }
        while (now < t[0] + 20000000);
        t[1] = now;
    }"""
    times = np.zeros(2, np.uint64)
    before = time.time_ns()
    raw_kernel(code, "k")((1,), (1,), (times,))
    assert before - 10**7 <= times[0] and times[1] <= time.time_ns() + 10**7
    assert 2 * 10**7 <= times[1] - times[0] < 10**9


WARPS_IN_STEP = {
    "a template on one line": """
template <int N> __device__ void add(volatile float* s, int t) {
    if (N >= 64) s[t] += s[t + 32]; if (N >= 32) s[t] += s[t + 16]; if (N >= 16) s[t] += s[t + 8];
    if (N >= 8) s[t] += s[t + 4]; if (N >= 4) s[t] += s[t + 2]; if (N >= 2) s[t] += s[t + 1];
}
__device__ void last(float* s, int t) { add<64>(s, t); }""",
    "two assignments": """
__device__ void last(float* s, int t) {
    volatile float* v = s;
    float sum = v[t];
    for (int d = 32; d > 0; d /= 2) v[t] = sum = sum + v[t + d];
}""",
    "a scan": """
__device__ void last(volatile float* s, int t) {
    s[t] += s[t + 32];
    if (t >= 1) s[t] += s[t - 1];
    if (t >= 2) s[t] = s[t] + s[t - 2];
    if (t >= 4) s[t] += s[t - 4];
    if (t >= 8) s[t] += s[t - 8];
    if (t >= 16) s[t] += s[t - 16];
    if (t == 31) s[0] = s[31];
}""",
    "beside threads that wait": """
__device__ void last(volatile float* s, int t) {
    for (int d = 32; d > 0; d /= 2) if (t < d) s[t] = s[t] + s[t + d];
    if (t == 0) s[64] = 1;
}""",
}


@pytest.mark.parametrize("last", WARPS_IN_STEP.values(), ids=WARPS_IN_STEP)
def test_lanes_of_a_warp_run_in_step_through_volatile_shared_memory(order, last):
    """Reductions as they were written before `__syncwarp()`; the lab still calls them races."""
    code = f"""{last}
__global__ void total(const float* x, float* y, int n) {{
    __shared__ float s[65];
    int t = threadIdx.x, i = t;
    s[t] = 0;
    if (t == 0) s[64] = 0;
    while (i < n) {{ s[t] += x[i]; i += blockDim.x; }}
    __syncthreads();
    if (t < 32) last(s, t);
    else {"while (((volatile float*)s)[64] == 0) ;" if "s[64]" in last else ";"}
    __syncthreads();
    if (t == 0) *y = s[0];
}}"""
    x, y = np.arange(10_000, dtype=np.float32) % 7, np.zeros(1, np.float32)
    raw_kernel(code, "total")((1,), (64,), (x, y, x.size))
    assert y[0] == x.sum()
    report = lab.profile(raw_kernel(code, "total"), 1, 64, x[:100], y, 100)
    assert y[0] == x[:100].sum() and report.races
