"""The software GPU's driver: its errors, the order of work, and what it finds in kernels.

It is loaded under another name than the driver's, so that nothing else in this process sees a GPU.
"""

from __future__ import annotations

import ctypes
import shutil

import numpy as np
import pytest

from tests import software_gpu

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")

INVALID_VALUE, OUT_OF_MEMORY, INVALID_DEVICE, INVALID_CONTEXT = 1, 2, 101, 201
NO_BINARY, INVALID_PTX, INVALID_HANDLE, NOT_FOUND, NOT_READY = 209, 218, 400, 500, 600
ILLEGAL_ADDRESS, MISALIGNED, TOO_LARGE = 700, 716, 720

# add(x, n): x[i] += n for 32-bit integers. wide(x): reads 8 bytes at x. lanes(x): a shuffle whose
# mask names one lane, by all of them. block(x): 48 KiB of shared memory of its own.
PTX = """
.version 7.0
.target sm_75
.address_size 64
.shared .align 16 .b8 tile[49152];
.visible .entry add(.param .u64 x, .param .u32 n) {
    .reg .b64 %a; .reg .b64 %o; .reg .b32 %v; .reg .b32 %n; .reg .b32 %t;
    ld.param.u64 %a, [x]; ld.param.u32 %n, [n];
    mov.u32 %t, %tid.x; mul.wide.u32 %o, %t, 4; add.s64 %a, %a, %o;
    ld.global.u32 %v, [%a]; add.s32 %v, %v, %n; st.global.u32 [%a], %v;
    ret;
}
.visible .entry wide(.param .u64 x) {
    .reg .b64 %a; .reg .b64 %v;
    ld.param.u64 %a, [x]; ld.global.u64 %v, [%a];
    st.global.u64 [%a], %v;
    ret;
}
.visible .entry lanes(.param .u64 x) {
    .reg .b32 %v; .reg .b32 %w;
    mov.u32 %v, %tid.x; shfl.sync.bfly.b32 %w, %v, 1, 31, 1;
    ret;
}
.visible .entry block(.param .u64 x) {
    .reg .b32 %v; .reg .b64 %a;
    ld.param.u64 %a, [x]; ld.shared.u32 %v, [tile]; st.global.u32 [%a], %v;
    ret;
}
"""


class Gpu:
    """The library, with functions that check."""

    def __init__(self, capability: str, devices: int) -> None:
        name = "libsoftware_gpu.so"
        self.library, self.runner = software_gpu.load(name, [capability] * devices)

    def use(self, device: int) -> None:
        self.do("cuCtxSetCurrent", self.get("cuDevicePrimaryCtxRetain", device))

    def status(self, name: str, *args) -> int:
        return getattr(self.library, name)(*args)

    def do(self, name: str, *args) -> None:
        assert self.status(name, *args) == 0, name

    def get(self, name: str, *args) -> int:
        """What a function writes through its first argument."""
        made = ctypes.c_void_p()
        self.do(name, ctypes.byref(made), *args)
        return made.value

    def array(self, values) -> int:
        values = np.ascontiguousarray(values, np.int32)
        at = self.get("cuMemAlloc", values.nbytes)
        self.do("cuMemcpyHtoD", at, values.ctypes.data, values.nbytes)
        return at

    def read(self, at: int, count: int) -> list[int]:
        found = np.empty(count, np.int32)
        self.do("cuMemcpyDtoH", found.ctypes.data, at, found.nbytes)
        return found.tolist()

    def kernel(self, name: str) -> int:
        module = self.get("cuModuleLoadData", PTX.encode())
        return self.get("cuModuleGetFunction", module, name.encode())

    def launch(self, kernel: int, *args, grid=(1, 1, 1), block=(32, 1, 1), shared=0, stream=None):
        """The status of a launch."""
        kept = [np.array([a], np.uint64) for a in args]
        values = (ctypes.c_void_p * len(kept))(*(k.ctypes.data for k in kept))
        sizes = (*grid, *block, shared)
        return self.status("cuLaunchKernel", kernel, *sizes, stream, values, None)


