"""The cache of compiled kernels: reused, never stale, safe for two processes at once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from kernels.simt import cuda
from kernels.simt.store import fingerprint, modules

ROOT = Path(__file__).resolve().parents[3]

HELPER = """
from kernels.simt import cuda


@cuda.jit(device=True)
def change(x):
    return x + 1
"""

PROGRAM = """
import sys

import numpy as np
from numba import int64

import helper
from kernels.simt import cuda

FACTOR = 10


def make(shift):
    @cuda.jit
    def kernel(a):
        tile = cuda.shared.array(32, int64)
        t = cuda.threadIdx.x
        tile[t] = helper.change(a[t]) * FACTOR + shift
        cuda.syncthreads()
        a[t] = tile[31 - t]

    return kernel


a = np.arange(32)
make(7)[1, 32](a)
print(a[31], a[0])
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "helper.py").write_text(HELPER)
    (tmp_path / "program.py").write_text(PROGRAM)
    return tmp_path


def start(folder: Path, kept_in: Path | None = None) -> subprocess.Popen:
    env = {
        **os.environ,
        "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}",
        "MINIGRAD_CACHE_DIR": str(kept_in or folder / "cache"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    return subprocess.Popen(
        [sys.executable, str(folder / "program.py")],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen) -> str:
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return out.strip()


def files(kept_in: Path) -> dict[Path, int]:
    return {p: p.stat().st_mtime_ns for p in kept_in.rglob("*") if p.is_file()}


def test_second_process_compiles_nothing_unless_the_cache_is_damaged(folder):
    assert finish(start(folder)) == "17 327"
    before = files(folder / "cache")
    assert before, "nothing was cached"
    assert finish(start(folder)) == "17 327"
    assert files(folder / "cache") == before
    for path in before:
        path.write_bytes(path.read_bytes()[:20])
    assert finish(start(folder)) == "17 327"
    assert finish(start(folder)) == "17 327"


def test_two_processes_at_once(folder):
    processes = [start(folder) for _ in range(2)]
    assert [finish(p) for p in processes] == ["17 327"] * 2
    assert finish(start(folder)) == "17 327"


def test_a_kernel_that_another_process_compiled_meanwhile(tmp_path, monkeypatch):
    def make():
        @cuda.jit
        def double(a):
            a[cuda.threadIdx.x] *= 2

        return double

    monkeypatch.setenv("MINIGRAD_CACHE_DIR", str(tmp_path))
    a = np.arange(8.0)
    make()[1, 8](a)
    monkeypatch.setattr(modules, "find", lambda name: None)  # looked for before it was there
    make()[1, 8](a)
    np.testing.assert_array_equal(a, 4 * np.arange(8.0))


def test_changes_are_seen(folder):
    """Of a device function, a closure's variable, a global and the kernel: each starts from the
    cache that the one before left."""
    assert finish(start(folder)) == "17 327"
    for file, old, new, expected in [
        ("helper.py", "x + 1", "x + 2", "27 337"),
        ("program.py", "make(7)", "make(8)", "28 338"),
        ("program.py", "FACTOR = 10", "FACTOR = 20", "48 668"),
        ("program.py", "31 - t", "t", "668 48"),
    ]:
        path = folder / file
        stamp = path.stat()
        path.write_text(path.read_text().replace(old, new))
        os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))  # the same time of change
        assert finish(start(folder)) == expected


def test_a_cell_of_a_notebook_is_the_same_in_every_session():
    def made(path: str) -> str:
        namespace: dict = {}
        exec(compile("def f(x):\n    return x + 1\n", path, "exec"), namespace)
        return fingerprint.of(namespace["f"])

    assert made("ipykernel_12/34.py") == made("ipykernel_5/34.py") != made("ipykernel_5/35.py")


def test_cache_folder_that_cannot_be_made(folder):
    blocked = folder / "not_a_folder"
    blocked.write_text("a file where the folder should be")
    assert finish(start(folder, blocked)) == "17 327"
