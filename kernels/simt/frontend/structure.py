"""Structured control flow: `return`, `break` and `continue` become `if`s and flags.

Fission needs this: a region of the program between two barriers has one entry and one exit.
"""

from __future__ import annotations

import ast
from collections.abc import Callable

from kernels.simt.ir.nodes import (
    Collective,
    Loop,
    assign,
    binary,
    bodies,
    call,
    conjunction,
    const,
    counter,
    load,
    located,
    negate,
    range_arguments,
    statements,
    store,
    terminates,
)

Replace = Callable[[ast.stmt], list[ast.stmt]]
_ENDS = "ends_threads"  # the attribute of statements that threads leave by a `return`


class _Lowering:
    """Removes the jumps `kinds` from a statement list.

    `flag` records that a jump was taken, for the code that must then be skipped. `into_loops`
    says whether the jump leaves the loops inside the list (`return` does, `break` belongs to the
    innermost loop).
    """

    def __init__(self, kinds: tuple[type, ...], flag: str, replace: Replace, into_loops: bool):
        self.kinds, self.flag, self.replace, self.into_loops = kinds, flag, replace, into_loops
        self.flag_read = False

    def contains(self, stmt: ast.stmt) -> bool:
        if isinstance(stmt, self.kinds):
            return True
        if isinstance(stmt, ast.For | ast.While) and not self.into_loops:
            return False
        return any(self.contains(inner) for body in bodies(stmt) for inner in body)

    def lower(self, body: list[ast.stmt], in_loop: bool = False) -> list[ast.stmt]:
        out: list[ast.stmt] = []
        for position, stmt in enumerate(body):
            rest = body[position + 1 :]
            if isinstance(stmt, self.kinds):
                out += self.replace(stmt)
                out.append(assign(self.flag, const(True), stmt))
                if in_loop:
                    out.append(located(ast.Break(), stmt))
                return out
            if not self.contains(stmt):
                out.append(stmt)
                continue
            if isinstance(stmt, ast.If):
                out += self._branch(stmt, rest, in_loop)
                return out
            stmt.body = self.lower(stmt.body, in_loop=True)
            self._mark(stmt)
            out.append(stmt)
            if in_loop:
                self.flag_read = True
                out.append(located(ast.If(load(self.flag), [ast.Break()], []), stmt))
                out += self.lower(rest, in_loop)
            else:
                out += self._guarded(rest, stmt)
            return out
        return out

    def _branch(self, stmt: ast.If, rest: list[ast.stmt], in_loop: bool) -> list[ast.stmt]:
        if terminates(stmt.body, self.kinds):
            stmt.orelse, rest = stmt.orelse + rest, []
            self._mark(stmt)
        elif terminates(stmt.orelse, self.kinds):
            stmt.body, rest = stmt.body + rest, []
            self._mark(stmt)
        stmt.body = self.lower(stmt.body, in_loop)
        stmt.orelse = self.lower(stmt.orelse, in_loop)
        after = self.lower(rest, True) if in_loop else self._guarded(rest, stmt)
        if not stmt.body:
            stmt.test, stmt.body, stmt.orelse = negate(stmt.test), stmt.orelse, []
        return [stmt, *after] if stmt.body else after

    def _guarded(self, rest: list[ast.stmt], at: ast.stmt) -> list[ast.stmt]:
        rest = self.lower(rest)
        if not rest:
            return []
        self.flag_read = True
        guard = located(ast.If(negate(load(self.flag)), rest, []), at)
        self._mark(guard)
        return [guard]

    def _mark(self, stmt: ast.stmt) -> None:
        """Note that threads leave `stmt` by a `return`: no barrier waits for them."""
        setattr(stmt, _ENDS, ast.Return in self.kinds)

    def finish(self, body: list[ast.stmt]) -> list[ast.stmt]:
        """The lowered list, with the flag initialised, or removed if nothing reads it."""
        if self.flag_read:
            return [assign(self.flag, const(False), body[0] if body else None), *body]
        return _without(body, self.flag)


def _without(body: list[ast.stmt], flag: str) -> list[ast.stmt]:
    """`body` with the assignments to `flag`, and the `if`s that they leave empty, removed."""
    out = []
    for stmt in body:
        if isinstance(stmt, ast.Assign) and getattr(stmt.targets[0], "id", None) == flag:
            continue
        had = bool(list(bodies(stmt)))
        for field in ("body", "orelse"):
            if isinstance(getattr(stmt, field, None), list):
                setattr(stmt, field, _without(getattr(stmt, field), flag))
        if had and isinstance(stmt, ast.If) and not stmt.body:
            if not stmt.orelse:
                continue
            stmt.test, stmt.body, stmt.orelse = negate(stmt.test), stmt.orelse, []
        if had and isinstance(stmt, ast.For | ast.While) and not stmt.body:
            stmt.body = [ast.Pass()]
        out.append(stmt)
    return out


