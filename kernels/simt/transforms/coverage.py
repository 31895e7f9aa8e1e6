"""Whether the threads of a block store to each element of a shared array.

Found by trying: the indices are computed for every thread and every iteration of constant loops.
"""

from __future__ import annotations

import ast

import numpy as np

from kernels.simt.analysis.loops import trip_count
from kernels.simt.analysis.ranges import constant
from kernels.simt.analysis.uniformity import Facts
from kernels.simt.ir.nodes import (
    THREAD,
    counter,
    expressions,
    range_arguments,
    statements,
    stored_array,
)
from kernels.simt.ir.program import Program
from kernels.simt.transforms.block_interleave import index_parts

_ARITHMETIC = {
    ast.Add: np.add,
    ast.Sub: np.subtract,
    ast.Mult: np.multiply,
    ast.FloorDiv: np.floor_divide,
    ast.Mod: np.remainder,
}
Positions = dict[str, np.ndarray]  # the values of a coordinate or counter, for all that run


def covers(program: Program, facts: Facts, body: list[ast.stmt], array: str) -> bool:
    """Whether `body`, run by every thread, surely stores to all of `array` and reads none of it."""
    stores = [s for s in statements(body) if stored_array(s) == array]
    targets = {id(s.targets[0].value) for s in stores}
    nodes = (n for s in statements(body) for e in expressions(s) for n in ast.walk(e))
    if any(isinstance(n, ast.Name) and n.id == array and id(n) not in targets for n in nodes):
        return False
    written = np.zeros(program.arrays[array].sizes, np.bool_)
    threads = dict(zip(reversed(THREAD), np.indices(program.block[::-1])))
    _mark(facts, body, array, threads, written)
    return bool(written.all())


def _mark(
    facts: Facts, body: list[ast.stmt], array: str, at: Positions, written: np.ndarray
) -> None:
    """Set `written` where `body` stores whatever the conditions in it are."""
    for stmt in body:
        if isinstance(stmt, ast.For) and trip_count(stmt):
            bounds = [constant(arg) for arg in range_arguments(stmt)]
            counted = np.arange(*(bound for bound in bounds if bound is not None))
            inner = {name: values[..., None] for name, values in at.items()}
            _mark(facts, stmt.body, array, {**inner, counter(stmt): counted}, written)
        elif stored_array(stmt) == array:
            index = [_value(facts, part, at) for part in index_parts(stmt.targets[0])]
            known = [part for part in index if part is not None]
            if len(known) == len(index):
                inside = [(part >= 0) & (part < n) for part, n in zip(known, written.shape)]
                if all(part.all() for part in inside):
                    written[tuple(np.broadcast_arrays(*known))] = True


def _value(facts: Facts, node: ast.expr, at: Positions) -> np.ndarray | None:
    """`node` for all that run, where it is made of positions and constants."""
    match node:
        case ast.Constant(value=int(value)):
            return np.asarray(value)
        case ast.Name(id=name) if name in at:
            return at[name]
        case ast.Name(id=name):
            sites = facts.defs.get(name, [])
            if len(sites) == 1 and isinstance(sites[0].stmt, ast.Assign):
                return _value(facts, sites[0].stmt.value, at)
        case ast.BinOp(left=a, op=op, right=b) if type(op) in _ARITHMETIC:
            left, right = _value(facts, a, at), _value(facts, b, at)
            if left is not None and right is not None:
                return _ARITHMETIC[type(op)](left, right)
    return None
