"""The scope of a function that is being translated, and the interface of its translator."""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
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


def assigned_names(tree: ast.FunctionDef) -> dict[str, int]:
    """How often each local name of a function is assigned; loop variables count as two."""
    counts: dict[str, int] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            counts[node.id] = counts.get(node.id, 0) + 1
        if isinstance(node, ast.For):
            for name in ast.walk(node.target):
                if isinstance(name, ast.Name):
                    counts[name.id] = counts.get(name.id, 0) + 1
    return counts


class Scope:
    """The names of one function of the program."""

    def __init__(self, program: Program, func: FunctionType, stack: tuple = ()) -> None:
        self.program = program
        self.func = func
        self.source = source.of(func)
        self.stack = (*stack, func)  # the functions that are being inlined
        self.names: dict[str, ast.expr] = {}
        self.statics: dict[str, Any] = {}
        self.integers: dict[str, Any] = {}  # locals assigned once, to a constant
        self.assigned = assigned_names(self.source.tree)

    def where(self, node: ast.AST) -> str:
        return f"{self.source.filename}:{getattr(node, 'lineno', '?')}"

    def error(self, node: ast.AST, message: str) -> CompileError:
        line = self.source.line(getattr(node, "lineno", 0))
        return CompileError(f"{self.where(node)}: {message}\n    {line}")

    def uncompiled(self, node: ast.AST) -> CompileError:
        """The error for syntax that the normal form lacks: Unstructured where numba-cuda compiles
        it (a lambda, a nested function), so that the interpreter may run the kernel."""
        nodes = (n for n in ast.walk(self.source.tree) if type(n) in _NOT_ON_CUDA)
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
            known = self.names[name] = load(self.program.fresh(name))
        if not isinstance(known, ast.Name):
            raise CompileError(f"{self.source.filename}: {name!r} is a constant and is assigned")
        return known.id

    def static(self, node: ast.expr) -> Any:
        """The object that `node` denotes at compile time, or DYNAMIC."""
        match node:
            case ast.Constant():
                return node.value
            case ast.Name(id=name):
                if name in self.statics:
                    return self.statics[name]
                if name in self.names or name in self.assigned:
                    return DYNAMIC
                return resolve.lookup(self.func, name)
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

    def inner(self, func: FunctionType, stack: tuple = ()) -> Self:
        """A translator of a function that this one calls."""
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
    def materialise(self, value: Any, node: ast.expr) -> ast.expr:
        """Syntax for an object known at compile time."""

    @abstractmethod
    def save(self, value: ast.expr, at: ast.AST) -> ast.expr:
        """`value` in a variable of its own."""

    @abstractmethod
    def stable(self, value: ast.expr, at: ast.AST, names: bool = False) -> ast.expr:
        """`value` such that evaluating it twice, or later, gives the same."""

    @abstractmethod
    def hoists(self, node: ast.AST) -> bool:
        """Whether evaluating `node` needs statements of its own (a collective, an inlined call)."""
