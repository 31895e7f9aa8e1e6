"""The benchmark that counts instructions of Python's."""

from __future__ import annotations

import sys

import pytest

import minigrad as mg


@pytest.fixture
def bytecodes():
    from benchmarks import bytecodes

    return bytecodes


def test_calls_and_instructions_are_counted(bytecodes):
    def once():
        return 1 + len(str(3))

    def thrice():
        once(), once(), once()

    before = sys.gettrace()
    one, three = bytecodes.count(once), bytecodes.count(thrice)
    assert one.calls[once.__code__] == 1 and three.calls[once.__code__] == 3
    assert three.instructions[once.__code__] == 3 * one.instructions[once.__code__] > 0
    assert three.instructions.total() > three.instructions[once.__code__]
    assert sys.gettrace() is before


def test_a_step_takes_the_same_number_each_time(bytecodes):
    x = mg.ones(4, requires_grad=True)

    def step():
        x.grad = None
        (x * x).sum().backward()

    for _ in range(bytecodes.WARM_UP):
        step()
    totals = {bytecodes.count(step).instructions.total() for _ in range(3)}
    assert len(totals) == 1


def test_an_error_ends_the_count(bytecodes):
    before = sys.gettrace()
    with pytest.raises(ZeroDivisionError):
        bytecodes.count(lambda: 1 // 0)
    assert sys.gettrace() is before
