"""The host side: device arrays, streams, events, the device, and what importing costs."""

from __future__ import annotations

import asyncio
import pickle
import subprocess
import sys
import time

import numpy as np
import pytest

from kernels.simt import cuda
from kernels.simt.device import arrays
from kernels.simt.ir import stubs

SEED = 20261122


@pytest.fixture
def array() -> np.ndarray:
    return np.random.default_rng(SEED).normal(size=(4, 6)).astype(np.float32)


def test_to_device_copies_and_copy_to_host_copies_back(array):
    device = cuda.to_device(array)
    original = array.copy()
    array[:] = 0
    np.testing.assert_array_equal(device.copy_to_host(), original)
    out = np.empty_like(array)
    assert device.copy_to_host(out) is out
    np.testing.assert_array_equal(out, original)
    out[:] = 7
    np.testing.assert_array_equal(device.copy_to_host(), original)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.complex128])
def test_device_memory_begins_on_a_cache_line(dtype):
    for shape in [(), 0, 3, (5, 7), (600, 511)]:
        host = np.zeros(shape, dtype)
        made = (cuda.to_device(host), cuda.device_array(shape, dtype), cuda.device_array_like(host))
        assert [x.memory.ctypes.data % 64 for x in made] == [0, 0, 0]


def test_to_device_keeps_fortran_order_and_refuses_gaps(array):
    device = cuda.to_device(np.asfortranarray(array))
    assert device.is_f_contiguous()
    assert device.copy_to_host().flags.f_contiguous
    with pytest.raises(ValueError, match="ascontiguousarray"):
        cuda.to_device(array[:, ::2])


def test_to_device_accepts_what_numpy_does():
    assert cuda.to_device([1, 2, 3]).shape == (3,)
    assert cuda.to_device(np.float32(2)).shape == ()
    device = cuda.device_array(3, np.int64)
    assert cuda.to_device(np.array([1, 2, 3]), to=device) is device
    assert device.copy_to_host().tolist() == [1, 2, 3]
    assert cuda.to_device(device) is device


def test_device_arrays_have_shape_dtype_and_order(array):
    device = cuda.device_array((2, 3), dtype=np.int16, order="F")
    assert (device.shape, device.dtype, device.ndim, device.size) == ((2, 3), np.int16, 2, 6)
    assert (device.nbytes, device.strides, len(device)) == (12, (2, 4), 2)
    assert device.flags == {"C_CONTIGUOUS": False, "F_CONTIGUOUS": True}
    assert cuda.device_array(5).dtype == np.float64
    like = cuda.device_array_like(np.asfortranarray(array))
    assert (like.shape, like.dtype) == (array.shape, array.dtype)
    assert like.is_f_contiguous()
    assert cuda.device_array_like(like).is_f_contiguous()


def test_views_share_memory(array):
    device = cuda.to_device(array)
    device[1:3, 2:4] = np.zeros((2, 2), np.float32)
    device.ravel()[0] = 5
    device.reshape(24)[23] = 6
    device.reshape((6, 4))[0, 1] = 4
    array[1:3, 2:4] = 0
    array[0, 0], array[3, 5], array[0, 1] = 5, 6, 4
    np.testing.assert_array_equal(device.copy_to_host(), array)
    assert isinstance(device[0], arrays.DeviceNDArray)
    assert device[0, 0] == 5
    assert isinstance(device[0, 0], np.float32)
    np.testing.assert_array_equal(np.asarray(device[::2]), array[::2])
    assert device.view(np.int32).dtype == np.int32
    assert cuda.device_array((1, 3, 1)).squeeze().shape == (3,)


def test_what_would_need_a_copy_is_refused(array):
    device = cuda.to_device(array)
    for operation in (lambda: device[:, ::2].ravel(), lambda: device[:, 1:4].reshape(12)):
        with pytest.raises(NotImplementedError, match="copy"):
            operation()
    with pytest.raises(NotImplementedError, match="integers and slices"):
        device[[0, 1]]
    with pytest.raises(ValueError, match="copy=False"):
        np.array(device, copy=False)


