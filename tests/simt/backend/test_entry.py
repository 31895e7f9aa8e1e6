"""How Python calls compiled kernels: arguments of every kind, wrong ones, without Numba."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from kernels.simt import cuda
from kernels.simt.backend import entry
from kernels.simt.store import modules

ROOT = Path(__file__).resolve().parents[3]

PROGRAM = """
import math
import sys

import numpy as np

from kernels import cuda


@cuda.jit
def power(a, exponent):
    tile = cuda.shared.array(32, np.float64)
    t = cuda.threadIdx.x
    tile[t] = math.pow(a[t], exponent) + math.exp(np.float32(0))
    cuda.syncthreads()
    a[t] = tile[31 - t]


a = np.arange(32.0)
power[1, 32](a, 2.0)
print(a[0], a[31], "numba" in sys.modules)
"""


@cuda.jit
def scalars(out, i, u, flag, x, y):
    out[0] = i
    out[1] = u
    out[2] = 1.0 if flag else 0.0
    out[3] = x
    out[4] = y


@cuda.jit
def double(a):
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            a[i, j] *= 2


@cuda.jit
def steps(out, step):
    for i in range(0, 4, step):
        out[i] = i


@pytest.mark.parametrize(
    "values",
    [
        (-3, np.uint64(2**63 + 2048), True, np.float32(0.5), 0.25),
        (np.int8(-3), np.uint8(200), np.bool_(False), np.float32(-2), np.float64(1e300)),
        (2**40, 2**63 + 2048, False, 1.5, np.float32(3)),
    ],
    ids=["python", "numpy", "large"],
)
def test_numbers(values):
    out = np.zeros(5)
    scalars[1, 1](out, *values)
    np.testing.assert_array_equal(out, np.array([float(v) for v in values]))


def test_layouts():
    whole = np.arange(24.0).reshape(4, 6)
    views = (whole, whole.T, whole[::2, 1::3], whole[::-1], whole[:, :0], np.asfortranarray(whole))
    for view in views:
        expected = view * 2
        double[1, 1](view)
        np.testing.assert_array_equal(view, expected)


def test_bound_kernel_refuses_what_it_was_not_made_for():
    a = np.ones((2, 2))
    bound = double.bind(1, 1, a)
    refusal = r"double: was compiled for \(a\) = \(float64 array of 2"
    for wrong in [(), (a, a), ([[1.0]],), (np.ones(3),), (None,)]:
        with pytest.raises(TypeError, match=refusal):
            bound(*wrong)
    bound(a.view(np.matrix))  # a derived type is an array too
    np.testing.assert_array_equal(a, np.full((2, 2), 2.0))


def test_number_too_large_is_refused():
    out = np.zeros(5)
    bound = scalars.bind(1, 1, out, 1, 1, True, 1.0, 1.0)
    with pytest.raises(OverflowError):
        bound(out, 2**64, 1, True, 1.0, 1.0)
    with pytest.raises(TypeError):
        bound(out, "one", 1, True, 1.0, 1.0)
    assert not out.any()


def test_kernel_that_raises():
    out = np.zeros(4)
    steps[1, 1](out, 2)
    np.testing.assert_array_equal(out, [0, 0, 2, 0])
    with pytest.raises(ValueError, match="zero"):
        steps[1, 1](out, 0)


@cuda.jit
def looked_up(out, which):
    out[cuda.grid(1)] = (2, 3, 5)[which[cuda.grid(1)]]


def test_kernel_that_may_raise_has_numbas_entry_point():
    out = np.zeros(4)
    looked_up[1, 4](out, np.array([0, 2, -1, -3]))
    np.testing.assert_array_equal(out, [2, 5, 5, 2])
    for outside in (3, -4):
        with pytest.raises(IndexError, match="tuple index"):
            looked_up[1, 1](out, np.array([outside]))


@pytest.mark.parametrize("ends", [(3, 40, 7), (40, 3, -7), (3, 3, 2), (9, 2, 4), (2, 9, -4)])
def test_ranges_whose_steps_an_argument_gives(ends):
    @cuda.jit
    def numbers(out, start, stop, step):
        place = 1
        for i in range(start, stop, step):
            out[place] = i
            place += 1
        out[0] = place - 1
        for i in range(30, -8, -9):
            out[20] = 100 * out[20] + i + 8

    out = np.zeros(21, np.int64)
    numbers[1, 1](out, *ends)
    wanted = list(range(*ends))
    assert out[: len(wanted) + 1].tolist() == [len(wanted), *wanted]
    assert out[20] == 3829201102


@pytest.mark.parametrize("n, wanted", [(5, [0, 1, 2, 3, 4]), (2, [0, 2, 4])])
def test_a_range_whose_step_a_condition_chooses(n, wanted):
    @cuda.jit
    def numbers(out, n):
        step = 1 if n > 3 else 2
        for i in range(0, out.size, step):
            out[i] = 1

    out = np.zeros(5, np.int64)
    numbers[1, 1](out, n)
    assert out.nonzero()[0].tolist() == wanted


def test_second_process_loads_without_numba(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    env = {**os.environ, "PYTHONPATH": str(ROOT), "MINIGRAD_CACHE_DIR": str(tmp_path / "cache")}

    def run() -> str:
        command = [sys.executable, str(program)]
        return subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout

    assert run().split() == ["962.0", "1.0", "True"]
    assert run().split() == ["962.0", "1.0", "False"]
    for stored in (tmp_path / "cache" / "kernels").glob("entry_*.o"):
        stored.write_bytes(stored.read_bytes()[:-1])
    assert run().split() == ["962.0", "1.0", "False"]


def test_the_projects_kernels_load_without_numba(tmp_path):
    """Those that read tuples at a variable's place, and count in steps that they compute."""
    program = """
import numpy as np
from kernels import dispatch
logits = np.zeros((4, 5), np.float32)
dispatch.active.cross_entropy(logits, np.zeros(4, np.int64))
x, g = np.zeros((64, 1, 8, 8), np.float32), np.zeros((64, 8, 8, 8), np.float32)
dispatch.active.conv2d_backward_weight(g, x, (8, 1, 3, 3), padding=(1, 1))
"""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "MINIGRAD_CACHE_DIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", program], env=env, check=True)
    found = {path.stem: path.with_suffix(".o").exists() for path in tmp_path.rglob("*.py")}
    assert len(found) > 2 and all(found.values()), found


