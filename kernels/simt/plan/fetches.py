"""Prefetches in grid-stride loops.

An iteration of a grid-stride loop reads a run of memory as long as a row of threads, and the next
one is many pages further. A processor prefetches within a page only, so every iteration would wait
for memory. A row therefore asks for what it will read some iterations later. Where that is beyond
the end of the array nothing happens: a prefetch never faults.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import takewhile

from numba.core import types

from kernels.simt.analysis.affine import Affine
from kernels.simt.analysis.ranges import constant
from kernels.simt.ir import memory
from kernels.simt.ir.nodes import binary, call, clone, const, defined, load, names, statements
from kernels.simt.ir.program import Program
from kernels.simt.plan.parts import FetchLoop
from kernels.simt.transforms.fission import BlockWhile, Region, Scalars

AHEAD = 8  # iterations


class Fetches:
    """Finds what the loops of one version of a region prefetch.

    `reasoning(stmt)` is the affine analysis of a row's positions at a statement, `span` where the
    row begins and ends.
    """

    def __init__(
        self,
        program: Program,
        kinds: dict[str, types.Type],
        reasoning: Callable[[ast.stmt], Affine],
        span: tuple[str, str],
    ) -> None:
        self.program, self.kinds, self.reasoning, self.span = program, kinds, reasoning, span

    def of(self, loop: BlockWhile) -> list[FetchLoop]:
        """One for each array that the statements directly in a grid-stride loop read."""
        counted = _counted(loop)
        if counted is None:
            return []
        found: dict[tuple[str, str], FetchLoop] = {}
        for region in (item for item in loop.body if isinstance(item, Region)):
            for stmt, array, index in self._reads(region):
                affine = self._affine(region, stmt)
                fetch = self._fetch(region.line, affine, array, index, *counted)
                if fetch is not None:
                    found.setdefault((array, ast.dump(index)), fetch)
        return list(found.values())

    def _reads(self, region: Region) -> Iterator[tuple[ast.stmt, str, ast.expr]]:
        """The elements of arguments that every iteration reads: statement, array and index."""
        for stmt in region.body:
            if not isinstance(stmt, ast.Assign):
                continue
            for node in ast.walk(stmt.value):
                match node:
                    case ast.Subscript(value=ast.Name(id=name), slice=index):
                        if self._dtype(name) is not None and not isinstance(index, ast.Tuple):
                            yield stmt, name, index

    def _dtype(self, name: str) -> types.Type | None:
        """The type of the numbers in an argument that is a contiguous array of one dimension."""
        kind = self.kinds.get(name) if name in self.program.params else None
        if not isinstance(kind, types.Array) or kind.ndim != 1 or kind.layout != "C":
            return None
        return kind.dtype if isinstance(kind.dtype, types.Number) else None

    def _affine(self, region: Region, at: ast.stmt) -> Affine:
        """The analysis at a statement of a region, which may look through what is assigned once
        before it: the rest of a grid-stride loop assigns the same variables again."""
        known = self.reasoning(at)
        defs = Counter(defined(stmt) for stmt in statements(region.body))
        local = {
            name: stmt.value
            for stmt in takewhile(lambda stmt: stmt is not at, region.body)
            if isinstance(stmt, ast.Assign) and (name := defined(stmt)) is not None
        }
        once = {name: value for name, value in local.items() if defs[name] == 1}
        return Affine(known.box, {**known.definitions, **once}, known.kinds, known.fixed)

    def _fetch(
        self, line: int, affine: Affine, array: str, index: ast.expr, counter: str, step: ast.expr
    ) -> FetchLoop | None:
        place, dtype = affine.expanded(index), self._dtype(array)
        if place is None or dtype is None or counter not in names(place):
            return None
        if affine.slope(place, "_tx") != 1:
            return None
        first, last = self.span
        here = affine.at(index, {"_tx": ast.parse(first, mode="eval").body})

        def later(expr: ast.expr, iterations: int) -> ast.expr:
            distance = binary(const(iterations), ast.Mult(), clone(step))
            return affine.at(expr, {counter: binary(load(counter), ast.Add(), distance)})

        far = self.program.extern(memory.far, "far")
        fetch = self.program.extern(memory.fetch, "fetch")
        apart = memory.ALIGNMENT // memory.itemsize(dtype)
        body = ast.Expr(call(fetch, load(array), later(place, AHEAD)))
        check = call(far, load(array), here, later(here, 1))
        return FetchLoop(line, None, check, first, last, apart, [body])


def _counted(loop: BlockWhile) -> tuple[str, ast.expr] | None:
    """(counter, step) of a loop whose last statement adds a step that no constant gives."""
    last = loop.body[-1] if loop.body else None
    if not isinstance(last, Scalars):
        return None
    match last.body[-1]:
        case ast.Assign(value=ast.BinOp(left=ast.Name(id=name), op=ast.Add(), right=step)) as stmt:
            if defined(stmt) == name and constant(step) is None:
                return name, step
    return None
