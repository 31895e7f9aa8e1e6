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
from typing import TypeGuard

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
    that of a single value, or of none.

    step: only the values that differ from `phase` by a multiple of it; None: all of them. factors:
    what has to be from 1 to `LARGEST_FACTOR`, or this is not where the test holds.
    """

    low: list[ast.expr] = field(default_factory=list)
    high: list[ast.expr] = field(default_factory=list)
    conditions: list[ast.expr] = field(default_factory=list)
    one: bool = False
    step: ast.expr | None = None
    phase: ast.expr = field(default_factory=lambda: const(0))
    factors: list[ast.expr] = field(default_factory=list)

    @property
    def bounded(self) -> bool:
        """Whether values are left out for another reason than the conditions."""
        return bool(self.low or self.high or self.step is not None)

    def checks(self) -> list[str]:
        """What holds, in generated code, where the factors are in their limits."""
        return [f"1 <= {ast.unparse(factor)} <= {LARGEST_FACTOR}" for factor in self.factors]


LARGEST_FACTOR = 1 << 31  # times the number of a thread, no integer overflows
_FEWEST_STEPPED = 8  # with a smaller step, vectors with masks take less time


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
            for corner in itertools.product(*(self._deciding_ends(atom, name) for name in ranging)):
                check = _Substitute(dict(zip(ranging, corner))).visit(clone(atom))
                checks.setdefault(ast.unparse(check), check)
        return conjunction(*checks.values()) if checks else const(True)

    def _deciding_ends(self, atom: ast.expr, name: str) -> tuple[ast.expr, ...]:
        """The ends of the box along `name` at which `atom` has to hold, to hold between them: one,
        if it is known which side of the comparison grows with `name`."""
        first, last = self.box[name]
        compared = atom.operand if isinstance(atom, ast.UnaryOp) else atom
        assert isinstance(compared, ast.Compare)
        slope = coefficient(binary(compared.left, ast.Sub(), compared.comparators[0]), name)
        if slope is None:
            return first, last
        is_upper = isinstance(compared.ops[0], ast.Lt | ast.LtE) != (compared is not atom)
        begin, end = constant(first), constant(last)
        descends = begin is not None and end is not None and end < begin
        return (last,) if (slope > 0) == (is_upper != descends) else (first,)

    def clip(self, test: ast.expr, name: str, factors: bool = False) -> Clip | None:
        """Where `test` holds along `name`, as bounds; None if it is no interval of slope 1.

        factors: nor, with a check, an interval of a slope that is no number (`2 * d * name < n`),
        or a progression (`name % d == 0`).
        """
        clip = Clip()
        conditions = self._conditions(test, True)
        if conditions is None:
            return None
        for left, op, right in conditions:
            ranging = names(left) & set(self.box)
            if factors and ranging and _is_remainder(left):
                if not self._progression(clip, left, op, right, name):
                    return None
                continue
            distance = binary(left, ast.Sub(), right)
            slope = coefficient(distance, name)
            if slope is None and factors:
                if not self._scaled(clip, left, op, right, name):
                    return None
                continue
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

    def _progression(
        self, clip: Clip, left: ast.BinOp, op: ast.cmpop, right: ast.expr, name: str
    ) -> bool:
        """Add `(name + phase) % step == 0` to a clip, if the comparison is one."""
        if constant(right) != 0 or not isinstance(op, ast.Eq) or clip.step is not None:
            return False
        if coefficient(left.left, name) != 1:
            return False
        step = constant(left.right)
        at_zero = _Substitute({name: const(0)}).visit(clone(left.left))
        if names(at_zero) & set(self.box) or (step is not None and step < _FEWEST_STEPPED):
            return False
        clip.step, clip.phase = left.right, ast.UnaryOp(ast.USub(), at_zero)
        clip.factors.append(left.right)
        return True

    def _scaled(
        self, clip: Clip, left: ast.expr, op: ast.cmpop, right: ast.expr, name: str
    ) -> bool:
        """Add `factor * name + rest < 0`, or another order, to a clip, if the comparison is one."""
        if name in names(right):
            left, right, op = right, left, _MIRROR[type(op)]()
        factor, rest = linear(binary(left, ast.Sub(), right), name)
        others = names(rest) | names(factor or const(0))
        if factor is None or others & set(self.box) or isinstance(op, ast.Eq):
            return False
        below: ast.expr = ast.UnaryOp(ast.USub(), rest)
        if isinstance(op, ast.Lt | ast.GtE):  # the quotient, rounded up
            below = binary(binary(below, ast.Add(), factor), ast.Sub(), const(1))
        quotient = binary(below, ast.FloorDiv(), factor)
        if isinstance(op, ast.LtE | ast.Gt):
            quotient = binary(quotient, ast.Add(), const(1))
        (clip.high if isinstance(op, ast.Lt | ast.LtE) else clip.low).append(quotient)
        clip.factors.append(factor)
        return True

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
        terms = [self.expanded(t) or self._remainder(t) for t in (test.left, *test.comparators)]
        ops = [op if holds else _NEGATED.get(type(op), ast.Is)() for op in test.ops]
        if None in terms or not all(isinstance(op, _MIRROR_TYPES) for op in ops):
            return None
        return list(zip(terms, ops, terms[1:]))

    def _remainder(self, expr: ast.expr) -> ast.expr | None:
        """The remainder of an affine term by one that is constant over the box; None for others."""
        while isinstance(expr, ast.Name) and expr.id in self.definitions:
            expr = self.definitions[expr.id]
        if not _is_remainder(expr):
            return None
        term, by = self.expanded(expr.left), self.expanded(expr.right)
        if term is None or by is None or names(by) & set(self.box):
            return None
        return ast.BinOp(term, expr.op, by)

    def slope(self, expr: ast.expr, name: str) -> int | None:
        """The constant coefficient of box variable `name` in `expr`, or None."""
        expr = self.expanded(expr)
        return None if expr is None else coefficient(expr, name)

    def at(self, expr: ast.expr, values: Mapping[str, ast.expr]) -> ast.expr:
        """The (affine) expression with box variables replaced."""
        return _Substitute(values).visit(clone(self.expanded(expr)))


def coefficient(expr: ast.expr, name: str) -> int | None:
    """The constant that a name is multiplied by in an affine expression; None where it is none."""
    match expr:
        case ast.Name(id=found):
            return int(found == name)
        case ast.BinOp(left=a, op=op, right=b):
            left, right = coefficient(a, name), coefficient(b, name)
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
            inner = coefficient(a, name)
            return None if inner is None else -inner
    return 0


def _is_remainder(expr: ast.expr) -> TypeGuard[ast.BinOp]:
    return isinstance(expr, ast.BinOp) and isinstance(expr.op, ast.Mod)


def linear(expr: ast.expr, name: str) -> tuple[ast.expr | None, ast.expr]:
    """(factor, rest) of an affine expression `factor * name + rest`; the factor None: 0."""
    if name not in names(expr):
        return None, expr
    factor: ast.expr | None
    match expr:
        case ast.BinOp(left=a, op=ast.Mult(), right=b):
            if name in names(b):
                a, b = b, a
            factor, rest = linear(a, name)
            return _times(factor or const(0), b), _times(rest, b)
        case ast.BinOp(left=a, op=op, right=b):
            (factor, rest), (other, more) = linear(a, name), linear(b, name)
            if other is not None:
                factor = _plus(factor or const(0), op, other)
            return factor, _plus(rest, op, more)
        case ast.UnaryOp(operand=a):
            factor, rest = linear(a, name)
            return ast.UnaryOp(ast.USub(), factor or const(0)), ast.UnaryOp(ast.USub(), rest)
    return const(1), const(0)


def _plus(a: ast.expr, op: ast.operator, b: ast.expr) -> ast.expr:
    """a + b or a - b."""
    if constant(b) == 0:
        return a
    return b if constant(a) == 0 and isinstance(op, ast.Add) else binary(a, op, b)


def _times(a: ast.expr, b: ast.expr) -> ast.expr:
    if constant(a) == 0:
        return a
    return b if constant(a) == 1 else binary(a, ast.Mult(), b)


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
