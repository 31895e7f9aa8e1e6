"""Text of the generated module: indentation, expressions, and statements of one thread."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from numba.core import types

from kernels.simt.analysis.ranges import Ranges
from kernels.simt.analysis.ssa import clone
from kernels.simt.backend.codegen import UNROLLED
from kernels.simt.ir.checks import ENDLESS, RAISED
from kernels.simt.ir.nodes import Loop, call, const, load, names
from kernels.simt.ir.program import Program

# Where a thread is: the first ones are computed from others
POSITIONS = ("_t", "_ty", "_tz", "_block", "_bx", "_by", "_bz")


class Writer:
    """Lines of Python at a current indentation."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 0

    def line(self, text: str = "") -> None:
        self.lines.append("    " * self.depth + text if text else "")

    @contextmanager
    def block(self, header: str) -> Iterator[None]:
        self.line(header)
        self.depth += 1
        before = len(self.lines)
        yield
        if all(line.lstrip().startswith("#") for line in self.lines[before:]):
            self.line("pass")
        self.depth -= 1

    def text(self) -> str:
        """All lines but those that compute what nothing reads of where a thread is."""
        lines = self.lines
        for name in POSITIONS:
            computes = re.compile(rf"\s*{name} = (?!.*\b{name}\b)").match
            if not any(re.search(rf"\b{name}\b", line) for line in lines if not computes(line)):
                lines = [line for line in lines if not computes(line)]
        return "\n".join(lines) + "\n"


class PerThread(NamedTuple):
    """Where a local array keeps a thread's elements: the indices before and after its own."""

    row: tuple[str, ...]
    lane: str

    def around(self, index: list[ast.expr]) -> list[ast.expr]:
        own = [call("_u", load(name)) for name in (*self.row, self.lane)]
        return [*own[:-1], *index, own[-1]]


class Expressions(ast.NodeTransformer):
    """Rewrites expressions of the normal form into those of the generated code."""

    def __init__(self, program: Program, kinds: dict[str, types.Type], ranges: Ranges) -> None:
        self.program, self.kinds, self.ranges = program, kinds, ranges
        self.private: dict[str, PerThread] = {}  # local arrays with an element a thread
        self.views: set[str] = set()  # private arrays that are needed as a whole
        self.marked: set[str] = set()  # shared arrays whose writes are tracked (checked mode)
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
            self.views.add(node.id)
            return load(f"_view_{node.id}")
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        base = node.value
        kind = self.kinds.get(base.id) if isinstance(base, ast.Name) else None
        if isinstance(kind, types.BaseTuple) or isinstance(base, ast.Attribute):
            return ast.Subscript(self.visit(base), self.visit(node.slice), node.ctx)
        parts = self.parts(node.slice)
        whole = isinstance(base, ast.Name) and base.id in self.private
        whole = whole and len(parts) == len(self.program.arrays[base.id].shape)
        is_array = isinstance(kind, types.Array)
        positions = parts and all(self.is_position(part) for part in parts)
        if self.program.checked and is_array and positions:
            return self.checked(node, base, parts, whole)
        index = [self.index(part) for part in parts]
        if whole and not any(isinstance(part, ast.Slice) for part in parts):
            index = self.private[base.id].around(index)
            return self.subscript(load(base.id), index, node.ctx)
        return self.subscript(self.visit(base), index, node.ctx)

    def parts(self, index: ast.expr) -> list[ast.expr]:
        """The indices of a subscript, one for each axis; none for `a[()]`."""
        if isinstance(index, ast.Tuple):
            return index.elts
        kind = self.kinds.get(index.id) if isinstance(index, ast.Name) else None
        if isinstance(kind, types.BaseTuple) and self.program.checked:
            return [ast.Subscript(index, const(k), ast.Load()) for k in range(len(kind))]
        return [index]

    def is_position(self, part: ast.expr) -> bool:
        """Whether an index is a number (and not a slice, a field's name, ...)."""
        return not isinstance(part, ast.Slice) and not (
            isinstance(part, ast.Constant) and not isinstance(part.value, int)
        )

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
        name = getattr(node.func, "id", "")
        atomic = "atomic_" in name and "compare_and_swap" not in name  # that one takes no index
        if not (atomic and self.program.checked and isinstance(node.args[0], ast.Name)):
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
    """Writes the statements that one thread runs between two meeting points."""

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
        counter, values = stmt.target.id, self.expressions.text(stmt.iter)
        unroll = getattr(stmt, "unroll", False)
        with self.writer.block(f"for {UNROLLED if unroll else ''}{counter} in {values}:"):
            if unroll:
                self.writer.line(f"{counter} = {UNROLLED}{counter}")
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


def spins(stmt: Loop) -> bool:
    """Whether a loop may wait for memory that another thread writes: its exit reads memory."""

    def reads(expr: ast.AST) -> bool:
        return any(isinstance(n, ast.Subscript | ast.Call) for n in ast.walk(expr))

    tests: list[ast.AST] = [stmt.test, *stmt.pre]
    if isinstance(stmt.test, ast.Constant):
        tests += stmt.body
    if any(reads(test) for test in tests):
        return True
    watched = names(stmt.test)
    return any(
        isinstance(s, ast.Assign)
        and isinstance(s.targets[0], ast.Name)
        and s.targets[0].id in watched
        and reads(s.value)
        for body in stmt.body
        for s in ast.walk(body)
        if isinstance(s, ast.stmt)
    )
