"""`minigrad.distributed` with 2 and 4 ranks: values, training, and what goes wrong in one rank."""

from __future__ import annotations

import re
import subprocess
import sys
import time

import numpy as np
import pytest

from tests.distributed import launch
from tests.distributed.launch import start

PROGRAMS = launch.FOLDER / "programs.py"
pytestmark = pytest.mark.needs("mpi4py")


def run(ranks: int, *arguments: str) -> str:
    return launch.run(ranks, "programs.py", *arguments)


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("name", ["collectives", "messages", "groups"])
def test_values(name, ranks):
    run(ranks, name)


@pytest.mark.parametrize("name", ["buffers", "sampler", "batch_norm", "gradients"])
def test_with_two_ranks(name):
    run(2, name)


def losses(printed: str) -> list[float]:
    return [float(value) for value in re.findall(r"loss \d+ (\S+)", printed)]


@pytest.fixture(scope="module")
def alone() -> list[float]:
    done = subprocess.run(
        [sys.executable, str(PROGRAMS), "train"], capture_output=True, text=True, check=True
    )
    return losses(done.stdout)


@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_with_parts_of_the_batch_give_the_losses_of_one(ranks, alone):
    assert len(alone) == 6
    assert alone[-1] < alone[0] / 2
    np.testing.assert_allclose(losses(run(ranks, "train")), alone, rtol=1e-5)


def test_no_sync_accumulates(alone):
    np.testing.assert_allclose(losses(run(2, "train", "", "2")), alone, rtol=1e-5)


def test_sixteen_bits_are_enough_for_gradients(alone):
    found = losses(run(2, "train", "bf16"))
    np.testing.assert_allclose(found, alone, rtol=0.02)
    assert found != alone


def test_the_largest_quarter_of_the_gradients_learns_too(alone):
    found = losses(run(2, "train", "topk"))
    assert found[-1] < found[0] / 2


def test_unused_parameters():
    run(2, "unused", "find")
    done = start(2, str(PROGRAMS), "unused")
    assert done.returncode != 0
    assert "did not contribute to the loss: module.parts.b.bias" in done.stderr.replace(
        "parts.b.bias, parts.b.weight", "module.parts.b.bias"
    ).replace("parts.b.weight, parts.b.bias", "module.parts.b.bias")


# --- mistakes


@pytest.mark.parametrize(
    ("what", "texts"),
    [
        ("shape", ["all_reduce(SUM) float32 (3,)", "all_reduce(SUM) float32 (4,)"]),
        ("dtype", ["all_reduce(SUM) float32 (3,)", "all_reduce(SUM) float64 (3,)"]),
        ("skipped", ["rank 0: all_reduce(SUM)", "rank 1: barrier"]),
        ("network", ["broadcast from rank 0 of float32 (1, 2)", "(1, 3)"]),
    ],
)
def test_ranks_that_disagree_are_told_who_called_what(what, texts):
    printed = run(2, "disagree", what)
    for rank in range(2):
        said = next(line for line in printed.splitlines() if line.startswith(f"rank {rank} said"))
        assert all(text in said for text in texts), said


def test_a_rank_that_has_ended_is_named():
    assert "rank 1: the end of the program" in run(2, "disagree", "ended")


def test_a_message_of_another_shape_is_refused():
    assert "recv expects float32 (4,), and rank 0 called send of float32 (3,)" in run(
        2, "disagree", "message"
    )


def test_waiting_has_an_end():
    assert "rank 0 of 2 has waited for barrier for 1 s" in run(2, "slow")


@pytest.mark.parametrize("victim", [None, 0, 1])
def test_a_rank_that_dies_ends_all_and_is_named(victim):
    started = time.monotonic()
    arguments = ["fails"] if victim is None else ["killed", str(victim)]
    done = start(4, str(PROGRAMS), *arguments)
    assert done.returncode != 0
    assert time.monotonic() - started < 30
    said = re.findall(r"rank \d .*(?:ended with|has died).*", done.stderr)
    if victim is None:
        assert "rank 1 ended with LookupError: out of cheese" in said[0]  # others may follow
    else:
        (process,) = re.findall(rf"rank {victim} has process (\d+)", done.stdout)
        assert len(said) == 1
        assert f"rank {victim} of 4 (process {process} on " in said[0]


def test_another_number_of_ranks_than_expected(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "3")
    done = start(2, str(PROGRAMS), "sampler")
    assert "start the program with mpiexec -n 3" in done.stderr


def test_the_command_line_trains_with_ranks():
    options = ["-m", "minigrad", "train", "--distributed", "--epochs", "1", "--model", "mlp"]
    done = start(2, *options, "--device", "cpu")
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("epoch   1/1") == 1
    (accuracy,) = re.findall(r"test accuracy (\S+)%", done.stdout)
    assert float(accuracy) > 80
