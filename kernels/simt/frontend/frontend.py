"""From a Python function to the normal form.

In the normal form every name is either a variable of the kernel (renamed, so that inlined
functions do not collide) or an underscore name of the compiler; device functions with collectives
are inlined; a collective, and whatever must be evaluated before it, is a statement of its own;
tuple assignments are split. Types are not known yet.
"""

from __future__ import annotations

import ast
import copy
import enum
import functools
import operator
import random
from types import FunctionType
from typing import Any

import numpy as np
from numba.core import types

from kernels.simt.device import arrays
from kernels.simt.devlib import lookup
from kernels.simt.frontend import calls, declare, iteration, patterns, resolve, source, vectors
from kernels.simt.frontend.resolve import DYNAMIC
from kernels.simt.frontend.scope import Closure, Translator
from kernels.simt.frontend.structure import FlaggedBreaks, lower_returns
from kernels.simt.ir.nodes import (
    Collective,
    Loop,
    assign,
    binary,
    call,
    clone,
    const,
    load,
    located,
    negate,
    nodes_in,
    store,
    used,
)
from kernels.simt.ir.program import Program, field_names
from kernels.simt.ir.safety import Safety
from kernels.support.errors import CompileError

_FOLD = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Div: operator.truediv,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
    ast.Pow: operator.pow,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
}


_OF_ARRAYS = {"shape", "size", "ndim", "nbytes", "strides"}
# A number has no identity in a kernel: members of an IntEnum are compared by their values
_IS = {ast.Is: ast.Eq, ast.IsNot: ast.NotEq}


def _is_number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) in (int, float)


def build(
    func: FunctionType, block: tuple[int, int, int], kinds: dict[str, types.Type], safety: Safety
) -> Program:
    """The Program of kernel `func` for threads in a `block`; `kinds` are its parameters' types."""
    text = source.of(func)
    if func.__name__ == "<lambda>":
        where = f"{text.filename}:{text.first_line}"
        raise CompileError(f"{where}: a lambda cannot store anything; define the kernel by `def`")
    program = Program(func.__name__, text.filename, text.first_line, block, safety)
    normaliser = Normaliser(program, func)
    arguments = text.tree.args
    for arg in arguments.posonlyargs + arguments.args + arguments.kwonlyargs:
        name = program.fresh(arg.arg)
        program.params.append(name)
        unchanged, kind = arg.arg not in normaliser.assigned, kinds[arg.arg]
        program.fields |= field_names(kind)
        if unchanged and isinstance(kind, types.Array):
            program.given[name] = kind
        if unchanged and isinstance(kind, types.BaseTuple):
            program.tuples[name] = len(kind)
        if unchanged and isinstance(kind, types.NoneType):
            normaliser.statics[arg.arg] = None
        else:
            normaliser.names[arg.arg] = load(name)
    body = normaliser.block(text.tree.body)
    for stmt in nodes_in(ast.Module(body, [])):
        if isinstance(stmt, ast.Return) and stmt.value is not None:
            value = stmt.value
            if not (isinstance(value, ast.Constant) and value.value is None):
                raise CompileError(
                    f"{text.filename}:{stmt.lineno}: kernel {func.__name__!r} returns a value;"
                    " a kernel must write its result into an array"
                )
            stmt.value = None
    vectors.refuse_others(normaliser, body)
    program.returned = program.fresh("returned")
    program.body = lower_returns(body, program.returned, lambda stmt: [])
    return program


