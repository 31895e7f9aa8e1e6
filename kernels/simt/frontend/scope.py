"""The scope of a function that is being translated, and the interface of its translator."""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from types import FunctionType
from typing import Any, Self

from kernels.simt.frontend import resolve, source
from kernels.simt.frontend.resolve import DYNAMIC
from kernels.simt.ir.nodes import load
from kernels.simt.ir.program import Program
from kernels.support.errors import CompileError, Unstructured

# Syntax that numba-cuda rejects, whatever the types.
_ARRAYS_INSTEAD = "a kernel cannot allocate memory; use a tuple, or a cuda.local.array"
_NOT_ON_CUDA: dict[type, str] = {
    **dict.fromkeys((ast.List, ast.Dict, ast.Set), _ARRAYS_INSTEAD),
    **dict.fromkeys((ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp), "write a loop"),
    **dict.fromkeys((ast.Try, ast.TryStar), "a kernel cannot catch exceptions"),
    **dict.fromkeys((ast.MatchSequence, ast.MatchMapping, ast.MatchClass), "match numbers"),
    **dict.fromkeys((ast.Import, ast.ImportFrom), "import at the top of the file"),
    **dict.fromkeys((ast.JoinedStr,), "print takes several values: print(i, x)"),
    **dict.fromkeys((ast.With, ast.AsyncWith, ast.AsyncFor, ast.ClassDef, ast.Delete), ""),
    **dict.fromkeys((ast.Yield, ast.YieldFrom, ast.Await), ""),
}


_NESTED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def _own(tree: ast.FunctionDef) -> Iterator[ast.AST]:
    """The nodes of a function without those of the functions defined in it."""
    todo: list[ast.AST] = list(tree.body)
    while todo:
        node = todo.pop()
        yield node
        if not isinstance(node, _NESTED):
            todo += ast.iter_child_nodes(node)


