"""`save` and `load`: round trips, torch's files, atomicity, files that are damaged or hostile."""

from __future__ import annotations

import codecs
import errno
import functools
import importlib
import io
import math
import operator
import os
import pickle
import stat
import struct
import zipfile
from collections import Counter, OrderedDict, defaultdict
from pathlib import Path

import numpy as np
import pytest

import minigrad
from minigrad import nn, optim, serialization
from minigrad.tensor import wrap

pytestmark = pytest.mark.usefixtures("reference_backend")


def round_trip(obj, **kwargs):
    file = io.BytesIO()
    minigrad.save(obj, file)
    file.seek(0)
    return minigrad.load(file, **kwargs)


def same(a, b):
    assert type(a) is type(b), (a, b)
    if isinstance(a, minigrad.Tensor):
        assert a.dtype == b.dtype and a.shape == b.shape and a.requires_grad == b.requires_grad
        np.testing.assert_array_equal(a.detach().numpy(), b.detach().numpy())
    elif isinstance(a, dict):
        assert list(a) == list(b)
        for key in a:
            same(a[key], b[key])
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            same(x, y)
    elif isinstance(a, np.ndarray):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)
    elif isinstance(a, float) and math.isnan(a):
        assert math.isnan(b)
    else:
        assert a == b


DTYPES = ["float64", "float32", "float16", "int8", "int16", "int32", "int64", "uint8", "bool"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 3), (4, 5)])
def test_tensors(dtype, shape, rng):
    tensor = minigrad.tensor(rng.integers(0, 2, shape), dtype=getattr(minigrad, dtype))
    same(round_trip(tensor), tensor)


def test_bfloat16():
    tensor = minigrad.tensor([1.5, -2.0]).to(minigrad.bfloat16)
    loaded = round_trip(tensor)
    assert loaded.dtype == minigrad.bfloat16 and loaded.float().tolist() == [1.5, -2.0]


def test_structures(rng):
    obj = {
        "none": None,
        "numbers": [True, False, 0, -(10**30), 1.5, -0.0, math.inf, -math.inf, math.nan],
        "text": "Zürich \u2603 \0 \ud800",
        "bytes": b"\x00\xff",
        "nested": ({"a": [(), [], {}]}, OrderedDict(b=1, a=2)),
        3: {("tuple", 1, None): 4, 1.5: 5, None: 6, False: 7},
        "sets": ({1, 2}, frozenset("ab")),
        "complex": [1 - 2j, complex(-0.0, math.inf)],
        "counter": Counter("aab"),
        "size": minigrad.zeros(2, 3).shape,
        "dtype": minigrad.float16,
        "device": minigrad.device("cpu"),
        "array": rng.normal(size=(2, 3)),
        "big": np.arange(3, dtype=">i4"),
        "scalar": np.float32(0.1),
        "tensor": minigrad.tensor(rng.normal(size=(3, 2))),
        "leaf": minigrad.ones(2, requires_grad=True),
        "parameter": nn.Parameter(minigrad.ones(2), requires_grad=False),
        "strided": minigrad.arange(6.0).reshape(2, 3).t(),
    }
    loaded = round_trip(obj)
    obj["big"] = obj["big"].astype("<i4")
    same(loaded, obj)
    assert math.copysign(1, loaded["numbers"][5]) == -1
    computed = round_trip(minigrad.ones(2, requires_grad=True) * 2)
    assert computed.is_leaf and computed.requires_grad  # as in torch


def test_shared_memory_is_stored_once_and_shared_again():
    tensor = minigrad.zeros(1000)
    weight = nn.Parameter(tensor)
    file = io.BytesIO()
    minigrad.save({"a": tensor, "b": tensor.detach(), "w": weight, "other": tensor.clone()}, file)
    assert file.tell() < 2 * 4000 + 2000
    file.seek(0)
    loaded = minigrad.load(file)
    loaded["a"][0] = 5
    assert loaded["b"][0].item() == 5 and loaded["w"][0].item() == 5
    assert loaded["other"][0].item() == 0


