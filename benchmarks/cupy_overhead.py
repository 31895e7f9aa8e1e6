"""What a CuPy operation costs on the CPU over NumPy's, and what fusing one chain of them saves.

    python -m benchmarks.cupy_overhead [--json] [--check]

Microseconds of an operation on small arrays, the fastest of many short runs. `--check` fails where
one costs more than LIMIT over NumPy's. Then programs that nobody changed: kernels through the
import statements of numba.cuda and cupy against the same kernels through kernels.cuda.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import timeit
from collections.abc import Callable
from datetime import date
from pathlib import Path

import numpy as np

LIMIT = 3.0  # microseconds
_UNSET = ("MINIGRAD_INSTALL", "PYTHONDONTWRITEBYTECODE")
_RUNS, _CALLS = 200, 200
RESULTS = Path(__file__).parent / "results"

#: x and y have 100 elements, m is 10 x 10, i has 5 indices, b is a mask; xp is cupy or numpy
OPERATIONS = """
x + y | x * 2.5 | -x | x > y | x ** 2 | x % y | x.__iadd__(y) | m @ m | m.T
x[3] | x[2:8] | m[1, 2:] | x[i] | x[b] | x.__setitem__(slice(2, 4), 1) | x.__setitem__(b, 0)
x.sum() | x.mean() | x.max() | x.argmax() | x.any() | x.std() | xp.sum(m, axis=0) | xp.cumsum(x)
xp.sqrt(x) | xp.exp(x) | xp.sin(x) | xp.maximum(x, y) | xp.add(x, y, out=x) | xp.isnan(x)
xp.where(b, x, y) | xp.clip(x, 0, 1) | xp.dot(x, y) | xp.concatenate([x, y]) | xp.stack([x, y])
xp.zeros(100) | xp.empty(100) | xp.ones_like(x) | xp.arange(100) | xp.linspace(0, 1, 10)
x.astype("float32") | x.copy() | m.reshape(4, 25) | m.ravel() | xp.roll(x, 1) | xp.transpose(m)
xp.expand_dims(x, 0) | xp.random.rand(10) | xp.fft.fft(x) | xp.linalg.norm(x) | xp.unique(i)
float(x[0]) | len(x) | x.shape
""".replace("\n", " | ").split(" | ")


def microseconds(statement: str, scope: dict) -> float:
    timer = timeit.Timer(statement, globals=scope)
    return min(timer.repeat(repeat=_RUNS, number=_CALLS)) / _CALLS * 1e6


def operations() -> list[dict]:
    import kernels.cupy as cp

    rng = np.random.default_rng(0)
    host = {
        "xp": np, "x": rng.random(100), "y": rng.random(100) + 1, "m": rng.random((10, 10)),
        "i": np.arange(5), "b": rng.random(100) < 0.5,
    }  # fmt: skip
    device = {k: cp.asarray(v) if isinstance(v, np.ndarray) else cp for k, v in host.items()}
    rows = []
    for statement in filter(None, map(str.strip, OPERATIONS)):
        ours, theirs = microseconds(statement, device), microseconds(statement, host)
        rows.append({"operation": statement, "cupy": ours, "numpy": theirs, "over": ours - theirs})
        print(f"{statement:32}{ours:8.2f}{theirs:8.2f}{ours - theirs:8.2f} us", flush=True)
    return rows


def best(function: Callable, seconds: float = 1.0) -> float:
    """Milliseconds of a call, the fastest of about a second's."""
    function()
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end:
        begin = time.perf_counter()
        function()
        times.append(time.perf_counter() - begin)
    return min(times) * 1e3


def fused() -> list[dict]:
    """A chain of seven operations on a million elements."""
    import kernels.cupy as cp

    def chain(x, y, sqrt):
        return sqrt(x * x + y * y) * 2 - x / (y + 3)

    rows = []
    one_kernel = cp.fuse(lambda x, y: chain(x, y, cp.sqrt))
    for dtype in (np.float32, np.float64):
        x, y = (np.random.default_rng(0).random(10**6).astype(dtype) for _ in "xy")
        a, b = cp.asarray(x), cp.asarray(y)
        row = {
            "chain": np.dtype(dtype).name,
            "fused": best(lambda: one_kernel(a, b)),  # noqa: B023
            "cupy": best(lambda: chain(a, b, cp.sqrt)),  # noqa: B023
            "numpy": best(lambda: chain(x, y, np.sqrt)),  # noqa: B023
        }
        rows.append(row)
        print("a chain of 7 operations, {chain}: fused {fused:.2f} ms, one by one {cupy:.2f} ms,"
              " NumPy {numpy:.2f} ms".format(**row))  # fmt: skip
    return rows