def test_a_transpose_is_a_copy_as_in_numba_cuda(array):
    device = cuda.to_device(array)
    turned = device.T
    turned[3, 0] = 3
    assert (turned.shape, turned.is_c_contiguous(), device[0, 3]) == ((6, 4), True, array[0, 3])
    np.testing.assert_array_equal(device.transpose((1, 0)).copy_to_host(), array.T)
    assert device.transpose((0, 1)) is device
    with pytest.raises(NotImplementedError, match="non-2D"):
        cuda.device_array((2, 3, 4)).transpose()
    with pytest.raises(ValueError, match="invalid axes"):
        device.transpose((0, 0))


def test_strides_of_arrays_like_others():
    base = np.zeros((10, 12, 4))
    for view in (base, base.T, base[::2], base[::2, ::3].T, base.transpose(1, 2, 0), base[:, 1]):
        expected = np.zeros_like(view).strides
        device = arrays.DeviceNDArray(view)
        for like in (cuda.device_array_like, cuda.pinned_array_like, cuda.mapped_array_like):
            assert like(device).strides == expected
    assert cuda.device_array_like(cuda.device_array((10, 12))[::2, ::2].T).strides == (40, 8)


RECORD = np.dtype([("a", np.int32), ("b", np.float64), ("c", np.int16, (2, 2))])


def test_a_field_of_a_device_record_is_assigned():
    device = cuda.to_device(np.zeros(3, RECORD))
    device[1]["a"] = 5
    device[2]["c"][1, 0] = 7
    device[0].setitem("b", 2.5)
    host = device.copy_to_host()
    assert (host["a"].tolist(), host["b"].tolist()) == ([0, 5, 0], [2.5, 0, 0])
    assert host["c"][2].tolist() == [[0, 0], [7, 0]]
    assert (device[1]["a"], device[1].dtype, device[1].shape) == (5, RECORD, ())
    assert isinstance(device[1]["a"], np.int32)
    with pytest.raises(ValueError, match="Can't assign 1-D array to 0-D self"):
        device[1] = (1, 2, 3)


def test_a_record_goes_to_the_device_and_back():
    record = np.zeros(1, RECORD)[0]
    record["a"] = 3
    device = cuda.to_device(record)

    @cuda.jit
    def kernel(r, out):
        out[0] = r.a + r["b"]

    out = np.zeros(1)
    kernel[1, 1](device, out)
    assert out[0] == 3
    record["b"] = 4
    device.copy_to_device(record)
    assert device.copy_to_host()["b"] == 4
    kernel[1, 1](device, out)
    assert out[0] == 7


class Foreign:
    """An array of another library."""

    def __init__(self, array, **changed):
        self.array = array
        self.__cuda_array_interface__ = array.__cuda_array_interface__
        self.__cuda_array_interface__.update(changed)


def test_the_cuda_array_interface(array):
    device = cuda.to_device(array)
    described = device.__cuda_array_interface__
    assert (described["shape"], described["typestr"], described["strides"]) == ((4, 6), "<f4", None)
    assert device[:, ::2].__cuda_array_interface__["strides"] == (24, 8)
    assert cuda.device_array(0).__cuda_array_interface__["data"] == (0, False)
    foreign = Foreign(device)
    view = cuda.as_cuda_array(foreign)
    view[0, 0] = 9
    assert device[0, 0] == 9

    @cuda.jit
    def doubled(x):
        i, j = cuda.grid(2)
        x[i, j] *= 2

    doubled[1, (4, 6)](foreign)
    assert device[0, 0] == 18
    turned = cuda.as_cuda_array(Foreign(device, shape=(6, 4), strides=(4, 24)))
    np.testing.assert_array_equal(np.asarray(turned.memory), device.memory.T)
    with pytest.raises(NotImplementedError, match="Masked"):
        cuda.as_cuda_array(Foreign(device, mask=device))


def test_what_one_transfer_cannot_do_is_refused(array):
    device = cuda.to_device(array)
    with pytest.raises(ValueError, match="non-contiguous buffer"):
        device[:, ::2].copy_to_device(array[:, ::2])
    with pytest.raises(ValueError, match="non-contiguous buffer"):
        cuda.device_array((4, 3), np.float32).copy_to_device(device[:, ::2])
    with pytest.raises(ValueError, match="incompatible strides"):
        device.copy_to_device(cuda.to_device(np.asfortranarray(array)))
    with pytest.raises(NotImplementedError, match="negative strides"):
        device[::-1].copy_to_host()
    device.copy_to_device(np.asfortranarray(array) + 1)
    np.testing.assert_array_equal(device.copy_to_host(), array + 1)


