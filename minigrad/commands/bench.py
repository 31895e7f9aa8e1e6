"""Run the benchmarks of the source tree and print the ratios, measured side by side."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from minigrad.commands import CommandError

HELP = "measure the kernels, the training steps and the overhead"
BENCHMARKS = {
    "simt": "the compiled kernels compared with NumPy",
    "training": "training steps compared with torch on the CPU, if torch is installed",
    "overhead": "the cost of a tiny operation compared with torch",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    lines = "; ".join(f"{name}: {what}" for name, what in BENCHMARKS.items())
    parser.add_argument("name", nargs="?", choices=BENCHMARKS, help=f"which one ({lines})")
    parser.add_argument("--json", action="store_true", help="also write benchmarks/results/...")


def run(args: argparse.Namespace) -> int:
    root = Path(__file__).resolve().parents[2]
    if args.name is None:
        if args.json:
            raise CommandError("--json needs the name of one benchmark")
        print("minigrad bench NAME, where NAME is one of")
        for name, what in BENCHMARKS.items():
            print(f"  {name:<10} {what}")
        return 0
    script = root / "benchmarks" / f"{args.name}.py"
    if not script.exists():
        raise CommandError(
            f"{script} is missing: the benchmarks are part of the source tree, not of the "
            "installed package; clone the project and run `minigrad bench` from it"
        )
    extra = ["--json"] if args.json else []
    return subprocess.run([sys.executable, str(script), *extra], cwd=root).returncode
