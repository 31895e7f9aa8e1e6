"""What `for` iterates over: arrays, tuples, ranges, `zip` and `enumerate`, in any combination."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import NamedTuple

from kernels.simt.frontend import vectors
from kernels.simt.frontend.resolve import DYNAMIC
from kernels.simt.frontend.scope import Translator
from kernels.simt.ir.nodes import binary, call, const, load, located


class Items(NamedTuple):
    """The items of an iterable by their position: how many, and the one at a variable's value."""

    length: ast.expr
    at: Callable[[str], ast.expr]


def of(norm: Translator, iterable: ast.expr) -> Items:
    """The items of `iterable`; what must be evaluated first goes to `norm.out`."""
    function = norm.static(iterable.func) if isinstance(iterable, ast.Call) else DYNAMIC
    if function is zip and iterable.args:
        return _zipped(norm, iterable)
    if function is enumerate:
        return _enumerated(norm, iterable)
    if function is range:
        return _range(norm, iterable)
    value = norm.static(iterable)
    known = norm.expr(iterable) if value is DYNAMIC else norm.materialise(value, iterable)
    sequence = known if isinstance(known, ast.Tuple) else norm.save(known, iterable)

    def at(position: str) -> ast.expr:
        if isinstance(sequence, ast.Tuple) and vectors.are_alike(sequence.elts):
            return vectors.item(sequence.elts, position, iterable)
        return located(ast.Subscript(sequence, load(position), ast.Load()), iterable)

    if isinstance(sequence, ast.Tuple):
        return Items(const(len(sequence.elts)), at)
    return Items(call("len", sequence), at)


def _zipped(norm: Translator, node: ast.Call) -> Items:
    parts = [of(norm, arg) for arg in node.args]
    length = parts[0].length
    for part in parts[1:]:
        length = call("min", length, part.length)
    return Items(length, lambda p: ast.Tuple([part.at(p) for part in parts], ast.Load()))


def _enumerated(norm: Translator, node: ast.Call) -> Items:
    first, *more = node.args
    more += [keyword.value for keyword in node.keywords]
    inner = of(norm, first)
    start = norm.save(norm.expr(more[0]), node) if more else const(0)

    def at(position: str) -> ast.expr:
        number: ast.expr = load(position)
        if not (isinstance(start, ast.Constant) and start.value == 0):
            number = binary(start, ast.Add(), number)
        return ast.Tuple([number, inner.at(position)], ast.Load())

    return Items(inner.length, at)


def _range(norm: Translator, node: ast.Call) -> Items:
    bounds = [norm.save(value, node) for value in norm.sequence(node.args)]
    start = bounds[0] if len(bounds) > 1 else const(0)
    step = bounds[2] if len(bounds) > 2 else const(1)
    length = call("len", call("range", *bounds))

    def at(position: str) -> ast.expr:
        return binary(start, ast.Add(), binary(load(position), ast.Mult(), step))

    return Items(length, at)


def length(norm: Translator, node: ast.expr) -> ast.expr | None:
    """`len(node)` where it is known here; None for what the back end measures (arrays)."""
    value = norm.static(node)
    if isinstance(value, tuple):
        return const(len(value))
    if isinstance(node, ast.Name) and isinstance(norm.names.get(node.id), ast.Tuple):
        return const(len(norm.names[node.id].elts))
    return None