def test_mapped_and_managed_memory_is_both_of_host_and_device():
    @cuda.jit
    def kernel(x):
        x[cuda.threadIdx.x] += 1

    for make in (cuda.mapped_array, cuda.managed_array):
        both = make(4, np.float32)
        both[:] = 1
        kernel[1, 4](both)
        assert cuda.is_cuda_array(both)
        kernel[1, 4](cuda.as_cuda_array(both))
        assert both.tolist() == both.copy_to_host().tolist() == [3, 3, 3, 3]
    pinned = cuda.pinned_array(4)
    assert not cuda.is_cuda_array(pinned)
    with cuda.pinned(pinned), cuda.mapped(pinned) as device:
        device[0] = 5
    assert pinned[0] == 5


def test_what_needs_a_second_device_or_process_says_so():
    with pytest.raises(IndexError, match="only device 0"):
        _ = cuda.gpus[1]
    with pytest.raises(arrays.CudaAPIError, match="device 1 does not exist"):
        cuda.select_device(1)
    with pytest.raises(arrays.CudaAPIError, match="multiprocessing.shared_memory"):
        cuda.device_array(3).get_ipc_handle()
    with pytest.raises(AttributeError, match="multiprocessing.shared_memory"):
        _ = cuda.open_ipc_array
    with cuda.gpus[0], cuda.profiling(), cuda.defer_cleanup():
        stream = cuda.current_context().create_stream()
        cuda.current_context().create_event().record(stream)


def test_split_and_bind():
    device = cuda.to_device(np.arange(10))
    assert [part.shape for part in device.split(4)] == [(4,), (4,), (2,)]
    next(device.split(4))[0] = 100
    assert device[0] == 100
    stream = cuda.stream()
    assert device.bind(stream).stream is stream


def test_copies_check_shape_and_dtype(array):
    device = cuda.to_device(array)
    with pytest.raises(ValueError, match="incompatible shape"):
        device.copy_to_host(np.empty((3, 6), np.float32))
    with pytest.raises(TypeError, match="incompatible dtype"):
        device.copy_to_device(array.astype(np.float64))
    device.copy_to_device(cuda.to_device(array + 1))
    np.testing.assert_array_equal(device.copy_to_host(), array + 1)


def test_records():
    dtype = np.dtype([("x", np.float32), ("n", np.int32)])
    device = cuda.to_device(np.array([(1.5, 2), (2.5, 3)], dtype))
    assert device[1]["n"] == 3
    assert device["x"].copy_to_host().tolist() == [1.5, 2.5]


def test_host_memory_of_all_kinds(array):
    for make in (cuda.pinned_array, cuda.mapped_array, cuda.managed_array):
        made = make((2, 3), dtype=np.float32)
        assert isinstance(made, np.ndarray)
        assert (made.shape, made.dtype) == ((2, 3), np.float32)
    for make in (cuda.pinned_array_like, cuda.mapped_array_like):
        assert make(array).shape == array.shape
    with cuda.pinned(array), cuda.mapped(array) as device:
        device[0, 0] = 42
    assert array[0, 0] == 42
    with cuda.mapped(array, array) as both:
        assert len(both) == 2


def test_as_cuda_array():
    device = cuda.to_device(np.zeros(3))
    assert cuda.as_cuda_array(device) is device
    assert cuda.is_cuda_array(device)
    assert not cuda.is_cuda_array(np.zeros(3))
    with pytest.raises(TypeError, match="to_device"):
        cuda.as_cuda_array(np.zeros(3))

    class OnGpu:
        __cuda_array_interface__ = {"shape": (3,), "typestr": "<f4", "data": (1, False)}  # noqa: RUF012

    with pytest.raises(cuda.CudaAPIError, match="lives on a GPU"):
        cuda.as_cuda_array(OnGpu())


def test_argument_hints(array):
    assert arrays.kernel_argument(cuda.InOut(array)) is array
    assert arrays.kernel_argument(cuda.Out(array)) is array
    assert not np.shares_memory(arrays.kernel_argument(cuda.In(array)), array)
    device = cuda.to_device(array)
    assert arrays.kernel_argument(device) is device.memory
    assert arrays.kernel_argument(3) == 3


@cuda.jit
def double(x):
    i = cuda.grid(1)
    if i < x.size:
        x[i] *= 2


