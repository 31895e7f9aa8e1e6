"""A kernel cut at its barriers, with variables kept where the plan says, does what threads do."""

from __future__ import annotations

import pytest
from hypothesis import given
from numba import types

from kernels.simt.analysis.uniformity import analyse
from kernels.simt.transforms import storage
from kernels.simt.transforms.fission import fission
from kernels.simt.transforms.storage import assign_storage
from tests.simt import model, programs


def planned(program):
    """(facts, items, storage) of a kernel whose variables are all integers."""
    facts = analyse(program)
    items, masks = fission(program, facts)
    kinds = {**programs.KINDS, **dict.fromkeys(facts.defs, types.int64)}
    return facts, items, assign_storage(program, facts, items, masks, kinds)


def check(text: str, values: dict) -> None:
    program = programs.normal_form(text)
    expected = programs.results(program, values)
    arguments = programs.arguments(values)
    facts, items, plan = planned(program)
    model.Block(program, facts, plan, arguments).run(items)
    assert arguments["out"].values == expected


CASES = programs.kernels(barriers=True), programs.inputs()


@programs.PROPERTY
@given(*CASES)
def test_the_plan_does_what_threads_do(text, values):
    check(text, values)


def test_what_is_cheap_is_computed_again_and_the_rest_is_kept():
    text = """
def kernel(x, out, n, q):
    t = cuda.threadIdx.x
    i = t * 2 + n
    a = x[t]
    for k in range(q):
        a += k * i
    cuda.syncthreads()
    out[t, 0] = a + i
"""
    _, _, plan = planned(programs.normal_form(text))
    assert plan.spilled == {"a"}
    assert "i" in plan.rematerialised


def test_a_thread_divides_its_number_once():
    """A division of what all threads share is done once anyway, and one by 8 costs little."""
    text = """
def kernel(x, out, n, q):
    t = cuda.threadIdx.x
    own = t // n
    shared = q // n + t
    eighth = t // 8
    a = x[t]
    cuda.syncthreads()
    out[t, 0] = a + own + shared + eighth
"""
    _, _, plan = planned(programs.normal_form(text))
    assert plan.spilled == {"a", "own"}
    assert {"shared", "eighth"} <= set(plan.rematerialised)


@pytest.mark.parametrize("kind", ["spilled", "rematerialised"])
def test_a_variable_left_out_of_the_plan_is_found(kind, monkeypatch):
    def leave_out(*args):
        found = assign_storage(*args)
        kept = getattr(found, kind)
        if kept:
            name = max(kept)
            kept.remove(name) if isinstance(kept, set) else kept.pop(name)
        return found

    monkeypatch.setitem(globals(), "assign_storage", leave_out)
    assert programs.fault_is_found(check, *CASES)


FAULTS = {
    "dominates": """
def kernel(x, out, n, q):
    t = cuda.threadIdx.x
    for k in range(2):
        cuda.syncthreads()
        if k > 0:
            out[t, 0] = e
        e = t + k
""",
    "stays": """
def kernel(x, out, n, q):
    t = cuda.threadIdx.x
    for k in range(2):
        e = t + (f if k > 0 else 0)
        f = t * k + 5
        cuda.syncthreads()
        out[t, k] = e
""",
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_value_computed_again_from_other_values_is_found(name, monkeypatch):
    values = {"x": [0] * programs.INPUTS, "n": 0, "q": 0}
    check(FAULTS[name], values)
    monkeypatch.setattr(storage, name, lambda *args: True)
    with pytest.raises((AssertionError, NameError)):
        check(FAULTS[name], values)
