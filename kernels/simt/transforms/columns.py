"""Threads of one line that a kernel numbers by rows and columns: `t // 32` and `t % 32` are a warp
and a lane, `t // 16` and `t % 16` the place in a tile.

Along a part of the line that is as long as a row, the one is the same and the other counts. So such
a part runs together: its threads use neighbouring memory, and share the rest. `_x0` is the first
thread of the part.
"""

from __future__ import annotations

import ast

from kernels.simt.analysis.ranges import constant
from kernels.simt.analysis.uniformity import exposure
from kernels.simt.ir.nodes import binary, clone, const, defined, expressions, load, statements

LEAST, MOST = 8, 64  # threads that go together


def by_columns(body: list[ast.stmt], threads: int) -> tuple[list[ast.stmt], int] | None:
    """`body` for parts of a line of `threads`, and their length: that of the shortest rows of at
    least LEAST threads, or MOST. None where the kernel makes no such rows."""
    once = _assigned_once(body)
    nodes = [n for s in statements(body) for expr in expressions(s) for n in ast.walk(expr)]
    # powers of two, of which each divides the longer ones
    widths = [width for node in nodes if (width := _width(node, once)) is not None]
    width = min([width for width in widths if width >= LEAST], default=0)
    width = min(width, MOST)
    if width == 0 or threads % width:
        return None
    first = load("_x0") if width < threads else const(0)
    rewrite = _Rewrite(width, first, once)
    return [rewrite.statement(stmt) for stmt in body], width


def _assigned_once(body: list[ast.stmt]) -> dict[str, ast.expr]:
    """The values of variables that have no other one in `body`."""
    values: dict[str, list[ast.expr]] = {}
    for stmt in statements(body):
        if isinstance(stmt, ast.Assign) and (name := defined(stmt)) is not None:
            values.setdefault(name, []).append(stmt.value)
    exposed, _, _ = exposure(body, set(values))
    return {
        name: found[0] for name, found in values.items() if len(found) == 1 and name not in exposed
    }


def _width(node: ast.AST, once: dict[str, ast.expr]) -> int | None:
    """How long the rows are into which an expression divides the threads; None if it does not."""
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
    return width if _counts(number, width, once) else None


def _counts(expr: ast.expr, width: int, once: dict[str, ast.expr]) -> bool:
    """Whether `expr` is the thread's number, and multiples of `width`."""
    match expr:
        case ast.Name(id="_tx"):
            return True
        case ast.Name(id=name) if name in once:
            return _counts(once[name], width, once)
        case ast.BinOp(left=a, op=ast.Add(), right=b):
            for one, other in ((a, b), (b, a)):
                if _counts(one, width, once) and _is_multiple(other, width, once):
                    return True
    return False


def _is_multiple(expr: ast.expr, width: int, once: dict[str, ast.expr]) -> bool:
    match expr:
        case ast.Constant(value=int(value)):
            return value % width == 0
        case ast.Name(id=name) if name in once:
            return _is_multiple(once[name], width, once)
        case ast.BinOp(left=a, op=ast.Mult(), right=b):
            return _is_multiple(a, width, once) or _is_multiple(b, width, once)
        case ast.BinOp(left=a, op=ast.Add() | ast.Sub(), right=b):
            return _is_multiple(a, width, once) and _is_multiple(b, width, once)
    return False


class _Rewrite(ast.NodeTransformer):
    """Row numbers become those of the part's first thread, columns count from there."""

    def __init__(self, width: int, first: ast.expr, once: dict[str, ast.expr]) -> None:
        self.width, self.first, self.once = width, first, once

    def statement(self, stmt: ast.stmt) -> ast.stmt:
        return self.visit(clone(stmt))

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        width = _width(node, self.once)
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
            case ast.Name(id=name) if name in self.once and _counts(expr, self.width, self.once):
                return self._of_first(self.once[name])
            case ast.BinOp(left=a, op=ast.Add() as op, right=b):
                return ast.BinOp(self._of_first(a), op, self._of_first(b))
        return clone(expr)
