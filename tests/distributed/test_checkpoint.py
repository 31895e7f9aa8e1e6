"""Checkpoints: restarts with other numbers of ranks, interrupted saves, damaged files."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import minigrad as torch
from minigrad import nn
from minigrad.distributed import checkpoint
from minigrad.distributed.checkpoint import CheckpointException, Shard, saving
from minigrad.distributed.checkpoint import state_dict as states
from tests.distributed.launch import FOLDER, command, run, settings

RESTART = str(FOLDER / "restart.py")
SETTINGS = {"PYTHONPATH": str(FOLDER.parents[1])}


def losses(printed: str) -> dict[int, float]:
    return {int(step): float(loss) for step, loss in re.findall(r"loss (\d+) (\S+)", printed)}


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory) -> dict[int, float]:
    folder = str(tmp_path_factory.mktemp("alone"))
    return losses(run(1, "restart.py", "ddp", folder, environment=SETTINGS))


def start_and_kill(ranks: int, victim: int, *arguments: str) -> tuple[str, str]:
    """Start a program, kill a rank after "loss 4": what it has printed."""
    with subprocess.Popen(
        command(ranks, RESTART, *arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=settings(**SETTINGS),
    ) as program:
        printed = ""
        while "loss 4" not in printed:
            line = program.stdout.readline()
            assert line, program.stderr.read()
            printed += line
        (process,) = re.findall(rf"rank {victim} has process (\d+)", printed)
        killed = time.monotonic()
        os.kill(int(process), signal.SIGKILL)
        rest, errors = program.communicate(timeout=60)
        assert time.monotonic() - killed < 20
        assert program.returncode != 0
        assert f"rank {victim} of {ranks} (process {process} on " in errors
    return printed + rest, errors


@pytest.mark.needs("mpi4py")
@pytest.mark.parametrize(
    ("way", "ranks", "then", "after"),
    [
        ("ddp", 2, "ddp", 1),
        ("zero", 2, "zero", 3),
        ("fsdp", 3, "fsdp", 2),
        ("tensor", 2, "tensor", 3),
        ("tensor", 2, "fsdp", 2),
    ],
)
def test_a_killed_run_goes_on_with_the_same_losses(
    way, ranks, then, after, uninterrupted, tmp_path
):
    printed, _ = start_and_kill(ranks, 1, way, str(tmp_path), "waits")
    first = losses(printed)
    assert list(first) == [0, 1, 2, 3, 4]
    rest = losses(run(after, "restart.py", then, str(tmp_path), environment=SETTINGS))
    assert list(rest) == [4, 5, 6, 7]  # the fifth step was not saved
    both = first | rest
    np.testing.assert_allclose(
        [both[step] for step in range(8)], list(uninterrupted.values()), rtol=2e-6
    )
    folders = sorted(path.name for path in tmp_path.iterdir())
    assert folders == ["step-00000006", "step-00000008"]  # two are kept


@pytest.mark.needs("mpi4py")
@pytest.mark.parametrize(
    ("what", "text"),
    [
        ("full", "rank 1: no space left"),
        ("shape", "all ranks: x has shape (3,) float32 on rank 0, and (4,) float32 on rank 1"),
        (
            "values",
            "all ranks: x has other values on rank 1 than on rank 0: the ranks have diverged",
        ),
        ("load", "rank 1: the checkpoint is of another model, optimiser or state: 'x' has shape"),
    ],
)
def test_what_one_rank_cannot_do_is_an_error_on_all(what, text, tmp_path):
    printed = run(2, "programs.py", "cannot_save", what, str(tmp_path))
    for rank in range(2):
        (said,) = re.findall(rf"rank {rank} said: (.*)", printed)
        assert text in said
    if what != "load":
        assert not (tmp_path / "index.pt").exists()


@pytest.mark.needs("mpi4py")
def test_buffers_are_those_of_the_first_rank(tmp_path):
    run(2, "programs.py", "running_means", str(tmp_path))


# --- what goes wrong; one process is enough


def trained(seed: int = 0, width: int = 5) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(4, width), nn.BatchNorm1d(width), nn.Linear(width, 1))
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.1)
    net(torch.randn(8, 4)).sum().backward()
    optimizer.step()
    return net, optimizer


def state_of(net: nn.Module, optimizer: torch.optim.Optimizer) -> dict:
    model, optim = states.get_state_dict(net, optimizer)
    return {"model": model, "optim": optim, "step": 7, "pair": (1, None)}


def flat(net: nn.Module, optimizer: torch.optim.Optimizer) -> np.ndarray:
    entries = optimizer.state_dict()["state"].values()
    parts = [*net.state_dict().values(), *(t for entry in entries for t in entry.values())]
    return np.concatenate([part.numpy().reshape(-1).astype(np.float64) for part in parts])


@pytest.fixture
def folder(tmp_path) -> Path:
    checkpoint.save(state_of(*trained()), checkpoint_id=tmp_path / "one")
    return tmp_path / "one"


def test_loading_restores_all_in_place(folder):
    net, optimizer = trained(1)
    state = state_of(net, optimizer)
    state["step"] = state["pair"] = None
    weight = net[0].weight._array
    checkpoint.load(state, checkpoint_id=folder)
    states.set_state_dict(
        net, optimizer, model_state_dict=state["model"], optim_state_dict=state["optim"]
    )
    assert net[0].weight._array is weight
    assert (state["step"], state["pair"]) == (7, (1, None))
    np.testing.assert_array_equal(flat(net, optimizer), flat(*trained()))


def test_an_optimiser_without_a_step_is_loaded_too(folder):
    net, _ = trained(1)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.5)
    state = state_of(net, optimizer)
    checkpoint.load(state, checkpoint_id=folder)
    states.set_optimizer_state_dict(net, optimizer, state["optim"])
    assert optimizer.param_groups[0]["lr"] == 0.1
    np.testing.assert_array_equal(flat(net, optimizer), flat(*trained()))
    with pytest.raises(NotImplementedError, match="LBFGS has no state by parameter"):
        states.get_optimizer_state_dict(net, torch.optim.LBFGS(net.parameters()))


def test_objects_with_a_state_and_dtypes(tmp_path):
    rng = np.random.default_rng(0)
    dtypes = ("float64", "float32", "float16", "bfloat16", "int64", "int8", "bool")
    made = {
        f"{name}{shape}": torch.tensor(rng.integers(0, 2, shape)).to(getattr(torch, name))
        for name in dtypes
        for shape in ((), (0,), (3, 5))
    }
    net = trained()[0]
    saved = {"net": net, "list": [torch.ones(2), {"deep": 3}], "tensors": made}
    checkpoint.save(saved, checkpoint_id=tmp_path)
    other, fresh = trained(1)[0], {name: torch.zeros_like(value) for name, value in made.items()}
    state = {"net": other, "list": [torch.zeros(2), {"deep": 0}], "tensors": fresh}
    checkpoint.load(state, checkpoint_id=tmp_path)
    for name, value in made.items():
        np.testing.assert_array_equal(fresh[name].numpy(), value.numpy())
    assert state["list"][0].tolist() == [1, 1]
    assert state["list"][1] == {"deep": 3}
    np.testing.assert_array_equal(other[0].weight.detach().numpy(), net[0].weight.detach().numpy())
    view = torch.zeros(5, 3).t()  # not contiguous
    checkpoint.load({"tensors": {"float32(3, 5)": view}}, checkpoint_id=tmp_path)
    np.testing.assert_array_equal(view.numpy(), made["float32(3, 5)"].numpy())


def test_parts_of_a_tensor_are_loaded_from_a_whole_one(tmp_path):
    checkpoint.save({"x": torch.arange(12.0).reshape(3, 4)}, checkpoint_id=tmp_path)
    part = Shard(torch.zeros(5), (3, 4), 6)
    checkpoint.load({"x": part}, checkpoint_id=tmp_path)
    assert part.tensor.tolist() == [6, 7, 8, 9, 10]
    with pytest.raises(CheckpointException, match="no rank has the elements 0 to 6"):
        checkpoint.save({"x": part}, checkpoint_id=tmp_path)


def test_parts_along_another_dimension(tmp_path):
    """Columns in two blocks, as a rank of two has them."""
    rng = np.random.default_rng(0)
    whole = torch.tensor(rng.standard_normal((3, 8, 2)))
    columns = whole.movedim(1, 0)
    starts = [0, 2, 4, 6]
    shards = tuple(Shard(columns[at : at + 2], (3, 8, 2), at * 6, 1) for at in starts)
    checkpoint.save({"x": shards, "y": whole}, checkpoint_id=tmp_path)
    back = {"x": torch.zeros(3, 8, 2).double(), "y": torch.zeros(3, 8, 2).double()}
    checkpoint.load(back, checkpoint_id=tmp_path)
    np.testing.assert_array_equal(back["x"].numpy(), whole.numpy())
    for name in ("x", "y"):  # stored by columns, by rows
        mine = torch.zeros(3, 4, 2).double()
        moved = mine.movedim(1, 0)
        blocks = (Shard(moved[:2], (3, 8, 2), 12, 1), Shard(moved[2:], (3, 8, 2), 36, 1))
        checkpoint.load({name: blocks}, checkpoint_id=tmp_path)
        np.testing.assert_array_equal(mine.numpy(), whole.numpy()[:, [2, 3, 6, 7]])


def test_a_save_that_fails_leaves_the_former_one(folder, monkeypatch):
    before = sorted(path.name for path in folder.iterdir())
    monkeypatch.setattr(saving.os, "fsync", lambda handle: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(CheckpointException, match="save: .*one: full"):
        checkpoint.save(state_of(*trained(1)), checkpoint_id=folder)
    monkeypatch.undo()
    net, optimizer = trained(2)
    checkpoint.load(state_of(net, optimizer), checkpoint_id=folder)
    np.testing.assert_array_equal(flat(net, optimizer), flat(*trained()))
    assert set(before) < {path.name for path in folder.iterdir()}
    checkpoint.save(state_of(*trained(1)), checkpoint_id=folder)
    assert len(list(folder.iterdir())) == 2  # the next one that ends removes what was left


def test_a_process_that_is_killed_in_a_save_leaves_the_former_one(tmp_path):
    text = f"""
