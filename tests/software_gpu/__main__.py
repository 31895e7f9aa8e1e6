"""Runs a program on the software GPU: `python -m tests.software_gpu PROGRAM [ARGUMENT ...]`."""

from __future__ import annotations

import argparse
import runpy
import sys

from tests import software_gpu


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.software_gpu", description=__doc__)
    parser.add_argument("--capability", default="8.0", choices=software_gpu.CAPABILITIES)
    parser.add_argument("program", help="a file of Python")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="what the program gets")
    given = parser.parse_args()
    software_gpu.install(given.capability)
    sys.argv = [given.program, *given.arguments]
    runpy.run_path(given.program, run_name="__main__")
    software_gpu.finish()
    if fault := software_gpu.take_fault():
        sys.exit(f"on the software GPU: {fault}")


if __name__ == "__main__":
    main()
