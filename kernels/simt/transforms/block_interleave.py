"""Interleaved blocks: what neighbouring blocks all load, the first loads for them.

In a tiled matrix product every block of a column brings the same tiles of b into its shared
memory. One processor that runs these blocks one after the other loads each tile again and again;
if it takes them through the loop over tiles together, it loads each once. CUDA promises no order
between blocks, so interleaving them is as good an order as any. Done where the blocks of a line
(along y, else along x) fill a shared array with the same values, in a loop with barriers.

Here the normal form is searched for such arrays, and the statements that fill them are cut out of
those around them; `plan.interleaving` decides whether that pays, and plans the loops.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from dataclasses import replace

from kernels.simt.analysis.loops import spins
from kernels.simt.analysis.uniformity import (
    Facts,
    analyse,
    dependent_on,
    exposure,
    has_loads,
    is_pure_call,
)
from kernels.simt.frontend.structure import is_collective
from kernels.simt.ir.nodes import (
    Collective,
    assign,
    bodies,
    clone,
    collective,
    defined,
    expressions,
    load,
    names,
    nodes_in,
    statements,
    stored_array,
)
from kernels.simt.ir.program import Interleaving, Program
from kernels.simt.transforms.short_loops import shallow_copy


def interleaved(program: Program) -> Program | None:
    """`program` for interleaved blocks, with the stores to what they have in common cut out of the
    statements around them; None where they have nothing in common."""
    if not any(array.space == "shared" for array in program.arrays.values()):
        return None
    if not _is_simple(program, analyse(program)):
        return None
    program = _with_loads_apart(program)
    facts = analyse(program)
    mentioned = set().union(*map(names, _all_expressions(program)))
    for axis in ("_by", "_bx"):
        common = _common(program, facts, axis) if axis in mentioned else set()
        if common:
            try:
                cutter = _Cutter(program, common)
                body = cutter.cut(cutter.body)
            except _Entangled:
                continue
            return replace(
                program,
                body=body,
                externs=dict(program.externs),
                taken=set(program.taken),
                interleaving=Interleaving(axis, common),
            )
    return None


def _is_simple(program: Program, facts: Facts) -> bool:
    """Whether a kernel has barriers that all threads reach, and nothing but loads and stores."""
    if program.checked or program.cooperative or program.ordered:
        return False
    if any(array.shape is None for array in program.arrays.values()):
        return False
    if facts.divergent & facts.collective or not facts.collective:
        return False
    for stmt in statements(program.body):
        if isinstance(stmt, Collective) and stmt.kind != "syncthreads":
            return False
        if isinstance(stmt, ast.Raise | ast.Expr):
            return False
        if isinstance(stmt, ast.While) and spins(stmt, program):
            return False
        if isinstance(stmt, ast.Assign) and defined(stmt) is None and stored_array(stmt) is None:
            return False  # a field of a record, an element of a view's element
    calls = (n for e in _all_expressions(program) for n in nodes_in(e) if isinstance(n, ast.Call))
    return all(is_pure_call(program, call) for call in calls)


def _with_loads_apart(program: Program) -> Program:
    """`program` with variables for loads that are the same in all blocks of a line, where they are
    added to what is not: that is then computed again for each block, which a load would not be."""
    facts = analyse(program)
    of_blocks = dependent_on({"_bx", "_by"}, program, program.body)
    taken = replace(program, taken=set(program.taken))

    def is_common(expr: ast.expr) -> bool:
        return not facts.is_varying(expr) and not of_blocks.is_varying(expr)

    def apart(expr: ast.expr, loads: list[ast.stmt], at: ast.stmt) -> ast.expr:
        if has_loads(program, expr) and is_common(expr):
            name = taken.fresh("loaded")
            loads.append(assign(name, expr, at))
            return load(name)
        if isinstance(expr, ast.BinOp):
            new = ast.BinOp(apart(expr.left, loads, at), expr.op, apart(expr.right, loads, at))
            return ast.copy_location(new, expr)
        return expr

    def rewritten(body: list[ast.stmt]) -> list[ast.stmt]:
        out: list[ast.stmt] = []
        for stmt in body:
            new = shallow_copy(stmt)
            for name in ("pre", "body", "orelse"):
                if isinstance(stmt, ast.If | ast.For | ast.While) and getattr(stmt, name, None):
                    setattr(new, name, rewritten(getattr(stmt, name)))
            if isinstance(new, ast.Assign) and defined(new) and not is_common(new.value):
                new.value = apart(new.value, out, stmt)
            out.append(new)
        return out

    return replace(taken, body=rewritten(program.body))


def _all_expressions(program: Program) -> list[ast.expr]:
    return [expr for stmt in statements(program.body) for expr in expressions(stmt)]


def stored_arrays(body: list[ast.stmt]) -> set[str]:
    """The arrays to elements of which `body` assigns."""
    return {array for stmt in statements(body) if (array := stored_array(stmt)) is not None}


def _common(program: Program, facts: Facts, axis: str) -> set[str]:
    """The shared arrays that blocks along `axis` fill with the same, some of them in a loop."""
    own = {array.name for array in program.arrays.values() if array.space == "local"}
    common = {a.name for a in program.arrays.values() if a.space == "shared"}
    common -= passed_on(program, common)
    while True:
        depends = dependent_on({axis} | own, program, program.body)
        stores = [(site, stored_array(site.stmt)) for site in depends.sites]
        differing = {
            array
            for site, array in stores
            if array in common
            and (
                any(depends.is_varying(expr) for expr in expressions(site.stmt))
                or any(id(control) in depends.divergent for control in site.controls)
            )
        }
        if not differing:
            break
        common -= differing
        own |= differing
    in_loop = {
        array
        for site, array in stores
        if any(
            isinstance(c, ast.For | ast.While) for c in site.controls if id(c) in facts.collective
        )
    }
    return common & in_loop


def passed_on(program: Program, arrays: set[str]) -> set[str]:
    """Those of the declared `arrays` that are used other than by element."""
    found: set[str] = set()
    for expr in _all_expressions(program):
        elements = {
            id(node.value)
            for node in nodes_in(expr)
            if isinstance(node, ast.Subscript)
            and isinstance(node.value, ast.Name)
            and node.value.id in arrays
            and _is_element(node, len(program.arrays[node.value.id].sizes))
        }
        found |= {
            node.id
            for node in nodes_in(expr)
            if isinstance(node, ast.Name) and node.id in arrays and id(node) not in elements
        }
    return found


def _is_element(node: ast.Subscript, dimensions: int) -> bool:
    parts = index_parts(node)
    return len(parts) == dimensions and not any(isinstance(part, ast.Slice) for part in parts)


def index_parts(node: ast.Subscript) -> list[ast.expr]:
    """The indices of a subscript, one for each axis."""
    return node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]


class _Entangled(Exception):
    """What fills a common array cannot be cut out of the statements around it."""


class _Cutter:
    """Cuts the stores to `common` out of a program's body."""

    def __init__(self, program: Program, common: set[str]) -> None:
        self.arrays, self.common = program.arrays, common
        self.body = clone(program.body)
        self.whole = list(statements(self.body))

    def cut(self, body: list[ast.stmt]) -> list[ast.stmt]:
        """`body` with the stores to `common` ahead of what else lies between two barriers."""
        out: list[ast.stmt] = []
        between: list[ast.stmt] = []
        for stmt in body:
            if not is_collective(stmt):
                between.append(stmt)
                continue
            out += self.apart(between)
            between = []
            for name in ("pre", "body", "orelse"):
                if isinstance(stmt, ast.If | ast.For | ast.While) and getattr(stmt, name, None):
                    setattr(stmt, name, self.cut(getattr(stmt, name)))
            out.append(stmt)
        return out + self.apart(between)

    def apart(self, body: list[ast.stmt]) -> list[ast.stmt]:
        """The part of `body` that fills `common`, a barrier, and the rest."""
        stored = stored_arrays(body)
        filled = stored & self.common
        if not filled:
            return body
        inside = {id(stmt) for stmt in statements(body)}
        outside = [stmt for stmt in self.whole if id(stmt) not in inside]
        fill = needed(_only(body, filled), set())
        rest = needed(_without(body, filled), _read_by(outside))
        if not rest:
            return fill
        self.check(fill, rest, stored - filled, filled)
        return [*fill, collective("syncthreads", None, [], body[0]), *rest]

    def check(
        self, fill: list[ast.stmt], rest: list[ast.stmt], others: set[str], filled: set[str]
    ) -> None:
        """Raise _Entangled unless `fill` may go first, and be computed beside `rest`."""
        assigned = {name for stmt in statements(fill) if (name := defined(stmt)) is not None}
        again = exposure(fill, assigned)[0]  # a counter would step twice
        foreign = others - set(self.arrays)  # arguments, which may overlap
        read_by_fill, read_by_rest = _read_by(statements(fill)), _read_by(statements(rest))
        if again or foreign or others & read_by_fill or filled & read_by_rest:
            raise _Entangled


