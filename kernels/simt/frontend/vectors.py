"""Values of vector types (`float4` and its like): an expression per field, from the front end on.

A vector never becomes a variable. Each of its fields does, so that what follows sees numbers only.
As in numba-cuda, a vector is made from numbers and smaller vectors, read by its fields, passed to
device functions and returned by them; it cannot be stored or changed.
"""

from __future__ import annotations

import ast

from kernels.simt.frontend import resolve
from kernels.simt.frontend.scope import Translator
from kernels.simt.ir import stubs
from kernels.simt.ir.nodes import assign, call, const, load, located, nodes_in
from kernels.support.errors import Unstructured

FIELDS = "xyzw"


class Vector(ast.Tuple):
    """A vector: `elts` are its fields, `kind` is its type."""

    kind: stubs.VectorType


def of(kind: stubs.VectorType, fields: list[ast.expr]) -> Vector:
    vector = Vector(fields, ast.Load())
    vector.kind = kind
    return vector


def made(norm: Translator, kind: stubs.VectorType, node: ast.Call) -> Vector:
    """`float4(...)` of numbers and smaller vectors that fill it together."""
    base = norm.program.extern(resolve.dtype_of(kind.base, norm.where(node)), kind.base)
    fields: list[ast.expr] = []
    for value in norm.sequence(node.args):
        parts = value.elts if isinstance(value, Vector) else [call(base, value)]
        if isinstance(value, Vector) and value.kind.base != kind.base:
            raise norm.error(node, f"cuda.{kind.name} cannot hold fields of cuda.{value.kind.name}")
        fields += parts
    if len(fields) != kind.count or node.keywords:
        raise norm.error(
            node, f"cuda.{kind.name} takes {kind.count} numbers, or smaller vectors that hold as"
            f" many together; got {len(fields)}"
        )  # fmt: skip
    return of(kind, [norm.stable(field, node) for field in fields])


def field(norm: Translator, vector: Vector, node: ast.Attribute) -> ast.expr:
    """`vector.x`."""
    place = FIELDS[: vector.kind.count].find(node.attr)
    if place < 0 or len(node.attr) != 1:
        names = ", ".join(FIELDS[: vector.kind.count])
        raise norm.error(node, f"cuda.{vector.kind.name} has {names}, not {node.attr!r}")
    return vector.elts[place]


def bind(norm: Translator, name: str, vector: Vector, stmt: ast.AST) -> None:
    """`name = vector`: a variable for each field."""
    known = norm.names.get(name)
    if known is None:
        label = name.split()[-1]
        fields = [load(norm.program.fresh(f"{label}_{f}")) for f in FIELDS[: vector.kind.count]]
        known = norm.names[name] = of(vector.kind, fields)
    if not isinstance(known, Vector) or known.kind is not vector.kind:
        raise Unstructured(
            str(norm.error(stmt, f"{name!r} is a cuda.{vector.kind.name} and something else, too"))
        )
    values = [norm.stable(value, stmt, names=True) for value in vector.elts]
    for variable, value in zip(known.elts, values):
        norm.out.append(assign(variable.id, value, stmt))


def chosen(node: ast.IfExp, test: ast.expr, body: Vector, orelse: Vector) -> Vector:
    """`body if test else orelse`, of vectors of one type."""
    pairs = zip(body.elts, orelse.elts)
    return of(body.kind, [located(ast.IfExp(test, a, b), node) for a, b in pairs])


def item(vectors: list[Vector], position: str, at: ast.AST) -> Vector:
    """The vector at a `position` known at run time, of several of one type."""
    found = vectors[-1]
    for place in range(len(vectors) - 2, -1, -1):
        here = ast.Compare(load(position), [ast.Eq()], [const(place)])
        found = chosen(at, here, vectors[place], found)
    return found


def are_alike(values: list[ast.expr]) -> bool:
    """Whether all values are vectors of one type."""
    kinds = {getattr(value, "kind", None) for value in values}
    return len(kinds) == 1 and all(isinstance(value, Vector) for value in values)


def refuse_others(norm: Translator, body: list[ast.stmt]) -> None:
    """Raise for a vector that is left where only a number or an array can be."""
    for stmt in body:
        for node in nodes_in(stmt):
            if isinstance(node, Vector):
                raise norm.error(
                    stmt, f"a cuda.{node.kind.name} is read by its fields (v.x); it cannot be"
                    " stored, compared, computed with, or passed to this function, nor can a field"
                    " be assigned: make a new vector"
                )  # fmt: skip
