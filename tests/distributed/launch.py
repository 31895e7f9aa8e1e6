"""How tests start programs with several ranks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent


def command(ranks: int, *arguments: str) -> list[str]:
    """`mpiexec -n RANKS python ARGUMENTS`; one rank starts without mpiexec."""
    mpiexec = [str(Path(sys.executable).with_name("mpiexec")), "-n", str(ranks)]
    return [*(mpiexec if ranks > 1 else []), sys.executable, *arguments]


def settings(**more: str) -> dict[str, str]:
    """The environment of the ranks: one thread each."""
    return {**os.environ, "MINIGRAD_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", **more}


def start(
    ranks: int, *arguments: str, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess:
    """What a program gives that is started with several ranks."""
    return subprocess.run(
        command(ranks, *arguments),
        capture_output=True,
        text=True,
        timeout=240,
        env=settings(**(environment or {})),
    )


def run(ranks: int, program: str, *arguments: str, **options: dict) -> str:
    """What a program of this folder prints. AssertionError with its output where it fails."""
    done = start(ranks, str(FOLDER / program), *arguments, **options)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout
