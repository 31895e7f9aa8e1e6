"""Blocks whose threads are taken along y (or z) instead of x, because memory lies that way.

`i, j = cuda.grid(2)` and then `out[i, j] = ...` gives neighbours in x elements of different rows.
Neighbours in y would use elements side by side, which a vector unit loads at once and which share
lines of the cache. Threads between two barriers, and blocks, may run in any order: here x and that
axis change places, in the block and in the grid, so that all other passes find a kernel that was
written the other way. The function takes the sizes of the grid in the new order.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import replace

from numba.core import types

from kernels.simt.analysis import ssa
from kernels.simt.analysis.affine import Affine
from kernels.simt.analysis.loops import spins
from kernels.simt.analysis.uniformity import Facts, dependent_on
from kernels.simt.ir.nodes import (
    BLOCK,
    GRID,
    THREAD,
    Collective,
    Loop,
    clone,
    const,
    expressions,
    nodes_in,
    range_arguments,
    statements,
)
from kernels.simt.ir.program import Program

LEAST = 8  # threads along an axis that can take the place of x: a vector of them
# What a thread's neighbour costs that uses the element beside, another one of who knows where, and
# one of another row
_BESIDE, _SOMEWHERE, _APART = 1, 8, 16
_CLEARLY = 4  # times less
_IN_LOOP = 8  # times that a loop is assumed to run
_MOST_LOOPS = 4


def turned(program: Program, kinds: Mapping[str, types.Type]) -> Program | None:
    """`program` with x and another axis exchanged; None where it gains nothing, or could tell.
    `kinds`: the types of the parameters."""
    axes = [axis for axis in (1, 2) if program.block[axis] >= LEAST]
    if program.checked or program.cooperative or program.ordered:
        return None
    if not axes or not _is_silent(program):
        return None
    named = replace(program, body=clone(program.body), taken=set(program.taken), renamed={})
    ssa.rename(named)
    costs = _Costs(named, kinds)
    least, axis = min((costs.along(axis), axis) for axis in axes)
    return exchanged(program, axis) if least * _CLEARLY < costs.along(0) else None


def _is_silent(program: Program) -> bool:
    """Whether nobody can tell in which order the threads of a block run: warps, messages."""
    if any(function.placed for function in program.functions.values()):
        return False
    for stmt in statements(program.body):
        if isinstance(stmt, ast.Raise) or (isinstance(stmt, Loop) and spins(stmt, program)):
            return False
        if isinstance(stmt, Collective) and not stmt.kind.startswith("syncthreads"):
            return False
        if isinstance(stmt, ast.Expr) and not _is_atomic(stmt.value):
            return False
    return True


def _is_atomic(call: ast.expr) -> bool:
    return (
        isinstance(call, ast.Call)
        and isinstance(call.func, ast.Name)
        and call.func.id.startswith("_atomic")
    )


def exchanged(program: Program, axis: int) -> Program:
    """`program` with x and y (axis 1) or x and z (axis 2) exchanged."""
    new: dict[str, str] = {}
    for names in (THREAD, BLOCK, GRID):
        new |= {names[0]: names[axis], names[axis]: names[0]}
    x, y, z = program.block
    block = (y, x, z) if axis == 1 else (z, y, x)
    body = [_Exchange(new).visit(stmt) for stmt in clone(program.body)]
    return replace(program, block=block, body=body, turned=axis)


class _Exchange(ast.NodeTransformer):
    def __init__(self, new: dict[str, str]) -> None:
        self.new = new

    def visit_Name(self, node: ast.Name) -> ast.Name:
        node.id = self.new.get(node.id, node.id)
        return node


class _Costs:
    """Counts what a kernel's accesses cost along an axis of a block."""

    def __init__(self, program: Program, kinds: Mapping[str, types.Type]) -> None:
        self.program, self.kinds = program, kinds
        self.placed = dependent_on(set(THREAD), program, program.body)
        self.depends = [dependent_on({name}, program, program.body) for name in THREAD]
        last = {name: const(size - 1) for name, size in zip(THREAD, program.block)}
        box = {name: (const(0), end) for name, end in last.items()}
        self.affine = Affine(box, _definitions(self.placed), {}, self._is_fixed)

    def _is_fixed(self, name: str) -> bool:
        return name not in self.placed.varying

    def along(self, axis: int) -> int:
        """What all accesses cost, where threads along `axis` run together."""
        cost = 0
        for site in self.placed.sites:
            loops = sum(isinstance(c, ast.For | ast.While) for c in site.controls)
            for expr in expressions(site.stmt):
                for node in nodes_in(expr):
                    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
                        each = self._access(node.value.id, node.slice, axis)
                        cost += each * _IN_LOOP ** min(loops, _MOST_LOOPS)
        return cost

    def _access(self, array: str, index: ast.expr, axis: int) -> int:
        indices = index.elts if isinstance(index, ast.Tuple) else [index]
        kind = self.kinds.get(array)
        if getattr(kind, "layout", "C") == "F":
            indices = indices[::-1]
        differs = [self.depends[axis].is_varying(index) for index in indices]
        row = array in self.depends[axis].varying  # a view of another array
        if not any(differs) and not row:
            return 0
        if any(differs[:-1]) or row or len(indices) < getattr(kind, "ndim", 0):
            return _APART
        slope = self.affine.slope(indices[-1], THREAD[axis])
        return _SOMEWHERE if slope is None else _BESIDE if abs(slope) == 1 else _APART


def _definitions(facts: Facts) -> dict[str, ast.expr]:
    """Variables that are assigned once, and where counters begin."""
    found = {}
    for name, sites in facts.defs.items():
        stmt = sites[0].stmt
        if len(sites) == 1 and isinstance(stmt, ast.Assign):
            found[name] = stmt.value
        elif len(sites) == 1 and isinstance(stmt, ast.For):
            bounds = range_arguments(stmt)
            found[name] = bounds[0] if len(bounds) > 1 else const(0)
    return found
