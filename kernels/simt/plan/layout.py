"""Where the arrays of a block lie: private, shared and spill arrays, and their declarations."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from numba.core import types

from kernels.simt.ir.nodes import HintedFor, const, expressions, names, statements
from kernels.simt.ir.program import Program
from kernels.simt.ir.stubs import WARP_SIZE
from kernels.simt.plan.parts import DynamicShared, GridArray, PrivateLayout, StackArray
from kernels.simt.plan.regions import RegionPlanner
from kernels.simt.transforms.fission import Region, names_in, walk
from kernels.support.errors import Unstructured

Declaration = StackArray | GridArray | DynamicShared


class Layout:
    """Arrays of a block. `around` counts the interleaved blocks, if blocks are interleaved."""

    def __init__(self, regions: RegionPlanner, around: tuple[str, ...] = ()) -> None:
        self.program, self.kinds, self.regions = regions.program, regions.kinds, regions
        self.around = around
        self.private = self._private_arrays()
        self.marked = self._tracked_arrays() if self.program.debug else set()

    # -- private arrays --------------------------------------------------------------------

    def _private_arrays(self) -> dict[str, PrivateLayout]:
        """Local arrays with an element per thread: those that live across regions, and those of
        regions whose innermost loop is over threads."""
        found = {
            array.name: self._private_layout(array.name)
            for array in self.program.arrays.values()
            if array.space == "local"
        }
        return {name: layout for name, layout in found.items() if layout is not None}

    def _private_layout(self, name: str) -> PrivateLayout | None:
        """The layout of a local array; None if every thread may use the same memory.

        What a row of threads keeps lies together where the block has rows: the columns of an
        accumulator would else be a block apart, all in a few sets of the cache.
        """
        known, versions = self._views_of(name), self.regions.versions
        users = [i for i in walk(self.regions.items) if known & names_in(i)]
        plans = [plan for i in users if i in versions for plan in versions[i].fast]
        rows_together = any(plan.rows > 1 for plan in plans)
        if len(users) > 1 or rows_together or any(getattr(i, "in_loop", True) for i in users):
            in_rows = self._has_rows and all(isinstance(i, Region) for i in users)
            return PrivateLayout((*self.around, "_ty"), "_tx") if in_rows else _PER_THREAD
        if users and users[0] in versions and versions[users[0]].rows is not None:
            plan = versions[users[0]].rows.plan
            loops = (s for s in statements(plan.body) if isinstance(s, ast.For | ast.While))
            if plan.interchanged or all(isinstance(loop, HintedFor) for loop in loops):
                return PrivateLayout((), "_tx")
        return None

    def _views_of(self, array: str) -> set[str]:
        """`array` and the variables that regions rematerialise from it."""
        known, new = {array}, {array}
        while new:
            read = self.regions.storage.rematerialised.items()
            new = {name for name, stmt in read if names(stmt.value) & new} - known
            known |= new
        return known

    @property
    def _has_rows(self) -> bool:
        """Whether a block is rows of threads and nothing more (and no index is checked)."""
        program, (_, y, z) = self.program, self.program.block
        return y > 1 and z == 1 and not program.cooperative and not program.checked

    def needs_order(self, body: list[ast.stmt]) -> bool:
        """Whether threads must run `body` one after the other."""
        if self.program.checked:
            return True
        state = self.program.ordered | {
            a.name
            for a in self.program.arrays.values()
            if a.space == "local" and a.name not in self.private
        }
        return any(names(e) & state for s in statements(body) for e in expressions(s))

    def views(self, body: list[ast.stmt]) -> list[str]:
        """The private arrays that `body` needs other than element by element."""
        visitor = _WholeArrays(self.program, self.kinds, self.private)
        for stmt in statements(body):
            for expr in expressions(stmt):
                visitor.visit(expr)
        return sorted(visitor.found)

    # -- checked mode ----------------------------------------------------------------------

    def _tracked_arrays(self) -> set[str]:
        """Shared arrays that are only ever indexed element by element."""
        if self.program.cooperative:
            return set()
        arrays = self.program.arrays.values()
        shared = [a for a in arrays if a.space == "shared" and a.shape is not None]
        tracked = {a.name for a in shared if not isinstance(a.dtype, types.Record)}
        for stmt in statements(self.program.body):
            for expr in expressions(stmt):
                elements = {id(n) for n in map(self._element_of, ast.walk(expr)) if n}
                tracked -= {
                    node.id
                    for node in ast.walk(expr)
                    if isinstance(node, ast.Name) and id(node) not in elements
                }
        return tracked

    def _element_of(self, node: ast.AST) -> ast.expr | None:
        """The array of which `node` takes an element, if it takes one."""
        if isinstance(node, ast.Call) and "atomic_" in getattr(node.func, "id", ""):
            return node.args[0]
        array = self.program.arrays.get(getattr(getattr(node, "value", None), "id", None))
        if not isinstance(node, ast.Subscript) or array is None or array.shape is None:
            return None
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        return node.value if _is_element(parts, len(array.shape)) else None

    # -- declarations ----------------------------------------------------------------------

    def declarations(
        self, copies: dict[str, int], together: int, ahead: set[str]
    ) -> list[Declaration]:
        """All arrays of the function.

        `copies` of some shared arrays lie behind one another, `together` blocks have spill arrays
        at a time, and the variables `ahead` are read up to a warp past the last thread.
        """
        return [
            *self._declared_arrays(copies, together),
            *self._spill_arrays(together, ahead),
            *self._row_spill_arrays(),
        ]

    def _array(
        self, name: str, shape: tuple[int, ...], dtype: types.Type, threads: int | None
    ) -> StackArray | GridArray:
        """An array of the block; with `threads`, one with an element for each of them."""
        if self.program.cooperative:
            return GridArray(name, shape, dtype, threads)
        return StackArray(name, shape if threads is None else (*shape, threads), dtype)

    def _declared_arrays(self, copies: dict[str, int], together: int) -> list[Declaration]:
        found: list[Declaration] = []
        threads, dynamic = self.program.threads * together, False
        for array in self.program.arrays.values():
            name, dtype = array.name, array.dtype
            private = self.private.get(name)
            if array.shape is None:
                found.append(DynamicShared(name, dtype, first=not dynamic))
                dynamic = True
            elif private is not None and private.lane == "_tx":
                sizes = {"_j": together, "_ty": self.program.block[1]}
                rows = [sizes[counter] for counter in private.row]
                found.append(StackArray(name, (*rows, *array.shape, self.program.block[0]), dtype))
            elif private is not None:
                found.append(self._array(name, array.shape, dtype, threads))
            elif name in copies:
                found.append(self._array(f"_all_{name}", (copies[name], *array.shape), dtype, None))
            else:
                prefix = "_all_" if self.program.cooperative else ""
                found.append(self._array(prefix + name, array.shape, dtype, None))
            if name in self.marked:
                found.append(self._array(f"_written_{name}", array.shape, types.boolean, None))
        return found

    def _spill_arrays(self, together: int, ahead: set[str]) -> list[Declaration]:
        found: list[Declaration] = []
        threads = self.program.threads * together
        for name in sorted(self.regions.storage.spilled):
            kind = self.kinds.get(name, types.boolean)
            extra = WARP_SIZE if name in ahead else 0
            for array, part in spill_arrays(name, kind):
                if not isinstance(part, types.Number | types.Boolean):
                    raise Unstructured(
                        f"{self.program.filename}:{self.program.line}: variable {name!r} of type"
                        f" {kind} is carried across a barrier; only numbers, tuples of them and"
                        " views can be"
                    )
                found.append(self._array(array, (), part, threads + extra))
        return found

    def _row_spill_arrays(self) -> list[Declaration]:
        """One for each variable that lives across the loops over one row's threads."""
        rows: dict[str, int] = {}  # that have one at a time
        for versions in self.regions.versions.values():
            for stored in (versions.each_thread, versions.rows, versions.guard_free):
                if stored is not None:
                    for name in stored.storage.spilled:
                        rows[name] = max(stored.plan.rows, rows.get(name, 1))
        x = self.program.block[0]
        return [
            StackArray(f"_r_{name}", (count * x,), self.kinds[name])
            for name, count in sorted(rows.items())
        ]


