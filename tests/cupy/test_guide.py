"""What CuPy's user guide shows, in other words: each of its chapters works here as described."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.fft
import scipy.stats

import kernels.cupy as cp
import kernels.cupyx as cupyx
from kernels.cupyx import jit, profiler


def test_basics(rng):
    """Arrays on the current device, moved with asarray and asnumpy; code for either library."""
    host = rng.random(5)
    device = cp.asarray(host)
    assert device.device == cp.cuda.Device(0) and cp.asarray(device) is device
    with cp.cuda.Device(0):
        assert float(cp.linalg.norm(device)) == pytest.approx(np.linalg.norm(host))
    np.testing.assert_array_equal(cp.asnumpy(device), device.get())

    def softplus(x):
        xp = cp.get_array_module(x)
        return xp.maximum(0, x) + xp.log1p(xp.exp(-abs(x)))

    assert isinstance(softplus(host), np.ndarray)
    np.testing.assert_allclose(softplus(device).get(), softplus(host))
    assert isinstance(cupyx.scipy.get_array_module(device).__name__, str)


def test_user_defined_kernels(rng):
    x, y = cp.asarray(rng.random(10)).reshape(2, 5), cp.arange(5.0)
    generic = cp.ElementwiseKernel("T x, T y", "Z z", "z = (x - y) * (x - y)", "squared_difference")
    out = cp.empty((2, 5), np.float32)
    generic(x, y, out)
    assert "squared_difference" in generic.cached_code
    np.testing.assert_allclose(out.get(), (x.get() - y.get()) ** 2, rtol=1e-6)
    with pytest.raises(TypeError, match="pass the output"):
        generic(x, y)
    reverse = cp.ElementwiseKernel("T x, raw T y", "T z", "z = x + y[_ind.size() - i - 1]", "add")
    assert reverse(y, y).tolist() == [4, 4, 4, 4, 4]
    l2 = cp.ReductionKernel("T x", "T y", "x * x", "a + b", "y = sqrt(a)", "0", "l2norm")
    np.testing.assert_allclose(l2(x, axis=1).get(), np.linalg.norm(x.get(), axis=1))

    code = r"""
    template <typename T> __global__ void scale(T* x, T by, int n) {
        int i = blockDim.x * blockIdx.x + threadIdx.x;
        if (i < n) x[i] *= by;
    }
    __constant__ float weights[2];
    extern "C" __global__ void weigh(float* x) { x[threadIdx.x] *= weights[threadIdx.x]; }
    """
    names = ["scale<float>", "scale<double>"]
    module = cp.RawModule(code=code, options=("-std=c++17",), name_expressions=names)
    a = cp.arange(4.0)
    module.get_function("scale<double>")((1,), (32,), (a, 2.0, np.int32(4)))
    assert a.tolist() == [0, 2, 4, 6]
    memory = module.get_global("weights")
    cp.ndarray((2,), cp.float32, memory)[:] = cp.asarray([3, 5], cp.float32)
    b = cp.ones(2, cp.float32)
    module.get_function("weigh")((1,), (2,), (b,))
    assert b.tolist() == [3, 5]


def test_structures_and_dynamic_shared_memory(rng):
    """A structured scalar is passed by value; shared memory beyond 48 KiB is asked for."""
    code = r"""
    struct pair { int a; float b; };
    extern "C" __global__ void use(const pair p, float* out) { *out = p.a + p.b; }
    extern "C" __global__ void turn(float* x) {
        extern __shared__ float tile[];
        tile[threadIdx.x] = x[threadIdx.x];
        __syncthreads();
        x[threadIdx.x] = tile[blockDim.x - 1 - threadIdx.x];
    }
    """
    module = cp.RawModule(code=code)
    out = cp.zeros(1, cp.float32)
    pair = np.array([(2, 0.5)], np.dtype([("a", "i4"), ("b", "f4")], align=True))
    module.get_function("use")((1,), (1,), (pair, out))
    assert float(out[0]) == 2.5
    turn, x = module.get_function("turn"), cp.arange(64, dtype=cp.float32)
    turn((1,), (64,), (x,), shared_mem=256)
    assert x.tolist() == list(range(63, -1, -1))
    with pytest.raises(cp.cuda.driver.CUDADriverError, match="max_dynamic_shared_size_bytes"):
        turn((1,), (64,), (x,), shared_mem=64 * 1024)
    turn.max_dynamic_shared_size_bytes = 64 * 1024
    turn((1,), (64,), (x,), shared_mem=64 * 1024)


@jit.rawkernel()
def copied(x, y, size):
    first = jit.blockIdx.x * jit.blockDim.x + jit.threadIdx.x
    for i in range(first, size, jit.gridDim.x * jit.blockDim.x):
        y[i] = x[i]


def test_kernels_in_python(rng):
    x = cp.asarray(rng.random(1000))
    y, z = cp.empty_like(x), cp.empty_like(x)
    copied((8,), (64,), (x, y, 1000))
    copied[8, 64](x, z, np.uint32(1000))
    assert (x == y).all() and (x == z).all()


def test_elements_by_an_array_of_indices_and_the_first_one():
    source = (
        "ptrdiff_t ij[2] = {i % 4, i / 4}; int last[] = {3, 2}; y = x[ij] + 100 * x[0] + x[last]"
    )
    transpose = cp.ElementwiseKernel("raw T x", "T y", source, "transpose")
    x, y = cp.arange(1.0, 13).reshape(3, 4).T, cp.empty((3, 4))
    transpose(x, y)
    assert (y == x.T + 112).all()


def test_pinned_memory_is_a_buffer():
    d = cp.arange(6.0)
    memory = cp.cuda.alloc_pinned_memory(d.nbytes)
    host = np.frombuffer(memory, d.dtype, d.size)
    later = np.frombuffer(memory + 16, d.dtype, 2)
    d.get(out=host)
    assert (host == np.arange(6)).all() and later.tolist() == [2, 3]
    assert int(memory) == memory.ptr and memory.size() - (memory + 16).size() == 16


def test_memory_pools():
    """The pool keeps what is freed; a limit, no pool, managed memory, an allocator of one's own."""
    pool, pinned = cp.get_default_memory_pool(), cp.get_default_pinned_memory_pool()
    own = cp.cuda.MemoryPool()
    with cp.cuda.using_allocator(own.malloc):
        a = cp.zeros(400, cp.float32)
        assert a.nbytes == 1600 and own.used_bytes() == 2048 == own.total_bytes()
        del a
        assert (own.used_bytes(), own.total_bytes(), own.n_free_blocks()) == (0, 2048, 1)
        own.free_all_blocks()
        assert own.total_bytes() == 0 and pinned.n_free_blocks() == 0
        own.set_limit(size=1024)
        with pytest.raises(cp.cuda.memory.OutOfMemoryError, match="limit set to: 1,024 bytes"):
            cp.zeros(1000)
    with cp.cuda.using_allocator(cp.cuda.MemoryPool(cp.cuda.malloc_managed).malloc):
        assert cp.arange(3).sum() == 3
    with cp.cuda.using_allocator(None):
        before = pool.used_bytes()
        kept = cp.zeros(1000)
        assert pool.used_bytes() == before and kept.sum() == 0


