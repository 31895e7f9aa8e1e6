"""Tile forwarding: a thread reads the memory that a shared tile was filled from.

`sa[ty, tx] = a[y, p + tx]; sync; ... sa[ty, q]` is on a GPU the way to load each element once for
many threads. Where a row of threads runs together, and all of it reads the same `sa[ty, q]`, the
row loads that element once anyway: `a[y, p + q]` does, and nothing is copied. Only where every
thread fills its own element, and nothing stores to memory meanwhile. Without a guard, the tile is
never made; with one, interleaved blocks need none away from the edges (see `plan.interleaving`).
"""

from __future__ import annotations

import ast
from collections.abc import Callable

from numba.core import types

from kernels.simt.analysis.uniformity import (
    Facts,
    Site,
    analyse,
    dependent_on,
    has_loads,
    is_pure_call,
)
from kernels.simt.ir.nodes import (
    BLOCK,
    GRID,
    THREAD,
    call,
    clone,
    defined,
    expressions,
    names,
    statements,
    stored_array,
)
from kernels.simt.ir.program import Program
from kernels.simt.transforms.block_interleave import index_parts, passed_on
from kernels.simt.transforms.clamps import Unclamped
from kernels.simt.transforms.storage import dominates

_NUMBERS = {types.float32, types.float64, *types.integer_domain}


def forward(program: Program) -> None:
    """Replace what `program` reads from such tiles, and drop the tiles."""
    shared = {
        array.name for array in program.arrays.values() if array.space == "shared" and array.shape
    }
    if program.checked or program.cooperative or not shared:
        return
    facts = analyse(program)
    along_row = dependent_on({"_tx"}, program, program.body)
    for name in sorted(shared - passed_on(program, shared)):
        tile = _Tile(program, facts, name)
        if tile.is_plain() and not any(map(along_row.is_varying, tile.reads())):
            tile.remove()


class _Tile:
    """A shared array and the one statement that fills it."""

    def __init__(self, program: Program, facts: Facts, name: str) -> None:
        self.program, self.facts, self.name = program, facts, name
        self.stores = [site for site in facts.sites if stored_array(site.stmt) == name]

    def is_plain(self) -> bool:
        """Whether each read in the loop finds what one thread has just stored there."""
        if len(self.stores) != 1 or not self.stores[0].controls:
            return False
        self.store, around = self.stores[0].stmt, self.stores[0].controls
        self.loop = around[-1]
        if not isinstance(self.loop, ast.For) or id(self.loop) not in self.facts.collective:
            return False
        if any(id(control) in self.facts.divergent for control in around):
            return False
        self.source = Source(self.program, self.facts, self.stores[0], self.store)
        return (
            self.source.is_known and self._is_read_after_a_barrier() and self._leaves_memory_alone()
        )

    def _is_read_after_a_barrier(self) -> bool:
        """Whether all reads come later in the same iteration of the loop."""
        body = self.loop.body
        filled = body.index(self.store)
        barriers = [i for i, s in enumerate(body) if getattr(s, "kind", "") == "syncthreads"]
        after = next((i for i in barriers if i > filled), len(body))
        later = {id(s) for s in statements(body[after:])}
        return all(id(s) in later for s in self._readers())

    def _leaves_memory_alone(self) -> bool:
        for stmt in statements(self.loop.body):
            if isinstance(stmt, ast.Expr | ast.Raise):
                return False
            stores = isinstance(stmt, ast.Assign) and defined(stmt) is None
            if stores and stored_array(stmt) not in self.program.arrays:
                return False
            for expr in expressions(stmt):
                calls = (node for node in ast.walk(expr) if isinstance(node, ast.Call))
                if not all(is_pure_call(self.program, node) for node in calls):
                    return False
        return True

    def _readers(self) -> list[ast.stmt]:
        return [
            stmt
            for stmt in statements(self.program.body)
            if stmt is not self.store and any(self.name in names(e) for e in expressions(stmt))
        ]

    def reads(self) -> list[ast.expr]:
        return reads_of(self.name, self._readers())

    def remove(self) -> None:
        """Read the memory instead, and fill nothing."""
        self.loop.body.remove(self.store)
        self.program.body = self.source.instead_of_tile(self.program.body)
        del self.program.arrays[self.name]


def reads_of(tile: str, body: list[ast.stmt]) -> list[ast.expr]:
    """The indices at which `body` mentions elements of `tile`."""
    return [
        node.slice
        for stmt in statements(body)
        for expr in expressions(stmt)
        for node in ast.walk(expr)
        if isinstance(node, ast.Subscript) and getattr(node.value, "id", None) == tile
    ]