def is_tuple(kind: types.Type) -> bool:
    """Whether it is a tuple with elements, which can be taken apart and put together."""
    return isinstance(kind, types.BaseTuple) and len(kind) > 0


def spill_arrays(name: str, kind: Any) -> Iterator[tuple[str, types.Type]]:
    """The spill arrays of a variable with their types: of a tuple one for each of its elements."""
    if not is_tuple(kind):
        yield f"_s_{name}", kind
        return
    for position, part in enumerate(kind):
        yield from spill_arrays(f"{position}_{name}", part)


_PER_THREAD = PrivateLayout((), "_t")


def _is_position(part: ast.expr) -> bool:
    """Whether an index is a number (and not a slice, a field's name, ...)."""
    return not isinstance(part, ast.Slice) and not (
        isinstance(part, ast.Constant) and not isinstance(part.value, int)
    )


def _is_element(parts: list[ast.expr], dimensions: int) -> bool:
    return len(parts) == dimensions and all(map(_is_position, parts))


def subscript_parts(
    program: Program, kinds: dict[str, types.Type], index: ast.expr
) -> list[ast.expr]:
    """The indices of a subscript, one for each axis; none for `a[()]`."""
    if isinstance(index, ast.Tuple):
        return index.elts
    kind = kinds.get(index.id) if isinstance(index, ast.Name) else None
    if isinstance(kind, types.BaseTuple) and program.checked:
        return [ast.Subscript(index, const(k), ast.Load()) for k in range(len(kind))]
    return [index]