def test_views_of_one_memory_share_it_again():
    weight = minigrad.arange(12.0).reshape(3, 4)
    state = {"row": weight[1], "weight": weight, "tied": weight.t(), "part": weight[1:, ::2]}
    state |= {"bits": weight.view(minigrad.int32), "again": weight[1], "alone": minigrad.ones(3)}
    loaded = round_trip(state)
    same(loaded, state)
    loaded["weight"][1, 2] = 100.0
    assert loaded["row"][2] == loaded["again"][2] == loaded["tied"][2, 1] == 100.0
    assert loaded["part"][0, 1] == 100.0
    assert loaded["bits"][1, 2] == minigrad.tensor(100.0).view(minigrad.int32)
    assert loaded["alone"].tolist() == [1.0] * 3


def test_backwards():
    array = np.arange(6.0)
    loaded = round_trip([wrap(array[::-1]), minigrad.from_numpy(array)])
    assert loaded[0].tolist() == [5, 4, 3, 2, 1, 0] and loaded[1].tolist() == [0, 1, 2, 3, 4, 5]


def test_only_the_memory_of_what_is_saved():
    """Of a large tensor the part from the first saved element to the last."""
    large = minigrad.arange(100_000.0)
    file = io.BytesIO()
    minigrad.save([large[10:20], large[15:30], large[50:60], large[40:50].expand(5, 10)], file)
    assert file.tell() < 2000
    file.seek(0)
    first, second, third, _ = minigrad.load(file)
    first[7] = -1
    assert second[2].item() == -1 and third.tolist() == list(range(50, 60))


def test_training_checkpoint(tmp_path, seed):
    minigrad.manual_seed(seed)

    def build():
        net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
        o = optim.Adam(net.parameters(), lr=0.01, amsgrad=True)
        return net, o, optim.lr_scheduler.MultiStepLR(o, [2, 4])

    def train(net, o, schedule, steps):
        for step in range(steps):
            o.zero_grad()
            x = minigrad.arange(12.0).reshape(4, 3) * 0.1 * (step + 1)
            (net(x) ** 2).sum().backward()
            o.step()
            schedule.step()

    a, b = build(), build()
    train(*a, 3)
    path = tmp_path / "checkpoint.pt"
    minigrad.save([part.state_dict() for part in a], path)
    for part, state in zip(b, minigrad.load(path, weights_only=True), strict=True):
        part.load_state_dict(state)
    assert minigrad.load(path)[0]._metadata == a[0].state_dict()._metadata
    train(*a, 3), train(*b, 3)
    for p, q in zip(a[0].state_dict().values(), b[0].state_dict().values(), strict=True):
        assert (p.numpy() == q.numpy()).all()


def test_equal_content_gives_equal_files(tmp_path):
    state = nn.Linear(3, 3).state_dict()
    minigrad.save(state, tmp_path / "a")
    minigrad.save(state, str(tmp_path / "b"))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_what_cannot_be_saved():
    net = nn.Linear(2, 2)
    for obj, text in (
        ({"best": [optim.SGD(net.parameters())]}, r"obj\['best'\]\[0\] is a SGD"),
        (optim.SGD(net.parameters()), r"SGD.*state_dict\(\)"),
        ({"f": print}, r"obj\['f'\] is of type builtin_function_or_method"),
        (defaultdict(list), "defaultdict"),
        ({object(): 1}, "key of type object"),
        (np.array(["a"]), "expected numbers"),
        (Path("x"), "Path"),
    ):
        file = io.BytesIO()
        with pytest.raises(TypeError, match=text):
            minigrad.save(obj, file)
        assert file.getvalue() == b""
    loop = []
    loop.append(loop)
    with pytest.raises(ValueError, match="contains itself"):
        minigrad.save(loop, io.BytesIO())
    deep = []
    for _ in range(300):
        deep = [deep]
    with pytest.raises(ValueError, match="nested more than"):
        minigrad.save(deep, io.BytesIO())
    same(round_trip([[1, 2]] * 2), [[1, 2]] * 2)  # the same list twice is no loop


# ------------------------------------------------------------------------ atomic saving


def test_refused_object_leaves_the_old_file(tmp_path):
    path = tmp_path / "a.pt"
    minigrad.save([1], path)
    with pytest.raises(TypeError):
        minigrad.save([1, print], path)
    assert minigrad.load(path) == [1] and os.listdir(tmp_path) == ["a.pt"]