class Normaliser(Translator):
    """Rewrites one function's body; inlined functions get a Normaliser of their own."""

    def __init__(
        self,
        program: Program,
        func: FunctionType,
        stack: tuple = (),
        closure: Closure | None = None,
    ) -> None:
        super().__init__(program, func, stack, closure)
        self.out: list[ast.stmt] = []
        self.declaring = ""
        self.enumerations: dict[str, type | None] = {}  # whose members local names are
        self._hoists: dict[int, bool] = {}

    def materialise(self, value: Any, node: ast.expr) -> ast.expr:
        literal = resolve.number(value)
        if literal is not None:
            return located(literal, node)
        name = resolve.canonical(value)
        if name is not None:
            return located(calls.special(self, name, node), node)
        if isinstance(value, np.ndarray):
            return located(load(self.program.constant_array(value)), node)
        if arrays.is_cuda_array(value) and not isinstance(value, np.ndarray):
            return located(
                load(self.program.captured_array(arrays.as_cuda_array(value).memory)), node
            )
        if isinstance(value, np.generic):
            kind = self.program.extern(
                resolve.dtype_of(value.dtype, self.where(node)), value.dtype.name
            )
            return located(call(kind, const(value.item())), node)
        if isinstance(value, tuple) and type(value) is tuple:
            return located(ast.Tuple([self.materialise(v, node) for v in value], ast.Load()), node)
        if isinstance(getattr(value, "__self__", None), random.Random | np.random.RandomState):
            raise self.error(node, "a kernel draws random numbers with cuda.random's xoroshiro128p")
        if isinstance(value, list | dict | set):
            raise self.error(
                node, f"a global {type(value).__name__} means nothing in a kernel: make it a tuple,"
                " or an array"
            )  # fmt: skip
        if isinstance(value, Closure):
            raise self.error(
                node, "a function defined in a kernel can be called, or passed to a device function"
            )
        value = lookup.replacement(value)
        if getattr(value, "__module__", None) == "builtins":
            return located(load(value.__name__), node)
        hint = getattr(value, "__name__", None) or str(value)
        return located(load(self.program.extern(value, hint)), node)

    # -- statements ------------------------------------------------------------------------

    def block(self, body: list[ast.stmt]) -> list[ast.stmt]:
        outer, self.out = self.out, []
        for stmt in body:
            handler = getattr(self, "stmt_" + type(stmt).__name__, None)
            if handler is None:
                raise self.uncompiled(stmt)
            handler(stmt)
            if isinstance(stmt, ast.Return | ast.Break | ast.Continue | ast.Raise):
                break
        result, self.out = self.out, outer
        return result

    def emit(self, stmt: ast.stmt, at: ast.AST) -> None:
        self.out.append(located(stmt, at))

    def stmt_Expr(self, stmt: ast.Expr) -> None:
        if isinstance(stmt.value, ast.Constant):
            return  # a docstring
        if self.static(stmt.value) is resolve.GRID_GROUP:
            return
        value = calls.statement(self, stmt.value) if isinstance(stmt.value, ast.Call) else None
        if value is calls.DONE:
            return
        value = self.expr(stmt.value) if value is None else value
        if not isinstance(value, ast.Name | ast.Constant | ast.Tuple):
            self.emit(ast.Expr(value), stmt)

    def stmt_Pass(self, stmt: ast.Pass) -> None:
        return

    def stmt_FunctionDef(self, stmt: ast.FunctionDef) -> None:
        if stmt.decorator_list or self.assigned[stmt.name] > 1:
            raise self.uncompiled(stmt)
        self.statics[stmt.name] = Closure(stmt, self)

    def stmt_Global(self, stmt: ast.Global) -> None:
        if changed := [name for name in stmt.names if name in self.assigned]:
            raise self.error(
                stmt, f"a kernel cannot assign the global {changed[0]!r}: use an array"
            )

    def stmt_Break(self, stmt: ast.stmt) -> None:
        self.emit(type(stmt)(), stmt)

    stmt_Continue = stmt_Break

    def stmt_Return(self, stmt: ast.Return) -> None:
        value = None if stmt.value is None else self.expr(stmt.value)
        self.emit(ast.Return(value), stmt)

    def stmt_Raise(self, stmt: ast.Raise) -> None:
        """On CUDA an exception only ends its thread; with debug it reaches the host. It does so
        here, too, from a function that is compiled on its own, which cannot end the thread."""
        if not self.program.debug and not self.separate:
            self.emit(ast.Return(None), stmt)
            return
        self.emit(ast.Raise(self.expr(stmt.exc) if stmt.exc else None, None), stmt)

    def stmt_Assert(self, stmt: ast.Assert) -> None:
        test = self.expr(stmt.test)
        text = stmt.msg if isinstance(stmt.msg, ast.Constant) else const(ast.unparse(stmt.test))
        failure: ast.stmt = ast.Return(None)
        if self.program.debug or self.separate:
            failure = ast.Raise(call("AssertionError", const(str(text.value))), None)
        self.emit(ast.If(negate(test), [located(failure, stmt)], []), stmt)

    def stmt_AnnAssign(self, stmt: ast.AnnAssign) -> None:
        if stmt.value is not None:
            self.assign(stmt.target, stmt.value, stmt)

    def stmt_Assign(self, stmt: ast.Assign) -> None:
        if len(stmt.targets) == 1:
            self.assign(stmt.targets[0], stmt.value, stmt)
            return
        value = self.save(self.expr(stmt.value), stmt)
        for target in stmt.targets:
            self.note(target, declare.literal(self, stmt.value))
            self.store(target, value, stmt)

    def stmt_AugAssign(self, stmt: ast.AugAssign) -> None:
        target = stmt.target
        divides = calls.may_divide_by_zero(self, stmt)
        if isinstance(target, ast.Name):
            left = ast.copy_location(ast.Name(target.id, ast.Load()), target)
            self.assign(target, located(ast.BinOp(left, stmt.op, stmt.value), stmt), stmt)
            return
        base = self.expr(target.value)
        if isinstance(target, ast.Attribute):
            old: ast.expr = self.attribute(base, target.attr, ast.Load())
            new: ast.expr = self.attribute(base, target.attr, ast.Store())
        else:
            index = self.stable(self.expr(target.slice), stmt)
            old = located(ast.Subscript(base, index, ast.Load()), target)
            new = located(ast.Subscript(base, index, ast.Store()), target)
        if divides or self.hoists(stmt.value):
            old = self.save(old, stmt)
        value = self.expr(stmt.value)
        if divides:
            value = self.save(value, stmt)
            self.refuse_zero(value, stmt)
        self.emit(ast.Assign([new], located(ast.BinOp(old, stmt.op, value), stmt)), stmt)

    def assign(self, target: ast.expr, value: ast.expr, stmt: ast.stmt) -> None:
        """`target = value`: declarations and aliases of compile-time objects emit nothing."""
        self.note(target, declare.literal(self, value))
        if isinstance(target, ast.Name):
            known = self.static(value)
            if self.once(target):
                self.enumerations[target.id] = self.enumeration(value)
            if self.once(target) and calls.is_compile_time(known):
                self.statics[target.id] = known
                return
            bound = self.declared(target.id, value)
            if self.splices and self.once(target) and isinstance(bound, ast.Tuple):
                self.names[target.id] = self.stable(bound, stmt, names=True)  # for `*target`
                return
            is_name = not isinstance(bound, ast.Tuple) and self.lengths(bound) is not None
            if self.once(target) and is_name:
                self.names[target.id] = bound
                return
            self.bind(target.id, bound, stmt)
            return
        if isinstance(target, ast.Tuple | ast.List) and isinstance(value, ast.Tuple):
            target, value = calls.without_aliases(self, target, value)
            items = self.sequence(value.elts)
            self.unpack(target, items, stmt)
            return
        self.store(target, self.ordered(target, value, stmt), stmt)

    def once(self, target: ast.expr) -> bool:
        """Whether `target` is a local name that is assigned here only."""
        name = getattr(target, "id", None)
        return self.assigned.get(name) == 1 and name not in self.names

    def note(self, target: ast.expr, value: Any) -> None:
        """Remember a local integer (or tuple of them) that shapes may name."""
        if isinstance(target, ast.Tuple | ast.List) and isinstance(value, tuple):
            for item, part in zip(target.elts, value):
                self.note(item, part)
        elif self.once(target) and value is not DYNAMIC:
            self.integers[target.id] = value

    def declared(self, name: str, value: ast.expr) -> ast.expr:
        """`value`, where an array declared in it is called `name`."""
        self.declaring = name
        result = self.expr(value)
        self.declaring = ""
        return result

    def bind(self, name: str, value: ast.expr, stmt: ast.stmt) -> None:
        """`name = value`; names of arrays are aliases, and a collective writes to `name` itself."""
        arrays = {*self.program.arrays, *self.program.constants}
        named = value.id if isinstance(value, ast.Name) else None
        if named in arrays and self.once(load(name)):
            self.names[name] = value
            return
        if isinstance(value, vectors.Vector):
            vectors.bind(self, name, value, stmt)
            return
        variable = self.variable(name)
        last = self.out[-1] if self.out else None
        received = isinstance(last, Collective) and last.dest is not None and last.dest.id == named
        if received and variable not in used(last):
            last.dest = store(variable)
            return
        self.emit(assign(variable, value, stmt), stmt)

    def ordered(self, target: ast.expr, value: ast.expr, stmt: ast.stmt) -> ast.expr:
        """The value of `target = value`, evaluated before what is hoisted out of the target."""
        result = self.expr(value)
        return self.save(result, stmt) if self.hoists(target) else result

    def store(self, target: ast.expr, value: ast.expr, stmt: ast.stmt) -> None:
        match target:
            case ast.Name(id=name) if isinstance(value, vectors.Vector):
                vectors.bind(self, name, value, stmt)
            case ast.Name(id=name):
                self.emit(assign(self.variable(name), value, stmt), stmt)
            case ast.Tuple(elts=elts) | ast.List(elts=elts):
                items = self.lengths(value)
                if items is not None:
                    self.unpack(target, list(items), stmt)
                    return
                saved = self.save(value, stmt)
                for position, item in enumerate(elts):
                    part = located(ast.Subscript(saved, const(position), ast.Load()), stmt)
                    self.store(item, part, stmt)
            case ast.Subscript(value=array, slice=index):
                new = ast.Subscript(self.expr(array), self.expr(index), ast.Store())
                self.emit(ast.Assign([located(new, target)], value), stmt)
            case ast.Attribute(value=base, attr=attr):
                new = self.attribute(self.expr(base), attr, ast.Store())
                self.emit(ast.Assign([located(new, target)], value), stmt)
            case _:
                raise self.error(stmt, f"{type(target).__name__} is not a target on CUDA")

    def lengths(self, value: ast.expr) -> list[ast.expr] | None:
        """The items of `value` if it is a tuple that is known to be one: written here, a parameter
        or the shape of an array; None for other values."""
        match value:
            case ast.Tuple(elts=elts):
                return elts
            case ast.Name(id=name) if name in self.program.tuples:
                count = self.program.tuples[name]
            case ast.Attribute(value=ast.Name(id=name), attr="shape"):
                given, own = self.program.given.get(name), self.program.arrays.get(name)
                if given is not None:
                    count = given.ndim
                elif own is not None:
                    count = len(own.shape or (0,))
                else:
                    return None
            case _:
                return None
        return [ast.Subscript(clone(value), const(i), ast.Load()) for i in range(count)]

    def unpack(self, target: ast.Tuple | ast.List, items: list[ast.expr], stmt: ast.stmt) -> None:
        """`a, b = x, y`: the whole right side is evaluated before the first assignment."""
        if any(isinstance(element, ast.Starred) for element in target.elts):
            raise self.error(stmt, "numba-cuda has no starred target: take the items by index")
        if len(target.elts) != len(items):
            raise self.error(stmt, f"cannot unpack {len(items)} values into {len(target.elts)}")
        for position, element in enumerate(target.elts[:-1]):
            name = self.names.get(element.id) if isinstance(element, ast.Name) else None
            later = {
                n.id for i in items[position + 1 :] for n in ast.walk(i) if isinstance(n, ast.Name)
            }
            if not isinstance(element, ast.Name) or getattr(name, "id", None) in later:
                items = [self.stable(i, stmt, names=True) for i in items]
                break
        for element, item in zip(target.elts, items):
            self.store(element, item, stmt)

    def stmt_If(self, stmt: ast.If) -> None:
        test = self.expr(stmt.test)
        if isinstance(test, ast.Constant):
            self.out += self.block(stmt.body if test.value else stmt.orelse)
            return
        body, orelse = self.block(stmt.body), self.block(stmt.orelse)
        if not body and not orelse:
            return
        if not body:
            test, body, orelse = negate(test), orelse, []
        self.emit(ast.If(test, body, orelse), stmt)

    def stmt_Match(self, stmt: ast.Match) -> None:
        self.out += self.block(patterns.lowered(self, stmt))

    def loop_else(self, stmt: ast.For | ast.While) -> None:
        """`else` after a loop runs unless a `break` left the loop, which a flag records."""
        left = f"{id(stmt)} left"  # no identifier of the source can be this
        self.assigned[left] = 2
        new = FlaggedBreaks(left).visit(copy.deepcopy(stmt))
        test = ast.UnaryOp(ast.Not(), ast.Name(left, ast.Load()))
        otherwise, new.orelse = new.orelse, []
        start = ast.Assign([ast.Name(left, ast.Store())], const(False))
        self.names[left] = load(self.program.fresh("left"))
        for part in (start, new, ast.If(test, otherwise, [])):
            located(part, stmt)
            getattr(self, "stmt_" + type(part).__name__)(part)

    def stmt_While(self, stmt: ast.While) -> None:
        if stmt.orelse:
            self.loop_else(stmt)
            return
        outer, self.out = self.out, []
        test = self.expr(stmt.test)
        pre, self.out = self.out, outer
        if isinstance(test, ast.Constant) and not test.value and not pre:
            return
        loop = Loop(test, self.block(stmt.body))
        loop.pre = pre
        self.emit(loop, stmt)

    def stmt_For(self, stmt: ast.For) -> None:
        if stmt.orelse:
            self.loop_else(stmt)
            return
        iterable = stmt.iter
        if isinstance(iterable, ast.Call) and self.static(iterable.func) is range:
            self.for_range(stmt, self.sequence(iterable.args))
            return
        position = self.program.fresh("item")
        items = iteration.of(self, iterable)
        outer, self.out = self.out, []
        self.store(stmt.target, items.at(position), stmt)
        before, self.out = self.out, outer
        body = self.block(stmt.body)
        loop = ast.For(store(position), call("range", items.length), before + body, [])
        self.emit(loop, stmt)

    def for_range(self, stmt: ast.For, bounds: list[ast.expr]) -> None:
        if not isinstance(stmt.target, ast.Name):
            raise self.error(stmt, "a range is counted by one variable")
        counter = self.variable(stmt.target.id)
        self.emit(ast.For(store(counter), call("range", *bounds), self.block(stmt.body), []), stmt)

    # -- expressions -----------------------------------------------------------------------

    def save(self, value: ast.expr, at: ast.AST) -> ast.expr:
        if isinstance(value, ast.Name | ast.Constant):
            return value
        if isinstance(value, vectors.Vector):
            return self.stable(value, at)
        name = self.program.fresh("value")
        self.emit(assign(name, value, at), at)
        return load(name)

    def stable(self, value: ast.expr, at: ast.AST, names: bool = False) -> ast.expr:
        if isinstance(value, ast.Constant):
            return value
        if isinstance(value, ast.Name):
            if names and not value.id.startswith("_"):
                name = self.program.fresh("value")
                self.emit(assign(name, value, at), at)
                return load(name)
            return value
        if isinstance(value, ast.Tuple):
            parts = [self.stable(v, at, names) for v in value.elts]
            if isinstance(value, vectors.Vector):
                return vectors.of(value.kind, parts)
            return ast.Tuple(parts, ast.Load())
        if isinstance(value, ast.Slice):
            parts = [
                v and self.stable(v, at, names) for v in (value.lower, value.upper, value.step)
            ]
            return ast.Slice(*parts)
        return self.save(value, at)

    def hoists(self, node: ast.AST) -> bool:
        found = self._hoists.get(id(node))
        if found is None:
            found = any(calls.needs_statement(self, n) for n in nodes_in(node))
            self._hoists[id(node)] = found
        return found

    def sequence(self, nodes: list[ast.expr]) -> list[ast.expr]:
        last = max((i for i, node in enumerate(nodes) if self.hoists(node)), default=-1)
        result = []
        for position, node in enumerate(nodes):
            value = self.expr(node)
            result.append(self.stable(value, node) if position < last else value)
        return result

    def expr(self, node: ast.expr) -> ast.expr:
        if isinstance(node, ast.Name) and node.id in self.names:
            return self.names[node.id]
        value = self.static(node)
        if value is not DYNAMIC:
            return self.materialise(value, node)
        handler = getattr(self, "expr_" + type(node).__name__, None)
        if handler is None:
            raise self.uncompiled(node)
        return located(handler(node), node)

    def expr_Name(self, node: ast.Name) -> ast.expr:
        if node.id in self.assigned:
            return load(self.variable(node.id))
        if self.outer is not None:
            return self.outer.expr(node)
        raise self.error(node, f"name {node.id!r} is not defined")

    def expr_BinOp(self, node: ast.BinOp) -> ast.expr:
        left, right = self.sequence([node.left, node.right])
        folded = self.fold(node.op, left, right)
        if folded is None and calls.may_divide_by_zero(self, node):
            left, right = self.stable(left, node), self.save(right, node)
            self.refuse_zero(right, node)
        return folded or ast.BinOp(left, node.op, right)

    def refuse_zero(self, divisor: ast.expr, at: ast.AST) -> None:
        """Stop a debugged kernel by a ZeroDivisionError if `divisor` is zero, as on a GPU."""
        error = call("ZeroDivisionError", const("division by zero"))
        test = ast.Compare(divisor, [ast.Eq()], [const(0)])
        self.emit(ast.If(test, [located(ast.Raise(error, None), at)], []), at)

    def fold(self, op: ast.AST, left: ast.expr, right: ast.expr) -> ast.expr | None:
        """Constant folding of arithmetic on two Python constants."""
        function = _FOLD.get(type(op))
        if (
            function is None
            or not isinstance(left, ast.Constant)
            or not isinstance(right, ast.Constant)
        ):
            return None
        try:
            value = function(left.value, right.value)
        except (TypeError, ArithmeticError, ValueError):
            return None
        return resolve.number(value)

    def expr_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        operand = self.expr(node.operand)
        if isinstance(operand, ast.Constant):
            if isinstance(node.op, ast.Not):
                return const(not operand.value)
            if isinstance(node.op, ast.USub) and type(operand.value) in (int, float):
                return const(-operand.value)
        return ast.UnaryOp(node.op, operand)

    def expr_Compare(self, node: ast.Compare) -> ast.expr:
        values = self.sequence([node.left, *node.comparators])
        if len(values) == 2:
            if type(node.ops[0]) in _IS:
                of = [self.enumeration(part) for part in (node.left, node.comparators[0])]
                if None not in of and of[0] is not of[1]:
                    return const(isinstance(node.ops[0], ast.IsNot))
            if type(node.ops[0]) in _IS and any(map(_is_number, values)):
                node = ast.Compare(node.left, [_IS[type(node.ops[0])]()], node.comparators)
            folded = self.fold(node.ops[0], *values)
            if folded is not None:
                return folded
        return ast.Compare(values[0], node.ops, values[1:])

    def enumeration(self, node: ast.expr) -> type | None:
        """The IntEnum that an expression is a member of, where that is known."""
        match node:
            case ast.Name(id=name) if name in self.enumerations:
                return self.enumerations[name]
            case ast.IfExp(body=a, orelse=b):
                kind = self.enumeration(a)
                return kind if kind is self.enumeration(b) else None
        value = self.static(node)
        return type(value) if isinstance(value, enum.IntEnum) else None

    def expr_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        is_and = isinstance(node.op, ast.And)
        if any(self.hoists(value) for value in node.values[1:]):
            return self.short_circuit(node, is_and)
        values: list[ast.expr] = []
        for value in map(self.expr, node.values):
            if isinstance(value, ast.Constant) and isinstance(value.value, bool):
                if value.value != is_and:
                    values.append(value)
                    break  # short-circuit: the rest is not evaluated
                continue
            values.append(value)
        if not values:
            return const(is_and)
        return values[0] if len(values) == 1 else ast.BoolOp(node.op, values)

    def short_circuit(self, node: ast.BoolOp, is_and: bool) -> ast.expr:
        """`a and f()` where f() needs statements: `t = a; if t: t = f()`."""
        result = self.program.fresh("truth")
        self.emit(assign(result, self.expr(node.values[0]), node), node)
        body_of: list[ast.stmt] = self.out
        outer = self.out
        for value in node.values[1:]:
            self.out = []
            new = self.expr(value)
            self.emit(assign(result, new, node), node)
            test = load(result) if is_and else negate(load(result))
            branch = located(ast.If(test, self.out, []), node)
            body_of.append(branch)
            body_of = branch.body
        self.out = outer
        return load(result)

    def expr_IfExp(self, node: ast.IfExp) -> ast.expr:
        test = self.expr(node.test)
        if isinstance(test, ast.Constant):
            return self.expr(node.body if test.value else node.orelse)
        if not self.hoists(node.body) and not self.hoists(node.orelse):
            body, orelse = self.expr(node.body), self.expr(node.orelse)
            if vectors.are_alike([body, orelse]):
                return vectors.chosen(node, self.save(test, node), body, orelse)
            return ast.IfExp(test, body, orelse)
        result = f"{id(node)} choice"  # no identifier of the source can be this
        branches = []
        outer = self.out
        for branch in (node.body, node.orelse):
            self.out = []
            self.store(store(result), self.expr(branch), node)
            branches.append(self.out)
        self.out = outer
        self.emit(ast.If(test, *branches), node)
        return self.names[result]

    def expr_NamedExpr(self, node: ast.NamedExpr) -> ast.expr:
        value = self.expr(node.value)
        self.emit(assign(self.variable(node.target.id), value, node), node)
        return load(self.variable(node.target.id))

    def expr_Call(self, node: ast.Call) -> ast.expr:
        return calls.expression(self, node)

    def expr_Attribute(self, node: ast.Attribute) -> ast.expr:
        value = self.expr(node.value)
        if isinstance(value, vectors.Vector):
            return vectors.field(self, value, node)
        if node.attr == "bit_count":
            lookup.function("popc")  # what Numba lacks comes with the device functions
        return self.attribute(value, node.attr, ast.Load())

    def attribute(self, base: ast.expr, attr: str, ctx: ast.expr_context) -> ast.expr:
        """`base.attr`. A record's field with the name of an array's attribute is written
        `base["size"]`: for the passes, `base.size` is a number that nothing changes."""
        program = self.program
        arrays = {*program.given, *program.arrays, *program.constants}
        if attr in _OF_ARRAYS & program.fields and getattr(base, "id", None) not in arrays:
            return ast.Subscript(base, const(attr), ctx)
        return ast.Attribute(base, attr, ctx)

    def expr_Subscript(self, node: ast.Subscript) -> ast.expr:
        base, index = self.sequence([node.value, node.slice])
        if isinstance(base, ast.Tuple) and isinstance(index, ast.Constant):
            return base.elts[index.value]
        return ast.Subscript(base, index, ast.Load())

    def expr_Slice(self, node: ast.Slice) -> ast.expr:
        parts = iter(self.sequence([p for p in (node.lower, node.upper, node.step) if p]))
        return ast.Slice(*(next(parts) if p else None for p in (node.lower, node.upper, node.step)))

    def expr_Tuple(self, node: ast.Tuple) -> ast.expr:
        spliced = [isinstance(element, ast.Starred) for element in node.elts]
        values = self.sequence([e.value if isinstance(e, ast.Starred) else e for e in node.elts])
        parts: list[ast.expr] = [run := ast.Tuple([], ast.Load())]
        for value, is_spliced in zip(values, spliced):
            items = self.lengths(value) if is_spliced else [value]
            if items is None:  # as long as the back end finds it
                parts += [value, run := ast.Tuple([], ast.Load())]
            else:
                run.elts += items
        parts = [part for part in parts if getattr(part, "elts", None) != []] or parts[:1]
        return functools.reduce(lambda a, b: binary(a, ast.Add(), b), parts)
