"""Vector types (`float4` and its like) and functions that a kernel defines, compiled."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from numba import float32

from kernels.simt import cuda
from kernels.simt.api.fallback import InterpretedKernelWarning
from kernels.simt.interpreter import interpreter
from kernels.support.errors import CompileError


@pytest.fixture(autouse=True)
def compiled():
    """Nothing here may fall back to the interpreter."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", InterpretedKernelWarning)
        yield


def check(kernel, threads, *arrays):
    """The compiled kernel does what the interpreter does."""
    expected = [np.copy(a) if isinstance(a, np.ndarray) else a for a in arrays]
    interpreter.run(kernel.py_func, 1, threads, tuple(expected))
    kernel[1, threads](*arrays)
    for found, wanted in zip(arrays, expected):
        np.testing.assert_array_equal(found, wanted)


def test_vectors_are_made_of_numbers_and_smaller_vectors():
    @cuda.jit
    def kernel(out, n):
        one = cuda.float1(n)
        two = cuda.float2(one, 2.75)
        three = cuda.float32x3(two, 3)
        four = cuda.float4(one, three)
        again = cuda.float4(four)
        out[0], out[1], out[2], out[3] = again.x, again.y, again.z, again.w
        out[4] = cuda.int2(7, -1).y + cuda.ulonglong2(1, 2).x

    out = np.zeros(5)
    check(kernel, 1, out, 5)
    assert out.tolist() == [5, 5, 2.75, 3, 0]


def test_vectors_live_across_branches_loops_and_barriers():
    @cuda.jit
    def kernel(x, n):
        shared = cuda.shared.array(8, float32)
        i = cuda.threadIdx.x
        total = cuda.float2(0, 0)
        for k in range(n):
            if (k + i) % 2:
                total = cuda.float2(total.y, total.x + x[k])
            else:
                total = cuda.float2(total.x + 1, total.y)
            shared[i] = total.x
            cuda.syncthreads()
            total = cuda.float2(shared[7 - i], total.y)
            cuda.syncthreads()
        best = total if total.x > total.y else cuda.float2(total.y, -1)
        x[i] = best.x + 10 * best.y

    check(kernel, 8, np.arange(8, dtype=np.float32), 5)


def test_vectors_pass_through_device_functions():
    @cuda.jit(device=True)
    def body_force(a, b):
        dx, dy, dz = b.x - a.x, b.y - a.y, b.z - a.z
        d = dx * dx + dy * dy + dz * dz + float32(0.5)
        return cuda.float3(dx / d, dy / d, dz / d)

    @cuda.jit(device=True)
    def first_above(v, limit):
        for k in range(4):  # a return in a loop
            if v.x + k > limit:
                return cuda.float3(k, v.y, v.z)
        return cuda.float3(-1, v.y, v.z)

    @cuda.jit
    def kernel(x, out):
        i = cuda.threadIdx.x
        me = cuda.float3(x[i, 0], x[i, 1], x[i, 2])
        total = cuda.float3(0, 0, 0)
        for k in range(x.shape[0]):
            f = body_force(me, cuda.float3(x[k, 0], x[k, 1], x[k, 2]))
            total = cuda.float3(total.x + f.x, total.y + f.y, total.z + f.z)
        for v in (total, me, first_above(me, float32(1.5))):
            out[i] += v.x + 2 * v.y + 4 * v.z

    x = np.random.default_rng(20261122).normal(size=(6, 3)).astype(np.float32)
    out = np.zeros(6)
    kernel[1, 6](x, out)
    expected = np.zeros(6)
    interpreter.run(kernel.py_func, 1, 6, (x, expected))
    np.testing.assert_allclose(out, expected, rtol=1e-5)


REFUSED = {
    "x[0] = cuda.float2(1, 2)": "read by its fields",
    "x[0] = cuda.float2(1, 2) == cuda.float2(1, 2)": "read by its fields",
    "v = cuda.float2(1, 2); x[0] = v.z": "float32x2 has x, y, not 'z'",
    "x[0] = cuda.float2(1).x": "takes 2 numbers, .* got 1",
    "x[0] = cuda.float2(cuda.float3(1, 2, 3)).x": "takes 2 numbers, .* got 3",
    "x[0] = cuda.int2(cuda.float2(1, 2)).x": "int32x2 cannot hold fields of cuda.float32x2",
    "v = cuda.float2(1, 2); v.x = 3": "make a new vector",
}


