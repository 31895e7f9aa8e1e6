"""Code for one row of threads: the loops over x, and what is common to the row around them."""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from kernels.simt.analysis.affine import Affine
from kernels.simt.analysis.ssa import clone
from kernels.simt.analysis.uniformity import exposure
from kernels.simt.backend.codegen import FOUR_TIMES, UNROLLED
from kernels.simt.ir.nodes import defined, names, statements
from kernels.simt.transforms.fission import BlockFor, BlockIf, BlockWhile, Item, Region, Scalars
from kernels.simt.transforms.row_vectorise import GuardIf, RowPlan, constant_ends
from kernels.simt.transforms.storage import Storage

if TYPE_CHECKING:
    from kernels.simt.emit.emitter import Emitter

ROW = f"{UNROLLED}row"  # which of the rows that go together
_MOST_CHECKS = 16  # comparisons that may decide whether a row needs its guards


class RowEmitter:
    """Writes the pieces of a RowPlan. `mask` names the block's threads that take part."""

    def __init__(
        self,
        emitter: Emitter,
        plan: RowPlan,
        storage: Storage,
        mask: str | None,
        checks: bool,
        at_edge: bool = False,
    ) -> None:
        self.emitter, self.plan, self.storage, self.mask = emitter, plan, storage, mask
        self.checks = checks  # whether rows may have a version without guards
        self.at_edge = at_edge  # some guard keeps some thread of the block out
        self.writer, self.expressions = emitter.writer, emitter.expressions
        self.variables = set(plan.facts.defs) - plan.facts.scalars
        self.known = self.variables | emitter.storage.slots
        self.ordered = emitter.needs_order(plan.body)

    def write(self, items: list[Item]) -> None:
        for item in items:
            getattr(self, "write_" + type(item).__name__)(item)

    def write_Scalars(self, item: Scalars) -> None:
        self.emitter.statements.write(item.body)

    def write_BlockFor(self, item: BlockFor) -> None:
        counter = FOUR_TIMES + item.target if self._innermost(item) else item.target
        with self.writer.block(f"for {counter} in {self.expressions.text(item.iter)}:"):
            if counter != item.target:
                self.writer.line(f"{item.target} = {counter}")
            self.write(item.body)

    def _innermost(self, loop: BlockFor) -> bool:
        """Whether this is the loop around what rows do together: short, so that counting costs."""
        return self.plan.rows > 1 and all(isinstance(item, Region) for item in loop.body)

    def write_BlockWhile(self, item: BlockWhile) -> None:
        with self.writer.block(f"while {self.expressions.text(item.test)}:"):
            self.write(item.body)

    def write_BlockIf(self, item: BlockIf) -> None:
        with self.writer.block(f"if {self.expressions.text(item.test)}:"):
            self.write(item.body)
        if item.orelse:
            with self.writer.block("else:"):
                self.write(item.orelse)

    def write_GuardIf(self, item: GuardIf) -> None:
        with self.writer.block(f"if {ast.unparse(item.everywhere)}:  # the whole row"):
            self.write(item.body)
        with self.writer.block("else:"):
            self.write_Region(item.otherwise)

    # -- loops over the threads of the row -------------------------------------------------

    def write_Region(self, item: Region) -> None:
        body = self.without_unread(item)
        if not body:
            return
        if self.mask is None and not self.emitter.program.checked and self.plan.rows == 1:
            if self.clipped(item, body):
                return
            planner = self.emitter.planner
            reasoning = partial(planner.affine, self.plan.facts, self.plan.lanes)
            stripped, checks = strip_guards(body, reasoning) if self.checks else (body, [])
            if checks:
                with self.writer.block(f"if {' and '.join(checks)}:  # no thread is at an edge"):
                    self.threads(item, stripped)
                with self.writer.block("else:"):
                    self.threads(item, body)
                return
        self.threads(item, body)

    def clipped(self, item: Region, body: list[ast.stmt]) -> bool:
        """`if low <= x < high: ...` as a loop from low to high, if the region is just that."""
        *before, last = body
        if not isinstance(last, ast.If) or last.orelse:
            return False
        if any(not isinstance(s, ast.Assign) or defined(s) in self.slots for s in before):
            return False
        if any(defined(s) is None for s in before):
            return False
        affine = self.emitter.planner.affine(self.plan.facts, self.plan.lanes, at=last)
        clip = affine.clip(last.test, "_tx")
        if clip is None:
            return False
        first, end = self.emitter.row_range(self.plan.lanes)
        inside = [*before, *last.body]
        writer = self.writer
        depth = writer.depth
        if clip.conditions:
            writer.line(f"if {' and '.join(map(ast.unparse, clip.conditions))}:")
            writer.depth += 1
        if not clip.low and not clip.high:
            self.threads(item, inside)
        else:
            writer.line(f"_lo = {extreme('_max', first, clip.low)}")
            writer.line(f"_hi = {extreme('_min', end, clip.high)}")
            if self._may_be_whole(last, inside):
                with writer.block(f"if _lo == {first} and _hi == {end}:"):
                    self.threads(item, inside)
                writer.line("else:")
                writer.depth += 1
            self.threads(item, inside, ("_lo", "_hi"))
        writer.depth = depth
        return True

    def _may_be_whole(self, guard: ast.If, body: list[ast.stmt]) -> bool:
        """Whether all threads of a row may pass the guard of `body`, as far as is known."""
        if isinstance(guard.test, ast.Compare) and isinstance(guard.test.ops[0], ast.Eq):
            return False
        one_row = self.plan.lanes >= self.emitter.program.threads
        nodes = (node for stmt in body for node in ast.walk(stmt))
        only = not any(isinstance(node, ast.If | ast.IfExp) for node in nodes)
        return not (self.at_edge and one_row and only)  # or this guard does not keep any out

    def without_unread(self, item: Region) -> list[ast.stmt]:
        """The region's statements but for those that only other regions need, and compute again."""
        rebuilt = {**self.storage.rebuilt, **self.emitter.storage.rebuilt}
        body = item.body
        while True:
            read = set().union(*(names(e) for s in statements(body) for e in _read(s)))
            kept = [
                s
                for s in body
                if not isinstance(s, ast.Assign)
                or defined(s) not in rebuilt
                or defined(s) in read
                or defined(s) in self.slots
            ]
            if len(kept) == len(body):
                return kept
            body = kept

    @property
    def slots(self) -> set[str]:
        return self.storage.slots | self.emitter.storage.slots

    def slot(self, name: str) -> str:
        if name in self.emitter.storage.slots:
            return f"_s_{name}[_u(_t)]"
        if self.plan.rows > 1:
            return f"_r_{name}[_u(_tx + {ROW} * {self.emitter.program.block[0]})]"
        return f"_r_{name}[_u(_tx)]"

    def threads(
        self, item: Region, body: list[ast.stmt], span: tuple[str, str] | None = None
    ) -> None:
        """One loop over the threads of the row, or those in a part of it."""
        exposed, written, certain = exposure(body, self.known)
        zeroed = self.storage.zeroed.get(id(item), set())
        reads = (exposed | ((written - certain) & self.slots)) - zeroed
        writer = self.writer
        first, last = span or self.emitter.row_range(self.plan.lanes)
        values = f"range({last})" if first == "0" else f"range({first}, {last})"
        with writer.block(f"for {'_sx' if self.ordered else '_tx'} in {values}:"):
            if self.ordered:
                writer.line("_tx = _sx")
            depth = writer.depth
            if self.plan.rows > 1:
                writer.line(f"for {ROW} in range({self.plan.rows}):")
                writer.depth += 1
                writer.line(f"_ty = _y0 + {ROW}")
            writer.line(f"_t = {self.emitter.linear()}")
            if self.mask:
                writer.line(f"if _s_{self.mask}[_u(_t)]:")
                writer.depth += 1
            self.bring_in(reads)
            for name in sorted(zeroed):
                writer.line(f"{name} = {self.emitter.zero(name)}")
            mark = len(writer.lines)
            self.expressions.views.clear()
            self.emitter.statements.write(body)
            for view in sorted(self.expressions.views):
                dims = [ast.Slice() for _ in self.emitter.program.arrays[view].shape]
                index = ast.Tuple(self.expressions.private[view].around(dims), ast.Load())
                text = "    " * writer.depth + f"_view_{view} = {view}[{ast.unparse(index)[1:-1]}]"
                writer.lines.insert(mark, text)
            for name in sorted(written & self.slots):
                writer.line(f"{self.slot(name)} = {name}")
            writer.depth = depth

    def bring_in(self, reads: set[str]) -> None:
        """Load or compute again, in this thread, the variables `reads`."""
        order: list[str] = []
        loads: set[str] = set()
        rebuilt = {**self.emitter.storage.rebuilt, **self.storage.rebuilt}
        local = self.known | set(rebuilt)

        def need(name: str) -> None:
            if name in self.slots:
                loads.add(name)
            elif name in rebuilt and name not in order and name not in self.plan.facts.scalars:
                for other in sorted(names(rebuilt[name].value) & local):
                    need(other)
                if name not in order:
                    order.append(name)

        for name in sorted(reads):
            need(name)
        for name in sorted(loads):
            self.writer.line(f"{name} = {self.slot(name)}")
        for name in order:
            self.emitter.statements.write([rebuilt[name]])


