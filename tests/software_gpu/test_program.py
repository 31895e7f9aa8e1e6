"""`python -m tests.software_gpu PROGRAM` runs a program on the software GPU."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.needs("numba_cuda", "cuda.bindings")
ROOT = Path(__file__).parents[2]

ENDLESS = """
import os, signal, sys, threading
import cupy
from kernels.simt import cuda


@cuda.jit
def forever(x):
    while x[0] == 0:
        pass


x = cupy.zeros(1, "float32")
launch = forever.bind_on_gpu(1, 32, x)
for wait in (cupy.cuda.Device().synchronize, x.get, lambda: x + 1):
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        launch(x)
        wait()
    except KeyboardInterrupt:
        print(sys.argv[1], x.get() + 1)
"""
OUTSIDE = """
import cupy
from kernels.simt import cuda


@cuda.jit
def fill(x):
    x[cuda.threadIdx.x] = 1


x = cupy.zeros(16, "float32")
fill.bind_on_gpu(1, 1024, x)(x)
"""


def run(tmp_path: Path, text: str, *arguments: str) -> subprocess.CompletedProcess:
    program = tmp_path / "program.py"
    program.write_text(text)
    command = [sys.executable, "-m", "tests.software_gpu", str(program), *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)


def test_ctrl_c_ends_a_kernel_and_the_next_call_works(tmp_path):
    done = run(tmp_path, ENDLESS, "interrupted")
    assert done.stdout.splitlines() == ["interrupted [1.]"] * 3, done.stderr
    assert done.returncode == 0


def test_a_fault_that_nothing_waited_for_is_an_error_in_the_end(tmp_path):
    done = run(tmp_path, OUTSIDE)
    assert done.returncode == 1
    assert "on the software GPU: fill: write of 4 bytes" in done.stderr
    assert "after the one of 64 bytes" in done.stderr and "thread (16, 0, 0)" in done.stderr
