"""`fit`: what it computes, callbacks, and runs that are killed and go on."""

from __future__ import annotations

import json
import math
import os
import signal
import struct
import subprocess
import sys

import numpy as np
import pytest

import minigrad
from minigrad import backends, nn, optim
from minigrad.training import (
    Callback,
    Checkpoint,
    CSVLogger,
    EarlyStopping,
    History,
    Plot,
    TensorBoard,
    accuracy,
)
from minigrad.utils.data import DataLoader, IterableDataset, TensorDataset
from tests.training import program

pytestmark = pytest.mark.usefixtures("reference_backend")


def points(rng, count=50):
    x = rng.normal(size=(count, 3)).astype(np.float32)
    return minigrad.tensor(x), minigrad.tensor((x.sum(1) > 0).astype(np.int64))


def network(seed=0):
    minigrad.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))


def test_the_same_as_a_loop_by_hand(rng, capsys):
    train, valid = points(rng), points(rng, 23)
    model, other = network(), network()
    history = minigrad.fit(
        model,
        nn.CrossEntropyLoss(),
        optim.SGD(model.parameters(), lr=0.5),
        DataLoader(TensorDataset(*train), 16),
        DataLoader(TensorDataset(*valid), 10),
        epochs=3,
        metrics=["accuracy"],
    )
    sgd = optim.SGD(other.parameters(), lr=0.5)
    rows = []
    for _ in range(3):
        losses, hits = [], 0
        for x, y in DataLoader(TensorDataset(*train), 16):
            output = other(x)
            loss = nn.functional.cross_entropy(output, y)
            sgd.zero_grad(), loss.backward(), sgd.step()
            losses.append(loss.item() * len(y))
            hits += (output.argmax(1) == y).sum().item()
        x, y = valid
        output = other(x)
        rows.append((sum(losses) / 50, hits / 50, nn.functional.cross_entropy(output, y).item()))
    for row, (loss, hits, valid_loss) in zip(history, rows, strict=True):
        assert row["loss"] == pytest.approx(loss, rel=1e-12)
        assert row["accuracy"] == pytest.approx(hits)
        assert row["valid_loss"] == pytest.approx(valid_loss, rel=1e-5)
    assert history["valid_accuracy"][-1] == pytest.approx(accuracy(other(valid[0]), valid[1]))
    for a, b in zip(model.parameters(), other.parameters(), strict=True):
        assert minigrad.equal(a, b)
    printed = capsys.readouterr().out.splitlines()
    assert [text.split("  ")[0] for text in printed] == ["epoch 1", "epoch 2", "epoch 3"]
    assert history["epoch"] == [1, 2, 3] and history["lr"] == [0.5] * 3
    with pytest.raises(KeyError, match="no column 'nothing'; there are"):
        history["nothing"]


def fit(model, data, rng=None, **options):
    optimizer = options.pop("optimizer", None) or optim.SGD(model.parameters(), lr=0.1)
    loss = options.pop("loss", nn.CrossEntropyLoss())
    return minigrad.fit(model, loss, optimizer, data, progress=False, **options)


def test_sources(rng):
    x, y = points(rng, 20)
    expected = None
    for source in ((x, y), (x.numpy(), y.numpy()), TensorDataset(x, y)):
        minigrad.manual_seed(3)
        losses = fit(network(), source, epochs=2, batch_size=6)["loss"]
        assert expected in (None, losses)
        expected = losses

    class Stream(IterableDataset):
        def __iter__(self):
            return iter(zip(x, y.tolist()))

    assert len(fit(network(), Stream())["loss"]) == 1
    batches = [[x[:7], y[:7]], [x[7:], y[7:]]]
    assert len(fit(network(), batches)["loss"]) == 1
    for wrong in (x, 3, iter(batches)):
        with pytest.raises(TypeError, match="expected a DataLoader, a Dataset or a tuple"):
            fit(network(), wrong)
    with pytest.raises(TypeError, match="expected batches of inputs and a target"):
        fit(network(), DataLoader(x))
    with pytest.raises(ValueError, match="there were no batches"):
        fit(network(), [])


