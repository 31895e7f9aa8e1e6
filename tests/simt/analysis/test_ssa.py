"""Giving every web of a variable a name of its own changes no result."""

from __future__ import annotations

import ast

from hypothesis import given

from kernels.simt.analysis import ssa
from tests.simt import programs


def check(text: str, values: dict) -> None:
    program = programs.before_renaming(text)
    expected = programs.results(program, values)
    ssa.rename(program)
    assert programs.results(program, values) == expected
    renamed = variables(program)
    ssa.rename(program)
    assert len(variables(program)) == len(renamed)  # nothing was left to tell apart


@programs.PROPERTY
@given(programs.kernels(), programs.inputs())
def test_renaming_changes_no_result_and_is_complete(text, values):
    check(text, values)


def variables(program) -> set[str]:
    nodes = ast.walk(ast.Module(program.body, []))
    return {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}


def test_unrelated_lives_are_told_apart():
    text = """
def kernel(x, out, n, q):
    a = n
    out[0, 0] = a
    a = x[0]
    out[0, 1] = a
"""
    assert len(variables(programs.normal_form(text))) == 2


def test_a_merge_that_forgets_a_path_is_found(monkeypatch):
    def first_path_only(*envs):
        return next((env for env in envs if env is not None), None)

    monkeypatch.setattr(ssa, "_merge", first_path_only)
    assert programs.fault_is_found(check, programs.kernels(), programs.inputs())
