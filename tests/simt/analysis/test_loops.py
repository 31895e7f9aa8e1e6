"""Which loops end by themselves, so that they are not polled for interrupts, and which may wait."""

from __future__ import annotations

import ast

import pytest
from numba.core import types

from kernels.simt.analysis.loops import ends_by_itself, spins
from kernels.simt.ir.nodes import Loop
from kernels.simt.ir.program import Program


def ends(text: str) -> bool:
    program = ast.parse(text).body
    loop = program[-1]
    assert isinstance(loop, ast.While)
    return ends_by_itself(loop.test, loop.body, program)


@pytest.mark.parametrize(
    "text",
    [
        "while i < n:\n  x = i\n  i = i + _gx * 64",
        "s = _gx * 64\nwhile i <= n:\n  i = i + s",
        "while k > 0:\n  x = k\n  k = k // 2",
        "while k > 0:\n  k = k >> 1",
    ],
)
def test_loops_that_end(text):
    assert ends(text)


@pytest.mark.parametrize(
    "text",
    [
        "while i < n:\n  x = i",
        "while i < n:\n  i = i + 1",  # as often as n says
        "while i < n:\n  i = i + s",  # s may be 0
        "s = _gx * 64\ns = s - s\nwhile i < n:\n  i = i + s",
        "while i < n:\n  if i > x:\n    i = i + _gx * 64",
        "while i < n:\n  if i > x:\n    continue\n  i = i + _gx * 64",
        "while i < n:\n  i = i + _gx * 64\n  i = x",
        "while i > n:\n  i = i + _gx * 64",
        "while i < n:\n  i = j + _gx * 64",
        "while k >= 0:\n  k = k // 2",  # stays 0
        "while k > m:\n  k = k // 2",
        "while k > 0:\n  k = k // 1",
        "while k > 0:\n  k = k >> 0",
        "while k > 0:\n  k = k - 1",
    ],
)
def test_loops_that_may_not(text):
    assert not ends(text)


def waits(text: str) -> bool:
    (loop,) = ast.parse(text).body
    made = Loop(loop.test, loop.body)
    made.pre = []
    return spins(made, Program("k", "k.py", 1, (1, 1, 1), externs={"_int32": types.int32}))


@pytest.mark.parametrize(
    "text",
    [
        "while x[0] == 0:\n  y = 1",
        "while lock(x) != 0:\n  y = 1",
        "while True:\n  if x[0]:\n    break",
        "while True:\n  v = x[0]\n  w = v + 1\n  done = w > 3\n  if done:\n    break",
        "while done:\n  if y:\n    done = x[0] > 1",
    ],
)
def test_loops_that_wait_for_memory(text):
    assert waits(text)


@pytest.mark.parametrize(
    "text",
    [
        "while i < x.shape[0]:\n  i = _int32(i + 1)",
        "while True:\n  x[i] = x[i] + 1\n  i = _int32(i + 1)\n  if i > min(n, 5):\n    break",
        "while i < n:\n  s = s + x[i]\n  i = i + 1",
    ],
)
def test_loops_that_do_not(text):
    assert not waits(text)
