"""kernels.cupy's arrays: what NumPy computes, and what CuPy refuses."""

from __future__ import annotations

import copy
import operator
import pickle

import numpy as np
import pytest

import kernels.cupy as cp
from kernels.cupy.cuda.compiler import CompileException
from kernels.cupy.cuda.driver import CUDADriverError


def same(device, host) -> None:
    """The same values, shape and dtype."""
    assert isinstance(device, cp.ndarray)
    np.testing.assert_array_equal(device.get(), host, strict=isinstance(host, np.ndarray))


BINARY = (
    "add sub mul truediv floordiv mod pow eq ne lt le gt ge".split(),
    [(np.float32, np.int64), (np.int8, np.uint8), (np.float16, np.float32), (np.uint8, np.uint8)],
)


@pytest.mark.parametrize("name", BINARY[0])
@pytest.mark.parametrize("first, second", BINARY[1])
def test_operators_are_numpys(name, first, second, rng):
    a = rng.integers(1, 4, (5, 7)).astype(first)
    b = rng.integers(1, 4, (7,)).astype(second)
    compute = getattr(operator, name)
    same(compute(cp.asarray(a), cp.asarray(b)), compute(a, b))
    same(compute(cp.asarray(a), 2), compute(a, 2))
    same(compute(2, cp.asarray(a)), compute(2, a))


@pytest.mark.parametrize("other", [np.ones(3), [1, 2, 3], "abc", None])
def test_other_operands_are_refused(other):
    a = cp.ones(3)
    with pytest.raises(TypeError, match="Unsupported type"):
        a + other
    with pytest.raises(TypeError, match="Unsupported type"):
        cp.add(a, other)
    with pytest.raises(TypeError, match="Unsupported type"):
        a[:] = other
    if isinstance(other, np.ndarray):
        with pytest.raises(TypeError, match="Unsupported type"):
            other + a


def test_no_implicit_conversion():
    a = cp.ones(3)
    for convert in (np.asarray, np.array, lambda a: np.ones(3).dot(a)):
        with pytest.raises(TypeError):
            convert(a)
    with pytest.raises(TypeError, match="integer"):
        range(cp.asarray(3))
    with pytest.raises(TypeError, match="0-d"):
        list(cp.asarray(3))
    with pytest.raises(TypeError):
        hash(a)


def test_elements_and_reductions_are_arrays_without_dimensions():
    a = cp.arange(6).reshape(2, 3)
    for value in (a[1, 2], a.sum(), a.max(), cp.argmax(a), cp.allclose(a, a), a[1][0] * 2):
        assert isinstance(value, cp.ndarray)
        assert value.shape == ()
    element = a[1, 2]
    element += 10
    assert a[1, 2] == 15
    assert int(a[1, 2]) == 15 and float(a[0, 0]) == 0 and f"{a[0, 1]:.1f}" == "1.0"


def test_views_share_memory_and_copies_do_not():
    a = cp.zeros((4, 6), cp.float32)
    part = a[1:3, ::2]
    part += 1
    assert a.sum() == 6 and part.base is a and part[0].base is a
    assert a.T.base is a and a.reshape(24).base is a and a[cp.array([0, 1])].base is None
    assert part.data.ptr == a.data.ptr + 24
    host = np.ones(3)
    b = cp.asarray(host)
    host[0] = 5
    assert b[0] == 1
    got = b.get()
    got[0] = 7
    assert b[0] == 1


def test_integer_arrays_wrap_around():
    a = cp.arange(3)
    same(a[cp.array([0, 5, -4])], np.array([0, 2, 2]))
    with pytest.raises(IndexError):
        a[3]


def test_set_and_get_want_the_same_shape_and_dtype():
    a = cp.zeros(3, cp.float32)
    a.set(np.arange(3, dtype=np.float32))
    same(a, np.arange(3, dtype=np.float32))
    with pytest.raises(TypeError, match="float64 array cannot be set to float32"):
        a.set(np.ones(3))
    with pytest.raises(ValueError, match="Shape mismatch"):
        a.set(np.ones(4, np.float32))
    with pytest.raises(TypeError, match=r"Only numpy\.ndarray"):
        a.set([1, 2, 3])
    out = np.empty(3, np.float32)
    assert a.get(out=out) is out and out[2] == 2


def test_numpys_functions_of_device_arrays_give_device_arrays():
    a = cp.arange(4.0)
    same(np.sum(a), np.float64(6))
    same(np.sin(a), np.sin(np.arange(4.0)))
    same(np.linalg.norm(a), np.linalg.norm(np.arange(4.0)))


def test_dtypes_that_no_device_has():
    for value in ("text", [object()], np.ones(2, np.longdouble)):
        with pytest.raises(ValueError, match="Unsupported dtype"):
            cp.array(value)
    with pytest.raises(TypeError, match="Wrong type"):
        cp.bitwise_and(cp.ones(2), cp.ones(2))


def test_copies_of_arrays():
    a = cp.arange(4.0)
    for other in (pickle.loads(pickle.dumps(a)), copy.deepcopy(a), copy.copy(a), a.copy()):
        same(other, np.arange(4.0))
        assert other.data.ptr != a.data.ptr


