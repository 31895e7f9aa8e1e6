"""The safetensors format: files in both directions, shared memory, damaged and hostile files."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
from safetensors import numpy as library

import minigrad
from minigrad import nn, safetensors

DTYPES = [
    *(np.float64, np.float32, np.float16, ml_dtypes.bfloat16, np.int64, np.int32, np.int16),
    *(np.int8, np.uint64, np.uint32, np.uint16, np.uint8, np.bool_, np.complex64),
]


def tensors(rng):
    """A tensor of every dtype that the format has here, one of no dimension, an empty one."""
    found = {
        np.dtype(kind).name: minigrad.from_numpy((10 * rng.normal(size=(3, 5))).astype(kind))
        for kind in DTYPES
    }
    return found | {"one": minigrad.tensor(2.5), "none": minigrad.zeros(0, 3)}


def same(found, wanted):
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        got = found[name].numpy()
        np.testing.assert_array_equal(got, value.numpy(), name)
        assert got.dtype == value.numpy().dtype and got.shape == value.numpy().shape


def test_the_memory_behind_a_tensor():
    x = np.zeros((3, 4), np.float64)
    for part in (minigrad.from_numpy(x), minigrad.from_numpy(x)[1:, 2], minigrad.from_numpy(x).T):
        assert safetensors.storage_ptr(part) == x.ctypes.data
        assert safetensors.storage_size(part) == x.nbytes


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # casts of negative numbers
def test_files_in_both_directions(rng, tmp_path):
    """Against the reader and the writer of the library for NumPy."""
    wanted, path = tensors(rng), tmp_path / "a.safetensors"
    safetensors.save_file(wanted, path, metadata={"made": "here"})
    same({name: minigrad.from_numpy(x) for name, x in library.load_file(path).items()}, wanted)
    library.save_file({name: x.numpy() for name, x in wanted.items()}, path)
    same(safetensors.load_file(path), wanted)
    same(safetensors.load(path.read_bytes()), wanted)
    same(safetensors.load(safetensors.save(wanted)), wanted)
    loaded = safetensors.load(path.read_bytes())["one"]
    loaded += 1  # the memory is the tensor's own
    assert loaded.item() == 3.5


def test_a_file_read_in_parts(rng, tmp_path):
    path = tmp_path / "a.safetensors"
    x = minigrad.from_numpy(rng.normal(size=(7, 5)).astype(np.float32))
    safetensors.save_file({"b": x, "a": minigrad.ones(2)}, path, {"step": "3"})
    with safetensors.safe_open(path, framework="pt", device="cpu") as file:
        assert list(file.keys()) == ["a", "b"] and file.metadata() == {"step": "3"}
        part = file.get_slice("b")
        assert part.get_shape() == [7, 5] and part.get_dtype() == "F32"
        assert minigrad.equal(part[2:4, 1], x[2:4, 1]) and minigrad.equal(file.get_tensor("b"), x)
    with safetensors.safe_open(path, "np") as file:
        assert type(file.get_tensor("b")) is np.ndarray is type(file.get_slice("b")[:1])
    with pytest.raises(safetensors.SafetensorError, match="framework 'tf'"):
        safetensors.safe_open(path, "tf")


@pytest.mark.needs("torch")
def test_files_of_torch(rng, tmp_path):
    import torch
    from safetensors import torch as theirs

    x = rng.normal(size=(4, 3)).astype(np.float32)
    kinds = ("float32", "bfloat16", "float16", "int64", "bool", "complex64")
    state = {kind: torch.from_numpy(x).to(getattr(torch, kind)) for kind in kinds}
    theirs.save_file(state, tmp_path / "a")
    own = safetensors.load_file(tmp_path / "a")
    safetensors.save_file(own, tmp_path / "b")
    back = theirs.load_file(tmp_path / "b")
    for kind in kinds:
        assert str(own[kind].dtype) == f"minigrad.{kind}"
        assert torch.equal(back[kind], state[kind])
    theirs.save_file({"x": torch.ones(2).to(torch.float8_e4m3fn)}, tmp_path / "c")
    with pytest.raises(TypeError, match=r"tensor 'x' has dtype F8_E4M3, which minigrad doesn't"):
        safetensors.load_file(tmp_path / "c")


class Tied(nn.Module):
    """A decoder with the weights of the encoder."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(6, 4)
        self.head = nn.Linear(4, 6)
        self.head.weight = self.embedding.weight


