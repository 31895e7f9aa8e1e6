"""Short loops of constant length, which the generator of machine code is to unroll."""

from __future__ import annotations

import ast
from typing import TypeVar

from kernels.simt.analysis.loops import trip_count
from kernels.simt.frontend.structure import has_jumps
from kernels.simt.ir.hints import Hint
from kernels.simt.ir.nodes import HintedFor, bodies, statements

_Stmt = TypeVar("_Stmt", bound=ast.stmt)
UNROLL_LIMIT = 64  # statements that a loop of constant length may unroll to inside of a row


def hint_short_loops(body: list[ast.stmt]) -> list[ast.stmt]:
    """`body` with a hint on every loop that unrolls to few statements, and on those inside it."""
    return [_hinted(stmt, _is_short(stmt)) for stmt in body]


def _hinted(stmt: ast.stmt, within: bool) -> ast.stmt:
    """`stmt` with its loops hinted; `within`: it is, or is part of, a loop that is unrolled."""
    if not isinstance(stmt, ast.If | ast.For | ast.While) or isinstance(stmt, HintedFor):
        return stmt
    new = shallow_copy(stmt)
    for field in ("body", "orelse"):
        inner = [_hinted(s, within or _is_short(s)) for s in getattr(stmt, field)]
        setattr(new, field, inner)
    if within and isinstance(stmt, ast.For):
        new.__class__ = HintedFor
        new.__dict__["hint"] = Hint.UNROLL
    return new


def _is_short(stmt: ast.stmt) -> bool:
    if not isinstance(stmt, ast.For) or has_jumps(stmt):
        return False
    trips = trip_count(stmt)
    if trips is None or any(isinstance(s, ast.While) for s in statements(stmt.body)):
        return False
    return trips * sum(map(unrolled_length, stmt.body)) <= UNROLL_LIMIT


def unrolled_length(stmt: ast.stmt) -> int:
    """How many statements `stmt` unrolls to; beyond the limit if a loop in it is not constant."""
    if isinstance(stmt, ast.For):
        trips = trip_count(stmt)
        return UNROLL_LIMIT + 1 if trips is None else trips * sum(map(unrolled_length, stmt.body))
    if isinstance(stmt, ast.If):
        return 1 + sum(unrolled_length(s) for body in bodies(stmt) for s in body)
    return 1


def shallow_copy(stmt: _Stmt) -> _Stmt:
    """Another statement with the same parts."""
    new = stmt.__class__.__new__(stmt.__class__)
    new.__dict__.update(stmt.__dict__)
    return new
