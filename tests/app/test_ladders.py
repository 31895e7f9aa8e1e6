"""`minigrad bench cpu`: what it measures is checked first, and it goes on where it stopped."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = str(ROOT / "benchmarks" / "ladders.py")


@pytest.fixture
def ladders():
    from benchmarks import ladders

    yield ladders
    if torch := sys.modules.get("torch"):  # whose gradients a benchmark turns off
        torch.set_grad_enabled(True)


@pytest.fixture
def transpose(ladders):
    problem = next(p for p in ladders.PROBLEMS if p.operation == "transpose")
    return problem._replace(sizes={"cpu": (70, 33)})


def test_rows_of_versions_and_libraries(ladders, transpose):
    rows = ladders.measured(transpose, ladders.Host(), "float32", 1)
    versions = [(row["by"], row["version"]) for row in rows]
    assert ("Numba", "padded") in versions and ("CUDA C", "naive") in versions
    assert ("NumPy", "") in versions
    assert all(row["right"] for row in rows if "error" in row)
    assert all(row["share"] == row["limit"] / row["time"].median for row in rows)


@pytest.mark.parametrize(
    "fault", [lambda y: 1.001 * y, lambda y: np.where(y == y.max(), np.nan, y), lambda y: y[1:]]
)
def test_a_wrong_result_is_found(ladders, transpose, monkeypatch, fault):
    right = ladders.call_of

    def planted(problem, dialect, version, args):
        run = right(problem, dialect, version, args)
        return (lambda: fault(run())) if version == "tile" else run

    monkeypatch.setattr(ladders, "call_of", planted)
    rows = ladders.measured(transpose, ladders.Host(), "float32", 1)
    wrong = {row["version"] for row in rows if not row.get("right", True)}
    assert wrong == {"tile"}


def test_memory_that_is_not_written_is_found(ladders, transpose, monkeypatch):
    right = ladders.call_of

    def planted(problem, dialect, version, args):
        if version != "tile":
            return right(problem, dialect, version, args)
        return lambda: np.empty((33, 70), np.float32)

    monkeypatch.setattr(ladders, "call_of", planted)
    rows = ladders.measured(transpose, ladders.Host(), "float32", 1)
    assert {row["version"] for row in rows if not row.get("right", True)} == {"tile"}


def test_it_goes_on_where_it_stopped(ladders, transpose, monkeypatch, tmp_path, capsys):
    path = tmp_path / "results.json"
    softmax = next(p for p in ladders.PROBLEMS if p.operation == "softmax")
    softmax = softmax._replace(sizes={"cpu": (3, 5)})
    monkeypatch.setattr(ladders, "PROBLEMS", [transpose, softmax])
    monkeypatch.setattr(ladders.measure, "results_path", lambda name: str(path))
    monkeypatch.setattr(ladders, "measured", lambda problem, *_: [{
        "operation": problem.operation, "dtype": "float32", "size": [1], "limit": 1.0,
        "limited by": "bytes", "by": "Numba", "version": "one", "refused": "a test",
    }])  # fmt: skip
    for minutes, done in (
        ("1e-9", []),
        ("9", ["transpose", "softmax"]),
        ("9", ["transpose", "softmax"]),
    ):
        monkeypatch.setattr(sys, "argv", ["ladders.py", "--json", "--minutes", minutes])
        assert ladders.main() == 0
        rows = json.loads(path.read_text())["rows"] if path.exists() else []
        assert [row["operation"] for row in rows] == done
    assert "the same command goes on" in capsys.readouterr().out


@pytest.mark.needs("numba_cuda")
def test_the_gpu_part_runs_on_the_software_gpu():
    options = ["--device", "gpu", "--software", "--only", "transpose", "--turns", "1"]
    done = subprocess.run(
        [sys.executable, PROGRAM, *options], capture_output=True, text=True, env=os.environ
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "CUDA C  padded" in done.stdout and "WRONG" not in done.stdout
