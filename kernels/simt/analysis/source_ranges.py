"""Ranges of the integers in a function's source, with nothing inlined and no types known.

For the way to numba-cuda, which compiles the source itself; `ranges` serves the way to the CPU. A
range joins all values that are assigned to a variable, in whatever order (a least fixed point, with
widening). Sums of 64-bit integers are assumed not to overflow, and products outside of recurrences.
"""

from __future__ import annotations

import ast
import contextlib
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from numba.core import types

from kernels.simt.frontend import resolve
from kernels.simt.ir.nodes import names
from kernels.support.errors import CompileError


class Range(NamedTuple):
    """All integers from low to high; the ends may be infinite."""

    low: float
    high: float


TRUTH, SIZE = Range(0, 1), Range(0, 2**63 - 1)
_OF_THE_LAUNCH = {
    "threadIdx.x": Range(0, 1023),
    "threadIdx.y": Range(0, 1023),
    "threadIdx.z": Range(0, 63),
    "blockDim.x": Range(1, 1024),
    "blockDim.y": Range(1, 1024),
    "blockDim.z": Range(1, 64),
    "blockIdx.x": Range(0, 2**31 - 2),
    "blockIdx.y": Range(0, 65534),
    "blockIdx.z": Range(0, 65534),
    "gridDim.x": Range(1, 2**31 - 1),
    "gridDim.y": Range(1, 65535),
    "gridDim.z": Range(1, 65535),
    "laneid": Range(0, 31),
    "warpsize": Range(32, 32),
}
_COORDINATES = ("grid", "gridsize")
_UNKNOWN = (
    ast.Lambda, ast.NamedExpr, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp,
    ast.FunctionDef, ast.ClassDef, ast.Global, ast.Nonlocal, ast.With, ast.Match, ast.Try,
)  # fmt: skip
_ROUNDS = 4  # before ends that still move become infinite


class _NotAssigned(Exception):
    """The value depends on a variable of which no value is known so far."""


