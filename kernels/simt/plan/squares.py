"""Transposed copies in squares of threads.

`tile[ty, tx] = b[col0 + tx, k0 + ty]` reads memory along y and writes it along x: whichever of the
two is the inner loop, one side goes element by element. SQUARE x SQUARE threads together load
along y, exchange in registers, and store along x. That is how a matrix product fills its tile of a
transposed operand, and how a transpose leaves its tile.
"""

from __future__ import annotations

import ast
from typing import NamedTuple

from numba.core import types

from kernels.simt.analysis.affine import Affine, Box
from kernels.simt.analysis.loops import constant_ends
from kernels.simt.ir import memory
from kernels.simt.ir.memory import SQUARE
from kernels.simt.ir.nodes import call, const, counter, defined, load, located
from kernels.simt.plan.parts import RowVersion, SquareLoop
from kernels.simt.plan.regions import RegionPlanner, StoredRows
from kernels.simt.transforms.block_interleave import index_parts
from kernels.simt.transforms.short_loops import shallow_copy

_FOUR_BYTES = types.float32, types.int32, types.uint32


def square_version(regions: RegionPlanner, rows: StoredRows) -> RowVersion | None:
    """The version of a region in which squares of threads copy together; None where its rows do
    anything but such copies."""
    program = regions.program
    x, y, _ = program.block
    if program.checked or program.cooperative or x % SQUARE or y % SQUARE:
        return None
    if rows.storage.spilled or not rows.plan.body:
        return None
    body = _Squares(regions, rows).body(rows.plan.body, {})
    if body is None:
        return None
    line = getattr(rows.plan.body[0], "lineno", 0)
    return RowVersion([SquareLoop(line, None, body)], SQUARE, SQUARE, None, ordered=False)


class _Element(NamedTuple):
    """An element of an array."""

    array: str
    indices: list[ast.expr]

    def place(self) -> ast.Tuple:
        return ast.Tuple(self.indices, ast.Load())

    def axis_across(self, affine: Affine, along: str, across: str) -> int | None:
        """The axis that `across` counts through, where `along` counts through the last one."""
        slopes = [(affine.slope(i, along), affine.slope(i, across)) for i in self.indices]
        if slopes.pop() != (1, 0):
            return None
        axes = [axis for axis, slope in enumerate(slopes) if slope == (0, 1)]
        return axes[0] if len(axes) == 1 and slopes.count((0, 0)) == len(slopes) - 1 else None


def _element(node: ast.expr) -> _Element | None:
    match node:
        case ast.Subscript(value=ast.Name(id=array)):
            return _Element(array, index_parts(node))
    return None


class _Squares:
    """Puts copies of squares in the place of those of elements."""

    def __init__(self, regions: RegionPlanner, rows: StoredRows) -> None:
        self.regions, self.facts = regions, rows.plan.facts
        self.program, self.kinds = regions.program, regions.kinds
        self.spilled = regions.storage.spilled

    def body(self, body: list[ast.stmt], box: Box) -> list[ast.stmt] | None:
        """`body` for a square whose first thread is at hand, inside of constant loops whose
        counters range as in `box`; None where that is not known, or no copy is in it."""
        out: list[ast.stmt] = []
        copies = 0
        for stmt, following in zip(body, [*body[1:], None]):
            if self._is_overwritten(stmt, following):
                continue
            new = self.statement(stmt, box)
            if new is None:
                return None
            out.append(new)
            copies += new is not stmt
        return out if copies else None

    def statement(self, stmt: ast.stmt, box: Box) -> ast.stmt | None:
        """What a square does where each of its threads does `stmt`."""
        if isinstance(stmt, ast.For):
            ends = constant_ends(stmt)
            inner = None if ends is None else self.body(stmt.body, {**box, counter(stmt): ends})
            if inner is None:
                return None
            new = shallow_copy(stmt)
            assert isinstance(new, ast.For)
            new.body = inner
            return new
        name = defined(stmt)
        if name is not None:
            return stmt if isinstance(stmt, ast.Assign) and name not in self.spilled else None
        return self.copy(stmt, box) if isinstance(stmt, ast.Assign) else None

    def copy(self, stmt: ast.Assign, box: Box) -> ast.stmt | None:
        """The copy of a square whose elements are copied by `stmt`."""
        target = _element(stmt.targets[0])
        dtype = None if target is None else self._dtype(target)
        if target is None or dtype is None:
            return None
        source = _element(self._without_casts(stmt.value, (dtype,)))
        if source is None or source.array == target.array or self._dtype(source) != dtype:
            return None
        affine = self.regions.rows.whole_block(self.facts, at=stmt, more=dict(box))
        down = target.axis_across(affine, along="_tx", across="_ty")
        across = source.axis_across(affine, along="_ty", across="_tx")
        if down is None or across is None:
            return None
        name = self.program.extern(memory.copy_square, "copy_square")
        to = load(target.array), target.place(), const(down)
        of = load(source.array), source.place(), const(across)
        return located(ast.Expr(call(name, *to, *of)), stmt)

    def _is_overwritten(self, stmt: ast.stmt, following: ast.stmt | None) -> bool:
        """Whether `stmt` stores a constant where the statement after it stores something else."""
        match stmt, following:
            case (
                ast.Assign(targets=[ast.Subscript() as place], value=value),
                ast.Assign(targets=[ast.Subscript() as again]),
            ):
                constant = isinstance(self._without_casts(value, _FOUR_BYTES), ast.Constant)
                return constant and ast.unparse(place) == ast.unparse(again)
        return False

    def _without_casts(self, value: ast.expr, to: tuple[types.Type, ...]) -> ast.expr:
        """`value` without casts to one of the types `to`."""
        match value:
            case ast.Call(func=ast.Name(id=name), args=[inner]):
                if self.program.externs.get(name) in to:
                    return self._without_casts(inner, to)
        return value

    def _dtype(self, element: _Element) -> types.Type | None:
        """The type of an element of 4 bytes of a contiguous array of several dimensions, which
        threads share; None for others."""
        shared = {a.name for a in self.program.arrays.values() if a.space == "shared"}
        kind = self.kinds.get(element.array)
        if element.array not in shared | set(self.program.given):
            return None
        if not isinstance(kind, types.Array) or kind.layout != "C":
            return None
        fits = kind.dtype in _FOUR_BYTES and kind.ndim == len(element.indices) > 1
        return kind.dtype if fits else None
