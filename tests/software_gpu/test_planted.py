"""`pytest -m gpu --gpu=software` finds faults that only a GPU has."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.needs("numba_cuda", "cuda.bindings")
def test_planted_faults_are_found():
    planted = HERE / "planted.py"
    command = [sys.executable, "-m", "pytest", "-q", "-n0", "-m", "gpu", "--gpu=software", "-rA"]
    command.append(str(planted))
    done = subprocess.run(command, capture_output=True, text=True, cwd=HERE.parents[1])
    outcomes = {n: how for how, n in re.findall(r"^(\w+) \S+::(\w+)", done.stdout, re.M)}
    names = re.findall(r"^def (test_\w+)", planted.read_text(), re.M)
    expected = {name: "PASSED" if "no_fault" in name else "FAILED" for name in names}
    assert outcomes == expected, done.stdout[-5000:]
    for text in ("misaligned read of 16 bytes", "not in the mask", "grid.y is 65536"):
        assert text in done.stdout, text