def test_several_inputs_and_a_mean_by_samples(rng):
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(minigrad.ones(()))

        def forward(self, a, b):
            return self.scale * (a + b)

    a, b = minigrad.arange(5.0), minigrad.ones(5)
    history = fit(
        Two(),
        (a, b, minigrad.zeros(5)),
        loss=nn.MSELoss(),
        optimizer=optim.SGD([nn.Parameter(minigrad.ones(()))], lr=0.1),
        batch_size=2,  # batches of 2, 2 and 1
        metrics={"sum": lambda output, target: output.mean()},
    )
    assert history["loss"] == [pytest.approx(sum((i + 1) ** 2 for i in range(5)) / 5)]
    assert history["sum"] == [pytest.approx(3)]


def test_a_loss_that_is_not_finite(rng):
    with pytest.raises(FloatingPointError, match="the loss became nan in batch 1 of epoch 1"):
        fit(network(), points(rng), loss=lambda output, target: output.sum() * math.nan)


@pytest.mark.parametrize("patience", [1, 3])
def test_early_stopping(patience, rng):
    """The loss of validation is given: it improves up to the third epoch."""
    values = iter([3.0, 2.0, 1.0, 1.5, 1.0, 2.0, 0.5])
    model, seen = network(), []

    class Keep(Callback):
        def on_epoch_end(self, fit):
            fit.history.rows[-1]["valid_loss"] = next(values)
            seen.append(fit.model[0].weight.sum().item())

    stopping = EarlyStopping(patience=patience, restore_best=True)
    history = fit(model, points(rng), epochs=10, callbacks=[Keep(), stopping])
    assert len(history) == 3 + patience and stopping.best_epoch == 3 and stopping.best == 1.0
    assert model[0].weight.sum().item() == seen[2] != seen[-1]
    with pytest.raises(KeyError, match="no column 'recall'"):
        fit(network(), points(rng), callbacks=[EarlyStopping("recall")])


def test_schedulers(rng):
    for every, count in (("epoch", 2), ("batch", 6)):
        model = network()
        optimizer = optim.SGD(model.parameters(), lr=1.0)
        scheduler = optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
        fit(
            model,
            points(rng),
            optimizer=optimizer,
            scheduler=scheduler,
            scheduler_every=every,
            epochs=2,
            batch_size=20,
        )
        assert optimizer.param_groups[0]["lr"] == 0.5**count
    optimizer = optim.SGD(model.parameters(), lr=1.0)
    plateau = optim.lr_scheduler.ReduceLROnPlateau(
        optimizer, patience=0, threshold=1e9, threshold_mode="abs"
    )
    history = fit(model, points(rng), optimizer=optimizer, scheduler=plateau, epochs=3)
    np.testing.assert_allclose(history["lr"], [1, 1, 0.1])


def test_logs_and_plots(rng, tmp_path):
    callbacks = [
        CSVLogger(tmp_path / "log.csv"),
        TensorBoard(tmp_path / "board"),
        Plot(tmp_path / "curves.png"),
        Checkpoint(tmp_path / "run.pt", best=tmp_path / "best.pt"),
    ]
    data, model = points(rng), network()
    history = fit(model, data, valid=data, epochs=2, metrics=[accuracy], callbacks=callbacks)
    rows = (tmp_path / "log.csv").read_text().splitlines()
    names = "epoch,loss,accuracy,valid_loss,valid_accuracy,lr,seconds"
    assert rows[0] == names and rows[2].split(",")[1] == repr(history["loss"][1])
    (board,) = (tmp_path / "board").iterdir()
    content = board.read_bytes()
    for name in ("loss", "valid_accuracy"):
        entry = bytes([len(name)]) + name.encode() + b"\x15"
        assert entry + struct.pack("<f", history[name][1]) in content
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert history["valid_loss"][1] < history["valid_loss"][0]
    best = minigrad.load(tmp_path / "best.pt")
    assert all(minigrad.equal(best[name], value) for name, value in model.state_dict().items())
    assert str(History(history.rows[:1])).startswith("epoch 1  loss 0.")