def test_tied_weights_are_stored_once(tmp_path):
    path, model, other = tmp_path / "m", Tied(), Tied()
    with pytest.raises(RuntimeError, match=r"share memory: \[\['embedding.weight', 'head.weight'"):
        safetensors.save_file(model.state_dict(), path)
    safetensors.save_model(model, path, metadata={"by": "me"})
    with safetensors.safe_open(path, "pt") as file:
        assert list(file.keys()) == ["embedding.weight", "head.bias"]
        assert file.metadata() == {"by": "me", "head.weight": "embedding.weight"}
    assert safetensors.load_model(other, path) == (set(), [])
    assert minigrad.equal(other.head.weight, model.embedding.weight)
    with pytest.raises(RuntimeError, match=r"Missing key.*\"weight\"(?s:.*)Unexpected.*head.bias"):
        safetensors.load_model(nn.Linear(4, 6, bias=False), path)
    found = safetensors.load_model(nn.Linear(4, 6, bias=False), path, strict=False)
    assert found == ({"weight"}, ["embedding.weight", "head.bias"])
    # After a step, an optimiser may keep all parameters in one array: that is no sharing.
    optimizer = minigrad.optim.Adam(model.parameters())
    model.head(model.embedding.weight).sum().backward()
    optimizer.step()
    safetensors.save_model(model, path)
    safetensors.load_model(other, path)
    assert minigrad.equal(other.head.weight, model.embedding.weight)


def test_what_cannot_be_saved_leaves_the_old_file(tmp_path):
    path, x = tmp_path / "a", minigrad.arange(6.0).reshape(2, 3)
    safetensors.save_file({"x": x}, path)
    before = path.read_bytes()
    for wrong, error, text in (
        ({"x": x.T}, ValueError, "'x' is not contiguous"),
        ({"x": x, "y": x[0]}, RuntimeError, r"share memory: \[\['x', 'y'\]\]"),
        ({"x": [1]}, ValueError, "expected minigrad.Tensor, got list"),
        ([x], ValueError, "expected a dict of tensors"),
        ({1: x}, TypeError, "names of type str, got 1"),
        ({"x": x.to(minigrad.complex128)}, ValueError, "the format has no minigrad.complex128"),
    ):
        with pytest.raises(error, match=text):
            safetensors.save_file(wrong, path)
    with pytest.raises(TypeError, match=r"metadata must be text, got \('step', 3\)"):
        safetensors.save_file({"x": x}, path, {"step": 3})
    with pytest.raises(safetensors.SafetensorError, match="No such file or directory"):
        safetensors.save_file({"x": x}, tmp_path / "missing" / "a")
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["a"]
    safetensors.save_file({"x": x, "y": x[0].clone(), "z": x[:0]}, path)  # nothing is shared


