"""Shapes that come once or seldom: nothing is remembered for them, and nothing is forgotten."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import minigrad
from kernels import dispatch
from kernels.launchers import relaunch
from kernels.launchers.common import zeros
from kernels.pointwise import TABLE
from kernels.support import thread_pool

MUL, AXPY = TABLE["mul"], TABLE["axpy"]


@pytest.fixture(autouse=True)
def table(monkeypatch):
    monkeypatch.setattr(thread_pool.wanted, "value", 1)
    before = dispatch.backend()
    dispatch.set_backend("auto")
    dispatch.active.pointwise(MUL, np.ones(2), np.ones(2))
    relaunch._table._start()
    relaunch._table._clear()
    relaunch._seen.clear()
    yield relaunch._table
    dispatch.set_backend(before)


def launch(n: int) -> None:
    x = np.arange(n, dtype=np.float32)
    np.testing.assert_array_equal(dispatch.active.pointwise(MUL, x, x), x * x)


def test_a_launch_is_remembered_when_it_has_run_twice(table):
    for n in (1001, 1002, 1003):
        launch(n)
    assert table.count == 0
    launch(1002)
    launch(1002)
    assert table.count == 1


def test_only_what_comes_twice_before_the_table_starts_anew_is_remembered(table):
    launch(1004)
    table._clear()
    launch(1004)
    assert table.count == 0
    launch(1004)
    assert table.count == 1
    table._clear()
    launch(1004)
    assert table.count == 0


def together(x, y):
    return dispatch.active.pointwise(MUL, dispatch.active.pointwise(MUL, x, y), y)


def test_only_calls_of_several_launches_that_come_twice_are(table):
    x = np.ones((33, 8), np.float32)
    for _ in range(3):
        table._clear()
        dispatch.together(together, x, x)
        assert table.count == 0
    dispatch.together(together, x, x)
    assert table.count == 1


def test_a_call_of_several_launches_is_remembered_without_its_parts(table, rng):
    x, y = rng.normal(size=(2, 33, 7)).astype(np.float32)
    for count in (0, 1, 1, 1):
        found = dispatch.together(together, x, y)
        np.testing.assert_allclose(found, x * y * y, rtol=1e-6)
        assert table.count == count
    assert dispatch.relaunch(None, dispatch.active, MUL, x, y) is None
    launch(1005)  # by themselves, launches are remembered as before
    launch(1005)
    assert table.count == 2


def test_the_parts_of_a_call_that_cannot_be_remembered_are(table, rng):
    def filled(x):  # by the host
        return dispatch.active.pointwise(MUL, x, x), zeros((2,), np.float32, x)

    x = rng.normal(size=(33, 7)).astype(np.float32)
    for _ in range(5):
        found, none = dispatch.together(filled, x)
        np.testing.assert_array_equal(found, x * x)
        assert not none.any()
    assert dispatch.relaunch(None, dispatch.active, MUL, x, x) is not None


def test_a_call_that_fails_leaves_its_thread_free_to_remember(table):
    def fails(x):
        raise ArithmeticError

    with pytest.raises(ArithmeticError):
        dispatch.together(fails, np.ones(3, np.float32))
    launch(1006)
    launch(1006)
    assert table.count == 1


def test_another_thread_remembers_meanwhile(table):
    def waits(x):
        other = threading.Thread(target=lambda: [launch(1007), launch(1007)])
        other.start()
        other.join()
        return dispatch.active.pointwise(MUL, x, x)

    dispatch.together(waits, np.ones(3, np.float32))
    assert table.count == 1


def test_all_shapes_of_a_program_are_remembered(table):
    """As texts of 1000 lengths have: none takes the long way forever."""
    layer = minigrad.nn.Linear(3, 5)
    counts = []
    for _ in range(5):
        for n in range(1, 1001):
            layer(minigrad.ones(n, 3)).relu().sum().backward()
        counts.append(table.count)
    assert counts[-1] == counts[-2] > 4096


def doubled(x, number):
    return dispatch.active.pointwise(AXPY, x, x, params=(2 * number,))


def times(x, number):
    return dispatch.active.pointwise(AXPY, x, x, params=(number,))


def test_a_number_that_is_converted_is_not_remembered_as_a_constant(table):
    x = np.ones(1005, np.float32)
    for number in (1.5, 2.5, 3.5, 4.5):
        assert set(dispatch.together(doubled, x, number)) == {1 + 2 * number}
    assert table.count == 1  # the launch alone
    for number in (1.5, 2.5, 3.5, 4.5):
        assert set(dispatch.together(times, x, number)) == {1 + number}
    assert table.count == 2
