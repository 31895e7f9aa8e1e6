"""Rows of memory that neighbouring threads walk along, one each.

`for k in range(n): total += a[row, k]` with a row for each thread is what a GPU takes long for: its
threads read far from each other. On a CPU each of them reads what lies behind its last element, in
as many cache lines as there are threads together. If the rows are a power of two apart, all of
these lines have their place in one set of the cache, and it has 8 such places or a few more. So
there is a version of the region for rows that are far apart, in which 8 threads go together, or
each alone where they also write so.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple, TypeGuard

from numba.core import types

from kernels.simt.analysis.affine import Affine, coefficient, linear
from kernels.simt.analysis.loops import trip_count
from kernels.simt.analysis.uniformity import Facts
from kernels.simt.devlib.maths import maximum, minimum
from kernels.simt.ir.memory import itemsize
from kernels.simt.ir.nodes import (
    assign,
    clone,
    const,
    counter,
    load,
    located,
    names,
    statements,
    store,
)
from kernels.simt.transforms.fission import BlockFor, BlockIf, BlockWhile, FarWalks, Item, Region
from kernels.simt.transforms.short_loops import shallow_copy

TOGETHER = 8  # threads that go through a loop together: as many lines as one set holds
_FAR_READ, _FAR_WRITTEN = 1024, 256  # bytes from a thread's row to its neighbour's
_NEAR = 8  # elements from one iteration to the next: they share a line
_SHORT = 16  # iterations of a loop that is done before lines are lost
_PLAIN = ("min", "max", "abs", "int", "float")


class _Walk(NamedTuple):
    test: ast.expr  # whether it is far, for the whole block
    written: bool


def with_far_versions(items: list[Item], facts: Facts, kinds: Mapping[str, Any]) -> list[Item]:
    """The items of a block, with a second version of each region in which threads may walk far
    apart."""
    affine = _reasoning(facts, kinds)
    return [_versions(item, facts, affine) for item in items]


def _versions(item: Item, facts: Facts, affine: Affine) -> Item:
    def inside(items: list[Item]) -> list[Item]:
        return [_versions(inner, facts, affine) for inner in items]

    match item:
        case Region(mask=None):
            return _region_versions(item, facts, affine)
        case BlockFor() | BlockWhile():
            return replace(item, body=inside(item.body))
        case BlockIf():
            return replace(item, body=inside(item.body), orelse=inside(item.orelse))
    return item


def _region_versions(region: Region, facts: Facts, affine: Affine) -> Item:
    walks = list(_walks(region.body, facts, affine))
    if not walks:
        return region
    tests = {ast.unparse(walk.test): walk.test for walk in walks}
    test = ast.BoolOp(ast.Or(), [*tests.values()]) if len(tests) > 1 else walks[0].test
    far = FarWalks(any(not w.written for w in walks), any(w.written for w in walks))
    apart = replace(region, body=[clone(stmt) for stmt in region.body], far=far)
    return BlockIf(region.line, None, located(test, region.body[0]), [apart], [region])


def _walks(body: list[ast.stmt], facts: Facts, affine: Affine) -> Iterator[_Walk]:
    """Where neighbours in x walk along rows of memory: reads, and writes in loops without another
    one inside."""
    for loop in (stmt for stmt in statements(body) if isinstance(stmt, ast.For)):
        if (trip_count(loop) or _SHORT) < _SHORT:
            continue
        innermost = not any(isinstance(inner, ast.For) for inner in statements(loop.body))
        for node in ast.walk(loop):
            written = isinstance(getattr(node, "ctx", None), ast.Store)
            if _may_walk(node, facts.program.arrays) and (innermost or not written):
                test = _far(node, written, counter(loop), affine)
                if test is not None and facts.at_block_level(test):
                    yield _Walk(test, written)


def _may_walk(node: ast.AST, local: Mapping[str, Any]) -> TypeGuard[ast.Subscript]:
    if not (isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name)):
        return False
    return node.value.id not in local


def _reasoning(facts: Facts, kinds: Mapping[str, Any]) -> Affine:
    definitions = {
        name: sites[0].stmt.value
        for name, sites in facts.defs.items()
        if len(sites) == 1 and isinstance(sites[0].stmt, ast.Assign)
    }
    box = {"_tx": (const(0), const(1))}
    return Affine(box, definitions, kinds, lambda name: name not in facts.varying)


def _far(node: ast.Subscript, written: bool, step: str, affine: Affine) -> ast.expr | None:
    """When an index that goes along memory with the counter `step` goes far with x; None: never."""
    *rows, last = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    place, limit = affine.expanded(last), _FAR_WRITTEN if written else _FAR_READ
    along = None if place is None else coefficient(place, step)
    if place is None or not along or abs(along) > _NEAR:
        return None
    for dim in reversed(range(len(rows))):
        row = affine.expanded(rows[dim])
        if row is not None and "_tx" in names(row):
            strides = ast.Attribute(clone(node.value), "strides", ast.Load())
            return _at_least(ast.Subscript(strides, const(dim), ast.Load()), limit)
    factor, _ = linear(place, "_tx")
    dtype = _dtype(node, affine.kinds)
    if factor is None or dtype is None:
        return None
    return _at_least(clone(factor), limit // itemsize(dtype))


def _dtype(node: ast.Subscript, kinds: Mapping[str, Any]) -> types.Type | None:
    """The type of an element, if it is a number that the processor computes with."""
    dtype = getattr(kinds.get(ast.unparse(node.value)), "dtype", None)
    return dtype if isinstance(dtype, types.Number) and dtype != types.float16 else None


def _at_least(value: ast.expr, limit: int) -> ast.expr:
    return ast.Compare(value, [ast.GtE()], [const(limit)])


def reads_apart(body: list[ast.stmt], facts: Facts, kinds: dict) -> list[ast.stmt]:
    """`body` with what loops read so by itself where functions are called with it: LLVM makes no
    vectors of the function in a loop that also reads far apart."""
    return _Apart(facts, kinds).block(body)


class _Apart(ast.NodeTransformer):
    """Takes the reads of one statement out."""

    def __init__(self, facts: Facts, kinds: dict) -> None:
        self.program, self.kinds, self.affine = facts.program, kinds, _reasoning(facts, kinds)
        self.step = ""  # the counter of the loop around it
        self.reads: list[ast.stmt] = []

    def block(self, body: list[ast.stmt]) -> list[ast.stmt]:
        """Statements around loops, which are copied where something changes."""
        out: list[ast.stmt] = []
        for stmt in body:
            if isinstance(stmt, ast.For | ast.If):
                stmt = shallow_copy(stmt)
                stmt.body, stmt.orelse = self.block(stmt.body), self.block(stmt.orelse)
            if isinstance(stmt, ast.For):
                assigned = [inner for inner in stmt.body if isinstance(inner, ast.Assign)]
                if len(assigned) == len(stmt.body):
                    self.step = counter(stmt)
                    stmt.body = [new for inner in assigned for new in self.statement(inner)]
            out.append(stmt)
        return out

    def statement(self, stmt: ast.Assign) -> list[ast.stmt]:
        """A statement after what it reads."""
        called = (n for n in ast.walk(stmt.value) if isinstance(n, ast.Call))
        if all(isinstance(n.func, ast.Name) and self._is_plain(n.func.id) for n in called):
            return [stmt]
        new, self.reads = clone(stmt), []
        new.value = self.visit(new.value)
        if not self.reads:
            return [stmt]
        # A loop, because loops are taken out of the loop over the threads
        once = ast.Call(load("range"), [const(1)], [])
        alone = ast.For(store(self.program.fresh("once")), once, self.reads, [])
        return [located(alone, stmt), new]

    def _is_plain(self, name: str) -> bool:
        """Whether a function is an instruction: a conversion, or one of the few others."""
        value = self.program.externs.get(name)
        known = isinstance(value, types.Type) or value in (maximum, minimum)
        return known or name in _PLAIN

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        if not _may_walk(node, self.program.arrays):
            return node
        dtype = _dtype(node, self.kinds)
        if dtype is None or _far(node, False, self.step, self.affine) is None:
            return node
        name = self.program.fresh("read")
        self.kinds[name] = dtype
        self.reads.append(assign(name, node, node))
        return load(name)

    def _as_it_is(self, node: Any) -> Any:
        """A part of it may not be read."""
        return node

    visit_IfExp = visit_BoolOp = visit_Compare = _as_it_is