@pytest.mark.parametrize("failure", [OSError("disk full"), KeyboardInterrupt()])
@pytest.mark.parametrize("where", ["write", "fsync", "replace"])
def test_interrupted_save_keeps_the_old_file(tmp_path, monkeypatch, failure, where):
    path = tmp_path / "a.pt"
    minigrad.save({"old": minigrad.ones(3)}, path)
    before = path.read_bytes()

    def fail(*args, **kwargs):
        raise failure

    if where == "write":
        writes = []
        original = zipfile.ZipFile.open

        def open_and_fail(self, *args, **kwargs):
            writes.append(1)
            if len(writes) == 3:
                raise failure
            return original(self, *args, **kwargs)

        monkeypatch.setattr(zipfile.ZipFile, "open", open_and_fail)
    else:
        monkeypatch.setattr(os, where, fail)
    with pytest.raises(type(failure)):
        minigrad.save({"new": minigrad.zeros(10_000), "b": minigrad.ones(7)}, path)
    monkeypatch.undo()
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["a.pt"]


def test_killed_save_keeps_the_old_file(tmp_path):
    """Not even Python's clean-up runs: the process dies in the middle of writing."""
    import subprocess
    import sys

    path = tmp_path / "a.pt"
    minigrad.save({"old": minigrad.ones(3)}, path)
    program = (
        "import os, sys, minigrad, minigrad.serialization as s\n"
        "os.fsync = lambda handle: os._exit(9)\n"
        "minigrad.save({'new': minigrad.zeros(1000)}, sys.argv[1])\n"
    )
    root = Path(minigrad.__file__).parent.parent
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)],
        env={**os.environ, "MINIGRAD_BACKEND": "numpy", "PYTHONPATH": str(root)},
        check=False,
    )
    assert done.returncode == 9
    assert minigrad.load(path)["old"].tolist() == [1, 1, 1]

    (left,) = set(tmp_path.iterdir()) - {path}
    long_ago = os.stat(path).st_mtime - 3600
    another = tmp_path / ".b.pt.0123456789ab.tmp"
    another.write_bytes(b"of another file")
    os.utime(another, (long_ago, long_ago))
    minigrad.save({"new": minigrad.ones(2)}, path)
    assert left.exists(), "a save that began just now may be at work on it"
    os.utime(left, (long_ago, long_ago))
    with open(left, "rb") as at_work:
        if serialization.fcntl is not None:
            serialization._lock(at_work)
            minigrad.save({"new": minigrad.ones(2)}, path)
            assert left.exists(), "a process holds it"
    minigrad.save({"new": minigrad.ones(2)}, path)
    assert not left.exists()
    assert another.exists()


@pytest.mark.skipif(serialization.fcntl is None, reason="locks as on POSIX systems")
@pytest.mark.parametrize("missing", ["locks", "a folder's list"])
def test_file_systems_that_lack_something(tmp_path, monkeypatch, missing):
    """Lustre has no locks unless it is mounted so; names can be put into a folder of mode 0o300."""

    def refuse(*args):
        raise OSError(errno.ENOSYS, "not here")

    if missing == "locks":
        monkeypatch.setattr(serialization.fcntl, "flock", refuse)
    else:
        monkeypatch.setattr(os, "scandir", refuse)
        monkeypatch.setattr(os, "open", refuse)  # of a folder: files are opened by `open`
    minigrad.save([1], tmp_path / "a.pt")
    assert minigrad.load(tmp_path / "a.pt") == [1]


@pytest.mark.skipif(os.name == "nt", reason="modes and links as on POSIX systems")
def test_modes_and_links(tmp_path):
    path, link = tmp_path / "a.pt", tmp_path / "link.pt"
    minigrad.save(1, path)
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~umask
    path.chmod(0o640)
    link.symlink_to(path)
    minigrad.save(2, link)
    assert link.is_symlink() and minigrad.load(path) == 2
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    minigrad.save(3, os.devnull)


