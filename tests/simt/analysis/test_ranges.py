"""What is proven of the sign of an expression holds for every value that it takes.

The proofs assume that 64-bit integers do not overflow; these examples stay far below.
"""

from __future__ import annotations

import ast

import pytest
from hypothesis import given
from numba import types

from kernels.simt.analysis import ranges
from kernels.simt.analysis.ranges import Ranges
from kernels.simt.analysis.uniformity import analyse
from tests.simt import model, programs

BOUNDS = (1, 2, 3)


def reasoning(program) -> Ranges:
    facts = analyse(program)
    kinds = {**programs.KINDS, **dict.fromkeys(facts.defs, types.int64)}
    return Ranges(program, facts, kinds, {"n"})


class Claims:
    """Watches a run: every expression that was said to be >= 0, or >= 1, is."""

    def __init__(self, program) -> None:
        self.ranges = reasoning(program)
        self.runner = model.Runner()
        self.known: dict[int, int | None] = {}  # the lower bound claimed of an expression
        self.proven = 0

    def __call__(self, moment: model.Moment) -> None:
        self.ranges.assumed[:] = [self.ranges.shown(test, holds) for test, holds in moment.around]
        self.look(moment.expr, moment.env)

    def look(self, expr: ast.expr, env: dict) -> None:
        if id(expr) not in self.known:
            self.known[id(expr)] = self.claimed(expr)
        bound = self.known[id(expr)]
        if bound is not None:
            value = self.runner.value(expr, env)
            self.proven += isinstance(value, int)
            assert not isinstance(value, int) or value >= bound, (ast.unparse(expr), value, bound)
        if isinstance(expr, ast.IfExp):
            self.look(expr.test, env)
            holds = bool(self.runner.value(expr.test, env))
            self.ranges.assumed.append(self.ranges.shown(expr.test, holds))
            self.look(expr.body if holds else expr.orelse, env)
            self.ranges.assumed.pop()
            return
        for part in ast.iter_child_nodes(expr):
            if isinstance(part, ast.expr) and not isinstance(part, ast.Slice):
                self.look(part, env)

    def claimed(self, expr: ast.expr) -> int | None:
        bounds = [bound for bound in BOUNDS if self.ranges.at_least(expr, bound)]
        return max(bounds) if bounds else 0 if self.ranges.nonnegative(expr) else None


def check(text: str, values: dict) -> None:
    program = programs.normal_form(text)
    programs.results(program, values, Claims(program))


@programs.PROPERTY
@given(programs.kernels(), programs.inputs())
def test_what_is_proven_holds(text, values):
    check(text, values)


@pytest.mark.parametrize(
    "expression",
    [
        "t * 4 + y",
        "i // 2",
        "i % 3",
        "n or t",
        "min(n, t)",
        "q if q > 0 else 1",
        "q if 0 <= q and n > 3 else n",
        "(q & 7) + abs(q)",
        "x.shape[0]",
        "t - 0",
        "(i + 3) - 2",
    ],
)
def test_ordinary_indices_are_proven(expression):
    assert proven(expression)


@pytest.mark.parametrize(
    "expression",
    ["i - t", "i - 1", "(t + 1) - 2", "q - 0", "q", "n or q", "x.strides[0]", "min(n, q)", "-n"],
)
def test_what_may_be_negative_is_not_proven(expression):
    assert not proven(expression)


def proven(expression: str) -> bool:
    text = f"""
def kernel(x, out, n, q):
    i = cuda.grid(1)
    t, y = cuda.threadIdx.x, cuda.threadIdx.y
    out[0, 0] = {expression}
"""
    program = programs.normal_form(text)
    return reasoning(program).nonnegative(program.body[-1].value)


RIGHT = Ranges._arithmetic
FAULTS = {
    "t - n": lambda self, a, op, b: self.nonnegative(a) and self.nonnegative(b),
    "t - 1": lambda self, a, op, b: self.nonnegative(a),
    "n % -2": lambda self, a, op, b: isinstance(op, ast.Mod) or RIGHT(self, a, op, b),
    "n + q": lambda self, a, op, b: isinstance(op, ast.Add) and self.nonnegative(a),
}
VALUES = {"x": [0] * programs.INPUTS, "n": 3, "q": -5}


@pytest.mark.parametrize("expression", FAULTS)
def test_planted_faults_of_arithmetic_are_found(expression, monkeypatch):
    text = f"""
def kernel(x, out, n, q):
    t = cuda.threadIdx.x
    out[t, 0] = {expression}
"""
    check(text, VALUES)
    monkeypatch.setattr(Ranges, "_arithmetic", FAULTS[expression])
    with pytest.raises(AssertionError):
        check(text, VALUES)


def test_a_condition_taken_for_its_opposite_is_found(monkeypatch):
    text = """
def kernel(x, out, n, q):
    if q >= 0:
        out[0, 0] = 1
    else:
        out[0, 0] = q
"""
    check(text, VALUES)
    monkeypatch.setattr(ranges, "OPPOSITE", {op: op for op in ranges.OPPOSITE})
    with pytest.raises(AssertionError, match="'q', -5, 0"):
        check(text, VALUES)
