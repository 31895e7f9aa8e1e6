"""Run a Python program: its torch is minigrad; without a GPU, numba.cuda and cupy use the CPU."""

from __future__ import annotations

import argparse
import importlib.util
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import kernels
import minigrad
from minigrad.commands import CommandError

HELP = "run a program: its torch is minigrad; without a GPU numba.cuda and cupy run on the CPU"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-m", action="store_true", help="PROGRAM is a module, as in python -m")
    parser.add_argument("program", metavar="PROGRAM", help="a Python file, or - for standard input")
    parser.add_argument("args", nargs=argparse.REMAINDER, help="the program's own arguments")


def run(args: argparse.Namespace) -> int:
    return start([*(["-m"] if args.m else []), args.program, *args.args])


def start(argv: Sequence[str]) -> int:
    """Run `PROGRAM [args]` or `-m MODULE [args]` as Python would, with the modules installed."""
    is_module, argv = argv[0] == "-m", list(argv[argv[0] == "-m" :])
    if not argv:
        raise CommandError("which program? (minigrad run PROGRAM [args])")
    kernels.install()
    minigrad.as_torch()
    sys.argv = argv
    if is_module:
        sys.path[0] = ""
        if not _is_there(argv[0]):
            raise CommandError(f"No module named {argv[0]}")
        runpy.run_module(argv[0], run_name="__main__", alter_sys=True)
        return 0
    return _run_file(argv[0])


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # the package around it
        return False


def _run_file(name: str) -> int:
    """Run a file as the module `__main__`, which stays: threads and child processes need it."""
    path = Path(name)
    try:
        source = sys.stdin.buffer.read() if name == "-" else path.read_bytes()
    except OSError as error:
        raise CommandError(f"cannot read {name}: {error.strerror}") from None
    main = ModuleType("__main__")
    main.__file__, main.__builtins__ = str(path.absolute()), __builtins__
    sys.modules["__main__"] = main
    sys.path[0] = str(path.absolute().parent)
    try:
        exec(compile(source, main.__file__, "exec"), vars(main))
    except Exception as error:
        # Without the frames of this file, as Python would show it.
        error.__traceback__ = error.__traceback__.tb_next
        sys.excepthook(type(error), error, error.__traceback__)
        return 1
    return 0
