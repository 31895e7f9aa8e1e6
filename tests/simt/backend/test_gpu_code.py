"""Kernels compiled for a GPU are kept on disk: found again, never stale, safe for two processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernels.support import cache

pytestmark = pytest.mark.needs("numba_cuda", "cuda.bindings")

ROOT = Path(__file__).resolve().parents[3]
HELPER = """
from kernels.simt import cuda


@cuda.jit(device=True)
def change(x):
    return x + {}
"""
# Prints how many kernels were compiled, what they computed, and their names in the cache. Its own
# path is part of these names, so that they are new in each run of the test.
PROGRAM = """
from tests import software_gpu

software_gpu.install("8.0")

import cupy
from helper import change
from kernels.simt import cuda
from kernels.simt.backend import gpu_code

compiled, real = [], gpu_code._compiled
gpu_code._compiled = lambda *args: compiled.append(args) or real(*args)


def make(shift):
    @cuda.jit
    def kernel(a, n):
        a[cuda.threadIdx.x] = change(a[cuda.threadIdx.x]) * n + shift

    return kernel


values, names = [], []
for shift, dtype in ((7, "int64"), (7, "float32"), (8, "float32")):
    a, kernel = cupy.arange(32).astype(dtype), make(shift)
    for block in (16, 32):
        kernel.bind_on_gpu(1, block, a, 2)(a, 2)
    values.append(a[31].item())
    names.append(gpu_code._name(kernel, "80", ((dtype, 1), ("int64",))))
assert names[0] != gpu_code._name(make(7), "90", (("int64", 1), ("int64",)))
print(len(compiled), values, *names, sep=";")
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "helper.py").write_text(HELPER.format(1))
    (tmp_path / "program.py").write_text(PROGRAM)
    return tmp_path


def start(folder: Path) -> subprocess.Popen:
    path = os.pathsep.join([str(folder), str(ROOT), os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen(
        [sys.executable, str(folder / "program.py")],
        env=os.environ | {"PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen) -> tuple[int, str, list[Path]]:
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    count, values, *names = out.strip().split(";")
    return int(count), values, [cache.cache_folder() / name for name in names]


def test_a_second_process_compiles_nothing_unless_something_changed(folder):
    values = "[71, 71.0, 72.0]"
    count, got, first = finish(start(folder))
    assert (count, got, len(set(first))) == (3, values, 3)
    assert finish(start(folder)) == (0, values, first)

    changed, strange, cut = first
    assert b", 7;" in changed.read_bytes()
    changed.write_bytes(changed.read_bytes().replace(b", 7;", b", 9;"))
    cut.write_bytes(cut.read_bytes()[:-20])
    cache.keep(strange.name, strange.read_bytes().partition(b"\n")[0] + b"\nnot code")
    processes = [start(folder) for _ in range(2)]
    ended = [finish(process) for process in processes]
    assert sum(count for count, *_ in ended) == 3  # one waits for what the other makes
    assert [rest for _, *rest in ended] == [[values, first]] * 2
    assert finish(start(folder)) == (0, values, first)

    (folder / "helper.py").write_text(HELPER.format(2))
    count, got, others = finish(start(folder))
    assert (count, got) == (3, "[73, 73.0, 74.0]") and not set(others) & set(first)
    for path in (*first, *others):
        cache.discard(path.name)
        path.unlink()
