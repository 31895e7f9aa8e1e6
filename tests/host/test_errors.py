"""What is wrong with a kernel, a launch or a machine becomes a Python error that says so."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from kernels import raw_kernel
from kernels.host import compiler
from kernels.support.errors import ArgumentError, CompileError, KernelError, LaunchError

TAKES = """
__global__ void takes(const float* a, double* b, int n, float f, unsigned char c,
                      const void* any, unsigned long long big) { if (n < 0) b[0] = a[0] * f + c; }
"""


@pytest.fixture(scope="module")
def takes():
    return raw_kernel(TAKES, "takes")


def arguments(**changed) -> tuple:
    given = {"a": np.ones(3, np.float32), "b": np.ones(3), "n": 3, "f": 2.5, "c": 7, "any": None}
    return tuple((given | {"big": 2**64 - 1} | changed).values())


@pytest.mark.parametrize("name", ["fill", "fill<float>"])
def test_a_template_wants_its_arguments(name):
    code = "template <typename T,\n int N> __global__ void fill(T* x) { x[threadIdx.x] = N; }"
    with pytest.raises(CompileError, match="fill is a template of <typename T, int N>: name an"):
        raw_kernel(code, name)((1,), (1,), (np.ones(3, np.float32),))


def test_arguments_that_fit(takes):
    for changed in (
        {},
        {"n": np.int64(3), "f": 3, "c": np.uint8(255), "any": np.ones(3, bool)},
        {"a": np.zeros(0, np.float32), "n": np.array(3), "f": np.float64(1e300)},
        {"a": np.broadcast_to(np.float32(1), (1,))},
    ):
        takes((1,), (1,), arguments(**changed))


@pytest.mark.parametrize(
    "changed, message",
    [
        ({"a": np.ones(3)}, r"argument 1 \(a\) points to float32, .*of float64; convert"),
        ({"b": np.ones(3, np.int64)}, r"argument 2 \(b\) points to float64"),
        ({"a": np.ones(3, ">f4")}, r"argument 1"),
        ({"a": np.ones(6, np.float32)[::2]}, r"argument 1 .*np.ascontiguousarray"),
        ({"b": np.ones((3, 4)).T}, r"argument 2 .*shape \(4, 3\).*np.ascontiguousarray"),
        ({"b": np.broadcast_to(np.ones(1), (1,))}, r"read-only"),
        ({"a": np.ones(13, np.uint8)[1:].view(np.float32)}, r"multiple of 4 bytes"),
        ({"a": 3.0}, r"argument 1 \(a\) is a pointer: pass an array or its address, not 3.0"),
        ({"a": 3}, r"argument 1 \(a\) is a pointer: pass an array or its address, not 3, of type"),
        ({"a": [1.0]}, r"of type list"),
        ({"n": 2.0}, r"argument 3 \(n\) is a number of type int32, not 2.0"),
        ({"n": 2**31}, r"2147483648 does not fit into int32"),
        ({"c": -1}, r"argument 5 \(c\): -1 does not fit into uint8"),
        ({"f": "1"}, r"argument 4 \(f\) is a number of type float32, not '1'"),
        ({"f": np.ones(3)}, r"not an array of shape \(3,\)"),
    ],
)
def test_arguments_that_do_not_fit(takes, changed, message):
    with pytest.raises(ArgumentError, match=message):
        takes((1,), (1,), arguments(**changed))


def test_the_number_of_arguments(takes):
    with pytest.raises(
        ArgumentError, match=r"takes 7 arguments \(a, b, n, f, c, any, big\), not 2"
    ):
        takes((1,), (1,), (1, 2))
    with pytest.raises(ArgumentError, match="a tuple"):
        takes((1,), (1,), 3)


@pytest.mark.parametrize(
    "grid, block, shared, message",
    [
        ((1,), (1025,), 0, "block.x is 1025" + "|1025 threads"),
        ((1,), (32, 33), 0, "1056 threads per block; the limit is 1024"),
        ((1,), (1, 1, 65), 0, "block.z is 65; it must be from 1 to 64"),
        ((0,), (1,), 0, "grid.x is 0"),
        ((1, 65536), (1,), 0, "grid.y is 65536"),
        ((1, 1, 1, 1), (1,), 0, "1 to 3 dimensions, not 4"),
        ((1.5,), (1,), 0, "integers"),
        ((1,), (1,), 227 * 1024 + 1, "shared_mem is 232449"),
        ((1,), (1,), -1, "shared_mem is -1"),
    ],
)
def test_launches_that_the_hardware_refuses(takes, grid, block, shared, message):
    with pytest.raises(LaunchError, match=message):
        takes(grid, block, arguments(), shared_mem=shared)


def test_static_and_dynamic_shared_memory_have_limits():
    code = """
    template <int N> __global__ void uses(float* x) {
        __shared__ float s[N];
        s[N - 1] = *x;
        __syncthreads();
        *x = s[N - 1] + 1;
    }
    __global__ void dynamic(float* x, int last) {
        extern __shared__ float d[];
        d[last] = *x;
        *x = d[last] + 1;
    }
    """
    x = np.zeros(1, np.float32)
    raw_kernel(code, "uses<12288>")((1,), (1,), (x,))
    with pytest.raises(LaunchError, match="49156 bytes .*static shared memory.* may have 49152"):
        raw_kernel(code, "uses<12289>")((1,), (1,), (x,))
    dynamic = raw_kernel(code, "dynamic")
    dynamic((1,), (1,), (x, 227 * 256 - 1), shared_mem=227 * 1024)
    assert x[0] == 2
    with pytest.raises(KernelError, match="byte 264 of 'dynamic shared memory', .* of 128 bytes"):
        dynamic((1,), (1,), (x, 64 + 2), shared_mem=128)
    unchecked = raw_kernel(code, "dynamic", debug=False)
    with pytest.raises(KernelError, match="past the end of dynamic shared memory"):
        unchecked((1,), (1,), (x, 64 + 2), shared_mem=128)


def test_unknown_kernels_and_templates():
    code = "__global__ void first() {} template <int N> __global__ void second(int* x) {}"
    with pytest.raises(CompileError, match="no kernel 'frist'; it defines first, second"):
        raw_kernel(code, "frist").compile()
    with pytest.raises(CompileError, match="no __global__ function"):
        raw_kernel("void first() {}", "first").compile()
    with pytest.raises(CompileError, match="second"):
        raw_kernel(code, "second").compile()


def test_compile_errors_name_the_lines_of_the_source():
    code = (
        "\n\n__global__ void wrong(float* x) {\n    __shared__ float s[4];\n    y[0] = s[0];\n}\n"
    )
    told = r"wrong\.cu:5:5: error: (use of undeclared identifier )?.y."  # g++ or clang++
    with pytest.raises(CompileError, match=told) as caught:
        raw_kernel(code, "wrong").compile()
    assert "y[0] = s[0];" in str(caught.value)
    assert "unit.cpp" not in str(caught.value)
    with pytest.raises(CompileError, match="option '--nonsense'"):
        raw_kernel("__global__ void k() {}", "k", ("--nonsense",)).compile()


@pytest.mark.parametrize("header", ["cuda_fp8.h", "cub/device/device_reduce.cuh"])
def test_headers_that_are_not_available_are_named_where_they_are_missed(header):
    code = f"#include <{header}>\n__global__ void k(float* x) {{ unknown(x); }}\n"
    with pytest.raises(CompileError, match=f"line 1: <{header}> is not available on the CPU"):
        raw_kernel(code, "k").compile()
    raw_kernel(code + "__global__ void other() {}", "other").compile()


def test_headers_that_everyone_includes():
    code = "#include <cuda_runtime.h>\n#include <assert.h>\n#include <stdio.h>\n#include <math.h>\n"
    code += "#include <cassert>\n#include <device_launch_parameters.h>\n#include <cmath>\n"
    code += "__global__ void k(float* x) { assert(*x > 0); *x = sqrtf(*x) + INFINITY; }"
    x = np.ones(1, np.float32)
    raw_kernel(code, "k")((1,), (1,), (x,))
    assert np.isinf(x[0])


def fails(body: str, message: str, block=(64,), grid=(1,)) -> None:
    """The body's kernel raises KernelError, checked and unchecked; the same kernel then runs as if
    nothing had been."""
    code = f"__global__ void body(int* x, int bad) {{ const int t = threadIdx.x;\n{body}\n}}"
    x = np.zeros(1024, np.int32)
    for debug in (True, False):
        kernel = raw_kernel(code, "body", debug=debug)
        for _ in range(2):
            with pytest.raises(KernelError, match=message):
                kernel(grid, block, (x, 1))
        kernel(grid, block, (x, 0))


def test_a_failing_assert():
    fails(
        "assert(t < 40 || !bad);",
        r"body: line 2: assertion failed: t < 40 \|\| !bad in thread \(40, 0, 0\) of block \(0,",
    )


def test_a_divergent_barrier(order):
    fails(
        "if (bad && t < 32) {\n__syncthreads();\n} else {\n__syncthreads();\n}",
        r"divergent barrier: thread .* is at the barrier on line [35].*on line [53]",
    )


def test_a_deadlock_names_the_lines(order):
    fails(
        "if (!bad) return;\nif (t % 2)\n__syncwarp();\nelse\n__syncthreads();",
        r"deadlock in block \(0, 0, 0\): .*32 threads wait at __sync(warp on line 4 with mask"
        r" 0xffffffff|threads on line 6)",
    )


def test_wrong_lanes():
    fails("if (bad) __shfl_sync(1u, t, 0);", r"__shfl_sync on line 2: thread \(1, 0, 0\).*mask")
    fails(
        "if (bad) { if (t % 2) __syncwarp(); else __ballot_sync(~0u, 1); }",
        "at another operation with the same mask",
    )


def test_memory_that_is_not_there():
    null = r"thread \(0, 0, 0\) of block .*(the address 0x10|, at line 3: if \(bad\) \*p)"
    fails("int* p = (int*)16;\nif (bad) *p = t;", null)
    fails("x[t] = 7 / (bad ? x[900] : 1);", "divided an integer by zero")
    if platform.machine() == "x86_64":
        least = "(x[900] - 2147483647 - 1)"
        fails(f"x[t] = {least} / (bad ? x[900] - 1 : 1);", "or the smallest one by -1")
        fails("if (bad) *(float4*)x = *(float4*)(x + 1);", "at a misaligned address")
    deep = """
    __device__ __attribute__((noinline)) int down(volatile int* x, int n) {
        volatile int here[1000];
        here[n % 1000] = x[0];
        return n ? down(here, n - 1) + here[0] : 0;
    }
    __global__ void recurses(int* x, int depth) { x[threadIdx.x] = down(x, depth); }
    """
    x = np.zeros(40, np.int32)
    for debug in (True, False):
        recurses = raw_kernel(deep, "recurses", debug=debug)
        recurses((1,), (40,), (x, 10))
        with pytest.raises(KernelError, match="thread .* used more local memory than its stack"):
            recurses((1,), (40,), (x, 1000))
        recurses((1,), (40,), (x, 10))


def test_errors_on_several_os_threads():
    from kernels.support import thread_pool

    before = thread_pool.get_num_threads()
    try:
        thread_pool.set_num_threads(4)
        fails("if (bad && blockIdx.x == 37) __trap();", r"__trap\(\) in", grid=(100,), block=(4,))
        code = """__global__ void slow(int* x, int bad) {
            for (int i = 0; i < 500; ++i) __syncthreads();
            assert(blockIdx.x < 350 || !bad);
        }"""
        kernel = raw_kernel(code, "slow")
        x = np.zeros(4, np.int32)
        kernel((400,), (32,), (x, 0))
        for _ in range(3):
            with pytest.raises(KernelError, match="assertion failed"):
                kernel((400,), (32,), (x, 1))
        kernel((400,), (32,), (x, 0))
    finally:
        thread_pool.set_num_threads(before)


def test_two_python_threads_launch_at_once():
    kernel = raw_kernel(
        """__global__ void steps(int* x, int n) {
            __shared__ int s[64];
            s[threadIdx.x] = 0;
            __syncthreads();
            for (int i = 0; i < n; ++i) {
                int v = s[63 - threadIdx.x];
                __syncthreads();
                s[threadIdx.x] = v + 1;
                __syncthreads();
            }
            x[threadIdx.x] = s[threadIdx.x];
        }""",
        "steps",
    )

    def launch(n: int) -> bool:
        x = np.zeros(64, np.int32)
        for _ in range(20):
            kernel((3,), (64,), (x, n))
        return bool((x == n).all())

    with ThreadPoolExecutor(4) as executor:
        assert all(executor.map(launch, range(50, 58)))


def test_no_compiler_says_how_to_get_one(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(CompileError, match=r"no C\+\+ compiler found .*apt install g\+\+"):
        compiler.find_compiler()
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(CompileError, match="CXX=no-such-compiler"):
        compiler.find_compiler()


RUN = """
import numpy as np
from kernels import raw_kernel
x = np.zeros(8, np.int32)
raw_kernel("__global__ void fill(int* x) { x[threadIdx.x] = threadIdx.x; }", "fill")(1, 8, (x,))
assert x.tolist() == list(range(8))
"""


def test_two_processes_compile_at_once(tmp_path):
    environment = {**os.environ, "MINIGRAD_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", RUN]
    running = [subprocess.Popen(command, env=environment) for _ in range(2)]
    assert [process.wait() for process in running] == [0, 0]
    left = [path for path in (tmp_path / "kernels" / "host").iterdir() if path.is_file()]
    assert {path.suffix for path in left} == {".sha256", ".so", ".txt"}
    assert not list(tmp_path.rglob("*.tmp")) and not list(tmp_path.rglob("build-*"))
    # The third finds all in the cache: it runs without a compiler, though one must be named.
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "kernels/host").glob("*.so")}
    assert len(times) == 2
    subprocess.run(command, env=environment, check=True)
    assert all(path.stat().st_mtime_ns == time for path, time in times.items())


COUNTING = """
from kernels.host import compiler
call = compiler._call
compiler._call = lambda *args: print("unit" * ("unit.so" in args[0])) or call(*args)
compiler.runtime()
"""


def test_two_processes_compile_once(tmp_path):
    """Parallel workers of tests begin with the same libraries, which take seconds to compile."""
    environment = {**os.environ, "MINIGRAD_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", COUNTING]
    running = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    printed = [process.communicate()[0] for process in running]
    assert [process.returncode for process in running] == [0, 0]
    assert sum(text.count("unit") for text in printed) == 1


def test_a_crash_outside_of_kernels_is_still_a_crash():
    """The fault handler only takes what kernels do."""
    code = RUN + "\nimport ctypes\nctypes.string_at(16)\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True)
    assert done.returncode == -11