#: kernels of unchanged programs; `cuda` is numba.cuda of kernels.install(), or kernels.cuda
KERNELS = """
import sys, time
import numpy as np
if sys.argv[1] == "unchanged":
    import kernels; kernels.install(announce=False)
    from numba import cuda
    from numba import float32
else:
    from kernels import cuda
    from numba import float32

@cuda.jit
def collatz(start, steps):
    i = cuda.grid(1)
    if i < start.size:
        n = start[i]
        count = 0
        while n != 1:
            if n % 2 == 0:
                n //= 2
            else:
                n = 3 * n + 1
            count += 1
        steps[i] = count

@cuda.jit
def csr(data, indices, indptr, x, y):
    row = cuda.grid(1)
    if row < y.size:
        total = 0.0
        for k in range(indptr[row], indptr[row + 1]):
            total += data[k] * x[indices[k]]
        y[row] = total

@cuda.jit
def saxpy(a, x, y):
    i = cuda.grid(1)
    if i < x.size:
        y[i] += a * x[i]

TILE = 16
@cuda.jit
def matmul(a, b, c):
    sa = cuda.shared.array((TILE, TILE), float32)
    sb = cuda.shared.array((TILE, TILE), float32)
    x, y = cuda.grid(2)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    total = float32(0)
    for k in range(a.shape[1] // TILE):
        sa[ty, tx] = a[y, tx + k * TILE]
        sb[ty, tx] = b[ty + k * TILE, x]
        cuda.syncthreads()
        for j in range(TILE):
            total += sa[ty, j] * sb[j, tx]
        cuda.syncthreads()
    c[y, x] = total

rng = np.random.default_rng(0)
n = 200_000
start, steps = cuda.to_device(np.arange(1, n + 1)), cuda.device_array(n, np.int64)
rows, per = 100_000, 12
indptr = cuda.to_device(np.arange(0, rows * per + 1, per))
indices = cuda.to_device(rng.integers(0, rows, rows * per))
data, x = cuda.to_device(rng.random(rows * per)), cuda.to_device(rng.random(rows))
y = cuda.device_array(rows)
v, w = (cuda.to_device(rng.random(10**6, dtype=np.float32)) for _ in "vw")
a, b = (cuda.to_device(rng.random((512, 512), dtype=np.float32)) for _ in "ab")
c = cuda.device_array((512, 512), np.float32)
CASES = {
    "collatz": lambda: collatz[(n + 255) // 256, 256](start, steps),
    "csr": lambda: csr[(rows + 255) // 256, 256](data, indices, indptr, x, y),
    "saxpy": lambda: saxpy[(10**6 + 255) // 256, 256](np.float32(2), v, w),
    "matmul": lambda: matmul[(32, 32), (16, 16)](a, b, c),
}
for name, launch in CASES.items():
    launch()
    times = []
    for _ in range(15):
        begin = time.perf_counter()
        launch()
        cuda.synchronize()
        times.append(time.perf_counter() - begin)
    print(name, min(times) * 1e3)
"""


def kernels() -> list[dict]:
    """Milliseconds of kernels through the program's own import statements, and through ours."""
    found: dict[str, dict[str, float]] = {}
    plain = {k: v for k, v in os.environ.items() if k != "MINIGRAD_INSTALL"}
    script = RESULTS.parent / "_kernels_of_programs.py"
    script.write_text(KERNELS)
    try:
        for _ in range(2):
            for way in ("unchanged", "ours"):
                done = subprocess.run(
                    [sys.executable, str(script), way],
                    capture_output=True, text=True, check=True, env=plain,
                )  # fmt: skip
                for line in done.stdout.splitlines():
                    name, value = line.split()
                    row = found.setdefault(name, {})
                    row[way] = min(row.get(way, np.inf), float(value))
    finally:
        script.unlink()
    for name, row in found.items():
        print(f"{name:12} unchanged {row['unchanged']:8.3f} ms, kernels.cuda {row['ours']:8.3f} ms")
    return [{"kernel": name, **row} for name, row in found.items()]


def start_up(runs: int = 5) -> dict[str, float]:
    """CPU seconds (user and system) of importing Numba, and of a program of numba.cuda and cupy."""
    programs = {
        "import numba": [sys.executable, "-c", "import numba"],
        "minigrad run": [sys.executable, "-m", "minigrad", "run"],
    }
    texts = {
        "numba.cuda": "import numba\nfrom numba import cuda\n",
        "numba.cuda, cupy": "import numba\nfrom numba import cuda\nimport cupy\n",
    }
    script = RESULTS.parent / "_start_up.py"
    row = {"import numba": cpu_seconds(programs["import numba"], runs)}
    try:
        for name, text in texts.items():
            script.write_text(text)
            row[f"minigrad run: {name}"] = cpu_seconds(
                [*programs["minigrad run"], str(script)], runs
            )
    finally:
        script.unlink()
    for name, seconds in row.items():
        print(f"{name:32}{seconds:6.2f} s of CPU")
    return row


def cpu_seconds(command: list[str], runs: int) -> float:
    """The CPU seconds of a program that a process of its own starts, the best of some runs."""
    plain = {k: v for k, v in os.environ.items() if k not in _UNSET}
    code = (
        "import resource, subprocess, sys\n"
        "subprocess.run(sys.argv[1:], check=True, stderr=subprocess.DEVNULL)\n"
        "used = resource.getrusage(resource.RUSAGE_CHILDREN)\n"
        "print(used.ru_utime + used.ru_stime)"
    )
    with tempfile.TemporaryDirectory() as compiled:  # bytecode, which an installed package has
        plain["PYTHONPYCACHEPREFIX"] = compiled
        seconds = [
            float(subprocess.check_output([sys.executable, "-c", code, *command], env=plain))
            for _ in range(runs + 1)
        ]
    return min(seconds[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="write benchmarks/results")
    parser.add_argument("--check", action="store_true", help="fail where the limit is exceeded")
    options = parser.parse_args()
    found = {
        "operations": operations(),
        "fused": fused(),
        "kernels": kernels(),
        "start-up": start_up(),
    }
    if options.json:
        path = RESULTS / f"cupy_overhead-{date.today()}.json"
        path.write_text(json.dumps(found, indent=1) + "\n")
        print(path)
    slow = [row["operation"] for row in found["operations"] if row["over"] > LIMIT]
    if slow:
        print(f"more than {LIMIT} us over NumPy's: {', '.join(slow)}")
    if options.check and slow:
        sys.exit(1)


if __name__ == "__main__":
    main()
