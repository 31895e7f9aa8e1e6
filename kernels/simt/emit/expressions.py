"""Expressions and statements of the normal form as those of the generated module."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from numba.core import types

from kernels.simt.analysis.loops import waits
from kernels.simt.emit.polls import Polls
from kernels.simt.emit.writer import Writer
from kernels.simt.ir.checks import ENDLESS, RAISED
from kernels.simt.ir.hints import Hint
from kernels.simt.ir.nodes import HintedFor, Loop, Unsigned, call, clone, counter, load
from kernels.simt.plan.layout import is_checked_atomic, is_checked_element, subscript_parts
from kernels.simt.plan.parts import BlockPlan


class Expressions(ast.NodeTransformer):
    """Rewrites expressions of the normal form into those of the generated code."""

    def __init__(self, plan: BlockPlan) -> None:
        self.program, self.kinds = plan.program, plan.kinds
        self.private, self.marked = plan.private, plan.marked
        self.sites: list[tuple[str, int, int]] = []  # (array, dimensions, line) of checked accesses

    def text(self, node: ast.expr) -> str:
        return ast.unparse(ast.fix_missing_locations(self.visit(clone(node))))

    def visit_Unsigned(self, node: Unsigned) -> ast.expr:
        return call("_u", self.visit(node.value))

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
        own = self.own_element(base, len(parts))
        if is_checked_element(self.program, self.kinds, node):
            return self.checked(node, base, parts, own)
        index = [self.visit(part) for part in parts]
        if own is not None and not any(isinstance(part, ast.Slice) for part in parts):
            return self.subscript(load(own), self.private[own].around(index), node.ctx)
        return self.subscript(self.visit(base), index, node.ctx)

    def own_element(self, base: ast.expr, dimensions: int) -> str | None:
        """The private array of whose elements a thread takes one of its own, if it does."""
        name = base.id if isinstance(base, ast.Name) else ""
        is_element = name in self.private and dimensions == len(self.program.arrays[name].sizes)
        return name if is_element else None

    def checked(
        self, node: ast.Subscript, base: ast.expr, parts: list[ast.expr], own: str | None
    ) -> ast.expr:
        """The access with its index checked on the way."""
        array = self.visit(clone(base)) if own is None else load(own)
        index: list[ast.expr] = [call("_int64", self.visit(part)) for part in parts]
        if own is not None:
            index.append(load(self.private[own].lane))
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
        writes_only = "atomic_exch" in getattr(node.func, "id", "")
        context = ast.Store() if writes_only else ast.Load()
        new = ast.Subscript(node.args[0], index, context)
        place = self.visit(ast.copy_location(new, node))
        arguments = [place.value, place.slice, *(self.visit(a) for a in node.args[2:])]
        return ast.Call(node.func, arguments, node.keywords)

    @staticmethod
    def subscript(base: ast.expr, index: list[ast.expr], ctx: ast.expr_context) -> ast.expr:
        return ast.Subscript(
            base, index[0] if len(index) == 1 else ast.Tuple(index, ast.Load()), ctx
        )


class Statements:
    """Writes the statements that one thread runs between two collectives."""

    def __init__(self, writer: Writer, expressions: Expressions, polls: Polls) -> None:
        self.writer, self.expressions, self.polls = writer, expressions, polls

    def write(self, body: Sequence[ast.stmt]) -> None:
        for stmt in body:
            getattr(self, "write_" + type(stmt).__name__)(stmt)

    def write_Assign(self, stmt: ast.Assign) -> None:
        value = self.expressions.text(stmt.value)
        self.writer.line(f"{self.expressions.text(stmt.targets[0])} = {value}")

    def write_Expr(self, stmt: ast.Expr) -> None:
        self.writer.line(self.expressions.text(stmt.value))

    def write_If(self, stmt: ast.If) -> None:
        with self.writer.block(f"if {self.expressions.text(stmt.test)}:"):
            self.write(stmt.body)
        if stmt.orelse:
            with self.writer.block("else:"):
                self.write(stmt.orelse)

    write_RowIf = write_PartIf = write_If  # of a loop that stayed with its thread

    def write_For(self, stmt: ast.For) -> None:
        self._loop(stmt, None)

    def write_HintedFor(self, stmt: HintedFor) -> None:
        self._loop(stmt, stmt.hint)

    def _loop(self, stmt: ast.For, hint: Hint | None) -> None:
        with self.polls.loop(stmt, counter(stmt), hint, self.expressions.text):
            self.write(stmt.body)

    def write_Loop(self, stmt: Loop) -> None:
        limited = waits(stmt, self.polls.program)
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
            self.polls.while_loop(stmt)
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
