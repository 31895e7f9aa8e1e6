"""Which indices are cast to uint64: those that are proven not to be negative.

A negative index counts from the end in Numba, and the select that this needs at every access
prevents vectorisation. What is known depends on the conditions around an access, and on those that
were around it in the source and became bounds of loops, or checks for all threads at once
(`nodes.tests_of`). The statements of a plan are copied, and its items stay the same objects.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from numba.core import types

from kernels.simt.analysis.ranges import Ranges, greatest
from kernels.simt.ir.nodes import Unsigned, clone, tests_of
from kernels.simt.ir.program import Program
from kernels.simt.plan.layout import is_checked_element
from kernels.simt.plan.parts import CollectivePlan, FullTiles, Inputs, RegionPlan, RowVersion
from kernels.simt.transforms.fission import Item, Region

_HOLDERS = Item | Inputs | RegionPlan | RowVersion | CollectivePlan | FullTiles


def mark_unsigned(
    program: Program, kinds: dict[str, types.Type], ranges: Ranges, parts: Iterable[Any]
) -> None:
    """Mark the indices in all statements and expressions of `parts` of a plan."""
    marks = _Marks(program, kinds, ranges)
    todo, seen = list(parts), set()
    while todo:
        holder = todo.pop()
        # the body of a Region is not what runs, but its versions
        if id(holder) in seen or isinstance(holder, Region):
            continue
        seen.add(id(holder))
        for field in fields(holder):
            value = getattr(holder, field.name)
            inner = value if isinstance(value, list) else [value]
            todo += [part for part in inner if isinstance(part, _HOLDERS)]
            if any(isinstance(part, ast.AST) for part in inner):
                setattr(holder, field.name, marks.of(value))


class _Marks(ast.NodeTransformer):
    def __init__(self, program: Program, kinds: dict[str, types.Type], ranges: Ranges) -> None:
        self.program, self.kinds, self.ranges = program, kinds, ranges

    def of(self, tree: Any) -> Any:
        """A copy of a node, or of a list of nodes, with its marks."""
        tree = clone(tree)
        return [self.visit(node) for node in tree] if isinstance(tree, list) else self.visit(tree)

    def visit_If(self, node: ast.If) -> ast.If:
        holds, fails = (self.ranges.shown(node.test, truth) for truth in (True, False))
        node.test = self.visit(node.test)
        node.body = self.assuming(holds, node.body)
        node.orelse = self.assuming(fails, node.orelse)
        return node

    def visit_IfExp(self, node: ast.IfExp) -> ast.IfExp:
        holds, fails = (self.ranges.shown(node.test, truth) for truth in (True, False))
        node.test = self.visit(node.test)
        (node.body,) = self.assuming(holds, [node.body])
        (node.orelse,) = self.assuming(fails, [node.orelse])
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.BoolOp:
        """A part is evaluated where all before it are true, or false (`or`)."""
        known = len(self.ranges.assumed)
        for i, part in enumerate(node.values):
            shown = self.ranges.shown(part, isinstance(node.op, ast.And))
            node.values[i] = self.visit(part)
            self.ranges.assumed.append(shown)
        del self.ranges.assumed[known:]
        return node

    def visit(self, node: ast.AST) -> Any:
        tests = tests_of(node)
        if not tests:
            return super().visit(node)
        self.ranges.assumed.append(greatest(*map(self.ranges.shown, tests)))
        marked = super().visit(node)
        self.ranges.assumed.pop()
        return marked

    def assuming(self, shown: dict[str, int], nodes: list) -> list:
        """`nodes` with the marks that they get where the variables `shown` are not negative."""
        self.ranges.assumed.append(shown)
        marked = [self.visit(node) for node in nodes]
        self.ranges.assumed.pop()
        return marked

    def visit_Subscript(self, node: ast.Subscript) -> ast.Subscript:
        array = node.value
        kind = self.kinds.get(array.id) if isinstance(array, ast.Name) else None
        of_array = not (isinstance(kind, types.BaseTuple) or isinstance(array, ast.Attribute))
        if not of_array or is_checked_element(self.program, self.kinds, node):
            self.generic_visit(node)
        elif isinstance(node.slice, ast.Tuple):
            node.slice.elts = [self.index(part) for part in node.slice.elts]
        else:
            node.slice = self.index(node.slice)
        node.value = self.visit(array)
        return node

    def index(self, part: ast.expr) -> ast.expr:
        self.ranges.assumed.append(greatest(*map(self.ranges.shown, tests_of(part))))
        proven = self._is_integer(part) and self.ranges.nonnegative(part)
        self.ranges.assumed.pop()
        part = self.visit(part)
        return Unsigned(part) if proven else part

    def _is_integer(self, part: ast.expr) -> bool:
        if isinstance(part, ast.Name):
            return isinstance(self.kinds.get(part.id, types.intp), types.Integer)
        return not isinstance(part, ast.Slice | ast.Constant)
