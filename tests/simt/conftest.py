"""Fixtures shared by the tests of the SIMT compiler."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import pytest

from kernels.simt import cuda


@pytest.fixture(params=["plain", "checked"])
def jit(request: pytest.FixtureRequest) -> Callable:
    """`cuda.jit`, once as it ships and once in the checked mode."""
    return lambda *args, **kw: cuda.jit(*args, debug=request.param == "checked", **kw)


@pytest.fixture
def line_of() -> Callable[[Callable, str], int]:
    """line_of(function, marker): the number of the source line that holds the marker."""

    def find(function: Callable, marker: str) -> int:
        lines, first = inspect.getsourcelines(function)
        return first + next(i for i, text in enumerate(lines) if marker in text)

    return find
