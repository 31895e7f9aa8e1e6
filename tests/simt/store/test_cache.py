"""The cache of compiled kernels: reused, never stale, safe for two processes at once."""

from __future__ import annotations

import errno
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from kernels.simt import cuda
from kernels.simt.backend import machine_code
from kernels.simt.store import fingerprint, modules
from kernels.support import cache

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


@pytest.mark.parametrize("constant", [math.nan, -math.inf, 0.1], ids=str)
def test_a_kernel_with_any_constant_is_kept(constant):
    """One with a NaN was compiled again by every process."""

    @cuda.jit(debug=False)
    def fill(a):
        a[cuda.grid(1)] = constant

    a = np.zeros(3, np.float32)
    fill[1, 3](a)
    assert np.array_equal(a, np.full(3, constant, np.float32), equal_nan=True)
    assert machine_code.load(fill.specialise((3, 1, 1), (a,)).path) is not None


def test_code_is_kept_once(tmp_path, monkeypatch):
    """By Numba only where it cannot run without Numba: writing it twice takes a hundredth of a
    compilation."""

    @cuda.jit(debug=False)
    def double(a):
        a[cuda.grid(1)] *= 2

    @cuda.jit(debug=True)
    def checked(a):
        a[cuda.grid(1)] *= 2

    monkeypatch.setenv("MINIGRAD_CACHE_DIR", str(tmp_path))
    a = np.ones(3)
    for kernel in (double, checked):
        kernel[1, 3](a)
    assert a.tolist() == [4.0] * 3
    suffixes = {
        kernel: {path.suffix for path in tmp_path.rglob(f"{kernel}_*")}
        for kernel in ("double", "checked")
    }
    assert suffixes["double"] == {".py", ".o", ".sha256"}
    assert {".py", ".nbi", ".nbc"} <= suffixes["checked"] and ".o" not in suffixes["checked"]


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


DAMAGED = """
import numpy as np
import helper
from kernels.simt import cuda

TABLE = np.arange(32)


def kernel(a):
    t = cuda.threadIdx.x
    a[t] = helper.change(a[t]) + cuda.const.array_like(TABLE)[t]


a = np.arange(32)
cuda.jit(kernel)[1, 32](a)
cuda.jit(debug=True)(kernel)[1, 32](a)  # its code is kept by Numba
print(a[31], a.sum())
"""


@pytest.fixture(scope="module")
def kept(tmp_path_factory) -> tuple[Path, str]:
    """A folder with a program and its cache, and what the program prints."""
    folder = tmp_path_factory.mktemp("kept")
    (folder / "helper.py").write_text(HELPER)
    (folder / "program.py").write_text(DAMAGED)
    return folder, finish(start(folder))


def damaged(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 16]) + content[middle + 1 :]


@pytest.mark.parametrize("kind", ["py", "npz", "o", "nbi", "nbc", "sha256"])
def test_a_damaged_file_is_made_again(kept, tmp_path, kind):
    """One wrong bit, whatever it was for: no crash, no other result, and it does not stay."""
    folder, expected = kept
    shutil.copytree(folder / "cache", tmp_path / "cache")
    found = sorted((tmp_path / "cache").rglob(f"*.{kind}"))
    before = [path.read_bytes() for path in found]
    assert before, f"no file of this kind is kept: {kind}"
    for path, content in zip(found, before):
        path.write_bytes(damaged(content))
    assert finish(start(folder, tmp_path / "cache")) == expected
    after = [path.read_bytes() for path in found]
    assert not {*after} & {*map(damaged, before)}
    if kind == "nbc":  # Numba numbers what a process compiles, and here one of two kernels is
        after, before = ([len(content) for content in files] for files in (after, before))
    if kind not in ("nbi", "sha256"):  # these hold times of change, of themselves or of others
        assert after == before


def test_a_full_disk_does_not_stop_a_kernel(tmp_path, monkeypatch):
    """Nor does one that fills up between two files of a kernel."""
    folder = tmp_path / "full"
    monkeypatch.setenv("MINIGRAD_CACHE_DIR", str(folder))
    monkeypatch.setattr(cache, "_substitutes", {})
    move, moved = os.replace, []

    def replace(source, target):
        if folder in Path(target).parents and len(moved) >= room:
            raise OSError(errno.ENOSPC, "No space left on device", str(target))
        moved.append(target)
        move(source, target)

    monkeypatch.setattr(os, "replace", replace)
    for room in (0, 1, 2, 3):
        cache._usable.cache_clear()
        cache._substitutes.clear()
        moved.clear()
        scale = room + 2.5  # a kernel of its own

        @cuda.jit(debug=room % 2 == 1)
        def multiply(a):
            a[cuda.threadIdx.x] *= scale  # noqa: B023

        a = np.ones(8)
        with pytest.warns(UserWarning, match="this process only.*No space left.*MINIGRAD_CACHE"):
            multiply[1, 8](a)
        assert a.tolist() == [scale] * 8
        assert cache.cache_folder() != folder / "kernels"
    cache._usable.cache_clear()


@pytest.mark.skipif(os.name != "posix", reason="modes as on POSIX systems")
def test_a_folder_that_others_can_write_to_is_refused(folder):
    """Code from there would run: another user could have put it there."""
    shared = folder / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    process = start(folder, shared)
    out, err = process.communicate(timeout=120)
    assert out.strip() == "17 327"
    assert "can be written by other users: chmod go-w it" in err
    assert not list(shared.rglob("*.py"))
    shared.chmod(0o755)
    assert finish(start(folder, shared)) == "17 327"
    assert list(shared.rglob("*.py"))


def test_cache_folder_that_cannot_be_made(folder):
    blocked = folder / "not_a_folder"
    blocked.write_text("a file where the folder should be")
    assert finish(start(folder, blocked)) == "17 327"


def test_fingerprints_ask_modules_for_nothing(monkeypatch):
    """A name that `cuda` lacks makes it import Numba's types and look for near names."""
    asked = []
    monkeypatch.setattr(cuda, "__getattr__", asked.append)

    def kernel(out):
        cuda.atomic.add(out, 0, cuda.threadIdx.x)

    fingerprint.of(kernel), fingerprint.names(kernel)
    assert not asked