def test_folders(tmp_path, monkeypatch):
    with pytest.raises(RuntimeError, match="Parent directory .*missing does not exist"):
        minigrad.save(1, tmp_path / "missing" / "a.pt")
    with pytest.raises(IsADirectoryError):
        minigrad.save(1, tmp_path)
    monkeypatch.chdir(tmp_path)
    minigrad.save(1, "plain-name.pt")
    assert minigrad.load("plain-name.pt") == 1
    with pytest.raises(FileNotFoundError):
        minigrad.load(tmp_path / "nothing.pt")


# ------------------------------------------------------------------------ bad files


def good_file():
    file = io.BytesIO()
    minigrad.save({"w": minigrad.arange(100.0), "b": [1, "two", None]}, file)
    return file.getvalue()


def test_every_truncation_is_noticed():
    content = good_file()
    for size in range(0, len(content), 7):
        with pytest.raises(RuntimeError, match="damaged or was not written"):
            minigrad.load(io.BytesIO(content[:size]))


def test_no_flipped_bit_changes_a_value(seed):
    content = good_file()
    want = minigrad.load(io.BytesIO(content))
    rng = np.random.default_rng(seed)
    for place in rng.choice(len(content), 300, replace=False):
        broken = bytearray(content)
        broken[place] ^= 1 << rng.integers(8)
        try:
            loaded = minigrad.load(io.BytesIO(bytes(broken)))
        except RuntimeError:
            continue
        same(loaded, want)  # a bit that means nothing, such as a time stamp


def archive(pickled, entries=(), compression=zipfile.ZIP_STORED, root="archive/"):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as z:
        z.writestr(f"{root}data.pkl", pickled)
        for i, content in enumerate(entries):
            z.writestr(f"{root}data/{i}", content)
    file.seek(0)
    return file


def text(value):
    return b"X" + struct.pack("<I", len(value)) + value.encode()


ZERO, ON_CPU = text("0"), text("cpu")


def tensor(
    kind=b"ctorch\nFloatStorage\n",
    key=ZERO,
    device=ON_CPU,
    count=b"K\x02",
    offset=b"K\x00",
    size=b"K\x02\x85",
    stride=b"K\x01\x85",
    grad=b"\x89",
):
    """The pickle of a tensor of two elements, or what becomes of it with other parts."""
    storage = b"(" + text("storage") + kind + key + device + count + b"tQ"
    rest = offset + size + stride + grad + b"ccollections\nOrderedDict\n)R"
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + rest + b"tR"


def test_the_hand_made_archive_is_good():
    for root in ("archive/", "", "some/folder/"):
        loaded = minigrad.load(archive(b"\x80\x02" + tensor() + b".", [bytes(8)], root=root))
        assert loaded.tolist() == [0, 0]


NESTED_KEY = b"K\x00\x85q\x00" + b"h\x00h\x00\x86q\x00" * 60  # 2 ** 60 elements, written out
DTYPE = b"cnumpy\ndtype\n"