import os, signal
import minigrad as torch
from minigrad.distributed import checkpoint
from minigrad.distributed.checkpoint import saving
checkpoint.save({{"x": torch.ones(3)}}, checkpoint_id={str(tmp_path)!r})
saving._write_index = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
checkpoint.save({{"x": torch.zeros(3)}}, checkpoint_id={str(tmp_path)!r})
"""
    done = subprocess.run([sys.executable, "-c", text], env=settings(**SETTINGS), check=False)
    assert done.returncode == -signal.SIGKILL
    assert len(list(tmp_path.iterdir())) == 3
    x = torch.full((3,), 5.0)
    checkpoint.load({"x": x}, checkpoint_id=tmp_path)
    assert x.tolist() == [1, 1, 1]


def _tear(folder: Path) -> None:
    (path,) = folder.glob("rank-0.*")
    path.write_bytes(path.read_bytes()[:-3])


def _flip(folder: Path) -> None:
    (path,) = folder.glob("rank-0.*")
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)


def _lose(folder: Path) -> None:
    (path,) = folder.glob("rank-0.*")
    path.unlink()


def _mix(folder: Path) -> None:
    checkpoint.save(state_of(*trained(1)), checkpoint_id=folder.parent / "two")
    (own,), (other,) = folder.glob("rank-0.*"), (folder.parent / "two").glob("rank-0.*")
    own.unlink()
    (folder / other.name).write_bytes(other.read_bytes())


def _mix_and_rename(folder: Path) -> None:
    checkpoint.save(state_of(*trained(1)), checkpoint_id=folder.parent / "two")
    (own,), (other,) = folder.glob("rank-0.*"), (folder.parent / "two").glob("rank-0.*")
    own.write_bytes(other.read_bytes())


def _no_index(folder: Path) -> None:
    (folder / "index.pt").unlink()


def _torn_index(folder: Path) -> None:
    content = (folder / "index.pt").read_bytes()
    (folder / "index.pt").write_bytes(content[: len(content) // 2])


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (_tear, r"rank-0\.\w+\.bin is torn: it has \d+ bytes, expected \d+"),
        (_flip, r"rank-0\.\w+\.bin is damaged: the elements of '.*' have another checksum"),
        (_lose, r"the file rank-0\.\w+\.bin of rank 0 is missing$"),
        (_mix, r"of rank 0 is missing; rank-0\.\w+\.bin is of another save: files are mixed"),
        (_mix_and_rename, "is not of this save: files of several saves are mixed"),
        (_no_index, "no index.pt: the save was interrupted before its end"),
        (_torn_index, "index.pt is damaged"),
    ],
)
def test_damage_is_described_and_changes_nothing(damage, text, folder):
    damage(folder)
    net, optimizer = trained(3)
    before = flat(net, optimizer)
    with pytest.raises(CheckpointException, match=text):
        checkpoint.load(state_of(net, optimizer), checkpoint_id=folder)
    if damage is not _flip:
        np.testing.assert_array_equal(flat(net, optimizer), before)


def test_another_model_is_refused(folder):
    with pytest.raises(CheckpointException, match=r"'model.0.weight' has shape \(5, 4\) there, "):
        checkpoint.load(state_of(*trained(0, 6)), checkpoint_id=folder)
    net, optimizer = trained()
    state = state_of(net, optimizer)
    state["model"]["more"] = torch.ones(1)
    with pytest.raises(CheckpointException, match="it has no tensor 'model.more'"):
        checkpoint.load(state, checkpoint_id=folder)
    checkpoint.save({"optim": optimizer}, checkpoint_id=folder)
    fresh = torch.optim.AdamW(net.parameters())
    with pytest.raises(CheckpointException, match="it has 'optim.state.0.exp_avg', which is not"):
        checkpoint.load({"optim": fresh}, checkpoint_id=folder)
    other, _ = trained(0)
    with pytest.raises(ValueError, match="is none of the model's"):
        states.get_optimizer_state_dict(other, optimizer)


def test_a_run_of_another_model_is_not_restored(tmp_path):
    saver = checkpoint.Periodic(tmp_path, *trained(), every=1)
    assert saver.restore() == 0
    assert saver.after_step()
    net = nn.Sequential(nn.Linear(4, 5))
    other = checkpoint.Periodic(tmp_path, net, torch.optim.AdamW(net.parameters()), every=1)
    with pytest.raises(CheckpointException, match="it has 'model.1.weight', which is not here"):
        other.restore()
    with pytest.raises(ValueError, match="every must be a whole number above 0, got 0"):
        checkpoint.Periodic(tmp_path, *trained(), every=0)


def test_arguments(tmp_path):
    with pytest.raises(TypeError, match="expected checkpoint_id= with the path of a folder"):
        checkpoint.save({})
    with pytest.raises(NotImplementedError, match="planner= is not available"):
        checkpoint.load({}, checkpoint_id=tmp_path, planner=1)
    with pytest.raises(CheckpointException, match="there is no such folder"):
        checkpoint.load({}, checkpoint_id=tmp_path / "none")
    with pytest.raises(CheckpointException, match=r"two entries have the name 'a\.b'"):
        checkpoint.save({"a": {"b": 1}, "a.b": 2}, checkpoint_id=tmp_path)
