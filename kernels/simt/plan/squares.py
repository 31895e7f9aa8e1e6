"""Transposed copies in squares of threads.

`tile[ty, tx] = b[col0 + tx, k0 + ty]` reads memory along y and writes it along x: whichever of the
two is the inner loop, one side goes element by element. SQUARE x SQUARE threads together load
along y, exchange in registers, and store along x. That is how a matrix product fills its tile of a
transposed operand, and how a transpose leaves its tile.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping

from numba.core import types

from kernels.simt.analysis.affine import Affine, Box
from kernels.simt.analysis.loops import constant_ends
from kernels.simt.ir import memory
from kernels.simt.ir.memory import SQUARE, itemsize
from kernels.simt.ir.nodes import call, const, counter, defined, load, located
from kernels.simt.plan.parts import RowVersion, SquareLoop
from kernels.simt.plan.regions import RegionPlanner, StoredRows
from kernels.simt.transforms.block_interleave import index_parts, stored_array
from kernels.simt.transforms.short_loops import shallow_copy


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
            name = defined(stmt)
            if isinstance(stmt, ast.For):
                ends = constant_ends(stmt)
                inner = ends and self.body(stmt.body, {**box, counter(stmt): ends})
                if not inner:
                    return None
                new, copies = shallow_copy(stmt), copies + 1
                new.body = inner
                out.append(new)
            elif isinstance(stmt, ast.Assign) and name is not None and name not in self.spilled:
                out.append(stmt)
            elif _is_overwritten(stmt, following):
                continue
            else:
                copy = self.copy(stmt, box) if stored_array(stmt) is not None else None
                if copy is None:
                    return None
                copies += 1
                out.append(copy)
        return out if copies else None

    def copy(self, stmt: ast.Assign, box: Box) -> ast.stmt | None:
        """The copy of a square whose elements are copied by `stmt`."""
        target, source = stmt.targets[0], self._loaded(stmt.value)
        if source is None or not self._is_plain(target) or not self._is_plain(source):
            return None
        to, of = target.value.id, source.value.id
        if to == of or self.kinds[to].dtype != self.kinds[of].dtype:
            return None
        affine = self.regions.rows.whole_block(self.facts, at=stmt, more=dict(box))
        down = _axis_across(affine, target, along="_tx", across="_ty")
        across = _axis_across(affine, source, along="_ty", across="_tx")
        if down is None or across is None:
            return None
        name = self.program.extern(memory.copy_square, "copy_square")
        at, place = (ast.Tuple(index_parts(each), ast.Load()) for each in (target, source))
        given = load(to), at, const(down), load(of), place, const(across)
        return located(ast.Expr(call(name, *given)), stmt)

    def _loaded(self, value: ast.expr) -> ast.Subscript | None:
        """The element that `value` is, perhaps through casts to its own type."""
        while isinstance(value, ast.Call) and len(value.args) == 1:
            kind = self.program.externs.get(getattr(value.func, "id", None))
            if not isinstance(kind, types.Number) or itemsize(kind) != 4:
                return None
            value = value.args[0]
        return value if isinstance(value, ast.Subscript) else None

    def _is_plain(self, element: ast.Subscript) -> bool:
        """Whether this is an element of 4 bytes of a contiguous array of several dimensions."""
        kind = self.kinds.get(getattr(element.value, "id", None))
        local = {a.name for a in self.program.arrays.values() if a.space == "local"}
        return (
            isinstance(kind, types.Array)
            and kind.layout == "C"
            and kind.dtype in (types.float32, types.int32, types.uint32)
            and kind.ndim == len(index_parts(element)) > 1
            and element.value.id not in local
        )


def _is_overwritten(stmt: ast.stmt, following: ast.stmt | None) -> bool:
    """Whether `stmt` stores a constant where the statement after it stores something else."""
    if stored_array(stmt) is None or following is None or stored_array(following) is None:
        return False
    places = (ast.unparse(each.targets[0]) for each in (stmt, following))
    value = stmt.value
    while isinstance(value, ast.Call) and len(value.args) == 1:  # a cast
        value = value.args[0]
    return isinstance(value, ast.Constant) and len(set(places)) == 1


def _axis_across(affine: Affine, element: ast.Subscript, along: str, across: str) -> int | None:
    """The axis that `across` counts through, where `along` counts through the last one."""
    slopes: list[Mapping[str, int | None]] = [
        {name: affine.slope(part, name) for name in (along, across)}
        for part in index_parts(element)
    ]
    if slopes.pop() != {along: 1, across: 0}:
        return None
    still, moves = {along: 0, across: 0}, {along: 0, across: 1}
    axes = [axis for axis, slope in enumerate(slopes) if slope == moves]
    return axes[0] if len(axes) == 1 and slopes.count(still) == len(slopes) - 1 else None
