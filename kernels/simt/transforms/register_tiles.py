"""Accumulators that fit in the registers, by loop distribution.

A thread that computes 4 x 4 results adds to each of them in every iteration of its loop. Eight such
threads together need 16 vector registers, all that a processor with AVX2 has, and two of its three
instructions would move sums to memory and back. So the loop runs once for each part of the results:
`for q: for i in range(4): ...` becomes `for q: for i in range(2): ...` and
`for q: for i in range(2, 4): ...`. What a loop computes on the way is computed again.
"""

from __future__ import annotations

import ast
import math

from kernels.simt.analysis.ranges import constant
from kernels.simt.analysis.uniformity import exposure, has_effects
from kernels.simt.frontend.structure import has_jumps
from kernels.simt.ir.memory import itemsize
from kernels.simt.ir.nodes import (
    HintedFor,
    clone,
    const,
    counter,
    defined,
    load,
    names,
    range_arguments,
    statements,
)
from kernels.simt.ir.program import Program
from kernels.simt.transforms.short_loops import shallow_copy
from kernels.support import processor


def usable() -> int:
    """The bytes of all vector registers that accumulators may take; the others hold factors."""
    return processor.vector_registers().all_floats * 4 * 3 // 4


def accumulated(body: list[ast.stmt], program: Program) -> int:
    """The bytes of the results that a thread adds to in a loop of `body`, at most."""
    sizes = [_bytes(arrays, program) for _, arrays in _loops(body, program)]
    return max(sizes, default=0)


def distributed(body: list[ast.stmt], program: Program, lanes: int) -> list[ast.stmt]:
    """`body` with loops that add to more than `lanes` threads have registers for in parts."""
    found = {id(loop): arrays for loop, arrays in _loops(body, program)}
    out: list[ast.stmt] = []
    for stmt in body:
        if isinstance(stmt, ast.For) and id(stmt) in found:
            out += _parts(stmt, _bytes(found[id(stmt)], program) * lanes)
        else:
            out.append(stmt)
    return out


def _parts(loop: ast.For, size: int) -> list[ast.For]:
    """The loop once for each part of its accumulators, of `size` bytes together."""
    *before, inner = loop.body
    assert isinstance(inner, ast.For)
    numbers = _constant_range(inner)
    most = max(usable() * len(numbers) // size, 1)
    count = -(-len(numbers) // most)
    if count == 1:
        return [loop]
    each = -(-len(numbers) // count)
    parts: list[ast.For] = []
    for begin in range(0, len(numbers), each):
        bounds = numbers[begin : begin + each]
        again = shallow_copy(loop)
        again.body = [*map(clone, before), _over(inner, bounds)]
        parts.append(again)
    return parts


def _over(loop: ast.For, numbers: range) -> ast.For:
    """The loop over other numbers, which follow one another."""
    part = shallow_copy(loop)
    bounds: list[ast.expr] = [const(numbers.start), const(numbers.stop)]
    part.iter = ast.Call(load("range"), bounds, [])
    part.body = [clone(stmt) for stmt in loop.body]
    return part


def _constant_range(loop: ast.For) -> range:
    """What a loop counts; nothing where that is not constant."""
    found = [constant(arg) for arg in range_arguments(loop)]
    values = [value for value in found if value is not None]
    return range(0) if len(values) < len(found) or 0 in values[2:] else range(*values)


def _bytes(arrays: set[str], program: Program) -> int:
    found = [program.arrays[name] for name in arrays]
    return sum(itemsize(array.dtype) * math.prod(array.sizes) for array in found)


def _loops(body: list[ast.stmt], program: Program) -> list[tuple[ast.For, set[str]]]:
    """The loops of `body` that only add to local arrays, by an inner loop of constant length whose
    iterations have nothing to do with each other; and these arrays."""
    pairs = [(stmt, _accumulators(stmt, program)) for stmt in body if isinstance(stmt, ast.For)]
    return [(loop, arrays) for loop, arrays in pairs if arrays]


def _accumulators(loop: ast.For, program: Program) -> set[str]:
    if isinstance(loop, HintedFor) or not loop.body or has_jumps(loop):
        return set()
    *before, inner = loop.body
    if not isinstance(inner, HintedFor):
        return set()
    if not _constant_range(inner) or _constant_range(inner).step != 1:
        return set()
    if not all(isinstance(s, ast.Assign) and not has_effects(program, s) for s in before):
        return set()
    inside = list(statements(inner.body))
    if not all(isinstance(s, HintedFor | ast.Assign) for s in inside):
        return set()
    variables = {name for s in statements(loop.body) if (name := defined(s)) is not None}
    exposed, written, _ = exposure(loop.body, variables)
    if exposed & written:
        return set()  # a sum in a variable, say, would be added to again
    own = [s for s in inside if isinstance(s, ast.Assign)]
    arrays = {_array_of(s.targets[0]) for s in own if defined(s) is None}
    local = {array.name for array in program.arrays.values() if array.space == "local"}
    found = local & arrays
    if arrays - local or any(names(s) & found for s in before):
        return set()
    nodes = [n for s in [*before, *own] for n in ast.walk(s)]
    known = {*program.arrays, *program.params, *program.constants}
    if not {_array_of(n) for n in nodes if isinstance(n, ast.Subscript)} <= known:
        return set()  # a view, maybe of these arrays
    elements = [n for n in nodes if isinstance(n, ast.Subscript) and _array_of(n) in found]
    uses = [n for n in nodes if isinstance(n, ast.Name) and n.id in found]
    places = {(_array_of(n), _places(n, counter(inner))) for n in elements}
    apart = all(len(place) == 1 for _, place in places) and len(places) == len(found)
    return found if apart and len(uses) == len(elements) else set()


def _array_of(node: ast.AST) -> str | None:
    """The array of which `node` is an element."""
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
        return node.value.id
    return None


def _places(element: ast.Subscript, name: str) -> tuple[int, ...]:
    """Which indices of an element are the counter `name`; none where one has it otherwise."""
    parts = element.slice.elts if isinstance(element.slice, ast.Tuple) else [element.slice]
    found = [k for k, part in enumerate(parts) if name in names(part)]
    return tuple(found) if all(isinstance(parts[k], ast.Name) for k in found) else ()
