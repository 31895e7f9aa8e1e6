"""A kernel's normal form with a call of the recorder at every access.

The rewriting comes before the block's program is cut at barriers, so the compiler's back end sees
calls with effects where the loads were, and runs them thread by thread, in order. Each call gives
its `site` (a row of the statistics), the thread, and the `path`: a hash of the iterations of all
enclosing loops, which lanes that execute the site together have in common.
"""

from __future__ import annotations

import ast
import copy
import linecache
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numba.core import types

from kernels.lab.record import access, recorder
from kernels.simt.analysis.ranges import constant
from kernels.simt.devlib import lookup
from kernels.simt.frontend import calls
from kernels.simt.ir.memory import itemsize
from kernels.simt.ir.nodes import (
    BLOCK,
    GRID,
    Collective,
    Loop,
    assign,
    binary,
    call,
    const,
    expressions,
    load,
    located,
    statements,
)
from kernels.simt.ir.program import Program

HEAD = "_lab"  # the hidden argument that carries the recorder's head
_MIX = 0x1E3779B97F4A7C15
_BARRIERS = {"syncwarp": recorder.WARP_BARRIER, "cg.GridGroup.sync": recorder.GRID_BARRIER}
_BARRIERS |= dict.fromkeys(("syncthreads", *calls.COUNTED), recorder.BLOCK_BARRIER)
_SHUFFLES = ("shfl_sync", "shfl_up_sync", "shfl_down_sync", "shfl_xor_sync")  # recorder.shuffle
# Of a `while` loop: by one thread, or if there is a barrier in it, by all threads of a block
# together. It takes some seconds under the recorder.
MAX_ITERATIONS = 1 << 22
_NO_LIMIT = (1 << 63) - 1
_ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow)

Place = tuple[str, int]  # file and line


@dataclass
class Site:
    """A row of the recorder's statistics.

    kind: "load", "store", "atomic", "barrier", "shuffle", "loop", or "lines" for statements that
    run together: then `lines` are theirs, with the floating-point operations that each does. text:
    an access as the source has it.
    """

    kind: str
    place: Place
    array: str = ""
    itemsize: int = 0
    text: str = ""
    lines: dict[Place, int] = field(default_factory=dict)


def instrument(program: Program, kinds: dict[str, types.Type]) -> tuple[list[Site], list[str]]:
    """Rewrite `program.body` in place; `kinds` are the types of its variables.

    Returns the sites, and what is accessed without being recorded.
    """
    writer = _Instrumenter(program, kinds)
    who = program.fresh("who")
    block = binary(load("_by"), ast.Add(), binary(load(GRID[1]), ast.Mult(), load("_bz")))
    block = binary(load(BLOCK[0]), ast.Add(), binary(load(GRID[0]), ast.Mult(), block))
    thread = calls.linear_thread(program)
    writer.who = load(who)
    body = writer.block(program.body, const(0))
    number = binary(block, ast.Mult(), const(1024))
    prologue = [assign(who, binary(number, ast.Add(), thread))]
    for position, array in enumerate(shared_arrays(program)):
        args = [const(position), load(array), block]
        prologue.append(ast.Expr(writer.call("declare", load(HEAD), *args)))
    program.body = [*prologue, *body]
    program.constants[HEAD] = np.zeros(1, np.int64)
    missed = {f"what {f.__name__}() accesses" for f in program.functions} | writer.missed
    return writer.sites, sorted(missed)


def shared_arrays(program: Program) -> list[str]:
    """The shared arrays of a kernel, one for all that lie in dynamic shared memory."""
    names, dynamic = [], False
    for array in program.arrays.values():
        if array.space == "shared" and not (array.shape is None and dynamic):
            names.append(array.name)
            dynamic |= array.shape is None
    return names


def place_of(node: ast.AST, program: Program) -> Place | None:
    """Where in the source a node comes from; None for what the compiler made from nothing."""
    line = getattr(node, "lineno", 0)
    return (getattr(node, "source", None) or program.filename, line) if line else None


