"""TensorBoard files, checkpointing, assert_close, groups and processes of one program."""

from __future__ import annotations

import functools
import struct
import time
import zlib

import numpy as np
import pytest

import minigrad
from minigrad import distributed, nn
from minigrad.testing import assert_close
from minigrad.utils.checkpoint import checkpoint, checkpoint_sequential
from minigrad.utils.tensorboard import SummaryWriter, records


def read(path):
    """The messages of a TensorBoard file, their checksums verified."""
    data, messages = path.read_bytes(), []
    while data:
        (length,) = struct.unpack_from("<Q", data)
        message, rest = data[12 : 12 + length], data[16 + length :]
        assert data[: 16 + length] == records.record(message)
        messages.append(message)
        data = rest
    return messages


def test_checksums():
    """The values of RFC 3720, B.4."""
    assert records.crc32c(bytes(32)) == 0x8A9136AA
    assert records.crc32c(bytes(range(32))) == 0x46DD794E


def test_tensorboard_file(tmp_path):
    with SummaryWriter(tmp_path / "log") as writer:
        writer.add_scalar("loss", minigrad.tensor(0.5), 300, walltime=2.0)
        writer.add_scalars("accuracy", {"train": 1, "test": 0.25})
        writer.add_text("note", "hello")
    (path,) = (tmp_path / "log").iterdir()
    assert path.name.startswith("events.out.tfevents.")
    first, loss, *accuracy, text = read(path)
    assert first.endswith(b"\x1a\x0dbrain.Event:2")
    summary = b"\x0a\x04loss\x15" + struct.pack("<f", 0.5)
    step = b"\x10\xac\x02"  # 300 in two bytes of seven bits
    expected = b"\x09" + struct.pack("<d", 2.0) + step + b"\x2a\x0d\x0a\x0b" + summary
    assert loss == expected
    assert b"accuracy/train" in accuracy[0] and b"accuracy/test" in accuracy[1]
    assert b"note/text_summary" in text and b"hello" in text


def test_histograms_and_pictures(tmp_path, rng):
    """The fields of the messages, read one by one."""
    x, pictures = rng.normal(size=100), rng.integers(0, 256, (10, 3, 4, 5), np.uint8)
    with SummaryWriter(tmp_path) as writer:
        writer.add_histogram("weights", minigrad.tensor(x), 1)
        writer.add_histogram("few", x, 1, bins=4)
        writer.add_images("pictures", minigrad.tensor(pictures), 1)
        writer.add_image("one", minigrad.full((5, 6), 0.5), dataformats="HW")
        with pytest.raises(ValueError, match=r"4 dimensions NCHW, got an array of shape \(4, 5\)"):
            writer.add_images("wrong", pictures[0, 0])
        with pytest.raises(ValueError, match="no values"):
            writer.add_histogram("none", [])
    (path,) = tmp_path.iterdir()
    values = [fields(fields(fields(m)[5])[1]) for m in read(path)[1:]]
    assert [v[1] for v in values] == [b"weights", b"few", b"pictures", b"one"]
    for value in values[:2]:
        histogram = fields(value[5])
        assert [histogram[i] for i in (1, 2, 3)] == [x.min(), x.max(), 100]
        limits, counts = np.frombuffer(histogram[6]), np.frombuffer(histogram[7])
        assert limits.size == counts.size and counts.sum() == 100 and (np.diff(limits) > 0).all()
        expected = [(x <= limit).sum() for limit in limits]
        assert counts.cumsum().tolist() == expected
    picture = fields(values[2][4])
    assert [picture[i] for i in (1, 2, 3)] == [8, 40, 3]
    got = unpacked(picture[4])
    np.testing.assert_array_equal(got[4:, 5:10], pictures[9].transpose(1, 2, 0))
    assert not got[4:, 10:].any()
    assert (unpacked(fields(values[3][4])[4]) == 127).all()