def test_entry_points_outlive_the_modules(tmp_path):
    """An interpreter that ends clears modules first. What Python reads of an entry point when it
    frees it must still be there: here freed memory is overwritten."""
    program = tmp_path / "program.py"
    program.write_text(
        PROGRAM + "from kernels.simt.backend import machine_code\n"
        "kernels = [k for k in globals().values() if hasattr(k, 'inspect_cpu')]\n"
        "entries = [s.entry for k in kernels for s in k._specialised.values()]\n"
        "assert 'built-in' in repr(entries[0])\n"
        "vars(machine_code).clear()\n"
        "del kernels, entries\n"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT), "MINIGRAD_CACHE_DIR": str(tmp_path / "cache")}
    env |= {"PYTHONMALLOC": "malloc", "MALLOC_PERTURB_": "254"}
    ended = subprocess.run([sys.executable, str(program)], env=env, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr


def test_a_listing_that_is_called_says_that_it_cannot_be():
    """It has no wrapper of Numba's: not a crash."""
    a = np.ones((2, 2))
    module = modules.load(double.specialise((1, 1, 1), (a,)).path, {})
    with pytest.raises(TypeError, match="launch the kernel"):
        module.double(0, 1, 1, 1, 1, 0, np.zeros(16, np.int64), a)


def test_threads_that_begin_at_once_have_one_engine(monkeypatch):
    """Another one would be freed, with the code that it has linked."""
    monkeypatch.setattr(entry, "_engines", [])
    make, made = entry._new_engine, []

    def slowly():
        time.sleep(0.05)
        return make()

    monkeypatch.setattr(entry, "_new_engine", slowly)
    threads = [threading.Thread(target=lambda: made.append(entry.engine())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 4 and len(set(map(id, made))) == 1
