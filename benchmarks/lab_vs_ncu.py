"""The lab's figures beside Nsight Compute's, for the same kernels on the same data.

    python -m benchmarks.lab_vs_ncu [--json]

Needs an NVIDIA GPU with numba-cuda, CuPy and `ncu` (Nsight Compute) on the PATH; without them it
prints the lab's figures alone. --json also writes benchmarks/results/lab_vs_ncu-<date>.json.
"""

from __future__ import annotations

import argparse
import csv
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import measure
import numpy as np
from numba import float32
from simt_kernels import TILE, tiled

from kernels import lab
from kernels.simt import cuda

_GLOBAL = "l1tex__t_{}_pipe_lsu_mem_global_op_{}.sum"
_FLOPS = "smsp__sass_thread_inst_executed_op_f{}_pred_on.sum"
# A field of `lab.Counts`: Nsight Compute's metrics, each with its weight in the sum
METRICS = {
    "requests": {_GLOBAL.format("requests", op): 1 for op in ("ld", "st")},
    "sectors": {_GLOBAL.format("sectors", op): 1 for op in ("ld", "st")},
    "wavefronts": {"memory_l1_wavefronts_shared": 1},
    "ideal_wavefronts": {"memory_l1_wavefronts_shared_ideal": 1},
    "flops": {_FLOPS.format(op): weight for op, weight in (("add", 1), ("mul", 1), ("fma", 2))},
}


@cuda.jit
def copy(x, y, step, shift):
    i = cuda.grid(1) * step + shift
    if i < x.size:
        y[i] = x[i]


@cuda.jit
def matmul_naive(a, b, c):
    row, col = cuda.grid(2)
    total = float32(0)
    for k in range(a.shape[1]):
        total += a[row, k] * b[k, col]
    c[row, col] = total


@cuda.jit
def matmul_coalesced(a, b, c):
    col, row = cuda.grid(2)
    total = float32(0)
    for k in range(a.shape[1]):
        total += a[row, k] * b[k, col]
    c[row, col] = total


@cuda.jit
def transpose_naive(x, y):
    col, row = cuda.grid(2)
    y[col, row] = x[row, col]


