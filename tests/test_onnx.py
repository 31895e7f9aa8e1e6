"""Exported networks: ONNX's own evaluator computes what the network computes."""

from __future__ import annotations

import io
import subprocess
import sys
from contextlib import nullcontext

import numpy as np
import pytest

import minigrad
from minigrad import nn
from minigrad.autograd.mode import mode
from minigrad.models import BasicBlock, LeNet, ResNet
from minigrad.nn import functional as F
from minigrad.utils._pytree import tree_leaves

pytestmark = pytest.mark.needs("onnx")
BATCH = {"input": {0: "batch"}}


@pytest.fixture(autouse=True)
def seeded():
    minigrad.manual_seed(0)


def exported(model, args, **options):
    """The program, and its evaluator, which reads the bytes that were written."""
    import onnx
    from onnx.reference import ReferenceEvaluator

    file = io.BytesIO()
    program = minigrad.onnx.export(model, args, file, **options)
    proto = onnx.load_from_string(file.getvalue())
    onnx.checker.check_model(proto, full_check=True)
    return program.model_proto, ReferenceEvaluator(proto)


def check(model, args, *more, tolerance=1e-5, **options):
    """Export with `args`; the results for them and for `more` arguments are those of the model."""
    proto, evaluator = exported(model, args, **options)
    names = [i.name for i in proto.graph.input]
    with nn_eval(model):
        for given in (args, *more):
            given = given if isinstance(given, tuple) else (given,)
            wanted = tree_leaves(model(*given))
            got = evaluator.run(None, {n: x.numpy() for n, x in zip(names, tree_leaves(given))})
            for a, b in zip(wanted, got, strict=True):
                a = a.detach().numpy()
                assert (a.dtype, a.shape) == (b.dtype, b.shape)
                np.testing.assert_allclose(b, a, rtol=tolerance, atol=tolerance)
    return proto


def nn_eval(model):
    if isinstance(model, nn.Module):
        model.eval()
    return nullcontext()


def kinds(proto):
    return [node.op_type for node in proto.graph.node]


