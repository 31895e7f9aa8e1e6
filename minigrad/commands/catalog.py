"""List the kernels: the versions of each family from naive to fast, with the idea that each adds.

Those in CUDA C are also compiled for a GPU of compute capability 8.0, with no GPU needed.
"""

from __future__ import annotations

import argparse
import sys

from minigrad.commands import CommandError

HELP = "list the kernels and the idea of each version"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("family", nargs="?", help="only this family, for example matmul")


def run(args: argparse.Namespace) -> int:
    import kernels

    rows = kernels.catalog()
    if args.family is not None:
        families = sorted({family for family, *_ in rows})
        rows = [row for row in rows if row[0] == args.family]
        if not rows:
            raise CommandError(f"no kernel family {args.family!r}; there are {', '.join(families)}")
    facts = resources(args.family) if any(dialect == "cupy" for _, dialect, *_ in rows) else None
    names = ("regs", "shared", "stack", "spills") if facts is not None else ()
    table = [("family", "dialect", "version", *names, "idea")]
    for family, dialect, version, idea in rows:
        own = facts.get((family, version)) if facts and dialect == "cupy" else None
        table.append((family, dialect, version, *(own or "-" * len(names)), idea))
    widths = [max(map(len, column)) for column in zip(*table)]
    for row in table:
        left = [cell.ljust(width) for cell, width in zip(row[:3], widths)]
        right = [cell.rjust(width) for cell, width in zip(row[3:-1], widths[3:])]
        print("  ".join([*left, *right, row[-1]]))
    if facts:
        print(
            "\nregs: registers per thread; shared: bytes per block; stack, spills: bytes per"
            " thread; compiled for sm_80 (wgmma for sm_90a), the maximum over all instances"
        )
    return 0


def resources(family: str | None = None) -> dict[tuple[str, str], tuple[str, ...]]:
    """Registers, shared memory, stack and spills of the CUDA C kernels (of one family, or of all),
    by family and version; empty if NVIDIA's compiler is not installed."""
    from kernels.lab.gpu_model import resources

    if resources.will_compile(only=family):
        what = "the CUDA C kernels" if family is None else f"{family} in CUDA C"
        print(f"compiling {what} for sm_80, once ...", file=sys.stderr, flush=True)
    lines = resources.table(only=family) or []
    return {
        row: (str(f.registers), str(f.shared), str(f.stack), str(f.spill_stores + f.spill_loads))
        for row, f in resources.most(lines).items()
    }