@cuda.jit
def transpose_tile(x, y):
    tile = cuda.shared.array((TILE, TILE), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    tile[ty, tx] = x[cuda.blockIdx.y * TILE + ty, cuda.blockIdx.x * TILE + tx]
    cuda.syncthreads()
    y[cuda.blockIdx.x * TILE + ty, cuda.blockIdx.y * TILE + tx] = tile[tx, ty]


@cuda.jit
def transpose_padded(x, y):
    tile = cuda.shared.array((TILE, 33), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    tile[ty, tx] = x[cuda.blockIdx.y * TILE + ty, cuda.blockIdx.x * TILE + tx]
    cuda.syncthreads()
    y[cuda.blockIdx.x * TILE + ty, cuda.blockIdx.y * TILE + tx] = tile[tx, ty]


@cuda.jit
def banks(x, y, step):
    tile = cuda.shared.array(1024, float32)
    t = cuda.threadIdx.x
    for i in range(32):
        tile[i * 32 + t] = x[i * 32 + t]
    cuda.syncthreads()
    y[t] = tile[t * step % 1024]


@cuda.jit
def reduce_tree(x, out):
    partial = cuda.shared.array(256, float32)
    t = cuda.threadIdx.x
    partial[t] = x[cuda.grid(1)]
    step = 128
    while step > 0:
        cuda.syncthreads()
        if t < step:
            partial[t] += partial[t + step]
        step //= 2
    if t == 0:
        out[cuda.blockIdx.x] = partial[0]


@dataclass(frozen=True)
class Case:
    """A launch: its name in the table, and what to run."""

    name: str
    kernel: object
    grid: int | tuple[int, int]
    block: int | tuple[int, int]
    args: tuple


def cases() -> list[Case]:
    """The launches, in the order in which both profilers see them."""
    rng = np.random.default_rng(0)

    def f(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape, dtype=np.float32)

    made = [
        Case(f"copy, step {step}, shift {shift}", copy, 16, 256, (f(32768), f(32768), step, shift))
        for step, shift in ((1, 0), (1, 1), (2, 0), (8, 0), (32, 0))
    ]
    square, tiles = (TILE, TILE), (2, 2)
    for kernel in (matmul_naive, matmul_coalesced, tiled):
        name = f"matmul_{kernel.__name__.removeprefix('matmul_')}"
        made.append(Case(name, kernel, tiles, square, (f(64, 64), f(64, 64), f(64, 64))))
    for kernel in (transpose_naive, transpose_tile, transpose_padded):
        made.append(Case(kernel.__name__, kernel, tiles, square, (f(64, 64), f(64, 64))))
    for step in (1, 2, 4, 32, 33):
        made.append(Case(f"banks, step {step}", banks, 1, 32, (f(1024), f(32), step)))
    made.append(Case("reduce_tree", reduce_tree, 16, 256, (f(4096), f(16))))
    return made


def in_the_lab(case: Case) -> dict[str, int]:
    """The lab's figures of a launch."""
    totals = lab.profile(case.kernel, case.grid, case.block, *case.args).totals
    return {what: getattr(totals, what) for what in METRICS}


def launch_all() -> None:
    """Launch every case once on the GPU, for Nsight Compute to profile."""
    import cupy

    for case in cases():
        args = [cupy.asarray(a) if isinstance(a, np.ndarray) else a for a in case.args]
        case.kernel.on_gpu()[case.grid, case.block](*args)
    cupy.cuda.Device().synchronize()


def by_ncu() -> list[dict[str, int]]:
    """Nsight Compute's figures of every case."""
    metrics = ",".join(name for parts in METRICS.values() for name in parts)
    command = ["ncu", "--csv", "--clock-control", "none", "--metrics", metrics]
    command += [sys.executable, __file__, "--launch"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"ncu failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    names = {case.kernel.__name__ for case in cases()}
    return list(launches(done.stdout, names))


def launches(output: str, names: set[str]) -> Iterator[dict[str, int]]:
    """The figures of each launch of a kernel of `names`, in order, from the output of ncu --csv."""
    rows = csv.DictReader(line for line in output.splitlines() if line.startswith('"'))
    found: dict[str, dict[str, float]] = {}
    for row in rows:
        if any(name in row["Kernel Name"] for name in names):
            number = float(row["Metric Value"].replace(",", ""))
            found.setdefault(row["ID"], {})[row["Metric Name"]] = number
    for values in found.values():
        yield {
            what: round(sum(weight * values[name] for name, weight in parts.items()))
            for what, parts in METRICS.items()
        }


def why_not() -> str | None:
    """Why Nsight Compute can't run here, or None."""
    from minigrad.commands import gpu

    if problem := gpu.query().problem:
        return problem
    return None if shutil.which("ncu") else "ncu (Nsight Compute) is not on the PATH"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="write the table to results/ too")
    parser.add_argument("--launch", action="store_true", help="only launch the kernels, for ncu")
    options = parser.parse_args()
    if options.launch:
        launch_all()
        return
    problem = why_not()
    if problem:
        print(f"the lab's figures alone: {problem}\n")
    theirs = [None] * len(cases()) if problem else by_ncu()
    print(f"{'':24}" + "".join(f"{what:>22}" for what in METRICS))
    rows = []
    for case, measured in zip(cases(), theirs, strict=True):
        ours = in_the_lab(case)
        shown = [f"{n}" if measured is None else f"{n} / {measured[w]}" for w, n in ours.items()]
        print(f"{case.name:24}" + "".join(f"{text:>22}" for text in shown))
        rows.append({"case": case.name, "lab": ours, "ncu": measured})
    if theirs[0] is not None:
        same = sum(row["lab"][what] == row["ncu"][what] for row in rows for what in METRICS)
        print(f"\nlab / ncu: {same} of {len(rows) * len(METRICS)} figures are equal")
        if options.json:
            measure.write_json(measure.results_path("lab_vs_ncu"), 1, rows)


if __name__ == "__main__":
    main()
