"""Where each variable of a thread lives between the regions of its block.

A variable that is always written before it is read in a region stays a local of the thread loop.
One that comes in from elsewhere has a spill array, with an element per thread, unless it is cheap
and safe to rematerialise: thread coordinates and the like, and views of arrays, which no spill
array can hold.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import Any

from numba.core import types

from kernels.simt.analysis.ranges import constant
from kernels.simt.analysis.uniformity import Facts, Site, exposure, has_loads, is_pure_call
from kernels.simt.ir.nodes import names, nodes_in
from kernels.simt.ir.program import Program
from kernels.simt.transforms.fission import (
    BlockFor,
    CollectivePoint,
    Item,
    MaskIf,
    MaskWhile,
    Region,
    Scalars,
    walk,
)

_REMATERIALISE_LIMIT = 12  # nodes of an expression that is computed again in every region


@dataclass
class Storage:
    spilled: set[str] = field(default_factory=set)
    rematerialised: dict[str, ast.Assign] = field(default_factory=dict)
    #: locals that a region may read before it writes them, though nothing was written: set to zero
    zeroed: dict[Item, set[str]] = field(default_factory=dict)


def assign_storage(
    program: Program,
    facts: Facts,
    items: list[Item],
    masks: list[str],
    kinds: dict[str, types.Type],
) -> Storage:
    """Decide for every variable of a thread."""
    storage = Storage(spilled=set(masks))
    variables = set(facts.defs) - facts.scalars
    for name in variables:
        stmt = _rematerialisable(program, facts, name, kinds)
        if stmt is not None:
            storage.rematerialised[name] = stmt
    _drop_unrooted(storage, facts, variables)
    places: dict[str, set[int]] = {}
    for item in walk(items):
        if isinstance(item, Region):
            for name in exposure(item.body, variables)[1]:
                places.setdefault(name, set()).add(id(item))
    for item in walk(items):
        reads = _with_inputs(_read_from_outside(item, variables), storage, variables)
        for name in reads - set(storage.rematerialised):
            only_here = places.get(name, set()) <= {id(item)}
            if (
                isinstance(item, Region)
                and only_here
                and not item.in_loop
                and not _met(items, name)
            ):
                storage.zeroed.setdefault(item, set()).add(name)
            else:
                storage.spilled.add(name)
        if isinstance(item, CollectivePoint) and item.stmt.dest is not None:
            if item.stmt.dest.id not in facts.scalars:
                storage.spilled.add(item.stmt.dest.id)
            for arg in item.stmt.args:
                if item.stmt.kind != "syncwarp":
                    storage.spilled |= names(arg) & variables
    for name in storage.spilled:
        storage.rematerialised.pop(name, None)
    return storage


def _with_inputs(reads: set[str], storage: Storage, variables: set[str]) -> set[str]:
    """`reads` and whatever the rematerialised ones among them are computed from."""
    todo, found = list(reads), set(reads)
    while todo:
        stmt = storage.rematerialised.get(todo.pop())
        if stmt is not None:
            new = (names(stmt.value) & variables) - found
            found |= new
            todo += new
    return found


def _met(items: list[Item], name: str) -> bool:
    return any(
        isinstance(i, CollectivePoint) and i.stmt.dest is not None and i.stmt.dest.id == name
        for i in walk(items)
    )


def _read_from_outside(item: Item, variables: set[str]) -> set[str]:
    match item:
        case Region():
            return exposure(item.body, variables)[0]
        case MaskIf() | MaskWhile():
            return names(item.test) & variables
        case CollectivePoint():
            return set().union(*(names(arg) for arg in item.stmt.args)) & variables
        case Scalars() | BlockFor():
            return set()
    return set()


def _rematerialisable(
    program: Program, facts: Facts, name: str, kinds: dict[str, types.Type]
) -> ast.Assign | None:
    """The one assignment to `name` if computing it again gives the same wherever it is read."""
    sites = facts.defs[name]
    if len(sites) != 1 or not isinstance(sites[0].stmt, ast.Assign):
        return None
    stmt = sites[0].stmt
    kind = kinds.get(name)
    if _fits(kind) and sum(1 for _ in ast.walk(stmt.value)) > _REMATERIALISE_LIMIT * 3:
        return None
    if _fits(kind) and any(_divides(facts, node) for node in nodes_in(stmt.value)):
        return None
    for node in nodes_in(stmt.value):
        if isinstance(node, ast.Call) and not is_pure_call(program, node):
            return None
    if reads_memory(program, stmt.value, kind):
        return None
    if not all(dominates(sites[0], use) for use in facts.uses.get(name, [])):
        return None
    for other in names(stmt.value) & set(facts.defs):
        if len(facts.defs[other]) != 1 or not stays(facts, other, sites[0]):
            return None
    return stmt


def _divides(facts: Facts, node: ast.AST) -> bool:
    """Whether each thread divides a number of its own by one that only the launch knows, which
    takes longer than a load."""
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.FloorDiv | ast.Mod):
        return False
    return constant(node.right) is None and facts.is_varying(node)


def _fits(kind: types.Type | None) -> bool:
    """Whether spill arrays can hold values of a type: numbers and tuples of them."""
    return not is_view(kind)


def is_view(kind: types.Type | None) -> bool:
    """Whether values of a type are places in memory, or hold some."""
    if isinstance(kind, types.BaseTuple):
        parts: Any = kind
        return any(map(is_view, parts))
    return isinstance(kind, types.Array | types.Record)


def reads_memory(program: Program, value: ast.expr, kind: types.Type | None) -> bool:
    """Whether computing `value` again may give something else, since memory is read: of a view,
    only its indices are. (Memory has many names: no array is known to stay as it is.)"""
    if isinstance(kind, types.BaseTuple) and isinstance(value, ast.Tuple):
        parts: Any = kind
        return any(reads_memory(program, v, k) for v, k in zip(value.elts, parts, strict=True))
    if is_view(kind) and isinstance(value, ast.Subscript | ast.Attribute):
        index = isinstance(value, ast.Subscript) and has_loads(program, value.slice)
        return index or reads_memory(program, value.value, kind)
    if is_view(kind) and isinstance(value, ast.IfExp):
        sides = (value.body, value.orelse)
        return has_loads(program, value.test) or any(reads_memory(program, v, kind) for v in sides)
    return has_loads(program, value)


def stays(facts: Facts, name: str, user: Site) -> bool:
    """Whether `name`, assigned once, still has the value that `user` read when others read it."""
    site = facts.defs[name][0]
    if isinstance(site.stmt, ast.For):
        return any(control is site.stmt for control in user.controls)
    return dominates(site, user)


def dominates(site: Site, use: Site) -> bool:
    """Whether `site` always runs before `use`, with no loop of its own around it in between."""
    depth = len(site.path) - 1
    if len(use.path) <= depth:
        return False
    for (a, f, p), (b, g, q) in zip(site.path[:depth], use.path[:depth]):
        if a is not b or f != g or p != q:
            return False
    (a, f, p), (b, g, q) = site.path[depth], use.path[depth]
    return a is b and f == g and p < q


def _drop_unrooted(storage: Storage, facts: Facts, variables: set[str]) -> None:
    """What is rematerialised must not depend on the counters of loops inside a region."""
    changed = True
    while changed:
        changed = False
        for name, stmt in list(storage.rematerialised.items()):
            for other in names(stmt.value) & variables:
                loop_counter = isinstance(facts.defs[other][0].stmt, ast.For)
                if loop_counter and other not in storage.rematerialised:
                    del storage.rematerialised[name]
                    changed = True
                    break
