"""The examples at a small size: they learn. Kernels have tests of their own; one example runs on
them."""

from __future__ import annotations

import pkgutil
import subprocess
import sys

import pytest

import minigrad.examples
from minigrad import models
from minigrad.examples import (
    cnn,
    distributed,
    dqn,
    gan,
    gpt,
    graph,
    linear,
    loader_pin_memory,
    mixed_precision,
    physics,
    recurrent,
    reinforce,
    transfer_learning,
    vae,
    vgg16_transfer,
)

pytestmark = pytest.mark.usefixtures("reference_backend")


def test_every_example_is_here():
    found = {module.name for module in pkgutil.iter_modules(minigrad.examples.__path__)}
    missing = {name for name in found if f"test_{name}" not in globals()}
    assert found and not missing


def test_linear():
    losses = linear.main(60)
    assert losses[-1] < 0.01 * losses[0]


@pytest.mark.filterwarnings("ignore:.pin_memory. argument")
def test_cnn():
    losses, accuracy = cnn.main(160, 2)
    assert losses[-1] < 0.9 * losses[0] and accuracy > 0.3


def test_mixed_precision():
    losses = mixed_precision.main(80)
    assert losses[-1] < 0.6 * losses[0]


def test_recurrent():
    for name, (first, last) in recurrent.main(60, 16, 6).items():
        assert last < 0.9 * first, name


def test_gpt():
    losses, text = gpt.main(25, 32, 1)
    assert losses[-1] < 0.6 * losses[0] and len(text) == 41


def test_gpt_samples_the_likeliest():
    """top_k=1 takes the largest logit, as a temperature near zero does; top_k bounds the choice."""
    minigrad.manual_seed(0)
    model, start = gpt.GPT(7, 8, 1, 2, 16), minigrad.tensor([[1], [2]])
    greedy = start
    for _ in range(12):
        greedy = minigrad.cat([greedy, model(greedy[:, -8:])[:, -1:].argmax(-1)], 1)
    assert minigrad.equal(model.generate(start, 12, top_k=1), greedy)
    assert minigrad.equal(model.generate(start, 12, temperature=1e-5), greedy)
    first = model.generate(start.expand(200, 2, 1).flatten(0, 1), 1, 2.0, 3)[:, 1].reshape(200, 2)
    for column, row in zip(first.T, model(start)[:, -1].topk(3).indices, strict=True):
        assert set(column.tolist()) == set(row.tolist())


def test_gan():
    before, after = gan.main(100, 8, 16)
    assert after < 0.6 * before


def test_vae():
    losses, right = vae.main(256, 8, 32)
    assert losses[-1] < 0.75 * losses[0] and right > 0.75


def test_dqn():
    moves, shortest = dqn.main(60, 3)
    assert moves[-1] == shortest and sum(moves[:10]) > 20 * shortest


def test_graph():
    losses, accuracy = graph.main(90, 40)
    assert losses[-1] < 0.3 * losses[0] and accuracy > 0.9


def test_physics():
    losses, error = physics.main(700, 16, 16)
    assert losses[-1] < 1e-3 * losses[0] and error < 0.2


def test_reinforce():
    moves = reinforce.main(80, 5)
    assert sum(moves[-20:]) < 0.75 * sum(moves[:20])


def test_distributed(tmp_path):
    """In this process; ranks are in tests/distributed."""
    whole = distributed.main(str(tmp_path / "whole"), 2, 10)
    first = distributed.main(str(tmp_path / "parts"), 1, 10)
    rest = distributed.main(str(tmp_path / "parts"), 2, 10)
    assert len(first) == 29 and len(rest) == 38  # the last nine of the first were not saved
    assert first[:20] + rest == pytest.approx(whole, rel=1e-6)
    assert whole[-1] < 0.85 * whole[0]


def test_as_a_program():
    command = [sys.executable, "-m", "minigrad.examples.linear"]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert out.startswith("epoch   0  loss ") and len(out.splitlines()) == 4


def test_vgg16_transfer(tmp_path):
    """With features that are drawn, and with a file of published names (of zeros)."""
    losses, accuracy = vgg16_transfer.main(count=32, epochs=3, cfg="A")
    assert losses[-1] < 0.6 * losses[0] and accuracy >= 0.5
    with minigrad.device("meta"):
        names = models.vgg16().state_dict()
    file = {name: minigrad.zeros(1).expand(value.shape) for name, value in names.items()}
    minigrad.save(file, tmp_path / "vgg16.pth")
    model = vgg16_transfer.network(str(tmp_path / "vgg16.pth"), 4)
    assert not model.features[0].weight.any() and not model.features[0].weight.requires_grad
    assert [p.requires_grad for p in model.classifier.parameters()] == [True] * 6


def test_transfer_learning():
    missing, changed, accuracy = transfer_learning.main(32, 16, 3, (1, 1, 1, 1))
    assert missing == changed == ["fc.weight", "fc.bias"] and accuracy > 0.55


@pytest.mark.filterwarnings("ignore:.pin_memory. argument")
def test_loader_pin_memory():
    found = loader_pin_memory.main(192, 2, 3, 32)
    assert found[-1] > 0.6