@pytest.fixture
def make():
    gpus = []

    def made(capability: str = "8.0", devices: int = 2) -> Gpu:
        gpus.append(Gpu(capability, devices))
        gpus[-1].use(0)
        return gpus[-1]

    yield made
    for gpu in gpus:  # a fault and a current context would be there for the next test
        gpu.library.cuCtxSetCurrent(None)


@pytest.mark.parametrize(
    "capability, shared", [("7.5", 64), ("8.0", 163), ("9.0", 227), ("12.0", 99)]
)
def test_limits_of_a_launch(make, capability, shared):
    gpu = make(capability)
    x = gpu.array(range(32))
    add = gpu.kernel("add")
    assert gpu.launch(add, x, 5) == 0
    assert gpu.read(x, 3) == [5, 6, 7]
    for grid, block in [
        ((0, 1, 1), (32, 1, 1)),
        ((1, 65536, 1), (32, 1, 1)),
        ((1, 1, 65536), (32, 1, 1)),
        ((1, 1, 1), (1025, 1, 1)),
        ((1, 1, 1), (32, 33, 1)),
        ((1, 1, 1), (1, 1, 65)),
    ]:
        assert gpu.launch(add, x, 5, grid=grid, block=block) == INVALID_VALUE, (grid, block)
    most = shared * 1024
    assert gpu.launch(add, x, 0, shared=48 * 1024) == 0
    assert gpu.launch(add, x, 0, shared=48 * 1024 + 1) == INVALID_VALUE  # not asked for
    assert gpu.status("cuFuncSetAttribute", add, 8, most + 1) == INVALID_VALUE
    gpu.do("cuFuncSetAttribute", add, 8, most)
    assert gpu.launch(add, x, 0, shared=most) == 0
    assert gpu.launch(gpu.kernel("block"), x, shared=4) == INVALID_VALUE
    assert gpu.read(x, 3) == [5, 6, 7]


def test_what_the_driver_refuses(make):
    gpu = make()
    assert gpu.status("cuDeviceGet", ctypes.byref(ctypes.c_int()), 2) == INVALID_DEVICE
    made = ctypes.c_void_p()
    load = ("cuModuleLoadData", ctypes.byref(made))
    assert gpu.status(*load, b"\x7fELF\2\1") == NO_BINARY
    assert gpu.status(*load, b".version 7.0\n.target sm_75\nno ptx") == INVALID_PTX
    module = gpu.get("cuModuleLoadData", PTX.encode())
    find = ("cuModuleGetFunction", ctypes.byref(made), module)
    assert gpu.status(*find, b"subtract") == NOT_FOUND
    assert gpu.launch(12345, 1) == INVALID_HANDLE
    x, add = gpu.array([1]), gpu.kernel("add")
    assert gpu.launch(add, x, 1, stream=12345) == INVALID_HANDLE
    host = np.zeros(2, np.int32)
    assert gpu.status("cuMemcpyDtoH", host.ctypes.data, x, 8) == INVALID_VALUE  # 4 bytes are there
    assert gpu.status("cuMemcpyHtoD", host.ctypes.data, host.ctypes.data, 4) == INVALID_VALUE
    assert gpu.status("cuMemFree", x + 4) == INVALID_VALUE
    gpu.do("cuMemFree", x)
    assert gpu.status("cuMemFree", x) == INVALID_VALUE
    gpu.use(1)  # a kernel and a stream belong to the context that they were made in
    assert gpu.launch(add, x, 1) == INVALID_HANDLE
    gpu.do("cuCtxSetCurrent", None)
    assert gpu.launch(add, x, 1) == INVALID_CONTEXT


