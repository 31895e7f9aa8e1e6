"""Which of the names that torch programs use exist in minigrad: python -m benchmarks.torch_names

api.tsv has the names that 374 public teaching programs use, by the number of programs. A name
counts as existing if it can be looked up; whether it behaves as torch's is for the tests to say.
"""

from __future__ import annotations

import argparse
import csv
import sys
from pathlib import Path
from typing import Any

import minigrad

# Numba imports a package that has the name of this file: it must not find it in this folder.
sys.path[:] = [path for path in sys.path if Path(path) != Path(__file__).resolve().parent]

TABLE = Path(__file__).with_name("api.tsv")
# How the table abbreviates namespaces.
PREFIXES = {
    "torch.": "",
    "F.": "nn.functional.",
    "init.": "nn.init.",
    "lr_scheduler.": "optim.lr_scheduler.",
}


def owners(symbol: str) -> tuple[list[Any], str]:
    """Where a name of the table is looked up, and what remains of it."""
    if symbol.startswith("Module/Optim."):
        return [minigrad.nn.Module, minigrad.optim.Optimizer], symbol.partition(".")[2]
    for prefix, full in PREFIXES.items():
        if symbol.startswith(prefix):
            return [minigrad], full + symbol.removeprefix(prefix)
    return [minigrad], symbol


def exists(symbol: str) -> bool:
    """Whether minigrad has the name."""
    found, path = owners(symbol)
    for part in path.split("."):
        found = [getattr(owner, part) for owner in found if hasattr(owner, part)]
    return bool(found)


def rows() -> list[dict[str, str]]:
    """The table: rank, symbol, programs, repos."""
    with TABLE.open(newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--missing", action="store_true", help="list the names that do not exist")
    wanted, table = parser.parse_args(), rows()
    missing = [row for row in table if not exists(row["symbol"])]
    print(f"{len(table) - len(missing)} of {len(table)} names exist")
    top = sum(int(row["rank"]) <= 400 for row in missing)
    print(f"of the first 400: {min(400, len(table)) - top}")
    for row in missing if wanted.missing else ():
        print(f"{row['rank']:>4} {row['symbol']}  ({row['programs']} programs)")


if __name__ == "__main__":
    main()