def lower_returns(body: list[ast.stmt], flag: str, replace: Replace) -> list[ast.stmt]:
    """`body` without `return`: what follows a taken return is skipped."""
    lowering = _Lowering((ast.Return,), flag, replace, into_loops=True)
    return lowering.finish(lowering.lower(body))


def ends_threads(stmt: ast.stmt) -> bool:
    """Whether threads leave a statement by a `return`."""
    return getattr(stmt, _ENDS, False)


def is_collective(stmt: ast.stmt) -> bool:
    """Whether a statement is or contains a collective."""
    return any(isinstance(inner, Collective) for inner in statements([stmt]))


def lower_loop_jumps(body: list[ast.stmt], fresh: Callable[[str], str]) -> list[ast.stmt]:
    """`break` and `continue` of the loops that contain collectives become flags and `if`s."""
    out = []
    for stmt in body:
        for field in ("pre", "body", "orelse"):
            if isinstance(stmt, ast.If | ast.For | ast.While) and hasattr(stmt, field):
                setattr(stmt, field, lower_loop_jumps(getattr(stmt, field), fresh))
        if isinstance(stmt, ast.For | ast.While) and is_collective(stmt) and has_jumps(stmt):
            out += _structured_loop(stmt, fresh)
        else:
            out.append(stmt)
    return out


def has_jumps(loop: ast.For | ast.While) -> bool:
    """Whether a `break` or `continue` belongs to this loop itself."""
    probe = _Lowering((ast.Break, ast.Continue), "", lambda stmt: [], into_loops=False)
    return any(probe.contains(stmt) for stmt in loop.body)


def _structured_loop(loop: ast.For | ast.While, fresh: Callable[[str], str]) -> list[ast.stmt]:
    stop = fresh("stop")
    breaks = False

    def replace(stmt: ast.stmt) -> list[ast.stmt]:
        nonlocal breaks
        if isinstance(stmt, ast.Break):
            breaks = True
            return [assign(stop, const(True), stmt)]
        return []

    setup, loop = for_to_while(loop, fresh) if isinstance(loop, ast.For) else ([], loop)
    step = loop.step if hasattr(loop, "step") else []
    lowering = _Lowering((ast.Break, ast.Continue), fresh("skip"), replace, into_loops=False)
    loop.body = lowering.finish(lowering.lower(loop.body)) + step
    if not breaks:
        return [*setup, loop]
    go = negate(load(stop))
    if loop.pre:
        loop.pre = [located(ast.If(go, loop.pre, []), loop)]
    always = isinstance(loop.test, ast.Constant) and loop.test.value
    loop.test = go if always else conjunction(go, loop.test)
    return [*setup, assign(stop, const(False), loop), loop]


def for_to_while(loop: ast.For, fresh: Callable[[str], str]) -> tuple[list[ast.stmt], Loop]:
    """A counted loop as a `while`, with its increment in the attribute `step`."""
    trip = fresh("trip")
    setup: list[ast.stmt] = []
    bounds = range_arguments(loop)
    start, stop, step = {
        1: lambda: (const(0), bounds[0], const(1)),
        2: lambda: (bounds[0], bounds[1], const(1)),
        3: lambda: (bounds[0], bounds[1], bounds[2]),
    }[len(bounds)]()
    names = []
    for value in (start, step):
        if not isinstance(value, ast.Constant):
            name = fresh("bound")
            setup.append(assign(name, value, loop))
            value = load(name)
        names.append(value)
    start, step = names
    count = fresh("trips")
    setup.append(assign(count, call("len", call("range", start, stop, step)), loop))
    setup.append(assign(trip, const(0), loop))
    at = binary(start, ast.Add(), binary(load(trip), ast.Mult(), step))
    if isinstance(start, ast.Constant) and start.value == 0:
        at = at.right
    if isinstance(step, ast.Constant) and step.value == 1 and isinstance(at, ast.BinOp):
        at = load(trip) if at.op.__class__ is ast.Mult else binary(start, ast.Add(), load(trip))
    first = located(ast.Assign([store(counter(loop))], at), loop)
    test = ast.Compare(load(trip), [ast.Lt()], [load(count)])
    new = located(Loop(test, [first, *loop.body]), loop)
    setattr(new, _ENDS, ends_threads(loop))
    new.step = [assign(trip, binary(load(trip), ast.Add(), const(1)), loop)]
    return setup, new


class FlaggedBreaks(ast.NodeTransformer):
    """Sets a flag before each `break` of the loop visited first."""

    def __init__(self, flag: str) -> None:
        self.flag, self.depth = flag, 0

    def visit_Break(self, node: ast.Break) -> list[ast.stmt]:
        flag = ast.Assign([ast.Name(self.flag, ast.Store())], const(True))
        return [located(flag, node), node]

    def visit_For(self, node):
        self.depth += 1
        if self.depth == 1:
            node.body = [s for stmt in node.body for s in _as_list(self.visit(stmt))]
        self.depth -= 1
        return node

    visit_While = visit_For


def _as_list(result) -> list[ast.stmt]:
    return result if isinstance(result, list) else [result]
