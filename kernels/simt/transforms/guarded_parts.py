"""Statements under different guards, as parts that each run for all threads of a row.

The fill of a tile with a halo is one store by every thread, then `if tx == 0: ...` and the like. In
one loop over the threads of a row such guards are masks on every thread. Between two barriers
threads are independent, so that the row may go through the first store before it comes to the
second: each part is a loop over just those threads that pass its guard, or for none.
"""

from __future__ import annotations

import ast

from kernels.simt.analysis.uniformity import has_effects, is_pure_call
from kernels.simt.ir.nodes import defined, located, names, statements, used
from kernels.simt.ir.program import Program


def computed_under_guards(
    program: Program, body: list[ast.stmt], needed: set[str]
) -> list[ast.stmt]:
    """`body`, in which loops whose results only the last statement needs, an `if`, run in it:
    threads that fail the test need none of them, and the bounds of a loop over threads can stand
    for the test. needed: variables that are read elsewhere."""
    last = body[-1] if body else None
    if not isinstance(last, ast.If) or last.orelse:
        return body
    calls = (node for node in ast.walk(last.test) if isinstance(node, ast.Call))
    if not all(is_pure_call(program, call) for call in calls):
        return body
    before = body[:-1]
    needed = needed | names(last.test)
    moved: list[ast.stmt] = []
    while before and _is_only_for(program, before[-1], needed):
        moved.insert(0, before.pop())
    if not any(isinstance(stmt, ast.For) for stmt in moved):
        before, moved = body[:-1], []
    inner = computed_under_guards(program, [*moved, *last.body], needed)
    if inner == last.body:
        return body
    return [*before, located(ast.If(last.test, inner, []), last)]


def _is_only_for(program: Program, stmt: ast.stmt, needed: set[str]) -> bool:
    """Whether a statement computes nothing but variables, none of them needed."""
    if has_effects(program, stmt) or not _is_plain(stmt):
        return False
    return not needed & {name for inner in statements([stmt]) if (name := defined(inner))}


Part = tuple[tuple[ast.expr, ...], list[ast.stmt]]  # the guards, and what is under them


def guarded_parts(body: list[ast.stmt]) -> list[list[ast.stmt]] | None:
    """`body` in parts, each of which is an `if` or has no guard; None where there is one part only,
    or one reads what another one computes under a guard."""
    parts = _collect(body, ())
    if parts is None or len(parts) < 2:
        return None
    for guards, under in parts:
        own = {name for stmt in statements(under) if (name := defined(stmt))}
        if guards and own & _read([part for part in parts if part[1] is not under]):
            return None
    return [_joined(*part) for part in parts]


def _collect(body: list[ast.stmt], guards: tuple[ast.expr, ...]) -> list[Part] | None:
    """The parts of statements under guards; None where one of them must not be parted."""
    parts: list[Part] = []
    for stmt in body:
        if isinstance(stmt, ast.If) and not stmt.orelse:
            found = _collect(stmt.body, (*guards, stmt.test))
            if found is None:
                return None
            parts += found
        elif not _is_plain(stmt):
            return None
        elif parts and parts[-1][0] == guards:
            parts[-1][1].append(stmt)
        else:
            parts.append((guards, [stmt]))
    return parts


def _is_plain(stmt: ast.stmt) -> bool:
    """Whether a statement only assigns, without waiting and without leaving a loop."""
    return all(isinstance(inner, ast.Assign | ast.If | ast.For) for inner in statements([stmt]))


def _read(parts: list[Part]) -> set[str]:
    guards = [names(guard) for guards, _ in parts for guard in guards]
    return set().union(*guards, *(_all_read(stmt) for _, under in parts for stmt in under))


def _all_read(stmt: ast.stmt) -> set[str]:
    """The names that a statement and those inside it read."""
    return set().union(*map(used, statements([stmt])))


def _joined(guards: tuple[ast.expr, ...], under: list[ast.stmt]) -> list[ast.stmt]:
    if not guards:
        return under
    test = guards[0] if len(guards) == 1 else ast.BoolOp(ast.And(), list(guards))
    return [located(ast.If(test, under, []), under[0])]