def test_other_libraries_see_the_memory():
    a = cp.arange(6.0).reshape(2, 3)
    shown = a.__cuda_array_interface__
    assert shown["shape"] == (2, 3) and shown["strides"] is None
    assert a.T.__cuda_array_interface__["strides"] == (8, 24)

    class Foreign:
        __cuda_array_interface__ = a.T.__cuda_array_interface__

    b = cp.asarray(Foreign())
    same(b, a.T.get())
    c = np.from_dlpack(a)
    c[0, 0] = 9
    assert a[0, 0] == 9 and cp.from_dlpack(a)[0, 0] == 9


def test_the_pool_counts_arrays():
    pool = cp.cuda.MemoryPool()
    with cp.cuda.using_allocator(pool.malloc):
        a = cp.zeros(400, cp.uint8)
        assert (pool.used_bytes(), pool.total_bytes()) == (512, 512)
        part = a[3:]
        del a
        assert pool.used_bytes() == 512
        del part
        assert (pool.used_bytes(), pool.total_bytes(), pool.n_free_blocks()) == (0, 512, 1)
        pool.free_all_blocks()
        assert pool.total_bytes() == 0
        pool.set_limit(size=1024)
        with pytest.raises(cp.cuda.memory.OutOfMemoryError, match="limit set to: 1,024 bytes"):
            cp.zeros(2000, cp.uint8)


def test_streams_events_and_devices():
    with cp.cuda.Stream(non_blocking=True) as stream:
        assert cp.cuda.get_current_stream() == stream
        start, end = stream.record(), cp.cuda.Event()
        end.record(stream)
    assert cp.cuda.get_current_stream() == cp.cuda.Stream.null
    assert 0 <= cp.cuda.get_elapsed_time(start, end) < 1000
    with cp.cuda.Device(0) as device:
        assert device.compute_capability == "80" and device.attributes["WarpSize"] == 32
    assert cp.cuda.runtime.getDeviceCount() == 1


@pytest.mark.parametrize(
    "call, text",
    [
        (lambda: cp.cuda.Device(1).use(), "cudaErrorInvalidDevice.*there is one"),
        (lambda: cp.cuda.runtime.setDevice(2), "cudaErrorInvalidDevice"),
        (lambda: cp.cuda.Device().cublas_handle, "cupy.linalg"),
        (lambda: cp.cuda.runtime.deviceEnablePeerAccess(1), "cudaErrorPeerAccess"),
        (lambda: cp.cuda.runtime.ipcGetMemHandle(0), "shared_memory"),
    ],
)
def test_what_a_cpu_does_not_have(call, text):
    with pytest.raises(cp.cuda.runtime.CUDARuntimeError, match=text):
        call()


AXPY = r"""extern "C" __global__ void axpy(const float* x, float* y, float a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += a * x[i];
}"""


def test_cupy_raw_kernels(rng):
    host = rng.standard_normal(1000, dtype=np.float32)
    x, y = cp.asarray(host), cp.zeros(1000, cp.float32)
    axpy = cp.RawKernel(AXPY, "axpy")
    axpy((4,), (256,), (x, y, cp.float32(3), 1000))
    same(y, np.float32(3) * host)
    strided = cp.zeros((1000, 2), cp.float32)[:, 0]
    axpy((4,), (256,), (x, strided, cp.float32(1), 500))  # a pointer to the first element
    same(strided[:250], host[:500:2])
    with pytest.raises(TypeError, match=r"argument 3 \(a\) is of type float32.*cupy.float32"):
        axpy((4,), (256,), (x, y, 3.0, 1000))
    with pytest.raises(TypeError, match="shape"):
        axpy((4,), (256,), (host, y, cp.float32(3), 1000))
    with pytest.raises(CUDADriverError, match="1024"):
        axpy((4,), (2000,), (x, y, cp.float32(3), 1000))
    with pytest.raises(IndexError, match="out of bounds"):
        axpy((4,), (256,), (x, y[:900], cp.float32(3), 1000))


def test_cupy_raw_modules():
    module = cp.RawModule(
        code="__constant__ float w[2]; template<typename T> __global__ void k(T* x) { *x = w[1]; }",
        name_expressions=["k<float>", "k<double>"],
    )
    weights = cp.ndarray(2, cp.float32, module.get_global("w"))
    weights[:] = cp.array([3, 4], cp.float32)
    x = cp.zeros(1)
    module.get_function("k<double>")((1,), (1,), (x,))
    assert x[0] == 4
    with pytest.raises(CompileException, match="nothing"):
        cp.RawKernel("__global__ void f() { nothing; }", "f").compile()


def test_cupy_arrays_are_arguments_of_numba_kernels():
    from kernels.simt import cuda

    @cuda.jit
    def double(x):
        i = cuda.grid(1)
        if i < x.size:
            x[i] *= 2

    x = cp.arange(100.0)
    double[1, 128](x)
    same(x, 2 * np.arange(100.0))
    assert cuda.as_cuda_array(x).copy_to_host()[3] == 6
