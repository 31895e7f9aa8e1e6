"""CUDA C tests need a C++ compiler, and run with the threads of a block in both orders."""

from __future__ import annotations

import pytest

from kernels.host import compiler
from kernels.support.errors import CompileError


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    try:
        compiler.find_compiler()
    except CompileError as error:
        for item in items:
            if "/tests/host/" in str(item.path) and "no_compiler" not in item.name:
                item.add_marker(pytest.mark.skip(reason=str(error)))


@pytest.fixture(autouse=True)
def _as_users_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without tests/conftest.py's fewer optimisations."""
    monkeypatch.delenv("MINIGRAD_CXXFLAGS", raising=False)


@pytest.fixture(params=["forward", "reversed", "unchecked"])
def order(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The order in which the threads of a block start: a missing barrier shows in one of them.
    And the same without checks, as the kernels of this project run."""
    if request.param == "unchecked":
        monkeypatch.setenv("MINIGRAD_CUDA_DEBUG", "0")
    else:
        monkeypatch.setenv("MINIGRAD_THREAD_ORDER", request.param)
    return request.param
