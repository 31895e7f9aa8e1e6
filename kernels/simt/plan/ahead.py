"""What the next rows of a tile read from memory, asked for while these compute.

Rows that go together read `a[row, p + q]` for 32 or so numbers q, then the next rows do: a few
cache lines of each row, far apart where the matrix is wide. No processor foresees these jumps, and
each ends up waiting for the second-level cache; one request for each line does away with that.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from numba.core import types

from kernels.simt.analysis.ranges import constant
from kernels.simt.ir.memory import itemsize
from kernels.simt.ir.nodes import const, expressions, load, names, statements
from kernels.simt.plan.regions import RegionPlanner, StoredRows
from kernels.simt.transforms.block_interleave import index_parts
from kernels.simt.transforms.clamps import LEAST, arguments
from kernels.simt.transforms.fission import BlockFor, Item, Region

LINE = 64  # bytes
MOST = 8  # lines of a row


def read_ahead(regions: RegionPlanner, rows: StoredRows | None) -> list[ast.Subscript]:
    """What row `_ty` reads of each line in its loop over a tile; nothing where rows go alone."""
    found: dict[str, ast.Subscript] = {}
    if rows is None or rows.plan.rows == 1:
        return []
    for item in rows.plan.items:
        length = _most(regions, item)
        if isinstance(item, BlockFor) and length:
            for element in _loads(regions, item):
                for first in _of_lines(regions, rows, element, item.target, length):
                    found.setdefault(ast.dump(first), first)
    return list(found.values())


def _most(regions: RegionPlanner, item: Item) -> int:
    """How often a loop runs at most, where its bound tells; else 0."""
    match item:
        case BlockFor(iter=ast.Call(args=[bound])):
            parts = arguments(regions.program, bound, LEAST) or [bound]
            return min((n for part in parts if (n := constant(part)) is not None), default=0)
    return 0


def _loads(regions: RegionPlanner, loop: BlockFor) -> Iterator[ast.Subscript]:
    """The elements of given arrays in the loop."""
    for region in loop.body:
        for stmt in statements(region.body) if isinstance(region, Region) else ():
            for node in (n for expr in expressions(stmt) for n in ast.walk(expr)):
                match node:
                    case ast.Subscript(value=ast.Name(id=name)) if name in regions.program.given:
                        yield node


def _of_lines(
    regions: RegionPlanner, rows: StoredRows, element: ast.Subscript, counter: str, length: int
) -> Iterator[ast.Subscript]:
    """The first element of each line that `counter` passes along the last axis; none of what goes
    along another axis, or depends on x or on what threads compute."""
    array, parts, facts = ast.unparse(element.value), index_parts(element), rows.plan.facts
    kind = regions.kinds.get(array)
    if not isinstance(kind, types.Array) or kind.layout != "C" or kind.ndim != len(parts):
        return
    x, y, _ = regions.program.block
    more = {"_ty": (const(0), const(y - 1)), counter: (const(0), const(length - 1))}
    affine = regions.rows.affine(facts, x, more=more)
    if [affine.slope(part, counter) for part in parts] != [0] * (len(parts) - 1) + [1]:
        return
    firsts = [affine.at(part, {counter: const(0)}) for part in parts]
    read = set().union(*map(names, firsts))
    if "_tx" in read or read & facts.defs.keys():
        return
    size = itemsize(kind.dtype)
    for first in range(0, length, LINE // size) if length * size <= MOST * LINE else ():
        index = [affine.at(part, {counter: const(first)}) for part in parts]
        at = index[0] if len(index) == 1 else ast.Tuple(index, ast.Load())
        yield ast.Subscript(load(array), at, ast.Load())
