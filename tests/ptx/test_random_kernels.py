"""Random kernels give the same through the SIMT compiler and as the PTX of numba-cuda, bit for bit.

Two compilers and two machines that share no code: an independent check of both. Another first
seed: MINIGRAD_TEST_SEED=123. A failure prints the whole kernel with its seed.
"""

from __future__ import annotations

import dataclasses
import os
import re

import numpy as np
import pytest

from kernels import lab
from kernels.ptx import lowering
from kernels.simt import cuda
from tests.simt.semantics import fuzz

pytestmark = [pytest.mark.needs("numba_cuda"), pytest.mark.filterwarnings("ignore")]
FIRST = int(os.environ.get("MINIGRAD_TEST_SEED", "0"))


VOTES = """
@cuda.jit(device=True)
def syncthreads_{0}(truth):  # numba-cuda takes no bool
    return cuda.syncthreads_{0}(np.int32(truth))


"""


def generate(seed: int, warp: bool) -> fuzz.Case:
    case = fuzz.generate(seed, warp=warp)
    text = re.sub(r"cuda\.syncthreads_(count|or|and)", r"syncthreads_\1", case.text)
    votes = "".join(VOTES.format(vote) for vote in ("count", "or", "and"))
    return dataclasses.replace(case, text=text.replace("@jit\n", f"{votes}@jit\n"))


def as_ptx(case: fuzz.Case, kernel) -> list[np.ndarray]:
    arguments = case.arguments()
    lab.ptx(kernel, case.grid, case.block, *arguments)
    return [x for x in arguments[4:] if isinstance(x, np.ndarray)]


def failures(seeds: range, folder, warp: bool) -> list[str]:
    print(f"seeds {seeds.start} to {seeds.stop - 1}")
    found = []
    for seed in seeds:
        case = generate(seed, warp)
        kernel = fuzz.load(case, cuda, folder / f"ptx_{seed}.py")
        try:
            report = fuzz.difference(case, fuzz.run(case, kernel), as_ptx(case, kernel))
        except Exception as error:
            report = f"seed {seed}: {type(error).__name__}: {error}\n\n{case.text}"
        if report:
            found.append(report)
    return found


def check(seeds: range, folder, warp: bool) -> None:
    found = failures(seeds, folder, warp)
    assert not found, f"{len(found)} of {len(seeds)} kernels:\n" + "\n\n".join(found)


@pytest.mark.parametrize("warp", [False, True], ids=["barriers", "warp operations"])
def test_random_kernels(warp, tmp_path):
    check(range(FIRST, FIRST + 3), tmp_path, warp)


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(6))
@pytest.mark.parametrize("warp", [False, True], ids=["barriers", "warp operations"])
def test_many_random_kernels(warp, chunk, tmp_path):
    first = FIRST + 3 + 25 * chunk
    check(range(first, first + 25), tmp_path, warp)


def test_a_kernel_whose_lines_libnvvm_cannot_write(tmp_path):
    """With line numbers its PTX branches to a label that it lacks, which ptxas refuses too."""
    check(range(109, 110), tmp_path, False)


def test_the_comparison_can_fail(tmp_path, monkeypatch):
    """A machine that subtracts where it should add is found out."""
    subtract = lowering.HANDLERS["sub"]
    monkeypatch.setitem(
        lowering.HANDLERS, "add", lambda x, i: subtract(x, dataclasses.replace(i, opcode="sub"))
    )
    assert failures(range(FIRST, FIRST + 1), tmp_path, False)