def unpacked(png):
    """The pixels of a PNG file whose lines have no filter, its checksums verified."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    chunks, at = {}, 8
    while at < len(png):
        (size,) = struct.unpack_from(">I", png, at)
        body, (crc,) = png[at + 4 : at + 8 + size], struct.unpack_from(">I", png, at + 8 + size)
        assert zlib.crc32(body) == crc
        chunks[body[:4]], at = body[4:], at + 12 + size
    width, height, bits, kind, *others = struct.unpack(">IIBBBBB", chunks[b"IHDR"])
    assert bits == 8 and others == [0, 0, 0]
    lines = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(height, -1)
    assert not lines[:, 0].any()
    return lines[:, 1:].reshape(height, width, {0: 1, 2: 3}[kind])


def fields(message):
    """The fields of a protocol buffer by number (the last of each)."""
    found, at = {}, 0
    while at < len(message):
        key, at = varint(message, at)
        if key & 7 == 0:
            value, at = varint(message, at)
        elif key & 7 == 2:
            size, at = varint(message, at)
            value, at = message[at : at + size], at + size
        else:
            size, code = {1: (8, "<d"), 5: (4, "<f")}[key & 7]
            value, at = struct.unpack_from(code, message, at)[0], at + size
        found[key >> 3] = value
    return found


def varint(message, at):
    value = shift = 0
    while True:
        value |= (message[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if message[at - 1] < 128:
            return value, at


def model():
    minigrad.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Dropout(0.5), nn.Linear(8, 2), nn.Tanh())


@pytest.mark.parametrize("requires_grad", [True, False])
def test_recomputed_gradients_are_the_same(requires_grad):
    """Also of parameters alone, and with dropout."""
    layers, x = model(), minigrad.randn(5, 3).requires_grad_(requires_grad)
    results = []
    for run in (
        layers,
        lambda x: checkpoint(layers, x, use_reentrant=False),
        lambda x: checkpoint_sequential(layers, 2, x, use_reentrant=False),
    ):
        minigrad.manual_seed(1)
        layers.zero_grad()
        x.grad = None
        output = run(x)
        output.square().sum().backward()
        results.append([output.detach(), x.grad, *(p.grad for p in layers.parameters())])
    for other in results[1:]:
        for a, b in zip(results[0], other):
            assert (a is None and b is None) or minigrad.equal(a, b)


def test_a_checkpoint_keeps_nothing_but_its_arguments():
    kept = []
    x = minigrad.randn(4, requires_grad=True)

    def function(x, scale=1.0):
        y = (x * scale).exp()
        kept.append(y.requires_grad)
        return y * y

    checkpoint(functools.partial(function, scale=2.0), x, use_reentrant=True).sum().backward()
    assert kept == [False, True]
    assert minigrad.allclose(x.grad, 4 * (4 * x.detach()).exp())


def test_close_as_torch(torch):
    """The same pairs pass and fail."""
    from tests.nn.helpers import outcome

    for make in (
        lambda t: (t.ones(3), t.ones(3) + 1e-6),
        lambda t: (t.ones(3), t.ones(3) + 1e-4),
        lambda t: (t.ones(3), t.ones(4)),
        lambda t: (t.ones(3), t.ones(3).double()),
        lambda t: (t.tensor([1, 2]), t.tensor([1, 3])),
        lambda t: ([t.ones(1), t.zeros(2)], [t.ones(1), t.zeros(2)]),
        lambda t: ({"a": t.ones(1)}, {"a": t.zeros(1)}),
        lambda t: (t.tensor(float("nan")), t.tensor(float("nan"))),
        lambda t: (t.tensor(float("inf")), t.tensor(float("inf"))),
        lambda t: (1.0, 1.1),
    ):
        mine = outcome(lambda make=make: assert_close(*make(minigrad)))
        theirs = outcome(lambda make=make: torch.testing.assert_close(*make(torch)))
        assert mine[0] is theirs[0], make(minigrad)
    with pytest.raises(ValueError, match="Both 'rtol' and 'atol'"):
        assert_close(1.0, 1.0, rtol=1)
    nan = minigrad.tensor(float("nan"))
    assert_close(nan, nan, equal_nan=True)
    with pytest.raises(AssertionError, match=r"1 / 2 \(50.0%\)\nGreatest absolute difference: 2.0"):
        assert_close(minigrad.tensor([1.0, 2.0]), minigrad.tensor([1.0, 4.0]))


def test_a_group_of_one_process(monkeypatch):
    with pytest.raises(ValueError, match="has not been initialized"):
        distributed.get_rank()
    with pytest.raises(distributed.DistNetworkError, match="mpiexec -n 2"):
        distributed.init_process_group("gloo", world_size=2, rank=0)
    distributed.init_process_group("gloo", rank=0, world_size=1)
    try:
        with pytest.raises(ValueError, match="twice"):
            distributed.init_process_group("gloo")
        x, y = minigrad.ones(2), minigrad.zeros(2)
        distributed.all_reduce(x, op=distributed.ReduceOp.SUM)
        distributed.all_gather([y], x)
        assert x.tolist() == y.tolist() == [1, 1]
        assert (distributed.get_rank(), distributed.get_world_size()) == (0, 1)
        model = nn.parallel.DistributedDataParallel(nn.Linear(2, 1))
        assert list(model.state_dict()) == ["module.weight", "module.bias"]
        with pytest.raises(ValueError, match="not part of group"):
            distributed.broadcast(x, 1)
    finally:
        distributed.destroy_process_group()
    assert not distributed.is_initialized()


def test_compile_and_script():
    layer = nn.Linear(2, 1)
    compiled = minigrad.compile(layer, mode="max-autotune")
    assert compiled._orig_mod is layer and compiled.weight is layer.weight
    assert minigrad.jit.script(layer) is minigrad.jit.trace(layer, minigrad.ones(2)) is layer
    assert not minigrad.jit.is_scripting() and not minigrad.jit.is_tracing()
    assert minigrad.jit.wait(minigrad.jit.fork(max, 2, 3)) == 3
    assert layer.share_memory() is layer

    @minigrad.compile(fullgraph=True)
    def double(x):
        return 2 * x

    assert double(3) == 6
    with pytest.raises(TypeError, match="expected a module or a function, got int"):
        minigrad.compile(3)


def fail_or_wait(number):
    if number == 1:
        raise SystemExit(3)
    time.sleep(30)
    raise SystemExit(4)


def test_a_process_that_fails_ends_the_others():
    """Rank 0 waits for rank 1 in vain."""
    with pytest.raises(RuntimeError, match=r"by number: \{1: 3\}"):
        minigrad.multiprocessing.spawn(fail_or_wait, (), 2, start_method="fork")
    assert not minigrad.multiprocessing.active_children()


def fail(number, text):
    raise SystemExit(number)


def test_processes():
    assert minigrad.multiprocessing.get_context("spawn").Process
    minigrad.multiprocessing.spawn(fail, ("",), 1, start_method="fork")
    with pytest.raises(RuntimeError, match=r"by number: \{1: 1\}"):
        minigrad.multiprocessing.spawn(fail, ("",), 2, start_method="fork")
