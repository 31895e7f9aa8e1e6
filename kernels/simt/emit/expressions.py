"""Expressions and statements of the normal form as those of the generated module."""

from __future__ import annotations

import ast
import copy

from numba.core import types

from kernels.simt.analysis.loops import spins
from kernels.simt.emit.writer import Writer
from kernels.simt.ir.checks import ENDLESS, RAISED
from kernels.simt.ir.hints import Hint
from kernels.simt.ir.nodes import HintedFor, Loop, call, clone, load
from kernels.simt.plan.layout import is_checked_atomic, is_position, subscript_parts
from kernels.simt.plan.nodes import BlockPlan


class Expressions(ast.NodeTransformer):
    """Rewrites expressions of the normal form into those of the generated code."""

    def __init__(self, plan: BlockPlan) -> None:
        self.program, self.kinds = plan.program, plan.kinds
        self.ranges = copy.copy(plan.ranges)  # with assumptions of its own
        self.ranges.assumed = []
        self.private, self.marked = plan.private, plan.marked
        self.sites: list[tuple[str, int, int]] = []  # (array, dimensions, line) of checked accesses

    def text(self, node: ast.expr) -> str:
        return ast.unparse(ast.fix_missing_locations(self.visit(clone(node))))

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        test = self.visit(clone(node.test))
        body = self.assuming(node.test, True, node.body)
        return ast.IfExp(test, body, self.assuming(node.test, False, node.orelse))

    def assuming(self, test: ast.expr, holds: bool, node: ast.expr) -> ast.expr:
        self.ranges.assumed.append(self.ranges.shown(test, holds))
        result = self.visit(node)
        self.ranges.assumed.pop()
        return result

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id in self.private:
            return load(f"_view_{node.id}")
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        base = node.value
        kind = self.kinds.get(base.id) if isinstance(base, ast.Name) else None
        if isinstance(kind, types.BaseTuple) or isinstance(base, ast.Attribute):
            return ast.Subscript(self.visit(base), self.visit(node.slice), node.ctx)
        parts = subscript_parts(self.program, self.kinds, node.slice)
        whole = isinstance(base, ast.Name) and base.id in self.private
        whole = whole and len(parts) == len(self.program.arrays[base.id].shape)
        is_array = isinstance(kind, types.Array)
        positions = parts and all(is_position(part) for part in parts)
        if self.program.checked and is_array and positions:
            return self.checked(node, base, parts, whole)
        index = [self.index(part) for part in parts]
        if whole and not any(isinstance(part, ast.Slice) for part in parts):
            index = self.private[base.id].around(index)
            return self.subscript(load(base.id), index, node.ctx)
        return self.subscript(self.visit(base), index, node.ctx)

    def checked(self, node: ast.Subscript, base: ast.expr, parts: list, whole: bool) -> ast.expr:
        """The access with its index checked on the way."""
        array = load(base.id) if whole else self.visit(clone(base))
        index = [call("_int64", self.visit(clone(part))) for part in parts]
        if whole:
            index.append(load(self.private[base.id].lane))
        key = self.site(ast.unparse(base), len(parts), node)
        where = [load("_error"), ast.Constant(key), load("_block"), load("_t")]
        place = call("_place", array, ast.Tuple(index, ast.Load()), *where)
        if isinstance(base, ast.Name) and base.id in self.marked:
            marks = load(f"_written_{base.id}")
            if isinstance(node.ctx, ast.Store):
                place = call("_mark", marks, place)
            else:
                place = call("_check_written", marks, place, *where)
        return ast.Subscript(array, place, node.ctx)

    def site(self, array: str, ndim: int, node: ast.AST) -> int:
        self.sites.append((array, ndim, getattr(node, "lineno", 0)))
        return len(self.sites) - 1

    def visit_Call(self, node: ast.Call) -> ast.expr:
        if not (self.program.checked and is_checked_atomic(node)):
            self.generic_visit(node)
            return node
        index = node.args[1]
        new = ast.Subscript(node.args[0], index, ast.Load())
        place = self.visit(ast.copy_location(new, node))
        arguments = [place.value, place.slice, *(self.visit(a) for a in node.args[2:])]
        return ast.Call(node.func, arguments, node.keywords)

    @staticmethod
    def subscript(base: ast.expr, index: list[ast.expr], ctx: ast.expr_context) -> ast.expr:
        return ast.Subscript(
            base, index[0] if len(index) == 1 else ast.Tuple(index, ast.Load()), ctx
        )

    def index(self, part: ast.expr) -> ast.expr:
        """An index, with Numba's count-from-the-end taken out where it cannot happen."""
        new = self.visit(clone(part))
        if isinstance(part, ast.Slice | ast.Constant) or not self.ranges.nonnegative(part):
            return new
        if isinstance(part, ast.Name):
            kind = self.kinds.get(part.id)
            if kind is not None and not isinstance(kind, types.Integer):
                return new
        return call("_u", new)


