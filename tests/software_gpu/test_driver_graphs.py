"""The software GPU's driver: streams that capture, graphs, and what a capture refuses."""

from __future__ import annotations

import ctypes
import shutil
import threading

import pytest

from .test_driver import INVALID_VALUE, make  # noqa: F401

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")

ILLEGAL_STATE, UNSUPPORTED, INVALIDATED, UNMATCHED, UNJOINED = 401, 900, 901, 903, 904
ISOLATION, IMPLICIT, CAPTURED_EVENT, WRONG_THREAD = 905, 906, 907, 908
GLOBAL, THREAD_LOCAL, RELAXED = range(3)
NON_BLOCKING = 1


def end(gpu, stream):
    """(status, graph) of the end of a capture."""
    graph = ctypes.c_void_p()
    return gpu.status("cuStreamEndCapture", stream, ctypes.byref(graph)), graph.value


def test_a_graph_does_what_was_captured_each_time_it_is_launched(make):  # noqa: F811
    gpu = make()
    x, add = gpu.array([0] * 32), gpu.kernel("add")
    stream = gpu.get("cuStreamCreate", NON_BLOCKING)
    launches = gpu.library.software_gpu_launches()
    gpu.do("cuStreamBeginCapture", stream, GLOBAL)
    for n in (1, 10):
        assert gpu.launch(add, x, n, stream=stream) == 0
    status, graph = end(gpu, stream)
    assert status == 0 and gpu.library.software_gpu_launches() == launches
    count = ctypes.c_size_t()
    gpu.do("cuGraphGetNodes", graph, None, ctypes.byref(count))
    run = gpu.get("cuGraphInstantiate", graph, 0)
    assert count.value == 2 and gpu.read(x, 1) == [0]  # nothing has run
    for _ in range(3):
        gpu.do("cuGraphLaunch", run, stream)
    assert gpu.read(x, 1) == [0]  # nobody has waited
    gpu.do("cuStreamSynchronize", stream)
    assert gpu.read(x, 1) == [33] and gpu.library.software_gpu_launches() == launches + 3
    other = gpu.get("cuStreamCreate", NON_BLOCKING)
    gpu.do("cuGraphLaunch", run, stream)
    gpu.do("cuGraphLaunch", run, other)  # after its launch in the first stream
    gpu.do("cuStreamSynchronize", other)
    assert gpu.read(x, 1) == [55]


@pytest.mark.parametrize("mode", [GLOBAL, THREAD_LOCAL, RELAXED])
def test_what_a_capture_refuses(make, mode):  # noqa: F811
    gpu = make()
    stream, event = gpu.get("cuStreamCreate", NON_BLOCKING), gpu.get("cuEventCreate", 0)
    before, made = gpu.get("cuEventCreate", 0), ctypes.c_void_p()
    x = gpu.array([0] * 32)
    gpu.do("cuEventRecord", before, None)
    assert gpu.status("cuStreamBeginCapture", None, mode) == UNSUPPORTED  # the legacy stream
    assert end(gpu, stream)[0] == ILLEGAL_STATE
    unsafe = 0 if mode == RELAXED else UNSUPPORTED
    for wanted, *call in [
        (UNSUPPORTED, "cuStreamSynchronize", stream),
        (UNSUPPORTED, "cuStreamQuery", stream),
        (UNSUPPORTED, "cuCtxSynchronize"),
        (CAPTURED_EVENT, "cuEventSynchronize", event),
        (CAPTURED_EVENT, "cuEventQuery", event),
        (ISOLATION, "cuStreamWaitEvent", stream, before, 0),
        (unsafe, "cuMemAlloc", ctypes.byref(made), 64),
        (unsafe, "cuMemHostAlloc", ctypes.byref(made), 64, 0),
        (unsafe, "cuMemFree", None),
    ]:
        gpu.do("cuStreamBeginCapture", stream, mode)
        assert gpu.status("cuStreamBeginCapture", stream, mode) == ILLEGAL_STATE
        gpu.do("cuEventRecord", event, stream)
        assert gpu.status(*call) == wanted, call
        if wanted:  # and the capture is over
            assert gpu.launch(gpu.kernel("add"), x, 1, stream=stream) == INVALIDATED
            assert end(gpu, stream) == (INVALIDATED, None)
        else:
            assert end(gpu, stream)[0] == 0
    gpu.do("cuStreamBeginCapture", stream, mode)
    assert gpu.status("cuMemFreeAsync", x, stream) == INVALID_VALUE  # not of the graph
    ended = []
    thread = threading.Thread(target=lambda: (gpu.use(0), ended.append(end(gpu, stream)[0])))
    thread.start()
    thread.join()
    assert ended == [0 if mode == RELAXED else WRONG_THREAD]
    end(gpu, stream)


def test_the_legacy_stream_beside_a_capture(make):  # noqa: F811
    gpu = make()
    x, add = gpu.array([0] * 32), gpu.kernel("add")
    for flags, wanted in ((NON_BLOCKING, 0), (0, IMPLICIT)):
        stream = gpu.get("cuStreamCreate", flags)
        gpu.do("cuStreamBeginCapture", stream, RELAXED)
        assert gpu.launch(add, x, 1) == wanted
        assert end(gpu, stream)[0] == (INVALIDATED if wanted else 0)


def test_events_take_other_streams_into_a_capture(make):  # noqa: F811
    gpu = make()
    x, add = gpu.array([0] * 32), gpu.kernel("add")
    stream, other = (gpu.get("cuStreamCreate", NON_BLOCKING) for _ in range(2))
    assert gpu.read(x, 1) == [0]  # which waits for its copy
    begun, done = (gpu.get("cuEventCreate", 0) for _ in range(2))
    for joined in (False, True):
        gpu.do("cuStreamBeginCapture", stream, GLOBAL)
        gpu.do("cuEventRecord", begun, stream)
        gpu.do("cuStreamWaitEvent", other, begun, 0)
        assert gpu.launch(add, x, 1, stream=other) == 0
        if joined:
            gpu.do("cuEventRecord", done, other)
            gpu.do("cuStreamWaitEvent", stream, done, 0)
        else:
            assert end(gpu, other)[0] == UNMATCHED
            assert end(gpu, stream)[0] == INVALIDATED
            continue
        status, graph = end(gpu, stream)
        assert status == 0
        gpu.do("cuGraphLaunch", gpu.get("cuGraphInstantiate", graph, 0), stream)
        gpu.do("cuStreamSynchronize", stream)
        assert gpu.read(x, 1) == [1]
    gpu.do("cuStreamBeginCapture", stream, GLOBAL)
    gpu.do("cuEventRecord", begun, stream)
    gpu.do("cuStreamWaitEvent", other, begun, 0)
    assert gpu.launch(add, x, 1, stream=other) == 0
    assert end(gpu, stream) == (UNJOINED, None)