def needed(body: list[ast.stmt], read: set[str]) -> list[ast.stmt]:
    """Dead-store elimination in `body`; the variables `read` are live-out."""
    while True:
        wanted = read | _read_by(statements(body))

        def keep(stmt: ast.stmt, wanted: set[str] = wanted) -> bool:
            return isinstance(stmt, ast.For) or defined(stmt) in wanted | {None}

        slim = _filtered(body, keep)
        if sum(1 for _ in statements(slim)) == sum(1 for _ in statements(body)):
            return slim
        body = slim


def _read_by(stmts: Iterable[ast.stmt]) -> set[str]:
    return set().union(*(names(expr) for stmt in stmts for expr in expressions(stmt)))


def _only(body: list[ast.stmt], filled: set[str]) -> list[ast.stmt]:
    """`body` without the stores to other arrays."""

    def keep(stmt: ast.stmt) -> bool:
        if isinstance(stmt, ast.If | ast.For | ast.While):
            return True
        return stored_array(stmt) in filled or defined(stmt) is not None

    return _filtered(body, keep)


def _without(body: list[ast.stmt], filled: set[str]) -> list[ast.stmt]:
    return _filtered(body, lambda stmt: stored_array(stmt) not in filled)


def _filtered(body: list[ast.stmt], keep: Callable[[ast.stmt], bool]) -> list[ast.stmt]:
    """A copy of `body` with the statements to `keep`, and no control flow around nothing."""
    out: list[ast.stmt] = []
    for stmt in body:
        if not keep(stmt):
            continue
        new = clone(stmt)
        if isinstance(stmt, ast.If | ast.For | ast.While):
            for name in ("pre", "body", "orelse"):
                if getattr(stmt, name, None):
                    setattr(new, name, _filtered(getattr(stmt, name), keep))
            if not any(bodies(new)):
                continue
            if not new.body:
                new.body = [ast.Pass()]
        out.append(new)
    return out