class _Instrumenter(ast.NodeTransformer):
    who: ast.expr

    def __init__(self, program: Program, kinds: dict[str, types.Type]) -> None:
        self.program, self.kinds = program, kinds
        self.sites: list[Site] = []
        self.path: ast.expr = const(0)
        self.place: Place = (program.filename, program.line)
        local = {a.name for a in program.arrays.values() if a.space == "local"}
        self.unrecorded = local | set(program.constants)
        self.missed: set[str] = set()  # accesses that are not recorded

    def call(self, function: str, *args: ast.expr) -> ast.Call:
        name = self.program.extern(getattr(access, function), f"lab_{function}")
        return call(name, *args)

    def site(self, kind: str, node: ast.AST, array: str = "", size: int = 0) -> int:
        place = place_of(node, self.program) or self.place
        text = self.text(node, place) if array else ""
        self.sites.append(Site(kind, place, array, size, text))
        return len(self.sites) - 1

    def text(self, node: ast.AST, place: Place) -> str:
        """An access as the source has it: positions are those of a source without its indent."""
        if not isinstance(node, ast.Subscript):
            return ""
        name, end = ast.unparse(node.value), getattr(node, "end_col_offset", None)
        if end is not None and node.lineno == node.end_lineno:
            line = linecache.getline(*place)
            found = [
                line[start : start + end - node.col_offset]
                for start in range(node.col_offset, len(line))
                if line.startswith(name + "[", start)
            ]
            if found and found[0].endswith("]"):
                return found[0]
        return ast.unparse(node)

    # -- statements ------------------------------------------------------------------------

    def block(self, body: list[ast.stmt], path: ast.expr, *first: Place) -> list[ast.stmt]:
        """A statement list that counts its executions wherever its active threads may change.

        `first` are lines that run as often as the list itself: the head of the loop around it.
        """
        outer, self.path = self.path, path
        out: list[ast.stmt] = []
        lines: dict[Place, int] | None = None
        before: Place | None = None
        for stmt in body or [ast.Pass()]:
            if lines is None:
                number = self.site("lines", stmt)
                lines = self.sites[number].lines
                lines |= dict.fromkeys(first, 0)
                first = ()
                out.append(self._execution(number))
            place = place_of(stmt, self.program)
            if place is not None:
                self.place = place
                if not isinstance(stmt, ast.For | ast.While):  # those count their own iterations
                    if place != before:
                        lines.setdefault(place, 0)
                    if operations := self.operations(stmt):
                        lines[place] = lines.get(place, 0) + operations
            out += self.statement(stmt)
            before = place
            if any(isinstance(s, ast.Break | ast.Continue) for s in statements([stmt])):
                lines, before = None, None
        self.path = outer
        return out

    def _execution(self, number: int) -> ast.Expr:
        return ast.Expr(self.call("executed", load(HEAD), const(number), self.path, self.who))

    def statement(self, stmt: ast.stmt) -> list[ast.stmt]:
        match stmt:
            case Collective():
                return self._collective(stmt)
            case ast.If():
                stmt.test = self.visit(stmt.test)
                stmt.body = self.block(stmt.body, self.path)
                if stmt.orelse:
                    stmt.orelse = self.block(stmt.orelse, self.path)
            case ast.For():
                stmt.iter = self.visit(stmt.iter)
                return self._loop(stmt)
            case Loop():
                return self._loop(stmt)
            case ast.Assign(targets=[ast.Subscript() as target]) if self.is_element(target):
                return [self._store(stmt, target)]
            case _:
                self.generic_visit(stmt)
        return [stmt]

    def _loop(self, stmt: ast.For | Loop) -> list[ast.stmt]:
        """A loop that counts its iterations, and derives its path from the number."""
        iterations, path = self.program.fresh("iterations"), self.program.fresh("path")
        outer = self.path
        around = binary(binary(outer, ast.Mult(), const(_MIX)), ast.Add(), load(iterations))
        if isinstance(outer, ast.Constant):
            around = load(iterations)
        step = [
            assign(iterations, binary(load(iterations), ast.Add(), const(1)), stmt),
            assign(path, around, stmt),
            self._iterate(stmt, iterations),
        ]
        place = place_of(stmt, self.program)
        head = (place,) if place else ()
        if isinstance(stmt, Loop):
            operations = self.operations(stmt)
            self.path = load(path)
            before = self.block(stmt.pre, load(path), *head)
            if place:
                self.sites[self._first_lines(before)].lines[place] += operations
            stmt.test = self.visit(stmt.test)
            self.path = outer
            stmt.pre = [*step, *before]
            stmt.body = self.block(stmt.body, load(path))
        else:
            stmt.body = [*step, *self.block(stmt.body, load(path), *head)]
        return [assign(iterations, const(0), stmt), stmt]

    def _iterate(self, stmt: ast.For | Loop, iterations: str) -> ast.stmt:
        """What ends the run in a loop: an interrupt, or too many iterations of a `while`."""
        most = _NO_LIMIT
        if isinstance(stmt, Loop):
            together = any(isinstance(s, Collective) for s in statements([stmt]))
            most = MAX_ITERATIONS // (self.program.threads if together else 1)
        number = const(self.site("loop", stmt))
        counted = self.call("iterate", load(HEAD), number, self.who, load(iterations), const(most))
        return located(ast.Expr(counted), stmt)

    def _first_lines(self, body: list[ast.stmt]) -> int:
        return body[0].value.args[1].value

    def _collective(self, stmt: Collective) -> list[ast.stmt]:
        before: list[ast.stmt] = []
        for position, arg in enumerate(stmt.args):
            new = self.visit(arg)
            if any(isinstance(node, ast.Call) for node in ast.walk(new)):
                name = self.program.fresh("given")
                before.append(assign(name, new, stmt))
                new = load(name)
            stmt.args[position] = new
        barrier = _BARRIERS.get(stmt.kind)
        if barrier is not None:
            number = const(self.site("barrier", stmt, stmt.kind))
            arrival = self.call("arrive", load(HEAD), number, self.who, const(barrier))
            before.append(located(ast.Expr(arrival), stmt))
        if stmt.kind in _SHUFFLES:
            before.append(self._shuffle(stmt))
        return [*before, stmt]

    def _shuffle(self, stmt: Collective) -> ast.stmt:
        """Records from which lane a shuffle reads; its arguments are names and constants by now."""
        width = stmt.args[3] if len(stmt.args) > 3 else const(recorder.WARP)
        int64 = self.program.extern(types.int64, "int64")
        amount, width = (call(int64, copy.deepcopy(arg)) for arg in (stmt.args[2], width))
        kind = const(_SHUFFLES.index(stmt.kind))
        where = load(HEAD), const(self.site("shuffle", stmt)), self.path, self.who
        return located(ast.Expr(self.call("shuffle", *where, kind, amount, width)), stmt)

    def _store(self, stmt: ast.Assign, target: ast.Subscript) -> ast.stmt:
        value = self.visit(stmt.value)
        index, literal = self._index(target.slice)
        args = [target.value, index, value, *self._where("store", target), literal]
        return located(ast.Expr(self.call("store", *args)), stmt)

    # -- expressions -----------------------------------------------------------------------

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        if not self.is_element(node):
            return self._part(node)
        index, literal = self._index(node.slice)
        args = [node.value, index, *self._where("load", node), literal]
        return located(self.call("load", *args), node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        return self._part(node)

    def _part(self, node: ast.Attribute | ast.Subscript) -> ast.expr:
        """A field of a record, whose index records the access; or what accesses nothing."""
        element, field = node.value, self._field(node)
        if field is None:
            if self._record_of(node) is not None:
                self.missed.add(f"whole records of {ast.unparse(node.value)}")
            self.generic_visit(node)
            return node
        kind = "store" if isinstance(node.ctx, ast.Store) else "load"
        op = recorder.STORE if kind == "store" else recorder.LOAD
        place = self._touch(kind, element, op, field.offset, itemsize(field.type))
        node.value = located(ast.Subscript(element.value, place, ast.Load()), element)
        return node

    def _record_of(self, node: ast.expr) -> types.Record | None:
        """The type of an expression that is an element of a one-dimensional array of records."""
        if not isinstance(node, ast.Subscript):
            return None
        array = self.array_type(node.value)
        one = array is not None and array.ndim == 1 and isinstance(array.dtype, types.Record)
        return array.dtype if one and self._is_shared(node.value) else None

    def _field(self, node: ast.Attribute | ast.Subscript) -> Any:
        """The field that `a[i].name` or `a[i]["name"]` is of a record, with its offset and type."""
        name = node.attr if isinstance(node, ast.Attribute) else getattr(node.slice, "value", None)
        record = self._record_of(node.value)
        return record.fields.get(name) if record is not None else None

    def visit_Call(self, node: ast.Call) -> ast.expr:
        name = getattr(node.func, "id", "")
        if "atomic_" not in name or not self._is_recorded(node.args[0]):
            self.generic_visit(node)
            return node
        array, *rest = node.args
        if name.endswith("compare_and_swap"):  # works on the first element
            space = "shared" if "own_" in name else "global"
            swap = lookup.function("atomic.cas", space)
            name = self.program.extern(swap, f"{'own_' if space == 'shared' else ''}atomic_cas")
            zero: list[ast.expr] = [const(0)] * self.array_type(array).ndim
            rest = [ast.Tuple(zero, ast.Load()), *rest]
        element = ast.copy_location(ast.Subscript(array, rest[0], ast.Load()), node)
        element.source = getattr(node, "source", None)
        size = itemsize(self.array_type(array).dtype)
        place = self._touch("atomic", element, recorder.ATOMIC, 0, size)
        values = map(self.visit, rest[1:])
        return located(ast.Call(load(self._unchecked(name)), [array, place, *values], []), node)

    def _touch(
        self, kind: str, element: ast.Subscript, op: int, offset: int, size: int
    ) -> ast.Call:
        """The index of `element`, which records the access."""
        index, literal = self._index(element.slice)
        what = [const(op), const(offset), const(size)]
        where = self._where(kind, element)
        self.sites[-1].itemsize = size
        return self.call("touch", element.value, index, *what, *where, literal)

    def _unchecked(self, name: str) -> str:
        """Another name of an atomic function, which the checked mode does not know."""
        other = name.replace("atomic_", "lab_")
        self.program.externs[other] = self.program.externs[name]
        if name in self.program.ordered:
            self.program.ordered.add(other)
        return other

    def _where(self, kind: str, node: ast.Subscript) -> list[ast.expr]:
        array = self.array_type(node.value)
        number = self.site(kind, node, ast.unparse(node.value), itemsize(array.dtype))
        return [load(HEAD), const(number), self.path, self.who]

    def _index(self, index: ast.expr) -> tuple[ast.expr, ast.expr]:
        """(the index as a tuple of int64, whether a minus sign in it is meant to wrap)."""
        parts = self._parts(index)
        literal = any((constant(p) or 0) < 0 for p in parts)
        int64 = self.program.extern(types.int64, "int64")
        new: list[ast.expr] = [call(int64, self.visit(part)) for part in parts]
        return ast.Tuple(new, ast.Load()), const(literal)

    def _parts(self, index: ast.expr) -> list[ast.expr]:
        if isinstance(index, ast.Tuple):
            return index.elts
        kind = self.kinds.get(index.id) if isinstance(index, ast.Name) else None
        if isinstance(kind, types.BaseTuple):
            return [ast.Subscript(index, const(k), ast.Load()) for k in range(len(kind))]
        return [index]

    def _is_shared(self, array: ast.expr) -> bool:
        """Whether an expression is a part of an array that threads may share."""
        while isinstance(array, ast.Subscript):
            array = array.value
        return isinstance(array, ast.Name) and array.id not in self.unrecorded

    def _is_recorded(self, array: ast.expr) -> bool:
        kind = self.array_type(array)
        numbers = kind is not None and not isinstance(kind.dtype, types.Record)
        return numbers and self._is_shared(array)

    def is_element(self, node: ast.Subscript) -> bool:
        """Whether a subscript is one element of an array that threads may share."""
        if not self._is_recorded(node.value):
            return False
        parts = self._parts(node.slice)
        positions = not any(
            isinstance(p, ast.Slice) or (isinstance(p, ast.Constant) and type(p.value) is not int)
            for p in parts
        )
        return positions and len(parts) == self.array_type(node.value).ndim

    def array_type(self, node: ast.expr) -> types.Array | None:
        """The type of an expression that is an array, else None."""
        if isinstance(node, ast.Name):
            kind = self.kinds.get(node.id)
            return kind if isinstance(kind, types.Array) else None
        if isinstance(node, ast.Subscript):
            base = self.array_type(node.value)
            if base is not None:
                parts = self._parts(node.slice)
                taken = sum(not isinstance(part, ast.Slice) for part in parts)
                if taken < base.ndim:
                    return base.copy(ndim=base.ndim - taken)
        return None

    # -- floating-point operations -----------------------------------------------------------

    def operations(self, stmt: ast.stmt) -> int:
        """How many a statement itself does in one thread: + - * / and functions count one each,
        a fused multiply-add two; comparisons, conversions, min, max and signs none. Of a
        conditional expression the longer side counts."""
        return sum(map(self._operations, expressions(stmt)))

    def _operations(self, node: ast.AST) -> int:
        if isinstance(node, ast.IfExp):
            sides = max(self._operations(node.body), self._operations(node.orelse))
            return self._operations(node.test) + sides
        count = sum(map(self._operations, ast.iter_child_nodes(node)))
        if isinstance(node, ast.BinOp) and isinstance(node.op, _ARITHMETIC):
            return count + self.is_float(node)
        if isinstance(node, ast.Call):
            return count + self._of_call(node)
        return count

    def _of_call(self, node: ast.Call) -> int:
        name = getattr(node.func, "id", "")
        value = self.program.externs.get(name)
        if value is None or isinstance(value, types.Type) or "atomic_" in name:
            return 0
        if not any(map(self.is_float, node.args)):
            return 0
        label = getattr(value, "__name__", name)
        if any(word in label for word in ("min", "max", "abs", "isnan", "isinf", "selp")):
            return 0
        return 2 if "fma" in label else 1

    def is_float(self, node: ast.expr) -> bool:
        match node:
            case ast.Constant():
                return isinstance(node.value, float | complex)
            case ast.Name():
                return _is_float(self.kinds.get(node.id))
            case ast.BinOp():
                either = self.is_float(node.left) or self.is_float(node.right)
                return either or isinstance(node.op, ast.Div)
            case ast.UnaryOp():
                return not isinstance(node.op, ast.Not) and self.is_float(node.operand)
            case ast.IfExp():
                return self.is_float(node.body) or self.is_float(node.orelse)
            case ast.Attribute() | ast.Subscript():
                array = self.array_type(node.value) if isinstance(node, ast.Subscript) else None
                field = self._field(node)
                return _is_float(field.type if field else getattr(array, "dtype", None))
            case ast.Call():
                value = self.program.externs.get(getattr(node.func, "id", ""))
                if isinstance(value, types.Type):
                    return _is_float(value)
                return any(map(self.is_float, node.args))
        return False


def _is_float(kind: types.Type | None) -> bool:
    return isinstance(kind, types.Float | types.Complex) or str(kind) in ("float16", "bfloat16")
