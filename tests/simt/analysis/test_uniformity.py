"""What is said to be uniform has one value in all threads that evaluate it together.

Together: at the same statement, in the same turn of each loop around it.
"""

from __future__ import annotations

import ast

import pytest
from hypothesis import given

from kernels.simt.analysis import uniformity
from kernels.simt.analysis.uniformity import analyse, dependent_on
from kernels.simt.ir.nodes import THREAD
from tests.simt import model, programs


class Agreement:
    """Watches a run: threads that agree on `along` agree on what is said not to vary."""

    def __init__(self, facts, along: tuple[str, ...] = ()) -> None:
        self.facts, self.along = facts, along
        self.runner = model.Runner()
        self.seen: dict[tuple, object] = {}

    def __call__(self, moment: model.Moment) -> None:
        at = tuple(moment.env[name] for name in self.along)
        for expr in ast.walk(moment.expr):
            if isinstance(expr, ast.Name | ast.Subscript | ast.BinOp | ast.Compare | ast.Call):
                self.look(expr, (id(expr), moment.turn, at), moment.env)
        test = getattr(moment.stmt, "test", None)
        if moment.expr is test and id(moment.stmt) not in self.facts.divergent:
            self.agree(
                (id(moment.stmt), moment.turn, at), bool(self.runner.value(test, moment.env))
            )

    def look(self, expr: ast.expr, key: tuple, env: dict) -> None:
        if not self.facts.is_varying(expr):
            value = self.runner.value(expr, env)
            if isinstance(value, int | range):
                self.agree(key, value)

    def agree(self, key: tuple, value: object) -> None:
        first = self.seen.setdefault(key, value)
        assert first == value, "threads disagree on what is said to be uniform"


def check(text: str, values: dict) -> None:
    program = programs.normal_form(text)
    programs.results(program, values, Agreement(analyse(program)))


def check_rows(text: str, values: dict) -> None:
    """The same of the threads of a row, for what does not depend on their place in it."""
    program = programs.normal_form(text)
    facts = dependent_on({"_tx"}, program, program.body)
    programs.results(program, values, Agreement(facts, along=THREAD[1:]))


CASES = programs.kernels(barriers=True), programs.inputs()


@programs.PROPERTY
@given(*CASES)
def test_a_block_agrees_on_what_is_uniform(text, values):
    check(text, values)


@programs.PROPERTY
@given(programs.kernels(), programs.inputs())
def test_a_row_agrees_on_what_does_not_depend_on_x(text, values):
    check_rows(text, values)


def test_what_all_threads_compute_alike_is_uniform():
    text = """
def kernel(x, out, n, q):
    a = n * 2
    for k in range(q):
        a += x[k % 5]
    t = cuda.threadIdx.x
    b = t + a
    out[t, 0] = b
"""
    facts = analyse(programs.normal_form(text))
    assert not {"a", "k"} & facts.varying
    assert "b" in facts.varying


FAULTS = {
    "_leaks": """
def kernel(x, out, n, q):
    t, a = cuda.threadIdx.x, 0
    if t > n:
        a = 1
    out[t, 0] = a
""",
    "_diverge_by_jump": """
def kernel(x, out, n, q):
    t, a = cuda.threadIdx.x, 0
    for k in range(3):
        if t > k:
            break
        a = a + 1
    out[t, 0] = a
""",
}


@pytest.mark.parametrize("name", FAULTS)
def test_planted_faults_are_found(name, monkeypatch):
    """What a branch leaves behind, and what a jump makes of its loop, forgotten."""
    values = {"x": [0] * programs.INPUTS, "n": 0, "q": 0}
    check(FAULTS[name], values)
    monkeypatch.setattr(uniformity, name, lambda *args: False)
    with pytest.raises(AssertionError, match="disagree"):
        check(FAULTS[name], values)


def test_threads_taken_for_uniform_are_found(monkeypatch):
    monkeypatch.setattr(uniformity, "THREAD", ("_ty", "_tz"))
    assert programs.fault_is_found(check, *CASES)