class Source:
    """The memory behind a tile that `store`, which stands at `site`, fills, each thread its own
    element: `value`, for the thread whose coordinates `owner` are the indices of the element.
    """

    def __init__(self, program: Program, facts: Facts, site: Site, store: ast.Assign) -> None:
        self.program, self.facts, self.site = program, facts, site
        self.tile = program.arrays[stored_array(store)]
        self.value = self._expanded(store.value) if self._is_load(store.value) else None
        self.owner = self._owners(store.targets[0])

    @property
    def is_known(self) -> bool:
        is_number = self.tile.dtype in _NUMBERS
        return is_number and self.value is not None and self.owner is not None

    def _is_load(self, value: ast.expr) -> bool:
        if isinstance(value, ast.Call) and self._is_cast(value.func):
            return self._is_load(value.args[0])
        base = value.value if isinstance(value, ast.Subscript) else None
        given = self.program.given.get(getattr(base, "id", None))
        return given is not None and given.dtype == self.tile.dtype  # or cast once, if not

    def _is_cast(self, func: ast.expr) -> bool:
        return isinstance(func, ast.Name) and self.program.externs.get(func.id) in _NUMBERS

    def _owners(self, element: ast.Subscript) -> list[str] | None:
        """The thread coordinate that each index of the tile is, if threads and elements pair up."""
        parts = [self._expanded(part) for part in index_parts(element)]
        owners = [part.id if isinstance(part, ast.Name) else None for part in parts]
        sizes = dict(zip(THREAD, self.program.block))
        pairs = all(sizes.get(owner) == size for owner, size in zip(owners, self.tile.shape))
        wanted = {name for name, size in sizes.items() if size > 1}
        return owners if pairs and len(set(owners)) == len(owners) >= len(wanted) else None

    def _expanded(self, expr: ast.expr) -> ast.expr | None:
        """`expr` in terms of positions, parameters and what keeps its value in the loop."""
        if isinstance(expr, ast.Name):
            return self._expanded_name(expr)
        new = clone(expr)
        for field, value in ast.iter_fields(new):
            if isinstance(value, ast.expr):
                inner = self._expanded(value)
                if inner is None:
                    return None
                setattr(new, field, inner)
            elif isinstance(value, list) and value and isinstance(value[0], ast.expr):
                inner = [self._expanded(part) for part in value]
                if None in inner:
                    return None
                setattr(new, field, inner)
        return new

    def _expanded_name(self, node: ast.Name) -> ast.expr | None:
        sites = self.facts.defs.get(node.id, [])
        if not sites:
            known = {*THREAD, *BLOCK, *GRID, *self.program.params, *self.program.externs}
            return node if node.id in known else None
        if len(sites) != 1:
            return None
        if isinstance(sites[0].stmt, ast.Assign):
            if not dominates(sites[0], self.site):
                return None
            if node.id in self.facts.scalars:
                return node
            value = sites[0].stmt.value
            return None if has_loads(self.program, value) else self._expanded(value)
        counts_around = sites[0].stmt in self.site.controls
        return node if counts_around else None

    def instead_of_tile(self, body: list[ast.stmt]) -> list[ast.stmt]:
        """`body` with the memory read, where it reads the tile."""
        dtype = self.tile.dtype
        cast = self.program.extern(dtype, str(dtype))

        def load_for(index: list[ast.expr]) -> ast.expr:
            at = _Substitution(dict(zip(self.owner, index)))
            return call(cast, at.visit(clone(self.value)))

        rewrite, unclamped = _Reads(self.tile.name, load_for), Unclamped(self.program, self.facts)
        return [unclamped.visit(rewrite.visit(stmt)) for stmt in body]


class _Substitution(ast.NodeTransformer):
    """Thread coordinates become what they are `at` another thread."""

    def __init__(self, at: dict[str, ast.expr]) -> None:
        self.at = at

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return clone(self.at[node.id]) if node.id in self.at else node


class _Reads(ast.NodeTransformer):
    """Reads of the array `name` become what `load_for` makes of their indices."""

    def __init__(self, name: str, load_for: Callable[[list[ast.expr]], ast.expr]) -> None:
        self.name, self.load_for = name, load_for

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        self.generic_visit(node)
        if isinstance(node.value, ast.Name) and node.value.id == self.name:
            return self.load_for(index_parts(node))
        return node
