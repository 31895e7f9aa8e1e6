"""Peak memory of training steps, of minigrad beside torch on the CPU.

    python -m benchmarks.memory [--threads 1] [--only cnn] [--json]

needs Linux. Each case of `benchmarks.networks` runs in a process of its own for each library, after
a run that fills the cache of compiled kernels: STEPS steps. "steps" is what the resident memory of
the process grows by, at most, beyond what it was before the first step (with the library, the
parameters and the batch); "process" is its peak. The ratio is minigrad's steps over torch's.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import measure

STEPS = 10
LEAST = 1 << 17  # bytes; less is a matter of chance


def resident(which: str) -> int:
    """Bytes of this process: VmRSS, now, or VmHWM, at most."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(which)) << 10


def peaks(library_name: str, name: str, threads: int) -> dict[str, int]:
    """The peaks of a case in this process, in bytes."""
    from networks import CASES

    library = importlib.import_module(library_name)
    library.set_num_threads(threads)
    _, step = next(case for case in CASES if case.name == name).make(library)
    library.ones(1) + 1  # the first operation loads what all of them need
    before = resident("VmRSS")
    for _ in range(STEPS):
        step()
    peak = resident("VmHWM")
    return {"steps": max(peak - before, 0), "process": peak}


def run(name: str, libraries: list[str], threads: int) -> dict:
    row: dict = {"case": name}
    for library in libraries:
        command = [sys.executable, __file__, "--child", library, name, "--threads", str(threads)]
        for _ in range(2 if library == "minigrad" else 1):
            done = subprocess.run(command, capture_output=True, text=True, check=True)
        row[library] = json.loads(done.stdout.splitlines()[-1])
    if "torch" in row:
        ours, theirs = (max(row[library]["steps"], LEAST) for library in libraries)
        row["ratio"] = ours / theirs
    return row


def show(row: dict) -> None:
    line = f"{row['case']:<36}"
    for library, found in row.items():
        if isinstance(found, dict):
            steps, process = found["steps"] / 1e6, found["process"] / 1e6
            line += f" {library} {steps:7.1f} MB (process {process:5.0f})"
    print(line + (f"   ratio {row['ratio']:5.2f}" if "ratio" in row else ""), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--threads", type=int, default=1, help="of both; default: 1")
    parser.add_argument("--only", default="", help="only the cases whose name holds this")
    parser.add_argument("--json", action="store_true", help="write benchmarks/results/...")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        print(json.dumps(peaks(*args.child, args.threads)))
        return
    from networks import CASES

    libraries = ["minigrad", *["torch"] * (importlib.util.find_spec("torch") is not None)]
    rows = []
    for case in CASES:
        if args.only in case.name:
            rows.append(run(case.name, libraries, args.threads))
            show(rows[-1])
    if args.json:
        measure.write_json(measure.results_path("memory"), args.threads, rows)


if __name__ == "__main__":
    main()
