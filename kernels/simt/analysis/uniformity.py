"""Uniformity analysis of a kernel in normal form, and the choice of block-level scalars.

Uniform means equal in every live thread of the block. A uniform variable whose assignments can all
be made once per block is a *scalar*; every other variable belongs to a thread.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from kernels.simt.devlib import lookup
from kernels.simt.ir.nodes import (
    BLOCK,
    THREAD,
    Collective,
    bodies,
    defined,
    expressions,
    names,
    nodes_in,
    statements,
)
from kernels.simt.ir.program import Program

UNIFORM_COLLECTIVES = {"syncthreads_count", "syncthreads_and", "syncthreads_or"}
_BUILTINS = {"range", "len", "min", "max", "abs", "int", "float", "bool", "round", "pow", "complex"}


def is_pure_call(program: Program, node: ast.Call) -> bool:
    """Whether a call depends on its arguments only and changes nothing."""
    if not isinstance(node.func, ast.Name):
        return isinstance(node.func, ast.Attribute) and node.func.attr in ("conjugate",)
    name = node.func.id
    if name in _BUILTINS:
        return True
    value = program.externs.get(name)
    if value is None:
        return False
    label = getattr(value, "__name__", "")
    module = getattr(value, "__module__", "") or ""
    if "atomic" in name or "atomic" in label or "atomic" in module:
        return False
    return module.startswith(("numba.core.types", "math", "numpy", "kernels.simt.devlib")) or (
        lookup.replacement(value) is not value or module == "builtins"
    )


def has_effects(program: Program, stmt: ast.stmt) -> bool:
    """Whether a statement does anything but assign variables."""
    for inner in statements([stmt]):
        if isinstance(inner, Collective | ast.Raise | ast.Expr):
            return True
        if isinstance(inner, ast.Assign) and not isinstance(inner.targets[0], ast.Name):
            return True
        for expr in expressions(inner):
            for node in nodes_in(expr):
                if isinstance(node, ast.Call) and not is_pure_call(program, node):
                    return True
    return False


def is_load(program: Program, node: ast.AST) -> bool:
    """Whether `node` itself reads memory: an element of an array, or a field of a record."""
    if isinstance(node, ast.Subscript):
        of = node.value
        return not (isinstance(of, ast.Attribute) and of.attr in ("shape", "strides"))
    return isinstance(node, ast.Attribute) and node.attr in program.fields


def has_loads(program: Program, expr: ast.AST) -> bool:
    """Whether an expression reads memory (the shape of an array is none)."""
    return any(is_load(program, node) for node in nodes_in(expr))


@dataclass
class Site:
    """A statement and the control flow around it: (control, field of it, position in the list)."""

    stmt: ast.stmt
    path: tuple[tuple[ast.stmt | None, str, int], ...]

    @property
    def controls(self) -> list[ast.stmt]:
        return [control for control, _, _ in self.path if control is not None]


@dataclass
class Facts:
    """What `analyse` found."""

    program: Program
    defs: dict[str, list[Site]] = field(default_factory=dict)
    uses: dict[str, list[Site]] = field(default_factory=dict)
    sites: list[Site] = field(default_factory=list)
    varying: set[str] = field(default_factory=set)
    scalars: set[str] = field(default_factory=set)
    divergent: set[int] = field(default_factory=set)  # ids of control statements
    collective: set[int] = field(default_factory=set)  # ids of statements with collectives inside

    def is_varying(self, expr: ast.AST) -> bool:
        """Whether threads of a block may disagree on `expr`."""
        for node in nodes_in(expr):
            if isinstance(node, ast.Name) and node.id in self.varying:
                return True
            if isinstance(node, ast.Call) and not is_pure_call(self.program, node):
                return True
        return False

    def at_block_level(self, expr: ast.AST) -> bool:
        """Whether `expr` can be evaluated once for the block."""
        if self.is_varying(expr):
            return False
        variables = names(expr) & set(self.defs)
        return variables <= self.scalars


def analyse(program: Program) -> Facts:
    """Uniformity, storage and places of definition and use for every variable."""
    facts = Facts(program)
    _collect(facts, program.body, ())
    facts.varying = set(THREAD) | {a.name for a in program.arrays.values() if a.space == "local"}
    if program.cooperative:
        facts.varying |= set(BLOCK) | set(program.arrays)
    if program.interleaving is not None:  # what differs between interleaved blocks is not uniform
        facts.varying.add(program.interleaving.axis)
    changed = True
    while changed:
        changed = _spread(facts)
    _choose_scalars(facts)
    return facts


def dependent_on(seed: set[str], program: Program, body: list[ast.stmt]) -> Facts:
    """Facts in which `varying` and `divergent` mean: depends on `seed`."""
    facts = Facts(program)
    _collect(facts, body, ())
    facts.varying = set(seed)
    while _spread(facts):
        pass
    return facts


def _collect(facts: Facts, body: list[ast.stmt], path: tuple) -> bool:
    collective = False
    for position, stmt in enumerate(body):
        owner, name = path[-1][:2] if path else (None, "body")
        here = (*path[:-1], (owner, name, position)) if path else ((None, "body", position),)
        site = Site(stmt, here)
        facts.sites.append(site)
        target = defined(stmt)
        if target is not None:
            facts.defs.setdefault(target, []).append(site)
        for expr in expressions(stmt):
            inside = site
            if isinstance(stmt, ast.While):  # a loop's test is evaluated by the threads in it
                inside = Site(stmt, (*here, (stmt, "body", -1)))
            for used in names(expr):
                facts.uses.setdefault(used, []).append(inside)
        inside_collective = isinstance(stmt, Collective)
        for field_name in ("pre", "body", "orelse"):
            inner = getattr(stmt, field_name, None)
            if isinstance(stmt, ast.If | ast.For | ast.While) and inner:
                inside_collective |= _collect(facts, inner, (*here, (stmt, field_name, 0)))
        if inside_collective:
            facts.collective.add(id(stmt))
            collective = True
    return collective


def _spread(facts: Facts) -> bool:
    before = len(facts.varying), len(facts.divergent)
    for site in facts.sites:
        stmt = site.stmt
        if isinstance(stmt, ast.If | ast.While) and facts.is_varying(stmt.test):
            facts.divergent.add(id(stmt))
        if isinstance(stmt, ast.For) and facts.is_varying(stmt.iter):
            facts.divergent.add(id(stmt))
        if isinstance(stmt, ast.Break | ast.Continue):
            _diverge_by_jump(facts, site)
        target = defined(stmt)
        if target is None or target in facts.varying:
            continue
        if isinstance(stmt, Collective):
            if stmt.kind not in UNIFORM_COLLECTIVES or facts.program.cooperative:
                facts.varying.add(target)
        elif any(facts.is_varying(expr) for expr in expressions(stmt)):
            facts.varying.add(target)
    for name, sites in facts.defs.items():
        if name not in facts.varying and _leaks(facts, name, sites):
            facts.varying.add(name)
    return before != (len(facts.varying), len(facts.divergent))


def _diverge_by_jump(facts: Facts, site: Site) -> None:
    """A divergent jump makes its loop divergent."""
    for control in reversed(site.controls):
        if isinstance(control, ast.For | ast.While):
            inside = site.controls[site.controls.index(control) + 1 :]
            if any(id(c) in facts.divergent for c in inside):
                facts.divergent.add(id(control))
            return


def _leaks(facts: Facts, name: str, sites: list[Site]) -> bool:
    """Whether a value assigned under divergent control is used outside of that control."""
    for site in sites:
        # different branches of one divergent `if` are apart, too
        around = [(id(c), f) for c, f, _ in site.path if c is not None and id(c) in facts.divergent]
        if id(site.stmt) in facts.divergent:  # the counter of a divergent loop
            around.append((id(site.stmt), "body"))
        for other in [*facts.uses.get(name, []), *sites]:
            if other is site:
                continue
            there = {
                (id(c), "body" if f == "pre" else f) for c, f, _ in other.path if c is not None
            }
            if not all((c, "body" if f == "pre" else f) in there for c, f in around):
                return True
    return False


def _choose_scalars(facts: Facts) -> None:
    """Uniform variables whose every assignment can be made at block level."""
    candidates = {name for name in facts.defs if name not in facts.varying}
    while True:
        facts.scalars = candidates
        bad = {
            name
            for name in candidates
            if not all(_assigned_once_per_block(facts, site) for site in facts.defs[name])
        }
        if not bad:
            return
        candidates = candidates - bad


def _assigned_once_per_block(facts: Facts, site: Site) -> bool:
    stmt = site.stmt
    controls = site.controls
    if isinstance(stmt, Collective):
        return True
    if isinstance(stmt, ast.For):
        block_level = id(stmt) in facts.collective
        unit = not controls and is_scalar_unit(facts, stmt)
        if not (block_level or unit or any(is_scalar_unit(facts, c) for c in controls)):
            return False
    if not all(facts.at_block_level(e) for e in expressions(stmt)):
        return False
    for control in controls:
        if id(control) in facts.collective:
            continue
        return is_scalar_unit(facts, control)
    return True


def is_scalar_unit(facts: Facts, stmt: ast.stmt) -> bool:
    """Whether a whole statement only moves scalars, so that it can run once for the block."""
    if id(stmt) in facts.collective or has_effects(facts.program, stmt):
        return False
    for inner in statements([stmt]):
        target = defined(inner)
        if target is not None and target not in facts.scalars:
            return False
        if isinstance(inner, ast.Break | ast.Continue) and inner is stmt:
            return False
        if not all(facts.at_block_level(expr) for expr in expressions(inner)):
            return False
    return any(defined(inner) for inner in statements([stmt]))


def exposure(body: list[ast.stmt], known: set[str]) -> tuple[set[str], set[str], set[str]]:
    """(read before written, written on some path, written on every path) within `body`.

    `known` are the names counted as variables.
    """
    exposed: set[str] = set()
    written: set[str] = set()

    def read(exprs: list[ast.expr], must: set[str]) -> None:
        for expr in exprs:
            exposed.update((names(expr) & known) - must)

    def walk(body: list[ast.stmt], must: set[str]) -> set[str]:
        must = set(must)
        for stmt in body:
            if isinstance(stmt, ast.If):
                read([stmt.test], must)
                first, second = walk(stmt.body, must), walk(stmt.orelse, must)
                must = first & second
                continue
            if isinstance(stmt, ast.For | ast.While):
                inside = set(must)
                if isinstance(stmt, ast.For):
                    read([stmt.iter], must)
                    written.add(stmt.target.id)
                    inside.add(stmt.target.id)
                for inner in bodies(stmt):
                    inside = walk(inner, inside)
                    if isinstance(stmt, ast.While) and inner is getattr(stmt, "pre", None):
                        must = set(inside)
                        read([stmt.test], inside)
                if isinstance(stmt, ast.While) and not getattr(stmt, "pre", None):
                    read([stmt.test], must)
                continue
            read(expressions(stmt), must)
            target = defined(stmt)
            if target is not None:
                written.add(target)
                must.add(target)
            if isinstance(stmt, ast.Break | ast.Continue | ast.Raise):
                return must | known  # nothing follows on this path
        return must

    must = walk(body, set())
    return exposed, written, must & written
