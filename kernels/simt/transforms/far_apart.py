"""Rows of memory that neighbouring threads walk along, one each.

`for k in range(n): total += a[row, k]` with a row for each thread is what a GPU takes long for: its
threads read far from each other. On a CPU each of them reads what lies behind its last element, in
as many cache lines as there are threads together. If the rows are a power of two apart, all of
these lines have their place in one set of the cache, and it has 8 such places or a few more.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any, NamedTuple

from kernels.simt.analysis.affine import Affine, coefficient
from kernels.simt.analysis.uniformity import Facts
from kernels.simt.ir.nodes import const, counter, names, statements

TOGETHER = 8  # threads that then go through a loop together: as many lines as one set holds
_A_LINE = 16  # elements: from there on, neighbours read other lines
_NEAR = 8  # elements from one iteration to the next: so they share a line


class Walks(NamedTuple):
    """Whether neighbours in x walk along memory in other lines, in some loop: read it, or write it
    in every iteration of a loop without another one inside."""

    read: bool
    written: bool


def far_walks(body: list[ast.stmt], facts: Facts, kinds: Mapping[str, Any]) -> Walks:
    """What the loops in `body` do."""
    definitions = {
        name: sites[0].stmt.value
        for name, sites in facts.defs.items()
        if len(sites) == 1 and isinstance(sites[0].stmt, ast.Assign)
    }
    box = {"_tx": (const(0), const(1))}
    affine = Affine(box, definitions, kinds, lambda name: name not in facts.varying)
    local, read, written = facts.program.arrays, False, False
    for loop in (stmt for stmt in statements(body) if isinstance(stmt, ast.For)):
        innermost = not any(isinstance(inner, ast.For) for inner in statements(loop.body))
        for node in ast.walk(loop):
            if not (isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name)):
                continue
            if node.value.id in local or not _is_far_walk(node.slice, counter(loop), affine):
                continue
            read |= isinstance(node.ctx, ast.Load)
            written |= innermost and isinstance(node.ctx, ast.Store)
    return Walks(read, written)


def _is_far_walk(index: ast.expr, step: str, affine: Affine) -> bool:
    """Whether an index goes along memory with the counter `step`, and to other lines with x."""
    *rows, last = index.elts if isinstance(index, ast.Tuple) else [index]
    place = affine.expanded(last)
    along = None if place is None else coefficient(place, step)
    if not along or abs(along) > _NEAR:
        return False
    beside = coefficient(place, "_tx")
    if beside is None or abs(beside) >= _A_LINE:
        return True
    return any((row := affine.expanded(part)) is not None and "_tx" in names(row) for part in rows)
