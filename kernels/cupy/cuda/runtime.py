"""Functions of CUDA's runtime by CuPy's names. What a CPU does not have raises CUDARuntimeError."""

from __future__ import annotations

import ctypes
from typing import Any

from .. import _memory
from .._absent import unknown
from .._runtime_error import CUDARuntimeError, check_device
from . import device as _device
from . import stream as _stream

is_hip = False
memcpyHostToHost, memcpyHostToDevice, memcpyDeviceToHost = 0, 1, 2
memcpyDeviceToDevice, memcpyDefault = 3, 4
streamDefault, streamNonBlocking, streamLegacy, streamPerThread = 0, 1, 1, 2
eventDefault, eventBlockingSync, eventDisableTiming, eventInterprocess = 0, 1, 2, 4
hostAllocDefault, hostAllocPortable, hostAllocMapped, hostAllocWriteCombined = 0, 1, 2, 4
memoryTypeUnregistered, memoryTypeHost, memoryTypeDevice, memoryTypeManaged = 0, 1, 2, 3
cudaMemoryTypeHost, cudaMemoryTypeDevice = 1, 2
cudaMemAttachGlobal, cudaMemAttachHost, cudaMemAttachSingle = 1, 2, 4
cudaCpuDeviceId, cudaInvalidDeviceId = -1, -2
cudaLimitStackSize, cudaLimitPrintfFifoSize, cudaLimitMallocHeapSize = 0, 1, 2
streamCaptureStatusNone, streamCaptureStatusActive, streamCaptureStatusInvalidated = 0, 1, 2
streamCaptureModeGlobal, streamCaptureModeThreadLocal, streamCaptureModeRelaxed = 0, 1, 2

#: CUDA's numbers of the attributes that `Device.attributes` has
_ATTRIBUTES = {
    "MaxThreadsPerBlock": 1, "MaxBlockDimX": 2, "MaxBlockDimY": 3, "MaxBlockDimZ": 4,
    "MaxGridDimX": 5, "MaxGridDimY": 6, "MaxGridDimZ": 7, "MaxSharedMemoryPerBlock": 8,
    "TotalConstantMemory": 9, "WarpSize": 10, "MaxRegistersPerBlock": 12,
    "MultiProcessorCount": 16, "KernelExecTimeout": 17, "Integrated": 18, "CanMapHostMemory": 19,
    "ConcurrentKernels": 31, "MaxThreadsPerMultiProcessor": 39, "UnifiedAddressing": 41,
    "ComputeCapabilityMajor": 75, "ComputeCapabilityMinor": 76,
    "MaxSharedMemoryPerMultiprocessor": 81, "MaxRegistersPerMultiprocessor": 82,
    "ManagedMemory": 83, "CooperativeLaunch": 95, "MaxSharedMemoryPerBlockOptin": 97,
}  # fmt: skip
globals().update(
    {f"cudaDevAttr{k}": v for k, v in _ATTRIBUTES.items() if not k.startswith("Compute")}
)

_blocks: dict[int, _memory.Memory] = {}
_streams: dict[int, _stream.Stream] = {}
_events: dict[int, _stream.Event] = {}
_limits = {0: 1024, 1: 1 << 20, 2: 8 << 20}


def getDeviceCount() -> int:
    return 1


def getDevice() -> int:
    return 0


def setDevice(device: int) -> None:
    check_device(device)


def getDeviceProperties(device: int) -> dict[str, Any]:
    check_device(device)
    return _device.properties()


def deviceGetAttribute(attrib: int, device: int) -> int:
    check_device(device)
    for name, number in _ATTRIBUTES.items():
        if number == attrib:
            return _device.Device(0).attributes[name]
    raise CUDARuntimeError(1, f"attribute {attrib} is not known for a CPU")


def deviceGetPCIBusId(device: int) -> str:
    return _device.Device(device).pci_bus_id


def deviceGetByPCIBusId(pciBusId: str) -> int:
    return 0


def deviceSynchronize() -> None:
    """Wait for the device: nothing is pending."""


def deviceGetLimit(limit: int) -> int:
    return _limits[limit]


def deviceSetLimit(limit: int, value: int) -> None:
    _limits[limit] = value


def deviceCanAccessPeer(device: int, peerDevice: int) -> int:
    check_device(device)
    return 0


def deviceEnablePeerAccess(peerDevice: int) -> None:
    raise CUDARuntimeError(217, "there is one device")


deviceDisablePeerAccess = deviceEnablePeerAccess


def driverGetVersion() -> int:
    return 13000


runtimeGetVersion = driverGetVersion


def memGetInfo() -> tuple[int, int]:
    """Free and total bytes."""
    return _memory.total_memory()


# --- memory by address


def malloc(size: int) -> int:
    block = _memory.Memory(max(int(size), 1))
    _blocks[block.ptr] = block
    return block.ptr


def free(ptr: int) -> None:
    if ptr and _blocks.pop(ptr, None) is None:
        raise CUDARuntimeError(1, f"free: {ptr:#x} is not an allocation, or was freed before")


def mallocManaged(size: int, flags: int = cudaMemAttachGlobal) -> int:
    return malloc(size)


def mallocAsync(size: int, stream: int) -> int:
    return malloc(size)


def hostAlloc(size: int, flags: int) -> int:
    return malloc(size)


def freeAsync(ptr: int, stream: int) -> None:
    free(ptr)


freeHost = free


def hostRegister(ptr: int, size: int, flags: int) -> None:
    """Host memory is never locked here."""


def hostUnregister(ptr: int) -> None:
    """Host memory is never locked here."""


def memcpy(dst: int, src: int, size: int, kind: int) -> None:
    if size:
        ctypes.memmove(dst, src, size)