def is_checked_element(program: Program, kinds: dict[str, types.Type], node: ast.Subscript) -> bool:
    """Whether a subscript is an element of an array whose index is checked at run time."""
    kind = kinds.get(node.value.id) if isinstance(node.value, ast.Name) else None
    parts = subscript_parts(program, kinds, node.slice)
    is_element = isinstance(kind, types.Array) and bool(parts) and all(map(_is_position, parts))
    return program.checked and is_element


class _WholeArrays(ast.NodeVisitor):
    """Finds the private arrays that expressions use other than by element."""

    def __init__(self, program: Program, kinds: dict[str, types.Type], private: dict) -> None:
        self.program, self.kinds, self.private = program, kinds, private
        self.found: set[str] = set()

    def visit_Name(self, node: ast.Name) -> None:
        if node.id in self.private:
            self.found.add(node.id)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        if not self._is_element(node):
            self.visit(node.value)
        self.visit(node.slice)

    def _is_element(self, node: ast.Subscript) -> bool:
        if not isinstance(node.value, ast.Name) or node.value.id not in self.private:
            return False
        parts = subscript_parts(self.program, self.kinds, node.slice)
        whole = len(parts) == len(self.program.arrays[node.value.id].sizes)
        return whole and not any(isinstance(part, ast.Slice) for part in parts)

    def visit_Call(self, node: ast.Call) -> None:
        if self.program.checked and is_checked_atomic(node):
            element = ast.Subscript(node.args[0], node.args[1], ast.Load())
            for arg in (element, *node.args[2:]):
                self.visit(arg)
        else:
            self.generic_visit(node)


def is_checked_atomic(node: ast.Call) -> bool:
    """Whether a call is an atomic operation on an element that is given by array and index."""
    name = getattr(node.func, "id", "")
    takes_index = "atomic_" in name and "compare_and_swap" not in name
    return takes_index and isinstance(node.args[0], ast.Name)
