"""How fast compiled CUDA kernels are on this CPU: each figure a ratio measured side by side.

    python -m benchmarks.simt [--only matmul] [--json]

One thread for everything unless the line says otherwise. Rival and kernel alternate in one
process; a line gives the median ratio of neighbouring turns and the distance of its quartiles.
Results are checked against the rival's before the clock starts. --json also writes
benchmarks/results/simt-<date>.json with the machine and the versions.
"""

# ruff: noqa: E402 - the thread counts must be set before NumPy loads its BLAS

from __future__ import annotations

import os

for _name in ("OPENBLAS", "OMP", "MKL", "MINIGRAD"):
    os.environ[f"{_name}_NUM_THREADS"] = "1"

import argparse
import inspect
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

import measure
import numpy as np
import scipy.signal
import simt_kernels as k

from kernels import simt

TURNS = 15


@dataclass
class Line:
    """One line of the table: target and measurement."""

    name: str
    target: float
    value: float
    spread: float
    note: str
    unit: str = "x"  # a ratio to the rival that is to be reached, or a time limit in "us" or "s"

    @property
    def met(self) -> bool:
        return self.value >= self.target if self.unit == "x" else self.value <= self.target


def against(
    name: str, target: float, ours: Callable, theirs: Callable, work: float = 0, unit: str = ""
) -> Line:
    """Times ours beside theirs; `work` per call, in 1e9 `unit`s, gives the absolute speed."""
    mine, rival, ratio = measure.ratio(ours, theirs, turns=TURNS, turn_seconds=0.1)
    note = f"{measure.format_seconds(mine.median)} / {measure.format_seconds(rival.median)}"
    if work:
        note += f", {work / mine.median:.0f} / {work / rival.median:.0f} {unit}"
    return Line(name, target, ratio.median, ratio.spread, note)


