"""Fixtures shared by the tests of the SIMT compiler."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import pytest

from kernels.simt import cuda

# Whole programs, and what is said of memory, hold in the checked mode too; so do random kernels.
CHECKED_TOO = ("semantics.test_classic", "semantics.test_memory", "semantics.test_errors")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "jit" in metafunc.fixturenames:
        checked_too = metafunc.module.__name__.endswith(CHECKED_TOO)
        modes = ["plain", "checked"] if checked_too else ["plain"]
        metafunc.parametrize("jit", modes, indirect=True)


@pytest.fixture
def jit(request: pytest.FixtureRequest) -> Callable:
    """`cuda.jit` as it ships ("plain"), or in the checked mode."""
    return lambda *args, **kw: cuda.jit(*args, debug=request.param == "checked", **kw)


@pytest.fixture
def line_of() -> Callable[[Callable, str], int]:
    """line_of(function, marker): the number of the source line that holds the marker."""

    def find(function: Callable, marker: str) -> int:
        lines, first = inspect.getsourcelines(function)
        return first + next(i for i, text in enumerate(lines) if marker in text)

    return find
