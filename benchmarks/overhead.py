"""The cost of one tiny operation, compared with torch: Python and the engine, almost no arithmetic.

    python -m benchmarks.overhead [--json]

One thread. The targets: `a + b` within 1.5 times torch's time, `(a * a).sum().backward()` and a
step of Linear(10, 1) with SGD within torch's, `import minigrad` under 0.3 s.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import subprocess
import sys
from types import ModuleType

import measure
import numpy as np

import minigrad
from kernels import simt


def small_backward(library: ModuleType):
    a = library.ones(4, requires_grad=True)

    def call():
        a.grad = None
        (a * a).sum().backward()

    return call


def add(library: ModuleType):
    a, b = library.ones(4), library.ones(4)
    return lambda: a + b


def add_with_graph(library: ModuleType):
    a, b = library.ones(4, requires_grad=True), library.ones(4)
    return lambda: a + b


def sum_all(library: ModuleType):
    a = library.ones(4)
    return lambda: a.sum()


def matmul(library: ModuleType):
    a, b = library.ones(4, 4), library.ones(4, 4)
    return lambda: a @ b


def sgd_step(library: ModuleType):
    model = library.nn.Linear(10, 1)
    optimizer = library.optim.SGD(model.parameters(), lr=0.01)
    rng = np.random.default_rng(0)
    x = library.from_numpy(rng.standard_normal((8, 10), dtype=np.float32))
    y = library.from_numpy(rng.standard_normal((8, 1), dtype=np.float32))
    mse_loss = library.nn.functional.mse_loss

    def call():
        optimizer.zero_grad()
        mse_loss(model(x), y).backward()
        optimizer.step()

    return call


CASES = {
    "a + b": add,
    "a + b, with a graph": add_with_graph,
    "a.sum()": sum_all,
    "a @ b": matmul,
    "(a * a).sum().backward()": small_backward,
    "Linear(10, 1), SGD step": sgd_step,
}


def import_seconds(module: str) -> float:
    """The median time to import a module, over five new processes."""
    code = f"import time; t = time.perf_counter(); import {module}; print(time.perf_counter() - t)"
    runs = [
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            cwd=measure.ROOT,
        )
        for _ in range(5)
    ]
    return statistics.median(float(run.stdout) for run in runs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="write benchmarks/results/...")
    args = parser.parse_args()
    libraries = {"minigrad": minigrad}
    simt.set_num_threads(1)
    if importlib.util.find_spec("torch"):
        import torch

        torch.set_num_threads(1)
        libraries["torch"] = torch
    rows = []
    for name, make in CASES.items():
        timings = measure.side_by_side({key: make(lib) for key, lib in libraries.items()})
        row = {"case": name, **timings}
        line = f"{name:<28} minigrad {timings['minigrad']}"
        if "torch" in timings:
            row["ratio"] = timings["minigrad"].median / timings["torch"].median
            line += f"   torch {timings['torch']}   ratio {row['ratio']:5.2f}"
        print(line, flush=True)
        rows.append(row)
    for module in ("numpy", *libraries):
        seconds = import_seconds(module)
        print(f"import {module:<21} {measure.format_seconds(seconds):>9}")
        rows.append({"case": f"import {module}", "seconds": seconds})
    if "torch" not in libraries:
        print("torch is not installed: no ratios (pip install 'minigrad[parity]')")
    if args.json:
        measure.write_json(measure.results_path("overhead"), 1, rows)


if __name__ == "__main__":
    main()
