"""Guard-free versions: statements without the conditions that checks prove for all threads at once.

`if y < height and x < width:` holds for every thread of most blocks, and a comparison of the
block's corners shows it. What is left is straight code, which a vector unit runs without masks.
"""

from __future__ import annotations

import ast
from collections.abc import Callable

from kernels.simt.analysis.affine import Affine
from kernels.simt.analysis.loops import constant_ends
from kernels.simt.ir.nodes import clone, counter, tests_of, under_tests

_MOST_CHECKS = 16  # comparisons that may decide whether a row needs its guards


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
    gains = len(checks) <= _MOST_CHECKS and not guards.fails
    return (stripped, checks) if gains else (body, [])


class _Guards:
    """Removes guards from statements and records the checks that this needs."""

    def __init__(self, reasoning: Callable[..., Affine]) -> None:
        self.reasoning = reasoning
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
        if self.guards.proven(node.test, self.at, self.box):
            body = self.visit(node.body)
            return under_tests(body, *tests_of(body), node.test)
        return self.generic_visit(node)
