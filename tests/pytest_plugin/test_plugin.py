"""The pytest plugin on a small project of its own: off unless asked for, findings fail tests."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from kernels import cupy
from kernels.pytest_plugin import Watcher, compared
from kernels.support import launches

KERNELS = '''
import cupy as cp
import numpy as np
from numba import cuda, float32


@cuda.jit
def transpose(x, out):
    tile = cuda.shared.array((32, PITCH), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    tile[ty, tx] = x[ty, tx]
    cuda.syncthreads()
    out[ty, tx] = tile[tx, ty]


@cuda.jit
def racing(x, out):
    tile = cuda.shared.array(64, float32)
    i = cuda.threadIdx.x
    tile[i] = x[i]
    out[i] = tile[63 - i]


@cuda.jit
def outside(x):
    x[cuda.grid(1)] = 1


@cuda.jit
def unset(out):
    tile = cuda.shared.array(64, float32)
    out[cuda.threadIdx.x] = tile[cuda.threadIdx.x]


@cuda.jit
def divergent(out):
    i = cuda.threadIdx.x
    if i < 40:
        cuda.syncthreads()
    out[i] = i


@cuda.jit(debug=True, opt=False)
def refuses(x):
    if cuda.grid(1) == 3:
        raise ValueError("the third")
    x[cuda.grid(1)] += 1


scaled = cp.RawModule(code="""__constant__ float factor; __device__ int calls = 5;
extern "C" __global__ void scaled(float* x) {
    x[threadIdx.x] *= factor;
    if (threadIdx.x == 0) calls++;
}""")
largest = cp.RawKernel(r"""extern "C" __global__ void largest(const int* x, int* out) {
    int old = *out, assumed;
    do {
        assumed = old;
        old = atomicCAS(out, assumed, max(assumed, x[threadIdx.x]));
    } while (assumed != old);
}""", "largest")
shift = cp.RawKernel(r"""extern "C" __global__ void shift(float* x, int n) {
    int i = threadIdx.x;
    if (i < n) x[i] = x[i + 1];
}""", "shift")
'''
TESTS = """
import pytest
from program import *


def test_transpose():
    x = cp.arange(1024, dtype=cp.float32).reshape(32, 32)
    out = cp.empty_like(x)
    transpose[1, (32, 32)](x, out)
    assert cp.array_equal(out, x.T)


def test_racing():
    racing[1, 64](cp.ones(64, cp.float32), cp.empty(64, cp.float32))


def test_outside():
    outside[2, 32](cp.zeros(40))


def test_unset():
    unset[1, 64](cp.empty(64, cp.float32))


def test_divergent():
    divergent[1, 64](cp.empty(64))


def test_an_expected_error():
    x = np.zeros(8)
    with pytest.raises(ValueError, match="the third"):
        refuses[1, 8](x)
    assert x.max() <= 1
    with pytest.raises(IndexError):
        refuses[1, 3](x[:2])


def test_variables_of_a_module():
    factor = cp.ndarray(1, cp.float32, scaled.get_global("factor"))
    factor[0] = 3
    x = cp.ones(4, cp.float32)
    scaled.get_function("scaled")((1,), (4,), (x,))
    scaled.get_function("scaled")((1,), (4,), (x,))
    assert x.get().tolist() == [9] * 4
    assert int(cp.ndarray(1, cp.int32, scaled.get_global("calls"))[0]) == 7


def test_a_loop_around_a_compare_and_swap():
    out = cp.zeros(1, cp.int32)
    largest((1,), (64,), (cp.arange(64, dtype=cp.int32), out))
    assert int(out[0]) == 63


def test_shift():
    shift((1,), (64,), (cp.ones(64, cp.float32), 64))
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "program.py").write_text(KERNELS.replace("PITCH", "33"))
    (tmp_path / "test_program.py").write_text(TESTS)
    return tmp_path


