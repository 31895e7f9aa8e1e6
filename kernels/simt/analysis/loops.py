"""What is known of a single loop: how often it iterates, and whether it may wait for memory."""

from __future__ import annotations

import ast
from typing import Any

from kernels.simt.analysis.ranges import constant
from kernels.simt.analysis.uniformity import is_pure_call
from kernels.simt.ir.nodes import (
    GRID,
    Loop,
    breaks,
    const,
    defined,
    names,
    statements,
    stored_array,
)
from kernels.simt.ir.program import Program


def trip_count(stmt: Any) -> int | None:
    """The number of iterations of a loop (in the normal form or in a plan) over a constant range.
    None where it is not constant."""
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


def spins(stmt: Loop, program: Program) -> bool:
    """Whether a loop may wait for memory that another thread writes: its exit reads memory."""

    def reads(node: ast.AST) -> bool:
        return any(_reads_memory(inner, program) for inner in ast.walk(node))

    exits: list[ast.AST] = [*_exits(stmt), *stmt.pre]
    assigned = [s for s in statements([*stmt.pre, *stmt.body]) if isinstance(s, ast.Assign)]
    watched: set[str] = set()
    while exits:  # and what they are computed from, in the loop
        if any(map(reads, exits)):
            return True
        new = set().union(*map(names, exits)) - watched
        watched |= new
        exits = [s.value for s in assigned if defined(s) in new]
    return False


def waits(stmt: Loop, program: Program) -> bool:
    """Whether a loop seems to wait: its exit reads memory, and the loop itself changes nothing that
    decides about the exit, neither a variable (as a counter) nor an element of what is read.

    In the lab, which counts iterations and has a limit for them, each loop that `spins`."""
    if not spins(stmt, program):
        return False
    if program.recorded:
        return True
    inner = list(statements([*stmt.pre, *stmt.body]))
    read: dict[str, set[str]] = {}  # by variable, what its new values in the loop are computed from
    for one in inner:
        if isinstance(one, ast.Assign) and (name := defined(one)) is not None:
            read.setdefault(name, set()).update(names(one.value))
    deciding = _reached(set().union(*map(names, _exits(stmt))), read)
    written = {stored_array(s) for s in inner if isinstance(s, ast.Assign)}
    counts = any(name in _reached(read[name], read) for name in deciding & read.keys())
    return not counts and not deciding & written


def _exits(stmt: Loop) -> list[ast.expr]:
    """The conditions on which a loop ends."""
    inner = statements(stmt.body)
    return [stmt.test, *[s.test for s in inner if isinstance(s, ast.If) and breaks([s])]]


def _reached(start: set[str], read: dict[str, set[str]]) -> set[str]:
    """The names, and all that they are computed from."""
    found, new = set(start), set(start)
    while new := set().union(*(read.get(name, ()) for name in new)) - found:
        found |= new
    return found


def _reads_memory(node: ast.AST, program: Program) -> bool:
    """Whether a node reads an element, or calls what may."""
    if isinstance(node, ast.Subscript):
        return not isinstance(node.value, ast.Attribute)  # a shape
    return isinstance(node, ast.Call) and not is_pure_call(program, node)


_SHORT = 1 << 10  # iterations


def is_counted(loop: Any) -> bool:
    """Whether a loop over a range (of the normal form or of a plan) may be long."""
    trips = trip_count(loop)
    return trips is None or trips > _SHORT


def ends_by_itself(
    test: ast.expr,
    body: list[ast.stmt],
    program: list[ast.stmt],
    others: list[ast.stmt] | None = None,
) -> bool:
    """Whether a `while` ends soon, whatever its variables are: `while i < n: ...; i += s`, where s
    is the size of the grid (all threads together go once through the range), or `while s > 0: ...;
    s //= 2`. `program` is the kernel's body, `others` what runs in some iterations only."""
    inner = list(statements([*body, *(others or [])]))
    match test:
        case ast.Compare(left=ast.Name(id=counter), ops=[op], comparators=[limit]):
            changes = [s for s in inner if defined(s) == counter]
            (change,) = changes if len(changes) == 1 else (None,)
            if change not in body or any(isinstance(s, ast.Continue) for s in inner):
                return False
            match op, getattr(change, "value", None):
                case (
                    ast.Lt() | ast.LtE(),
                    ast.BinOp(left=ast.Name(id=old), op=ast.Add(), right=by),
                ):
                    return old == counter and _is_grid_size(by, program)
                case (
                    ast.Gt(),
                    ast.BinOp(
                        left=ast.Name(id=old),
                        op=ast.FloorDiv() | ast.RShift() as halves,
                        right=ast.Constant(value=int(by)),
                    ),
                ):
                    zero = isinstance(limit, ast.Constant) and limit.value == 0
                    return old == counter and zero and by > isinstance(halves, ast.FloorDiv)
    return False


def _is_grid_size(node: ast.expr, program: list[ast.stmt]) -> bool:
    if isinstance(node, ast.Name):
        found = [s for s in statements(program) if defined(s) == node.id]
        (only,) = found if len(found) == 1 else (None,)
        return isinstance(only, ast.Assign) and _is_grid_size(only.value, program)
    match node:
        case ast.BinOp(left=ast.Name(id=name), op=ast.Mult(), right=ast.Constant(value=threads)):
            return name in GRID and isinstance(threads, int) and threads > 0
    return False