@pytest.mark.parametrize(
    "pickled",
    [
        tensor(size=b"K\x03\x85"),
        tensor(size=b"J\xff\xff\xff\xff\x85"),
        tensor(size=b"G\x40\x00\x00\x00\x00\x00\x00\x00\x85"),
        tensor(size=b"\x8a\x08" + bytes(7) + b"\x40\x85"),
        tensor(size=b"K\x02"),
        tensor(stride=b"K\x02\x85"),
        tensor(stride=b"J\xff\xff\xff\xff\x85"),
        tensor(stride=b"K\x01K\x01\x86"),
        tensor(offset=b"K\x01"),
        tensor(offset=b"J\xff\xff\xff\xff"),
        tensor(count=b"K\x03"),
        tensor(count=text("2")),
        tensor(key=text("1")),
        tensor(key=text("../data.pkl")),
        tensor(key=b"K\x00"),
        tensor(kind=b"ctorch\nComplexFloatStorage\n"),
        tensor(kind=b"cbuiltins\nset\n"),
        tensor(kind=text("torch.FloatStorage")),
        tensor(device=b"K\x00"),
        tensor(device=text("tpu")),
        tensor(grad=text("yes")),
        b"ctorch._utils\n_rebuild_parameter\n(N\x88}tR",
        b"ctorch._utils\n_rebuild_tensor_v2\n)R",
        b"ctorch\nSize\n" + text("ab") + b"\x85R",
        b"ctorch\ndevice\nK\x07\x85R",
        b"ccollections\nCounter\n" + text("ab") + b"\x85R",
        DTYPE + text("O") + b"\x85R",
        b"ctorch.serialization\n_get_layout\n" + text("torch.Generator") + b"\x85R",
        b"cnumpy._core.multiarray\nscalar\n(" + DTYPE + text("f4") + b"\x85RC\x01atR",
        b"c_codecs\nencode\n" + text("a") + text("rot13") + b"\x86R",
        b"}(" + NESTED_KEY + b"K\x01u",
        b"}(]K\x01u",
        b"}(K\x01u",
        b"}" + tensor() + b"K\x01s",
        b"c__builtin__\nset\n](]e\x85R",
        b"]" + text("state") + b"b",
        b"cminigrad.nn.modules.linear\nLinear\n)\x81K\x01b",
        b"cminigrad.nn.modules.linear\nLinear\nK\x01\x85\x81",
        b"cminigrad.nn.modules.linear\nLinear\nK\x01K\x01\x86R",
        b"ctorch.nn.functional\nrelu\nK\x01\x85R",
        b"a",
        b"K\x01K\x01",
        b"(K\x01K\x02",
        b"h\x05",
        b"0",
        b"\x85",
        b"\x88R",
        b"\x8a\xff",
        b"\xff",
    ],
    ids=range(49),
)
def test_hostile_pickles(pickled):
    file = archive(b"\x80\x02" + pickled + b".", [bytes(8)])
    with pytest.raises(RuntimeError, match="^load: |Expected one of"):
        minigrad.load(file)


def test_deep_structures():
    deep = b"\x80\x02" + b"]" * 100_000 + b"a" * 99_999 + b"."
    assert len(minigrad.load(archive(deep))) == 1  # no recursion


def test_hostile_archives(tmp_path):
    damaged = "damaged or was not written"
    good = b"\x80\x02" + tensor(count=b"J\x00\x00\x40\x00") + b"."
    bomb = archive(good, [bytes(1 << 24)], zipfile.ZIP_DEFLATED)
    with pytest.raises(RuntimeError, match="compressed"):
        minigrad.load(bomb)
    two = archive(b"N.")
    with zipfile.ZipFile(two, "a") as z:
        z.writestr("other/data.pkl", b"N.")
    with pytest.raises(RuntimeError, match=damaged):
        minigrad.load(two)
    big = archive(b"N.")
    with zipfile.ZipFile(big, "a") as z:
        z.writestr("archive/byteorder", b"big")
    big.seek(0)
    with pytest.raises(RuntimeError, match="another byte order"):
        minigrad.load(big)
    for content in (b"", b"PK", b"hello", b"PK\x05\x06" + bytes(18), bytes(1000)):
        with pytest.raises(RuntimeError, match=damaged):
            minigrad.load(io.BytesIO(content))
        path = tmp_path / "bad.pt"
        path.write_bytes(content)
        with pytest.raises(RuntimeError, match="bad.pt"):
            minigrad.load(path)


class Payload:
    """Unpickling this calls a function."""

    def __init__(self, *call):
        self.call = call

    def __reduce__(self):
        return self.call


def tricks(marker):
    """Objects whose pickles write the file `marker`, or reach for the means to do it."""
    code = f"open({marker!r}, 'w').close()"
    return [
        Payload(exec, (code,)),
        Payload(eval, (code,)),
        Payload(os.system, (f"touch {marker}",)),
        Payload(__import__, ("os",)),
        Payload(getattr, ("", "join")),
        Payload(open, (marker, "w")),
        Payload(map, (exec, [code])),
        Payload(functools.partial, (exec, code)),
        Payload(operator.methodcaller, ("write_text", "x")),
        Payload(importlib.import_module, ("antigravity",)),
        Payload(np.save, (marker, [1])),
        Payload(minigrad.save, ([], marker)),
        Payload(nn.Sequential, ()),
        Payload(type, ("X", (), {})),
    ]


MACHINE = [pickle.dumps(x, 2) for x in (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True})]


