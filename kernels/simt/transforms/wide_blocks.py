"""Neighbouring blocks that are narrow in x, as one wide block.

A block of 16 x 16 threads touches 16 rows of an image, 64 bytes in each. Where rows are a power of
two apart these fall into the same few places of a cache, from which some are evicted before the
next block comes; and a processor prefetches along a row. A wide block goes along the rows. It does
the same where a kernel has no loops, barriers or arrays of its own, and where its threads know of
their place in x by `blockIdx.x * blockDim.x + threadIdx.x` alone: blocks may run in any order, and
together.

`_span` threads of a wide block are there: fewer than WIDTH at the end of the grid.
"""

from __future__ import annotations

import ast
from dataclasses import replace

from kernels.simt.analysis.ranges import constant
from kernels.simt.analysis.uniformity import dependent_on, has_effects, has_loads
from kernels.simt.ir.nodes import (
    Collective,
    clone,
    defined,
    expressions,
    load,
    located,
    nodes_in,
    statements,
)
from kernels.simt.ir.program import Program

WIDTH = 256  # threads of a wide block in x
NARROW = 64  # and of those that gain by it, at most
# What an expression is of: everything that a kernel may use, or only a part of a thread's place
_WHOLE, _THREAD, _NUMBER, _BLOCK = "the place", "threadIdx.x", "blockIdx.x", "blockIdx.x * width"


class _Unlike(Exception):
    """The kernel would do something else in a wide block, or gains nothing."""


def widened(program: Program) -> Program | None:
    """`program` for wide blocks; None where these would not do the same, or not faster."""
    x, y, z = program.block
    if program.checked or program.cooperative or program.interleaving or program.ordered:
        return None
    if x > NARROW or WIDTH % x or program.arrays:
        return None
    if any(isinstance(s, ast.For | ast.While | Collective) for s in statements(program.body)):
        return None
    try:
        _Places(program).check()
    except _Unlike:
        return None
    return replace(
        program,
        block=(WIDTH, y, z),
        joined=WIDTH // x,
        body=_guarded(program),
        externs=dict(program.externs),
        taken=set(program.taken),
    )


class _Places:
    """Follows a thread's place in x through a kernel without loops."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.across = dependent_on({"_tx"}, program, program.body)
        self.kinds: dict[str, str] = {}

    def check(self) -> None:
        """Raise _Unlike where a thread uses a part of its place, or neighbours elements that are
        not: those of a column are shared by the blocks of a grid, not by threads of a row."""
        for stmt in statements(self.program.body):
            name = defined(stmt)
            kinds = [self.kind(expr) for expr in expressions(stmt)]
            if name is not None and len(self.across.defs[name]) == 1:
                (self.kinds[name],) = kinds
            elif any(kind != _WHOLE for kind in kinds):
                raise _Unlike
            for node in (node for expr in expressions(stmt) for node in nodes_in(expr)):
                if isinstance(node, ast.Subscript) and not self._is_row(node.slice):
                    raise _Unlike

    def kind(self, node: ast.AST) -> str:
        """What an expression is of."""
        match node:
            case ast.Name(id="_tx"):
                return _THREAD
            case ast.Name(id="_bx"):
                return _NUMBER
            case ast.Name(id=name):
                return self.kinds.get(name, _WHOLE)
            case ast.BinOp(left=a, op=ast.Add(), right=b):
                kinds = {self.kind(a), self.kind(b)}
                if kinds == {_THREAD, _BLOCK}:
                    return _WHOLE
                return self._beside(kinds)
            case ast.BinOp(left=a, op=ast.Sub(), right=b) if self.kind(b) == _WHOLE:
                return self._beside({self.kind(a), _WHOLE})
            case ast.BinOp(left=a, op=ast.Mult(), right=b):
                width = self.program.block[0]
                for one, other in ((a, b), (b, a)):
                    if self.kind(one) == _NUMBER and constant(other) == width:
                        return _BLOCK
        if any(self.kind(inner) != _WHOLE for inner in ast.iter_child_nodes(node)):
            raise _Unlike
        return _WHOLE

    def _beside(self, kinds: set[str]) -> str:
        """What the sum of something that all threads may use and something of `kinds` is of."""
        others = kinds - {_WHOLE}
        if len(others) > 1 or (others and _WHOLE not in kinds):
            raise _Unlike
        return others.pop() if others else _WHOLE

    def _is_row(self, index: ast.expr) -> bool:
        """Whether threads of a row use neighbouring elements, or the same."""
        indices = index.elts if isinstance(index, ast.Tuple) else [index]
        if any(map(self.across.is_varying, indices[:-1])):
            return False
        return not any(map(self._is_apart, indices[-1:]))  # none of an array of no dimensions

    def _is_apart(self, expr: ast.expr) -> bool:
        """Whether an index is more than a sum with the thread's place, or a variable that is."""
        for node in nodes_in(expr):
            is_sum = not isinstance(node, ast.BinOp) or isinstance(node.op, ast.Add | ast.Sub)
            if not is_sum and self.across.is_varying(node):
                return True
            if isinstance(node, ast.Name) and node.id in self.across.varying:
                sites = self.across.defs.get(node.id, [])
                values = [site.stmt.value for site in sites if isinstance(site.stmt, ast.Assign)]
                if any(map(self._is_apart, values)):
                    return True
        return False


def _guarded(program: Program) -> list[ast.stmt]:
    """The body of a kernel for those threads that are there."""
    body = program.body
    first = next((k for k, stmt in enumerate(body) if not _is_free(program, stmt)), len(body))
    rest = body[first:]
    there: ast.expr = ast.Compare(load("_tx"), [ast.Lt()], [load("_span")])
    guard = rest[0] if len(rest) == 1 else None
    if isinstance(guard, ast.If) and not guard.orelse:
        test = ast.BoolOp(ast.And(), [there, *map(clone, _parts(guard.test))])
        return [*body[:first], located(ast.If(test, guard.body, []), guard)]
    return [*body[:first], located(ast.If(there, rest, []), rest[0])] if rest else body


def _parts(test: ast.expr) -> list[ast.expr]:
    """What a test is a conjunction of."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return test.values
    return [test]


def _is_free(program: Program, stmt: ast.stmt) -> bool:
    """Whether a thread that is not there may run a statement: it computes a number."""
    if not isinstance(stmt, ast.Assign) or defined(stmt) is None or has_effects(program, stmt):
        return False
    return not has_loads(program, stmt.value)
