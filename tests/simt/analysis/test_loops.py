"""Which loops end by themselves, so that they are not polled for interrupts."""

from __future__ import annotations

import ast

import pytest

from kernels.simt.analysis.loops import ends_by_itself


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