@pytest.mark.skipif(os.name == "nt", reason="modes and links as on POSIX systems")
def test_a_save_keeps_modes_and_links_and_is_whole_or_not_at_all(tmp_path, monkeypatch):
    path, link, x = tmp_path / "a", tmp_path / "link", minigrad.ones(3)
    os.umask(umask := os.umask(0))
    safetensors.save_file({"x": x}, path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~umask
    path.chmod(0o640)
    link.symlink_to(path)
    safetensors.save_file({"x": x + 1}, link)
    assert link.is_symlink() and stat.S_IMODE(path.stat().st_mode) == 0o640
    assert safetensors.load_file(path)["x"].tolist() == [2, 2, 2]

    def fail(handle):
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        safetensors.save_file({"x": x}, path)
    assert safetensors.load_file(path)["x"].tolist() == [2, 2, 2]
    assert sorted(os.listdir(tmp_path)) == ["a", "link"]


def test_load_says_which_function_reads_the_format(tmp_path):
    safetensors.save_file({"x": minigrad.ones(2)}, tmp_path / "a")
    with pytest.raises(RuntimeError, match="minigrad.safetensors.load_file reads it"):
        minigrad.load(tmp_path / "a")


# ------------------------------------------------------------------------ bad files


def made(header, data=bytes(16), length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


def entry(dtype="F32", shape=(2, 2), offsets=(0, 16)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


HALVES = {"x": entry(shape=[2], offsets=[0, 8]), "y": entry(shape=[2], offsets=[8, 16])}
HOSTILE = {
    "nothing": b"",
    "no header": bytes(4),
    "a header longer than the file": made({"x": entry()}, length=10_000),
    "a header of 2 ** 62 bytes": made({"x": entry()}, length=1 << 62),
    "a header of 2 ** 64 - 1 bytes": made({"x": entry()}, length=(1 << 64) - 1),
    "a header cut short": made({"x": entry()}, length=20),
    "no JSON": made(b"{"),
    "no UTF-8": made(b'{"\xff": 1}'),
    "a list": made([]),
    "deep JSON": made(b'{"x":' * 5000),
    "no fields": made({"x": {}}),
    "a name twice": made(
        json.dumps(HALVES).replace('"y"', '"x"').encode(),
    ),
    "an unknown dtype": made({"x": entry("F33")}),
    "a negative size": made({"x": entry(shape=[-2, -2])}),
    "a size of 2 ** 63": made({"x": entry(shape=[1 << 63, 2])}),
    "sizes whose product overflows": made({"x": entry(shape=[1 << 32, 1 << 32])}),
    "a shape for other data": made({"x": entry(shape=[3, 2])}),
    "offsets in reverse": made({"x": entry(offsets=[16, 0])}),
    "offsets behind the end": made({"x": entry(offsets=[16, 32])}),
    "negative offsets": made({"x": entry(offsets=[-16, 0])}),
    "overlapping offsets": made(HALVES | {"y": entry(shape=[2], offsets=[4, 12])}),
    "a gap": made(HALVES | {"y": entry(shape=[1], offsets=[12, 16])}),
    "data too long": made({"x": entry()}, bytes(17)),
    "data too short": made({"x": entry()}, bytes(15)),
    "metadata that is no text": made({"__metadata__": {"a": [1]}, "x": entry()}),
    "a zip archive": b"PK\x03\x04" + bytes(100),
    "a pickle": b"\x80\x02}q\x00.",
}


def test_the_hand_made_file_is_good():
    assert safetensors.load(made({"x": entry()}))["x"].tolist() == [[0, 0], [0, 0]]
    assert [*safetensors.load(made(HALVES))] == ["x", "y"]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files(name, tmp_path):
    path = tmp_path / "a"
    path.write_bytes(HOSTILE[name])
    model = nn.Linear(2, 2, bias=False)
    before = model.weight.tolist()
    for read in (safetensors.load_file, lambda path: safetensors.load_model(model, path)):
        with pytest.raises(safetensors.SafetensorError):
            read(path)
    with pytest.raises(safetensors.SafetensorError):
        safetensors.load(HOSTILE[name])
    assert model.weight.tolist() == before and path.read_bytes() == HOSTILE[name]


def test_every_truncation_is_noticed(rng, tmp_path):
    content = safetensors.save({"w": minigrad.arange(50.0), "b": minigrad.ones(3)})
    for size in range(0, len(content), 5):
        with pytest.raises(safetensors.SafetensorError):
            safetensors.load(content[:size])


def test_programs_that_import_safetensors(tmp_path):
    """`safetensors.torch` is this module; `safe_open` gives tensors of minigrad."""
    program = """
import sys
from safetensors import safe_open
from safetensors.torch import load_file, save_file
import safetensors.numpy
import torch
x = torch.arange(4, dtype=torch.bfloat16)
save_file({"x": x}, sys.argv[1])
with safe_open(sys.argv[1], framework="pt") as file:
    print(type(file.get_tensor("x")).__module__, load_file(sys.argv[1])["x"].tolist())
print(type(safetensors.numpy.load_file(sys.argv[1])["x"]).__name__)
"""
    command = [sys.executable, "-m", "minigrad", "run", "-", str(tmp_path / "x")]
    done = subprocess.run(command, input=program, capture_output=True, text=True)
    assert done.stdout == "minigrad.tensor [0.0, 1.0, 2.0, 3.0]\nndarray\n", done.stderr