def from_text(statement, tmp_path):
    import runpy

    path = tmp_path / "written.py"
    path.write_text(f"@cuda.jit\ndef kernel(x, n):\n    {statement}\n")
    return runpy.run_path(path, {"cuda": cuda})["kernel"]


@pytest.mark.parametrize("statement", REFUSED)
def test_what_numba_cuda_refuses_of_vectors_is_refused(statement, tmp_path):
    kernel = from_text(statement, tmp_path)
    with pytest.raises(CompileError, match=rf"written.py:3: .*{REFUSED[statement]}"):
        kernel[1, 1](np.zeros(3), 1)


@pytest.mark.needs("numba_cuda")
@pytest.mark.parametrize("statement", REFUSED)
def test_numba_cuda_refuses_the_same(statement, tmp_path):
    from numba.core.errors import NumbaError

    with pytest.raises((NumbaError, NotImplementedError)):
        from_text(statement, tmp_path).ptx("void(float64[::1], int64)")


def test_functions_defined_in_a_kernel():
    @cuda.jit(device=True)
    def apply(function, a, b):
        return function(a, b)

    @cuda.jit
    def kernel(x, n):
        i = cuda.grid(1)
        m = 1

        def late(value, factor=3):
            if value > 4:
                return factor * value + m
            return -value

        m = 2  # a closure sees the variable as it is when the function runs
        add = lambda a, b: a + b + n  # noqa: E731
        x[i] = late(add(x[i], i)) + apply(lambda a, b: a - b, x[i], m) + late(1, factor=5)

    check(kernel, 8, np.arange(8.0), 2)


def test_a_function_defined_in_a_kernel_with_a_barrier():
    @cuda.jit
    def kernel(x):
        tile = cuda.shared.array(32, float32)
        i = cuda.threadIdx.x

        def turned(value):
            tile[i] = value
            cuda.syncthreads()
            result = tile[31 - i]
            cuda.syncthreads()
            return result

        x[i] = turned(turned(x[i]) * 2) + turned(x[i])

    check(kernel, 32, np.arange(32, dtype=np.float32))


def test_a_function_defined_in_a_kernel_is_called_or_passed_on():
    @cuda.jit
    def stored(x):
        x[0] = lambda a: a

    with pytest.raises(CompileError, match="can be called, or passed to a device function"):
        stored[1, 1](np.zeros(1))

    @cuda.jit
    def recursive(x):
        def down(n):
            return down(n - 1) if n > 0 else 0

        x[0] = down(3)

    with pytest.raises(CompileError, match="cannot call itself"):
        recursive[1, 1](np.zeros(1))


def test_a_vector_kernel_is_as_fast_as_one_of_numbers():
    """Compiled code: a hundred thousand threads take milliseconds, not minutes."""

    @cuda.jit
    def kernel(x):
        i = cuda.grid(1)
        if i < x.size:
            v = cuda.float4(x[i], 1, 2, 3)
            f = lambda a: cuda.float4(a.w, a.z, a.y, a.x)  # noqa: E731
            x[i] = f(v).x * 2 + f(f(v)).x

    x = np.arange(100_000, dtype=np.float32)
    kernel[400, 256](x)
    np.testing.assert_array_equal(x, 6 + np.arange(100_000, dtype=np.float32))


def test_a_vector_that_is_not_wanted_is_not_loaded():
    """Its fields are indices out of bounds where the condition is false."""

    @cuda.jit
    def kernel(x, out):
        i = cuda.grid(1)
        v = cuda.float2(x[i, 0], x[i, 1]) if i < x.shape[0] else cuda.float2(7, 8)
        some = i < x.shape[0] and cuda.float2(x[i, 0], x[i, 1]).y > 2
        other = cuda.float2(0, 0) if i >= x.shape[0] else cuda.float2(x[i, 1], 3)
        out[i] = v.x + v.y + some + other.x

    x, out = np.arange(6, dtype=np.float32).reshape(3, 2), np.zeros(5, np.float32)
    kernel[1, 5](x, out)
    assert out.tolist() == [1 + 1, 5 + 1 + 3, 9 + 1 + 5, 15, 15]
