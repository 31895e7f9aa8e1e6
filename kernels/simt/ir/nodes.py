"""The normal form of a kernel: Python's own AST, four nodes more, and helpers.

Names that start with an underscore belong to the compiler (`_tx`, `_bx`, `_float32`, ...); the
variables of the kernel never do, so the two cannot collide.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TypeVar

from kernels.simt.ir.hints import Hint

#: thread and block coordinates as they appear in the normal form
THREAD = ("_tx", "_ty", "_tz")
BLOCK = ("_bx", "_by", "_bz")
GRID = ("_gx", "_gy", "_gz")


_LEAVES = {ast.Name, ast.Constant}
_Node = TypeVar("_Node", bound=ast.AST)


class Collective(ast.stmt):
    """A collective operation of the threads of a block or warp: a barrier, shuffle or vote.

    `kind` is the CUDA name ("syncthreads", "shfl_down_sync", ...), `dest` the variable that
    receives the result in each thread, or None, and `args` what each thread contributes.
    """

    _fields = ("dest", "args")
    kind: str
    dest: ast.Name | None
    args: list[ast.expr]

    def __init__(self, dest: ast.Name | None, args: list[ast.expr]) -> None:
        self.dest, self.args = dest, args

    @property
    def result(self) -> str:
        """The variable that receives the result, of a collective that has one."""
        assert self.dest is not None
        return self.dest.id


class Loop(ast.While):
    """A `while` whose test needs statements before each evaluation: `pre; if not test: break`."""

    _fields = ("test", "body", "orelse", "pre")
    pre: list[ast.stmt]

    def __init__(self, test: ast.expr, body: list[ast.stmt]) -> None:
        self.test, self.body, self.orelse, self.pre = test, body, [], []


class HintedFor(ast.For):
    """A counted loop with a hint for the generator of machine code."""

    hint: Hint


class RowIf(ast.If):
    """An `if` that is decided once for a row of threads: its body is a loop of its own over them.

    Masked, a vector unit computes all of the body and throws it away.
    """


class PartIf(ast.If):
    """An `if` whose test fails in some thread of the row."""


class Unsigned(ast.expr):
    """An index that is proven not to be negative: generated code casts it to uint64."""

    _fields = ("value",)
    value: ast.expr

    def __init__(self, value: ast.expr) -> None:
        self.value = value


def load(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())


def store(name: str) -> ast.Name:
    return ast.Name(name, ast.Store())


def const(value: bool | float | str | None) -> ast.Constant:
    return ast.Constant(value)


def assign(name: str, value: ast.expr, at: ast.AST | None = None) -> ast.Assign:
    return located(ast.Assign([store(name)], value), at)


def call(name: str, *args: ast.expr) -> ast.Call:
    return ast.Call(load(name), list(args), [])


def binary(left: ast.expr, op: ast.operator, right: ast.expr) -> ast.BinOp:
    return ast.BinOp(left, op, right)


def negate(test: ast.expr) -> ast.expr:
    """`not test`; a double negation cancels. Operators are never flipped: NaN would differ."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return test.operand
    return ast.UnaryOp(ast.Not(), test)


def conjunction(*tests: ast.expr) -> ast.expr:
    return tests[0] if len(tests) == 1 else ast.BoolOp(ast.And(), list(tests))


def located(node, at: ast.AST | None):
    """`node` with the source position of `at`, which error messages and listings show."""
    if at is not None and hasattr(at, "lineno"):
        ast.copy_location(node, at)
        node.source = getattr(at, "source", None)
    return node


def collective(kind: str, dest: ast.Name | None, args: list[ast.expr], at: ast.AST) -> Collective:
    node = Collective(dest, args)
    node.kind = kind
    return located(node, at)


def clone(node):
    """A copy in which no node is shared, so that names can be changed one by one."""
    if isinstance(node, list):
        return [clone(item) for item in node]
    if not isinstance(node, ast.AST):
        return node
    new = node.__class__.__new__(node.__class__)
    new.__dict__.update(node.__dict__)
    for field in node._fields:
        if field not in ("ctx", "op", "ops") and hasattr(node, field):
            setattr(new, field, clone(getattr(node, field)))
    return new


def tests_of(node: ast.AST) -> tuple[ast.expr, ...]:
    """What is true wherever `node` runs, however it has been moved about: see `note_tests`."""
    return getattr(node, "tests", ())


