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

from kernels.simt.analysis.loops import constant_ends, trip_count
from kernels.simt.analysis.uniformity import exposure, has_effects
from kernels.simt.frontend.structure import has_jumps
from kernels.simt.ir.memory import itemsize
from kernels.simt.ir.nodes import HintedFor, clone, const, counter, defined, names, statements
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
        if id(stmt) in found:
            out += _parts(stmt, _bytes(found[id(stmt)], program) * lanes)
        else:
            out.append(stmt)
    return out


def _parts(loop: ast.For, size: int) -> list[ast.stmt]:
    """The loop once for each part of its accumulators, of `size` bytes together."""
    *before, inner = loop.body
    ends, trips = constant_ends(inner), trip_count(inner)
    assert ends is not None and trips is not None
    most = max(usable() * trips // size, 1)
    count = -(-trips // most)
    if count == 1:
        return [loop]
    first, each = ends[0].value, -(-trips // count)
    parts: list[ast.stmt] = []
    for begin in range(first, first + trips, each):
        part, again = shallow_copy(inner), shallow_copy(loop)
        bounds = [const(begin), const(min(begin + each, first + trips))]
        part.iter = ast.Call(inner.iter.func, bounds, [])
        part.body = [clone(stmt) for stmt in inner.body]
        again.body = [*map(clone, before), part]
        parts.append(again)
    return parts


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
    if not isinstance(inner, HintedFor) or not trip_count(inner) or _step(inner) != 1:
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
    stores = [s for s in inside if isinstance(s, ast.Assign) and defined(s) is None]
    arrays = {getattr(getattr(s.targets[0], "value", None), "id", None) for s in stores}
    local = {array.name for array in program.arrays.values() if array.space == "local"}
    if not arrays <= local or any(names(s) & arrays for s in before):
        return set()
    own = [s for s in inside if not isinstance(s, ast.For)]
    elements = [n for s in own for n in ast.walk(s) if _array_of(n) in arrays]
    uses = [n for s in own for n in ast.walk(s) if isinstance(n, ast.Name) and n.id in arrays]
    places = {(_array_of(n), _places(n, counter(inner))) for n in elements}
    apart = all(len(places_of) == 1 for _, places_of in places) and len(places) == len(arrays)
    return arrays if apart and len(uses) == len(elements) else set()


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


def _step(loop: ast.For) -> int | None:
    args = loop.iter.args
    if len(args) < 3:
        return 1
    return args[2].value if isinstance(args[2], ast.Constant) else None
