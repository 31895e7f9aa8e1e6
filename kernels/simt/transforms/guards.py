"""Guard-free versions: statements without the conditions that checks prove for all threads at once.

`if y < height and x < width:` holds for every thread of most blocks, and a comparison of the
block's corners shows it. What is left is straight code, which a vector unit runs without masks.
"""

from __future__ import annotations

import ast
from collections.abc import Callable

from kernels.simt.analysis.affine import Affine
from kernels.simt.analysis.loops import constant_ends
from kernels.simt.ir.nodes import clone, conjunction, counter, names, tests_of, under_tests
from kernels.simt.ir.program import Program
from kernels.simt.transforms.clamps import GREATEST, LEAST, arguments

_MOST_CHECKS = 16  # comparisons that may decide whether a row needs its guards


def strip_guards(
    program: Program, body: list[ast.stmt], reasoning: Callable[..., Affine]
) -> tuple[list[ast.stmt], list[str]]:
    """(`body` without guards, the checks under which it does the same); no checks: nothing to gain.

    `reasoning(statement, box)` gives the Affine for conditions at a statement, inside of constant
    loops whose counters range as in `box`.
    """
    guards = _Guards(program, reasoning)
    stripped = guards.block(body, {})
    checks = list(guards.checks)
    gains = len(checks) <= _MOST_CHECKS and not guards.fails
    return (stripped, checks) if gains else (body, [])


class _Guards:
    """Removes guards from statements and records the checks that this needs."""

    def __init__(self, program: Program, reasoning: Callable[..., Affine]) -> None:
        self.program, self.reasoning = program, reasoning
        self.checks: dict[str, None] = {}
        self.fails = False  # some guard is false in some thread of every block

    def proven(self, test: ast.expr, at: ast.stmt, box: dict) -> bool:
        """Whether `test` can be checked for all threads at once; records the checks."""
        everywhere = self.reasoning(at, box).everywhere(test)
        if everywhere is None or isinstance(everywhere, ast.Constant):
            return False
        parts = everywhere.values if isinstance(everywhere, ast.BoolOp) else [everywhere]
        known = [_value(part) for part in parts]
        self.fails |= False in known
        unknown = (part for part, value in zip(parts, known) if value is None)
        self.checks |= dict.fromkeys(f"({ast.unparse(part)})" for part in unknown)
        return True

    def unproven(self, test: ast.expr, at: ast.stmt, box: dict) -> list[ast.expr]:
        """The parts of a conjunction that have to be tested in each thread."""
        parts = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else []
        if not parts:
            return [] if self.proven(test, at, box) else [clone(test)]
        found: list[ast.expr] = []
        for i, part in enumerate(parts):
            left = self.unproven(part, at, box)
            found += [under_tests(one, *tests_of(one), *parts[:i]) for one in left]
        return found

    def block(self, body: list[ast.stmt], box: dict) -> list[ast.stmt]:
        out: list[ast.stmt] = []
        for stmt in body:
            new = clone(stmt)
            if isinstance(stmt, ast.If):
                left = self.unproven(stmt.test, stmt, box)
                if not left:
                    out += self.block(stmt.body, box)
                    continue
                new.test = conjunction(*left)
            inside = box
            if isinstance(stmt, ast.For):
                ends = constant_ends(stmt)
                inside = box if ends is None else {**box, counter(stmt): ends}
            for name in ("body", "orelse", "pre"):
                if isinstance(stmt, ast.If | ast.For | ast.While) and getattr(stmt, name, None):
                    setattr(new, name, self.block(getattr(stmt, name), inside))
            if isinstance(stmt, ast.Assign | ast.Expr):
                new = _Choices(self, stmt, box).visit(new)
            out.append(new)
        return out


def _value(test: ast.expr) -> bool | None:
    """The value of a comparison of constants, None for other conditions."""
    constant = not any(isinstance(node, ast.Name | ast.Call) for node in ast.walk(test))
    return bool(eval(ast.unparse(test), {})) if constant else None


class _Choices(ast.NodeTransformer):
    """Conditional expressions whose test is proven become their first branch."""

    def __init__(self, guards: _Guards, at: ast.stmt, box: dict) -> None:
        self.guards, self.at, self.box = guards, at, box

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        left = self.guards.unproven(node.test, self.at, self.box)
        node.body = under_tests(node.body, *tests_of(node.body), node.test)
        if not left:
            return self.visit(node.body)
        node.test = conjunction(*left)
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        """A clamp is a choice, too: `max(v, 0)` is `v` where `v >= 0`.

        Not where tiles are filled: the clamps of their loads are for the last tile of a loop, which
        would then be none that does without guards."""
        self.generic_visit(node)
        if any(array.space == "shared" for array in self.guards.program.arrays.values()):
            return node
        for functions, order in ((LEAST, ast.LtE()), (GREATEST, ast.GtE())):
            match arguments(self.guards.program, node, functions):
                case [value, bound]:
                    if self._varies(bound):
                        value, bound = bound, value
                    test = ast.Compare(value, [order], [bound])
                    if not self._varies(bound) and self.guards.proven(test, self.at, self.box):
                        return under_tests(value, *tests_of(value), clone(test))
        return node

    def _varies(self, expr: ast.expr) -> bool:
        affine = self.guards.reasoning(self.at, self.box)
        expanded = affine.expanded(expr)
        return expanded is None or bool(names(expanded) & set(affine.box))
