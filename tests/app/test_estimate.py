"""`minigrad.estimate` and `minigrad gpus`: costs of a step against counts made by hand."""

from __future__ import annotations

import re

import numpy as np
import pytest

import minigrad
from minigrad import cli, estimate, nn
from minigrad.commands import gpus, models
from minigrad.estimate import training_step

P = 20 * 30 + 30 + 30 * 10 + 10  # parameters of `small`


def small():
    return nn.Sequential(nn.Linear(20, 30), nn.ReLU(), nn.Linear(30, 10))


def run(*argv: str) -> int:
    try:
        return cli.main(["gpus", *argv])
    except SystemExit as error:
        return error.code


@pytest.fixture(scope="module")
def vgg16():
    return training_step(lambda: models.vgg16(nn, 3, 224, 224), (3, 224, 224), batch=1)


def test_vgg16_is_the_papers(vgg16):
    """138 million parameters; 15.5 billion multiply-adds an image forward, thrice that with
    backward (less the gradient of the images)."""
    assert vgg16.parameters == 4 * 138_357_544
    products = sum(launch.flops for launch in vgg16.launches if launch.matrix)
    first = 2 * 64 * 27 * 224 * 224
    forward = 2 * 15_470_264_320
    assert products - 3 * forward + first == pytest.approx(0, abs=2e-3 * forward)  # the biases
    # what backward needs: the images, each relu's result, pools with their int64 positions, and
    # of the linear layers two relus, two dropouts and the logits; what cross entropy keeps
    sizes = [(64, 224, 2), (128, 112, 2), (256, 56, 3), (512, 28, 3), (512, 14, 3)]
    relus = sum(layers * c * n * n for c, n, layers in sizes)
    pools = sum(c * n * n // 4 for c, n, layers in sizes)
    kept = 4 * 3 * 224 * 224 + 4 * relus + (4 + 8) * pools + 4 * (4 * 4096 + 1000) + 4 + 4
    assert vgg16.activations == kept


def test_a_small_network_by_hand():
    step = training_step(small, (20,), batch=8)
    assert step.parameters == 4 * P
    assert step.gradients == 4 * P
    assert step.optimizer == 2 * 4 * P
    # the input, the hidden layer after its relu, the logits, and of each row the log-sum-exp;
    # the loss itself
    assert step.activations == 4 * 8 * (20 + 30 + 10 + 1) + 4
    assert step.peak >= step.activations
    assert step.memory() >= 4 * (4 * P) + step.activations
    families = [launch.family for launch in step.launches]
    assert families.count("matmul") == 5
    assert families[-1] == "adam_"
    assert step.launches[-1].bytes == 28 * P
    sgd = training_step(small, (20,), batch=8, optimizer="sgd")
    assert (sgd.launches[-1].bytes, sgd.optimizer) == (20 * P, 4 * P)


def test_memory_counted_is_memory_held():
    """The graph of a real forward pass holds as many bytes as were counted."""
    step = training_step(small, (20,), batch=8)
    with minigrad.backends.use("numpy"):
        x = minigrad.zeros(8, 20)
        loss = estimate._loss(small()(x))
    arrays, nodes = {}, [loss._node]
    while nodes:
        node = nodes.pop()
        for value in node.saved or ():
            if isinstance(value, minigrad.Tensor) and not isinstance(value, nn.Parameter):
                array = value._array
                while isinstance(array.base, np.ndarray):
                    array = array.base
                arrays[id(array)] = array.nbytes
        nodes += [target for target in node.targets() if not hasattr(target, "_array")]
    target, result = 8 * 8, 4  # int64 classes; the loss, which is alive but not saved
    assert sum(arrays.values()) - target == step.activations - result


def test_time_and_energy_of_a_gpu():
    step = training_step(small, (20,), batch=8)
    card = minigrad.estimate.lab.gpu("RTX 4090")
    found = step.on("RTX 4090")
    by_hand = sum(
        max(one.flops / (0.6 * 82.6e12), one.bytes / (0.75 * 1008e9)) + 5e-6
        for one in step.launches
    )
    assert found.gpu is card
    assert found.seconds == pytest.approx(by_hand)
    assert found.joules == pytest.approx(by_hand * 450)
    assert found.samples == pytest.approx(8 / by_hand)
    assert found.fits


def test_where_the_time_goes(vgg16):
    found = vgg16.on("RTX 4090")
    assert sum(cost.seconds for cost in found.costs) == pytest.approx(found.seconds)
    bounds = {}
    for cost in found.costs:
        bounds.setdefault(cost.launch.family, set()).add(cost.bound)
    assert bounds["adam_"] == {"memory"}
    assert "arithmetic" in bounds["conv2d"]
    assert bounds["reduce.mean"] == {"launch"}
    rows = found.table().splitlines()
    shares = [float(re.search(r"([\d.]+)%", row)[1]) for row in rows[1:]]
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) == pytest.approx(100, abs=1)
    assert len(rows) == 1 + len(bounds)