def memcpyAsync(dst: int, src: int, size: int, kind: int, stream: int) -> None:
    memcpy(dst, src, size, kind)


def memcpy2D(
    dst: int, dpitch: int, src: int, spitch: int, width: int, height: int, kind: int
) -> None:
    for row in range(height):
        memcpy(dst + row * dpitch, src + row * spitch, width, kind)


def memcpy2DAsync(
    dst: int, dpitch: int, src: int, spitch: int, width: int, height: int, kind: int, stream: int
) -> None:
    memcpy2D(dst, dpitch, src, spitch, width, height, kind)


def memset(ptr: int, value: int, size: int) -> None:
    ctypes.memset(ptr, value, size)


def memsetAsync(ptr: int, value: int, size: int, stream: int) -> None:
    memset(ptr, value, size)


def memPrefetchAsync(devPtr: int, count: int, dstDevice: int, stream: int) -> None:
    """Nothing moves: there is one memory."""


def memAdvise(devPtr: int, count: int, advice: int, device: int) -> None:
    """Advice that the one memory does not need."""


class PointerAttributes:
    """What `pointerGetAttributes` tells: `device`, `devicePointer`, `hostPointer`, `type`."""

    def __init__(self, device: int, devicePointer: int, hostPointer: int, type: int = -1) -> None:
        self.device, self.devicePointer = device, devicePointer
        self.hostPointer, self.type = hostPointer, type


def pointerGetAttributes(ptr: int) -> PointerAttributes:
    return PointerAttributes(0, ptr, ptr, memoryTypeDevice)


# --- streams and events by handle


def streamCreate() -> int:
    made = _stream.Stream()
    _streams[made.ptr] = made
    return made.ptr


def streamCreateWithFlags(flags: int) -> int:
    return streamCreate()


def streamCreateWithPriority(flags: int, priority: int) -> int:
    return streamCreate()


def streamDestroy(stream: int) -> None:
    _streams.pop(stream, None)


def streamSynchronize(stream: int) -> None:
    """Wait for a stream: nothing is pending."""


def streamQuery(stream: int) -> int:
    return 0


def streamWaitEvent(stream: int, event: int, flags: int = 0) -> None:
    """Let later work wait for an event: it has happened."""


def streamIsCapturing(stream: int) -> int:
    return streamCaptureStatusNone


def launchHostFunc(stream: int, callback: Any, arg: Any) -> None:
    callback(arg)


def streamAddCallback(stream: int, callback: Any, arg: Any, flags: int = 0) -> None:
    callback(stream, 0, arg)


def eventCreate() -> int:
    return eventCreateWithFlags(eventDefault)


def eventCreateWithFlags(flags: int) -> int:
    made = _stream.Event(disable_timing=bool(flags & eventDisableTiming))
    _events[made.ptr] = made
    return made.ptr


def eventDestroy(event: int) -> None:
    _events.pop(event, None)


def eventRecord(event: int, stream: int) -> None:
    _events[event].record()


def eventSynchronize(event: int) -> None:
    """Wait for an event: it has happened."""


def eventQuery(event: int) -> int:
    return 0


def eventElapsedTime(start: int, end: int) -> float:
    return _stream.get_elapsed_time(_events[start], _events[end])


def profilerStart() -> None:
    """There is no profiler to start."""


def profilerStop() -> None:
    """There is no profiler to stop."""


def check_status(status: int) -> None:
    """Raise CUDARuntimeError unless `status` is 0."""
    if status:
        raise CUDARuntimeError(status)


def _absent(name: str) -> Any:
    def refused(*args: Any, **options: Any) -> None:
        raise CUDARuntimeError(801, f"{name}: {_ABSENT[name]}")

    refused.__name__ = name
    return refused


_ABSENT = {
    **dict.fromkeys(
        "ipcGetMemHandle ipcOpenMemHandle ipcCloseMemHandle ipcGetEventHandle"
        " ipcOpenEventHandle".split(),
        "device memory cannot be shared here; use multiprocessing.shared_memory",
    ),
    **dict.fromkeys(
        "createTextureObject destroyTextureObject createSurfaceObject destroySurfaceObject"
        " malloc3DArray mallocArray freeArray memcpy3D memcpy3DAsync memcpy2DFromArray"
        " memcpy2DToArray memcpy2DFromArrayAsync memcpy2DToArrayAsync".split(),
        "there are no textures on the CPU; index the array in the kernel",
    ),
    **dict.fromkeys(
        "graphInstantiate graphLaunch graphDestroy graphExecDestroy graphUpload graphDebugDotPrint"
        " streamBeginCapture streamEndCapture".split(),
        "graphs cannot be captured on the CPU; run the work itself",
    ),
    **dict.fromkeys(("memcpyPeer", "memcpyPeerAsync"), "there is one device; use memcpy"),
    **dict.fromkeys(
        "memPoolCreate memPoolDestroy memPoolTrimTo memPoolGetAttribute memPoolSetAttribute"
        " deviceGetDefaultMemPool deviceGetMemPool deviceSetMemPool mallocFromPoolAsync".split(),
        "there are no pools of the driver's; use cupy.cuda.MemoryPool",
    ),
}
globals().update({name: _absent(name) for name in _ABSENT})


_ADVICE = "SetReadMostly UnsetReadMostly SetPreferredLocation UnsetPreferredLocation"
_ADVICE += " SetAccessedBy UnsetAccessedBy"
globals().update({f"cudaMemAdvise{name}": i for i, name in enumerate(_ADVICE.split(), 1)})


def __getattr__(name: str) -> Any:
    raise unknown("cupy.cuda.runtime", name, globals())