def launch_matmul(kernel, tile: tuple[int, int], block: tuple[int, int], a, b, c) -> Callable:
    grid = (-(-c.shape[1] // tile[1]), -(-c.shape[0] // tile[0]))
    configured = kernel[grid, block]
    return lambda: configured(a, b, c)


def matmul_case(n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Two matrices and one for the product, in device memory: BLAS gets the same arrays."""
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, n, n)).astype(np.float32)
    return tuple(simt.cuda.to_device(x).memory for x in (a, b, np.zeros_like(a)))


def check(actual: np.ndarray, expected: np.ndarray, tolerance: float) -> None:
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance * np.abs(expected).max())


def matmul() -> Iterator[Line]:
    n = 512
    a, b, c = matmul_case(n)
    expected, rival_out = a @ b, matmul_case(n)[2]
    work = 2 * n**3 / 1e9
    numpy_matmul = lambda: np.matmul(a, b, out=rival_out)  # noqa: E731
    cases = [
        ("tiled matmul 512, guards as ifs", 0.85, k.tiled_with_ifs),
        ("tiled matmul 512, guards as expressions", 0.85, k.tiled_with_expressions),
        ("tiled matmul 512, no guards", 1.0, k.tiled),
    ]
    for name, target, kernel in cases:
        ours = launch_matmul(kernel, *k.VERSIONS["tiled"][1:], a, b, c)
        c[:] = 0
        ours()
        check(c, expected, 1e-5)
        yield against(name, target, ours, numpy_matmul, work, "GFLOP/s")
    lines = []
    for name, (kernel, tile, block) in k.VERSIONS.items():
        ours = launch_matmul(kernel, tile, block, a, b, c)
        c[:] = 0
        ours()
        check(c, expected, 1e-5)
        lines.append(against(name, 1.0, ours, numpy_matmul, work, "GFLOP/s"))
        print(f"    version {name}: {lines[-1].value:.2f}", file=sys.stderr)
    best = max(lines, key=lambda line: line.value)
    best.note += f" ({best.name})"
    best.name = "matmul 512, best version"
    yield best


def reduction() -> Iterator[Line]:
    a = np.random.default_rng(0).random(2**22, np.float32)
    out = np.zeros(1, np.float32)
    kernel = k.shuffle_sum[64, 256]

    def ours() -> None:
        out[0] = 0
        kernel(a, out)

    ours()
    check(out, a.sum(dtype=np.float64), 1e-5)
    gigabytes = a.nbytes / 1e9
    yield against("shuffle reduction / np.sum", 0.9, ours, lambda: np.sum(a), gigabytes, "GB/s")


def saxpy() -> Iterator[Line]:
    n = 2**20
    x, y = np.random.default_rng(0).random((2, n), np.float32)
    expected, scratch, rival = np.float32(0.5) * x + y, np.empty_like(x), y.copy()
    alpha = np.float32(0.5)
    kernel = k.saxpy[n // 256, 256]
    kernel(alpha, x, y)
    check(y, expected, 1e-6)

    def theirs() -> None:
        np.multiply(x, alpha, out=scratch)
        np.add(scratch, rival, out=rival)

    gigabytes = 3 * x.nbytes / 1e9
    yield against(
        "saxpy / np.multiply + np.add", 0.8, lambda: kernel(alpha, x, y), theirs, gigabytes, "GB/s"
    )


def softmax() -> Iterator[Line]:
    x = np.random.default_rng(0).standard_normal((1024, 1024)).astype(np.float32)
    out, rival = np.empty_like(x), np.empty_like(x)
    kernel = k.row_softmax[1024, 256]

    def theirs() -> None:
        np.subtract(x, x.max(axis=1, keepdims=True), out=rival)
        np.exp(rival, out=rival)
        np.divide(rival, rival.sum(axis=1, keepdims=True), out=rival)

    kernel(x, out)
    theirs()
    check(out, rival, 1e-5)
    yield against("row softmax / NumPy", 1.0, lambda: kernel(x, out), theirs)


def convolution() -> Iterator[Line]:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((4, 8, 64, 64)).astype(np.float32)
    w = rng.standard_normal((16, 8, 3, 3)).astype(np.float32)
    out, rival = np.empty((4, 16, 64, 64), np.float32), np.empty((4, 16, 64, 64), np.float32)
    kernel = k.conv3x3[(2, 8, 4 * 16), (32, 8)]

    def theirs() -> None:
        for n in range(4):
            for o in range(16):
                total = 0
                for c in range(8):
                    total = total + scipy.signal.correlate(x[n, c], w[o, c], "same", "direct")
                rival[n, o] = total

    kernel(x, w, out)
    theirs()
    check(out, rival, 1e-5)
    work = 2 * 9 * 8 * out.size / 1e9
    yield against(
        "direct 3x3 convolution / scipy.signal.correlate",
        5.0,
        lambda: kernel(x, w, out),
        theirs,
        work,
        "GFLOP/s",
    )


SIMULATOR = """
import json, time
import numpy as np
from numba import cuda, float32
TILE = {tile}
{source}
rng = np.random.default_rng(0)
a, b = rng.standard_normal((2, 64, 64)).astype(np.float32)
c = np.zeros((64, 64), np.float32)
seconds = []
for _ in range(3):
    started = time.perf_counter()
    tiled[(64 // TILE, 64 // TILE), (TILE, TILE)](a, b, c)
    seconds.append(time.perf_counter() - started)
assert np.abs(c - a @ b).max() < 1e-3
print(json.dumps(seconds))
"""


def simulator() -> Iterator[Line]:
    """64x64 tiled matmul. The simulator needs a process of its own, so they cannot take turns."""
    source = inspect.getsource(k.tiled.py_func)
    env = {**os.environ, "NUMBA_ENABLE_CUDASIM": "1"}
    program = SIMULATOR.replace("{source}", source).replace("{tile}", str(k.TILE))
    done = subprocess.run(
        [sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True
    )
    theirs = json.loads(done.stdout)
    a, b, c = matmul_case(64)
    launch = launch_matmul(*k.VERSIONS["tiled"], a, b, c)
    ours = measure.side_by_side({"ours": launch}, TURNS, 0.05)["ours"]
    median = statistics.median(theirs)
    spread = (max(theirs) - min(theirs)) / median
    note = f"{measure.format_seconds(ours.median)} / {measure.format_seconds(median)}"
    yield Line(
        "tiled matmul 64 / Numba's simulator", 1e5, median / ours.median, spread + ours.spread, note
    )


def threads() -> Iterator[Line]:
    a, b, c = matmul_case(1024)
    launch = launch_matmul(*k.VERSIONS["tiled"], a, b, c)

    def one() -> None:
        simt.set_num_threads(1)
        launch()

    def two() -> None:
        simt.set_num_threads(2)
        launch()

    try:
        yield against("two OS threads / one, tiled matmul 1024", 1.7, two, one)
    finally:
        simt.set_num_threads(1)


def launch() -> Iterator[Line]:
    a = np.zeros(32, np.float32)
    configured = k.add_one[1, 32]
    timings = measure.side_by_side(
        {
            "configured": lambda: configured(a),
            "subscript": lambda: k.add_one[1, 32](a),
        },
        TURNS,
        0.05,
    )
    timing = timings["subscript"]
    note = (
        f"kernel[1, 32](a); configured once: {measure.format_seconds(timings['configured'].median)}"
    )
    yield Line("launch from Python", 10.0, timing.median * 1e6, timing.spread, note, "us")


def first_launch(cache: str, *options: str) -> float:
    """Seconds from the start of a Python process to the end of its first launch."""
    program = str(measure.ROOT / "benchmarks" / "first_launch.py")
    env = {**os.environ, "MINIGRAD_CACHE_DIR": cache, "PYTHONPATH": str(measure.ROOT)}
    started = time.time()
    command = [sys.executable, program, *options]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    return float(done.stdout) - started


def second_process() -> Iterator[Line]:
    """A process that launches a kernel that an earlier one has compiled."""
    with tempfile.TemporaryDirectory() as cache:
        cold = first_launch(cache)
        warm, with_numba = (
            [first_launch(cache, *options) for _ in range(10)] for options in ([], ["--numba"])
        )
    median = statistics.median(warm)
    slower = statistics.median(with_numba)
    note = f"with `import numba` {slower:.2f} s; the first process {cold:.2f} s"
    yield Line("warm second process", 0.3, median, (max(warm) - min(warm)) / median, note, "s")


PARTS = {
    "matmul": matmul,
    "reduction": reduction,
    "saxpy": saxpy,
    "softmax": softmax,
    "convolution": convolution,
    "simulator": simulator,
    "threads": threads,
    "launch": launch,
    "process": second_process,
}


def show(value: float, unit: str) -> str:
    if unit == "x":
        return f"{value:,.0f}x" if value >= 100 else f"{value:.2f}x"
    return f"{value:.3g} {unit}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=PARTS, action="append", help="measure just this part")
    parser.add_argument(
        "--json", action="store_true", help="write benchmarks/results/simt-<date>.json"
    )
    options = parser.parse_args()
    simt.set_num_threads(1)
    lines: list[Line] = []
    print(f"{'':48}{'target':>10}{'measured':>12}{'spread':>8}  met")
    for name in options.only or PARTS:
        for line in PARTS[name]():
            lines.append(line)
            target = (">= " if line.unit == "x" else "<= ") + show(line.target, line.unit)
            met = "yes" if line.met else "NO"
            print(
                f"{line.name:46}{target:>12}{show(line.value, line.unit):>12}"
                f"{line.spread:8.0%}  {met:4} {line.note}",
                flush=True,
            )
    if options.json:
        rows = [{**asdict(line), "met": line.met} for line in lines]
        measure.write_json(measure.results_path("simt"), 1, rows)


if __name__ == "__main__":
    main()