def extreme(function: str, first: str, others: list[ast.expr]) -> str:
    """The largest or smallest of several numbers, two at a time."""
    for other in others:
        first = f"{function}({first}, {ast.unparse(other)})"
    return first


def _read(stmt: ast.stmt) -> list[ast.expr]:
    from kernels.simt.ir.nodes import expressions

    return expressions(stmt)


def strip_guards(
    body: list[ast.stmt], reasoning: Callable[..., Affine]
) -> tuple[list[ast.stmt], list[str]]:
    """(`body` without guards, the checks under which it does the same); no checks: nothing to gain.

    `reasoning(statement, box)` gives the Affine for conditions at a statement, inside of constant
    loops whose counters range as in `box`.
    """
    guards = _Guards(reasoning)
    stripped = guards.block(body, {})
    checks = list(guards.checks)
    return (stripped, checks) if len(checks) <= _MOST_CHECKS else (body, [])


class _Guards:
    """Takes guards out of statements and notes what must be checked for that."""

    def __init__(self, reasoning: Callable[..., Affine]) -> None:
        self.reasoning = reasoning
        self.checks: dict[str, None] = {}

    def proven(self, test: ast.expr, at: ast.stmt, box: dict) -> bool:
        """Whether `test` can be checked for all threads at once; notes the checks."""
        everywhere = self.reasoning(at, box).everywhere(test)
        if everywhere is None or isinstance(everywhere, ast.Constant):
            return False
        parts = everywhere.values if isinstance(everywhere, ast.BoolOp) else [everywhere]
        self.checks |= dict.fromkeys(f"({ast.unparse(part)})" for part in parts)
        return True

    def block(self, body: list[ast.stmt], box: dict) -> list[ast.stmt]:
        out: list[ast.stmt] = []
        for stmt in body:
            if isinstance(stmt, ast.If) and self.proven(stmt.test, stmt, box):
                out += self.block(stmt.body, box)
                continue
            new = clone(stmt)
            inside = box
            if isinstance(stmt, ast.For):
                ends = constant_ends(stmt)
                inside = box if ends is None else {**box, stmt.target.id: ends}
            for name in ("body", "orelse", "pre"):
                if isinstance(stmt, ast.If | ast.For | ast.While) and getattr(stmt, name, None):
                    setattr(new, name, self.block(getattr(stmt, name), inside))
            if isinstance(stmt, ast.Assign | ast.Expr):
                new = _Choices(self, stmt, box).visit(new)
            out.append(new)
        return out


class _Choices(ast.NodeTransformer):
    """Conditional expressions whose test is proven become their first branch."""

    def __init__(self, guards: _Guards, at: ast.stmt, box: dict) -> None:
        self.guards, self.at, self.box = guards, at, box

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        if self.guards.proven(node.test, self.at, self.box):
            return self.visit(node.body)
        return self.generic_visit(node)
