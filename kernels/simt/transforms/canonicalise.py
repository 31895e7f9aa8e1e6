"""Last rewrites before typing: the forms of collective control flow that fission understands."""

from __future__ import annotations

import ast

from kernels.simt.analysis.uniformity import Facts, analyse
from kernels.simt.frontend.calls import COUNTED, SHUFFLES, VOTES
from kernels.simt.frontend.structure import for_to_while, is_collective, lower_loop_jumps
from kernels.simt.ir.nodes import Collective, assign, call, load, located, negate, statements
from kernels.simt.ir.program import Program


def prepare(program: Program) -> None:
    """Rewrite `program.body` in place."""
    program.body = lower_loop_jumps(program.body, program.fresh)
    program.body = _align_barriers(program.body, program)
    program.body = _name_exchanged_values(program.body, program)
    while True:
        facts = analyse(program)
        converted: list[bool] = []
        program.body = _count_by_hand(program.body, program, facts, converted)
        if not converted:
            return


def _inside(stmt: ast.stmt, rewrite) -> None:
    for name in ("pre", "body", "orelse"):
        if isinstance(stmt, ast.If | ast.For | ast.While) and getattr(stmt, name, None):
            setattr(stmt, name, rewrite(getattr(stmt, name)))


def _align_barriers(body: list[ast.stmt], program: Program) -> list[ast.stmt]:
    """`if c: A; sync; B else: C; sync; D` is `if c: A else: C; sync; if c: B else: D`.

    On hardware a barrier counts arrivals, so the two barriers are one for the block.
    """
    out: list[ast.stmt] = []
    for stmt in body:
        _inside(stmt, lambda inner: _align_barriers(inner, program))
        if not isinstance(stmt, ast.If) or not stmt.orelse:
            out.append(stmt)
            continue
        first, second = _cut(stmt.body), _cut(stmt.orelse)
        if first is None or second is None or len(first[0]) != len(second[0]) or not first[1]:
            out.append(stmt)
            continue
        test = program.fresh("side")
        out.append(assign(test, call("bool", stmt.test), stmt))
        for position, (mine, others) in enumerate(zip(first[0], second[0])):
            if position:
                out.append(first[1][position - 1])
            if mine:
                out.append(located(ast.If(load(test), mine, others), stmt))
            elif others:
                out.append(located(ast.If(negate(load(test)), others, []), stmt))
    return out


def _cut(body: list[ast.stmt]):
    """(pieces, barriers between them), or None if a barrier hides deeper inside."""
    pieces: list[list[ast.stmt]] = [[]]
    barriers = []
    for stmt in body:
        if isinstance(stmt, Collective) and stmt.kind == "syncthreads":
            barriers.append(stmt)
            pieces.append([])
        elif any(
            isinstance(inner, Collective) and inner.kind.startswith("syncthreads")
            for inner in statements([stmt])
        ):
            return None
        else:
            pieces[-1].append(stmt)
    return pieces, barriers


def _name_exchanged_values(body: list[ast.stmt], program: Program) -> list[ast.stmt]:
    """What a shuffle or match publishes is a variable of its own, which other lanes can read."""
    out: list[ast.stmt] = []
    for stmt in body:
        _inside(stmt, lambda inner: _name_exchanged_values(inner, program))
        if isinstance(stmt, Collective):
            for position in _published(stmt):
                value = stmt.args[position]
                if not isinstance(value, ast.Name) or value.id not in program.taken:
                    name = program.fresh("sent")
                    out.append(assign(name, value, stmt))
                    stmt.args[position] = load(name)
        out.append(stmt)
    return out


def _published(stmt: Collective) -> list[int]:
    """The arguments of a collective that other threads read."""
    if stmt.kind in VOTES:  # a member mask is nearly always a constant
        return [p for p, arg in enumerate(stmt.args) if p or not isinstance(arg, ast.Constant)]
    if stmt.kind in SHUFFLES:
        return [1]
    return [0] if stmt.kind in COUNTED else []


def _count_by_hand(
    body: list[ast.stmt], program: Program, facts: Facts, converted: list[bool]
) -> list[ast.stmt]:
    """Counted loops with collectives that threads leave at different times become `while`s.

    The loop is left at an empty range; a copy of its counter keeps Python's value after the loop.
    """
    out: list[ast.stmt] = []
    for stmt in body:
        _inside(stmt, lambda inner: _count_by_hand(inner, program, facts, converted))
        if (
            isinstance(stmt, ast.For)
            and is_collective(stmt)
            and not facts.at_block_level(stmt.iter)
        ):
            setup, loop = for_to_while(stmt, program.fresh)
            loop.body = loop.body + loop.step
            out += [*setup, loop]
            converted.append(True)
        else:
            out.append(stmt)
    return out
