"""Intervals of integers whose ends are expressions of launch constants, by variable.

An end is Python's own AST, so that it can be printed into generated code; numbers are folded.
`None` is an end that is not known. `_min` and `_max` are the names of those functions there.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator
from typing import NamedTuple

from numba.core import types

from kernels.simt.analysis.ranges import constant
from kernels.simt.ir.nodes import GRID, binary, call, const, names

End = ast.expr | None


class Interval(NamedTuple):
    low: End
    high: End


TOP = Interval(None, None)
TRUTH = Interval(const(0), const(1))


def limits_of(kind: types.Integer) -> Interval:
    return Interval(const(int(kind.minval)), const(int(kind.maxval)))


def natural(interval: Interval) -> bool:
    low = None if interval.low is None else constant(interval.low)
    return low is not None and low >= 0


def equal(a: End, b: End) -> bool:
    return a is not None and b is not None and ast.dump(a) == ast.dump(b)


def _split(end: ast.expr) -> tuple[str, int]:
    """`end` as (all but its last constant term, that term)."""
    number = constant(end)
    if number is not None:
        return "", number
    if isinstance(end, ast.BinOp) and isinstance(end.op, ast.Add | ast.Sub):
        number = constant(end.right)
        if number is not None:
            rest, more = _split(end.left)
            return rest, more + (number if isinstance(end.op, ast.Add) else -number)
    return ast.dump(end), 0


def at_most(a: End, b: End) -> bool:
    """Whether a <= b is plain from how they are written."""
    if a is None or b is None:
        return False
    if isinstance(a, ast.Call) and a.func.id == "_min" and any(at_most(x, b) for x in a.args):
        return True
    if isinstance(b, ast.Call) and b.func.id == "_max" and any(at_most(a, x) for x in b.args):
        return True
    (rest, number), (other, limit) = _split(a), _split(b)
    if constant(a) is not None and _is_size(b):
        return number <= limit
    return rest == other and number <= limit


def is_plain(a: ast.expr, op: ast.cmpop, b: ast.expr) -> bool:
    """Whether `a op b` holds by how it is written."""
    if isinstance(op, ast.GtE):
        return at_most(b, a)
    return at_most(a, plus(b, -1 if isinstance(op, ast.Lt) else 0))


def _is_size(end: ast.expr) -> bool:
    """Whether an end is made of what is never negative (sizes, the grid), but for a last number."""
    match end:
        case ast.Constant(value=int(value)):
            return value >= 0
        case ast.Name(id=name):
            return name in GRID
        case ast.Attribute(attr="size") | ast.Subscript(value=ast.Attribute(attr="shape")):
            return True
        case ast.BinOp(left=a, op=ast.Add() | ast.Sub(), right=b) if constant(b) is not None:
            return _is_size(a)
        case ast.BinOp(left=a, op=ast.Add() | ast.Mult() | ast.FloorDiv(), right=b):
            return all(_is_size(part) and _split(part)[1] >= 0 for part in (a, b))
    return False


def weakened(hoped: Interval, after: Interval) -> Interval:
    """`hoped` without the ends that one iteration does not keep."""
    return Interval(
        hoped.low if at_most(hoped.low, after.low) else None,
        hoped.high if at_most(after.high, hoped.high) else None,
    )


def total(a: End, b: End) -> End:
    if a is None or b is None:
        return None
    for one, other in ((a, b), (b, a)):
        number = constant(other)
        if number is not None:
            return plus(one, number)
    return binary(a, ast.Add(), b)


def plus(end: End, number: int) -> End:
    if end is None or number == 0:
        return end
    known = constant(end)
    if known is not None:
        return _number(known + number)
    if isinstance(end, ast.BinOp) and isinstance(end.op, ast.Add | ast.Sub):
        last = constant(end.right)
        if last is not None:
            last = last if isinstance(end.op, ast.Add) else -last
            return plus(end.left, last + number)
    op = ast.Add() if number > 0 else ast.Sub()
    return binary(end, op, const(abs(number)))


def _number(value: int) -> ast.expr:
    return const(value) if value >= 0 else ast.UnaryOp(ast.USub(), const(-value))


def negated(end: End) -> End:
    if end is None:
        return None
    known = constant(end)
    return ast.UnaryOp(ast.USub(), end) if known is None else _number(-known)


def product(a: End, b: End) -> End:
    if a is None or b is None:
        return None
    numbers = constant(a), constant(b)
    if None not in numbers:
        return _number(numbers[0] * numbers[1])
    if 1 in numbers:
        return a if numbers[1] == 1 else b
    return const(0) if 0 in numbers else binary(a, ast.Mult(), b)


def quotient(a: End, b: End) -> End:
    if a is None or b is None:
        return None
    numbers = constant(a), constant(b)
    if None not in numbers and numbers[1]:
        return _number(numbers[0] // numbers[1])
    return a if numbers[1] == 1 else binary(a, ast.FloorDiv(), b)


def moved(interval: Interval, number: int) -> Interval:
    return Interval(plus(interval.low, number), plus(interval.high, number))


def divided(interval: Interval, factor: int) -> Interval:
    """Where v lies if factor * v lies in `interval`."""
    low = quotient(plus(interval.low, factor - 1), const(factor))
    return Interval(low, quotient(interval.high, const(factor)))


def _choose(name: str, ends: list[ast.expr]) -> End:
    """The least (`_min`) or greatest (`_max`) of some ends; None of none."""
    pick = min if name == "_min" else max
    numbers = [n for n in map(constant, ends) if n is not None]
    rest = {ast.dump(end): end for end in ends if constant(end) is None}
    found = [*rest.values(), *([_number(pick(numbers))] if numbers else [])]
    if not found:
        return None
    result = found[0]
    for end in found[1:]:
        result = call(name, result, end)
    return result


def least(ends: list[End]) -> End:
    return None if None in ends else _choose("_min", ends)


def least_known(ends: list[End]) -> End:
    return _choose("_min", [end for end in ends if end is not None])


def greatest(ends: list[End]) -> End:
    return None if None in ends else _choose("_max", ends)


def greatest_known(ends: list[End]) -> End:
    return _choose("_max", [end for end in ends if end is not None])


def meet(a: Interval, b: Interval) -> Interval:
    """What lies in both."""
    return Interval(greatest_known([a.low, b.low]), least_known([a.high, b.high]))


def hull(a: Interval, b: Interval) -> Interval:
    """What holds all of both."""
    return Interval(least([a.low, b.low]), greatest([a.high, b.high]))


def terms(node: ast.expr, op: type = ast.Add) -> list[ast.expr]:
    """What a sum (or product) adds up, in order; [node] for another expression."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, op):
        return [*terms(node.left, op), *terms(node.right, op)]
    return [node]


