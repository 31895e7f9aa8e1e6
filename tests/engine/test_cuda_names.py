"""`minigrad.cuda` beside tensors: properties, the current GPU, random states, ranges to profile."""

from __future__ import annotations

import pytest

import minigrad as mg


def test_fork_rng(torch):
    """A block that draws leaves the sequence as it was; not with enabled=False."""
    for m in (mg, torch):
        m.manual_seed(0)
        wanted = m.rand(3).tolist()
        m.manual_seed(0)
        with m.random.fork_rng(devices=[]):
            m.manual_seed(5)
            m.rand(7)
        assert m.rand(3).tolist() == wanted
        m.manual_seed(0)
        with m.random.fork_rng(enabled=False):
            m.rand(7)
        assert m.rand(3).tolist() != wanted
        with pytest.raises(RuntimeError), m.random.fork_rng(device_type="gpu"):
            pass
        with pytest.raises(KeyError), m.random.fork_rng(devices=[]):
            m.manual_seed(1)
            raise KeyError


def test_without_a_gpu(torch):
    """What asks about a GPU raises; what a program may call anyway does nothing."""
    if mg.cuda.is_available() or torch.cuda.is_available():
        pytest.skip("there is a GPU")
    for m in (mg, torch):
        assert m.cuda.get_rng_state_all() == [] and not m.cuda.is_initialized()
        m.cuda.set_rng_state_all([])
        for program in (
            lambda m: m.cuda.init(),
            lambda m: m.cuda.initial_seed(),
            lambda m: m.cuda.get_rng_state(),
            lambda m: m.cuda.get_device_properties(0),
            lambda m: m.cuda.get_device_capability(),
            lambda m: m.cuda.mem_get_info(),
            lambda m: m.cuda.nvtx.range_push("a"),
            lambda m: m.cuda.nvtx.mark("a"),
        ):
            with pytest.raises((RuntimeError, AssertionError, AttributeError)):
                program(m)
    mg.cuda.set_stream(None)  # torch without CUDA refuses these; torch with it and no GPU does not
    with mg.cuda.StreamContext(None), mg.cuda.device(-1), mg.cuda.device_of(mg.ones(2)):
        assert mg.ones(2).device.type == "cpu"
    mg.cuda.ipc_collect()


@pytest.mark.gpu
def test_properties():
    found = mg.cuda.get_device_properties("cuda:0")
    assert found.name == mg.cuda.get_device_name(0) and found.warp_size == 32
    assert (found.major, found.minor) == mg.cuda.get_device_capability()
    free, total = mg.cuda.mem_get_info()
    assert 0 < free <= total and found.total_memory > 0
    assert f"total_memory={found.total_memory // 2**20}MB" in repr(found)
    with pytest.raises(AssertionError, match="Invalid device id"):
        mg.cuda.get_device_properties(99)
    with pytest.raises(ValueError, match="Expected a cuda device"):
        mg.cuda.get_device_capability("cpu")
    mg.cuda.init()
    assert mg.cuda.is_initialized()


@pytest.mark.gpu
def test_the_current_gpu_of_a_block():
    if mg.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    with mg.cuda.device("cuda:1"):
        assert mg.cuda.current_device() == 1
        there = mg.ones(2, device="cuda")
        with mg.cuda.device(None), mg.cuda.device(-1):
            assert mg.cuda.current_device() == 1
    assert mg.cuda.current_device() == 0 and there.device == mg.device("cuda:1")
    with mg.cuda.device_of(there):
        assert mg.cuda.current_device() == 1
        with mg.cuda.device_of(mg.ones(2)):
            assert mg.cuda.current_device() == 1
    assert mg.cuda.current_device() == 0


@pytest.mark.gpu
def test_random_states_of_gpus():
    mg.cuda.manual_seed_all(3)
    assert mg.cuda.initial_seed() == 3
    mg.rand(2, device="cuda")
    one, several = mg.cuda.get_rng_state(), mg.cuda.get_rng_state_all()
    assert len(several) == mg.cuda.device_count()
    wanted = mg.rand(5, device="cuda").tolist()
    mg.cuda.set_rng_state(one)
    assert mg.rand(5, device="cuda").tolist() == wanted
    mg.cuda.set_rng_state_all(several)
    assert mg.rand(5, device="cuda").tolist() == wanted
    mg.cuda.seed_all()
    assert mg.cuda.initial_seed() != 3
    with pytest.raises(RuntimeError, match="expected a GPU"):
        mg.cuda.set_rng_state(one, "cpu")


@pytest.mark.gpu
def test_the_stream_of_a_program():
    stream, before = mg.cuda.Stream(), mg.cuda.current_stream()
    mg.cuda.set_stream(None)
    assert mg.cuda.current_stream() == before
    mg.cuda.set_stream(stream)
    try:
        assert mg.cuda.current_stream() == stream
        with mg.cuda.StreamContext(mg.cuda.Stream()) as nothing:
            assert nothing is None and mg.cuda.current_stream() not in (stream, before)
        assert mg.cuda.current_stream() == stream
        assert mg.HalfTensor([1]).cuda().dtype == mg.cuda.HalfTensor([1]).dtype == mg.float16
    finally:
        mg.cuda.set_stream(before)


@pytest.mark.gpu
def test_ranges_of_profilers(monkeypatch):
    calls = []
    nvtx = mg.backends.device_module("cuda").cuda.nvtx
    for name in ("RangePush", "RangePop", "Mark"):
        monkeypatch.setattr(nvtx, name, lambda *a, n=name: calls.append((n, *a)))
    assert mg.cuda.nvtx.range_push("a") == 0 and mg.cuda.nvtx.range_push("b") == 1
    assert mg.cuda.nvtx.range_pop() == 1 and mg.cuda.nvtx.range_pop() == 0
    assert mg.cuda.nvtx.range_pop() == -2
    with mg.cuda.nvtx.range("step {}", 3):
        mg.cuda.nvtx.mark("here")
    assert calls[-3:] == [("RangePush", "step 3"), ("Mark", "here"), ("RangePop",)]