def test_resume_checks_what_it_is_given(rng, tmp_path):
    data, path = points(rng), tmp_path / "run.pt"
    model = network()
    fit(model, data, epochs=2, callbacks=[Checkpoint(path)])
    again = network(1)
    history = fit(again, data, epochs=3, callbacks=[Checkpoint(path)])
    assert len(history) == 3
    finished = fit(network(2), data, epochs=3, callbacks=[Checkpoint(path)])
    assert finished.rows == history.rows  # nothing was left to do
    assert len(fit(network(), data, epochs=1, callbacks=[Checkpoint(path, resume=False)])) == 1
    with pytest.raises(ValueError, match="a run with 1 callbacks, this one has 2"):
        fit(network(), data, callbacks=[Checkpoint(path), CSVLogger(tmp_path / "log.csv")])
    with pytest.raises(RuntimeError, match="size mismatch for 0.weight"):
        fit(
            nn.Sequential(nn.Linear(3, 9), nn.Tanh(), nn.Linear(9, 2)),
            data,
            callbacks=[Checkpoint(path)],
        )


def batches_until_the_end(every, rng):
    """After how many of 8 batches per epoch a run ends: there is a checkpoint by then."""
    return int(rng.integers(4 if every else 9, 14))


def same_results(whole, other):
    """The history, the sums of the parameters and the log, to the last digit."""
    results = [json.loads((folder / "result.json").read_text()) for folder in (whole, other)]
    assert results[0] == results[1]
    logs = [(folder / "log.csv").read_text().splitlines() for folder in (whole, other)]
    first, second = ([row.rpartition(",")[0] for row in log] for log in logs)  # not the seconds
    assert first == second and len(first) == 5


@pytest.mark.parametrize("every", [0, 3])
def test_an_interrupted_run_goes_on_with_the_same_losses(every, rng, tmp_path, capsys):
    """Interrupted twice, at random batches; 4 epochs of 8 batches."""
    whole, other = tmp_path / "whole", tmp_path / "other"
    whole.mkdir(), other.mkdir()
    program.main(whole, 0, every)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            program.main(other, 0, every, batches_until_the_end(every, rng))
    capsys.readouterr()
    program.main(other, 0, every)
    assert len(capsys.readouterr().out.splitlines()) < 32
    same_results(whole, other)


def start(folder, workers, every):
    folder.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "tests.training.program", folder, str(workers), str(every)]
    environment = os.environ | {"MINIGRAD_BACKEND": "numpy"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def printed(process):
    """The lines that a process still prints, which must end well."""
    lines = process.communicate(timeout=60)[0].splitlines()
    assert process.returncode == 0
    return lines


@pytest.mark.slow  # four processes
@pytest.mark.parametrize(("workers", "every"), [(0, 0), (0, 3), (2, 3)])
def test_a_killed_run_goes_on_with_the_same_losses(workers, every, rng, tmp_path):
    """Killed twice, at random batches."""
    whole, other = tmp_path / "whole", tmp_path / "other"
    assert len(printed(start(whole, workers, every))) == 32
    for _ in range(2):
        process = start(other, workers, every)
        for _ in range(batches_until_the_end(every, rng)):
            assert process.stdout.readline()
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
    assert len(printed(start(other, workers, every))) < 32
    same_results(whole, other)


@pytest.mark.gpu
def test_the_gpu_is_chosen_where_there_is_one(rng):
    """Out of pinned batches; the losses are those of the CPU."""
    data, losses = points(rng, 20), []
    for device in (None, "cpu"):
        model = network()
        loader = DataLoader(TensorDataset(*data), 8, pin_memory=device is None)
        with backends.use("numba" if device is None else "numpy"):
            history = fit(model, loader, epochs=2, device=device)
        assert model[0].weight.device.type == (device or "cuda")
        losses.append(history["loss"])
    np.testing.assert_allclose(*losses, rtol=1e-5)