class SourceRanges:
    """`of(expr)`: the range of an expression of `function`, the tree of `func`; None if unknown."""

    def __init__(self, func: Any, function: ast.FunctionDef) -> None:
        self.func = func
        arguments = function.args
        parameters = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        self.values: dict[str, list[ast.expr | Range | None]] = {a.arg: [None] for a in parameters}
        self.known: dict[str, Range | None] = {}
        self.assumed: set[str] = set()  # names that are not negative where the reader is
        nodes = [node for statement in function.body for node in ast.walk(statement)]
        unknown = arguments.vararg or arguments.kwarg or any(isinstance(n, _UNKNOWN) for n in nodes)
        self.understood = not unknown
        if self.understood:
            for name, value in (pair for node in nodes for pair in self._assigned(node)):
                self.values.setdefault(name, []).append(value)
            self._solve()

    @contextlib.contextmanager
    def assuming(self, names: set[str]) -> Iterator[None]:
        """Within this context, `names` are not negative."""
        before = self.assumed
        self.assumed = before | names
        yield
        self.assumed = before & self.assumed  # without what was assigned meanwhile

    @contextlib.contextmanager
    def assuming_nothing(self) -> Iterator[None]:
        before, self.assumed = self.assumed, set()
        yield
        self.assumed = before

    def of(self, node: ast.expr) -> Range | None:
        try:
            return self._of(node) if self.understood else None
        except _NotAssigned:  # never reached
            return None

    def _assigned(self, node: ast.AST) -> Iterator[tuple[str, ast.expr | Range | None]]:
        """What a statement assigns to names."""
        match node:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    yield from self._bound(target, value)
            case ast.AnnAssign(target=ast.Name(id=name), value=value):
                yield name, value
            case ast.AugAssign(target=ast.Name(id=name), op=op, value=value):
                yield name, ast.BinOp(ast.Name(name, ast.Load()), op, value)
            case ast.For(target=target, iter=ast.Tuple(elts=values)):
                for value in values:
                    yield from self._bound(target, value)
            case ast.For(target=ast.Name(id=name), iter=values):
                yield name, values  # a range, if known
            case ast.For(target=target):
                yield from self._bound(target, None)

    def _bound(self, target: ast.expr, value: Any) -> Iterator[tuple[str, Any]]:
        match target, value:
            case ast.Name(id=name), _:
                yield name, value
            case (ast.Tuple(elts=targets), ast.Tuple(elts=values)) if len(targets) == len(values):
                for one, its in zip(targets, values):
                    yield from self._bound(one, its)
            case ast.Tuple(), ast.IfExp(body=body, orelse=orelse):
                yield from self._bound(target, body)
                yield from self._bound(target, orelse)
            case ast.Tuple(elts=targets), _:
                sizes = isinstance(value, ast.Attribute) and value.attr == "shape"
                sizes = sizes or self._called(value) in _COORDINATES
                for one in targets:
                    yield from self._bound(one, SIZE if sizes else None)

    def _solve(self) -> None:
        for name in self.values:
            if self._multiplies_itself(name):
                self.known[name] = None
        before, rounds = None, 0
        while self.known != before:
            before, rounds = dict(self.known), rounds + 1
            for name, values in self.values.items():
                for value in values:
                    self._assign(name, value, rounds > _ROUNDS)

    def _assign(self, name: str, value: ast.expr | Range | None, widen: bool) -> None:
        """Adds what `value` may be to the range of a variable."""
        try:
            found = self._of(value) if isinstance(value, ast.expr) else value
        except _NotAssigned:
            return
        before = self.known.get(name, found)
        after = _joined(before, found)
        self.known[name] = _widened(before, after) if widen and before and after else after

    def _multiplies_itself(self, name: str) -> bool:
        """Whether `name` is computed from itself by way of a product (a hash, a power)."""
        seen: set[tuple[str, bool]] = set()
        todo = [(name, False)]
        while todo:
            current, grows = todo.pop()
            for value in self.values.get(current, ()):
                if not isinstance(value, ast.expr):
                    continue
                operators = {type(n.op) for n in ast.walk(value) if isinstance(n, ast.BinOp)}
                growing = grows or bool(operators & {ast.Mult, ast.LShift, ast.Pow})
                for other in names(value) & set(self.values):
                    if other == name and growing:
                        return True
                    if (other, growing) not in seen:
                        seen.add((other, growing))
                        todo.append((other, growing))
        return False

    def _object(self, node: ast.expr) -> Any:
        """What a name or attribute of a module stands for, or DYNAMIC."""
        match node:
            case ast.Name(id=name) if name not in self.values:
                return resolve.lookup(self.func, name)
            case ast.Attribute(value=value, attr=attr):
                base = self._object(value)
                if base is not resolve.DYNAMIC:
                    with contextlib.suppress(CompileError):
                        return resolve.attribute(base, attr, "")
        return resolve.DYNAMIC

    def _called(self, node: ast.AST | None) -> str | None:
        """The CUDA name of the function that `node` calls."""
        called = self._object(node.func) if isinstance(node, ast.Call) else resolve.DYNAMIC
        return None if called is resolve.DYNAMIC else resolve.canonical(called)

    def _of(self, node: ast.expr) -> Range | None:
        match node:
            case ast.Constant(value=int(value)):
                return Range(int(value), int(value))
            case ast.Name(id=name) if name in self.values:
                if name not in self.known:
                    raise _NotAssigned(name)
                known = self.known[name]
                if name in self.assumed:
                    low, high = known or Range(0, math.inf)
                    return Range(max(low, 0), max(high, 0))
                return known
            case ast.Attribute(value=ast.Name(id=name), attr="size") if name in self.values:
                return SIZE
            case ast.Name() | ast.Attribute():
                return self._constant(self._object(node))
            case ast.Subscript(value=ast.Attribute(value=ast.Name(id=name), attr="shape")):
                return SIZE if name in self.values else None
            case ast.Compare() | ast.UnaryOp(op=ast.Not()):
                return TRUTH
            case ast.BoolOp(values=values):
                return _joined(*map(self._of, values))
            case ast.IfExp(body=body, orelse=orelse):
                return _joined(self._of(body), self._of(orelse))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                inner = self._of(operand)
                return inner and Range(-inner.high, -inner.low)
            case ast.BinOp(left=left, op=op, right=right):
                return _computed(self._of(left), op, self._of(right))
            case ast.Call(keywords=[]):
                return self._result(node)
        return None

    def _constant(self, value: Any) -> Range | None:
        if isinstance(value, int):
            return Range(int(value), int(value))
        if value is resolve.DYNAMIC:
            return None
        return _OF_THE_LAUNCH.get(resolve.canonical(value) or "")

    def _result(self, call: ast.Call) -> Range | None:
        called = self._object(call.func)
        if called is range:
            return self._counted(call.args)
        if called is len or self._called(call) in _COORDINATES:
            return SIZE
        if called in (min, max) and len(call.args) > 1:
            found = [self._of(a) for a in call.args]
            return None if None in found else Range(*map(called, zip(*found)))
        if isinstance(called, types.Integer) and len(call.args) == 1:
            inner, all_of = self._of(call.args[0]), Range(called.minval, called.maxval)
            fits = inner and all_of.low <= inner.low and inner.high <= all_of.high
            return inner if fits else all_of
        return None

    def _counted(self, arguments: list[ast.expr]) -> Range | None:
        """The values of a loop over range(*arguments)."""
        ends = [self._of(a) for a in arguments]
        start = Range(0, 0) if len(ends) == 1 else ends[0]
        stop = ends[min(1, len(ends) - 1)]
        step = ends[2] if len(ends) == 3 else Range(1, 1)
        if step is None or start is None or step.low <= 0 <= step.high:
            return None
        if step.low > 0:
            high = math.inf if stop is None else stop.high - 1
            return Range(start.low, max(start.low, high))
        low = -math.inf if stop is None else stop.low + 1
        return Range(min(low, start.high), start.high)


