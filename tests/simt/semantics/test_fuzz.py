"""Random kernels give what Numba's own simulator gives, bit for bit.

30 kernels by default, 1000 with `-m slow`. Another first seed: MINIGRAD_TEST_SEED=123. A failure
prints the whole kernel with its seed.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np
import pytest

from kernels.simt import cuda
from kernels.simt.interpreter import interpreter
from tests.simt.semantics import fuzz

FIRST = int(os.environ.get("MINIGRAD_TEST_SEED", "0"))
CHUNK = 5


def compare(seeds: range, folder, jit: Callable, expected: dict[int, list[np.ndarray]]) -> None:
    print(f"seeds {seeds.start} to {seeds.stop - 1}")
    failures = []
    for seed in seeds:
        case = fuzz.generate(seed)
        kernel = fuzz.load(case, cuda, folder / f"fuzz_{seed}.py", jit)
        try:
            report = fuzz.difference(case, expected[seed], fuzz.run(case, kernel))
        except Exception as error:
            report = f"seed {seed}: {type(error).__name__}: {error}\n\n{case.text}"
        if report:
            failures.append(report)
    assert not failures, f"{len(failures)} of {len(seeds)} kernels:\n" + "\n\n".join(failures)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("chunk", range(3))
def test_random_kernels_against_the_simulator(chunk, tmp_path):
    seeds = range(FIRST + chunk * CHUNK, FIRST + (chunk + 1) * CHUNK)
    compare(seeds, tmp_path, cuda.jit, fuzz.simulate(seeds))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("chunk", range(20))
def test_a_thousand_random_kernels(chunk, tmp_path):
    seeds = range(FIRST + fuzz.LARGE + chunk * 50, FIRST + fuzz.LARGE + (chunk + 1) * 50)
    compare(seeds, tmp_path, cuda.jit, fuzz.simulate(seeds))


@pytest.mark.filterwarnings("ignore")
def test_random_kernels_in_the_checked_mode(tmp_path):
    """The kernels have no error to report, so nothing is raised and nothing changes."""
    seeds = range(FIRST + 500, FIRST + 503)
    compare(seeds, tmp_path, lambda f: cuda.jit(f, debug=True), fuzz.simulate(seeds))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("count", [4, pytest.param(200, marks=pytest.mark.slow)])
def test_random_warp_operations_against_the_interpreter(count, tmp_path):
    """The simulator has no shuffles: here the other side is our interpreter, thread by thread."""
    failures = []
    for seed in range(FIRST, FIRST + count):
        case = fuzz.generate(seed, warp=True)
        kernel = fuzz.load(case, cuda, tmp_path / f"warp_{seed}.py")
        arguments = case.arguments()
        interpreter.run(kernel.py_func, case.grid, case.block, arguments)
        expected = [x for x in arguments[4:] if isinstance(x, np.ndarray)]
        try:
            report = fuzz.difference(case, expected, fuzz.run(case, kernel))
        except Exception as error:
            report = f"seed {seed}: {type(error).__name__}: {error}\n\n{case.text}"
        if report:
            failures.append(report)
    assert not failures, f"{len(failures)} of {count} kernels:\n" + "\n\n".join(failures)


def test_the_comparison_can_fail():
    case = fuzz.generate(0)
    results = [x for x in case.arguments()[4:] if isinstance(x, np.ndarray)]
    changed = [x.copy() for x in results]
    changed[1][-1] += 0.5
    assert fuzz.difference(case, results, results) is None
    assert "fout" in fuzz.difference(case, results, changed)
    assert case.text in fuzz.difference(case, results, changed)