class Block(nn.Module):
    """Tokens to scores, by an embedding, an encoder layer and a product without bias."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(11, 8)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, activation="gelu")
        self.out = nn.Linear(8, 11, bias=False)

    def forward(self, tokens):
        return self.out(self.layer(self.embedding(tokens))).log_softmax(-1)


class Convolutions(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Conv1d(2, 4, 3, stride=2, padding=1, groups=2)
        # ONNX's evaluator computes groups of one channel only, all with the bias of the first
        options = {"stride": 2, "padding": 1, "output_padding": 1, "groups": 4, "bias": False}
        self.b = nn.ConvTranspose1d(4, 4, 3, **options)
        self.n = nn.BatchNorm1d(4, affine=False)
        self.c = nn.Conv2d(1, 2, 3, padding="same", dilation=2, bias=False)
        self.d = nn.ConvTranspose2d(2, 3, (2, 3), stride=2)

    def forward(self, x):
        y = self.d(self.c(self.n(self.b(self.a(x))).unsqueeze(1)))
        pooled = F.max_pool2d(y, 3, 2, 1, ceil_mode=True)
        return pooled, F.avg_pool2d(y, 2, 1, 1), F.adaptive_avg_pool2d(y, 1).flatten(1)


class Recurrent(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.layers = kind(3, 4, num_layers=2, bidirectional=True, batch_first=True)

    def forward(self, x):
        return self.layers(x)


def test_mlp_keeps_the_names_of_the_state_dict():
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(inplace=True), nn.Dropout(), nn.Linear(8, 3))
    model.train()
    proto, _ = exported(model, minigrad.randn(2, 4))
    assert model.training and model[2].training and mode.observer is None
    assert not model[0]._forward_hooks and not model[0]._forward_pre_hooks
    assert kinds(proto) == ["Gemm", "Relu", "Gemm", "Identity"]
    assert {i.name for i in proto.graph.initializer} == {*model.state_dict()}
    options = {"input_names": ["x"], "output_names": ["y"], "dynamic_axes": {"x": [0], "y": [0]}}
    check(model, minigrad.randn(2, 4), minigrad.randn(5, 4), **options)


@pytest.mark.parametrize("name", ["lenet", "resnet", "vgg"])
def test_networks_for_images(name):
    size = 28 if name == "lenet" else 32
    model, channels = {
        "lenet": lambda: (LeNet(), 1),
        "resnet": lambda: (ResNet(BasicBlock, [1, 1, 1, 1], num_classes=3), 3),
        "vgg": lambda: (small_vgg(), 3),
    }[name]()
    images = [minigrad.randn(n, channels, size, size) for n in (1, 2)]
    model(minigrad.randn(2, channels, size, size))  # moves the running statistics
    proto = check(model, *images, dynamic_axes=BATCH)
    assert {i.name for i in proto.graph.initializer} <= {*model.state_dict()} | {
        i.name for i in proto.graph.initializer if i.name.startswith("constant_")
    }
    assert proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"
    assert proto.graph.output[0].type.tensor_type.shape.dim[0].dim_param == "batch"


def small_vgg():
    """Layers as those of VGG, whose own classifier has 10**8 parameters."""
    features = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(True), nn.MaxPool2d(2))
    scores = nn.Sequential(nn.Linear(64, 8), nn.ReLU(True), nn.Dropout(), nn.Linear(8, 3))
    return nn.Sequential(features, nn.AdaptiveAvgPool2d(4), nn.Flatten(), scores)


def test_transformer_with_dynamic_batch_and_length():
    tokens = [minigrad.randint(0, 11, shape) for shape in ((2, 5), (4, 7), (1, 1))]
    axes = {"input": {0: "batch", 1: "time"}}
    check(Block(), *tokens, dynamic_axes=axes)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_recurrent_layers_of_a_fixed_length(kind):
    check(Recurrent(kind), *[minigrad.randn(n, 3, 3) for n in (2, 5)], dynamic_axes=BATCH)
    with pytest.raises(minigrad.onnx.OnnxExporterError, match="different operations"):
        exported(Recurrent(kind), minigrad.randn(2, 3, 3), dynamic_axes={"input": [1]})


def test_convolutions_and_pools():
    check(Convolutions(), *[minigrad.randn(n, 2, 11) for n in (2, 3)], dynamic_axes=BATCH)


def arithmetic(x, y):
    z = (x * 2 - 1) / (y.abs() + 1)
    z = z.clamp(-0.5, 0.5) + x.exp().sqrt().log() ** 3 - F.leaky_relu(x) + F.elu(y) * F.silu(x)
    z = z + F.hardtanh(y) + F.gelu(x) + F.gelu(y, approximate="tanh") + F.softplus(y) + 3**y
    a, b = z.split([1, 3], 1)
    joined = minigrad.cat([a, b[:, 1:], x.flip(1)], 1).permute(1, 0)[None].squeeze(0)
    norms = F.layer_norm(x, (4,)), F.rms_norm(x, (4,)), F.group_norm(x.reshape(-1, 2, 2), 2)
    sums = x.sum(), x.mean(0), x.prod(1), x.std(1), x.norm(dim=1), x.logsumexp(1), x.cumsum(1)
    picks = x.max(1), x.amin(0), (x > 0).any(1), x.gather(1, (y > 0).long()), x[..., -1]
    logic = (x > 0) & (y < 0), minigrad.where(x > y, x, y), x.masked_fill(y > 0, 2.0), x != y
    rounded = x.round(), x.trunc(), x // y, x % y, x.long() + 3
    shapes = x.unsqueeze(0).expand(3, -1, -1), minigrad.stack([x, y]), F.pad(x, (1, 2)), x @ y.mT
    rolled = x.roll((1, -2, 7), (0, 1, 1)), x.roll(-1, 0)
    return joined, norms, sums, picks, logic, rounded, shapes, rolled, F.softmax(x, -1)


@pytest.mark.parametrize("opset", [13, 17, 18, 21])
def test_arithmetic_and_reductions(opset):
    pairs = [(minigrad.randn(n, 4), minigrad.randn(n, 4)) for n in (3, 5)]
    axes = {"a": {0: "rows"}, "b": {0: "rows"}}
    names = {"input_names": ["a", "b"], "dynamic_axes": axes}
    proto = check(arithmetic, *pairs, opset_version=opset, **names)
    assert proto.opset_import[0].version == opset


def test_parameters_as_inputs_and_without_folding():
    model = nn.BatchNorm2d(3)
    x = minigrad.randn(2, 3, 4, 4)
    proto = minigrad.onnx.export(model, x, export_params=False).model_proto
    assert {i.name for i in proto.graph.input} == {
        *("input", "weight", "bias", "running_mean", "running_var")
    }
    assert not proto.graph.initializer
    double = minigrad.ones(3) * 2
    folded, plain = (
        minigrad.onnx.export(lambda x: x * (double + 1), x[0, 0, :, :3], do_constant_folding=f)
        for f in (True, False)
    )
    assert kinds(folded.model_proto) == ["Mul", "Identity"]
    assert kinds(plain.model_proto) == ["Add", "Mul", "Identity"]


class Refused(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.inner = nn.Module()
        self.inner.forward = function

    def forward(self, x):
        return self.inner(x)


def overwritten(x):
    y = x * 1
    flat = y.view(-1)
    y[:, 0] = 3
    return flat + 1


REFUSED = {
    "Cholesky in inner": lambda x: minigrad.linalg.cholesky(x @ x.mT + 9 * minigrad.eye(3)),
    "Dropout in inner .*eval": lambda x: F.dropout(x, 0.5, training=True),
    "in Python": lambda x: x * x.sum().item(),
    "without recorded operations": lambda x: x + minigrad.rand(3),
    "different operations": lambda x: x + 1 if x.sum() == 9 else x * 2,
    "lgamma": lambda x: x.lgamma(),
    "changed in place": overwritten,
}


@pytest.mark.filterwarnings("ignore:onnx.export. inner")
@pytest.mark.parametrize("text", REFUSED)
def test_what_cannot_be_exported_leaves_the_old_file(text, tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(b"before")
    x = minigrad.ones(3, 3)
    with pytest.raises(minigrad.onnx.OnnxExporterError, match=text):
        minigrad.onnx.export(Refused(REFUSED[text]), x, path)
    assert path.read_bytes() == b"before" and [p.name for p in tmp_path.iterdir()] == [path.name]
    assert mode.observer is None


def test_a_file_is_written_whole(tmp_path, monkeypatch):
    import onnx

    path = tmp_path / "model.onnx"
    minigrad.onnx.export(nn.Linear(2, 3), minigrad.randn(1, 2), path)
    onnx.checker.check_model(str(path))
    before = path.read_bytes()
    monkeypatch.setattr("os.fsync", lambda handle: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        minigrad.onnx.export(nn.Linear(5, 6), minigrad.randn(1, 5), path)
    assert path.read_bytes() == before and len([*tmp_path.iterdir()]) == 1


def test_a_condition_on_values_warns():
    with pytest.warns(UserWarning, match="the model reads a value .* in Python"):
        minigrad.onnx.export(lambda x: x + 1 if x.sum() > 0 else x, minigrad.ones(3))


def test_wrong_arguments():
    model, x = nn.Linear(2, 3), minigrad.randn(4, 2)
    export = minigrad.onnx.export
    with pytest.raises(ValueError, match="from 13 to 21, got 9"):
        export(model, x, opset_version=9)
    with pytest.raises(ValueError, match="names 'z'"):
        export(model, x, dynamic_axes={"z": [0]})
    with pytest.raises(ValueError, match="no axis 2"):
        export(model, x, dynamic_axes={"input": [2]})
    with pytest.raises(ValueError, match="2 names .* for 1 tensors"):
        export(model, x, input_names=["a", "b"])
    with pytest.raises(TypeError, match="must return tensors"):
        export(lambda x: 3, x)
    with pytest.raises(minigrad.onnx.OnnxExporterError, match="Trilu, which opset_version=13"):
        export(lambda x: x.tril(), x, opset_version=13)


def test_a_program_for_torch(tmp_path):
    source = (
        "import torch\n"
        "torch.onnx.export(torch.nn.Linear(2, 3), torch.ones(1, 2), 'linear.onnx', "
        "opset_version=17, dynamo=False)\n"
    )
    (tmp_path / "program.py").write_text(source)
    command = [sys.executable, "-m", "minigrad", "run", "program.py"]
    subprocess.run(command, cwd=tmp_path, check=True, env=environment())
    assert (tmp_path / "linear.onnx").stat().st_size > 100


def environment():
    import os
    from pathlib import Path

    return os.environ | {"PYTHONPATH": str(Path(minigrad.__file__).parents[1])}


def test_a_model_asks_whether_it_is_exported():
    class Asks(nn.Module):
        def forward(self, x):
            asked.append(minigrad.onnx.is_in_onnx_export())
            return x + 1

    asked: list[bool] = []
    exported(Asks(), minigrad.randn(2))
    assert all(asked) and asked and not minigrad.onnx.is_in_onnx_export()