def assigned_names(tree: ast.FunctionDef) -> dict[str, int]:
    """How often each local name of a function is assigned; loop variables count as two."""
    counts: dict[str, int] = {}

    def count(name: str) -> None:
        counts[name] = counts.get(name, 0) + 1

    for node in _own(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            count(node.id)
        if isinstance(node, ast.FunctionDef):
            count(node.name)
        if isinstance(node, ast.For):
            for name in ast.walk(node.target):
                if isinstance(name, ast.Name):
                    count(name.id)
    return counts


@dataclass(frozen=True)
class Closure:
    """A function that a kernel defines: a lambda, or a `def` inside of it."""

    tree: ast.FunctionDef
    scope: Scope


class Scope:
    """The names of one function of the program.

    A `closure` is translated where it is called: its free names are variables of `closure.scope`
    as they are then, and its source and globals are those of the function around it.
    """

    def __init__(
        self,
        program: Program,
        func: FunctionType,
        stack: tuple = (),
        closure: Closure | None = None,
    ) -> None:
        self.program = program
        self.func = func
        self.source = source.of(func)
        self.stack = (*stack, closure or func)  # the functions that are being inlined
        self.tree = closure.tree if closure else self.source.tree
        self.outer = closure.scope if closure else None
        self.names: dict[str, ast.expr] = {}
        self.statics: dict[str, Any] = {}
        self.integers: dict[str, Any] = {}  # locals assigned once, to a constant
        self.assigned = assigned_names(self.tree)
        self.splices = any(isinstance(node, ast.Starred) for node in _own(self.tree))

    def is_local(self, name: str) -> bool:
        """Whether `name` belongs to this function, not to one around it."""
        return name in self.statics or name in self.names or name in self.assigned

    def integer(self, name: str) -> Any:
        """The number, or tuple of numbers, that a local name is bound to for good; or DYNAMIC."""
        if name in self.integers or self.outer is None or self.is_local(name):
            return self.integers.get(name, DYNAMIC)
        return self.outer.integer(name)

    def where(self, node: ast.AST) -> str:
        return f"{self.source.filename}:{getattr(node, 'lineno', '?')}"

    def error(self, node: ast.AST, message: str) -> CompileError:
        line = self.source.line(getattr(node, "lineno", 0))
        return CompileError(f"{self.where(node)}: {message}\n    {line}")

    def uncompiled(self, node: ast.AST) -> CompileError:
        """The error for syntax that the normal form lacks: Unstructured where numba-cuda compiles
        it (a lambda, a nested function), so that the interpreter may run the kernel."""
        nodes = (n for n in ast.walk(self.tree) if type(n) in _NOT_ON_CUDA)
        refused = (n for n in nodes if not isinstance(getattr(n, "ctx", None), ast.Store))
        if (found := next(refused, None)) is not None:
            fix = _NOT_ON_CUDA[type(found)]
            what = f"{type(found).__name__} has no CUDA equivalent"
            return self.error(found, f"{what}: {fix}" if fix else what)
        return Unstructured(str(self.error(node, f"{type(node).__name__} is not compiled")))

    def variable(self, name: str) -> str:
        """The normal form's name of the local variable `name`."""
        known = self.names.get(name)
        if known is None:
            known = self.names[name] = load(self.program.fresh(name.split()[-1]))
        if not isinstance(known, ast.Name):
            raise CompileError(f"{self.source.filename}: {name!r} is a constant and is assigned")
        return known.id

    def static(self, node: ast.expr) -> Any:
        """The object that `node` denotes at compile time, or DYNAMIC."""
        match node:
            case ast.Constant():
                return node.value
            case ast.JoinedStr(values=parts) if all(isinstance(p, ast.Constant) for p in parts):
                return "".join(part.value for part in parts)
            case ast.Name(id=name):
                if name in self.statics:
                    return self.statics[name]
                if name in self.names or name in self.assigned:
                    return DYNAMIC
                if self.outer is not None:
                    return self.outer.static(node)
                return resolve.lookup(self.func, name)
            case ast.Lambda():
                return Closure(source.from_lambda(node, self.source.filename), self)
            case ast.Attribute(value=base, attr=attr):
                value = self.static(base)
                if value is DYNAMIC:
                    return DYNAMIC
                return resolve.attribute(value, attr, self.where(node))
            case ast.Call(func=function, args=[]):
                made = self.static(function)
                if made is not DYNAMIC and resolve.canonical(made) == "cg.this_grid":
                    return resolve.GRID_GROUP
            case ast.Subscript(value=base, slice=index):
                value, key = self.static(base), self.static(index)
                if isinstance(value, tuple) and isinstance(key, int):
                    return value[key]
        return DYNAMIC


class Translator(Scope, ABC):
    """What `calls`, `declare` and `patterns` ask of the function around them.

    `frontend.Normaliser` implements it; expressions contain calls, and calls expressions.
    """

    out: list[ast.stmt]  # where the statements go that are translated now
    declaring: str  # the name that an array declared now is assigned to, or ""
    separate: object = None  # the function, compiled on its own, to which this code belongs

    def inner(self, func: FunctionType | Closure, stack: tuple = ()) -> Self:
        """A translator of a function that this one calls."""
        if isinstance(func, Closure):
            return type(self)(self.program, func.scope.func, stack, func)
        return type(self)(self.program, func, stack)

    @abstractmethod
    def block(self, body: list[ast.stmt]) -> list[ast.stmt]:
        """The normal form of a statement list."""

    @abstractmethod
    def expr(self, node: ast.expr) -> ast.expr:
        """The normal form of an expression; what must run before it goes to `self.out`."""

    @abstractmethod
    def sequence(self, nodes: list[ast.expr]) -> list[ast.expr]:
        """Expressions evaluated left to right, around the statements that some of them need."""

    @abstractmethod
    def lengths(self, value: ast.expr) -> list[ast.expr] | None:
        """The items of a value that is known to be a tuple of so many; None for others."""

    @abstractmethod
    def materialise(self, value: Any, node: ast.expr) -> ast.expr:
        """Syntax for an object known at compile time."""

    @abstractmethod
    def once(self, target: ast.expr) -> bool:
        """Whether `target` is a local name that is assigned here only."""

    @abstractmethod
    def save(self, value: ast.expr, at: ast.AST) -> ast.expr:
        """`value` in a variable of its own."""

    @abstractmethod
    def stable(self, value: ast.expr, at: ast.AST, names: bool = False) -> ast.expr:
        """`value` such that evaluating it twice, or later, gives the same."""

    @abstractmethod
    def hoists(self, node: ast.AST) -> bool:
        """Whether evaluating `node` needs statements of its own (a collective, an inlined call)."""