def under_tests(node: _Node, *tests: ast.expr) -> _Node:
    """`node`, which only runs where `tests` are true."""
    node.__dict__["tests"] = tests
    return node


def note_tests(body: list[ast.stmt], *tests: ast.expr) -> None:
    """Note for all statements of `body`, which is under `tests`, what they are under."""
    for stmt in body:
        under_tests(stmt, *tests)
        if isinstance(stmt, ast.If):
            note_tests(stmt.body, *tests, stmt.test)
            note_tests(stmt.orelse, *tests, negate(stmt.test))
        else:
            for inner in bodies(stmt):
                note_tests(inner, *tests)


def bodies(stmt: ast.stmt) -> Iterator[list[ast.stmt]]:
    """The statement lists directly inside a compound statement."""
    for field in ("pre", "body", "orelse"):
        inner = getattr(stmt, field, None)
        if isinstance(inner, list) and isinstance(stmt, ast.If | ast.For | ast.While):
            yield inner


def statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Every statement of `body`, outer before inner, in program order."""
    for stmt in body:
        yield stmt
        for inner in bodies(stmt):
            yield from statements(inner)


def expressions(stmt: ast.stmt) -> list[ast.expr]:
    """The expressions that a statement evaluates itself, not those of the statements inside."""
    match stmt:
        case Collective():
            return list(stmt.args)
        case ast.Assign():
            target = stmt.targets[0]
            return [stmt.value] if isinstance(target, ast.Name) else [stmt.value, target]
        case ast.If() | ast.While():
            return [stmt.test]
        case ast.For():
            return [stmt.iter]
        case ast.Expr():
            return [stmt.value]
        case ast.Return():
            return [stmt.value] if stmt.value is not None else []
        case ast.Raise():
            return [stmt.exc] if stmt.exc is not None else []
    return []


def counter(loop: ast.For) -> str:
    """The variable that a loop counts with: loops of the normal form have no other targets."""
    assert isinstance(loop.target, ast.Name)
    return loop.target.id


def range_arguments(loop: ast.For) -> list[ast.expr]:
    """What a loop counts: the arguments of `range`, which every loop of the normal form is over."""
    assert isinstance(loop.iter, ast.Call)
    return loop.iter.args


def defined(stmt: ast.stmt) -> str | None:
    """The variable that a statement assigns itself, if any."""
    match stmt:
        case Collective() if stmt.dest is not None:
            return stmt.dest.id
        case ast.Assign() if isinstance(stmt.targets[0], ast.Name):
            return stmt.targets[0].id
        case ast.For():
            return counter(stmt)
    return None


def stored_array(stmt: ast.stmt) -> str | None:
    """The array to an element of which a statement assigns, if it does."""
    target = stmt.targets[0] if isinstance(stmt, ast.Assign) else None
    base = target.value if isinstance(target, ast.Subscript) else None
    return base.id if isinstance(base, ast.Name) else None


def nodes_in(root: ast.AST) -> list[ast.AST]:
    """What `ast.walk` yields, without the contexts of names, in a third of its time."""
    found = [root]
    for node in found:
        if type(node) in _LEAVES:
            continue
        for name in node._fields:
            value = getattr(node, name, None)
            if isinstance(value, ast.AST):
                found.append(value)
            elif type(value) is list:
                found += [item for item in value if isinstance(item, ast.AST)]
    return found


def names(expr: ast.AST) -> set[str]:
    """The names that an expression reads."""
    return {node.id for node in nodes_in(expr) if type(node) is ast.Name}


def used(stmt: ast.stmt) -> set[str]:
    """The names that a statement reads itself."""
    return set().union(*(names(e) for e in expressions(stmt)))


def breaks(body: list[ast.stmt]) -> bool:
    """Whether a `break` in `body` leaves the loop around it."""
    return any(
        isinstance(stmt, ast.Break)
        or (isinstance(stmt, ast.If) and (breaks(stmt.body) or breaks(stmt.orelse)))
        for stmt in body
    )


def terminates(body: list[ast.stmt], kinds: tuple[type, ...]) -> bool:
    """Whether every path through `body` ends in one of the jumps `kinds`."""
    if not body:
        return False
    last = body[-1]
    if isinstance(last, ast.If):
        return terminates(last.body, kinds) and terminates(last.orelse, kinds)
    if isinstance(last, ast.While) and isinstance(last.test, ast.Constant) and last.test.value:
        return not breaks(last.body)
    return isinstance(last, kinds)