def test_streams_and_events():
    stream = cp.cuda.Stream(non_blocking=True)
    start, end = cp.cuda.Event(), cp.cuda.Event()
    with stream:
        assert cp.cuda.get_current_stream() == stream
        start.record()
        x = cp.arange(10) * 2
        end.record(stream)
    end.synchronize()
    assert cp.cuda.get_elapsed_time(start, end) >= 0 and end.done and x.sum() == 90
    other = cp.cuda.Stream()
    other.wait_event(end)
    other.use()
    cp.cuda.Stream.null.use()
    cp.cuda.Device().synchronize()
    seen = []
    stream.launch_host_func(seen.append, 3)
    stream.synchronize()
    assert seen == [3]


def test_transforms(rng):
    x = cp.asarray(rng.random((4, 8)), cp.complex64)
    assert cp.fft.fft(x).dtype == cp.complex64
    np.testing.assert_allclose(cp.fft.ifftn(cp.fft.fftn(x)).get(), x.get(), atol=1e-6)
    real = cp.asarray(rng.random(9))
    np.testing.assert_allclose(cp.fft.irfft(cp.fft.rfft(real), 9).get(), real.get())
    with scipy.fft.set_backend(cupyx.scipy.fft):
        found = scipy.fft.fft(x)
    assert isinstance(found, cp.ndarray)
    np.testing.assert_allclose(found.get(), scipy.fft.fft(x.get()), rtol=1e-5, atol=1e-5)
    cp.fft.config.get_plan_cache().clear()


def test_performance(capsys):
    """benchmark tells the time of the host and of the device for a number of calls."""
    a = cp.random.random((16, 16))
    result = profiler.benchmark(lambda x: x @ x, (a,), n_repeat=5, n_warmup=1, name="product")
    assert result.cpu_times.shape == (5,) and result.gpu_times.shape == (1, 5)
    assert (result.cpu_times > 0).all() and "product" in str(result)
    with profiler.time_range("part", color_id=0):
        cp.arange(3)


def test_interoperability(rng):
    """NumPy's functions, DLPack, the CUDA array interface, pointers of other libraries."""
    x = cp.asarray(rng.random((3, 4)))
    assert isinstance(np.sum(x, axis=0), cp.ndarray) and isinstance(np.exp(x), cp.ndarray)
    shared = cp.from_dlpack(np.from_dlpack(x))
    shared[0, 0] = 7
    assert x[0, 0] == 7

    class Foreign:
        def __init__(self, array):
            self.array, self.__cuda_array_interface__ = array, array.__cuda_array_interface__

    view = cp.asarray(Foreign(x))
    assert view.data.ptr == x.data.ptr
    memory = cp.cuda.UnownedMemory(x.data.ptr, x.nbytes, x)
    again = cp.ndarray((12,), x.dtype, cp.cuda.MemoryPointer(memory, 0))
    assert (again == x.ravel()).all()


def test_differences_from_numpy():
    """Casts, indices out of bounds, duplicated indices, 0-d results, types, scalars."""
    wrapped = cp.arange(3)[cp.asarray([-4, 1, 5])]
    assert wrapped.tolist() == [2, 1, 2]
    a = cp.zeros(2)
    a[cp.asarray([0, 0, 0])] += 1
    assert a.tolist() == [1, 0]
    cupyx.scatter_add(a, cp.asarray([0, 0, 0]), 1)
    assert a.tolist() == [4, 0]
    assert isinstance(cp.sum(a), cp.ndarray) and cp.sum(a).ndim == 0
    assert cp.random.randn(3, dtype=np.float32).dtype == np.float32
    for refused in (lambda: cp.array(["a"]), lambda: cp.array([object()])):
        with pytest.raises((ValueError, TypeError)):
            refused()
    with pytest.raises(TypeError, match="Implicit conversion"):
        np.asarray(a)
