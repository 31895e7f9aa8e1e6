"""Run the benchmarks of the source tree and print the ratios, measured side by side."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from minigrad.commands import CommandError

HELP = "measure the kernels, the training steps and the overhead"
# The program in `benchmarks/`, its first options, and what it measures.
BENCHMARKS = {
    "cpu": ("ladders", "--device cpu", "every version of the kernels, beside NumPy and torch"),
    "gpu": ("ladders", "--device gpu", "the same on a GPU, beside cuBLAS and cuDNN (torch)"),
    "training": ("training", "", "training steps compared with torch on the CPU"),
    "compiled": ("compiled", "", "the same steps through minigrad.compile"),
    "memory": ("memory", "", "the peak memory of the same steps, compared with torch"),
    "overhead": ("overhead", "", "a hundred small operations compared with torch"),
    "growth": ("growth", "", "how a step grows with batch, width, depth, length and image"),
    "simt": ("simt", "", "the compiler on kernels of a course, compared with NumPy"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    lines = "; ".join(f"{name}: {what}" for name, (_, _, what) in BENCHMARKS.items())
    parser.add_argument("name", nargs="?", choices=BENCHMARKS, help=f"which one ({lines})")
    rest = "options of the benchmark; all have --help and --json (write benchmarks/results/...)"
    parser.add_argument("options", nargs=argparse.REMAINDER, help=rest)


def run(args: argparse.Namespace) -> int:
    root = Path(__file__).resolve().parents[2]
    if args.name is None:
        print("minigrad bench NAME, where NAME is one of")
        for name, (_, _, what) in BENCHMARKS.items():
            print(f"  {name:<10} {what}")
        return 0
    program, first, _ = BENCHMARKS[args.name]
    script = root / "benchmarks" / f"{program}.py"
    if not script.exists():
        raise CommandError(
            f"{script} is missing: the benchmarks are part of the source tree, not of the "
            "installed package; clone the project and run `minigrad bench` from it"
        )
    command = [sys.executable, str(script), *first.split(), *args.options]
    return subprocess.run(command, cwd=root).returncode