def test_kernels_work_on_device_memory():
    host = np.arange(10, dtype=np.float32)
    stream, start, end = cuda.stream(), cuda.event(), cuda.event()
    device = cuda.to_device(host, stream=stream)
    with stream.auto_synchronize():
        start.record(stream)
        double[1, 32, stream](device)
        double[1, 32, stream](device[5:])
        end.record(stream)
    assert start.elapsed_time(end) > 0
    np.testing.assert_array_equal(host, np.arange(10))
    expected = np.arange(10) * np.where(np.arange(10) < 5, 2, 4)
    np.testing.assert_array_equal(device.copy_to_host(stream=stream), expected)


def test_hints_decide_what_the_host_sees():
    host = np.ones(3, np.float32)
    double[1, 32](cuda.In(host))
    assert host.tolist() == [1, 1, 1]
    double[1, 32](cuda.InOut(host))
    double[1, 32](host)
    assert host.tolist() == [4, 4, 4]
    with cuda.mapped(host) as device:
        double[1, 32](device)
    assert host.tolist() == [8, 8, 8]


def test_streams():
    stream = cuda.stream()
    seen = []
    with stream.auto_synchronize() as same:
        assert same is stream
        stream.add_callback(lambda *args: seen.append(args), "data")
    assert seen == [(stream, 0, "data")]
    assert int(stream) != int(cuda.default_stream()) == 0
    stream.synchronize()
    cuda.synchronize()

    async def wait() -> object:
        return await stream.async_done()

    assert asyncio.run(wait()) is stream
    with pytest.raises(cuda.CudaAPIError, match=r"cuda.stream\(\)"):
        cuda.external_stream(1234)


def test_events_measure_milliseconds():
    start, end = cuda.event(), cuda.event()
    start.record()
    began = time.perf_counter()
    time.sleep(0.02)
    end.record(stream=cuda.stream())
    bound = (time.perf_counter() - began) * 1000
    end.synchronize()
    end.wait()
    assert end.query()
    assert 20 <= start.elapsed_time(end) <= bound + 5
    assert cuda.event_elapsed_time(start, end) == start.elapsed_time(end)
    with pytest.raises(cuda.CudaAPIError, match="not been recorded"):
        start.elapsed_time(cuda.event())
    untimed = cuda.event(timing=False)
    untimed.record()
    with pytest.raises(cuda.CudaAPIError, match="timing=False"):
        start.elapsed_time(untimed)


def test_device():
    device = cuda.get_current_device()
    assert "CPU" in device.name
    assert (device.WARP_SIZE, device.MAX_THREADS_PER_BLOCK) == (32, 1024)
    assert device.MAX_SHARED_MEMORY_PER_BLOCK == 48 * 1024
    assert device.MULTIPROCESSOR_COUNT >= 1
    assert device.compute_capability >= (7, 5)
    assert cuda.is_available()
    assert len(cuda.gpus) == len(cuda.list_devices()) == 1
    with cuda.gpus[0] as context:
        assert context.device is device
        assert cuda.gpus[0].compute_capability == device.compute_capability
    assert cuda.select_device(0) is device
    with pytest.raises(cuda.CudaAPIError, match="device 1 does not exist"):
        cuda.select_device(1)
    with pytest.raises(AttributeError, match="FANCY"):
        _ = device.FANCY_FEATURE
    free, total = cuda.current_context().get_memory_info()
    assert 0 < free <= total
    cuda.close()


def test_detect_prints_the_device(capsys):
    assert cuda.detect()
    assert cuda.get_current_device().name in capsys.readouterr().out


@pytest.mark.parametrize("use", ["threadIdx.x", "grid(1)", "syncthreads()", "laneid + 1"])
def test_kernel_names_outside_a_kernel_say_so(use):
    with pytest.raises(stubs.KernelOnlyError, match="only works inside a kernel"):
        eval(f"cuda.{use}", {"cuda": cuda})


def test_misused_names_say_what_they_are():
    with pytest.raises(TypeError, match="drop the parentheses"):
        cuda.laneid()
    with pytest.raises(TypeError, match=r"use cuda.threadIdx.x"):
        cuda.threadIdx()
    with pytest.raises(AttributeError, match="atomic has no 'mul'"):
        _ = cuda.atomic.mul
    with pytest.raises(AttributeError, match="cuda has no 'gird'"):
        _ = cuda.gird
    with pytest.raises(AttributeError, match=r"kernel\.ptx"):
        _ = cuda.compile
    with pytest.raises(AttributeError, match="write the function in Python"):
        _ = cuda.CUSource


