"""`match` on numbers as a chain of `if`s, for the patterns that numba-cuda compiles."""

from __future__ import annotations

import ast

from kernels.simt.frontend.scope import Translator
from kernels.simt.ir.nodes import load, located, store


def lowered(norm: Translator, stmt: ast.Match) -> list[ast.stmt]:
    """Equivalent statements without `match`, in the source language."""
    subject = f"{id(stmt)} subject"  # no identifier of the source can be this
    norm.assigned[subject] = 2
    norm.names[subject] = load(norm.program.fresh("subject"))
    chain: list[ast.stmt] = []
    for case in reversed(stmt.cases):
        test, captured = _test(norm, case.pattern, subject)
        chain = _case(norm, case, test, captured, subject, chain)
    return [located(ast.Assign([store(subject)], stmt.subject), stmt), *chain]


def _case(norm: Translator, case, test, captured, subject: str, otherwise: list) -> list[ast.stmt]:
    bind: list[ast.stmt] = []
    if captured is not None:
        norm.assigned[captured] = 2
        bind = [located(ast.Assign([store(captured)], load(subject)), case.pattern)]
    if case.guard is None:
        body = [*bind, *case.body]
        return body if test is None else [located(ast.If(test, body, otherwise), case.pattern)]
    if test is None:
        return [*bind, located(ast.If(case.guard, case.body, otherwise), case.pattern)]
    if bind:
        raise norm.uncompiled(case.pattern)
    both = located(ast.BoolOp(ast.And(), [test, case.guard]), case.pattern)
    return [located(ast.If(both, case.body, otherwise), case.pattern)]


def _test(norm: Translator, pattern: ast.pattern, subject: str):
    """(the test, or None if anything matches; the name that the subject is bound to)."""
    test = None
    match pattern:
        case ast.MatchValue(value=value):
            test = ast.Compare(load(subject), [ast.Eq()], [value])
        case ast.MatchSingleton(value=value):
            test = ast.Compare(load(subject), [ast.Is()], [ast.Constant(value)])
        case ast.MatchOr(patterns=patterns):
            tests = [_test(norm, inner, subject) for inner in patterns]
            if any(name or part is None for part, name in tests):
                raise norm.uncompiled(pattern)
            test = ast.BoolOp(ast.Or(), [part for part, _ in tests])
        case ast.MatchAs(pattern=None, name=name):
            return None, name
        case ast.MatchAs(pattern=inner, name=name):
            test, other = _test(norm, inner, subject)
            if other:
                raise norm.uncompiled(pattern)
            return test, name
        case _:
            raise norm.uncompiled(pattern)
    for node in ast.walk(located(test, pattern)):
        if isinstance(node, ast.expr):
            located(node, pattern)
    return test, None
