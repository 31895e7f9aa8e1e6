"""List the kernels: each family's versions from naive to fast, and the one idea that each adds."""

from __future__ import annotations

import argparse

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
    header = ("family", "dialect", "version", "idea")
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(3)]
    for row in [header, *rows]:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=False))
        print("  ".join([*cells, row[3]]))
    return 0