def test_modules_of_the_driver_are_there():
    array = cuda.to_device(np.arange(3.0))
    assert isinstance(array, cuda.cudadrv.devicearray.DeviceNDArray)
    assert isinstance(array, cuda.devicearray.DeviceNDArray)
    assert cuda.cudadrv.driver.CudaAPIError is cuda.cudadrv.error.CudaAPIError
    assert cuda.runtime.get_version() >= (12, 0)
    assert array.device_ctypes_pointer.value == array.__cuda_array_interface__["data"][0]


def test_a_device_array_from_an_interface():
    owner = cuda.to_device(np.arange(6.0).reshape(2, 3))
    described = dict(owner[:, 1].__cuda_array_interface__)
    column = cuda.from_cuda_array_interface(described, owner=owner)
    column[1] = 9.0
    assert owner.copy_to_host().tolist() == [[0, 1, 2], [3, 9, 5]]
    with pytest.raises(NotImplementedError, match="Masked"):
        cuda.from_cuda_array_interface({**described, "mask": column})


def test_stubs_keep_their_identity():
    for stub in stubs.all_stubs().values():
        assert stubs.canonical(stub) == stub.name
        assert pickle.loads(pickle.dumps(stub)) is stub
    assert cuda.float4 is cuda.float32x4
    assert stubs.canonical(print) is None
    assert cuda.laneid == cuda.laneid
    assert cuda.laneid != cuda.warpsize


@pytest.mark.needs("numba.cuda")
def test_stubs_of_numba_cuda_are_recognised():
    from numba import cuda as real

    assert stubs.canonical(real.atomic.add) == "atomic.add"
    assert stubs.canonical(real.shfl_down_sync) == "shfl_down_sync"
    assert stubs.canonical(real.shared.array) == "shared.array"
    assert stubs.canonical(real.threadIdx) == "threadIdx"
    assert stubs.is_namespace(real.atomic)
    assert stubs.is_namespace(real)
    assert not stubs.is_namespace(np)


def test_names_of_numba_cuda_are_here():
    """What the documentation of numba.cuda lists for host and device code."""
    names = """
        jit grid gridsize threadIdx blockIdx blockDim gridDim laneid warpsize shared local const
        syncthreads syncthreads_count syncthreads_and syncthreads_or syncwarp threadfence
        threadfence_block threadfence_system shfl_sync shfl_up_sync shfl_down_sync shfl_xor_sync
        all_sync any_sync eq_sync ballot_sync match_any_sync match_all_sync activemask lanemask_lt
        atomic popc brev clz ffs fma cbrt selp nanosleep cg fp16 libdevice to_device device_array
        device_array_like pinned_array pinned_array_like mapped_array mapped_array_like
        managed_array pinned mapped as_cuda_array is_cuda_array stream default_stream
        legacy_default_stream per_thread_default_stream external_stream event event_elapsed_time
        synchronize is_available detect gpus list_devices select_device get_current_device
        current_context require_context close defer_cleanup is_supported_version cuda_error
        is_float16_supported is_bfloat16_supported In Out InOut reduce Reduce vectorize random
        types float32 float64 int8 uint64 boolean complex64 bfloat16 float4 double2 int3 uchar1
        ldca ldcg ldcs ldlu ldcv stcg stcs stwb stwt
    """
    missing = [name for name in names.split() if not hasattr(cuda, name)]
    assert not missing


def in_fresh_process(code: str) -> str:
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def test_importing_loads_no_numba():
    code = "import sys; from kernels.simt import cuda; cuda.float4; print('numba' in sys.modules)"
    assert in_fresh_process(code) == "False"


def test_kernels_cuda_is_ours_without_a_gpu():
    from kernels import cuda as chosen

    real = sys.modules.get("numba.cuda")
    assert chosen is (real if real is not None and real.is_available() else cuda)


@cuda.jit
def add_one(x):
    x[cuda.grid(1)] += 1


def test_kernels_are_pickled_by_their_names():
    assert pickle.loads(pickle.dumps(add_one)) is add_one
    with pytest.raises((pickle.PicklingError, AttributeError)):
        pickle.dumps(cuda.jit(lambda x: None))
