"""Threads of one line that a kernel numbers by rows and columns: `t // 32` and `t % 32` are a warp
and a lane, `t // 16` and `t % 16` the place in a tile.

Along a part of the line that is as long as a row, the one is the same and the other counts. So such
a part runs together: its threads use neighbouring memory, and share the rest. `_x0` is the first
thread of the part.
"""

from __future__ import annotations

import ast

from numba.core import types

from kernels.simt.analysis.ranges import constant
from kernels.simt.analysis.uniformity import exposure
from kernels.simt.ir.nodes import (
    binary,
    clone,
    const,
    defined,
    expressions,
    load,
    names,
    statements,
)

LEAST, MOST = 8, 64  # threads that go together


def by_columns(
    body: list[ast.stmt], threads: int, kinds: dict[str, types.Type]
) -> tuple[list[ast.stmt], int] | None:
    """`body` for parts of a line of `threads`, and their length: that of the shortest rows of at
    least LEAST threads, or MOST. None where the kernel makes no such rows."""
    numbers = _Numbers(_assigned_once(body), kinds)
    nodes = [n for s in statements(body) for expr in expressions(s) for n in ast.walk(expr)]
    # powers of two, of which each divides the longer ones
    widths = [width for node in nodes if (width := numbers.width(node)) is not None]
    width = min([width for width in widths if width >= LEAST], default=0)
    width = min(width, MOST)
    if width == 0 or threads % width:
        return None
    rewrite = _Rewrite(numbers, width, load("_x0") if width < threads else const(0))
    return [rewrite.visit(clone(stmt)) for stmt in body], width


def _assigned_once(body: list[ast.stmt]) -> dict[str, ast.expr]:
    """The values of variables that have no other one in `body`, and whose values stay the same for
    as long as they are used: what these are computed from is not assigned again meanwhile."""
    values: dict[str, list[ast.expr | None]] = {}
    for stmt in statements(body):
        if (name := defined(stmt)) is not None:
            values.setdefault(name, []).append(getattr(stmt, "value", None))
    exposed, _, _ = exposure(body, set(values))
    single = {name: found[0] for name, found in values.items() if len(found) == 1}
    changing = set(values) - set(single) | exposed
    once = {name: value for name, value in single.items() if value is not None}
    while found := {n for n, value in once.items() if n in changing or names(value) & changing}:
        changing |= found
        once = {name: value for name, value in once.items() if name not in found}
    return once


class _Numbers:
    """Reasons about the numbers of threads. `once` are assignments that may be looked through."""

    def __init__(self, once: dict[str, ast.expr], kinds: dict[str, types.Type]) -> None:
        self.once, self.kinds = once, kinds

    def width(self, node: ast.AST) -> int | None:
        """How long the rows are into which an expression divides the threads; None if it does
        not."""
        match node:
            case ast.BinOp(left=number, op=ast.Mod() | ast.FloorDiv(), right=right):
                width = constant(right)
            case ast.BinOp(left=number, op=ast.BitAnd(), right=right):
                width = None if (mask := constant(right)) is None else mask + 1
            case ast.BinOp(left=number, op=ast.RShift(), right=right):
                width = None if (shift := constant(right)) is None else 1 << min(max(shift, 0), 16)
            case _:
                return None
        if width is None or width < 2 or width & (width - 1):
            return None
        return width if self.count(number, width) else None

    def count(self, expr: ast.expr, width: int) -> bool:
        """Whether `expr` is the thread's number, and multiples of `width`."""
        match expr:
            case ast.Name(id="_tx"):
                return True
            case ast.Name(id=name) if name in self.once:
                return self._is_integer(expr) and self.count(self.once[name], width)
            case ast.BinOp(left=a, op=ast.Add(), right=b):
                return any(
                    self.count(one, width)
                    and self._is_integer(other)
                    and self._is_multiple(other, width)
                    for one, other in ((a, b), (b, a))
                )
        return False

    def _is_multiple(self, expr: ast.expr, width: int) -> bool:
        match expr:
            case ast.Constant(value=int(value)):
                return value % width == 0
            case ast.Name(id=name) if name in self.once:
                return self._is_multiple(self.once[name], width)
            case ast.BinOp(left=a, op=ast.Mult(), right=b):
                return self._is_multiple(a, width) or self._is_multiple(b, width)
            case ast.BinOp(left=a, op=ast.Add() | ast.Sub(), right=b):
                return self._is_multiple(a, width) and self._is_multiple(b, width)
        return False

    def _is_integer(self, expr: ast.expr) -> bool:
        """Whether `expr` is known to be an integer (uint64 counts by other rules)."""
        match expr:
            case ast.Constant(value=value):
                return type(value) is int
            case ast.Name(id=name):
                kind = self.kinds.get(name, types.intp)
                return isinstance(kind, types.Integer) and kind != types.uint64
            case ast.BinOp(left=a, op=ast.Add() | ast.Sub() | ast.Mult(), right=b):
                return self._is_integer(a) and self._is_integer(b)
            case ast.Subscript(value=ast.Attribute(attr="shape")) | ast.Attribute(attr="size"):
                return True
        return False


class _Rewrite(ast.NodeTransformer):
    """Row numbers become those of the part's first thread, columns count from there."""

    def __init__(self, numbers: _Numbers, width: int, first: ast.expr) -> None:
        self.numbers, self.width, self.first = numbers, width, first

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        width = self.numbers.width(node)
        if width is None or width % self.width:
            return self.generic_visit(node)
        at_first: ast.expr = ast.BinOp(self._of_first(node.left), node.op, node.right)
        if isinstance(node.op, ast.FloorDiv | ast.RShift):
            return at_first
        here: ast.expr = load("_tx")
        if not isinstance(self.first, ast.Constant):
            here = binary(here, ast.Sub(), clone(self.first))
        return here if width == self.width else binary(at_first, ast.Add(), here)

    def _of_first(self, expr: ast.expr) -> ast.expr:
        """The number of the part's first thread in the place of a thread's."""
        match expr:
            case ast.Name(id="_tx"):
                return clone(self.first)
            case ast.Name(id=name) if self.numbers.count(expr, self.width):
                return self._of_first(self.numbers.once[name])
            case ast.BinOp(left=a, op=ast.Add() as op, right=b):
                return ast.BinOp(self._of_first(a), op, self._of_first(b))
        return clone(expr)
