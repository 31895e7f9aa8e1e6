"""Loops that count by hand: `while i < n: ...; i += stride` as `for i in range(i, n, stride): ...`.

Grid-stride loops are written in either way. Of a `range` the other passes know how often it runs
and where neighbouring threads are, so that a row of threads goes through it together; of a `while`
they know nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping

from numba.core import types

from kernels.simt.analysis.uniformity import dependent_on, has_loads, is_pure_call
from kernels.simt.devlib import maths
from kernels.simt.ir.nodes import (
    BLOCK,
    GRID,
    THREAD,
    Loop,
    assign,
    binary,
    bodies,
    breaks,
    call,
    clone,
    const,
    defined,
    expressions,
    load,
    located,
    names,
    nodes_in,
    statements,
    store,
    terminates,
)
from kernels.simt.ir.program import Program

_COORDINATES = {*THREAD, *BLOCK, *GRID}
_INTEGERS = (types.signed_domain | types.unsigned_domain) - {types.uint64}
_ARITHMETIC = ast.Add | ast.Sub | ast.Mult | ast.FloorDiv | ast.Mod | ast.RShift | ast.BitAnd


def count_loops(program: Program, kinds: Mapping[str, types.Type]) -> None:
    """Rewrite `program.body` in place. `kinds`: the types of the parameters."""
    if not program.checked:  # there a loop stays as it is written
        program.body = _Counter(program, kinds).rewritten(program.body, False)


class _Counter:
    def __init__(self, program: Program, kinds: Mapping[str, types.Type]) -> None:
        self.program, self.kinds = program, kinds
        self.of_threads = dependent_on(set(THREAD), program, program.body)
        self.of_grid = dependent_on(set(GRID), program, program.body)
        self.values: dict[str, list[ast.expr | None]] = {}  # what each variable is assigned
        for stmt in statements(program.body):
            if (name := defined(stmt)) is not None:
                counts = stmt.iter if isinstance(stmt, ast.For) else None
                value = stmt.value if isinstance(stmt, ast.Assign) else counts
                self.values.setdefault(name, []).append(value)

    def rewritten(self, body: list[ast.stmt], again: bool) -> list[ast.stmt]:
        """`body` with its loops counted; `again`: it may run several times."""
        out: list[ast.stmt] = []
        for stmt in body:
            for field in ("pre", "body", "orelse"):
                if isinstance(stmt, ast.If | ast.For | ast.While) and getattr(stmt, field, None):
                    inside = again or not isinstance(stmt, ast.If)
                    setattr(stmt, field, self.rewritten(getattr(stmt, field), inside))
            counted = self._counted(stmt, again) if isinstance(stmt, Loop) else None
            out += counted or [stmt]
        return out

    def _counted(self, loop: Loop, again: bool) -> list[ast.stmt] | None:
        """The statements that do the same; None where it is no such loop."""
        end = _end(loop.body)
        found = None if loop.pre or not end or _continues(loop.body) else _parts(loop.test, end[-1])
        if found is None:
            return None
        name, stop, step = found
        changed = {defined(stmt) for stmt in statements(loop.body) if stmt is not end[-1]}
        if name in changed or (names(stop) | names(step)) & (changed | {name}):
            return None
        if not (self._is_fixed(stop) and self._is_fixed(step) and self._is_positive(step)):
            return None
        if not all(self._is_integer(expr, set()) for expr in (load(name), stop, step)):
            return None
        if self.of_grid.is_varying(step) and name not in self.of_threads.varying:
            return None  # several blocks go through such a loop together: see `plan.strides`
        goes_on = again or self._is_read_outside(loop, name)
        if goes_on and breaks(loop.body):
            return None
        end[-1:] = [] if len(end) > 1 else [ast.Pass()]
        first = self.program.fresh("first")
        trips = call("range", load(first), stop, step)
        counted = located(ast.For(store(name), trips, loop.body, []), loop)
        out = [assign(first, load(name), loop), counted]
        if goes_on:  # where a `range` leaves its counter at the last number
            covered = binary(call("len", clone(trips)), ast.Mult(), clone(step))
            out.append(assign(name, binary(load(first), ast.Add(), covered), loop))
        return out

    def _is_read_outside(self, loop: Loop, name: str) -> bool:
        inside = {id(stmt) for stmt in statements([loop])}
        others = (stmt for stmt in statements(self.program.body) if id(stmt) not in inside)
        return any(name in names(expr) for stmt in others for expr in expressions(stmt))

    def _is_fixed(self, expr: ast.expr) -> bool:
        """Whether an expression has the same value as long as its variables have."""
        calls = (node for node in nodes_in(expr) if isinstance(node, ast.Call))
        return not has_loads(self.program, expr) and all(
            is_pure_call(self.program, node) for node in calls
        )

    def _is_positive(self, step: ast.expr | None) -> bool:
        """Whether a step is greater than 0: made of numbers and sizes of the grid."""
        match step:
            case ast.Constant(value=value):
                return type(value) is int and value > 0
            case ast.Name(id=name):
                values = self.values.get(name, [])
                once = len(values) == 1 and name not in self.program.params
                return name in GRID or (once and self._is_positive(values[0]))
            case ast.BinOp(left=left, op=ast.Add() | ast.Mult(), right=right):
                return self._is_positive(left) and self._is_positive(right)
        return False

    def _is_integer(self, expr: ast.expr, seen: set[str]) -> bool:
        """Whether an expression is an integer of up to 64 bits, with a sign if it has 64."""
        match expr:
            case ast.Constant(value=value):
                return type(value) is int
            case ast.Name(id=name):
                return self._holds_integers(name, seen)
            case ast.BinOp(left=left, op=op, right=right) if isinstance(op, _ARITHMETIC):
                return self._is_integer(left, seen) and self._is_integer(right, seen)
            case ast.IfExp(body=one, orelse=other):
                return self._is_integer(one, seen) and self._is_integer(other, seen)
            case ast.Attribute(attr="size"):
                return "size" not in self.program.fields
            case ast.Subscript(value=ast.Attribute(attr="shape" | "strides")):
                return True
            case ast.Subscript(value=ast.Name(id=array)):
                kind = self.kinds.get(array)
                return isinstance(kind, types.Array) and _is_integer_type(kind.dtype)
            case ast.Call(func=ast.Name(id=function), args=args):
                called = self.program.externs.get(function)
                if function == "range" or called in (maths.minimum, maths.maximum):
                    return all(self._is_integer(arg, seen) for arg in args)
                return function == "len" or _is_integer_type(called)
        return False

    def _holds_integers(self, name: str, seen: set[str]) -> bool:
        if name in _COORDINATES or name in seen:
            return True
        values = self.values.get(name, [])
        if name in self.program.params:
            if not _is_integer_type(self.kinds.get(name)):
                return False
        elif not values:
            return False
        seen = seen | {name}
        return all(value is not None and self._is_integer(value, seen) for value in values)


def _end(body: list[ast.stmt]) -> list[ast.stmt]:
    """The list of statements that ends with the last one of all who do not leave the loop."""
    last = body[-1] if body else None
    if isinstance(last, ast.If) and last.orelse:
        if terminates(last.body, (ast.Break,)):
            return _end(last.orelse)
        if terminates(last.orelse, (ast.Break,)):
            return _end(last.body)
    return body


def _parts(test: ast.expr, last: ast.stmt) -> tuple[str, ast.expr, ast.expr] | None:
    """(i, n, stride) of the test `i < n` and `i = i + stride` at the end of a loop."""
    match test, last:
        case (
            ast.Compare(left=left, ops=[op], comparators=[right]),
            ast.Assign(targets=[ast.Name(id=name)], value=ast.BinOp(op=ast.Add()) as total),
        ):
            if isinstance(op, ast.Gt | ast.GtE):
                left, right = right, left
                op = ast.Lt() if isinstance(op, ast.Gt) else ast.LtE()
            if not (isinstance(left, ast.Name) and left.id == name):
                return None
            if isinstance(op, ast.LtE):
                right = binary(right, ast.Add(), const(1))
            elif not isinstance(op, ast.Lt):
                return None
            for one, step in ((total.left, total.right), (total.right, total.left)):
                if isinstance(one, ast.Name) and one.id == name:
                    return name, right, step
    return None


def _continues(body: list[ast.stmt]) -> bool:
    """Whether a `continue` in `body` goes on with the loop around it."""
    return any(
        isinstance(stmt, ast.Continue)
        or (isinstance(stmt, ast.If) and any(map(_continues, bodies(stmt))))
        for stmt in body
    )


def _is_integer_type(kind: object) -> bool:
    return isinstance(kind, types.Type) and kind in _INTEGERS