def test_memory_has_an_end_and_comes_back(make):
    gpu = make()
    gpu.library.software_gpu_memory(0, 1 << 20)
    x = gpu.get("cuMemAlloc", 1 << 19)
    made = ctypes.c_void_p()
    assert gpu.status("cuMemAlloc", ctypes.byref(made), (1 << 19) + 1) == OUT_OF_MEMORY
    assert gpu.status("cuMemAlloc", ctypes.byref(made), 0) == INVALID_VALUE
    gpu.do("cuMemFree", x)
    assert gpu.read(gpu.get("cuMemAlloc", 1 << 20), 3) == [-1, -1, -1]  # never 0 by chance


def fault(gpu: Gpu) -> str:
    """What a kernel did wrong, after which the context works again."""
    assert gpu.library.software_gpu_forget_fault(0)
    return gpu.runner.fault


def test_faults_of_kernels(make):
    gpu = make()
    x = gpu.array(range(33))
    for name, address, code, text in [
        ("wide", x + 4, MISALIGNED, "misaligned read of 8 bytes"),
        ("wide", x + 34 * 4, ILLEGAL_ADDRESS, "outside of all arrays"),
        ("lanes", x, 719, "not in the mask"),
    ]:
        gpu.runner.fault = None
        assert gpu.launch(gpu.kernel(name), address) == 0  # the launch itself is in order
        assert gpu.status("cuCtxSynchronize") == code, name
        assert gpu.status("cuMemFree", x) == code  # and so is the answer to every later call
        assert text in fault(gpu)
    gone = gpu.array(range(32))
    gpu.do("cuMemFree", gone)
    gpu.runner.fault = None
    gpu.launch(gpu.kernel("add"), gone, 1)
    assert gpu.status("cuCtxSynchronize") == ILLEGAL_ADDRESS
    assert "outside of all arrays" in fault(gpu)
    gpu.use(1)  # memory of the other device
    there = gpu.array(range(32))
    gpu.use(0)
    gpu.launch(gpu.kernel("add"), there, 1)
    assert gpu.status("cuCtxSynchronize") == ILLEGAL_ADDRESS
    fault(gpu)


def test_work_waits_until_the_host_waits(make):
    gpu = make()
    x, add = gpu.array([0] * 32), gpu.kernel("add")
    stream, other = (gpu.get("cuStreamCreate", 1) for _ in range(2))  # not ordered by stream 0
    pinned = gpu.get("cuMemHostAlloc", 4, 0)
    seen = ctypes.c_int.from_address(pinned)
    gpu.launch(add, x, 1, stream=stream)
    gpu.do("cuMemcpyDtoHAsync", pinned, x, 4, stream)
    assert seen.value == -1  # a program that does not wait sees the memory as it was
    assert gpu.read(x, 1) == [0]  # stream 0 does not wait for this stream
    event = gpu.get("cuEventCreate", 0)
    gpu.do("cuEventRecord", event, stream)
    gpu.do("cuStreamWaitEvent", other, event, 0)
    gpu.launch(add, x, 10, stream=other)
    assert gpu.status("cuEventQuery", event) == NOT_READY
    gpu.do("cuStreamSynchronize", other)
    assert seen.value == 1 and gpu.read(x, 2) == [11, 11]
    assert gpu.status("cuEventQuery", event) == 0


def test_stream_zero_waits_for_blocking_streams(make):
    gpu = make()
    x, add = gpu.array([0] * 32), gpu.kernel("add")
    stream = gpu.get("cuStreamCreate", 0)
    gpu.launch(add, x, 1, stream=stream)
    assert gpu.read(x, 1) == [1]
    waits = gpu.library.software_gpu_waits()
    for _ in range(3000):  # more than a stream holds: the first are done meanwhile
        assert gpu.launch(add, x, 1, stream=stream) == 0
    assert gpu.library.software_gpu_waits() == waits
    assert gpu.read(x, 1) == [3001]