def _joined(*ranges: Range | None) -> Range | None:
    known = [r for r in ranges if r is not None]
    if len(known) < len(ranges):
        return None
    return Range(min(r.low for r in known), max(r.high for r in known))


def _widened(before: Range, after: Range) -> Range:
    low = after.low if after.low == before.low else -math.inf
    return Range(low, after.high if after.high == before.high else math.inf)


def _computed(a: Range | None, op: ast.operator, b: Range | None) -> Range | None:
    if isinstance(op, ast.BitAnd):
        ends = [r.high for r in (a, b) if r is not None and r.low >= 0]
        return Range(0, min(ends)) if ends else None
    if isinstance(op, ast.Mod) and b is not None and b.low >= 0:  # by 0 is an error
        high = max(b.high - 1, 0)
        return Range(0, min(high, a.high) if a is not None and a.low >= 0 else high)
    if a is None or b is None:
        return None
    natural = a.low >= 0 and b.low >= 0
    match op:
        case ast.Add():
            return Range(a.low + b.low, a.high + b.high)
        case ast.Sub():
            return Range(a.low - b.high, a.high - b.low)
        case ast.Mult():
            ends = [_product(x, y) for x in a for y in b]
            return Range(min(ends), max(ends))
        case ast.FloorDiv() if natural:
            return Range(0, a.high if math.isinf(a.high) else a.high // max(b.low, 1))
        case ast.RShift() if natural:
            return Range(0, a.high)
        case ast.BitOr() | ast.BitXor() if natural and not math.isinf(a.high + b.high):
            return Range(0, 2 ** max(int(a.high).bit_length(), int(b.high).bit_length()) - 1)
    return None


def _product(x: float, y: float) -> float:
    return 0 if 0 in (x, y) else x * y