def old_file(machine=MACHINE, pickled=None, keys=("0",), count=2, data=bytes(8), part=b"N"):
    """A file as torch wrote it before version 1.6, or what becomes of it with other parts."""
    kind = b"ctorch\nFloatStorage\n"
    storage = b"(" + text("storage") + kind + ZERO + ON_CPU + b"K\x02" + part + b"tQ"
    tensor = b"ctorch._utils\n_rebuild_tensor\n(" + storage + b"K\x00K\x02\x85K\x01\x85tR"
    pickled = b"\x80\x02" + tensor + b"." if pickled is None else pickled
    elements = count.to_bytes(8, "little", signed=True) + data
    return b"".join([*machine, pickled, pickle.dumps(list(keys), 2), elements])


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"machine": [pickle.dumps(1, 2), *MACHINE[1:]]}, "torch.save did not write"),
        ({"machine": [MACHINE[0], pickle.dumps(1002, 2), MACHINE[2]]}, "torch.save did not write"),
        ({"machine": [*MACHINE[:2], pickle.dumps({}, 2)]}, "another byte order"),
        ({"machine": [*MACHINE[:2], pickle.dumps(3, 2)]}, "damaged"),
        ({"machine": MACHINE[:2]}, "damaged|a tensor where"),
        ({"machine": [pickle.dumps([1]), *MACHINE[1:]]}, "torch.save did not write"),
        ({"part": text("1") + b"K\x01K\x02\x87"}, "elements 1 to 3 of 2"),
        ({"part": text("1") + b"K\x01K\x01\x87"}, "reaches element 1 of a storage with 1"),
        ({"part": text("1") + b"J\xff\xff\xff\xffK\x01\x87"}, "elements -1 to 0"),
        ({"part": b"K\x01"}, "damaged"),
        ({"keys": ()}, "damaged"),
        ({"keys": ("1",)}, "damaged"),
        ({"keys": (["0"],)}, "damaged"),
        ({"count": 3}, "does not have the 2 elements"),
        ({"count": -1}, "does not have the 2 elements"),
        ({"data": bytes(7)}, "ends early"),
        ({"pickled": b"\x80\x02" + b"]" * 100_000}, "damaged"),
        ({"pickled": b"\x80\x02(" + text("module") + b"cos\nsystem\n" + b"NNtQ."}, "names os.sys"),
        ({"pickled": b"\x80\x02(" + text("module") + b"NNNtQ."}, "persistent object|damaged"),
    ],
)
def test_hostile_old_files(changes, error):
    for good in ({}, {"part": text("1") + b"K\x00K\x02\x87"}):
        assert minigrad.load(io.BytesIO(old_file(**good))).tolist() == [0, 0]
    with pytest.raises(RuntimeError, match=error):
        minigrad.load(io.BytesIO(old_file(**changes)))


def test_old_files_that_claim_more_than_they_hold():
    large = b"J\xff\xff\xff\x7f"  # elements
    for before, after in ((b"K\x02N", large + b"N"), (b"K\x02\x85", large + b"\x85")):
        with pytest.raises(RuntimeError, match="damaged"):
            minigrad.load(io.BytesIO(old_file().replace(before, after)))
    content = old_file()
    for size in range(len(content)):
        with pytest.raises(RuntimeError):
            minigrad.load(io.BytesIO(content[:size]))


@pytest.mark.parametrize("protocol", [2, 4])
@pytest.mark.parametrize("number", range(14))
def test_pickles_are_never_run(tmp_path, number, protocol):
    marker = tmp_path / "ran"
    pickled = pickle.dumps({"w": tricks(str(marker))[number]}, protocol)
    for before in ((), MACHINE):  # alone, and as in files of torch before version 1.6
        content = b"".join(before) + pickled
        with pytest.raises(pickle.UnpicklingError, match=r"the file names|not an allowed"):
            minigrad.load(io.BytesIO(content))
    for weights_only in (None, True, False):
        with pytest.raises(pickle.UnpicklingError, match=r"the file names|not an allowed"):
            minigrad.load(archive(pickled), weights_only=weights_only)
    with pytest.raises(ValueError, match="pickle_module"):
        minigrad.load(archive(pickled), pickle_module=pickle)
    assert not marker.exists()


