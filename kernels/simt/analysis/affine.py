"""Affine analysis: conditions that are linear in a thread's position, decided at corners.

`x < width and y < height` with `x = blockIdx.x * 16 + threadIdx.x` holds for a whole row of threads
exactly if it holds for the first and the last: each comparison is a half-space, and a half-space
that contains the corners of a box contains the box.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field

from numba.core import types

from kernels.simt.analysis.ranges import constant
from kernels.simt.ir.nodes import binary, clone, conjunction, const, load, names

Box = Mapping[str, tuple[ast.expr, ast.expr]]  # variable -> its first and last value
_ORDER = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)


_MIRROR = {ast.Lt: ast.Gt, ast.LtE: ast.GtE, ast.Gt: ast.Lt, ast.GtE: ast.LtE, ast.Eq: ast.Eq}
_MIRROR_TYPES = tuple(_MIRROR)
_NEGATED = {ast.Lt: ast.GtE, ast.LtE: ast.Gt, ast.Gt: ast.LtE, ast.GtE: ast.Lt, ast.NotEq: ast.Eq}


@dataclass
class Clip:
    """An interval: at least each of `low`, below each of `high`, where all `conditions` hold; one:
    that of a single value, or of none."""

    low: list[ast.expr] = field(default_factory=list)
    high: list[ast.expr] = field(default_factory=list)
    conditions: list[ast.expr] = field(default_factory=list)
    one: bool = False


class Affine:
    """Reasons about expressions over `box` (the variables that range) and fixed names.

    `definitions` are single assignments that may be looked through; `kinds` are types by name;
    `fixed(name)` says whether a name has one value for the whole box.
    """

    def __init__(self, box: Box, definitions: Mapping[str, ast.expr], kinds, fixed) -> None:
        self.box, self.definitions, self.kinds, self.fixed = box, definitions, kinds, fixed

    def expanded(self, expr: ast.expr) -> ast.expr | None:
        """`expr` in terms of box variables and fixed names, if it is affine in the former."""
        match expr:
            case ast.Constant(value=value):
                return expr if type(value) is int else None
            case ast.Name(id=name):
                if name in self.box:
                    return expr
                kind = self.kinds.get(name, types.intp)
                if not isinstance(kind, types.Integer) or kind == types.uint64:
                    return None
                if self.fixed(name):
                    return expr
                inner = self.definitions.get(name)
                return None if inner is None else self.expanded(inner)
            case ast.BinOp(left=a, op=ast.Add() | ast.Sub() | ast.Mult() as op, right=b):
                left, right = self.expanded(a), self.expanded(b)
                if left is None or right is None:
                    return None
                both = names(left) & names(right) & set(self.box)
                if isinstance(op, ast.Mult) and both:
                    return None  # quadratic
                return ast.BinOp(left, op, right)
            case ast.UnaryOp(op=ast.USub(), operand=a):
                inner = self.expanded(a)
                return None if inner is None else ast.UnaryOp(ast.USub(), inner)
            case ast.Subscript(
                value=ast.Attribute(value=ast.Name(id=array), attr="shape"), slice=s
            ):
                return expr if self.fixed(array) and constant(s) is not None else None
            case ast.Attribute(value=ast.Name(id=array), attr="size"):
                return expr if self.fixed(array) else None
        return self.fixed_arithmetic(expr)

    def fixed_arithmetic(self, expr: ast.expr) -> ast.expr | None:
        """Division and remainder of terms that are constant over the box."""
        match expr:
            case ast.BinOp(left=a, op=op, right=b) if isinstance(op, ast.FloorDiv | ast.Mod):
                parts = [self.expanded(a), self.expanded(b)]
                if None not in parts and not any(names(p) & set(self.box) for p in parts):
                    return ast.BinOp(parts[0], op, parts[1])
        return None

    def atoms(self, test: ast.expr, holds: bool = True) -> list[ast.expr] | None:
        """Comparisons whose conjunction is `test` (or its negation); None if not affine."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            return self.atoms(test.operand, not holds)
        if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) == holds:
            parts = [self.atoms(value, holds) for value in test.values]
            return None if None in parts else list(itertools.chain(*parts))
        if isinstance(test, ast.Name) and not self.fixed(test.id) and test.id in self.definitions:
            return self.atoms(self.definitions[test.id], holds)
        if not isinstance(test, ast.Compare) or (not holds and len(test.ops) > 1):
            return None
        terms = [self.expanded(t) for t in (test.left, *test.comparators)]
        if None in terms:
            return None
        found = []
        for left, op, right in zip(terms, test.ops, terms[1:]):
            ranging = bool((names(left) | names(right)) & set(self.box))
            if ranging and not isinstance(op, _ORDER):
                return None
            atom: ast.expr = ast.Compare(left, [op], [right])
            found.append(atom if holds else ast.UnaryOp(ast.Not(), atom))
        return found

    def everywhere(self, test: ast.expr) -> ast.expr | None:
        """An expression that is true iff `test` is true in all of the box; None if unknown."""
        atoms = self.atoms(test)
        if atoms is None:
            return None
        checks: dict[str, ast.expr] = {}
        for atom in atoms:
            ranging = sorted(names(atom) & set(self.box))
            for corner in itertools.product(*(self.box[name] for name in ranging)):
                check = _Substitute(dict(zip(ranging, corner))).visit(clone(atom))
                checks.setdefault(ast.unparse(check), check)
        return conjunction(*checks.values()) if checks else const(True)

    def clip(self, test: ast.expr, name: str) -> Clip | None:
        """Where `test` holds along `name`, as bounds; None if it is no interval of slope 1."""
        clip = Clip()
        conditions = self._conditions(test, True)
        if conditions is None:
            return None
        for left, op, right in conditions:
            distance = binary(left, ast.Sub(), right)
            slope = _coefficient(distance, name)
            if slope == 0:
                if names(distance) & set(self.box):
                    return None
                clip.conditions.append(ast.Compare(left, [op], [right]))
                continue
            if slope not in (1, -1):
                return None
            at_zero = _Substitute({name: const(0)}).visit(clone(distance))
            if names(at_zero) & set(self.box):
                return None
            # slope 1: name op -at_zero; slope -1: at_zero op name
            bound: ast.expr = ast.UnaryOp(ast.USub(), at_zero) if slope == 1 else at_zero
            kind = type(op) if slope == 1 else _MIRROR[type(op)]
            clip.one |= kind is ast.Eq
            if kind in (ast.GtE, ast.Gt, ast.Eq):
                clip.low.append(binary(bound, ast.Add(), const(1)) if kind is ast.Gt else bound)
            if kind in (ast.LtE, ast.Lt, ast.Eq):
                clip.high.append(bound if kind is ast.Lt else binary(bound, ast.Add(), const(1)))
        return clip

    def _conditions(self, test: ast.expr, holds: bool):
        """(left, operator, right) of comparisons whose conjunction is `test`, or None."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            return self._conditions(test.operand, not holds)
        if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) == holds:
            parts = [self._conditions(value, holds) for value in test.values]
            return None if None in parts else list(itertools.chain(*parts))
        if isinstance(test, ast.Name) and not self.fixed(test.id) and test.id in self.definitions:
            return self._conditions(self.definitions[test.id], holds)
        if not isinstance(test, ast.Compare) or (not holds and len(test.ops) > 1):
            return None
        terms = [self.expanded(t) for t in (test.left, *test.comparators)]
        ops = [op if holds else _NEGATED.get(type(op), ast.Is)() for op in test.ops]
        if None in terms or not all(isinstance(op, _MIRROR_TYPES) for op in ops):
            return None
        return list(zip(terms, ops, terms[1:]))

    def slope(self, expr: ast.expr, name: str) -> int | None:
        """The constant coefficient of box variable `name` in `expr`, or None."""
        expr = self.expanded(expr)
        return None if expr is None else _coefficient(expr, name)

    def at(self, expr: ast.expr, values: Mapping[str, ast.expr]) -> ast.expr:
        """The (affine) expression with box variables replaced."""
        return _Substitute(values).visit(clone(self.expanded(expr)))


def _coefficient(expr: ast.expr, name: str) -> int | None:
    match expr:
        case ast.Name(id=found):
            return int(found == name)
        case ast.BinOp(left=a, op=op, right=b):
            left, right = _coefficient(a, name), _coefficient(b, name)
            if left is None or right is None:
                return None
            if isinstance(op, ast.Add):
                return left + right
            if isinstance(op, ast.Sub):
                return left - right
            if left == 0 and right == 0:
                return 0
            if isinstance(op, ast.Mult):
                factor = constant(b) if left else constant(a)
                return None if factor is None else (left or right) * factor
            return None
        case ast.UnaryOp(operand=a):
            inner = _coefficient(a, name)
            return None if inner is None else -inner
    return 0


class _Substitute(ast.NodeTransformer):
    def __init__(self, values: Mapping[str, ast.expr]) -> None:
        self.values = values

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self.values.get(node.id, node)


def ends(first: int, count: int) -> tuple[ast.expr, ast.expr]:
    """The first and last value of `range(first, first + count)`."""
    return const(first), const(first + count - 1)


def offset(name: str, distance: int) -> ast.expr:
    """`name + distance`."""
    return binary(load(name), ast.Add(), const(distance)) if distance else load(name)
