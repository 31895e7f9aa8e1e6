"""Masks that are known at compile time: `if threadIdx.x < 32` takes threads 0 to 31.

A warp that combines the partial results of a block is the usual case. Loops over the threads of
such a mask run from its first thread to its last, with no test in them, so they are vector code.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from types import CodeType

from kernels.simt.frontend import calls
from kernels.simt.ir.nodes import clone
from kernels.simt.ir.program import Program
from kernels.simt.ir.stubs import WARP_SIZE
from kernels.simt.plan.parts import CollectivePlan
from kernels.simt.transforms.fission import CollectivePoint, Item, MaskIf, MaskWhile, walk

Span = tuple[int, int]  # the first thread of a mask, and the last + 1
_ARITHMETIC = ast.Add | ast.Sub | ast.Mult | ast.FloorDiv | ast.Mod
_ORDER = ast.Lt | ast.LtE | ast.Gt | ast.GtE | ast.Eq | ast.NotEq
_OPERATORS = _ARITHMETIC | _ORDER | ast.And | ast.Or | ast.Not | ast.USub
_OPERATIONS = ast.BinOp | ast.Compare | ast.BoolOp | ast.UnaryOp | ast.expr_context


def known_spans(
    program: Program,
    items: list[Item],
    definitions: Mapping[str, ast.expr],
    collectives: dict[CollectivePoint, CollectivePlan],
) -> dict[str | None, Span]:
    """By mask: its threads, if they are the same in every launch and neighbours, and nothing that
    depends on the mask needs more than these numbers. `definitions` are assigned once."""
    x, y, z = program.block
    if program.checked or program.cooperative or program.interleaving or y * z > 1:
        return {}
    found: dict[str | None, Span] = {}
    for item in walk(items):
        if isinstance(item, MaskIf) and item.mask is None and item.other is None:
            span = _span(item.test, x, definitions)
            if span is not None and all(
                _needs_no_mask(i, span, collectives) for i in walk(item.body)
            ):
                found[item.taken] = span
    return found


def _needs_no_mask(
    item: Item, span: Span, collectives: dict[CollectivePoint, CollectivePlan]
) -> bool:
    if not isinstance(item, CollectivePoint):
        return not isinstance(item, MaskIf | MaskWhile)
    kind, plan = item.stmt.kind, collectives[item]
    if plan.reads_ahead and any(end % WARP_SIZE for end in span):
        return False  # it runs by whole warps
    return plan.check is None and (kind in calls.SHUFFLES or kind in calls.BARRIERS)


def _span(test: ast.expr, threads: int, definitions: Mapping[str, ast.expr]) -> Span | None:
    """The threads of a block for which `test` holds, if they follow one another."""
    taken = threads_of(test, threads, definitions)
    if not taken or taken != list(range(taken[0], taken[-1] + 1)):
        return None
    return taken[0], taken[-1] + 1


def threads_of(
    test: ast.expr, threads: int, definitions: Mapping[str, ast.expr]
) -> list[int] | None:
    """The values of `_tx` below `threads` for which `test` holds; None where it depends on more."""
    code = _code(test, definitions)
    if code is None:
        return None
    try:
        return [tx for tx in range(threads) if eval(code, {"__builtins__": {}, "_tx": tx})]
    except ZeroDivisionError:
        return None


def _code(test: ast.expr, definitions: Mapping[str, ast.expr]) -> CodeType | None:
    """`test` as a Python expression of `_tx` alone, compiled; None where it depends on more."""
    expanded = _Expand(definitions).visit(clone(test))
    for node in ast.walk(expanded):
        known = isinstance(node, _OPERATIONS | _OPERATORS)
        known |= isinstance(node, ast.Name) and node.id == "_tx"
        known |= isinstance(node, ast.Constant) and isinstance(node.value, int)
        if not known:
            return None
    return compile(ast.fix_missing_locations(ast.Expression(expanded)), "<mask>", "eval")


class _Expand(ast.NodeTransformer):
    """Replaces variables by what they are defined as."""

    def __init__(self, definitions: Mapping[str, ast.expr]) -> None:
        self.definitions = definitions

    def visit_Name(self, node: ast.Name) -> ast.expr:
        found = self.definitions.get(node.id)
        return node if found is None else self.visit(clone(found))