def test_tensor_cores_speed_products_and_halves_traffic(vgg16):
    slow, tf32, bf16 = (vgg16.on("A100 SXM", p) for p in ("fp32", "tf32", "bf16"))
    assert slow.seconds > tf32.seconds > bf16.seconds
    assert bf16.memory < slow.memory + vgg16.parameters / 2
    with pytest.raises(ValueError, match="T4 has no tensor cores for bf16"):
        vgg16.on("T4", "bf16")
    with pytest.raises(ValueError, match="precision"):
        vgg16.on("T4", "int8")


def test_what_does_not_fit_is_said(vgg16):
    large = training_step(small, (1000, 20), batch=1 << 15)  # at worst some 16 GB
    assert [large.on(name).fits for name in ("RTX 4070", "RTX 4090")] == [False, True]
    assert "NO" in gpus.table([large.on("RTX 4070")])


def test_other_outputs_and_inputs():
    words = training_step(
        lambda: nn.Sequential(nn.Embedding(1000, 16), nn.Linear(16, 4)), (12,), 4, integers=True
    )
    assert words.launches[0].family == "embedding"
    with pytest.raises(ValueError, match="optimizer: expected one of"):
        training_step(small, (20,), optimizer="lion")


def test_the_command(capsys, tmp_path):
    picture = tmp_path / "times.svg"
    assert run("--model", "cnn", "--batch", "32", "--plot", str(picture)) == 0
    out = capsys.readouterr().out
    assert "a step of 32 samples of 3x32x32 with adam, fp32" in out
    assert "This is an estimate" in out
    for text in estimate.ASSUMPTIONS:
        assert text in out
    times = [float(ms) for ms in re.findall(r"([\d.]+) ms", out)]
    assert len(times) == len(minigrad.estimate.lab.GPUS)
    assert times == sorted(times)
    assert picture.read_text().startswith("<svg")
    assert run("--precision", "bf16") == 0
    assert "without tensor cores for bf16: V100" in capsys.readouterr().out
    assert run("--gpu", "rtx 4090") == 0
    out = capsys.readouterr().out
    assert "on GeForce RTX 4090:" in out
    assert re.search(r"^conv2d +3 .*%  \w+$", out, re.MULTILINE)


def test_a_module_of_ones_own(capsys, tmp_path, monkeypatch):
    (tmp_path / "my_net_of_test.py").write_text(
        "from minigrad import nn\n"
        "class Net(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.layer = nn.Linear(7, 3)\n"
        "    def forward(self, x):\n"
        "        return self.layer(x)\n"
    )
    monkeypatch.chdir(tmp_path)
    assert run("--model", "my_net_of_test:Net", "--shape", "7") == 0
    assert "my_net_of_test:Net: 24 parameters" in capsys.readouterr().out
    assert run("--model", "my_net_of_test:Net", "--shape", "9") == 2
    assert "mat1 and mat2 shapes cannot be multiplied" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--model", "resnet"], "expected cnn, mlp, vgg16 or package.module:Class: resnet"),
        (["--model", "no_such_package:Net", "--shape", "3"], "No module named 'no_such_package'"),
        (["--model", "minigrad.nn:Nothing", "--shape", "3"], "Nothing"),
        (["--model", "minigrad.nn:ReLU"], "--shape: a Module needs the shape"),
        (["--shape", "3,x"], "expected sizes above 0, such as 3,224,224, got '3,x'"),
        (["--shape", "32"], "cnn takes channels,height,width"),
        (["--gpu", "GTX 285"], "--gpu: expected a name of the table, got 'GTX 285'"),
        (["--gpu", "T4", "--precision", "bf16"], "--gpu: T4 has no tensor cores for bf16"),
        (["--batch", "0"], "expected a whole number above 0"),
        (["--plot", "a.gif"], "--plot: a picture is saved as .svg, .png or .txt"),
    ],
)
def test_mistakes_are_one_line(argv, message, capsys):
    assert run(*argv) == 2
    err = capsys.readouterr().err
    assert message in err
    assert len(err.splitlines()) == 1
