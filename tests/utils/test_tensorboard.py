"""What `SummaryWriter` writes for TensorBoard's plugins, read field by field."""

from __future__ import annotations

import struct

import numpy as np
import pytest

import minigrad
from minigrad import nn
from minigrad.utils.tensorboard import SummaryWriter


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value, shift, at = value | (byte & 127) << shift, shift + 7, at + 1
        if byte < 128:
            return value, at


def fields(data):
    """[(number, value)] of a message of protocol buffers."""
    found, at = [], 0
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 0:
            value, at = varint(data, at)
        elif key & 7 == 2:
            size, at = varint(data, at)
            value, at = data[at : at + size], at + size
        else:
            size, kind = (8, "<d") if key & 7 == 1 else (4, "<f")
            value, at = struct.unpack_from(kind, data, at)[0], at + size
        found.append((key >> 3, value))
    return found


def every(data, *path):
    """All values of nested fields."""
    for number in path:
        data = [v for part in (data if isinstance(data, list) else [data])
                for n, v in fields(part) if n == number]  # fmt: skip
    return data


def events(folder):
    (path,) = folder.glob("events*")
    data, found = path.read_bytes(), []
    while data:
        (size,) = struct.unpack_from("<Q", data)
        found.append(data[12 : 12 + size])
        data = data[16 + size :]
    return found[1:]


def test_settings_and_metrics_of_a_run(tmp_path):
    settings = {"lr": 0.1, "depth": minigrad.tensor(3), "optimizer": "adam", "nesterov": True}
    with SummaryWriter(tmp_path) as writer:
        metrics = {"hparam/accuracy": 0.5}
        writer.add_hparams(settings, metrics, {"optimizer": ["adam", "sgd"]}, "first", 7)
        writer.add_hparams({"lr": 1}, {})
        with pytest.raises(TypeError, match="should be dictionary"):
            writer.add_hparams([0.1], {})
        with pytest.raises(ValueError, match="'lr' should be one of int"):
            writer.add_hparams({"lr": [0.1]}, {})
    start, begun, ended, metric = (every(e, 5, 1)[0] for e in events(tmp_path / "first"))
    tags = [every(value, 1)[0].decode() for value in (start, begun, ended, metric)]
    assert tags == [f"_hparams_/{name}" for name in ("experiment", "session_start_info",
                    "session_end_info")] + ["hparam/accuracy"]  # fmt: skip
    assert all(every(v, 9, 1, 1) == [b"hparams"] for v in (start, begun, ended))
    content = every(start, 9, 1, 2)
    assert every(content, 2, 4, 1) == [name.encode() for name in settings]
    assert every(content, 2, 4, 4) == [3, 3, 1, 3]  # DATA_TYPE_FLOAT64, DATA_TYPE_STRING
    assert every(content, 2, 4, 5, 1, 3) == [b"adam", b"sgd"]
    assert every(content, 2, 5, 1, 2) == [b"hparam/accuracy"]
    given = every(begun, 9, 1, 2, 3, 1)
    assert every(given, 1) == [name.encode() for name in settings]
    assert every(given, 2, 2) == [0.1, 3, 1] and every(given, 2, 3) == [b"adam"]
    assert every(ended, 9, 1, 2, 4, 1) == [1]  # STATUS_SUCCESS
    assert every(metric, 2) == [0.5] and len(list(tmp_path.iterdir())) == 3


@pytest.mark.parametrize("weighted", [False, True])
def test_precision_and_recall(tmp_path, rng, weighted):
    """As the definitions, for predictions that lie on no threshold."""
    labels, guess, n = rng.random(50) < 0.4, rng.random(50), 11
    weights = rng.random(50) if weighted else np.ones(50)
    with SummaryWriter(tmp_path) as writer:
        given = labels.astype(int), minigrad.tensor(guess), 3, n
        writer.add_pr_curve("curve", *given, weights=weights if weighted else None)
        for wrong in (guess[:5], guess + 1):
            with pytest.raises(ValueError, match="predictions from 0 to 1"):
                writer.add_pr_curve("wrong", labels, wrong)
    (event,) = events(tmp_path)
    assert every(event, 5, 1, 9, 1, 1) == [b"pr_curves"] and every(event, 5, 1, 9, 1, 2, 2) == [n]
    assert every(event, 5, 1, 8, 2, 2, 1) == [6, n] and every(event, 2) == [3]
    found = np.frombuffer(every(event, 5, 1, 8, 5)[0], "<f4").reshape(6, n)
    for i, column in enumerate(found.T):
        taken = guess >= i / (n - 1)
        hits, alarms = (weights[taken & which].sum() for which in (labels, ~labels))
        left, missed = (weights[~taken & which].sum() for which in (~labels, labels))
        rates = hits / max(hits + alarms, 1e-7), hits / (hits + missed)
        np.testing.assert_allclose(
            column, [hits, alarms, left, missed, *rates], rtol=1e-5, atol=1e-6
        )


def test_vectors_with_labels_and_pictures(tmp_path):
    vectors = minigrad.arange(12.0).reshape(4, 3)
    with SummaryWriter(tmp_path) as writer:
        writer.add_embedding(vectors, list("abcd"), minigrad.rand(4, 3, 5, 6), 1, "digits")
        rows = [["a", 1], ["b", 2], ["c", 3], ["d", 4]]
        writer.add_embedding(vectors, rows, metadata_header=["name", "number"])
        with pytest.raises(AssertionError, match="as many of metadata as vectors, got 1 for 4"):
            writer.add_embedding(vectors, ["a"])
    folder = tmp_path / "00001" / "digits"
    assert (folder / "metadata.tsv").read_text() == "a\nb\nc\nd\n"
    assert (folder / "tensors.tsv").read_text().splitlines()[1] == "3.0\t4.0\t5.0"
    width, height = struct.unpack_from(">II", (folder / "sprite.png").read_bytes(), 16)
    assert (width, height) == (12, 10)
    assert (tmp_path / "00000/default/metadata.tsv").read_text().startswith("name\tnumber\na\t1\n")
    config = (tmp_path / "projector_config.pbtxt").read_text()
    assert config.count("embeddings {") == 2 and 'tensor_name: "digits:00001"' in config
    assert '  tensor_path: "00001/digits/tensors.tsv"\n' in config
    assert config.index("single_image_dim: 6") < config.index("single_image_dim: 5")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 4), nn.ReLU())
        self.head = nn.Linear(4, 2)

    def forward(self, x, scale):
        return self.head(self.body(x) * scale).softmax(-1)


def test_the_graph_of_a_module(tmp_path):
    model = Net()
    with SummaryWriter(tmp_path) as writer:
        writer.add_graph(model, (minigrad.ones(2, 3), 2.0))
        with pytest.raises(ValueError, match="input_to_model is missing"):
            writer.add_graph(model)
    (event,) = events(tmp_path)
    nodes = {
        every(node, 1)[0].decode(): [i.decode() for i in every(node, 3)]
        for node in every(event, 4, 1)
    }
    assert {"input", "output", "body/0/weight", "head/bias"} <= nodes.keys()
    assert all(i in nodes for inputs in nodes.values() for i in inputs)
    found, name = [], nodes["output"][0]
    while name != "input":
        found.append(name.rpartition("_")[0])
        name = next(i for i in nodes[name] if i == "input" or i.startswith("Net/"))
    assert found == [
        "Net/Softmax", "Net/head/Addmm", "Net/Mul", "Net/body/1/Relu", "Net/body/0/Addmm",
    ]  # fmt: skip
    assert not model.head._forward_hooks and model.head.weight.grad is None