def spelled(node: ast.expr) -> str:
    """A key for an expression, the same for sums and products in another order."""
    for op, sign in ((ast.Add, " + "), (ast.Mult, " * ")):
        parts = terms(node, op)
        if len(parts) > 1:
            return sign.join(sorted(f"({spelled(part)})" for part in parts))
    return ast.unparse(node)


_MOST_TERMS = 6


def partitions(node: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    """The ways to write a sum of several terms as a sum of at least two of them and the rest."""
    parts = terms(node)
    if not 3 <= len(parts) <= _MOST_TERMS:
        return
    for count in range(2, len(parts)):
        for chosen in itertools.combinations(range(len(parts)), count):
            rest = [part for place, part in enumerate(parts) if place not in chosen]
            yield added([parts[place] for place in chosen]), added(rest)


def added(parts: list[ast.expr]) -> ast.expr:
    result = parts[0]
    for part in parts[1:]:
        result = binary(result, ast.Add(), part)
    return result


class State(NamedTuple):
    """What is known at a place in the kernel."""

    variables: dict[str, Interval]
    narrowed: dict[str, tuple[Interval, frozenset[str]]]  # expressions, and the names they read
    tests: dict[str, ast.expr]  # what a boolean variable stands for

    def copy(self) -> State:
        return State(*(dict(part) for part in self))

    def forget(self, name: str) -> None:
        self.variables.pop(name, None)
        self.tests.pop(name, None)
        for text, (_, read) in list(self.narrowed.items()):
            if name in read:
                del self.narrowed[text]
        for flag, test in list(self.tests.items()):
            if name in names(test):
                del self.tests[flag]


def joined(states: list[State]) -> State:
    """What is known where any of `states` may be."""
    first, *others = states
    result = first.copy()
    for other in others:
        for name in list(result.variables):
            mine = result.variables[name]
            theirs = other.variables.get(name, TOP)
            result.variables[name] = mine if mine == theirs else hull(mine, theirs)
        for mine, theirs in ((result.narrowed, other.narrowed), (result.tests, other.tests)):
            for key in [key for key, value in mine.items() if theirs.get(key) is not value]:
                del mine[key]
    return result
