"""Where the time of a first step goes, from an empty cache of compiled kernels and from a full one.

    python -m benchmarks.cold_start [--only gpt] [--json]

Each case of `benchmarks.networks` is run in new processes: import, model, first step; "first check"
is that of an exercise, which also compiles the lab's recorder. Python's bytecode is written first,
as an installation does. "processor" is the process's time on a processor, which another program's
load changes less than the clock's; children that compile ahead on other cores are not in it.
"passes" are those of `kernels.simt`, "Numba and LLVM" what compiles the module that they generate;
a kernel that a child is about to finish is waited for, which is in "else".
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import subprocess
import sys
import tempfile
import time

import measure

from kernels.support import thread_pool

CHECK = "first check"
NAMES = ("mlp 784", "cnn 8x8", "gpt, training", CHECK)


def first_step(name: str) -> dict:
    """Seconds of a first step in this process, by part, and of the slowest kernels."""
    begun = time.perf_counter()
    import minigrad
    from kernels.simt.driver import specialise

    parts = {"import": time.perf_counter() - begun, "passes": 0.0, "Numba and LLVM": 0.0}
    kernels: list[tuple[str, float]] = []
    compile_, make = specialise.Specialisation._compile, specialise.Specialisation._make

    def timed_make(self, *args):
        started = time.perf_counter()
        make(self, *args)
        parts["Numba and LLVM"] += time.perf_counter() - started

    def timed_compile(self, *args):
        started, before = time.perf_counter(), parts["Numba and LLVM"]
        compile_(self, *args)
        seconds = time.perf_counter() - started
        parts["passes"] += seconds - (parts["Numba and LLVM"] - before)
        kernels.append((self.kernel.__name__, seconds))

    specialise.Specialisation._make = timed_make
    specialise.Specialisation._compile = timed_compile
    from networks import CASES

    if name == CHECK:
        from kernels.lab import exercises, solutions

        exercises.check(solutions.add_ten)
    else:
        _, step = next(case for case in CASES if name in case.name).make(minigrad)
        step()
    whole, processor = time.perf_counter() - begun, time.process_time()
    parts["else"] = whole - sum(parts.values())
    slowest = sorted(kernels, key=lambda k: -k[1])[:6]
    return {
        "seconds": whole,
        "processor": processor,
        **parts,
        "kernels": len(kernels),
        "slowest": slowest,
    }


def run(name: str, folder: str) -> dict:
    """`first_step` in a new process with the cache folder `folder`."""
    command = [sys.executable, __file__, "--case", name]
    environment = {**os.environ, "MINIGRAD_CACHE_DIR": folder, "NUMBA_CACHE_DIR": folder}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="", help="only the cases whose name holds this")
    parser.add_argument("--json", action="store_true", help="write benchmarks/results/...")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.case:
        print(json.dumps(first_step(args.case)))
        return
    for package in ("kernels", "minigrad", "benchmarks"):
        compileall.compile_dir(measure.ROOT / package, quiet=1)
    rows = []
    for name in (name for name in NAMES if args.only in name):
        with tempfile.TemporaryDirectory() as folder:
            for cache in ("empty", "full"):
                row = {"case": name, "cache": cache, **run(name, folder)}
                rows.append(row)
                shown = "  ".join(
                    f"{part} {seconds:.2f}"
                    for part, seconds in row.items()
                    if isinstance(seconds, float) and part != "seconds"
                )
                print(f"{name:<16} {cache:<6} {row['seconds']:6.2f} s: {shown}", flush=True)
                if row["kernels"]:
                    slowest = ", ".join(f"{kernel} {s:.2f}" for kernel, s in row["slowest"])
                    print(f"{'':<16} {row['kernels']} kernels compiled here; slowest: {slowest}")
    if args.json:
        measure.write_json(measure.results_path("cold_start"), thread_pool.get_num_threads(), rows)


if __name__ == "__main__":
    main()
