"""Range analysis: which integers are never negative.

A negative index counts from the end in Numba, and the select that this needs at every access
prevents vectorisation. Where an index is proven non-negative, the generated code casts it to
uint64. Sums of 64-bit integers are assumed not to overflow; products only outside of recurrences.
"""

from __future__ import annotations

import ast

from numba.core import types

from kernels.simt.ir.nodes import BLOCK, GRID, THREAD, names
from kernels.simt.ir.program import Program


class Ranges:
    """Decides `nonnegative(expr)`. `signs` are the integer parameters known to be >= 0."""

    def __init__(self, program: Program, facts, kinds: dict[str, types.Type], signs: set[str]):
        self.program, self.facts, self.kinds = program, facts, kinds
        self.known = {*THREAD, *BLOCK, *GRID, "_x0"} | signs
        #: variables that the conditions around an expression bound from below, and by what
        self.assumed: list[dict[str, int]] = []
        self._solve()

    def _solve(self) -> None:
        """A greatest fixed point: assume all variables non-negative, drop those refuted."""
        candidates = {
            name
            for name in self.facts.defs
            if isinstance(self.kinds.get(name), types.Integer | types.Boolean)
        }
        for name in set(candidates):
            if self._multiplies_itself(name, candidates):
                candidates.discard(name)
        base = set(self.known)
        while True:
            self.known = base | candidates
            refuted = {name for name in candidates if not self._all_defs(name)}
            if not refuted:
                return
            candidates -= refuted

    def _multiplies_itself(self, name: str, candidates: set[str]) -> bool:
        """Whether `name` feeds a product that it is computed from (a hash, a power)."""
        seen: set[str] = set()
        todo = [name]
        growing = False
        while todo:
            current = todo.pop()
            for site in self.facts.defs.get(current, []):
                if not isinstance(site.stmt, ast.Assign):
                    continue
                value = site.stmt.value
                grows = any(
                    isinstance(n, ast.BinOp) and isinstance(n.op, ast.Mult | ast.LShift | ast.Pow)
                    for n in ast.walk(value)
                )
                for other in names(value) & candidates:
                    if other == name:
                        return growing or grows
                    if other not in seen:
                        seen.add(other)
                        growing = growing or grows
                        todo.append(other)
        return False

    def _all_defs(self, name: str) -> bool:
        for site in self.facts.defs[name]:
            stmt = site.stmt
            if isinstance(stmt, ast.Assign):
                guards = self._guards(site)
                self.assumed.append(guards)
                fine = self.nonnegative(stmt.value)
                self.assumed.pop()
                if not fine:
                    return False
            elif isinstance(stmt, ast.For):
                if not self._counts_up_from_zero(stmt.iter):
                    return False
            elif getattr(stmt, "kind", "") not in ("syncthreads_count",):
                return False
        return True

    def _guards(self, site) -> dict[str, int]:
        """Variables that the enclosing `if`s imply to be non-negative: see `shown`."""
        tests = [(c.test, side == "body") for c, side, _ in site.path if isinstance(c, ast.If)]
        return greatest(*(self.shown(*test) for test in tests))

    def _counts_up_from_zero(self, call: ast.Call) -> bool:
        args = call.args
        if len(args) == 1:
            return True
        if len(args) == 2:
            return self.nonnegative(args[0])
        step = constant(args[2])
        if step is not None and step < 0:
            stop = constant(args[1])
            return self.nonnegative(args[1]) or (stop is not None and stop >= -1)
        return self.nonnegative(args[0]) and (step is not None or self.nonnegative(args[2]))

    def shown(self, test: ast.expr, holds: bool = True) -> dict[str, int]:
        """Variables (assigned once), and sums of such in the words of the source, that are >= 0
        wherever `test` is true (or false), and a number that they are never below there."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            return self.shown(test.operand, not holds)
        if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) == holds:
            return greatest(*(self.shown(value, holds) for value in test.values))
        if not isinstance(test, ast.Compare) or (not holds and len(test.ops) > 1):
            return {}
        found: list[dict[str, int]] = []
        terms = [test.left, *test.comparators]
        for left, op, right in zip(terms, test.ops, terms[1:]):
            if not holds:
                op = OPPOSITE.get(type(op), ast.Is)()
            if isinstance(op, ast.Lt | ast.LtE):
                left, right = right, left
            elif not isinstance(op, ast.Gt | ast.GtE | ast.Eq):
                continue
            least = self._least(right, isinstance(op, ast.Gt | ast.Lt))
            if least is not None and self._is_sum(left):
                found.append({ast.unparse(left): least})
        return greatest(*found)

    def _is_sum(self, node: ast.expr) -> bool:
        """Whether a term is a variable that is assigned once, or a sum or difference of such."""
        match node:
            case ast.BinOp(left=a, op=ast.Add() | ast.Sub(), right=b):
                return all(constant(part) is not None or self._is_sum(part) for part in (a, b))
        return self._is_single_integer(node)

    def _is_single_integer(self, node: ast.expr) -> bool:
        if not isinstance(node, ast.Name) or not isinstance(self.kinds.get(node.id), types.Integer):
            return False
        return len(self.facts.defs.get(node.id, ())) <= 1

    def _least(self, bound: ast.expr, strict: bool) -> int | None:
        """The least of what is at least `bound`, or greater (strict); None if that is negative."""
        value = constant(bound)
        if value is None:
            return int(strict) if self.nonnegative(bound) else None
        return value + strict if value + strict >= 0 else None

    def nonnegative(self, node: ast.expr) -> bool:
        """Whether `node`, an integer expression, is proven to be >= 0."""
        match node:
            case ast.Constant(value=value):
                return isinstance(value, int) and value >= 0
            case ast.Name(id=name):
                kind = self.kinds.get(name)
                if isinstance(kind, types.Integer) and not kind.signed:
                    return True
                return name in self.known or any(name in guard for guard in self.assumed)
            case ast.BinOp(left=a, op=op, right=b):
                return self._arithmetic(a, op, b) or self._is_shown(node)
            case ast.IfExp(test=test, body=a, orelse=b):
                return self._under(test, True, a) and self._under(test, False, b)
            case ast.Compare():
                return True
            case ast.BoolOp(values=values):  # of numbers it is one of them: 0 or -1
                return all(map(self.nonnegative, values))
            case ast.UnaryOp(op=ast.Not()):
                return True
            case ast.UnaryOp(op=ast.UAdd(), operand=a):
                return self.nonnegative(a)
            case ast.Subscript(value=ast.Attribute(attr="shape")):
                return True
            case ast.Subscript(value=ast.Name(id=array)):
                kind = self.kinds.get(array)
                element = kind.dtype if isinstance(kind, types.Array) else None
                return isinstance(element, types.Integer) and not element.signed
            case ast.Attribute(attr="size" | "ndim" | "nbytes"):
                return True
            case ast.Call(func=ast.Name(id=name), args=args):
                return self._call(name, args)
        return False

    def _is_shown(self, node: ast.expr) -> bool:
        """Whether a test around shows just this expression to be >= 0."""
        return any(self.assumed) and any(ast.unparse(node) in shown for shown in self.assumed)

    def positive(self, node: ast.expr) -> bool:
        """Whether `node`, an integer expression, is proven to be >= 1."""
        return self.at_least(node, 1)

    def at_least(self, node: ast.expr, bound: int) -> bool:
        """Whether `node`, an integer expression, is proven to be >= `bound` (which is >= 1)."""
        match node:
            case ast.Constant(value=value):
                return type(value) is int and value >= bound
            case ast.Name(id=name):
                if name in GRID:
                    return bound <= 1
                if any(shown.get(name, 0) >= bound for shown in self.assumed):
                    return True
                sites = self.facts.defs.get(name, [])
                return (
                    len(sites) == 1
                    and isinstance(sites[0].stmt, ast.Assign)
                    and self.at_least(sites[0].stmt.value, bound)
                )
            case ast.BinOp(left=a, op=ast.Mult(), right=b):
                for one, other in ((a, b), (b, a)):
                    if self.at_least(one, bound) and self.at_least(other, 1):
                        return True
                return False
            case ast.BinOp(left=a, op=ast.Add(), right=b):
                for one, other in ((a, b), (b, a)):
                    if self.at_least(one, bound) and self.nonnegative(other):
                        return True
                return False
        return False

    def _under(self, test: ast.expr, holds: bool, node: ast.expr) -> bool:
        self.assumed.append(self.shown(test, holds))
        fine = self.nonnegative(node)
        self.assumed.pop()
        return fine

    def _arithmetic(self, a: ast.expr, op: ast.operator, b: ast.expr) -> bool:
        match op:
            case ast.Add() | ast.Mult() | ast.FloorDiv() | ast.BitOr() | ast.BitXor():
                return self.nonnegative(a) and self.nonnegative(b)
            case ast.Sub():
                less = constant(b)
                if less is None:  # a thread's place among those that go together
                    return (ast.unparse(a), ast.unparse(b)) == ("_tx", "_x0")
                return self.nonnegative(a) if less <= 0 else self.at_least(a, less)
            case ast.LShift():
                return self.nonnegative(a)
            case ast.RShift():
                return self.nonnegative(a)
            case ast.Mod():
                return self.nonnegative(b)
            case ast.BitAnd():
                return self.nonnegative(a) or self.nonnegative(b)
        return False

    def _call(self, name: str, args: list[ast.expr]) -> bool:
        if name in ("len", "abs", "bool"):
            return True
        value = self.program.externs.get(name)
        label = getattr(value, "__name__", "")
        if name == "max" or label in ("maximum", "builtin_max"):
            return any(self.nonnegative(a) for a in args)
        if name == "min" or label in ("minimum", "builtin_min"):
            return all(self.nonnegative(a) for a in args)
        if isinstance(value, types.Integer):
            return not value.signed or (value.bitwidth >= 32 and all(map(self.nonnegative, args)))
        return name == "int" and all(self.nonnegative(a) for a in args)


def greatest(*shown: dict[str, int]) -> dict[str, int]:
    """All of what several conditions show: of each variable the greatest number."""
    found: dict[str, int] = {}
    for one in shown:
        found |= {name: max(least, found.get(name, 0)) for name, least in one.items()}
    return found


OPPOSITE = {ast.Lt: ast.GtE, ast.LtE: ast.Gt, ast.Gt: ast.LtE, ast.GtE: ast.Lt}


def constant(node: ast.expr) -> int | None:
    """The integer that `node` spells, or None."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = constant(node.operand)
        return None if inner is None else -inner
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    return None
