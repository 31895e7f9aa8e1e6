"""Page-locked memory and copies out of it, on a GPU."""

from __future__ import annotations

import ctypes
import gc
from collections import namedtuple

import numpy as np
import pytest

import minigrad
from minigrad import _pinned
from minigrad.utils.data import DataLoader, TensorDataset
from tests import software_gpu
from tests.kernels.helpers import occupy_gpu

Pair = namedtuple("Pair", "x y")


def data(rng, *shape):
    return minigrad.from_numpy(rng.normal(size=shape).astype(np.float32))


def test_without_a_gpu():
    if minigrad.cuda.is_available():
        pytest.skip("there is a GPU")
    x = minigrad.ones(2)
    assert not x.is_pinned() and x.to("cpu", non_blocking=True) is x
    for make in (x.pin_memory, lambda: minigrad.zeros(2, pin_memory=True)):
        with pytest.raises(RuntimeError, match="Cannot access accelerator device when none is"):
            make()


def test_flags_of_to():
    """(dtype, non_blocking, copy) and (device, dtype, non_blocking, copy) by position."""
    x = minigrad.ones(2)
    assert x.to("cpu", minigrad.float32, True) is x and x.to(minigrad.float32, True) is x
    assert x.to("cpu", minigrad.float32, False, True) is not x
    assert x.to(minigrad.float32, False, True) is not x


@pytest.mark.gpu
def test_pinned_tensors(rng):
    x = data(rng, 3, 5)
    pinned = x.pin_memory()
    assert pinned.is_pinned() and not x.is_pinned() and pinned.pin_memory() is pinned
    assert pinned[1:].is_pinned() and not pinned.clone().is_pinned()
    assert pinned.equal(x) and pinned.data_ptr() != x.data_ptr()
    assert minigrad.ones(4, pin_memory=True).is_pinned()
    assert minigrad.tensor([1, 2], pin_memory=True).tolist() == [1, 2]
    leaf = x.clone().requires_grad_()
    leaf.pin_memory().sum().backward()
    assert leaf.grad.equal(minigrad.ones(3, 5))
    with pytest.raises(RuntimeError, match="only dense CPU tensors can be pinned"):
        x.cuda().pin_memory()
    for part in (pinned, pinned.T, pinned[:0], pinned.double()):
        there = part.to("cuda", non_blocking=True)
        assert there.is_cuda and there.cpu().equal(part)


@pytest.mark.gpu
def test_loader_pins_every_structure(rng):
    x, y = data(rng, 7, 3), minigrad.arange(7)
    for found_x, found_y in DataLoader(TensorDataset(x, y), 3, pin_memory=True):
        assert found_x.is_pinned() and found_y.is_pinned()
        there = found_x.to("cuda", non_blocking=True) * 2
        assert there.cpu().equal(x[found_y] * 2)

    class Own:
        def __init__(self, samples):
            self.x = minigrad.stack(samples)

        def pin_memory(self):
            self.x = self.x.pin_memory()
            return self

    collated = {
        "dict": lambda s: {"x": minigrad.stack(s), "name": "a"},
        "list": lambda s: [minigrad.stack(s), 1],
        "named": lambda s: Pair(minigrad.stack(s), "b"),
        "own": Own,
    }
    for name, collate in collated.items():
        (batch,) = DataLoader(list(x), 7, pin_memory=True, collate_fn=collate)
        found = {"dict": lambda b: b["x"], "list": lambda b: b[0]}.get(name, lambda b: b.x)(batch)
        assert found.is_pinned() and found.equal(x), name


@pytest.mark.gpu
def test_kernels_wait_for_a_copy_and_copies_wait_for_no_kernel(rng):
    x, y = data(rng, 40, 30).pin_memory(), data(rng, 40, 30).cuda()
    first = x.to("cuda", non_blocking=True)
    (stream,) = _pinned._side.streams.values()
    current = minigrad.cuda.current_stream()
    y + y  # compiled before the clock of `occupy_gpu` starts
    occupy_gpu(0)
    minigrad.cuda.synchronize()
    occupy_gpu()
    later = y
    for _ in range(20):
        later = later + y
    assert not current.query()
    second = x.to("cuda", non_blocking=True)
    stream.synchronize()
    assert stream.done and not current.query(), "the copy waited for the kernel"
    if software_gpu.installed():  # whose memory the host can see
        memory = (ctypes.c_float * x.numel()).from_address(second.data_ptr())
        assert np.array_equal(memory, x.flatten().numpy()), "the copy is in the kernel's stream"
    assert (second + later - 21 * y).cpu().allclose(x, atol=1e-4) and first.cpu().equal(x)


@pytest.mark.gpu
def test_pinned_memory_stays_until_it_was_read(rng):
    x = data(rng, 500)
    there = x.pin_memory().to("cuda", non_blocking=True)
    gc.collect()
    other = minigrad.zeros(500).pin_memory()  # where x was, if that was given back
    assert there.cpu().equal(x) and not other.any()
    x.to("cpu").pin_memory().to("cuda", non_blocking=True)
    minigrad.cuda.synchronize()
    x.pin_memory().to("cuda", non_blocking=True)
    assert len(_pinned._side.reading) == 1, "copies that have ended are forgotten"


@pytest.mark.gpu
def test_a_later_copy_waits_for_the_readers_of_the_memory_it_may_get(rng):
    x, later = data(rng, 500), data(rng, 500).pin_memory()
    there = x.pin_memory().to("cuda", non_blocking=True)
    there * 2  # compiled before the clock of `occupy_gpu` starts
    occupy_gpu(0)
    minigrad.cuda.synchronize()
    occupy_gpu()
    result, address = there * 2, there.data_ptr()
    del there
    gc.collect()
    if software_gpu.installed():  # which gives memory back late, and knows what streams wait for
        (stream,) = _pinned._side.streams.values()
        assert not stream.done, "its next copy could overwrite what the kernel reads"
    copy = later.to("cuda", non_blocking=True)
    assert copy.data_ptr() == address or software_gpu.installed(), "other memory: nothing is shown"
    assert not minigrad.cuda.current_stream().query(), "the reader had ended before"
    assert result.cpu().equal(x * 2) and copy.cpu().equal(later)