def run(project: Path, *options: str) -> subprocess.CompletedProcess:
    plain = {k: v for k, v in os.environ.items() if k != "MINIGRAD_INSTALL"}
    plugins = ["-p", "kernels.pytest_plugin", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", "-q", "-n0", *plugins, *options]
    return subprocess.run(command, capture_output=True, text=True, env=plain, cwd=project)


def test_checks_find_planted_bugs(project):
    done = run(project, "--cuda=cpu", "--cuda-check=bounds,races,uninitialised,barriers")
    out = done.stdout
    assert "5 failed, 4 passed" in out, out + done.stderr
    assert "racing: race: shared tile" in out and "block (0, 0, 0) thread (" in out
    assert "tile[i] = x[i]" in out and "fix: cuda.syncthreads()" in out
    assert "outside: bounds:" in out and "x[cuda.grid(1)] = 1" in out
    assert "unset: uninitialised:" in out
    assert "divergent: barrier:" in out
    assert "shift: bounds:" in out and "x[i] = x[i + 1];" in out


@pytest.mark.slow
def test_checks_that_are_not_asked_for_find_nothing(project):
    done = run(project, "--cuda=cpu", "--cuda-check=barriers", "-k", "racing or unset")
    assert "2 passed" in done.stdout, done.stdout


def test_wrong_options_are_refused(project):
    done = run(project, "--cuda-check=races")
    assert done.returncode == 4 and "need --cuda=cpu" in done.stderr
    done = run(project, "--cuda=cpu", "--cuda-check=rases")
    assert done.returncode == 4 and "'rases' is none of bounds, races" in done.stderr


@pytest.mark.slow
def test_costs_are_compared_from_commit_to_commit(project):
    options = ("--cuda=cpu", "-k", "transpose")
    done = run(project, *options, "--cuda-report=before")
    assert "1 passed" in done.stdout, done.stdout + done.stderr
    (row,) = json.loads((project / "before" / "costs.json").read_text()).values()
    assert row["launches"] == 1 and row["sectors"] == row["ideal_sectors"] == 256
    assert row["wavefronts"] == row["ideal_wavefronts"] == 64
    assert "tile[tx, ty]" in (project / "before" / "transpose.html").read_text()
    (project / "program.py").write_text(KERNELS.replace("PITCH", "32"))
    done = run(project, *options, "--cuda-baseline=before/costs.json")
    assert "shared memory: 1.00 -> 16.50 wavefronts per ideal one, WORSE" in done.stdout


@pytest.mark.parametrize("step, sectors", [(1, 4 + 4), (2, 8 + 4)])
def test_strides_of_an_expression_are_no_traffic(step, sectors):
    """They are a table, which a GPU's kernel has among its parameters."""
    double = cupy.ElementwiseKernel("float32 x", "float32 y", "y = 2 * x", "double_them")
    watcher = Watcher(set())
    launches.watch(watcher)
    try:
        double(cupy.arange(256 * step, dtype=np.float32)[::step])
    finally:
        launches.watch(None)
    (row,) = watcher.costs.values()
    assert row["requests"] == 2 * 8  # 8 warps read x and write y
    assert row["ideal_sectors"] == 8 * (4 + 4) and row["sectors"] == 8 * sectors


def test_what_changed_between_two_runs_is_named():
    assert compared({}, {}) == ["no kernel's accesses to memory changed"]
    row = dict(requests=32, sectors=128, wavefronts=64, ideal_wavefronts=64)
    before = {"test.py::test::k": row, "gone": row}
    assert compared(before, before) == ["no kernel's accesses to memory changed"]
    (line,) = compared(before, {"test.py::test::k": {**row, "sectors": 1024}})
    assert line == "test.py::test::k: global memory: 4.00 -> 32.00 sectors per request, WORSE"


def test_modules_of_this_project_are_imported_as_they_are_written():
    """pytest rewrites asserts, and adds such a name where it does."""
    module = importlib.import_module("minigrad.tensor")
    assert "@pytest_ar" in globals() and "@pytest_ar" not in vars(module)
