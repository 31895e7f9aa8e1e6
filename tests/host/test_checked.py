"""Checked mode: what is out of bounds becomes an error that names array, index, thread, line."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from kernels import raw_kernel, raw_module
from kernels.host import compiler
from kernels.support.errors import KernelError, KernelIndexError

MODULE = raw_module(
    r"""
#include <cooperative_groups.h>
__device__ int constants[4] = {1, 2, 3, 4};
__device__ float at(const float* __restrict__ p, int i) { return __ldg(p + i); }
__global__ void global(const float* a, float* b, float4* v, int i, int n) {
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t != 5) { b[t] = a[t]; return; }
    if (n == 0) b[t] = a[i];
    if (n == 1) b[i] = a[t];
    if (n == 2) b[t] = at(a, i);
    if (n == 3) v[i].y = 1;
    if (n == 4) atomicAdd(b + i, 1.0f);
    if (n == 5) reinterpret_cast<double*>(b)[i] = 1;
}
template <class T> __device__ __noinline__ T* hide(T* p) { asm volatile("" : "+l"(p)); return p; }
__shared__ int kept[4];
__global__ void shared(float* out, int i, int n) {
    __shared__ float tile[4][16], *pointer;
    __shared__ alignas(16) struct { int a, b[3]; } record;
    extern __shared__ double dynamic[];
    int t = threadIdx.x;
    tile[t / 16][t % 16] = t;
    dynamic[t] = t;
    if (t == 0) { pointer = &tile[0][0]; record.b[2] = 7; }
    __syncthreads();
    if (t == 33) {
        if (n == 1) tile[2][i] = 1;
        if (n == 2) pointer[i] = 1;
        if (n == 3) out[t] = dynamic[i];
        if (n == 4) { float local[3] = {0, 1, 2}; local[i] = n; out[t] = local[n - 3]; }
        if (n == 5) out[t] = constants[i];
        if (n == 6) { float4 v = *(float4*)(pointer + i); out[t] = v.x + v.w; }
        if (n == 7) { float local[3] = {0, 1, 2}, *p = local; hide(p)[i] = n; out[t] = p[n - 6]; }
        if (n == 8) hide(constants)[i] = 1;
        if (n == 9) hide(kept)[i] = 1;
    }
    out[t] = tile[3 - t / 16][15 - t % 16] + dynamic[63 - t] + record.b[2];
}
__global__ void both(float* x, float* y, int n) { x[n] = y[n + 1]; }
__global__ void wild(float* x, float* none) {
    if (none) *none = 1;
    else if (x[0] == 1) *(float*)0x123456789000 = 1;
    else none[2] = 1;
}
__global__ void grid(float* x, int n) {
    __shared__ float s[32];
    s[threadIdx.x] = x[blockIdx.x * 32 + threadIdx.x];
    cooperative_groups::this_grid().sync();
    x[blockIdx.x * 32 + threadIdx.x + n] = s[31 - threadIdx.x];
}
""",
    debug=True,
)
KERNEL = {name: MODULE.get_function(name) for name in MODULE._names}


@pytest.mark.parametrize(
    "case, i, message",
    [
        (0, 20, r"read of 4 bytes at index 20 of argument 1 \(a\), 20 elements of float32"),
        (0, -1, r"read of 4 bytes at index -1 of argument 1 \(a\)"),
        (0, 2**31 - 1, r"at index 2147483647 of argument 1 \(a\)"),
        (1, -(2**31), r"write at index -2147483648 of argument 2 \(b\)"),
        (1, -1000, r"write of 4 bytes at index -1000 of argument 2 \(b\)"),
        (2, 21, r"read of 4 bytes at index 21 of argument 1 \(a\).*line 4: .*__ldg"),
        (3, 2, r"write of 4 bytes at index 9 of argument 3 \(v\), 8 elements"),
        (4, 1000, r"at index 1000 of argument 2 \(b\), 20 elements"),
        (5, 10, r"write of 8 bytes at index 20 of argument 2 \(b\)"),
    ],
)
def test_arrays(case, i, message):
    a, b, v = np.ones(20, np.float32), np.zeros(20, np.float32), np.zeros((2, 4), np.float32)
    call = (KERNEL["global"], (2,), (10,))
    call[0](*call[1:], (a, b, v, 1, case))  # inside: as ever
    assert b.sum() > 18
    with pytest.raises(KernelIndexError, match=message) as caught:
        call[0](*call[1:], (a, b, v, i, case))
    text = str(caught.value)
    assert "thread (5, 0, 0) of block (0, 0, 0), at line " in text
    assert f"if (n == {case})" in text or case == 2
    assert (b[[0, 1, 4]] == 1).all()  # what was written before is there


def test_shared_memory_and_local_arrays(order):
    out = np.zeros(64, np.float32)
    shared = KERNEL["shared"]
    shared((2,), (64,), (out, 1, 0), shared_mem=512)
    np.testing.assert_array_equal(out, 2 * (63 - np.arange(64.0)) + 7)
    for case, i, message in (
        (1, 16, r"index 16 is out of bounds for an array of type 'float \[16\]', .*at line 27"),
        (1, -1, r"index -1 is out of bounds for an array of type 'float \[16\]'"),
        (2, 64, r"write of 4 bytes at byte 256 of 'tile', shared memory of 256 bytes"),
        (2, -1, r"at byte -4 of 'tile'.*line \d+: if \(n == 2\) pointer\[i\] = 1;"),
        (3, 64, r"read of 8 bytes at byte 512 of 'dynamic shared memory', shared memory of 512"),
        (4, 3, r"index 3 is out of bounds for an array of type 'float \[3\]'"),
        (5, 4, r"index 4 is out of bounds for an array of type 'int \[4\]'"),
        (6, 61, r"read of 4 bytes at byte 256 of 'tile'"),
        (7, 3, r"write of 4 bytes beside a local variable of the thread"),
        (8, 4, r"write of 4 bytes at byte 16 of 'constants', a variable of 16 bytes"),
        (9, 4, r"write of 4 bytes at byte 16 of 'kept', a variable of 16 bytes"),
    ):
        with pytest.raises(KernelIndexError, match=message) as caught:
            shared((2,), (64,), (out, i, case), shared_mem=512)
        assert "thread (33, 0, 0) of block (" in str(caught.value)
        assert f"if (n == {case})" in str(caught.value)


def test_arrays_that_overlap_stay_one():
    x = np.arange(10, dtype=np.float32)
    KERNEL["both"]((1,), (1,), (x[2:], x, 3))
    assert x[5] == 4
    KERNEL["both"]((1,), (1,), (x, x, 3))
    assert x[3] == 4
    with pytest.raises(KernelIndexError, match=r"at index 10 of argument 1 \(x\) or argument 2"):
        KERNEL["both"]((1,), (1,), (x, x, 9))
    y = np.zeros(3, np.float32)
    with pytest.raises(
        KernelIndexError, match=r"read of 4 bytes at index 3 of argument 2 \(y\), 3"
    ):
        KERNEL["both"]((1,), (1,), (x, y, 2))
    KERNEL["both"]((1,), (1,), (x, y, 1))


def test_pointers_to_nothing():
    x = np.zeros(1, np.float32)
    with pytest.raises(KernelIndexError, match="write of 4 bytes through a null pointer.*line 43"):
        KERNEL["wild"]((1,), (1,), (x, None))
    x[0] = 1
    with pytest.raises(KernelError, match="touched the address 0x123456789000.*at line 42: else"):
        KERNEL["wild"]((1,), (1,), (x, None))


def test_a_checked_grid():
    code, x = MODULE.code, np.arange(96, dtype=np.float32)
    grid = raw_kernel(code, "grid", debug=True, enable_cooperative_groups=True)
    grid((3,), (32,), (x, 0))
    np.testing.assert_array_equal(x.reshape(3, 32), np.arange(96.0).reshape(3, 32)[:, ::-1])
    with pytest.raises(KernelIndexError, match=r"at index 96 of argument 1 \(x\)"):
        grid((3,), (32,), (x, 1))


def test_the_environment_decides_where_nobody_else_did(monkeypatch):
    code = "__global__ void put(int* x, int i) { x[i] = 1; }"
    kernel, unchecked = raw_kernel(code, "put"), raw_kernel(code, "put", debug=False)
    memory = np.zeros(8, np.int32)
    x = memory[:4]
    unchecked((1,), (1,), (x, 5))
    for setting in (None, "", "1"):
        monkeypatch.delenv("MINIGRAD_CUDA_DEBUG", raising=False)
        if setting is not None:
            monkeypatch.setenv("MINIGRAD_CUDA_DEBUG", setting)
        kernel((1,), (1,), (x, 2))
        with pytest.raises(IndexError, match="write of 4 bytes at index 4 of argument 1"):
            kernel((1,), (1,), (x, 4))
    monkeypatch.setenv("MINIGRAD_CUDA_DEBUG", "0")
    kernel((1,), (1,), (x, 7))
    assert memory.tolist() == [0, 0, 1, 0, 0, 1, 0, 1]


def test_kernels_of_this_project_are_checked_where_the_environment_says_so(monkeypatch):
    from kernels.cuda_c.common import compiled

    module = compiled("__global__ void nothing() {}", "nothing").module
    monkeypatch.delenv("MINIGRAD_CUDA_DEBUG", raising=False)
    assert module.mode == compiler.PLAIN
    monkeypatch.setenv("MINIGRAD_CUDA_DEBUG", "1")
    assert module.mode == compiler.CHECKED


@pytest.mark.parametrize("debug", [None, False])
@pytest.mark.parametrize(
    "body, message",
    [
        ("*(float*)0 = 1;", "null pointer|the address 0x0"),
        ("*(volatile int*)0;", "null pointer|the address 0x0"),
        ("int* none = nullptr; if (x[0] == 7) none = x; none[0] = 1;", "null pointer|0x0"),
        ("__builtin_trap();", "trap"),
        ("if (x[0] == 0) __builtin_unreachable(); x[1] = 1;", ""),
        ("x[0] = 7 / x[1];", "zero"),
        ("x[0] = -2147483647 % x[1];", "zero"),
        ("volatile char big[1 << 20]; big[x[0]] = 1;", "local memory"),
        ("((void (*)())0x10)();", "null pointer|the address 0x10"),
        ("*(double*)0xffff800000000000 = 1;", "thread .0, 0, 0."),
    ],
)
def test_faults_are_errors_with_and_without_checks(body, message, debug):
    kernel = raw_kernel(f"__global__ void wrong(int* x) {{ {body} }}", "wrong", debug=debug)
    x = np.zeros(2, np.int32)
    for _ in range(2):
        if message:
            with pytest.raises(KernelError, match=message):
                kernel((1,), (1,), (x,))
        else:
            kernel((1,), (1,), (x,))


def test_shared_memory_of_16_bytes_does_not_take_128():
    code = """__global__ void spill(float* out) {
        __shared__ float tile[4];
        float* p = tile;
        for (int i = 0; i < 32; ++i) p[i] = i;
        __syncthreads();
        *out = p[31];
    }"""
    with pytest.raises(KernelIndexError, match="write of 4 bytes at byte 16 of 'tile'.* line 4"):
        raw_kernel(code, "spill")((1,), (1,), (np.zeros(1, np.float32),))


def test_mistakes_of_every_size_leave_python_as_it_was():
    """A store far or near, before or after an array, of each of several types."""
    code = "template <class T> __global__ void store(T* x, long long i) { x[i] = T(); }"
    for ctype, dtype in (("char", np.int8), ("double", np.float64), ("float4", "(4,)f4")):
        kernel = raw_kernel(code, f"store<{ctype}>")
        for size in (0, 1, 7, 1000, 2048):
            x = np.ones(size, dtype)
            for i in (-(2**31), -1000, -1, size, size + 1, size + 500, 2**31 - 1):
                with pytest.raises(
                    KernelIndexError, match=rf"write .*argument 1 \(x\), {x.size} e"
                ):
                    kernel((1,), (1,), (x, i))
            assert (x == 1).all()


def test_checked_launches_use_several_os_threads(monkeypatch):
    from kernels.support import thread_pool

    monkeypatch.setattr(thread_pool.wanted, "value", 4)
    code = """__global__ void sum(const int* x, int* y, int bad) {
        __shared__ int s[64];
        s[threadIdx.x] = x[blockIdx.x * 64 + threadIdx.x];
        __syncthreads();
        for (int i = 0; i < 64; ++i) y[blockIdx.x * 64 + threadIdx.x + bad] += s[i];
    }"""
    kernel, x = raw_kernel(code, "sum"), np.arange(64 * 500, dtype=np.int32)
    for _ in range(4):
        y = np.zeros_like(x)
        kernel((500,), (64,), (x, y, 0))
        np.testing.assert_array_equal(y, x.reshape(500, 64).sum(1).repeat(64))
        with pytest.raises(KernelIndexError, match=r"at index 32000 of argument 2 \(y\)"):
            kernel((500,), (64,), (x, y, 1))


LIMITED = """
import resource
resource.setrlimit(resource.RLIMIT_AS, (1 << 36, 1 << 36))
import numpy as np
from kernels import raw_kernel
from kernels.host import compiler
assert not compiler.runtime().mgh_have_shadow()
code = "__global__ void put(float* x, int i) { __shared__ int s[9]; s[i % 10] = 1; x[i] = s[0]; }"
for i in (-1, 0, 5, 9, 1 << 24):
    try:
        raw_kernel(code, "put")((1,), (1,), (np.zeros(5, np.float32), i))
    except IndexError as error:
        print(str(error).partition(":")[2].partition(", thread")[0].partition(": out of")[0])
"""


def test_without_room_for_shadow_memory_checks_are_calls():
    done = subprocess.run([sys.executable, "-c", LIMITED], capture_output=True, text=True)
    assert done.stdout.splitlines() == [
        " index -1 is out of bounds for an array of type 'int [9]'",
        " write of 4 bytes at index 5 of argument 1 (x), 5 elements of float32",
        " index 9 is out of bounds for an array of type 'int [9]'",
        " write of 4 bytes at index 16777216 of argument 1 (x), 5 elements of float32",
    ], done.stderr
