"""How many instructions of Python's a step takes, by function: the same on every machine, however
busy it is.

    python -m benchmarks.bytecodes [--only lstm] [--rows 20]

The cases are those of `benchmarks.training`.
"""

from __future__ import annotations

import argparse
import collections
import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import measure  # noqa: F401 - finds this project
from networks import CASES

import minigrad
from kernels import simt

WARM_UP = 6  # steps, after which launches are remembered


class Counter:
    """Instructions and calls by the code that runs."""

    def __init__(self) -> None:
        self.instructions: collections.Counter[CodeType] = collections.Counter()
        self.calls: collections.Counter[CodeType] = collections.Counter()

    def __call__(self, frame: FrameType, event: str, arg: Any) -> Counter:
        if event == "call":
            frame.f_trace = self  # else Python 3.13 counts nothing the first time that code runs
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
            self.calls[frame.f_code] += 1
        elif event == "opcode":
            self.instructions[frame.f_code] += 1
        return self


def count(step: Callable[[], Any]) -> Counter:
    """What one call of a function takes."""
    counter, before = Counter(), sys.gettrace()
    sys.settrace(counter)
    try:
        step()
    finally:
        sys.settrace(before)
    return counter


def show(name: str, counter: Counter, rows: int) -> None:
    total = counter.instructions.total()
    print(f"{name}: {total} instructions, {counter.calls.total()} calls")
    for code, number in counter.instructions.most_common(rows):
        where = "/".join(Path(code.co_filename).parts[-2:])
        calls = max(counter.calls[code], 1)
        each = f"{calls:>6} calls {number / calls:>7.1f} each"
        name = f"{where}:{code.co_firstlineno} {code.co_qualname}"
        print(f"{number:>9} {number / total:>6.1%} {each}  {name}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="", help="only the cases whose name holds this")
    parser.add_argument("--rows", type=int, default=20, help="functions shown; default: 20")
    args = parser.parse_args()
    simt.set_num_threads(1)
    for case in CASES:
        if args.only in case.name:
            _, step = case.make(minigrad)
            for _ in range(WARM_UP):
                step()
            show(case.name, count(step), args.rows)


if __name__ == "__main__":
    main()
