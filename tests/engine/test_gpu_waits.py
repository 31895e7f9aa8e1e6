"""How often the host waits for a GPU in a training step, and errors that come when it does."""

from __future__ import annotations

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn
from minigrad.models.gpt2 import GPT2Config, GPT2LMHeadModel
from tests import software_gpu

pytestmark = pytest.mark.gpu
F = nn.functional
BACKENDS = pytest.mark.parametrize("backend", ["numba", "cupy"])


def cnn(place: str):
    layers = [nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2)]
    model = nn.Sequential(*layers, nn.Dropout(0.2), nn.Flatten(), nn.Linear(64, 10)).to(place)
    x, target = mg.rand(8, 1, 8, 8).to(place), (mg.arange(8) % 10).to(place)
    return model, lambda: F.cross_entropy(model(x), target)


def gpt(place: str):
    sizes = {"vocab_size": 11, "n_positions": 6, "n_embd": 8, "n_layer": 1, "n_head": 2}
    model = GPT2LMHeadModel(GPT2Config(**sizes)).to(place)
    words = (mg.arange(12).reshape(2, 6) % 11).to(place)
    return model, lambda: F.cross_entropy(model(words).reshape(12, 11), words.reshape(12))


def indices(place: str):
    model = nn.Embedding(7, 5, padding_idx=0).to(place)
    words = (mg.arange(12).reshape(3, 4) % 7).to(place)

    def loss():
        rows = model(words).reshape(12, 5)
        chosen = rows[words[0]] + rows.index_select(0, words[1]) + rows.gather(0, words[:1, :1])
        added = mg.zeros_like(rows).scatter_add(0, words.reshape(12, 1).expand(12, 5), rows)
        chosen = chosen.index_fill(0, words[2, :1], 0.5).index_copy(0, words[:1, 1], chosen[:1])
        added = added.scatter(0, words[:1, :1], rows[:1, :1] * 2)
        with mg.no_grad():
            mg.zeros_like(rows)[words[0]] = 1.0
        return F.nll_loss(F.log_softmax(added, -1), words.reshape(12) % 5) + chosen.square().mean()

    return model, loss


@BACKENDS
@pytest.mark.parametrize("program", [cnn, gpt, indices])
def test_a_training_step_does_not_wait(program, backend):
    if not software_gpu.installed():
        pytest.skip("the software GPU counts how often the host waits")
    losses = {}
    for place in ("cpu", "cuda"):
        mg.manual_seed(0)
        with mg.backends.use(backend):
            model, loss_of = program(place)
            optimizer = mg.optim.Adam(model.parameters())
            found = losses[place] = []
            for step in range(3):
                waits, launches = software_gpu.waits(), software_gpu.launches()
                optimizer.zero_grad()
                loss = loss_of()
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                # Pinned memory, for the record of wrong indices, is made once.
                assert software_gpu.waits() == waits, step
                assert (software_gpu.launches() > launches) == (place == "cuda")
                found.append(loss.item())
    np.testing.assert_allclose(losses["cuda"], losses["cpu"], rtol=1e-4)


@BACKENDS
def test_a_scaled_step_waits_once(backend):
    if not software_gpu.installed():
        pytest.skip("the software GPU counts how often the host waits")
    with mg.backends.use(backend):
        model, loss_of = cnn("cuda")
        optimizer, scaler = mg.optim.Adam(model.parameters()), mg.amp.GradScaler()
        for _ in range(2):
            waits = software_gpu.waits()
            optimizer.zero_grad()
            with mg.autocast("cuda", dtype=mg.float16):
                loss = loss_of()
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            assert software_gpu.waits() == waits
            scaler.step(optimizer)
            scaler.update()
            assert software_gpu.waits() == waits + 1  # as torch: whether to skip the step


WRONG = {
    "cross_entropy": ("Target 12 is out of bounds", lambda x, i: F.cross_entropy(x, i)),
    "nll_loss": ("Target -3 is out of bounds", lambda x, i: F.nll_loss(x, i - 15 * (i == 12))),
    "embedding": ("index 12 is out of bounds for size 4", lambda x, i: F.embedding(i, x)),
    "gather": ("index 12 is out of bounds for size 5", lambda x, i: x.gather(1, i.view(4, 1))),
    "getitem": ("index 12 is out of bounds for dimension 0 with size 4", lambda x, i: x[i]),
    "index_select": (
        "embedding: index 12 is out of bounds for size 4",
        lambda x, i: x.index_select(0, i),
    ),
    "scatter": (
        "index 12 is out of bounds for dimension 1 with size 5",
        lambda x, i: x.scatter(1, i.view(4, 1), 1.0),
    ),
    "scatter_": (
        "index 12 is out of bounds for dimension 1 with size 5",
        lambda x, i: x.clone().scatter_(1, i.view(4, 1), 1.0),
    ),
    "scatter_add_": (
        "index 12 is out of bounds for dimension 1 with size 5",
        lambda x, i: x.clone().scatter_add_(1, i.view(4, 1), x),
    ),
    "index_copy": (
        "index 12 is out of range for a dimension of length 4",
        lambda x, i: x.index_copy(0, i, x),
    ),
    "index_fill": (
        "index 12 is out of bounds for dimension 1 with size 5",
        lambda x, i: x.index_fill(1, i, 1.0),
    ),
    "take": ("out of range for a tensor of 10 elements", lambda x, i: x[:2].take(i)),
    "index_put": (
        "index 12 is out of bounds for dimension 0 with size 4",
        lambda x, i: x.index_put_((i,), x),
    ),
}


@BACKENDS
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_index_is_an_error_when_the_host_waits(name, backend, monkeypatch):
    x, i = mg.rand(4, 5, device="cuda"), mg.tensor([1, 12, 3, 0], device="cuda")
    errors, (text, call) = (IndexError, RuntimeError), WRONG[name]
    with mg.backends.use(backend):
        with pytest.raises(errors, match=text) as caught:  # a second check in it may come first
            call(x, i).sum().item()
        assert "CUDA_LAUNCH_BLOCKING=1" in caught.value.__notes__[0]
        assert x.sum().item() > 0  # reported once; the device works on
        with pytest.raises(errors, match=text):
            call(x, i)
            mg.cuda.synchronize()
        monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
        with pytest.raises(errors, match=text):
            call(x, i)


@BACKENDS
def test_ignored_classes_are_not_wrong(backend):
    with mg.backends.use(backend):
        x, target = mg.rand(3, 4, device="cuda"), mg.tensor([1, -100, 3], device="cuda")
        assert F.cross_entropy(x, target).item() > 0
        assert F.cross_entropy(x, target.clamp(min=0), ignore_index=3).item() > 0
        mg.cuda.synchronize()
