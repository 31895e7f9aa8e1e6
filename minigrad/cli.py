"""The command `minigrad`: `train`, `doctor`, `gpus`, ..., each a module of `minigrad/commands`."""

from __future__ import annotations

import argparse
import errno
import importlib
import io
import os
import sys
from collections.abc import Sequence
from types import ModuleType

import minigrad
from minigrad.commands import CommandError

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
COMMANDS = ("train", "doctor", "catalog", "lab", "course", "bench", "gpus", "scale", "run")


def _command(name: str) -> ModuleType:
    """The module of a command. Imported when needed: a program that is run waits for no other."""
    return importlib.import_module(f"minigrad.commands.{name}")


class _Parser(argparse.ArgumentParser):
    def error(self, message: str):
        """One line on standard error and exit status 2, without the usage."""
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="minigrad", description="Train networks with CUDA kernels, on a GPU or on this CPU."
    )
    parser.add_argument("--version", action="version", version=f"minigrad {minigrad.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name in COMMANDS:
        module = _command(name)
        sub = commands.add_parser(name, help=module.HELP, description=module.__doc__)
        module.add_arguments(sub)
    return parser


def _check_environment() -> None:
    """Raise CommandError for an invalid setting, which would later end in a traceback."""
    from kernels import dispatch, simt

    name = minigrad.backends.get()
    known = sorted(dispatch.MODULES)
    if name not in known:
        raise CommandError(f"MINIGRAD_BACKEND: expected one of {known}, got {name!r}")
    try:
        simt.get_num_threads()
    except ValueError as error:
        raise CommandError(str(error)) from None


def _discard_output() -> None:
    """Send what is left in the buffer to nowhere: Python would fail to write it once more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line (default: this process's) and return its exit status."""
    argv = sys.argv[1:] if argv is None else argv
    command = argv[0] if argv else ""
    try:
        if command == "run" and argv[1:2] not in ([], ["-h"], ["--help"]):
            return _command("run").start(argv[1:])  # whatever follows is the program's
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="replace")  # a terminal that lacks a letter shows "?"
        args = _parser().parse_args(argv)
        _check_environment()
        status = _command(args.command).run(args)
        sys.stdout.flush()
        return status
    except CommandError as error:
        print(f"minigrad {command}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"minigrad {command}: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # `minigrad catalog | head`: the pipe is closed
        _discard_output()
        return 141
    except OSError as error:
        if error.errno not in _NO_ROOM or command == "run":
            raise
        _discard_output()
        name = error.filename or "standard output"
        print(f"minigrad {command}: cannot write {name}: {error.strerror}", file=sys.stderr)
        return 1
