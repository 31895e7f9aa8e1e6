"""What is known of a single loop: how often it iterates, and whether it may wait for memory."""

from __future__ import annotations

import ast

from kernels.simt.analysis.ranges import constant
from kernels.simt.ir.nodes import Loop, const, names


def trip_count(stmt: ast.For) -> int | None:
    """The number of iterations of a loop over a constant range."""
    values = [constant(arg) for arg in stmt.iter.args]
    if None in values or (len(values) == 3 and values[2] == 0):
        return None
    return len(range(*values))


def constant_ends(stmt: ast.For) -> tuple[ast.expr, ast.expr] | None:
    """The first and last value of a constant loop's counter."""
    values = [constant(arg) for arg in stmt.iter.args]
    if None in values or not trip_count(stmt):
        return None
    counted = range(*values)
    return const(counted[0]), const(counted[-1])


def spins(stmt: Loop) -> bool:
    """Whether a loop may wait for memory that another thread writes: its exit reads memory."""
    tests: list[ast.AST] = [stmt.test, *stmt.pre]
    if isinstance(stmt.test, ast.Constant):
        tests += stmt.body
    if any(map(_reads_memory, tests)):
        return True
    watched = names(stmt.test)
    return any(
        isinstance(s, ast.Assign)
        and isinstance(s.targets[0], ast.Name)
        and s.targets[0].id in watched
        and _reads_memory(s.value)
        for body in stmt.body
        for s in ast.walk(body)
        if isinstance(s, ast.stmt)
    )


def _reads_memory(node: ast.AST) -> bool:
    return any(isinstance(inner, ast.Subscript | ast.Call) for inner in ast.walk(node))