def test_a_failed_load_changes_nothing():
    net = nn.Linear(2, 2)
    before = net.weight.detach().numpy().copy()
    file = io.BytesIO()
    minigrad.save(net.state_dict(), file)
    content = bytearray(file.getvalue())
    content[content.index(net.bias.detach().numpy().tobytes())] ^= 1  # the last tensor
    with pytest.raises(RuntimeError, match="CRC"):
        net.load_state_dict(minigrad.load(io.BytesIO(bytes(content))))
    assert (net.weight.detach().numpy() == before).all()


# ------------------------------------------------------------------------ places


def test_file_objects(tmp_path):
    path = tmp_path / "a.pt"
    with open(path, "wb") as file:
        minigrad.save([1, minigrad.ones(2)], file)
    with open(path, "rb") as file:
        assert minigrad.load(file)[0] == 1

    class Pipe:
        def __init__(self, content):
            self.content = content

        def read(self):
            return self.content

    assert minigrad.load(Pipe(path.read_bytes()))[1].tolist() == [1, 1]
    with pytest.raises(TypeError, match="path or a binary file"):
        minigrad.load(3)


def test_map_location():
    for place in (None, "cpu", minigrad.device("cpu"), {"cpu": "cpu"}, lambda t, where: t):
        assert round_trip([minigrad.ones(2)], map_location=place)[0].tolist() == [1, 1]
    seen = []
    round_trip(minigrad.ones(1), map_location=lambda t, where: seen.append(where))
    assert seen == ["cpu"]
    restore = serialization.default_restore_location
    found = round_trip(minigrad.ones(2), map_location=lambda t, where: restore(t, "cpu"))
    assert found.tolist() == [1, 1]
    on_gpu = archive(b"\x80\x02" + tensor(device=text("cuda:0")) + b".", [bytes(8)])
    for place in ("cpu", {"cuda:0": "cpu"}, lambda storage, where: storage):
        on_gpu.seek(0)
        assert str(minigrad.load(on_gpu, map_location=place).device) == "cpu"
    if not minigrad.cuda.is_available():
        on_gpu.seek(0)
        with pytest.raises(RuntimeError, match="map_location"):
            minigrad.load(on_gpu)


def test_safe_globals_may_be_what_is_read_anyway():
    """The functions that make NumPy's arrays, which accelerate declares safe for random states."""
    rebuild = np.zeros(1).__reduce__()[0]
    state = {"x": np.arange(3.0), "state": np.random.get_state()[1]}
    with serialization.safe_globals([rebuild, np.ndarray, np.dtype, codecs.encode]):
        found = round_trip(state)
    for name, value in state.items():
        np.testing.assert_array_equal(found[name], value)
    with pytest.raises(TypeError, match="expected classes, got <built-in function system"):
        serialization.add_safe_globals([os.system])


@pytest.mark.parametrize("place", ["meta", minigrad.device("meta"), {"cpu": "meta"}])
def test_shapes_without_data(place):
    """What a program asks for that only wants the names and shapes in a file."""
    state = {
        "weight": nn.Parameter(minigrad.ones(2, 3)),
        "part": minigrad.ones(4, 5)[1:, ::2],
        "none": minigrad.ones(3, 0),
        "one": minigrad.tensor(2, dtype=minigrad.int32),
    }
    found = round_trip(state, map_location=place)
    for name, value in state.items():
        got = found[name]
        assert got.device.type == "meta" and type(got) is type(value)
        assert (got.shape, got.dtype) == (value.shape, value.dtype)
        assert got.requires_grad == value.requires_grad


@pytest.mark.gpu
def test_tensors_on_the_gpu_come_back_there():
    tensor = minigrad.ones(3, device="cuda")
    assert str(round_trip(tensor).device) == "cuda:0"
    assert str(round_trip(tensor, map_location="cpu").device) == "cpu"


@pytest.mark.parametrize("name", ["m" * 252 + ".pt", "\N{SNOWMAN}" * 85])
def test_the_longest_names(tmp_path, name):
    """The temporary file's name is longer than that of the file."""
    for value in (1.0, 2.0):
        minigrad.save(minigrad.tensor(value), tmp_path / name)
    assert minigrad.load(tmp_path / name).item() == 2
    assert [path.name for path in tmp_path.iterdir()] == [name]
