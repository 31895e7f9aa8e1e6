"""Files of torch, both ways, and whole modules."""

from __future__ import annotations

import io
import pickle
from collections import Counter, OrderedDict, defaultdict

import numpy as np
import pytest

import minigrad
from minigrad import nn, serialization

DTYPES = ["float64", "float32", "float16", "int8", "int16", "int32", "int64", "uint8", "bool"]


def through(writer, reader, obj, zipped=True, **options):
    """The object after `writer` has saved and `reader` has loaded it."""
    file = io.BytesIO()
    writer.save(obj, file, _use_new_zipfile_serialization=zipped)
    file.seek(0)
    return reader.load(file, **options)


def objects(t, rng):
    """What files of torch hold, in one of the two libraries."""
    x = t.tensor(rng.standard_normal((4, 6)))
    layers = t.nn.Sequential(t.nn.Linear(3, 4), t.nn.BatchNorm1d(4))
    optimizer = t.optim.Adam(layers.parameters(), lr=0.1)
    layers(t.ones(2, 3)).sum().backward()
    optimizer.step()
    return {
        **{name: t.zeros(2, 3, dtype=getattr(t, name)) for name in (*DTYPES, "bfloat16", "uint16")},
        "coordinates": t.sparse_coo_tensor([[0, 1, 1]], [1.0, 2.0, 3.0], (4,)),
        "coalesced": x.round().to_sparse(),
        "rows": x.round().to_sparse_csr(),
        "view": x[1:3, 2:],
        "whole": x,
        "strided": x.t(),
        "scalar": t.tensor(3),
        "empty": t.zeros(0, 3),
        "leaf": t.ones(2, requires_grad=True),
        "parameter": t.nn.Parameter(t.ones(2), requires_grad=False),
        "plain": [1, -1, 300, 70_000, 2**40, -(2**70), 1.5, "text", None, True, (), (1,), b"\xff"],
        "containers": ({1: {}}, {2, 3}, OrderedDict(a=1), Counter("aab")),
        "shape": x.shape,
        "dtype": t.float16,
        "device": t.device("cpu"),
        "state": layers.state_dict(),
        "optimizer": optimizer.state_dict(),
    }


def compare(torch, a, b):
    """An object of minigrad, and the same of torch."""
    if isinstance(b, torch.Tensor):
        assert isinstance(a, nn.Parameter) == isinstance(b, torch.nn.Parameter)
        assert str(a.dtype).partition(".")[2] == str(b.dtype).partition(".")[2]
        assert tuple(a.shape) == tuple(b.shape) and a.requires_grad == b.requires_grad
        if b.layout is not torch.strided:
            assert repr(a).replace("minigrad.", "torch.") == repr(b)
            return
        assert a.numel() < 2 or a.stride() == b.stride()
        assert a.tolist() == b.tolist()
    elif isinstance(b, dict):
        assert type(a) is type(b) and list(a) == list(b)
        for key in b:
            compare(torch, a[key], b[key])
    elif isinstance(b, (list, tuple)):
        assert len(a) == len(b)
        for x, y in zip(a, b):
            compare(torch, x, y)
    else:
        assert str(a).replace("minigrad", "torch") == str(b)


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "before 1.6"])
def test_files_of_torch_are_read(zipped, torch, seed):
    theirs = objects(torch, np.random.default_rng(seed))
    mine = through(torch, minigrad, theirs, zipped)
    compare(torch, mine, theirs)
    assert mine["state"]._metadata == theirs["state"]._metadata
    mine["whole"][1, 2] = 7  # views of one storage share it again
    assert mine["view"][0, 0].item() == mine["strided"][2, 1].item() == 7


def test_files_are_read_by_torch(torch, seed):
    theirs, mine = (objects(t, np.random.default_rng(seed)) for t in (torch, minigrad))
    mine["state"] = through(torch, minigrad, theirs["state"])
    mine["optimizer"] = through(torch, minigrad, theirs["optimizer"])
    found = through(minigrad, torch, mine, weights_only=True)
    compare(torch, mine, found)
    assert found["state"]._metadata == theirs["state"]._metadata
    found["whole"][1, 2] = 7
    assert found["view"][0, 0].item() == found["strided"][2, 1].item() == 7
    x = minigrad.ones(3)
    a, b = through(minigrad, torch, [x, x.view(minigrad.int32)], weights_only=True)
    assert a.tolist() == [1, 1, 1] and b.tolist() == [0x3F800000] * 3


@pytest.mark.filterwarnings("ignore:Couldn't retrieve source code")
@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "before 1.6"])
def test_modules_of_torch_are_read(zipped, torch):
    """Layers, an activation that is a function; other classes are refused."""
    layers = torch.nn.Linear(3, 4), torch.nn.Conv2d(1, 2, 3), torch.nn.GRU(2, 3)
    theirs = torch.nn.Sequential(*layers)
    mine = through(torch, minigrad, theirs, zipped)
    assert repr(mine) == repr(theirs)
    compare(torch, mine.state_dict(), theirs.state_dict())
    assert mine[0](minigrad.ones(2, 3)).shape == (2, 4)
    layer = torch.nn.TransformerEncoderLayer(4, 2, 8)
    assert through(torch, minigrad, layer, zipped).activation is nn.functional.relu
    with pytest.raises(pickle.UnpicklingError, match=r"collections\.defaultdict"):
        through(torch, minigrad, defaultdict(list), zipped)


class Net(nn.Module):
    """A model of a program."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)
        self.register_buffer("count", minigrad.zeros(1))
        self.size, self.activation = (1, 2), nn.functional.relu

    def forward(self, x):
        return self.activation(self.layer(x)) + self.count


def test_whole_modules():
    model = Net()
    model.eval()
    with pytest.raises(pickle.UnpicklingError, match=r"add_safe_globals\(\[Net\]\)"):
        through(minigrad, minigrad, model)
    with serialization.safe_globals([Net]):
        assert serialization.get_safe_globals() == [Net]
        loaded = through(minigrad, minigrad, model)
    assert serialization.get_safe_globals() == []
    assert repr(loaded) == repr(model) and not loaded.training and loaded.size == (1, 2)
    x = minigrad.ones(2, 3)
    assert minigrad.equal(loaded(x), model(x))
    loaded.register_forward_hook(lambda *_: None)
    with pytest.raises(TypeError, match="function"):
        through(minigrad, minigrad, loaded)
    with pytest.raises(TypeError, match="expected classes"):
        serialization.add_safe_globals([print])


def test_conjugates_and_negatives(torch):
    """torch saves their storages, and that they are to be taken otherwise."""
    x = torch.tensor([1 + 2j, 3 - 1j])
    found = through(torch, minigrad, [x, x.conj()])
    assert [v.tolist() for v in found] == [[1 + 2j, 3 - 1j], [1 - 2j, 3 + 1j]]
    assert through(torch, minigrad, x.conj().imag).tolist() == [-2, 1]


def test_a_complex_tensor_for_torch(torch):
    x = minigrad.tensor([1 + 2j], dtype=minigrad.complex128)
    assert through(minigrad, torch, x).tolist() == [1 + 2j]