class Statements:
    """Writes the statements that one thread runs between two collectives."""

    def __init__(self, writer: Writer, expressions: Expressions) -> None:
        self.writer, self.expressions = writer, expressions

    def write(self, body: list[ast.stmt]) -> None:
        for stmt in body:
            getattr(self, "write_" + type(stmt).__name__)(stmt)

    def write_Assign(self, stmt: ast.Assign) -> None:
        value = self.expressions.text(stmt.value)
        self.writer.line(f"{self.expressions.text(stmt.targets[0])} = {value}")

    def write_Expr(self, stmt: ast.Expr) -> None:
        self.writer.line(self.expressions.text(stmt.value))

    def write_If(self, stmt: ast.If) -> None:
        assumed = self.expressions.ranges.assumed
        with self.writer.block(f"if {self.expressions.text(stmt.test)}:"):
            assumed.append(self.expressions.ranges.shown(stmt.test, True))
            self.write(stmt.body)
            assumed.pop()
        if stmt.orelse:
            with self.writer.block("else:"):
                assumed.append(self.expressions.ranges.shown(stmt.test, False))
                self.write(stmt.orelse)
                assumed.pop()

    def write_For(self, stmt: ast.For) -> None:
        self._loop(stmt, None)

    def write_HintedFor(self, stmt: HintedFor) -> None:
        self._loop(stmt, stmt.hint)

    def _loop(self, stmt: ast.For, hint: Hint | None) -> None:
        with self.writer.loop(stmt.target.id, self.expressions.text(stmt.iter), hint):
            self.write(stmt.body)

    def write_Loop(self, stmt: Loop) -> None:
        limited = spins(stmt)
        if limited:
            self.writer.line("_spins = 0")
        test = self.expressions.text(stmt.test)
        with self.writer.block("while True:" if stmt.pre else f"while {test}:"):
            if limited:
                self.writer.line("_spins += 1")
                with self.writer.block("if _spins > _SPIN_LIMIT:"):
                    self.writer.line(
                        f"_record(_error, {ENDLESS}, {getattr(stmt, 'lineno', 0)}, _block, _t)"
                    )
                    self.writer.line("return 1")
            self.write(stmt.pre)
            if stmt.pre:
                with self.writer.block(f"if not ({test}):"):
                    self.writer.line("break")
            self.write(stmt.body)

    def write_Break(self, stmt: ast.stmt) -> None:
        self.writer.line("break")

    def write_Continue(self, stmt: ast.stmt) -> None:
        self.writer.line("continue")

    def write_Pass(self, stmt: ast.stmt) -> None:
        self.writer.line("pass")

    def write_Raise(self, stmt: ast.Raise) -> None:
        site = self.expressions.site("", 0, stmt)
        self.writer.line(f"_record(_error, {RAISED}, {site}, _block, _t)")
        self.writer.line(f"raise {self.expressions.text(stmt.exc) if stmt.exc else ''}".rstrip())
