"""The names of benchmarks/api.tsv: those that were missing when this was written may get fewer."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MISSING: tuple[str, ...] = ()


def test_no_name_is_lost():
    """In a process of its own: importing `benchmarks` changes where modules are found."""
    command = [sys.executable, "-m", "benchmarks.torch_names", "--missing"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True)
    missing = re.findall(r"^ *\d+ (\S+)  \(\d+ programs\)$", done.stdout, re.MULTILINE)
    assert done.stdout.startswith(f"{426 - len(missing)} of 426 names exist\n")
    assert {*missing} <= {*MISSING}
