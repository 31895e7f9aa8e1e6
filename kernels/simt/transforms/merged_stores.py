"""Two stores to an element of shared memory, the second under a guard, as one store of a choice.

    tile[ty, tx] = 0
    if row < rows:
        tile[ty, tx] = a[row, column]

fills a tile at the edge of a matrix. Neighbours run it with a masked store, which takes Zen
processors without AVX-512 some twenty cycles; a masked load and a choice take two.
"""

from __future__ import annotations

import ast

from numba.core import types

from kernels.simt.ir.nodes import call, clone, names, nodes_in, stored_array
from kernels.simt.ir.program import Program
from kernels.simt.transforms.block_interleave import passed_on


def merge_stores(program: Program) -> None:
    """Rewrite `program.body` in place; where every store is checked it stays as it is."""
    arrays = {
        array.name
        for array in program.arrays.values()
        if array.space == "shared" and array.shape is not None and _holds_numbers(array.dtype)
    }
    if arrays and not program.checked:
        known = arrays - passed_on(program, arrays)  # no other name for their elements
        program.body = _merged(program, known, program.body)


def _holds_numbers(dtype: types.Type) -> bool:
    return isinstance(dtype, types.Integer) or dtype in (types.float32, types.float64)


def _merged(program: Program, arrays: set[str], body: list[ast.stmt]) -> list[ast.stmt]:
    out: list[ast.stmt] = []
    for stmt in body:
        for name in ("pre", "body", "orelse"):
            if isinstance(stmt, ast.If | ast.For | ast.While) and getattr(stmt, name, None):
                setattr(stmt, name, _merged(program, arrays, getattr(stmt, name)))
        one = _one_store(program, arrays, out[-1], stmt) if out else None
        if one is None:
            out.append(stmt)
        else:
            out[-1] = one
    return out


def _one_store(
    program: Program, arrays: set[str], first: ast.stmt, then: ast.stmt
) -> ast.stmt | None:
    """The store that does what the two statements do; None where they are not such a pair."""
    if not isinstance(then, ast.If) or then.orelse or len(then.body) > 1:
        return None
    second = then.body[0]
    name = stored_array(first)
    if name not in arrays or stored_array(second) != name:
        return None
    assert isinstance(first, ast.Assign) and isinstance(second, ast.Assign)
    index, other = first.targets[0], second.targets[0]
    if ast.dump(index) != ast.dump(other) or not _is_constant(program, first.value):
        return None
    if any(isinstance(node, ast.Call) for node in nodes_in(index)):
        return None
    if name in names(then.test) | names(second.value):
        return None
    dtype = program.arrays[name].dtype
    values = (_converted(program, value, dtype) for value in (second.value, first.value))
    new = clone(first)
    new.value = ast.copy_location(ast.IfExp(then.test, *values), then)
    return new


def _converted(program: Program, value: ast.expr, dtype: types.Type) -> ast.expr:
    """A value as a store would convert it: a choice has one type for both of its values."""
    match value:
        case ast.Call(func=ast.Name(id=name)) if program.externs.get(name) is dtype:
            return value
    return call(program.extern(dtype, str(dtype)), value)


def _is_constant(program: Program, value: ast.expr) -> bool:
    """Whether a value is a number that the source spells, or a conversion of one."""
    match value:
        case ast.Call(func=ast.Name(id=function), args=[inner], keywords=[]):
            known = program.externs.get(function)
            return isinstance(known, types.Number) and _is_constant(program, inner)
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return _is_constant(program, inner)
    return isinstance(value, ast.Constant)
