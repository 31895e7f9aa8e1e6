"""What mypy finds, counted by package. `python tests/findings.py` writes tests/findings.json.

The counts may only go down: tests/test_types.py compares. They are those with the stubs of the
newest NumPy that Python 3.11 gets; NumPy 2.5, which Python 3.12 on gets, has others.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COUNTS = Path(__file__).with_suffix(".json")
NUMPY = "2.4"


def run_mypy(*paths: str) -> str:
    """The output of mypy, by the options in pyproject.toml, for its packages or for these paths."""
    command = [sys.executable, "-m", "mypy", *paths]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    if done.returncode not in (0, 1):  # 1: it found something
        raise RuntimeError(f"mypy failed: {done.stdout}{done.stderr}")
    return done.stdout


def uncounted() -> str | None:
    """Why the counts do not hold here, or None."""
    installed = metadata.version("numpy")
    if installed.startswith(f"{NUMPY}."):
        return None
    return f"mypy's findings are counted with NumPy {NUMPY}, not {installed}"


def by_package(output: str) -> dict[str, list[str]]:
    """The lines of mypy's output that are errors."""
    found: dict[str, list[str]] = {}
    for line in output.splitlines():
        if match := re.match(r"(.+)/[^/]+\.pyi?:\d+: error: ", line):
            found.setdefault(match[1], []).append(line)
    return found


if __name__ == "__main__":
    if problem := uncounted():
        sys.exit(problem)
    counts = {package: len(lines) for package, lines in sorted(by_package(run_mypy()).items())}
    COUNTS.write_text(json.dumps(counts, indent=2) + "\n")
    print(sum(counts.values()), "findings")
