"""Indices of views that are read from memory become variables.

`row = a[order[i]]` names a place, which no spill array can hold: where it is used after a barrier,
it is computed again. Another thread may have changed `order[i]` by then, under that name or another
one of the same memory. So it is `index = order[i]; row = a[index]`, and the index is kept.
"""

from __future__ import annotations

import ast
from collections import Counter
from typing import Any

from numba.core import types

from kernels.simt.analysis.uniformity import has_loads, is_pure_call
from kernels.simt.ir.nodes import Collective, assign, bodies, clone, defined, load, statements
from kernels.simt.ir.program import Program
from kernels.simt.transforms.storage import is_view


def name_indices(program: Program, kinds: dict[str, types.Type]) -> bool:
    """Give such indices names in `program`; whether there were any. `kinds` has no types of the new
    variables."""
    namer = _Namer(program, kinds)
    body = namer.block(program.body)
    if namer.found:
        program.body = body
    return namer.found


class _Namer:
    def __init__(self, program: Program, kinds: dict[str, types.Type]) -> None:
        self.program, self.kinds, self.found = program, kinds, False
        everything = list(statements(program.body))
        self.defs = Counter(map(defined, everything))
        self.meets = any(isinstance(stmt, Collective) for stmt in everything)
        self.before: list[ast.stmt] = []  # the statement that is looked at

    def block(self, body: list[ast.stmt]) -> list[ast.stmt]:
        out: list[ast.stmt] = []
        for stmt in body:
            for inner in bodies(stmt):
                inner[:] = self.block(inner)
            kind = self.kinds.get(defined(stmt) or "")
            if isinstance(stmt, ast.Assign) and is_view(kind):
                self.at, self.before = stmt, []
                value = self.view(clone(stmt.value), kind)
                if self.before:
                    self.found = True
                    stmt = assign(defined(stmt) or "", value, stmt)
                out += self.before
            out.append(stmt)
        return out

    def view(self, value: ast.expr, kind: Any) -> ast.expr:
        """`value`, of a type that is a view or holds some, with its indices saved."""
        match value:
            case ast.Subscript():
                value.value = self.view(value.value, kind)
                value.slice = self.index(value.slice)
            case ast.Attribute():
                value.value = self.view(value.value, kind)
            case ast.Tuple() if isinstance(kind, types.BaseTuple):
                kinds: Any = kind
                value.elts = [
                    self.view(part, its) if is_view(its) else self.saved(part)
                    for part, its in zip(value.elts, kinds, strict=True)
                ]
        return value

    def index(self, index: ast.expr) -> ast.expr:
        match index:
            case ast.Tuple():
                index.elts = [self.index(part) for part in index.elts]
            case ast.Slice():
                ends = (index.lower, index.upper, index.step)
                index.lower, index.upper, index.step = (end and self.saved(end) for end in ends)
            case _:
                return self.saved(index)
        return index

    def saved(self, value: ast.expr) -> ast.expr:
        """`value`, or a variable that keeps it if computing it again may give something else."""
        if not self._changes(value):
            return value
        name = self.program.fresh("index")
        self.before.append(assign(name, value, self.at))
        return load(name)

    def _changes(self, value: ast.expr) -> bool:
        for node in ast.walk(value):
            if isinstance(node, ast.Call) and not is_pure_call(self.program, node):
                return True
            if isinstance(node, ast.Name) and self.meets and self.defs[node.id] > 1:
                return True
        return has_loads(self.program, value)
